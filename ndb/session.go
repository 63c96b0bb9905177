package ndb

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cohortdb/cohort/internal/client"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/ndberror"
)

// SessionOptions of NewSession.
type SessionOptions struct {
	MaxTransactions int // at once; 0: 1024, at most 16384
	MaxOperations   int // in transactions that are not closed; 0: 4 × MaxTransactions, at most 1048576
}

// errInside refuses to wait, or to close the session, in a function that is called by something that waits.
var errInside = fmt.Errorf("ndb: not in a function that Poll calls: use CommitAsync or ExecuteAsync there: %w", ErrTxEnded)

// sendAt is how many bytes for one socket are sent without waiting for Send or Poll.
const sendAt = 128 << 10

// Session is a stream of work: transactions of one goroutine at a time, of which many may be under way.
type Session struct {
	c        *Conn
	instance uint16
	core     *client.Session
	env      *kernel.Env
	txs      []Tx
	inbox    inbox

	mu sync.Mutex // held by the goroutine that uses the session, or by the background; guards what follows
	// mine: the session's goroutine holds mu. Only that goroutine reads and writes it, so that an operation costs no lock:
	// mu is taken at the first call after a call that waited or sent, and given back by such a call.
	mine     bool
	state    *state
	pending  int   // transactions with a function that was not called yet
	unsent   int   // of these, prepared since the last flush
	finished int   // functions called, ever
	ready    []*Tx // over without having been sent: their functions are called by the next Poll
	polling  bool  // a call that waits is under way: it calls the functions
	remote   bool  // another goroutine executes what came, while this one waits: see inbox
	lazy     bool  // SendLazy
	closed   bool
	lastTick int64
	timer    *time.Timer
	flushOne func(kernel.Dest, *kernel.Buf)
}

