// Package ldm executes operations on the fragment replicas of one local data manager [DBLQH, DBTUP, DBACC].
//
// A Block is one instance. It owns its fragment replicas (package store), the locks of their rows, the operations
// under way on them and the copies of rows with pending changes. It knows neither tables' names nor which
// transaction an operation's neighbours belong to: a coordinator does, or the operation is a transaction by
// itself.
//
// The two ways of an operation, and the files that hold them:
//
//   - Through a coordinator: prepare.go executes it at the primary and passes it down the chain of replicas;
//     commit.go makes it the row's state, replica by replica from the tail up, and releases it; abort.go undoes it.
//   - A transaction of one operation: oneshot.go. A committed read is answered in one visit. A write of a fragment
//     with one replica is executed and committed in one visit; with more, chain.go passes it down, the tail draws
//     the epoch and commits, and the answer commits every replica on its way up. No coordinator, no complete.
//
// Locks (lock.go): row locks, shared or exclusive, held at the primary to the end of the transaction; whoever waits
// is in the row's queue, first come first served, and gets error 266 after LockTimeout. Backups lock too, but do not
// wait for what the primary has let through before in the same order: they execute it in its order. A committed read
// takes no lock and waits for none, since a pending change lies in a copy beside the row. deadlock.go looks for
// transactions that wait for each other, list.go tells operators who waits for whom.
//
// Epochs (epoch.go): a one-shot write draws its epoch at its commit point, never while an epoch change is under way, nor
// while members are being lost, nor while the node does not know whether it is in the cluster.
//
// Views (view.go): the committed view says which fragments this ldm is primary of. The primary decides who takes a write
// behind it, each operation keeps that (operation.rest), and nobody asks again. takeover.go is what happens at the commit
// of a view that lost members: one-shots are sent again past a lost replica, or commit where they are; what coordinators
// have to decide is reported to them. outcome.go answers clients that have lost the one that was to answer them.
//
// Copies (copy.go, copy_source.go, copy_target.go): a recovering node's replicas catch up with their primaries, under way.
//
// Everything from a client is checked here before it touches a row: table, version, fragment, key image, data
// section. A failure is a Ref with a code. So is what a copy brings. What another data node sends otherwise and what cannot
// be (a replica that differs, an answer to nothing) is a broken invariant.
//
// Bounds: MaxOperations records; copies in a pool of their own; data memory; maxAsks questions that wait. Running out of
// any is an error to the client with nothing changed, or for the last one a word to ask again.
//
// Invariants (checked by Invariants): a row's lock word leads to its operations and back; a row without operations
// has lock word 0; waiting operations wait for somebody; no operation goes on to a lost member; who waits for the end of
// operations will hear of it; at rest no record and no copy is in use.
//
// Read next: operation.go, prepare.go, oneshot.go; then view.go, takeover.go, copy_source.go; package store for rows and
// memory.
package ldm

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/outcome"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
	"github.com/cohortdb/cohort/internal/view"
)

// Codes of NDB's that an ldm gives, besides those of packages store and schema.
const (
	codeNoRow        = 626  // no such row
	codeExists       = 630  // insert of a row that exists
	codeLocked       = 635  // locked, and the operation does not wait
	codeLockTimeout  = 266  // waited too long for a lock
	codeNoOperations = 233  // MaxNoOfConcurrentOperations
	codeStopping     = 280  // the node is being stopped
	codeSingle       = 299  // single user mode
	codeNoTable      = 284  // unknown here
	codeOldVersion   = 241  // the client's table or map is out of date
	codeDropping     = 283  // the table is being dropped
	codeNotPrimary   = 1204 // the fragment's primary is elsewhere
	codeProtocol     = 4005 // a client that breaks the protocol
	codeSessions     = 4006 // too many sessions keep outcomes here
)

// Config is what an ldm is made with. Times in nanoseconds.
type Config struct {
	Instance      int
	Arena         *store.Arena
	Copies        *store.CopyPool
	MaxOperations int
	MaxTables     int // table ids are below it
	Sessions      int // whose outcomes are kept at once
	LockTimeout   int64
}

// Block is one local data manager.
type Block struct {
	env    *kernel.Env
	cfg    Config
	self   signal.Addr
	arena  *store.Arena
	copies *store.CopyPool
	ops    *pool.Pool[operation]
	tables []table

	view         view.View // who is in the cluster
	next         view.View // who will be, if prepared
	prepared     bool
	prepare      asked       // the prepare of a view that is to be confirmed
	commit       asked       // the commit of a view that is to be confirmed
	left         int         // operations that must end before the takeover is done
	newestLoss   uint32      // number of the newest view that lost a member
	takeoverOver uint32      // … whose takeover is over everywhere
	lostIn       [256]uint32 // node → number of the newest view that lost it
	copier       copier
	copyAll      bool // the fragments of this node are copied, those too that are created from now on

	waiters  waitList
	queued   int            // operations that wait below their primary
	granting *store.RowHead // whose queue is being resumed
	epoch    epochs
	outcomes *outcome.Table
	asks     []outcomeAsk // about outcomes, to be answered when they are settled

	awaited  bool     // somebody waits until operations have ended
	closes   []uint32 // tables whose close is to be answered
	stopping bool     // no new one-shot writes
	stopFrom signal.Addr
	stopRef  uint32
	oneShots int // writes without a coordinator under way here as primary

	single     uint8 // the only client that is let in; 0 = all are
	singleFrom signal.Addr
	singleRef  uint32

	shots    [256]uint32      // node → its writes without a coordinator under way here, as primary or further down
	failing  [256]signal.Addr // node → who is owed a NodeFailConf
	nfailing int
	changed  [256]uint32 // node → CopyReqs that had been sent when it failed last, or came back: an older copy knows it as it was
	gone     [256]bool   // clients that have failed and are not back: late signals about them leave no outcome

	lockLines []signal.LockLine // of a list being made
	probed    []passedProbe     // probes that have passed lately; nil until the first
	timeoutAt int64             // when a lock wait that took too long was reported last, ns; 0 = never
	timeouts  uint32            // others since

	scratch []byte // an image being built
	work    []byte // another

	// Stale counts signals that came too late to matter.
	Stale uint64
}

