package sim

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/options"
)

// program is what the command calls itself.
const program = "cohort sim"

// command is the command line, taken apart.
type command struct {
	first, last uint64 // seeds
	wanted      Wanted
	trace       string
	minimise    bool
	marks       bool
	reached     kernel.Marks
	faults      [faultKinds]int
	jobs        int
}

// Main is the command `cohort sim`: it simulates a cluster for each seed, prints a line with the digest of the run and
// the verdict, and returns 0 if all checks held, 1 if one failed, 2 for a command line that cannot be understood.
func Main(args []string, stdout, stderr io.Writer) int {
	c, set, err := parse(args)
	if status, done := set.Answer(err, program, stdout, stderr); done {
		return status
	}
	ok, err := c.do(stdout)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", program, err)
		return 1
	}
	if !ok {
		return 1
	}
	return 0
}

func parse(args []string) (*command, *options.Set, error) {
	c := &command{first: 1, last: 1, wanted: Wanted{DataNodes: 4, Replicas: 2, Faults: faultsDelay}, jobs: runtime.GOMAXPROCS(0)}
	s := options.New("[options]", "Simulates a whole cluster and its clients on virtual time, from one seed, and checks what the clients were told.\n"+
		"The same seed and options give the same run, signal for signal; the digest tells whether two runs were the same.")
	seeds := func(first, last string) error {
		a, err := strconv.ParseUint(first, 10, 64)
		b, err2 := strconv.ParseUint(last, 10, 64)
		if err != nil || err2 != nil || b < a {
			given := first
			if last != first {
				given += "-" + last
			}
			return fmt.Errorf("%q is no seed: write a number, or for several A-B with A not above B", given)
		}
		c.first, c.last = a, b
		return nil
	}
	s.Func("seed", "N", "one run, from this seed; default 1", func(v string) error { return seeds(v, v) })
	s.Func("seeds", "A-B", "a run from each of these seeds", func(v string) error {
		a, b, found := strings.Cut(v, "-")
		if !found {
			b = a
		}
		return seeds(a, b)
	})
	s.Int(&c.wanted.DataNodes, "nodes", "N", "data nodes, a multiple of the replicas; default 4; 0 lets the seed decide", 0, maxNodes)
	s.Int(&c.wanted.Replicas, "replicas", "R", "replicas, 1 to 4; default 2; 0 lets the seed decide", 0, 4)
	s.Func("virtual-time", "TIME", "how long the load lasts on virtual time (60s, 500ms); default 60s", func(v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 || d > 24*time.Hour {
			return fmt.Errorf("%q is not a time from 1ns to 24h: write it as 60s", v)
		}
		c.wanted.VirtualTime = int64(d)
		return nil
	})
	s.Int(&c.wanted.Transactions, "transactions", "N", "about how many transactions a run has at most; default 20000", 1, 1<<30)
	s.Func("faults", "LIST", "what may happen: "+strings.Join(faultSetNames[:], ", ")+", all, none; default all. Random delays and orders every run has", func(v string) error {
		f, err := parseFaults(v)
		c.wanted.Faults = f
		return err
	})
	s.Func("schedule", "LIST", "what happens, instead of what the seed draws: 'kill 2 for 1s @4.2s; cut 1-3 for 2s @7s'", func(v string) error {
		list, err := parseSchedule(v)
		c.wanted.Schedule = list
		return err
	})
	s.String(&c.trace, "trace", "FILE", "writes a line for each delivered signal; - is standard output")
	s.Bool(&c.minimise, "minimise", "makes a run that fails as small as possible, and prints the command for it")
	s.Bool(&c.marks, "marks", "says at the end which of the places in the code that are seldom reached were, and which not")
	s.Int(&c.jobs, "jobs", "N", "runs at the same time; default: as many as there are CPUs", 1, 256)
	s.Example("cohort sim --seed 7 --trace run.txt")
	s.Example("cohort sim --seeds 1-1000 --nodes 6 --replicas 3")
	rest, err := s.Parse(args)
	if err == nil {
		err = options.NoArguments(rest)
	}
	switch {
	case err != nil:
	case c.minimise && c.first != c.last:
		err = errors.New("one run at a time is made smaller: give one seed with --seed")
	case c.trace != "" && c.first != c.last:
		err = errors.New("a trace is of one run: give one seed with --seed")
	default:
		err = c.wanted.check()
	}
	return c, s, err
}

const maxNodes = 16

func (w *Wanted) check() error {
	if w.DataNodes != 0 && w.Replicas != 0 && w.DataNodes%w.Replicas != 0 {
		return fmt.Errorf("%d data nodes cannot have %d replicas: their number must be a multiple", w.DataNodes, w.Replicas)
	}
	return nil
}