// NewSession opens a stream of work.
func (c *Conn) NewSession(o SessionOptions) (*Session, error) {
	if o.MaxTransactions == 0 {
		o.MaxTransactions = 1024
	}
	if o.MaxOperations == 0 {
		o.MaxOperations = min(4*o.MaxTransactions, client.MaxOperations)
	}
	if o.MaxTransactions < 0 || o.MaxTransactions > client.MaxTransactions || o.MaxOperations < 0 || o.MaxOperations > client.MaxOperations {
		return nil, ErrorOf(ndberror.TooManyTx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.state.Load()
	if st.closed {
		return nil, ErrClosed
	}
	instance := c.freeInstance(st)
	if instance == 0 {
		return nil, ErrorOf(ndberror.TooManyTx)
	}
	s := &Session{c: c, instance: instance, state: &state{view: &client.View{}}}
	s.inbox.wake = make(chan struct{}, 1)
	s.timer = time.NewTimer(time.Hour)
	s.timer.Stop()
	s.env = kernel.NewEnv(c.id, 0, c.secret+uint64(instance), 64)
	s.core = client.NewSession(s.env, client.Config{
		Instance: instance, MaxTransactions: o.MaxTransactions, MaxOperations: o.MaxOperations,
		WaitTimeout: int64(c.opts.WaitTimeout), FirstTx: c.firstTx[instance], Done: s.onDone,
	})
	s.txs = make([]Tx, o.MaxTransactions)
	s.ready = make([]*Tx, 0, o.MaxTransactions)
	s.flushOne = s.flushBuf
	s.refresh(st)
	sessions := make([]*Session, max(len(st.sessions), int(instance)+1))
	copy(sessions, st.sessions)
	sessions[instance] = s
	c.open++
	c.publish(func(st *state) { st.sessions = sessions })
	c.reading()
	return s, nil
}

// freeInstance chooses a session number: not the one that was given back last, whose answers may still be on their
// way, yet none far beyond those in use, since data nodes keep an entry for each number up to the highest.
func (c *Conn) freeInstance(st *state) uint16 {
	span := max(256, 4*(c.open+1))
	for range span {
		c.lastGiven++
		if int(c.lastGiven) > span {
			c.lastGiven = 1
		}
		if c.lastGiven != 0 && (int(c.lastGiven) >= len(st.sessions) || st.sessions[c.lastGiven] == nil) {
			return c.lastGiven
		}
	}
	return 0
}

// Close rolls back what is under way and gives the session up. The functions of prepared transactions are called: these
// have failed with 4121, or with 4008 where nobody knows any more whether they will be committed.
func (s *Session) Close() error {
	s.acquire()
	if s.polling {
		return errInside
	}
	if s.closed {
		s.release()
		return nil
	}
	s.polling = true
	s.core.Close()
	s.runReady()
	s.polling = false
	s.flush(SendForce)
	s.closed = true
	s.release()
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.firstTx[s.instance] = s.core.LastTx()
	c.open--
	st := c.state.Load()
	sessions := append([]*Session(nil), st.sessions...)
	sessions[s.instance] = nil
	c.publish(func(st *state) { st.sessions = sessions })
	c.reading()
	return nil
}

// Conn is the session's connection.
func (s *Session) Conn() *Conn { return s.c }

// acquire makes the session this goroutine's.
func (s *Session) acquire() {
	if !s.mine {
		s.lock()
	}
}

func (s *Session) lock() {
	s.mu.Lock()
	s.mine = true
	s.env.SetNow(s.c.now())
	if st := s.c.state.Load(); st != s.state {
		s.refresh(st)
	}
}

func (s *Session) release() {
	s.mine = false
	s.mu.Unlock()
}

// refresh brings the session in line with a newer state: first its buffers, then its view, which may end transactions.
func (s *Session) refresh(st *state) {
	old := s.state
	s.state = st
	if old.view == st.view && old.nodes == st.nodes {
		return
	}
	setLinks(s.env, old, st)
	s.core.SetView(st.view)
}

// flush sends what is in the session's buffers.
func (s *Session) flush(mode SendMode) {
	s.core.Settle()
	s.unsent = 0
	if s.lazy = mode == SendLazy; s.lazy {
		s.c.startLazy()
	}
	s.env.TakeDirty(s.flushOne)
}

func (s *Session) flushBuf(d kernel.Dest, b *kernel.Buf) {
	n := b.Len()
	if n == 0 {
		return
	}
	if int(d) < maxLinks {
		if l := s.state.links[d]; l != nil {
			s.c.send(l, b.Bytes(), s.lazy)
		}
	}
	b.Truncate(0)
}

// background is called from time to time by another goroutine.
func (s *Session) background() {
	if s.mu.TryLock() {
		s.env.SetNow(s.c.now())
		if !s.closed {
			s.core.TellHeard()
			s.flush(SendForce) // with what an adaptive Send has left
		}
		s.mu.Unlock()
	}
	s.inbox.wakeUp()
}

// SendMode says when requests are written to the sockets.
type SendMode uint8

const (
	// SendAdaptive leaves requests in the buffer while answers are outstanding and the buffer is small: the next Poll, or
	// the Send that finds more, sends them together.
	SendAdaptive SendMode = iota
	// SendForce writes at once.
	SendForce
	// SendLazy leaves it to the background, every 10 ms.
	SendLazy
)

// adaptiveBytes is the most that an adaptive Send leaves in a buffer.
const adaptiveBytes = 8 << 10

// Send sends what CommitAsync and ExecuteAsync have prepared, as the mode says.
func (s *Session) Send(mode SendMode) error {
	s.acquire()
	if s.closed {
		s.release()
		return ErrClosed
	}
	if mode != SendAdaptive || s.core.Buffered() >= adaptiveBytes || s.pending <= s.unsent {
		s.flush(mode)
	}
	if !s.polling {
		s.release()
	}
	return nil
}

// Pending is how many prepared transactions are not done yet.
func (s *Session) Pending() int { return s.pending }

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

func (s *Session) endPoll() {
	s.polling = false
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

// Begin starts a transaction. An error means that MaxTransactions are not closed (4006), or that the session is (4121).
func (s *Session) Begin() (*Tx, error) { return s.BeginWith(TxOptions{}) }

// TxOptions say where a transaction's coordinator is, and how it is reached. The zero value: at the primary of the
// first operation's row, and no coordinator at all where none is needed.
type TxOptions struct {
	Node       int  // data node of the coordinator; 0: the node of the first row's primary
	RoundRobin bool // a coordinator at the next data node in turn, always
	Coordinate bool // go through a coordinator even where a short path would do
}

// BeginWith starts a transaction with options.
func (s *Session) BeginWith(o TxOptions) (*Tx, error) {
	s.acquire()
	if s.state.closed {
		return nil, ErrClosed
	}
	if o.Node < 0 || o.Node > 255 {
		o.Node = 0
	}
	ct := s.core.Begin(client.TxOptions{Node: uint8(o.Node), RoundRobin: o.RoundRobin, Coordinate: o.Coordinate})
	if ct == nil {
		if s.closed {
			return nil, ErrClosed
		}
		return nil, ErrorOf(ndberror.TooManyTx)
	}
	t := &s.txs[ct.Index()]
	t.core, t.s, t.done, t.Tag = ct, s, nil, 0
	t.life++
	return t, nil
}
