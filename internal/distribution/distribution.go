// Package distribution knows which node holds which fragment, and runs the epochs [DBDIH].
//
// A Block is one node's. It owns the map of the cluster (who its members are, in which node groups, with how many
// ldms), answers the dictionary's question where the fragments of a new table go, and takes part in each change of the
// epoch. The president's also decides when an epoch ends. It holds no table (the dictionary does) and no transaction.
//
// Placement is a pure function of the members, a table's id and its number of fragments (placement.go).
//
// Epochs (president.go, epoch.go): a change runs in two rounds. Between the two nobody draws an epoch, so that a later
// holder of a lock never gets an older one; the second round is answered when nothing older is left. The next change
// begins only after that, so a participant has at most two epochs to tell apart; a slow one is reported, and in the
// end the cluster is stopped with the reason rather than left to wait for ever.
//
// Invariants (checked by Invariants): one change at a time; epochs grow; whoever has prepared hears a commit, even
// when the start begins again in between, since coordinators and ldms know no other way out of a prepared change.
//
// Read next: placement.go, epoch.go, president.go; membership for the phases that make it work.
package distribution

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/view"
)

// Node is a configured data node that belongs to a node group.
type Node struct {
	ID    uint8
	Group uint16
}

// Config is what the block is made with. Times in nanoseconds.
type Config struct {
	Nodes             []Node // all data nodes with a node group, the own one included
	PartitionsPerNode int    // fragments of a table for each data node, by default
	LogParts          int    // log parts of each node (NoOfFragmentLogParts)
	// EpochInterval is TimeBetweenEpochs; 0 = an epoch ends only with a global checkpoint.
	EpochInterval int64
	// CheckpointInterval is TimeBetweenGlobalCheckpoints.
	CheckpointInterval int64
	// EpochTimeout is TimeBetweenEpochsTimeout: how long a node may take to finish an epoch; 0 = no limit.
	EpochTimeout int64
	// CheckpointTimeout is TimeBetweenGlobalCheckpointsTimeout, the same for a whole global checkpoint.
	CheckpointTimeout int64
}

// The kinds of the block's timers.
const (
	tickEpoch = 1 + iota // A = run of the engine: the next epoch is due
)

// Block is the distribution of one node.
type Block struct {
	env  *kernel.Env
	cfg  Config
	self signal.Addr

	groups []group   // the configured nodes
	view   view.View // who is in the cluster; nobody before the start
	first  signal.GCI

	local local  // this node's part in a change of the epoch
	lead  leader // the president's part

	pending []signal.PhaseReq // a phase that is answered when the local part is at rest; at most one
	stopped bool              // a member was lost: no further epochs

	// Stale counts signals of an attempt to start that was given up.
	Stale uint64
}

// New makes the block.
func New(env *kernel.Env, cfg Config) *Block {
	invariant.That(cfg.PartitionsPerNode > 0 && cfg.LogParts > 0, "tables have fragments, nodes have log parts")
	invariant.That(cfg.CheckpointInterval > 0 && cfg.EpochInterval >= 0, "global checkpoints have an interval")
	invariant.That(len(cfg.Nodes) > 0, "there are data nodes")
	return &Block{env: env, cfg: cfg, groups: groupsOf(cfg.Nodes), self: signal.MakeAddr(env.Node(), signal.BlockDistribution, 0)}
}

// Deliver executes one signal.
func (b *Block) Deliver(h *signal.Head) {
	switch h.Num {
	case signal.NumEpochPrepareReq:
		b.onEpochPrepareReq(signal.As[signal.EpochReq](h))
	case signal.NumEpochPrepareConf:
		b.onEpochConf(signal.As[signal.EpochConf](h), preparing)
	case signal.NumEpochCommitReq:
		b.onEpochCommitReq(signal.As[signal.EpochReq](h))
	case signal.NumEpochCommitConf:
		b.onEpochConf(signal.As[signal.EpochConf](h), committing)
	case signal.NumTickOrd:
		b.onTick(signal.As[signal.TickOrd](h))
	case signal.NumPlaceReq:
		b.onPlaceReq(signal.As[signal.PlaceReq](h))
	case signal.NumViewPrepareReq:
		b.viewConf(signal.As[signal.ViewReq](h), signal.NumViewPrepareConf)
	case signal.NumViewCommitReq:
		b.onViewCommitReq(signal.As[signal.ViewReq](h))
	case signal.NumPhaseReq:
		b.onPhaseReq(signal.As[signal.PhaseReq](h))
	case signal.NumNodeFailRep:
		b.onNodeFailRep(signal.As[signal.NodeFailRep](h))
	default:
		invariant.Failf("distribution has no handler for %s", signal.Format(h))
	}
}

