// Package kerneltest runs the blocks of a few nodes in one goroutine, for the tests of one protocol at a time.
//
// A Net owns the Envs of its nodes, the links between them and the time. It delivers one signal per step, chosen from
// a seed among all that could be next (the next job of a node, the next signal on a link), so that a protocol is tested
// in many orders; within a link and within a node's jobs the order is kept, as kernel promises. Time stands still while
// anything can be delivered, and then jumps to the next timer. A signal is checked as the real runtimes check it, and
// its bytes are spoilt after its handler. It never runs a data path or measures anything: that is the simulator's.
//
// Read next: the tests of membership, distribution and dictionary.
package kerneltest

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// Net is a few nodes and the links between them.
type Net struct {
	Nodes [256]*Node
	// Seen is called with each signal before its handler; nil = nobody looks.
	Seen func(n *Node, h *signal.Head)
	// After is called after each handler; nil = nobody looks.
	After func(n *Node)
	// InOrder makes each step deliver what comes first (jobs before links, in the order of their making), for scripts
	// that people read.
	InOrder bool

	now   int64
	rng   uint64
	ids   []uint8 // nodes in the order of their coming
	links []*link
	steps int
}

// Node is a process with one thread.
type Node struct {
	ID   uint8
	Kind signal.Peer
	Env  *kernel.Env
	// LDMs and TCs are what its peers are told in LinkUpRep.
	LDMs, TCs uint32
	// Handle executes a signal that is not a timer's or link's own business.
	Handle func(h *signal.Head)
	net    *Net
	dead   bool
	frozen bool
}

// link carries signals one way.
type link struct {
	from, to uint8
	stalled  bool  // nothing is delivered
	up       bool  // what is sent goes into the queue
	held     bool  // what is in the queue stays there
	last     int64 // when something came last
	queue    []byte
	word     []byte // the runtime's own word that the link was closed here; it is not held
}

// New makes an empty net; the seed decides every order.
func New(seed uint64) *Net { return &Net{rng: seed*2654435761 | 1} }

// Now is the time in nanoseconds.
func (t *Net) Now() int64 { return t.now }

// Rand is a number below n.
func (t *Net) Rand(n int) int {
	x := t.rng
	x ^= x >> 12
	x ^= x << 25
	x ^= x >> 27
	t.rng = x
	return int((x * 0x2545F4914F6CDD1D) >> 33 % uint64(n))
}

// Add makes a node. Its blocks are placed and built by the caller.
func (t *Net) Add(id uint8, kind signal.Peer) *Node {
	n := &Node{ID: id, Kind: kind, Env: kernel.NewEnv(id, 0, uint64(t.Rand(1<<30)), 1<<12), net: t, LDMs: 1, TCs: 1}
	n.Env.SetNow(t.now)
	for i := 1; i < 256; i++ {
		if i != int(id) {
			n.Env.Via(uint8(i), kernel.Dest(i))
			n.Env.Buf(kernel.Dest(i)).Init(256, 1<<30)
		}
	}
	if t.Nodes[id] == nil {
		t.ids = append(t.ids, id)
	}
	t.Nodes[id] = n
	return n
}

func (t *Net) link(from, to uint8) *link {
	for _, l := range t.links {
		if l.from == from && l.to == to {
			return l
		}
	}
	l := &link{from: from, to: to}
	t.links = append(t.links, l)
	return l
}

// Linked tells whether two nodes have a link.
func (t *Net) Linked(a, b uint8) bool { return t.link(a, b).up }

// Link connects two nodes; each is told by a LinkUpRep to its membership, before any signal of the other.
func (t *Net) Link(a, b uint8) {
	for _, p := range [][2]uint8{{a, b}, {b, a}} {
		l := t.link(p[0], p[1])
		if l.up {
			invariant.Failf("nodes %d and %d are linked already", a, b)
		}
		l.up, l.last, l.stalled = true, t.now, false
		l.queue = append(l.queue, t.Nodes[p[1]].rep(signal.NumLinkUpRep, t.Nodes[p[0]])...)
	}
}

// Cut ends a link: what is under way arrives, then each side is told by LinkDownRep.
func (t *Net) Cut(a, b uint8) {
	for _, p := range [][2]uint8{{a, b}, {b, a}} {
		l := t.link(p[0], p[1])
		if !l.up {
			continue
		}
		l.up = false
		to, from := t.Nodes[p[1]], t.Nodes[p[0]]
		if to == nil || to.dead {
			l.queue = nil
			continue
		}
		if l.stalled {
			l.queue, l.stalled = nil, false
		}
		l.queue = append(l.queue, to.rep(signal.NumLinkDownRep, from)...)
	}
}

