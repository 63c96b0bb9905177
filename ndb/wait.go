package ndb

import (
	"context"
	"time"

	"github.com/cohortdb/cohort/internal/client"
)

// Poll waits until at least min transactions that were prepared with CommitAsync or ExecuteAsync are done (or all, if
// fewer are under way), and calls their functions. What is still in the send buffer is sent first. It returns how many
// are done; fewer only with an error of ctx, or ErrClosed.
func (s *Session) Poll(ctx context.Context, min int) (int, error) {
	return s.poll(ctx, SendForce, -1, min)
}

// PollFor is Poll with a timeout in place of a context: fewer than min is no error. With timeout 0 it never waits, below
// 0 for ever.
func (s *Session) PollFor(timeout time.Duration, min int) (int, error) {
	return s.poll(context.Background(), SendForce, int64(timeout), min)
}

// SendPoll is Send and PollFor in one: where it has to wait it sends first, whatever the mode says, but for SendLazy.
func (s *Session) SendPoll(mode SendMode, timeout time.Duration, min int) (int, error) {
	return s.poll(context.Background(), mode, int64(timeout), min)
}

func (s *Session) poll(ctx context.Context, mode SendMode, timeout int64, min int) (int, error) {
	s.acquire()
	switch {
	case s.polling:
		return 0, errInside
	case s.closed:
		s.release()
		return 0, ErrClosed
	}
	before := s.finished
	err := s.until(ctx, nil, mode, timeout, min)
	n := s.finished - before
	s.release()
	return n, err
}

// until waits until a transaction is over, or, without one, until min functions have been called. timeout < 0: for ever;
// beyond it nil is returned all the same.
func (s *Session) until(ctx context.Context, t *Tx, mode SendMode, timeout int64, least int) error {
	c := s.c
	if t == nil && least <= 0 {
		timeout = 0
	}
	goal := s.finished + least
	end := int64(-1)
	if timeout > 0 {
		end = s.env.Now() + timeout
	}
	s.polling = true
	defer s.endPoll()
	s.flush(mode)
	for once := true; ; once = false {
		if len(s.ready) > 0 {
			s.runReady()
		}
		s.drain()
		if s.core.Doubts() {
			s.tellDoubts()
		}
		if s.over(t, goal) && (timeout != 0 || !once || t != nil) {
			break
		}
		if s.state.closed {
			return ErrClosed
		}
		s.flush(mode)
		if !once {
			if timeout == 0 {
				return nil
			}
			s.env.SetNow(c.now())
		}
		now := s.env.Now()
		if st := c.state.Load(); st != s.state {
			s.refresh(st)
			continue
		}
		if now-s.lastTick >= int64(tick) {
			s.lastTick = now
			s.core.Tick()
			s.flush(mode)
			if s.over(t, goal) {
				break
			}
		}
		if ctx != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		left := int64(tick)
		if end >= 0 {
			if end <= now {
				return nil
			}
			left = min(left, end-now)
		}
		if timeout == 0 {
			left = 0
		}
		if ctx != nil {
			if d, ok := ctx.Deadline(); ok {
				left = max(min(left, int64(time.Until(d))), 0)
			}
		}
		if c.shared.Load() {
			s.waitInbox(ctx, t, goal-s.finished, left)
			continue
		}
		c.token.Lock()
		if s.inbox.arrived.Load() { // while the token was waited for
			c.token.Unlock()
			continue
		}
		c.wait(s, int((left+999_999)/1_000_000))
		c.token.Unlock()
	}
	return nil
}

// tellDoubts has the maps asked for that data nodes have contradicted.
func (s *Session) tellDoubts() {
	var maps []*client.Map
	s.core.TakeDoubts(func(m *client.Map) { maps = append(maps, m) })
	s.c.refresh(maps)
}

func (s *Session) endPoll() {
	s.polling = false
	if s.core.Doubts() {
		s.tellDoubts()
	}
	if t := s.core.StaleTable; t != nil {
		s.core.StaleTable = nil
		s.c.forgetTable(t)
	}
}

// over tells whether what until waits for has come.
func (s *Session) over(t *Tx, goal int) bool {
	if t != nil {
		return !t.core.Busy()
	}
	return s.finished >= goal || s.pending == 0
}

// waitInbox waits until another goroutine says that a transaction is over, or n of them, or that something else is the
// matter.
func (s *Session) waitInbox(ctx context.Context, t *Tx, n int, left int64) {
	b := &s.inbox
	b.mu.Lock()
	if len(b.in) > 0 || b.other || left == 0 {
		b.other = false
		b.mu.Unlock()
		return
	}
	b.waiting, b.tx, b.need = true, t, min(n, s.pending)
	b.mu.Unlock()
	var cancel <-chan struct{}
	if ctx != nil {
		cancel = ctx.Done()
	}
	if cancel == nil && left >= int64(tick) { // the background wakes whoever waits for so long
		<-b.wake
	} else {
		s.timer.Reset(time.Duration(left))
		select {
		case <-b.wake:
		case <-cancel:
		case <-s.timer.C:
		}
		s.timer.Stop()
	}
	b.mu.Lock() // from here on the session is this goroutine's again
	b.waiting, b.tx, b.other = false, nil, false
	b.mu.Unlock()
}

// onDone is told by the core that what a transaction was started for is over.
func (s *Session) onDone(ct *client.Tx) {
	t := &s.txs[ct.Index()]
	if t.done != nil {
		s.call(t)
	}
}

// call calls a transaction's function and gives the transaction back if it has ended.
func (s *Session) call(t *Tx) {
	if !s.polling || s.remote { // functions are called by the session's goroutine, in a Poll
		s.ready = append(s.ready, t)
		return
	}
	f, life := t.done, t.life
	t.done = nil
	s.pending--
	s.finished++
	f(t)
	if t.life == life && t.done == nil && t.core.State() == client.Ended {
		t.core.Release()
	}
}

// runReady calls the functions of transactions that were over without an answer.
func (s *Session) runReady() {
	for i := 0; i < len(s.ready); i++ {
		t := s.ready[i]
		if t.done != nil && !t.core.Busy() {
			s.call(t)
		}
	}
	s.ready = s.ready[:0]
}
