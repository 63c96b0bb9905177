// Package coordinator carries a transaction from its first operation to complete [DBTC].
//
// A Block is one instance of a transaction coordinator. It owns the records of the transactions that clients
// started at it, and of their operations; it knows, of each table, only which ldm has the primary of each
// fragment. It holds no row and no lock: those are the ldms'. Rows that a transaction reads go from the ldm
// straight to the client.
//
// A transaction passes through these states; the files are named by the protocols that lead from one to the next:
//
//	Active ──prepare──▶ Active ──(no epoch may be drawn now)──▶ Held
//	Active, Held ──commit──▶ Committing ──complete──▶ Completing ──▶ gone
//	Active, Held ──abort──▶ Aborting ──▶ gone
//
// The commit point is the draw of the epoch (commit.go, epoch.go): from there on the transaction commits whatever
// happens. The client is told when every replica has committed in memory; complete follows behind its back and
// releases the locks.
//
// Every handler begins with the question which states its signal may come in. A signal that can come late (a
// client's request for a transaction that was aborted meanwhile, an answer to an operation that is being aborted)
// is counted in Stale and dropped; one that can never come is a broken invariant.
//
// When members are lost, view.go takes the new view, takeover.go finishes what they had a part in, whether it was
// started here (direct.go) or at a coordinator that is lost (foreign.go). freeze.go brings transactions to an end whose
// primaries move while they live.
//
// Bounds: MaxTransactions and MaxOperations records. An accepted operation has its record and with it the room
// for every answer; a refused one is a temporary error to the client (219 and 233). What a takeover needs is allocated
// for it and is bounded by the operations of the ldms that report.
//
// Invariants (checked by Invariants): a transaction's counters equal what its operations' states say; records in
// use belong to a live transaction; when nothing is under way every pool is empty.
//
// Read next: prepare.go, commit.go, abort.go, epoch.go; then package ldm for the other half; then takeover.go.
package coordinator

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/outcome"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/view"
)

// Codes of NDB's that a coordinator gives.
const (
	codeNoTransactions = 219  // MaxNoOfConcurrentTransactions
	codeNoOperations   = 233  // MaxNoOfConcurrentOperations
	codeTimeout        = 237  // inactive for too long
	codeShutdown       = 270  // rolled back because the node is being stopped, or the primary of a row moves
	codeDeadlock       = 274  // rolled back because it waited in a circle
	codeStopping       = 280  // the node is being stopped
	codeSessions       = 4006 // too many sessions
	codeNoTable        = 284  // the coordinator does not know the table
	codeOldVersion     = 241  // the client's table or map is out of date
	codeDropping       = 283  // the table is being dropped
	codeNodeFailed     = 286  // rolled back because a node failed that held a part of it
	codeSingle         = 299  // only one client is let in, and this is another
	codeMoving         = 1204 // the primary of the row moves
	codeProtocol       = 4005 // a client that breaks the protocol
	codeTooMany        = 261  // MaxDMLOperationsPerTransaction
)

// Config is what a coordinator is made with. Times in nanoseconds.
type Config struct {
	Instance        int
	MaxTransactions int
	MaxOperations   int
	MaxTables       int   // table ids are below it
	Sessions        int   // that it works for at once
	MaxWrites       int   // writes of one transaction (MaxDMLOperationsPerTransaction)
	InactiveTimeout int64 // without a request of the client in an open transaction; 0 = none
	InactiveCheck   int64 // how often that is checked
}

type state uint8

const (
	// active: operations are executed as they come.
	active state = iota
	// held: commit was asked for while no epoch may be drawn.
	held
	// committing: the epoch is drawn; CommitReq are out.
	committing
	// completing: the client was told; CompleteReq are out.
	completing
	// aborting: AbortReq are out, or answers to prepares are awaited to be undone.
	aborting
)

// What a client waits for.
const (
	wantNothing uint8 = iota
	wantExecute
	wantCommit
)

// beganShift makes nanoseconds a unit of about a millisecond.
const beganShift = 20

