package sim

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/signal"
)

// A script is a whole cluster with a plan: a story of what is done to it, and of what it must make of it. It runs in a
// weather without surprises, so that it tells the same story after every change that does not concern it. What it tells
// are facts that do not depend on small differences in time: views, who ended and why, what clients were told.
//
//	load                    transactions run in the background from now on
//	transfer|ring|… c=1     one transaction, whose outcome is told; with & at the end it goes on in the background
//	crash 2                 node 2 is killed
//	crash 2 on CommitReq to ldm count=3    … when it has executed its third CommitReq to an ldm from now on
//	cut 1-3, cut 1>3, reset 1-3, slow 1>3 by 20ms, split 1,2|3,4, pause 2, stop 2, restart 2, start 2, heal
//	                        as in a schedule; with "for 500ms" it ends by itself
//	cut 1-3 on …            like crash
//	resume 2
//	run 500ms               time passes
//	wait view 1,2 | wait started | wait exit 2 | wait idle | wait arbitrator | wait done
//	check                   heal everything, demand that all is well, and compare every row with what clients were told

// script is one under way.
type script struct {
	x      *run
	out    []string
	on     []*trigger
	views  int // of watch.agreed that were told
	open   int // transactions in the background
	failed error
}

// trigger does something when a node has executed a signal.
type trigger struct {
	node  uint8
	num   uint16
	block int // -1: any
	from  int // node; -1: any
	count int
	do    func()
}

// scriptOptions are the options of a cluster for scripts.
func scriptOptions(nodes, replicas, managers, clients int, seed uint64) Options {
	o := Draw(seed, Wanted{DataNodes: nodes, Replicas: replicas, VirtualTime: 60 * second, Transactions: 1 << 20})
	o.Managers, o.Clients, o.Sessions = managers, clients, 2
	for i := range o.Threads {
		o.Threads[i] = Layout{Combined: 1}
	}
	o.OtherThreads = false
	o.PartitionsPerNode, o.EpochMillis, o.CheckpointMillis = 1, 100, 2000
	o.LockTimeoutMillis, o.InactiveMillis = 1200, 60_000
	o.MaxTransactions, o.MaxOperations, o.DataMemoryMegabyte, o.CopyKilobyte = 256, 1024, 8, 4096
	o.InvariantsEvery = 50
	o.Weather = Weather{Batch: 1, Factor: 1, Work: Delay{Floor: 1000}, Link: Delay{Floor: 50 * microsecond}, Inside: Delay{Floor: 1000}}
	o.Chaos = ChaosOptions{Faults: faultsAll, Schedule: []fault{}}
	l := &o.Load
	l.Accounts, l.Registers, l.Private, l.Churned, l.Ring, l.Twins, l.Atomic = 8, 8, 2, 20, 6, 2, 2
	l.HotOf, l.DisorderOf, l.Operations, l.LargeBytes, l.Dense = 4, 0, 4, 40, false
	l.SchemaChanges, l.Reopened, l.Cuts, l.Streams = 0, 0, 0, 2
	for i := range l.Weights {
		l.Weights[i] = 1
	}
	return o
}

// newScript makes a cluster and starts it.
func newScript(o Options) (*script, error) {
	x, err := newRun(o, Config{})
	if err != nil {
		return nil, err
	}
	s := &script{x: x}
	see := x.net.after
	x.net.after = func(t *Thread, h *signal.Head) {
		see(t, h)
		s.see(h)
	}
	ended := x.cluster.ended
	x.cluster.ended = func(d *dataNode, e exit) {
		s.say("node %d ends: %s", d.proc.ID, exitcode.Text(int(e.code)))
		ended(d, e)
	}
	x.guard(func() {
		x.begin()
		s.tellViews()
	})
	return s, s.err()
}

func (x *run) guard(f func()) { x.net.guard(f) }

func (s *script) err() error {
	if f := s.x.net.failure; f != nil {
		return fmt.Errorf("%v\n%s\n%s", f, strings.Join(f.Last[max(len(f.Last)-30, 0):], "\n"), f.Stack)
	}
	return s.failed
}

func (s *script) say(format string, args ...any) { s.out = append(s.out, fmt.Sprintf(format, args...)) }