// New makes an ldm.
func New(env *kernel.Env, cfg Config) *Block {
	b := &Block{
		env: env, cfg: cfg,
		self:     signal.MakeAddr(env.Node(), signal.BlockLDM, uint16(cfg.Instance)),
		arena:    cfg.Arena,
		copies:   cfg.Copies,
		ops:      pool.New[operation](cfg.MaxOperations),
		tables:   make([]table, cfg.MaxTables),
		outcomes: outcome.New(cfg.Sessions),
		scratch:  make([]byte, maxImage),
		work:     make([]byte, maxImage),
	}
	b.waiters.init()
	b.epoch.head, b.epoch.tail = pool.None, pool.None
	return b
}

// Deliver executes one signal.
func (b *Block) Deliver(h *signal.Head) {
	switch h.Num {
	case signal.NumReadReq:
		b.onReadReq(signal.As[signal.KeyReq](h))
	case signal.NumWriteReq:
		b.onWriteReq(signal.As[signal.KeyReq](h))
	case signal.NumChainReq:
		b.onChainReq(signal.As[signal.PrepareReq](h))
	case signal.NumChainConf:
		b.onChainConf(signal.As[signal.ChainConf](h))
	case signal.NumPrepareReq:
		b.onPrepareReq(signal.As[signal.PrepareReq](h))
	case signal.NumCommitReq:
		b.onCommitReq(signal.As[signal.Step](h))
	case signal.NumCompleteReq:
		b.onCompleteReq(signal.As[signal.Step](h))
	case signal.NumAbortReq:
		b.onAbortReq(signal.As[signal.Step](h))
	case signal.NumChainRef:
		b.onChainRef(signal.As[signal.ChainRef](h))
	case signal.NumAckOrd:
		b.outcomes.Ack(h.From, signal.As[signal.AckOrd](h).Ack)
	case signal.NumCloseOrd:
		b.onCloseOrd(h)
	case signal.NumOutcomeReq:
		b.onOutcomeReq(signal.As[signal.OutcomeReq](h))
	case signal.NumEpochPrepareReq:
		b.onEpochPrepareReq(signal.As[signal.EpochReq](h))
	case signal.NumEpochCommitReq:
		b.onEpochCommitReq(signal.As[signal.EpochReq](h))
	case signal.NumTickOrd:
		b.onTick(signal.As[signal.TickOrd](h))
	case signal.NumGateOrd:
		b.onGateOrd(signal.As[signal.GateOrd](h))
	case signal.NumViewPrepareReq:
		b.onViewPrepareReq(signal.As[signal.ViewReq](h))
	case signal.NumTakeoverRep:
		b.onTakeoverRep(signal.As[signal.TakeoverRep](h))
	case signal.NumViewCommitReq:
		b.onViewCommitReq(signal.As[signal.ViewReq](h))
	case signal.NumFragCreateReq:
		b.onFragCreateReq(signal.As[signal.FragCreateReq](h))
	case signal.NumFragDropReq, signal.NumDropStepOrd:
		b.onFragDropReq(signal.As[signal.FragDropReq](h))
	case signal.NumTableCloseReq:
		b.onTableCloseReq(signal.As[signal.TableCloseReq](h))
	case signal.NumNodeFailRep:
		b.onNodeFailRep(signal.As[signal.NodeFailRep](h))
	case signal.NumNodeUpRep:
		b.onNodeUpRep(signal.As[signal.NodeUpRep](h))
	case signal.NumDrainReq:
		b.onDrainReq(signal.As[signal.DrainReq](h))
	case signal.NumSingleOrd:
		b.onSingleOrd(signal.As[signal.SingleOrd](h))
	case signal.NumWaitProbeOrd:
		b.onWaitProbeOrd(signal.As[signal.ProbeOrd](h))
	case signal.NumListReq:
		b.onListReq(signal.As[signal.ListReq](h))
	case signal.NumCopyStartReq:
		b.onCopyStartReq(signal.As[signal.CopyStartReq](h))
	case signal.NumCopyReq:
		b.onCopyReq(signal.As[signal.CopyReq](h))
	case signal.NumCopyRef:
		b.onCopyRef(signal.As[signal.CopyRef](h))
	case signal.NumCopyRowsOrd:
		b.onCopyRowsOrd(signal.As[signal.CopyRowsOrd](h))
	case signal.NumCopyAckOrd:
		b.onCopyAckOrd(signal.As[signal.CopyAckOrd](h))
	case signal.NumCopyStepOrd:
		b.onCopyStepOrd(signal.As[signal.CopyAckOrd](h))
	case signal.NumStatReq:
		b.onStatReq(signal.As[signal.StatReq](h))
	default:
		invariant.Failf("%s is not for an ldm", signal.Name(h.Num))
	}
}
