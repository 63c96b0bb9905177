// Package kernel delivers signals: one at a time, in order, on time.
//
// An Env is all that a block sees of the world. It belongs to one thread (event loop) of one node: it holds the
// outgoing buffers of that thread, its timers, the time stamped on the current delivery and a seeded random
// source. Blocks put signals into it; a runtime (host or sim) drains the buffers: to sockets, to other threads,
// and back to the thread's own blocks. Env is a concrete type, so putting a signal costs an add, a compare and
// the writes of its fields.
//
// The order promised is FIFO per pair of threads, nothing more.
//
// The package starts no goroutine, takes no lock and reads no clock. Bounds: an outgoing buffer has a hard limit
// (its link is cut beyond it); a runtime stops taking requests in long before, so that room is taken at admission.
//
// Read next: signal (what is delivered), datanode (which block gets what), host and sim (who drains).
package kernel

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/signal"
)

// Dest is the index of an outgoing buffer: 0..255 the link to that node, ThreadDest(t) thread t of this node.
type Dest = uint16

// MaxThreads bounds the threads of a node.
const MaxThreads = 128

const firstThread = 256

// ThreadDest is the destination of a thread of the own node.
func ThreadDest(t int) Dest { return Dest(firstThread + t) }

// Env is the world of one thread's blocks. Fields are set by the runtime before the first delivery.
type Env struct {
	node   uint8
	thread uint16
	self   Dest
	now    int64
	via    [256]Dest                // node → buffer; a thread without a socket of its own sends by way of another thread
	spread [256]uint8               // node → links to it, in buffers via, via+1 …; 0 and 1 mean one
	place  [signal.MaxBlocks][]Dest // block → instance → thread of the own node
	out    [firstThread + MaxThreads]Buf
	dirty  []Dest
	timers timers
	tick   signal.TickOrd // of the timer that is being delivered
	rng    uint64
	marks  Marks
	// Delivered counts signals executed by this thread.
	Delivered uint64
}

// NewEnv makes the Env of thread t of a node. seed starts the random source; jobBytes is the room for signals
// that blocks of this thread send to each other, to start with.
func NewEnv(node uint8, t int, seed uint64, jobBytes int) *Env {
	invariant.That(node != 0 && t < MaxThreads, "a thread belongs to a node")
	e := &Env{node: node, thread: uint16(t), self: ThreadDest(t), rng: seed | 1}
	e.out[e.self].Init(jobBytes, 1<<30)
	e.dirty = make([]Dest, 0, len(e.out))
	return e
}

// Node is the own node's number.
func (e *Env) Node() uint8 { return e.node }

// Thread is the number of the thread.
func (e *Env) Thread() int { return int(e.thread) }

// Now is the time of the current delivery in nanoseconds since some fixed moment; it never goes back.
func (e *Env) Now() int64 { return e.now }

// SetNow is for the runtime.
func (e *Env) SetNow(ns int64) {
	if ns > e.now {
		e.now = ns
	}
}

// Place says that an instance of a block lives on thread t. All instances of all blocks of the node are placed in
// every Env of the node.
func (e *Env) Place(block uint8, instance, t int) {
	p := e.place[block]
	for len(p) <= instance {
		p = append(p, e.self)
	}
	p[instance] = ThreadDest(t)
	e.place[block] = p
}

// Via says which buffer carries signals to a node.
func (e *Env) Via(node uint8, d Dest) { e.via[node], e.spread[node] = d, 1 }

// Spread says that n links lead to a node, in buffers d, d+1 …: a signal takes the one that its receiver's instance
// number chooses (modulo n). A client has one link to each receiving thread of a data node, and instance i of a
// coordinator or an ldm sits on thread i modulo the threads, so that requests arrive where they are executed.
func (e *Env) Spread(node uint8, d Dest, n int) {
	invariant.That(n >= 1 && n <= MaxThreads && int(d)+n <= len(e.out), "the links of a node have buffers")
	e.via[node], e.spread[node] = d, uint8(n)
}