// transaction is one transaction's record.
type transaction struct {
	client     signal.Addr
	num        uint32 // the client's number
	seq        uint32 // commit sequence, 0 = none
	gci        [2]uint32
	head, tail uint32 // operations, in the order of their coming
	hashNext   uint32
	heldNext   uint32
	lastActive int64  // when its client last asked for something or was answered, ns
	began      uint32 // when it was opened, 2^beganShift ns
	running    uint32 // operations whose prepare is not answered
	batch      uint32 // operations that the next TxConf answers
	writes     uint32
	commits    uint32 // CommitConf outstanding
	completes  uint32 // CompleteConf outstanding
	undo       uint32 // while aborting: operations not yet undone
	code       uint32 // while aborting: why
	failRef    uint32 // while aborting: the client's operation that caused it
	state      state
	want       uint8
	bits       uint8 // tx constants
	parity     uint8 // epoch generation that the transaction counts in, once drawn
}

// Bits of a transaction.
const (
	// txMarked: a write that carries the marker is prepared.
	txMarked uint8 = 1 << iota
	// txFreeze: it uses a fragment whose primary is about to move; the prepare of the view waits for its end.
	txFreeze
	// txTouched: an operation of it is, or was, in a chain that lost a member; the end of the takeover waits for it.
	txTouched
)

type opState uint8

const (
	// running: PrepareReq is out.
	running opState = iota
	// waiting: it waits for a row lock at the primary.
	waiting
	// prepared: locked at every replica.
	prepared
	// done: nothing is held anywhere: a committed read, or a failure that was ignored, or it is undone.
	done
	// undoing: AbortReq is out.
	undoing
	// applying: CommitReq is out.
	applying
	// applied: its change is the row's state at every replica.
	applied
	// releasing: CompleteReq is out; of a read from the commit point on.
	releasing
	// released: its lock is gone everywhere.
	released
)

// Bits of an operation.
const (
	// opMarker: its replicas keep the transaction's outcome.
	opMarker uint8 = 1 << iota
	// opTouched: its chain lost a member; what becomes of it is decided when all reports are there (takeover.go). Until
	// then nothing is sent about it, and answers that come still are taken.
	opTouched
	// opDirect: it is finished by steps to each replica that reported it (direct.go).
	opDirect
	// opLast: of those, the step to the primary is out.
	opLast
)

// operation is one operation's record.
type operation struct {
	tx      uint32
	next    uint32
	ref     uint32 // the client's
	primary signal.Addr
	last    signal.Addr // tail of the chain; with opDirect: what its direct steps carry as Direct
	first   uint32      // record at the primary
	lastRef uint32      // record at the tail; with opDirect: answers outstanding
	seq     uint32      // tells operations that have this record one after the other apart
	table   uint16
	frag    uint16
	op      uint8
	flags   uint8
	state   opState
	bits    uint8 // op constants
}

// Block is one coordinator.
type Block struct {
	env  *kernel.Env
	cfg  Config
	self signal.Addr
	txs  *pool.Pool[transaction]
	ops  *pool.Pool[operation]

	buckets []uint32 // transaction by (client, number); chains by hashNext
	tables  []table
	closing int // tables that are being closed

	view  view.View // who is in the cluster
	next  view.View // the view that is prepared; number 0 = none
	ice   freeze
	taken takeover

	epoch   epochs
	acks    *outcome.Acks
	clients [256]client // by node
	// sessions counts open transactions by a hash of their sessions: one that ends with none needs no search.
	sessions [sessionHashes]uint32
	closes   uint32 // table closes so far
	seq      uint32 // operations so far
	stopping bool   // no new transactions
	stopFrom signal.Addr
	stopRef  uint32
	single   single

	// Stale counts signals that came too late to matter.
	Stale uint64
}

// New makes a coordinator.
func New(env *kernel.Env, cfg Config) *Block {
	b := &Block{
		env: env, cfg: cfg,
		self:   signal.MakeAddr(env.Node(), signal.BlockTC, uint16(cfg.Instance)),
		txs:    pool.New[transaction](cfg.MaxTransactions),
		ops:    pool.New[operation](cfg.MaxOperations),
		tables: make([]table, cfg.MaxTables),
		acks:   outcome.NewAcks(cfg.Sessions),
	}
	n := 64
	for n < cfg.MaxTransactions {
		n *= 2
	}
	b.buckets = make([]uint32, n)
	for i := range b.buckets {
		b.buckets[i] = pool.None
	}
	b.epoch.heldHead, b.epoch.heldTail = pool.None, pool.None
	if cfg.InactiveTimeout > 0 {
		env.Tick(b.self, cfg.InactiveCheck, tickInactive, 0, 0)
	}
	return b
}