// see looks for triggers, and tells of views.
func (s *script) see(h *signal.Head) {
	s.tellViews()
	kept := s.on[:0]
	var due []func()
	for _, t := range s.on {
		hit := h.To.Node() == t.node && h.Num == t.num && (t.block < 0 || int(h.To.Block()) == t.block) && (t.from < 0 || int(h.From.Node()) == t.from)
		if hit {
			t.count--
		}
		if hit && t.count == 0 {
			due = append(due, t.do)
			continue
		}
		kept = append(kept, t)
	}
	s.on = kept
	for _, do := range due {
		s.x.net.at(s.x.net.now, do)
	}
}

func (s *script) tellViews() {
	for a := s.x.watch.agreed; s.views < len(a); s.views++ {
		s.say("view %s", viewText(&a[s.views].view))
	}
}

// run executes the lines of a script and returns what there is to tell.
func (s *script) run(lines []string) (string, error) {
	s.out = nil
	s.x.guard(func() {
		for _, line := range lines {
			if i := strings.Index(line, "#"); i >= 0 {
				line = line[:i]
			}
			if line = strings.TrimSpace(line); line != "" && s.err() == nil {
				if err := s.do(line); err != nil {
					s.failed = fmt.Errorf("%q: %w", line, err)
				}
			}
		}
	})
	if err := s.err(); err != nil {
		return strings.Join(s.out, "\n"), err
	}
	if len(s.out) == 0 {
		return "nothing happens", nil
	}
	return strings.Join(s.out, "\n"), nil
}

func (s *script) do(line string) error {
	x := s.x
	words := strings.Fields(line)
	background := words[len(words)-1] == "&"
	if background {
		words = words[:len(words)-1]
	}
	for k := range kinds {
		if kinds[k].name == words[0] {
			return s.transaction(k, words[1:], background)
		}
	}
	switch words[0] {
	case "load":
		x.load.start(x.o.Load.Transactions, 600*second)
	case "run":
		d, err := parseTime(words[1])
		if err != nil {
			return err
		}
		x.net.runUntil(x.net.now+d, nil)
	case "wait":
		return s.wait(words[1:])
	case "resume":
		ids, err := parseNodes(words[1])
		if err != nil {
			return err
		}
		for _, id := range ids {
			x.chaos.suspect(id)
			x.net.resume(x.net.procs[id])
		}
	case "check":
		x.load.phase = phaseRest
		x.load.budget = 0
		x.finish(func() bool { return true })
		if x.net.failure == nil {
			s.tellViews()
			s.say("all is well")
		}
	default:
		return s.fault(words)
	}
	return nil
}

// fault does a fault now, or when its trigger comes.
func (s *script) fault(words []string) error {
	var t *trigger
	for i, w := range words {
		if w == "on" {
			var err error
			if t, err = parseTrigger(words[i+1:]); err != nil {
				return err
			}
			words = words[:i]
			break
		}
	}
	if words[0] == "crash" {
		words[0] = "kill"
	}
	f, err := parseFault(strings.Join(words, " ") + " @0s")
	if err != nil {
		return err
	}
	do := func() {
		if !s.x.chaos.possible(&f) {
			s.failed = fmt.Errorf("%v means nothing now", f)
			return
		}
		s.x.chaos.apply(f)
	}
	if t == nil {
		do()
		return nil
	}
	t.do = do
	if t.node == 0 {
		t.node = f.a[0]
	}
	s.on = append(s.on, t)
	return nil
}

// parseTrigger reads "CommitReq at 2 to ldm from 1 count=3".
func parseTrigger(words []string) (*trigger, error) {
	t := &trigger{block: -1, from: -1, count: 1}
	for num := uint16(1); num < signal.NumMax; num++ {
		if signal.Name(num) == words[0] {
			t.num = num
		}
	}
	if t.num == 0 {
		return nil, fmt.Errorf("there is no signal %q", words[0])
	}
	for rest := words[1:]; len(rest) > 0; {
		if n, found := strings.CutPrefix(rest[0], "count="); found {
			var err error
			if t.count, err = strconv.Atoi(n); err != nil {
				return nil, err
			}
			rest = rest[1:]
			continue
		}
		if len(rest) < 2 {
			return nil, fmt.Errorf("what comes after %q is missing", rest[0])
		}
		n, err := strconv.Atoi(rest[1])
		switch rest[0] {
		case "at":
			t.node = uint8(n)
		case "from":
			t.from = n
		case "to":
			block, ok := blockNamed(rest[1])
			if !ok {
				return nil, fmt.Errorf("there is no block %q", rest[1])
			}
			t.block, err = block, nil
		default:
			return nil, fmt.Errorf("%q means nothing here", rest[0])
		}
		if err != nil {
			return nil, err
		}
		rest = rest[2:]
	}
	return t, nil
}

