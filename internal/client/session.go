package client

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/outcome"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
)

// Limits of a Config.
const (
	MaxTransactions = 1 << 14
	MaxOperations   = 1 << 20
)

// ackEvery is how many outcomes may be unacknowledged at nodes that a busy session does not turn to.
const ackEvery = 256

// Config is what a session is made with. Times in nanoseconds.
type Config struct {
	Instance        uint16 // 1..65535
	MaxTransactions int    // that are not released, 1..MaxTransactions
	MaxOperations   int    // of these, 1..MaxOperations
	WaitTimeout     int64  // for an answer; 0 = for ever
	FirstTx         uint32 // where transaction numbers begin: what LastTx gave for the instance's previous session, else 0
	// Done is called when what a transaction was started for is over: Execute, Commit or Rollback. See the package
	// comment for where from. Not nil.
	Done func(*Tx)
}

// Counters count what a session has seen. They only grow.
type Counters struct {
	Transactions uint64 // begun
	Operations   uint64 // defined
	Direct       uint64 // operations that went to an ldm without a coordinator
	Stale        uint64 // answers to what was over
	Malformed    uint64 // answers that do not fit what was asked
	Timeouts     uint64 // transactions that were given up
	Asked        uint64 // commits whose outcome had to be asked for, because a node was lost
}

// Session is a stream of work: a block of its own.
type Session struct {
	env  *kernel.Env
	self signal.Addr
	cfg  Config
	view *View

	ops    []Op
	freeOp *Op
	txs    []Tx
	freeTx *Tx
	shift  uint32 // bits of a transaction number that are the record's index
	lastTx uint32 // the rest: counts transactions
	openTx int    // transactions that are not released
	busy   int    // transactions that something is awaited for

	// open is the last operation while its request can still change its form: it is the last thing in buffer openDest,
	// at openAt. nil: none.
	open     *Op
	openDest kernel.Dest
	openAt   uint32

	seq       uint32                      // last commit sequence number given out
	ack       uint32                      // every outcome up to here was heard
	told      uint32                      // ack that every node was told
	heard     [outcome.Window / 64]uint64 // outcomes beyond ack that were heard, by seq modulo Window
	touched   bool                        // something was sent that a data node may remember
	turn      uint32                      // of round robin
	deadlines int64                       // no transaction's deadline is before this
	asking    int                         // transactions in state Asking
	upAt      [256]uint32                 // by node: seq when its links came up; outcomes up to there it may have forgotten
	lastUp    uint32                      // lastTx when any node came up or began to serve: before, a row may have gone nowhere
	doubted   []*Map                      // that a data node has contradicted: operations go through coordinators until there are newer ones
	untold    []*Map                      // of these, those that the runtime has not taken note of
	closed    bool
	none      Op // stands for an operation that has no record

	scratch [schema.MaxKeyBytes/8 + 1]uint64 // the key image before its place is known

	// StaleTable is a table that a data node called old or unknown since the runtime last took note; nil: none.
	StaleTable *Table
	Counters   Counters
}

// NewSession makes a session on an Env that nobody else puts signals into.
func NewSession(env *kernel.Env, cfg Config) *Session {
	invariant.That(cfg.Instance != 0, "instance 0 is the connection's")
	invariant.That(cfg.MaxTransactions > 0 && cfg.MaxTransactions <= MaxTransactions, "transactions of a session are bounded")
	invariant.That(cfg.MaxOperations > 0 && cfg.MaxOperations <= MaxOperations, "operations of a session are bounded")
	invariant.That(cfg.Done != nil, "somebody hears of results")
	s := &Session{
		env: env, self: signal.MakeAddr(env.Node(), signal.BlockClient, cfg.Instance), cfg: cfg, view: noView,
		ops: make([]Op, cfg.MaxOperations), txs: make([]Tx, cfg.MaxTransactions), lastTx: cfg.FirstTx,
		// Commits are numbered on where the session before it under this number must have stopped, since each of them was a
		// transaction: something of that may still come to an ldm after its end and open its outcomes anew.
		seq: cfg.FirstTx, ack: cfg.FirstTx, told: cfg.FirstTx,
	}
	for i := range s.upAt {
		s.upAt[i] = cfg.FirstTx
	}
	for i := len(s.ops) - 1; i >= 0; i-- {
		o := &s.ops[i]
		o.index, o.next = uint32(i), s.freeOp
		s.freeOp = o
	}
	for i := len(s.txs) - 1; i >= 0; i-- {
		t := &s.txs[i]
		t.s, t.index, t.next = s, uint32(i), s.freeTx
		s.freeTx = t
	}
	for 1<<s.shift < len(s.txs) {
		s.shift++
	}
	return s
}

// Addr is the session's address.
func (s *Session) Addr() signal.Addr { return s.self }

// View is the view that the session works with.
func (s *Session) View() *View { return s.view }

// Open is how many transactions are not released, Busy how many of them wait for answers.
func (s *Session) Open() int { return s.openTx }

// Busy is how many transactions something is awaited for.
func (s *Session) Busy() int { return s.busy }

// LastTx is what the next session of this instance must be given as FirstTx.
func (s *Session) LastTx() uint32 { return s.lastTx }

// Unheard is how many commits are beyond the acknowledgement.
func (s *Session) Unheard() int { return int(s.seq - s.ack) }

// TxOptions say where a transaction's coordinator is.
type TxOptions struct {
	Node       uint8 // the coordinator's node; 0: the node of the first operation's primary
	RoundRobin bool  // the next serving node in turn
	Coordinate bool  // go through a coordinator even where a short path would do
}

