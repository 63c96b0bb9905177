package sim

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// gossip is a toy block: each node tells random others of the highest epoch that it knows, and now and then makes a
// higher one. It exercises timers, the random source, links, threads and orders.
type gossip struct {
	env    *kernel.Env
	self   signal.Addr
	peers  []signal.Addr
	high   uint32
	seen   map[signal.Addr]uint32 // newest number from each sender: later ones are higher where order is kept
	broken bool
	kept   *signal.EpochReq // what a bad block keeps
	on     func(p unsafe.Pointer)
}

const gossipTick = 7

func (g *gossip) start() {
	g.seen = map[signal.Addr]uint32{}
	g.env.Tick(g.self, int64(g.env.Rand()%uint64(millisecond)), gossipTick, 0, 0)
}

func (g *gossip) handle(p unsafe.Pointer) {
	if g.on != nil {
		g.on(p)
	}
	switch h := (*signal.Head)(p); h.Num {
	case signal.NumTickOrd:
		g.high++
		g.env.Tick(g.self, int64(g.env.Rand()%uint64(millisecond)), gossipTick, 0, 0)
		g.tell()
	case signal.NumEpochPrepareReq:
		s := (*signal.EpochReq)(p)
		if s.GCI[0] <= g.seen[s.From] {
			g.broken = true
		}
		g.seen[s.From] = s.GCI[0]
		if s.GCI[0] > g.high {
			g.high = s.GCI[0]
			g.tell()
		}
	}
}

func (g *gossip) tell() {
	for _, to := range g.peers {
		if g.env.Rand()%4 != 0 {
			kernel.Send[signal.EpochReq](g.env, to, g.self, signal.NumEpochPrepareReq).GCI = [2]uint32{g.high, 0}
		}
	}
}

