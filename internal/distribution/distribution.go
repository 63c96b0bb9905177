// Package distribution knows where fragments belong, and runs the epochs [DBDIH].
//
// A Block is one node's. It answers the dictionary's question where the fragments of a new table go, takes part in each
// change of the epoch, and makes the ldms of a node that joins copy their fragments. The president's also decides when an
// epoch ends. It holds no table (the dictionary does) and no transaction.
//
// Placement is a pure function of the configured nodes, a table's id and its number of fragments (placement.go); it does
// not depend on who is there.
//
// Epochs (president.go, epoch.go): a change runs in two rounds. Between the two nobody draws an epoch, so that a later
// holder of a lock never gets an older one; the second round is answered when nothing older is left. The next change
// begins only after that, so a participant has at most two epochs to tell apart; a slow one is reported, and in the
// end membership is told, which puts it out.
//
// Failures (view.go): a lost member is not waited for. From the prepare of a view that lost somebody to the end of its
// takeover no change begins and none ends, since what the lost ones had drawn may still be under way. A new president
// asks how far everybody is, and runs the change to the newest epoch that anybody has seen once more.
//
// Invariants (checked by Invariants): one change at a time; epochs grow, across presidents too; whoever has prepared
// hears a commit, even when the start begins again in between, since coordinators and ldms know no other way out of a
// prepared change.
//
// Read next: placement.go, epoch.go, president.go, view.go; membership for the phases that make it work.
package distribution

import (
	"github.com/cohortdb/cohort/internal/event"
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
	PartitionsPerNode int    // fragments of a table for each of them, by default
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

	local local    // this node's part in a change of the epoch
	lead  leader   // the president's part
	over  takeover // what holds the epochs up after a loss
	copy  copying  // of a node that joins

	pending []signal.PhaseReq // a phase that is answered when its work is done; at most one

	// Stale counts signals that came too late to matter.
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
	case signal.NumEpochStateReq:
		b.onEpochStateReq(signal.As[signal.EpochStateReq](h))
	case signal.NumEpochStateConf:
		b.onEpochStateConf(signal.As[signal.EpochStateConf](h))
	case signal.NumEpochJoinReq:
		b.onEpochJoinReq(signal.As[signal.EpochJoinReq](h))
	case signal.NumTickOrd:
		b.onTick(signal.As[signal.TickOrd](h))
	case signal.NumPlaceReq:
		b.onPlaceReq(signal.As[signal.PlaceReq](h))
	case signal.NumViewPrepareReq:
		b.onViewPrepareReq(signal.As[signal.ViewReq](h))
	case signal.NumViewCommitReq:
		b.onViewCommitReq(signal.As[signal.ViewReq](h))
	case signal.NumTakeoverRep:
		b.onTakeoverRep(signal.As[signal.TakeoverRep](h))
	case signal.NumPhaseReq:
		b.onPhaseReq(signal.As[signal.PhaseReq](h))
	case signal.NumCopyStartConf:
		b.onCopyStartConf(signal.As[signal.CopyStartConf](h))
	case signal.NumNodeFailRep: // of a client: nothing of it is here; of a data node: a change of the view says so
	default:
		invariant.Failf("distribution has no handler for %s", signal.Format(h))
	}
}

func (b *Block) isPresident() bool { return b.view.President == b.env.Node() }

// begun tells whether the own node has agreed with others who is in the cluster.
func (b *Block) begun() bool { return len(b.view.Members) > 0 }

// onPhaseReq runs a start phase: 3 makes the map ready, 5 starts the epochs or lets a node that joins take part in them,
// 6 makes that copy its fragments, 0 forgets an attempt that failed. A new president may ask for a phase again.
func (b *Block) onPhaseReq(r *signal.PhaseReq) {
	switch r.Phase {
	case 0:
		b.pending = append(b.pending[:0], *r)
		b.forget()
	case 3:
		invariant.That(b.begun(), "members are agreed before phase 3")
		b.phaseConf(r, 0)
	case 5: // done when the first epoch is; the president's request for it may have come before this one
		b.pending = append(b.pending[:0], *r)
		switch {
		case b.local.part == signal.PartNone:
			b.local.part = signal.PartComing
			b.askToJoin()
		case b.isPresident() && b.lead.run == 0:
			b.begin()
		}
		b.atRest()
	case 6:
		b.pending = append(b.pending[:0], *r)
		b.startCopy()
	default:
		invariant.Failf("distribution has nothing to do in phase %d", r.Phase)
	}
}

func (b *Block) phaseConf(r *signal.PhaseReq, code uint32) {
	c := kernel.Send[signal.PhaseConf](b.env, signal.MakeAddr(b.env.Node(), signal.BlockMembership, 0), b.self, signal.NumPhaseConf)
	c.President, c.Attempt, c.Phase, c.Code = r.President, r.Attempt, r.Phase, code
}

// forget makes the block as it was before an attempt to start; what is prepared is committed first.
func (b *Block) forget() {
	b.lead = leader{stale: max(b.lead.stale, b.lead.run)}
	b.view.Clear()
	b.over = takeover{}
	b.local.part, b.local.done = signal.PartNone, false
	b.abandon()
}

// atRest answers the phase that waited for the local part of a change to end.
func (b *Block) atRest() {
	if len(b.pending) == 0 || b.local.state != resting {
		return
	}
	r := b.pending[0]
	if r.Phase == 0 || r.Phase == 5 && b.local.done {
		b.pending = b.pending[:0]
		b.phaseConf(&r, 0)
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

func (b *Block) report(t event.Type, args ...uint32) {
	e := event.New(b.env.Node(), t, args...)
	b.env.Report(b.self, &e)
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
	b.lead.invariants(b)
}
