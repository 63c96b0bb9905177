package kernel

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/signal"
)

// timer is a TickOrd that waits. Equal times keep the order of their setting.
type timer struct {
	due  int64
	seq  uint64
	to   signal.Addr
	kind uint32
	a, b uint32
}

// timers is a binary heap, earliest first. Blocks set a few each (they scan their own lists at a tick rather than
// keep a timer per record), so it stays small.
type timers struct {
	heap []timer
	seq  uint64
}

func (t *timer) before(u *timer) bool { return t.due < u.due || t.due == u.due && t.seq < u.seq }

// Tick sends a TickOrd{kind, a, b} to a block of this thread after a delay in nanoseconds.
func (e *Env) Tick(to signal.Addr, delay int64, kind, a, b uint32) {
	invariant.That(to.Node() == e.node && e.Dest(to) == e.self, "a block's timer stays on its thread")
	t := &e.timers
	t.seq++
	t.heap = append(t.heap, timer{e.now + max(delay, 0), t.seq, to, kind, a, b})
	h := t.heap
	for i := len(h) - 1; i > 0; {
		p := (i - 1) / 2
		if !h[i].before(&h[p]) {
			break
		}
		h[i], h[p] = h[p], h[i]
		i = p
	}
}

// NextTimer is when the earliest timer is due; ok is false when none is set.
func (e *Env) NextTimer() (due int64, ok bool) {
	if len(e.timers.heap) == 0 {
		return 0, false
	}
	return e.timers.heap[0].due, true
}

// FireTimers puts the TickOrd of every timer that is due at Now into the job buffer.
func (e *Env) FireTimers() {
	t := &e.timers
	for len(t.heap) > 0 && t.heap[0].due <= e.now {
		x := t.pop()
		s := Send[signal.TickOrd](e, x.to, x.to, signal.NumTickOrd)
		s.Kind, s.A, s.B = x.kind, x.a, x.b
	}
}

// RunTimers delivers the TickOrd of every timer that is due at Now, ahead of the signals in the job buffer, so that a
// long queue of these makes no timer late. Timers that are set meanwhile wait for the next call.
func (e *Env) RunTimers(deliver func(unsafe.Pointer)) {
	t := &e.timers
	for last := t.seq; len(t.heap) > 0 && t.heap[0].due <= e.now && t.heap[0].seq <= last; {
		x := t.pop()
		e.tick = signal.TickOrd{Head: signal.Head{Len: uint16(unsafe.Sizeof(e.tick) / 4), Num: signal.NumTickOrd, To: x.to, From: x.to},
			Kind: x.kind, A: x.a, B: x.b}
		e.Delivered++
		deliver(unsafe.Pointer(&e.tick))
	}
}

// pop takes the earliest timer out.
func (t *timers) pop() timer {
	x := t.heap[0]
	n := len(t.heap) - 1
	t.heap[0] = t.heap[n]
	t.heap = t.heap[:n]
	h := t.heap
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && h[c+1].before(&h[c]) {
			c++
		}
		if !h[c].before(&h[i]) {
			break
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
	return x
}
