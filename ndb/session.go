package ndb

import (
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