// Instances is the number of instances of a block at the own node.
func (e *Env) Instances(block uint8) int { return len(e.place[block]) }

// Buf is for the runtime.
func (e *Env) Buf(d Dest) *Buf { return &e.out[d] }

// Dest is the buffer that a signal to an address goes into.
func (e *Env) Dest(to signal.Addr) Dest {
	if n := to.Node(); n != e.node {
		if s := uint16(e.spread[n]); s > 1 {
			return e.via[n] + to.Instance()%s
		}
		return e.via[n]
	}
	p := e.place[to.Block()%signal.MaxBlocks]
	if i := int(to.Instance()); i < len(p) {
		return p[i]
	}
	invariant.Failf("%v does not exist", to)
	return 0
}

// Has tells whether an address of the own node exists; signals from links are checked with it.
func (e *Env) Has(to signal.Addr) bool {
	b := to.Block()
	return b < signal.MaxBlocks && int(to.Instance()) < len(e.place[b])
}

// Put reserves n bytes (a multiple of 4, head included) in the outgoing buffer of the destination, writes the
// head and returns the signal; the caller fills in every other byte at once.
func (e *Env) Put(to, from signal.Addr, num uint16, n uint32) unsafe.Pointer {
	d := e.Dest(to)
	b := &e.out[d]
	p := b.Reserve(n)
	if !b.Dirty {
		e.mark(d)
	}
	h := (*signal.Head)(p)
	h.Len, h.Num, h.To, h.From = uint16(n/4), num, to, from
	return p
}

// Send reserves a signal without sections.
func Send[T any](e *Env, to, from signal.Addr, num uint16) *T {
	var z T
	return (*T)(e.Put(to, from, num, uint32(unsafe.Sizeof(z))))
}

// Forward passes a signal on as it is, to the destination that its head names.
func (e *Env) Forward(h *signal.Head) {
	d := e.Dest(h.To)
	b := &e.out[d]
	n := h.Bytes()
	p := b.Reserve(n)
	if !b.Dirty {
		e.mark(d)
	}
	copy(unsafe.Slice((*byte)(p), n), unsafe.Slice((*byte)(unsafe.Pointer(h)), n))
}

//go:noinline
func (e *Env) mark(d Dest) {
	e.out[d].Dirty = true
	if d != e.self {
		e.dirty = append(e.dirty, d)
	}
}

// TakeDirty calls f for each buffer other than the own job buffer into which something was put since the last
// call, in the order of the first put.
func (e *Env) TakeDirty(f func(d Dest, b *Buf)) {
	for _, d := range e.dirty {
		b := &e.out[d]
		b.Dirty = false
		f(d, b)
	}
	e.dirty = e.dirty[:0]
}

// Dirty tells whether something waits for TakeDirty.
func (e *Env) Dirty() bool { return len(e.dirty) > 0 }

// Jobs tells whether signals wait for blocks of the own thread.
func (e *Env) Jobs() bool { return e.out[e.self].n > 0 }

// RunJobs delivers the signals that blocks of this thread sent to each other, in order, until there are none or
// max have been delivered. It returns how many it delivered.
func (e *Env) RunJobs(deliver func(unsafe.Pointer), max int) int {
	b := &e.out[e.self]
	k := 0
	for o := uint32(0); ; {
		if o >= b.n {
			b.n, b.Dirty = 0, false
			break
		}
		if k >= max {
			b.Consume(int(o))
			break
		}
		p := unsafe.Add(b.base, o)
		o += (*signal.Head)(p).Bytes()
		k++
		e.Delivered++
		deliver(p)
	}
	return k
}

// Rand is a pseudo-random number from the seeded source (xorshift64*).
func (e *Env) Rand() uint64 {
	x := e.rng
	x ^= x >> 12
	x ^= x << 25
	x ^= x >> 27
	e.rng = x
	return x * 0x2545F4914F6CDD1D
}
