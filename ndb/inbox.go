package ndb

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cohortdb/cohort/internal/client"
	"github.com/cohortdb/cohort/internal/signal"
)

// inbox is where another goroutine that reads meets a session. While the session waits, the reader executes what comes for
// it at once, but for the functions of transactions, which are the session's own to call; else it leaves a copy.
type inbox struct {
	mu      sync.Mutex
	waiting bool   // the session's goroutine sleeps: whoever holds mu may use the session
	tx      *Tx    // it waits for this one to be over …
	need    int    // … or, without, for so many transactions whose functions are to be called
	other   bool   // something else is to be looked at
	in      []byte // whole frames that came while it did not wait
	mine    []byte // the session's own half
	wake    chan struct{}
	arrived atomic.Bool // in is not empty
}

// enter takes the inbox of a session for a run of frames; leave ends that and wakes the session when it has what it
// waits for. Both do nothing for no session.
func (s *Session) enter() {
	if s != nil {
		s.inbox.mu.Lock()
		if s.inbox.waiting {
			s.remote = true
		}
	}
}

func (s *Session) leave() {
	if s == nil {
		return
	}
	b := &s.inbox
	wake := false
	var doubts []*client.Map
	if b.waiting {
		s.remote = false
		s.core.TakeDoubts(func(m *client.Map) { doubts = append(doubts, m) })
		s.flush(SendForce) // what the answers have led to
		if b.tx != nil {
			wake = !b.tx.core.Busy()
		} else {
			wake = len(s.ready) >= b.need
		}
		if wake {
			b.waiting = false
		}
	} else {
		b.arrived.Store(len(b.in) > 0)
	}
	b.mu.Unlock()
	if wake {
		b.signal()
	}
	if doubts != nil {
		s.c.refresh(doubts)
	}
}

// take gives a session a frame, between enter and leave.
func (s *Session) take(frame []byte) {
	if s.inbox.waiting {
		s.core.Deliver((*signal.Head)(unsafe.Pointer(unsafe.SliceData(frame))))
		return
	}
	in := append(s.inbox.in, frame...)
	if n := len(in); n == cap(in) { // as in newIn
		in = append(in, 0)[:n]
	}
	s.inbox.in = in
}

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// wakeUp makes a session that waits look around.
func (b *inbox) wakeUp() {
	b.mu.Lock()
	b.other = true
	waits := b.waiting
	b.waiting = false
	b.mu.Unlock()
	if waits {
		b.signal()
	}
}

// drain executes what is in the inbox.
func (s *Session) drain() {
	b := &s.inbox
	if !b.arrived.Load() {
		return
	}
	b.mu.Lock()
	b.in, b.mine = b.mine[:0], b.in
	b.arrived.Store(false)
	b.mu.Unlock()
	for in := b.mine; len(in) > 0; {
		h := (*signal.Head)(unsafe.Pointer(unsafe.SliceData(in)))
		in = in[h.Bytes():]
		s.core.Deliver(h)
	}
}
