package flexasynch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
	"time"

	"github.com/cohortdb/cohort/ndb"
)

// retries is how often what failed of a phase is run again.
const retries = 3

// errFailed ends a run whose operations did not all succeed.
var errFailed = errors.New("operations failed")

// run is one run of the program.
type run struct {
	s       *settings
	out     io.Writer
	note    func(format string, args ...any) // on standard error
	connect func(ctx context.Context, s *settings, note func(string, ...any)) (cluster, error)
	wait    func(ctx context.Context, d time.Duration) // for timed runs
	unique  uint32                                     // for table names
	books   accounting
	watched io.Writer // a terminal that shows progress; nil: none

	cluster cluster
	driver  driver
	control
	all [kinds]figures
	bad bool // something failed for good
}

// do runs everything. When ctx ends, the phase under way is cut short.
func (r *run) do(ctx context.Context) (err error) {
	s := r.s
	if s.indexes > 0 {
		return errors.New("ordered indexes are not supported yet: leave -num_indexes out")
	}
	for _, list := range [][]int{s.receiveCPUs, s.definerCPUs, s.executorCPUs} {
		if err := tryCPUs(list); err != nil {
			return err
		}
	}
	if r.cluster, err = r.connect(ctx, s, r.note); err != nil {
		return err
	}
	defer r.cluster.close()
	names := s.tableNames(r.unique)
	switch s.task {
	case createTable:
		return r.create(ctx, names)
	case dropTable:
		return r.drop(names)
	case allPhases:
		if !s.noCreateTable {
			if err := r.create(ctx, names); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, r.drop(names)) }()
		}
	}
	return r.phases(ctx, names)
}

func (r *run) create(ctx context.Context, names []string) error {
	for i, name := range names {
		if err := r.cluster.createTable(ctx, r.s.definition(name)); err != nil {
			if errors.Is(err, ndb.ErrTableExists) {
				err = fmt.Errorf("%w: drop it with -drop_table, or use it with -no_table_create", err)
			}
			if r.s.task == allPhases && i > 0 {
				err = errors.Join(err, r.drop(names[:i]))
			}
			return err
		}
		fmt.Fprintf(r.out, "created table %s.%s\n", database, name)
	}
	return nil
}

// dropTimeout is how long the end of a run may wait for its tables to be dropped.
const dropTimeout = 20 * time.Second

// drop drops the tables, also after an interrupt.
func (r *run) drop(names []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
	defer cancel()
	var all error
	for _, name := range names {
		if err := r.cluster.dropTable(ctx, database, name); err != nil {
			all = errors.Join(all, err)
			continue
		}
		fmt.Fprintf(r.out, "dropped table %s.%s\n", database, name)
	}
	return all
}

// phases opens the lanes and runs the phases.
func (r *run) phases(ctx context.Context, names []string) (err error) {
	s := r.s
	makeDriver := newThreads
	if s.definers {
		makeDriver = newDefiners
	}
	if r.driver, err = makeDriver(ctx, s, r.cluster, names, &r.control); err != nil {
		return err
	}
	defer r.driver.close()
	r.describe()
	r.stage.Store(counting)
	defer context.AfterFunc(ctx, func() { r.stage.Store(stopped) })()
	if s.task == allPhases {
		err = r.loops(ctx)
		r.finalLines()
	} else {
		err = r.single(ctx)
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil && r.bad {
		err = fmt.Errorf("%w: see above", errFailed)
	}
	return err
}

// describe says what is about to be done.
func (r *run) describe() {
	s := r.s
	fmt.Fprintf(r.out, "%s, %s, %s; %s in flight per thread, %s each\n", count(s.threads, "thread"), count(s.connections, "connection"),
		count(len(r.cluster.nodes()), "data node"), count(s.parallel, "transaction"), count(s.operations, "operation"))
	fmt.Fprintf(r.out, "%d transactions and %d operations in each phase; rows of 8 bytes key and %d bytes values\n",
		s.transactions(), s.transactions()*int64(s.operations), 4*s.words*(s.attributes-1))
}

// count says how many there are of something.
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// transactions is how many a phase has.
func (s *settings) transactions() int64 {
	return int64(s.threads) * int64(s.rounds) * int64(s.parallel)
}

// loops runs all phases -l times.
func (r *run) loops(ctx context.Context) error {
	for loop := 0; r.s.loops == 0 || loop < r.s.loops; loop++ {
		if r.s.loops != 1 {
			fmt.Fprintf(r.out, "loop %d\n", loop+1)
		}
		inserted, updated := insertGeneration(loop), updateGeneration(loop)
		phases := []work{{kind: insert, generation: inserted}}
		for range 1 + r.s.extraReads {
			phases = append(phases, work{kind: read, expect: inserted})
		}
		phases = append(phases, work{kind: update, generation: updated})
		for range 1 + r.s.extraReads {
			phases = append(phases, work{kind: read, expect: updated})
		}
		phases = append(phases, work{kind: remove})
		for _, w := range phases {
			if err := r.phase(ctx, w); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return nil
			}
		}
	}
	return nil
}

