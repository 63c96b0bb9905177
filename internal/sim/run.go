package sim

import (
	"fmt"
	"io"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// Result is what a run gives.
type Result struct {
	Options   Options
	Digest    Digest
	Delivered uint64
	Time      int64 // virtual, nanoseconds
	Failure   *Failure
	Stats     statistics
	Run       runStatistics
	Marks     kernel.Marks
	Done      []fault // faults that were done
}

// Config of a run, besides its options.
type Config struct {
	// Trace, if set, gets a line for each delivered signal.
	Trace io.Writer
	// tamper is Network.tamper; tests set it.
	tamper func(from *Thread, h *signal.Head) int
	// prepare is called when the cluster stands; tests set it.
	prepare func(*run)
}

// run is a simulation under way.
type run struct {
	o       Options
	net     *Network
	cluster *cluster
	apis    []*api
	load    *load
	watch   *watch
	chaos   *chaos
	// note, if set, gets what happens besides signals.
	note   func(text string)
	epoch  signal.GCI   // the newest that a node was told to be committed
	epochs []signal.GCI // the newest few
	stats  runStatistics
}

// Run simulates a cluster and its clients. The result depends on the options alone.
func Run(o Options, c Config) (Result, error) {
	x, err := newRun(o, c)
	if err != nil {
		return Result{}, err
	}
	defer x.net.close()
	if c.prepare != nil {
		c.prepare(x)
	}
	x.net.guard(x.all)
	return x.result(), nil
}

// newRun makes a cluster and its clients, which have done nothing yet.
func newRun(o Options, c Config) (*run, error) {
	r := NewRandom(o.Seed)
	n, err := newNetwork(r.Sub("network"), o.Weather)
	if err != nil {
		return nil, err
	}
	x := &run{o: o, net: n}
	x.watch = &watch{x: x}
	if c.Trace != nil {
		fmt.Fprintf(c.Trace, "%v\n", o)
		n.trace = func(at int64, h *signal.Head) { fmt.Fprintln(c.Trace, traceLine(at, h)) }
		x.note = func(text string) { fmt.Fprintf(c.Trace, "%12.3f # %s\n", float64(n.now)/1000, text) }
	}
	n.tamper = c.tamper
	n.after = func(_ *Thread, h *signal.Head) {
		x.watch.see(h)
		if h.Num == signal.NumEpochRep {
			x.finished(h)
		}
		if o.InvariantsEvery > 0 && n.delivered%uint64(o.InvariantsEvery) == 0 {
			x.cluster.invariants()
		}
	}
	if x.cluster, err = newCluster(n, &x.o, r.Sub("cluster")); err != nil {
		n.close()
		return nil, err
	}
	for i := range o.Clients {
		x.apis = append(x.apis, newAPI(x.cluster, uint8(firstClient+i), o.Sessions, 64, 64*64, r.Sub("api").Sub(fmt.Sprint(i))))
	}
	x.chaos = newChaos(x, r.Sub("chaos"))
	x.cluster.ended = x.chaos.ended
	x.load = newLoad(n, &x.o, r.Sub("load"), x.apis)
	x.load.model.wrote = func(t *txn) { checkLiving(x, t) }
	return x, nil
}

// result is what there is to say about a run that is over.
func (x *run) result() Result {
	n := x.net
	res := Result{Options: x.o, Digest: n.digest, Delivered: n.delivered, Time: n.now, Failure: n.failure, Stats: x.load.model.stats,
		Run: x.stats, Done: x.chaos.done, Marks: n.marks}
	res.Run.Faults = x.chaos.counts
	for _, id := range n.ids {
		if p := n.procs[id]; !p.dead {
			for _, t := range p.Threads {
				res.Marks.Add(t.Env.Marks())
			}
		}
	}
	return res
}

// all is the course of a run.
func (x *run) all() {
	n, l := x.net, x.load
	x.begin()
	l.start(l.o.Transactions, x.o.VirtualTime)
	schema := false
	l.changeSchema(l.o.SchemaChanges, x.o.VirtualTime/int64(2*l.o.SchemaChanges+2), func() { schema = true })
	l.reopenSessions(l.o.Reopened, x.o.VirtualTime/int64(l.o.Reopened+1))
	l.cutLinks(x.cluster, l.o.Cuts, x.o.VirtualTime/int64(l.o.Cuts+1))
	x.chaos.start()
	x.watchQuiet(x.chaos.random.Sub("quiet"))
	n.runUntil(n.now+x.o.VirtualTime, l.idle)
	x.finish(func() bool { return schema })
}

// begin starts the cluster and makes the tables with their first rows.
func (x *run) begin() {
	n, l := x.net, x.load
	x.cluster.start()
	switch c := &x.o.Chaos; {
	case c.Schedule != nil:
		x.chaos.start()
	case c.Early:
		x.chaos.start()
		n.runUntil(n.now+2*second, nil)
		x.chaos.apply(fault{kind: faultHeal})
		x.chaos.end()
	}
	x.until("the cluster to start", 60*second, x.healthy)

	x.watch.settled = true
	x.step("the tables to be created", func(done func()) { x.createTables(0, done) })
	var rows []*cell
	for _, c := range l.model.cells {
		if c.class == classChain || c.class == classAtomic {
			rows = append(rows, c)
		}
	}
	l.startOn(phaseSetUp, rows)
	x.until("the first rows", 300*second, l.idle)
}

// finish heals the cluster, and demands that it is whole again, that all work ends, and all that must hold at rest.
func (x *run) finish(schema func() bool) {
	n, l := x.net, x.load
	x.chaos.end()
	x.until("all nodes to be members that lead, after everything was healed", 60*second, x.healthy)
	x.until("all transactions to begin", 10*x.o.VirtualTime+300*second, l.idle)
	l.stop()
	x.until("the last transactions", x.answerLimit(), func() bool { return l.begun == l.ended && schema() })
	x.rest()

	x.step("the tables to be looked up again", func(done func()) { x.openAgain(0, done) }) // fragments have moved
	l.startOn(phaseReadBack, l.model.lasting())
	x.until("the rows to be read back", 300*second, l.idle)
	l.stop()
	x.rest()
	for _, c := range checkers {
		if n.failure == nil {
			c(x)
		}
	}
	x.leave()
}

// finished takes note of an epoch that a node has finished.
func (x *run) finished(h *signal.Head) {
	e := signal.JoinGCI(signal.As[signal.EpochRep](h).GCI)
	x.cluster.nodes[h.To.Node()-1].epoch = e
	if e <= x.epoch {
		return
	}
	x.epoch = e
	if x.epochs = append(x.epochs, e); len(x.epochs) > 4 {
		x.epochs = append(x.epochs[:0], x.epochs[2:]...)
	}
}

// checkers are what is demanded of a cluster at rest, one file each.
var checkers = []func(x *run){
	checkDoubts,
	checkRows,
	checkMoney,
	checkRing,
	checkTwin,
	checkLinear,
	checkOrder,
	checkReplicas,
	checkEpochs,
	checkAgree,
	checkRest,
}

// answerLimit is how long a transaction may take at most: a lock timeout for each of its operations that waits, an
// inactive client in front of it, and all that twice over.
func (x *run) answerLimit() int64 {
	return 2 * (int64(x.o.LockTimeoutMillis*(x.o.Load.Operations+1)+x.o.InactiveMillis)*millisecond + 30*second)
}

// until runs until done says so, and fails the run when it does not within limit.
func (x *run) until(what string, limit int64, done func() bool) {
	if !x.net.runUntil(x.net.now+limit, done) && x.net.failure == nil {
		checkAnswered(x.net, x.load)
		x.net.failf("%s of virtual time were not enough for %s", ns(limit), what)
	}
}

// step runs something that says when it is done.
func (x *run) step(what string, f func(done func())) {
	ready := false
	if x.net.failure == nil {
		f(func() { ready = true })
	}
	x.until(what, 300*second, func() bool { return ready })
}

// rest lets the cluster come to rest: what follows behind answers (completes, acknowledgements) and a few epochs, for
// which nothing may be in the way.
func (x *run) rest() {
	if x.net.failure == nil {
		before := x.epoch
		defer func() {
			if x.epoch == before {
				x.net.failf("the epoch is %v, as it was before a rest of three epochs", before)
			}
		}()
		x.net.runUntil(x.net.now+500*millisecond+3*x.o.epochTime(), nil)
	}
}

// epochTime is how long an epoch lasts at most when nothing is in its way, ns.
func (o *Options) epochTime() int64 {
	if o.EpochMillis == 0 {
		return int64(o.CheckpointMillis) * millisecond
	}
	return int64(min(o.EpochMillis, o.CheckpointMillis)) * millisecond
}

// healthy tells whether all data nodes are started, members of one view, all of them leading, and every client knows that.
func (x *run) healthy() bool {
	v := x.watch.newest()
	if v == nil || len(v.Members) != x.o.DataNodes {
		return false
	}
	for _, m := range v.Members {
		if m.State != signal.MemberLeading {
			return false
		}
	}
	for _, d := range x.cluster.nodes {
		if !d.proc.alive() || d.state.State != signal.StateStarted || x.watch.of(d.proc.ID).view.Number != v.Number {
			return false
		}
	}
	for _, a := range x.apis {
		if a.down {
			return false
		}
	}
	return x.ready()
}

// ready tells whether every client knows every data node as started.
func (x *run) ready() bool {
	for _, a := range x.apis {
		for _, s := range a.sessions {
			if len(s.s.View().Serving()) != x.o.DataNodes {
				return false
			}
		}
	}
	return true
}

// openAgain makes the first client know where the fragments of the tables from the i-th on are now.
func (x *run) openAgain(i int, done func()) {
	l := x.load
	if i == len(l.tables) {
		done()
		return
	}
	l.open(x.apis[0], l.tables[i], func() { x.openAgain(i+1, done) })
}

// createTables creates the tables from the i-th on, and makes every client know them.
func (x *run) createTables(i int, done func()) {
	l := x.load
	if i == len(l.tables) {
		done()
		return
	}
	r := l.tables[i]
	l.create(x.apis[i%len(x.apis)], r, false, func() {
		l.openEverywhere(r, func() { x.createTables(i+1, done) })
	})
}

// leave closes all sessions and drops all tables: then nothing at all may be in use.
func (x *run) leave() {
	l := x.load
	for _, a := range x.apis {
		for _, s := range a.sessions {
			x.net.onThread(s.thread, s.s.Close)
		}
	}
	x.rest()
	if x.net.failure == nil {
		checkForgotten(x)
	}
	x.step("the tables to be dropped", func(done func()) {
		left := len(l.tables)
		for i, r := range l.tables {
			l.drop(x.apis[i%len(x.apis)], r, false, func() {
				if left--; left == 0 {
					done()
				}
			})
		}
	})
	x.rest()
	if x.net.failure == nil {
		checkEmpty(x)
	}
}

// lasting are the cells of tables that stay.
func (m *model) lasting() []*cell {
	var out []*cell
	for _, c := range m.cells {
		if c.rel.name != passingName {
			c.final = value{}
			out = append(out, c)
		}
	}
	return out
}