// Begin takes a transaction record; nil when all are in use or the session is closed.
func (s *Session) Begin(o TxOptions) *Tx {
	t := s.freeTx
	if t == nil || s.closed {
		return nil
	}
	s.freeTx = t.next
	s.lastTx++
	s.openTx++
	s.Counters.Transactions++
	t.num = s.lastTx<<s.shift | t.index
	t.state, t.err, t.gci, t.seq = Defining, nil, [2]uint32{}, 0
	t.head, t.tail, t.next = nil, nil, nil
	t.tc, t.started, t.node, t.writes, t.batch = 0, false, 0, false, false
	t.reads, t.straight, t.awaits = 0, 0, 0
	t.before, t.question, t.rowsBy = nil, nil, 0
	t.opts = o
	return t
}

// release gives a transaction's records back.
func (s *Session) release(t *Tx) {
	for o := t.head; o != nil; {
		next := o.next
		o.num, o.tx, o.format, o.row, o.err = 0, nil, nil, nil, nil
		o.next = s.freeOp
		s.freeOp = o
		o = next
	}
	t.head, t.tail, t.state = nil, nil, free
	t.next = s.freeTx
	s.freeTx = t
	s.openTx--
}

// hear takes note that the outcome of a commit is known here, or will never be asked for.
func (s *Session) hear(seq uint32) {
	if seq == 0 || seq-s.ack-1 >= outcome.Window {
		return
	}
	s.heard[seq%outcome.Window/64] |= 1 << (seq % 64)
	for {
		n := s.ack + 1
		w := &s.heard[n%outcome.Window/64]
		if *w&(1<<(n%64)) == 0 || s.ack == s.seq {
			return
		}
		*w &^= 1 << (n % 64)
		s.ack = n
	}
}

// nextSeq gives out a commit sequence number; 0 when Window commits are beyond the acknowledgement.
func (s *Session) nextSeq() uint32 {
	if s.seq-s.ack >= outcome.Window-1 {
		return 0
	}
	s.seq++
	if s.seq == 0 { // 0 stands for "no commit": it is skipped, as one that was heard
		s.hear0()
		s.seq++
	}
	return s.seq
}

func (s *Session) hear0() {
	s.heard[0] |= 1
	if s.ack == ^uint32(0) {
		s.heard[0] &^= 1
		s.ack = 0
	}
}

// acknowledge tells every instance that may keep outcomes of this session what was heard.
func (s *Session) acknowledge() {
	s.told = s.ack
	s.each(func(to signal.Addr) {
		kernel.Send[signal.AckOrd](s.env, to, s.self, signal.NumAckOrd).Ack = s.ack
	})
}

// each calls f for every coordinator and ldm of every node that is up.
func (s *Session) each(f func(to signal.Addr)) {
	for i := range s.view.nodes {
		n := &s.view.nodes[i]
		if !n.Up {
			continue
		}
		for k := range n.TCs {
			f(signal.MakeAddr(n.ID, signal.BlockTC, uint16(k)))
		}
		for k := range n.LDMs {
			f(signal.MakeAddr(n.ID, signal.BlockLDM, uint16(k)))
		}
	}
}

// doubts tells whether a map was contradicted by a data node, and there is no newer one yet.
func (s *Session) doubts(m *Map) bool {
	for _, d := range s.doubted {
		if d == m {
			return true
		}
	}
	return false
}

// doubt takes note that a data node has refused an operation because it has not the primary that the map says.
func (s *Session) doubt(o *Op) {
	m := s.view.mapOf(o.format.table)
	if s.view.placed(m, o.frag).Node() != o.node || s.doubts(m) { // there is a newer map already
		return
	}
	s.doubted = append(s.doubted, m)
	s.untold = append(s.untold, m)
}

// TakeDoubts calls f with each map that a data node has contradicted since the last call: it is for Conn.Refresh.
func (s *Session) TakeDoubts(f func(*Map)) {
	for _, m := range s.untold {
		f(m)
	}
	s.untold = s.untold[:0]
}

// Doubts tells whether TakeDoubts has something to say.
func (s *Session) Doubts() bool { return len(s.untold) > 0 }

// Close tells every node that the session is over: its transactions are rolled back there and its outcomes
// forgotten. Transactions that have not ended are over with 4121, those whose commit is under way with 4008.
func (s *Session) Close() {
	if s.closed {
		return
	}
	s.dropOpen()
	s.closed = true
	if s.touched {
		s.each(func(to signal.Addr) { kernel.Send[signal.CloseOrd](s.env, to, s.self, signal.NumCloseOrd) })
	}
	for i := range s.txs {
		t := &s.txs[i]
		switch {
		case t.state == free || t.state == Ended:
		case t.state == Defining:
			t.fail(ndberror.Get(ndberror.SessionClosed))
			t.state = Ended
		default:
			s.giveUp(t, ndberror.SessionClosed, ndberror.AnswerLost)
		}
	}
}

// Settle must be called before what is in the session's Env is sent: the last operation takes its final form.
func (s *Session) Settle() {
	if s.open != nil {
		s.shut(false)
	}
}

// Tick does what time demands: timeouts, acknowledgements. The Env's Now has been set.
func (s *Session) Tick() {
	if s.closed {
		return
	}
	if s.busy > 0 {
		if s.asking > 0 {
			s.askAgain()
		}
		s.expire()
	}
	s.TellHeard()
}

// TellHeard sends acknowledgements that no request has carried, and says whether there were any. It is the part of Tick
// that calls nobody back.
func (s *Session) TellHeard() bool {
	n := s.ack - s.told
	if s.closed || n == 0 || n < ackEvery && s.busy > 0 {
		return false
	}
	s.Settle()
	s.acknowledge()
	return true
}

// Buffered is how many bytes wait in the buffer that was used last.
func (s *Session) Buffered() int { return s.env.Buf(s.openDest).Len() }