// Stall lets nothing pass from one node to another until further notice. If the link ends before, what waits is lost.
func (t *Net) Stall(from, to uint8, on bool) { t.link(from, to).stalled = on }

// Close ends a link from one side: nothing that is under way to that side arrives any more, and it is told at once. The
// other side is told behind what is under way to it. If the link has ended already the side that closes it is told all the same.
func (t *Net) Close(by, other uint8) {
	l := t.link(other, by)
	if l.up {
		t.Cut(by, other)
	}
	l.queue, l.word = nil, append(l.word, t.Nodes[by].rep(signal.NumLinkDownRep, t.Nodes[other])...)
}

// Hold keeps everything between two nodes back, one way, as a network does that loses it: the link stays.
func (t *Net) Hold(from, to uint8) { t.link(from, to).held = true }

// Release lets it travel again.
func (t *Net) Release(from, to uint8) { t.link(from, to).held = false }

// Freeze stops a process, or lets it run again; what comes for it meanwhile waits.
func (t *Net) Freeze(id uint8, on bool) { t.Nodes[id].frozen = on }

// Tell gives a node a signal at once, before anything that waits for it.
func (t *Net) Tell(id uint8, h *signal.Head) {
	t.deliver(t.Nodes[id], unsafe.Slice((*byte)(unsafe.Pointer(h)), h.Bytes()))
}

// Pending tells whether something has arrived for a node that it has not yet executed.
func (t *Net) Pending(id uint8) bool {
	for _, l := range t.links {
		if l.to == id && (len(l.queue) > 0 && !l.held && !l.stalled || len(l.word) > 0) {
			return true
		}
	}
	return false
}

// Quiet tells whether nothing is under way between two nodes.
func (t *Net) Quiet(a, b uint8) bool {
	l, m := t.link(a, b), t.link(b, a)
	return len(l.queue)+len(l.word)+len(m.queue)+len(m.word) == 0
}

// Heard is when something came from a node last; false when there is no link.
func (t *Net) Heard(at, from uint8) (int64, bool) {
	l := t.link(from, at)
	return l.last, l.up
}

// Kill ends a process: its links go down, and nothing reaches it any more.
func (t *Net) Kill(id uint8) {
	n := t.Nodes[id]
	n.dead = true
	for _, o := range t.ids {
		if o != id {
			t.Cut(id, o)
		}
	}
}

// Crash ends a process with its machine: of what it has sent to each other node, only a beginning arrives.
func (t *Net) Crash(id uint8) {
	for _, l := range t.links {
		if l.from != id || len(l.queue) == 0 {
			continue
		}
		var ends []int
		for o := 0; o < len(l.queue); {
			ends = append(ends, o)
			o += int((*signal.Head)(unsafe.Pointer(&l.queue[o])).Bytes())
		}
		keep := ends[t.Rand(len(ends))]
		// the runtime's own words about the link are no part of what was sent
		for _, o := range ends {
			if h := (*signal.Head)(unsafe.Pointer(&l.queue[o])); o >= keep && h.From.Node() == l.to {
				keep = o + int(h.Bytes())
			}
		}
		l.queue = l.queue[:keep]
	}
	t.Kill(id)
}

// Dead tells whether the process has ended.
func (n *Node) Dead() bool { return n.dead }

func (n *Node) rep(num uint16, peer *Node) []byte {
	b := make([]byte, unsafe.Sizeof(signal.LinkRep{}))
	r := (*signal.LinkRep)(unsafe.Pointer(&b[0]))
	r.Len, r.Num = uint16(len(b)/4), num
	r.To, r.From = signal.MakeAddr(n.ID, signal.BlockMembership, 0), signal.MakeAddr(n.ID, signal.BlockRuntime, 0)
	r.Node, r.Kind, r.LDMs, r.TCs = uint32(peer.ID), uint32(peer.Kind), peer.LDMs, peer.TCs
	return b
}

// drain moves what the node's handlers sent onto the links.
func (t *Net) drain(n *Node) {
	n.Env.TakeDirty(func(d kernel.Dest, b *kernel.Buf) {
		l := t.link(n.ID, uint8(d))
		if l.up {
			l.queue = append(l.queue, b.Bytes()...)
		}
		b.Consume(b.Len())
	})
}

