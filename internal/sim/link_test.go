package sim

import (
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// counter is a process of one thread that counts what comes from its peers, and sends numbered signals.
type counter struct {
	n    *Network
	p    *Process
	sent map[uint8]uint32
	got  map[uint8][]uint32
	ups  map[uint8]int
	down map[uint8]int
}

// pair is two processes with a link, in a network where everything takes a while.
func pair(t *testing.T, seed uint64) (n *Network, a, b *counter) {
	t.Helper()
	r := NewRandom(seed)
	n, err := newNetwork(r, Weather{Batch: 1, Link: Delay{Floor: 100 * microsecond, Mean: 100 * microsecond}, Work: Delay{Floor: 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.close)
	a, b = counting(n, 1, r), counting(n, 2, r)
	n.dial(1, 2)
	n.runUntil(n.now+second, func() bool { return linked(a.p, b.p) })
	if !linked(a.p, b.p) || a.ups[2] != 1 || b.ups[1] != 1 {
		t.Fatalf("seed %d: no link: %v %v", seed, a.ups, b.ups)
	}
	return n, a, b
}

func counting(n *Network, id uint8, r *Random) *counter {
	c := &counter{n: n, sent: map[uint8]uint32{}, got: map[uint8][]uint32{}, ups: map[uint8]int{}, down: map[uint8]int{}}
	c.p = n.addProcess(id, signal.PeerData, 1, r)
	c.p.place(signal.BlockDistribution, 0, 0)
	c.p.onLink = func(peer *Process, num uint16) {
		if num == signal.NumLinkUpRep {
			c.ups[peer.ID]++
			c.got[peer.ID] = nil
		} else {
			c.down[peer.ID]++
			c.p.taken[peer.ID] = false
		}
	}
	c.p.Threads[0].Handle = func(p unsafe.Pointer) {
		s := (*signal.EpochReq)(p)
		c.got[s.From.Node()] = append(c.got[s.From.Node()], s.GCI[0])
	}
	return c
}

func (c *counter) send(to uint8, times int) {
	for range times {
		t := c.p.Threads[0]
		c.n.onThread(t, func() {
			c.sent[to]++
			s := kernel.Send[signal.EpochReq](t.Env, signal.MakeAddr(to, signal.BlockDistribution, 0), signal.MakeAddr(c.p.ID, signal.BlockDistribution, 0), signal.NumEpochPrepareReq)
			s.GCI = [2]uint32{c.sent[to], 0}
		})
	}
}

// prefix demands that what came are the first of what was sent, and returns how many.
func prefix(t *testing.T, got []uint32) int {
	t.Helper()
	for i, g := range got {
		if g != uint32(i+1) {
			t.Fatalf("what came is no beginning of what was sent: %v", got)
		}
	}
	return len(got)
}

func TestAKilledProcessLosesTheEndOfWhatItSent(t *testing.T) {
	lengths := map[int]bool{}
	for seed := uint64(1); seed <= 60; seed++ {
		n, a, b := pair(t, seed)
		a.send(2, 10)
		b.send(1, 10)
		n.end(a.p, true, NewRandom(seed))
		n.runUntil(n.now+50*millisecond, nil)
		if b.down[1] != 1 || len(a.got[2]) != 0 || !b.p.alive() {
			t.Fatalf("seed %d: %v %v", seed, b.down, a.got)
		}
		lengths[prefix(t, b.got[1])] = true
		b.send(1, 3) // there is no link: it is lost, and breaks nothing
		n.runUntil(n.now+50*millisecond, nil)

		again := counting(n, 1, NewRandom(seed+1000))
		n.dial(1, 2)
		n.runUntil(n.now+second, func() bool { return linked(again.p, b.p) })
		again.send(2, 2)
		b.sent[1] = 0
		b.send(1, 2)
		n.runUntil(n.now+second, nil)
		if prefix(t, b.got[1]) != 2 || prefix(t, again.got[2]) != 2 || again.p.life != 2 || n.failure != nil {
			t.Fatalf("seed %d: a new process: %v %v %v", seed, b.got, again.got, n.failure)
		}
	}
	if len(lengths) < 5 {
		t.Fatalf("of ten signals always so many came: %v", lengths)
	}
}

func TestALinkThatIsClosedGoesDownAtBothEndsAfterTheLastSignal(t *testing.T) {
	for seed := uint64(1); seed <= 60; seed++ {
		n, a, b := pair(t, seed)
		a.send(2, 10)
		b.send(1, 10)
		n.runUntil(n.now+int64(seed)*10*microsecond, nil)
		n.closeLink(a.p, 2, NewRandom(seed))
		a.send(2, 1) // goes nowhere
		n.runUntil(n.now+5*millisecond, func() bool { return a.down[2] == 1 && b.down[1] == 1 })
		if a.down[2] != 1 || b.down[1] != 1 {
			t.Fatalf("seed %d: %v %v", seed, a.down, b.down)
		}
		prefix(t, a.got[2])
		if got := prefix(t, b.got[1]); got > 10 {
			t.Fatalf("seed %d: %d signals came of ten", seed, got)
		}
		n.dial(1, 2)
		if !n.runUntil(n.now+second, func() bool { return linked(a.p, b.p) }) || a.ups[2] != 2 {
			t.Fatalf("seed %d: no new link", seed)
		}
	}
}

func TestACutWireLosesNothingWhenItIsMendedInTime(t *testing.T) {
	n, a, b := pair(t, 1)
	n.cut(a.p, b.p)
	a.send(2, 10)
	b.send(1, 10)
	n.runUntil(n.now+second, nil)
	if len(b.got[1]) != 0 || prefix(t, a.got[2]) != 10 {
		t.Fatalf("one way is cut: %v %v", b.got, a.got)
	}
	n.heal(1, 2)
	a.send(2, 5)
	n.runUntil(n.now+second, nil)
	if prefix(t, b.got[1]) != 15 || a.down[2]+b.down[1] != 0 {
		t.Fatalf("after it was mended: %v", b.got)
	}
}

func TestBehindACutWireNobodyHearsOfAnEnd(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		n, a, b := pair(t, seed)
		n.cut(a.p, b.p)
		n.cut(b.p, a.p)
		a.send(2, 10)
		n.closeLink(a.p, 2, NewRandom(seed))
		n.runUntil(n.now+second, nil)
		if a.down[2] != 1 || b.down[1] != 0 || len(b.got[1]) != 0 {
			t.Fatalf("seed %d: %v %v", seed, a.down, b.down)
		}
		n.heal(1, 2)
		n.heal(2, 1)
		n.runUntil(n.now+second, func() bool { return linked(a.p, b.p) && b.ups[1] == 2 && a.ups[2] == 2 })
		if b.down[1] != 1 || !linked(a.p, b.p) {
			t.Fatalf("seed %d: after it was mended: %v %v", seed, b.down, b.ups)
		}
	}
}

func TestAPausedProcessFindsWhatCameMeanwhile(t *testing.T) {
	n, a, b := pair(t, 1)
	told := int64(0)
	b.p.stalled = func(ns int64) {
		told = ns
		if len(b.got[1]) != 0 {
			t.Error("it went on before it was told")
		}
	}
	n.pause(b.p)
	a.send(2, 10)
	n.runUntil(n.now+second, nil)
	if len(b.got[1]) != 0 {
		t.Fatalf("a process that is stopped did something: %v", b.got)
	}
	n.end(a.p, false, NewRandom(1))
	n.runUntil(n.now+second, nil)
	if b.down[1] != 0 {
		t.Fatal("a process that is stopped was told something")
	}
	n.resume(b.p)
	n.runUntil(n.now+second, nil)
	if told < 2*second || prefix(t, b.got[1]) != 10 || b.down[1] != 1 {
		t.Fatalf("told %s, got %v, down %v", ns(told), b.got, b.down)
	}
}

func TestClocksRunAtRatesOfTheirOwn(t *testing.T) {
	r := NewRandom(1)
	n, err := newNetwork(r, Weather{Batch: 1, Work: Delay{Floor: 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.close)
	rates := []int64{0, 200, -200}
	fired := make([]int64, len(rates))
	for i, ppm := range rates {
		p := n.addProcess(uint8(i+1), signal.PeerData, 1, r)
		p.ppm = ppm
		p.place(signal.BlockDistribution, 0, 0)
		p.Threads[0].Handle = func(unsafe.Pointer) { fired[i] = n.now }
		n.onThread(p.Threads[0], func() {
			p.Threads[0].Env.Tick(signal.MakeAddr(p.ID, signal.BlockDistribution, 0), 100*second, 0, 0, 0)
		})
	}
	n.runUntil(200*second, nil)
	for i, ppm := range rates {
		want := 100*second - 100*second/1_000_000*ppm
		if fired[i] < want-10*millisecond || fired[i] > want+10*millisecond {
			t.Errorf("%d ppm: a timer of 100 s fired after %s", ppm, ns(fired[i]))
		}
	}
}