func (b *Block) isPresident() bool { return b.view.President == b.env.Node() }

// onViewCommitReq takes who is in the cluster. At a start it comes before phase 3.
func (b *Block) onViewCommitReq(r *signal.ViewReq) {
	b.view.Take(r.View, r.President, r.Members())
	b.first = signal.JoinGCI(r.GCI)
	b.viewConf(r, signal.NumViewCommitConf)
}

func (b *Block) viewConf(r *signal.ViewReq, num uint16) {
	to, number, attempt := r.From, r.View, r.Attempt
	c := kernel.Send[signal.ViewConf](b.env, to, b.self, num)
	c.View, c.Attempt = number, attempt
}

// onPhaseReq runs a start phase: 3 makes the map ready, 5 starts the epochs, 0 forgets an attempt that failed.
func (b *Block) onPhaseReq(r *signal.PhaseReq) {
	switch r.Phase {
	case 0:
		b.lead = leader{run: b.lead.run + 1}
		b.view.Clear()
		b.pending = append(b.pending[:0], *r)
		b.stopped = false
		b.abandon()
	case 3:
		invariant.That(len(b.view.Members) > 0, "members are agreed before phase 3")
		b.phaseConf(r)
	case 5: // done when the first epoch is; the president's request for it may have come before this one
		b.pending = append(b.pending[:0], *r)
		if b.isPresident() {
			b.begin()
		}
		b.atRest()
	default:
		invariant.Failf("distribution has nothing to do in phase %d", r.Phase)
	}
}

func (b *Block) phaseConf(r *signal.PhaseReq) {
	c := kernel.Send[signal.PhaseConf](b.env, signal.MakeAddr(b.env.Node(), signal.BlockMembership, 0), b.self, signal.NumPhaseConf)
	c.President, c.Attempt, c.Phase, c.Code = r.President, r.Attempt, r.Phase, 0
}

// atRest answers the phase that waited for the local part of a change to end.
func (b *Block) atRest() {
	if len(b.pending) == 0 || b.local.state != resting {
		return
	}
	r := b.pending[0]
	if r.Phase == 5 && b.local.gci < b.first {
		return
	}
	b.pending = b.pending[:0]
	b.phaseConf(&r)
}

// onNodeFailRep hears that a node is gone. A lost data node ends the epochs: the cluster stops.
func (b *Block) onNodeFailRep(r *signal.NodeFailRep) {
	if signal.Peer(r.Kind) == signal.PeerData {
		b.stopped = true
	}
}

// onTick hears a timer; one of an earlier run of the engine is stale.
func (b *Block) onTick(r *signal.TickOrd) {
	switch {
	case r.A != b.lead.run:
		b.Stale++
	case r.Kind == tickEpoch:
		b.onEpochDue()
	default:
		invariant.Failf("distribution has no timer of kind %d", r.Kind)
	}
}

// Invariants checks the block as a whole; it is called between signals.
func (b *Block) Invariants() {
	l := &b.local
	if l.state == resting && l.owed != 0 {
		invariant.Failf("at rest, but %d answers are owed", l.owed)
	}
	if l.state != resting && l.owed == 0 && l.state != prepared {
		invariant.Failf("in state %d nothing is owed", l.state)
	}
	if l.gci > l.next {
		invariant.Failf("epoch %v is older than %v, which is committed", l.next, l.gci)
	}
	if b.lead.state != resting && (!b.isPresident() || b.lead.waiting.Empty()) {
		invariant.Failf("a change of the epoch waits for nobody")
	}
}