// gossipers builds a network of nodes with several threads that gossip.
func gossipers(t *testing.T, seed uint64, nodes, threads int) (*Network, []*gossip) {
	t.Helper()
	r := NewRandom(seed)
	n, err := newNetwork(r, drawWeather(r.Sub("weather")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.close)
	var all []*gossip
	var addrs []signal.Addr
	for id := 1; id <= nodes; id++ {
		p := n.addProcess(uint8(id), signal.PeerData, threads, r.Sub("env"))
		for k := range threads {
			p.place(signal.BlockDistribution, k, k)
			g := &gossip{env: p.Threads[k].Env, self: signal.MakeAddr(uint8(id), signal.BlockDistribution, uint16(k))}
			p.Threads[k].Handle = g.handle
			all, addrs = append(all, g), append(addrs, g.self)
		}
	}
	for a := 1; a <= nodes; a++ {
		for b := 1; b <= nodes; b++ {
			if a != b {
				linkNow(n.procs[a], n.procs[b])
			}
		}
	}
	for _, g := range all {
		for _, a := range addrs {
			if a != g.self {
				g.peers = append(g.peers, a)
			}
		}
		n.onThread(n.thread(g.self), g.start)
	}
	return n, all
}

// linkNow links two processes without a delay.
func linkNow(p, q *Process) {
	if p.ends[q.ID] != nil {
		return
	}
	p.onLink, q.onLink = func(*Process, uint16) {}, func(*Process, uint16) {}
	p.net.link(p, q)
	p.net.opened(p.ends[q.ID])
	p.net.opened(q.ends[p.ID])
}

func TestTheSameSeedGivesTheSameRun(t *testing.T) {
	digests := map[Digest]uint64{}
	for seed := uint64(1); seed <= 40; seed++ {
		run := func() (Digest, uint64) {
			n, _ := gossipers(t, seed, 3, 2)
			n.guard(func() { n.runUntil(20*millisecond, nil) })
			if n.failure != nil {
				t.Fatalf("seed %d: %v", seed, n.failure)
			}
			return n.digest, n.delivered
		}
		a, k := run()
		b, _ := run()
		if a != b {
			t.Fatalf("seed %d: %v, then %v", seed, a, b)
		}
		if k < 100 {
			t.Fatalf("seed %d: only %d signals", seed, k)
		}
		if other, twice := digests[a]; twice {
			t.Fatalf("seeds %d and %d run alike", seed, other)
		}
		digests[a] = seed
	}
}

func TestSignalsBetweenTwoThreadsKeepTheirOrderAndOthersDoNot(t *testing.T) {
	overtaken := 0
	for seed := uint64(1); seed <= 40; seed++ {
		n, all := gossipers(t, seed, 3, 2)
		sent := map[signal.Addr]int{} // a signal's sender counts: its number in the order of sending
		order := 0
		newest := 0
		n.tamper = func(_ *Thread, h *signal.Head) int {
			if h.Num == signal.NumEpochPrepareReq {
				order++
				(*signal.EpochReq)(unsafe.Pointer(h)).GCI[1] = uint32(order)
				sent[h.From]++
			}
			return 1
		}
		last := map[[2]signal.Addr]uint32{}
		for _, g := range all {
			g.on = func(p unsafe.Pointer) {
				if (*signal.Head)(p).Num != signal.NumEpochPrepareReq {
					return
				}
				s := (*signal.EpochReq)(p)
				pair := [2]signal.Addr{s.From, s.To}
				if s.GCI[1] <= last[pair] {
					t.Fatalf("seed %d: number %d of %v came after %d", seed, s.GCI[1], pair, last[pair])
				}
				last[pair] = s.GCI[1]
				if int(s.GCI[1]) < newest {
					overtaken++
				}
				newest = max(newest, int(s.GCI[1]))
			}
		}
		n.runUntil(5*millisecond, nil)
		for _, g := range all {
			if g.broken {
				t.Fatalf("seed %d: %v saw an old number", seed, g.self)
			}
		}
	}
	if overtaken < 1000 {
		t.Fatalf("only %d signals were overtaken: orders are not random", overtaken)
	}
}

func TestAKeptSignalIsOverwritten(t *testing.T) {
	n, all := gossipers(t, 3, 2, 1)
	found := false
	all[0].on = func(p unsafe.Pointer) {
		if k := all[0].kept; k != nil {
			found = found || k.GCI[0] == poisoned
		}
		if (*signal.Head)(p).Num == signal.NumEpochPrepareReq {
			all[0].kept = (*signal.EpochReq)(p)
		}
	}
	n.runUntil(20*millisecond, nil)
	if !found {
		t.Fatal("a kept signal still had its bytes when the next one came")
	}
}

func TestTheMemoryOfASentSignalIsOverwritten(t *testing.T) {
	n, all := gossipers(t, 3, 2, 1)
	g := all[0]
	n.onThread(n.thread(g.self), func() {
		g.kept = kernel.Send[signal.EpochReq](g.env, g.peers[0], g.self, signal.NumEpochPrepareReq)
		g.kept.GCI = [2]uint32{77, 0}
	})
	if g.kept.GCI[0] != poisoned {
		t.Fatal("the sender can still change what it has sent")
	}
}

func TestReadingBehindASignalFailsTheRun(t *testing.T) {
	n, all := gossipers(t, 3, 2, 1)
	all[0].on = func(p unsafe.Pointer) {
		all[0].high += *(*uint32)(unsafe.Add(p, (*signal.Head)(p).Bytes()))
	}
	n.guard(func() { n.runUntil(second, nil) })
	if n.failure == nil || !strings.Contains(n.failure.Reason, "invalid memory address") {
		t.Fatalf("%v", n.failure)
	}
	if !strings.Contains(n.failure.Stack, "sim.(*gossip).handle") || len(n.failure.Last) == 0 ||
		!strings.Contains(n.failure.Last[len(n.failure.Last)-1], "-> 1:distribution.0") {
		t.Fatalf("stack %q, last signals %q", n.failure.Stack, n.failure.Last)
	}
}

func TestAFieldThatNobodyWroteFailsTheRun(t *testing.T) {
	n, all := gossipers(t, 3, 2, 1)
	g := all[0]
	n.onThread(n.thread(g.self), func() { kernel.Send[signal.EpochReq](g.env, g.peers[0], g.self, signal.NumEpochPrepareReq) })
	n.runUntil(second, nil)
	if n.failure == nil || !strings.Contains(n.failure.Reason, "never written") {
		t.Fatalf("%v", n.failure)
	}
}

func TestABadFrameFailsTheRun(t *testing.T) {
	for what, c := range map[string]func(g *gossip){
		"not for such a peer": func(g *gossip) {
			kernel.Send[signal.StepConf](g.env, g.peers[0], g.self, signal.NumApiRegReq).TcRef = 1
		},
		"another node's name": func(g *gossip) {
			kernel.Send[signal.EpochReq](g.env, g.peers[0], g.peers[0], signal.NumEpochPrepareReq).GCI = [2]uint32{1, 1}
		},
		"sections do not fit": func(g *gossip) {
			kernel.Send[signal.StepConf](g.env, g.peers[0], g.self, signal.NumCommitReq).TcRef = 1
		},
		"does not exist": func(g *gossip) {
			to := signal.MakeAddr(g.peers[0].Node(), signal.BlockLDM, 3)
			kernel.Send[signal.StepConf](g.env, to, g.self, signal.NumCommitConf).TcRef = 1
		},
	} {
		n, all := gossipers(t, 3, 2, 1)
		n.onThread(n.thread(all[0].self), func() { c(all[0]) })
		n.runUntil(second, nil)
		if n.failure == nil || !strings.Contains(n.failure.Reason, what) && !strings.Contains(n.failure.Reason, "too short") {
			t.Errorf("%s: %v", what, n.failure)
		}
	}
}

func TestTamperingLosesAndDoublesSignals(t *testing.T) {
	n, all := gossipers(t, 3, 2, 1)
	count := 0
	all[1].on = func(p unsafe.Pointer) {
		if (*signal.Head)(p).Num == signal.NumEpochCommitConf {
			count++
		}
	}
	for times := range 4 {
		n.tamper = func(_ *Thread, h *signal.Head) int {
			if h.Num == signal.NumEpochCommitConf {
				return times
			}
			return 1
		}
		g := all[0]
		n.onThread(n.thread(g.self), func() {
			kernel.Send[signal.EpochConf](g.env, all[1].self, g.self, signal.NumEpochCommitConf).GCI = [2]uint32{1, 1}
		})
	}
	n.runUntil(second/10, nil)
	if count != 0+1+2+3 || n.failure != nil {
		t.Fatalf("%d arrived, failure %v", count, n.failure)
	}
}

func TestVirtualTimeStopsWhereItIsTold(t *testing.T) {
	n, _ := gossipers(t, 5, 2, 2)
	called := int64(0)
	n.at(3*millisecond, func() { called = n.now })
	n.runUntil(2*millisecond, nil)
	if n.now != 2*millisecond || called != 0 {
		t.Fatalf("time %s, called at %s", ns(n.now), ns(called))
	}
	if !n.runUntil(second, func() bool { return called != 0 }) || called != 3*millisecond || n.now != called {
		t.Fatalf("time %s, called at %s", ns(n.now), ns(called))
	}
}

func BenchmarkSignal(b *testing.B) {
	r := NewRandom(1)
	n, err := newNetwork(r, Weather{Batch: 1, Link: Delay{Mean: 1000}, Work: Delay{Mean: 100}})
	if err != nil {
		b.Fatal(err)
	}
	defer n.close()
	for id := uint8(1); id <= 2; id++ {
		p := n.addProcess(id, signal.PeerData, 1, r)
		p.place(signal.BlockTC, 0, 0)
		env := p.Threads[0].Env
		p.Threads[0].Handle = func(p unsafe.Pointer) {
			s := (*signal.StepConf)(p)
			kernel.Send[signal.StepConf](env, s.From, s.To, signal.NumCommitConf).TcRef = s.TcRef
		}
	}
	linkNow(n.procs[1], n.procs[2])
	t := n.procs[1].Threads[0]
	n.onThread(t, func() {
		for range 64 {
			kernel.Send[signal.StepConf](t.Env, signal.MakeAddr(2, signal.BlockTC, 0), signal.MakeAddr(1, signal.BlockTC, 0), signal.NumCommitConf).TcRef = 1
		}
	})
	b.ReportAllocs()
	for b.Loop() {
		for until := n.delivered + 1; n.delivered < until; {
			n.step()
		}
	}
}