// phase runs one phase to its end, what failed again, and prints its line. A phase that was cut short does not count.
func (r *run) phase(ctx context.Context, w work) error {
	res := result{kind: w.kind, operations: r.s.transactions() * int64(r.s.operations)}
	nodes, own, began := r.books.nodes(), ownCPU(), time.Now()
	sum, err := r.drive(w, r.s.transactions())
	ended := sum.ended[counting]
	wrong := sum.wrong
	for try := 1; try <= retries && err == nil && len(sum.failures) > 0 && ctx.Err() == nil; try++ {
		fmt.Fprintf(r.out, "%s: %s; running these again, %d of %d\n", w.kind, codes(sum.codes), try, retries)
		w.failed = byOwner(sum.failures)
		sum, err = r.drive(w, int64(len(sum.failures)))
		ended += sum.ended[counting]
		wrong += sum.wrong
	}
	res.elapsed = time.Since(began)
	res.clientCPU, res.nodeCPU = ownCPU()-own, r.books.nodes()-nodes
	if err != nil {
		return fmt.Errorf("%s: %w", w.kind, err)
	}
	if ctx.Err() != nil {
		fmt.Fprintf(r.out, "%s: stopped after %d operations\n", w.kind, ended*int64(r.s.operations))
		return nil
	}
	res.failed, res.wrong = res.operations-ended*int64(r.s.operations), wrong
	fmt.Fprintf(r.out, "%s: %d operations in %.3f s, %d/s\n", w.kind, res.operations, res.elapsed.Seconds(), int64(res.perSecond()))
	r.complain(&res, sum.codes)
	r.all[w.kind].add(&res)
	if res.failed == res.operations {
		return fmt.Errorf("%s: every operation failed: %s: %w", w.kind, codes(sum.codes), errFailed)
	}
	return nil
}

// drive has the driver do its work, so many transactions.
func (r *run) drive(w work, transactions int64) (tally, error) {
	r.ended.Store(0)
	if r.watched != nil {
		defer watch(r.watched, w.kind.String(), &r.ended, transactions, time.After)()
	}
	return r.driver.run(w)
}

// complain says what failed for good.
func (r *run) complain(res *result, failed map[int]int64) {
	if res.failed > 0 {
		r.bad = true
		fmt.Fprintf(r.out, "%s: FAILED: %d operations: %s\n", res.kind, res.failed, codes(failed))
	}
	if res.wrong > 0 {
		r.bad = true
		fmt.Fprintf(r.out, "%s: WRONG: %d rows do not have the values that were written\n", res.kind, res.wrong)
	}
}

// codes is how many transactions failed, by error.
func codes(failed map[int]int64) string {
	var list []int
	for code := range failed {
		list = append(list, code)
	}
	sort.Ints(list)
	var parts []string
	for _, code := range list {
		what := "an error that is not the database's"
		if err := ndb.ErrorOf(code); code > 0 && err != nil {
			what = err.Error()
		}
		parts = append(parts, fmt.Sprintf("%d transactions failed with %s", failed[code], what))
	}
	return strings.Join(parts, ", ")
}

// finalLines are one line for each kind over all loops.
func (r *run) finalLines() {
	for k := range kinds {
		if len(r.all[k].rates) > 0 {
			fmt.Fprintln(r.out, r.all[k].line(k))
		}
	}
}

// single runs one phase on the standard tables.
func (r *run) single(ctx context.Context) error {
	w := work{endless: r.s.timed()}
	switch r.s.task {
	case onlyInsert:
		w.kind, w.generation = insert, insertGeneration(0)
	case onlyUpdate:
		w.kind, w.generation = update, updateGeneration(0)
	case onlyRead:
		w.kind = read
	case onlyDelete:
		w.kind = remove
	}
	if w.endless {
		return r.timed(ctx, w)
	}
	if err := r.phase(ctx, w); err != nil || ctx.Err() != nil {
		return err
	}
	f := &r.all[w.kind]
	seconds := float64(f.operations) / f.rates[0]
	r.singleLines(f.operations/int64(r.s.operations), time.Duration(seconds*float64(time.Second)))
	return nil
}

// timed runs a phase for a time, of which the middle part counts.
func (r *run) timed(ctx context.Context, w work) error {
	var sum tally
	var err error
	r.stage.Store(warming)
	running, cancel := context.WithCancel(ctx)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		defer cancel() // an error ends the waiting
		sum, err = r.driver.run(w)
	}()
	res := result{kind: w.kind}
	fmt.Fprintf(r.out, "%s: warming up for %v\n", w.kind, r.s.warmup)
	r.wait(running, r.s.warmup)
	nodes, own, began := r.books.nodes(), ownCPU(), time.Now()
	r.advance(ctx, counting)
	fmt.Fprintf(r.out, "%s: executing for %v\n", w.kind, r.s.execution)
	r.wait(running, r.s.execution)
	r.advance(ctx, cooling)
	res.elapsed = time.Since(began)
	res.clientCPU, res.nodeCPU = ownCPU()-own, r.books.nodes()-nodes
	fmt.Fprintf(r.out, "%s: cooling down for %v\n", w.kind, r.s.cooldown)
	r.wait(running, r.s.cooldown)
	r.stage.Store(stopped)
	<-finished
	if err != nil {
		return fmt.Errorf("%s: %w", w.kind, err)
	}
	res.operations = sum.ended[counting] * int64(r.s.operations)
	var failed int64
	for _, n := range sum.codes {
		failed += n
	}
	res.failed, res.wrong = failed*int64(r.s.operations), sum.wrong
	r.all[w.kind].add(&res)
	r.complain(&res, sum.codes)
	r.singleLines(sum.ended[counting], res.elapsed)
	return nil
}

// advance enters a stage, unless the run was stopped.
func (r *run) advance(ctx context.Context, to stage) {
	r.stage.Store(to)
	if ctx.Err() != nil {
		r.stage.Store(stopped)
	}
}

// singleLines end a single-phase run.
func (r *run) singleLines(transactions int64, elapsed time.Duration) {
	rate := 0.0
	if elapsed > 0 {
		rate = float64(transactions) / elapsed.Seconds()
	}
	fmt.Fprintf(r.out, "total transactions: %d\nexecution time: %d ms\ntransactions per second: %d\n",
		transactions, elapsed.Milliseconds(), int64(rate))
}