// deliver gives one signal to a node's handler, in memory of its own that is spoilt afterwards.
func (t *Net) deliver(n *Node, p []byte) {
	words := make([]uint32, (len(p)+3)/4+1) // one more: an empty section at the end has an address too
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(p)), p)
	h := (*signal.Head)(unsafe.Pointer(&words[0]))
	n.Env.SetNow(t.now)
	if t.Seen != nil {
		t.Seen(n, h)
	}
	n.Handle(h)
	for i := range words {
		words[i] = 0xDBDBDBDB
	}
	t.drain(n)
	if t.After != nil {
		t.After(n)
	}
}

// Step delivers one signal, or lets time pass to the next timer that is due before until. False: nothing is left.
func (t *Net) Step(until int64) bool {
	type choice struct {
		n *Node
		l *link
	}
	var can []choice
	for _, id := range t.ids {
		n := t.Nodes[id]
		t.drain(n) // what a test sent in a node's name
		if !n.dead && !n.frozen && n.Env.Jobs() {
			can = append(can, choice{n: n})
		}
	}
	for _, l := range t.links {
		if n := t.Nodes[l.to]; len(l.queue) > 0 && !l.stalled || len(l.word) > 0 {
			if n == nil || n.dead {
				l.queue, l.word = nil, nil
				continue
			}
			if (!l.held || len(l.word) > 0) && !n.frozen {
				can = append(can, choice{l: l})
			}
		}
	}
	if len(can) == 0 {
		return t.passTime(until)
	}
	t.steps++
	if t.steps > 5_000_000 {
		invariant.Failf("the net does not come to rest")
	}
	c := can[0]
	if !t.InOrder {
		c = can[t.Rand(len(can))]
	}
	if c.n != nil {
		c.n.Env.RunJobs(func(p unsafe.Pointer) {
			h := (*signal.Head)(p)
			if f := signal.CheckLayout(h); f != nil {
				invariant.Failf("node %d: %v: %s", c.n.ID, f, signal.Format(h))
			}
			b := slices.Clone(unsafe.Slice((*byte)(p), h.Bytes()))
			t.deliver(c.n, b)
		}, 1)
		return true
	}
	if q := &c.l.word; len(*q) > 0 {
		b := (*q)[:(*signal.Head)(unsafe.Pointer(&(*q)[0])).Bytes()]
		*q = (*q)[len(b):]
		t.deliver(t.Nodes[c.l.to], b)
		return true
	}
	h := (*signal.Head)(unsafe.Pointer(&c.l.queue[0]))
	b := c.l.queue[:h.Bytes()]
	c.l.queue = c.l.queue[h.Bytes():]
	c.l.last = t.now
	if to, from := t.Nodes[c.l.to], t.Nodes[c.l.from]; h.From.Node() != c.l.to {
		if f := signal.Check(h, from.Kind, c.l.from, c.l.to); f != nil {
			invariant.Failf("from node %d to %d: %v: %s", c.l.from, c.l.to, f, signal.Format(h))
		}
		t.deliver(to, b)
	} else {
		t.deliver(to, b) // the runtime's own word about the link
	}
	return true
}

func (t *Net) passTime(until int64) bool {
	next, any := until, false
	for _, id := range t.ids {
		if n := t.Nodes[id]; !n.dead && !n.frozen {
			if due, ok := n.Env.NextTimer(); ok && due <= next {
				next, any = due, true
			}
		}
	}
	if !any {
		t.now = max(t.now, until)
		return false
	}
	t.now = max(t.now, next)
	for _, id := range t.ids {
		if n := t.Nodes[id]; !n.dead && !n.frozen {
			n.Env.SetNow(t.now)
			n.Env.FireTimers()
		}
	}
	return true
}

// Run goes on for d nanoseconds of the net's time.
func (t *Net) Run(d int64) {
	until := t.now + d
	for t.Step(until) {
	}
}

// Until goes on until the condition holds, at most d nanoseconds; false when it did not come true.
func (t *Net) Until(d int64, cond func() bool) bool {
	until := t.now + d
	for !cond() {
		if !t.Step(until) {
			return cond()
		}
	}
	return true
}

// String says what is under way, for messages of failed tests.
func (t *Net) String() string {
	s := fmt.Sprintf("at %d ns after %d signals", t.now, t.steps)
	for _, l := range t.links {
		if len(l.queue) > 0 {
			s += fmt.Sprintf("; %d→%d %d bytes", l.from, l.to, len(l.queue))
		}
	}
	return s
}
