package host

import (
	"sync/atomic"

	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

const (
	// ringSlots bounds the chunks between two threads that wait to be executed. When all are full, signals gather in the
	// sender's outgoing buffer and travel as one larger chunk later: a slow receiver gets bigger batches.
	ringSlots = 4
	// chunkBytes is the size of a chunk to start with; chunks above chunkKeepBytes are not used again.
	chunkBytes     = 64 << 10
	chunkKeepBytes = 1 << 20
	// threadBufBytes is the limit of what may wait for another thread. Room is taken at admission, so reaching it is a bug.
	threadBufBytes = 1 << 30
	// backlogBytes of signals that no ring had room for make a queue long: clients are not read from meanwhile.
	backlogBytes = 256 << 10
)

// ring carries chunks of signals from one thread to another: one producer, one consumer, no lock. A chunk that has
// been executed stays in its slot until the producer, coming round, takes its memory for the next outgoing buffer.
type ring struct {
	slot [ringSlots][]byte
	_    [64]byte
	tail atomic.Uint32 // chunks ever put; written by the producer
	_    [64]byte
	head atomic.Uint32 // chunks ever executed; written by the consumer
	// waits: the producer has more and no room, and wants to be woken when there is.
	waits atomic.Bool
	_     [64]byte
	// off is how far the consumer is in the first chunk; its own.
	off uint32
}

// push moves what is in the outgoing buffer into the ring. It returns false when the ring is full.
func (r *ring) push(b *kernel.Buf) bool {
	t := r.tail.Load()
	if t-r.head.Load() == ringSlots {
		r.waits.Store(true)
		if t-r.head.Load() == ringSlots { // the consumer may have made room before it could see that we wait
			return false
		}
		r.waits.Store(false)
	}
	s := &r.slot[t%ringSlots]
	m := *s
	if c := cap(m); c == 0 || c > chunkKeepBytes {
		m = make([]byte, chunkBytes)
	}
	*s = b.Swap(m)
	r.tail.Store(t + 1)
	return true
}

// pass publishes what waits for another thread and wakes it if it sleeps.
func (l *loop) pass(d kernel.Dest, b *kernel.Buf) {
	if b.Len() == 0 {
		return
	}
	t := int(d - kernel.ThreadDest(0))
	if b.Broken {
		invariant.Failf("thread %d has left %d bytes of signals to thread %d waiting", l.index, threadBufBytes, t)
	}
	if !l.out[t].push(b) {
		if !l.full[t] {
			l.full[t] = true
			l.fulls++
		}
		return
	}
	if l.full[t] {
		l.full[t] = false
		l.fulls--
	}
	l.host.loops[t].nudge()
}

// passAgain retries where a ring was full.
func (l *loop) passAgain() {
	for t := range l.full {
		if l.full[t] {
			d := kernel.ThreadDest(t)
			l.pass(d, l.env.Buf(d))
		}
	}
}

// backlogged tells whether so much waits for other threads that clients should not be read from.
func (l *loop) backlogged() bool {
	for t := range l.full {
		if l.full[t] && l.env.Buf(kernel.ThreadDest(t)).Len() > backlogBytes {
			return true
		}
	}
	return false
}

// handed tells whether another thread has handed something over.
func (l *loop) handed() bool {
	for _, r := range l.in {
		if r != nil && r.tail.Load() != r.head.Load() {
			return true
		}
	}
	return false
}

// take executes what other threads handed over, as far as the turn's budget goes, a different one first each time.
func (l *loop) take() {
	n := len(l.in)
	for i := range n {
		f := (l.first + i) % n
		r := l.in[f]
		if r == nil {
			continue
		}
		for h := r.head.Load(); h != r.tail.Load(); {
			m := r.slot[h%ringSlots]
			used, _ := l.execute(m[r.off:], nil)
			r.off += used
			if int(r.off) < len(m) {
				if l.left > 0 {
					invariant.Failf("thread %d handed over a signal that is not whole", f)
				}
				l.first = f + 1
				return
			}
			r.off = 0
			h++
			r.head.Store(h)
			if r.waits.Load() && r.waits.CompareAndSwap(true, false) {
				l.host.loops[f].nudge()
			}
			if l.left <= 0 {
				l.first = f + 1
				return
			}
		}
	}
	l.first++
}

// markNum is the number of the mark that a thread sends after the last signal of a peer whose link is down; no signal has
// it, and a link cannot bring it. The peer's node is in From. With the own node it is a thread's answer to a question of
// main (pulse.go).
const markNum = 0

// mark sends a mark to every other thread of the node.
func (l *loop) mark(node uint8) {
	for t := range l.out {
		if l.out[t] != nil {
			l.markTo(t, node)
		}
	}
}

// markTo sends a mark to thread t.
func (l *loop) markTo(t int, node uint8) {
	d := kernel.ThreadDest(t)
	h := (*signal.Head)(l.env.Buf(d).Reserve(signal.HeadSize))
	*h = signal.Head{Len: signal.HeadSize / 4, Num: markNum, From: signal.MakeAddr(node, 0, 0)}
	l.pass(d, l.env.Buf(d))
}