// Deliver executes one signal.
func (b *Block) Deliver(h *signal.Head) {
	switch h.Num {
	case signal.NumKeyReq:
		b.onKeyReq(signal.As[signal.KeyReq](h))
	case signal.NumPrepareConf:
		b.onPrepareConf(signal.As[signal.PrepareConf](h))
	case signal.NumCommitConf:
		b.onCommitConf(signal.As[signal.StepConf](h))
	case signal.NumCompleteConf:
		b.onCompleteConf(signal.As[signal.StepConf](h))
	case signal.NumTxReq:
		b.onTxReq(signal.As[signal.TxReq](h))
	case signal.NumPrepareRef:
		b.onPrepareRef(signal.As[signal.PrepareRef](h))
	case signal.NumWaitRep:
		b.onWaitRep(signal.As[signal.WaitRep](h))
	case signal.NumAbortConf:
		b.onAbortConf(signal.As[signal.StepConf](h))
	case signal.NumAckOrd:
		b.acks.Ack(h.From, signal.As[signal.AckOrd](h).Ack)
	case signal.NumCloseOrd:
		b.onCloseOrd(h)
	case signal.NumEpochPrepareReq:
		b.onEpochPrepareReq(signal.As[signal.EpochReq](h))
	case signal.NumEpochCommitReq:
		b.onEpochCommitReq(signal.As[signal.EpochReq](h))
	case signal.NumTickOrd:
		b.onTick(signal.As[signal.TickOrd](h))
	case signal.NumOpRep:
		b.onOpRep(signal.As[signal.OpRep](h))
	case signal.NumOpEndRep:
		b.onOpEndRep(signal.As[signal.OpEndRep](h))
	case signal.NumProbeOrd:
		b.onProbeOrd(signal.As[signal.ProbeOrd](h))
	case signal.NumViewPrepareReq:
		b.onViewPrepareReq(signal.As[signal.ViewReq](h))
	case signal.NumViewCommitReq:
		b.onViewCommitReq(signal.As[signal.ViewReq](h))
	case signal.NumGateOrd:
		b.onGateOrd(signal.As[signal.GateOrd](h))
	case signal.NumTableOpenReq:
		b.onTableOpenReq(signal.As[signal.TableOpenReq](h))
	case signal.NumTableCloseReq:
		b.onTableCloseReq(signal.As[signal.TableCloseReq](h))
	case signal.NumNodeFailRep:
		b.onNodeFailRep(signal.As[signal.NodeFailRep](h))
	case signal.NumDrainReq:
		b.onDrainReq(signal.As[signal.DrainReq](h))
	case signal.NumSingleOrd:
		b.onSingleOrd(signal.As[signal.SingleOrd](h))
	case signal.NumListReq:
		b.onListReq(signal.As[signal.ListReq](h))
	case signal.NumStatReq:
		b.onStatReq(signal.As[signal.StatReq](h))
	default:
		invariant.Failf("%s is not for a coordinator", signal.Name(h.Num))
	}
}

func (b *Block) onStatReq(r *signal.StatReq) {
	ref := r.Ref
	c := kernel.Send[signal.StatConf](b.env, r.From, b.self, signal.NumStatConf)
	*c = signal.StatConf{Head: c.Head, Ref: ref, Transactions: uint32(b.txs.Used()), Operations: uint32(b.ops.Used()),
		Outcomes: uint32(b.acks.Sessions())}
}

// Transactions is how many transactions are open, Operations how many operation records are in use, Sessions how
// many sessions are known.
func (b *Block) Transactions() int { return b.txs.Used() }

// Operations is the number of operation records in use.
func (b *Block) Operations() int { return b.ops.Used() }

// Sessions is the number of sessions that are known: each may have commits whose outcomes ldms keep.
func (b *Block) Sessions() int { return b.acks.Sessions() }