// do does what the command line asks for.
func (c *command) do(stdout io.Writer) (ok bool, err error) {
	if !c.minimise {
		return c.run(stdout)
	}
	w, r, err := Minimise(c.first, c.wanted, stdout)
	if err != nil {
		return false, err
	}
	c.wanted = w
	c.print(stdout, &r)
	return r.Failure == nil, nil
}

// run runs all seeds, a few at a time, and prints their lines in order.
func (c *command) run(stdout io.Writer) (ok bool, err error) {
	type outcome struct {
		r   Result
		err error
	}
	trace, closeTrace, err := c.openTrace(stdout)
	if err != nil {
		return false, err
	}
	count := c.last - c.first + 1
	results := make([]chan outcome, min(count, uint64(c.jobs)))
	start := func(i uint64) {
		ch := make(chan outcome, 1)
		results[i%uint64(len(results))] = ch
		go func() {
			r, err := Run(Draw(c.first+i, c.wanted), Config{Trace: trace})
			ch <- outcome{r, err}
		}()
	}
	for i := range uint64(len(results)) {
		start(i)
	}
	ok = true
	failed := 0
	for i := range count {
		o := <-results[i%uint64(len(results))]
		if o.err != nil {
			return false, o.err
		}
		if next := i + uint64(len(results)); next < count {
			start(next)
		}
		c.print(stdout, &o.r)
		c.reached.Add(&o.r.Marks)
		for k, times := range o.r.Run.Faults {
			c.faults[k] += times
		}
		if o.r.Failure != nil {
			ok = false
			failed++
		}
	}
	if count > 1 {
		fmt.Fprintf(stdout, "%d runs, %d failed\n", count, failed)
	}
	if c.marks {
		c.printMarks(stdout)
	}
	return ok, closeTrace()
}

// printMarks says which marks were reached, and what was done to the clusters.
func (c *command) printMarks(w io.Writer) {
	for m := kernel.MarkNone + 1; m < kernel.MarkMax; m++ {
		reached := "not reached"
		if c.reached.Has(m) {
			reached = "reached"
		}
		fmt.Fprintf(w, "%-12s %v\n", reached, m)
	}
	var list []string
	for k, n := range c.faults {
		if n > 0 {
			name := faultNames[k]
			if faultKind(k) == faultOneWay {
				name += " one way"
			}
			list = append(list, fmt.Sprintf("%d %s", n, name))
		}
	}
	fmt.Fprintf(w, "faults: %s\n", strings.Join(list, ", "))
}

// openTrace opens the trace, which may be none.
func (c *command) openTrace(stdout io.Writer) (io.Writer, func() error, error) {
	switch c.trace {
	case "":
		return nil, func() error { return nil }, nil
	case "-":
		return stdout, func() error { return nil }, nil
	}
	f, err := os.Create(c.trace)
	if err != nil {
		return nil, nil, fmt.Errorf("the trace cannot be written: %w", err)
	}
	b := bufio.NewWriter(f)
	return b, func() error { return errors.Join(b.Flush(), f.Close()) }, nil
}

// print prints the line of a run, and what failed.
func (c *command) print(w io.Writer, r *Result) {
	verdict := "ok"
	if r.Failure != nil {
		verdict = "FAILED"
	}
	committed, aborted := r.Stats.transactions()
	fmt.Fprintf(w, "seed %d  digest %v  %s  %d nodes, %d replicas, %d transactions committed, %d rolled back, %d signals\n",
		r.Options.Seed, r.Digest, verdict, r.Options.DataNodes, r.Options.Replicas, committed, aborted, r.Delivered)
	if r.Failure == nil {
		return
	}
	fmt.Fprintf(w, "\n%v\n\n", r.Options)
	for _, line := range r.Failure.Last {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintf(w, "\nseed %d failed %v\n", r.Options.Seed, r.Failure)
	if r.Failure.Stack != "" {
		fmt.Fprintln(w, r.Failure.Stack)
	}
	if len(r.Done) > 0 {
		fmt.Fprintf(w, "faults: %s\n", scheduleText(r.Done))
	}
	fmt.Fprintf(w, "repeat: %s\n\n", c.repeat(r.Options.Seed))
}

// repeat is the command that repeats the run of a seed, with a trace.
func (c *command) repeat(seed uint64) string {
	s := fmt.Sprintf("%s --seed %d --nodes %d --replicas %d", program, seed, c.wanted.DataNodes, c.wanted.Replicas)
	if t := c.wanted.VirtualTime; t != 0 {
		s += " --virtual-time " + time.Duration(t).String()
	}
	if n := c.wanted.Transactions; n != 0 {
		s += fmt.Sprintf(" --transactions %d", n)
	}
	if f := c.wanted.Faults; f&^faultsDelay != 0 {
		s += " --faults " + f.String()
	}
	if c.wanted.Schedule != nil {
		s += " --schedule '" + scheduleText(c.wanted.Schedule) + "'"
	}
	return s + fmt.Sprintf(" --trace seed-%d.txt", seed)
}