func blockNamed(name string) (int, bool) {
	for b := range uint8(signal.MaxBlocks) {
		if strings.HasPrefix(signal.MakeAddr(1, b, 0).String(), "1:"+name+".") {
			return int(b), true
		}
	}
	return 0, false
}

// transaction runs one transaction of a kind and tells its outcome.
func (s *script) transaction(kind int, words []string, background bool) error {
	x := s.x
	var slot *slot
	session := 0
	for _, w := range words {
		if n, found := strings.CutPrefix(w, "c="); found {
			session, _ = strconv.Atoi(n)
		}
	}
	for _, c := range x.load.slots {
		if c.t == nil && (session == 0 || c.s.index == session) {
			slot = c
			break
		}
	}
	if slot == nil {
		return fmt.Errorf("no client is free")
	}
	done := false
	s.open++
	slot.told = func(t *txn) {
		done = true
		s.open--
		s.say("%s: %s", kinds[kind].name, outcomeText(t))
	}
	slot.run(kind)
	if !background {
		x.until("a "+kinds[kind].name, 30*second, func() bool { return done })
	}
	return nil
}

func outcomeText(t *txn) string {
	switch {
	case t.state == txnCommitted:
		return "committed"
	case t.state == txnUnknown:
		return "outcome unknown"
	case t.err != nil:
		return fmt.Sprintf("rolled back, error %d (%v)", t.err.Code, ndberror.Get(t.err.Code).Class)
	}
	return "rolled back"
}

// waitLimit is how long a script waits for something, ns.
const waitLimit = 30 * second

func (s *script) wait(words []string) error {
	x := s.x
	arg := ""
	if len(words) > 1 {
		arg = words[1]
	}
	var done func() bool
	switch words[0] {
	case "view":
		want, err := parseNodes(arg)
		if err != nil {
			return err
		}
		sort.Slice(want, func(i, j int) bool { return want[i] < want[j] })
		done = func() bool {
			v := x.watch.newest()
			if v == nil {
				return false
			}
			var have []uint8
			for _, m := range v.Members {
				if p := x.net.procs[m.Node]; p.dead || x.watch.of(p.ID).view.Number != v.Number {
					return false
				}
				have = append(have, uint8(m.Node))
			}
			sort.Slice(have, func(i, j int) bool { return have[i] < have[j] })
			return string(have) == string(want)
		}
	case "started":
		done = x.healthy
	case "exit":
		ids, err := parseNodes(arg)
		if err != nil {
			return err
		}
		lives := map[uint8]int{}
		for _, id := range ids {
			lives[id] = x.net.procs[id].life
		}
		done = func() bool {
			for _, id := range ids {
				if p := x.net.procs[id]; !p.dead && p.life == lives[id] {
					return false
				}
			}
			return true
		}
	case "done":
		done = func() bool { return s.open == 0 }
	case "arbitrator":
		done = func() bool {
			v := x.watch.newest()
			var ids []uint8
			if v != nil {
				for _, m := range v.Members {
					ids = append(ids, uint8(m.Node))
				}
			}
			return v != nil && x.arbitrable(v, ids)
		}
	default:
		return fmt.Errorf("there is no waiting for %q", words[0])
	}
	if !x.net.runUntil(x.net.now+waitLimit, done) && x.net.failure == nil {
		return fmt.Errorf("%s of virtual time were not enough; the newest view is %s", ns(waitLimit), s.viewNow())
	}
	s.tellViews()
	return nil
}

func (s *script) viewNow() string {
	if v := s.x.watch.newest(); v != nil {
		return viewText(v)
	}
	return "none"
}
