// Package membership knows who is in the cluster, who is its president, and leads a node through its start and its end
// [QMGR, NDBCNTR].
//
// A Block is one node's. It owns the list of the data nodes and what is known of each, the state of the own node, and
// the steps of starting and stopping. It hears from the runtime which links are up; what a lost link means is decided
// here and nowhere else. It never touches a table or a transaction: it tells the blocks that do.
//
// Start (start.go, phases.go). Each node tells the others that it is ready and whom it has links to. When all that must
// be there are, the one with the lowest number is president: it proposes who starts together, and leads all of them
// through the phases:
//
//	0  blocks made, memory taken          5  epochs run
//	1  links to all members are up        6  node groups defined
//	2  members and president agreed       7  started: clients are let in
//	3  fragments have a map               8  indexes built
//	4  the dictionary is ready
//
// A member that is lost before phase 7 makes all others forget the attempt and begin again.
//
// Failure (failure.go). A lost client's traces are removed, then its node id is free again. A lost data node stops the
// cluster, with the reason: taking over its part is not supported yet.
//
// Stop (stop.go). The president leads: admit nothing, let transactions end, exit.
//
// Invariants (checked by Invariants): in an attempt there is a president, who is a member, as is the own node; a
// started node has members; a node waits only for members.
//
// Read next: start.go; package signal's cluster.go for the signals.
package membership

import (
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/version"
)

// Node is a configured data node that belongs to a node group.
type Node struct {
	ID    uint8
	Group uint16
}

// Config is what the block is made with. Times in nanoseconds.
type Config struct {
	Nodes []Node // all data nodes with a node group, the own one included
	LDMs  int    // of the own node
	TCs   int    // of the own node
	// NoWait are the nodes that the start does not wait for.
	NoWait signal.NodeSet
	// NoStart: wait for a StartOrd.
	NoStart bool
	// StartTimeout ends a node that has not started by then (StartFailureTimeout); 0 = wait for ever.
	StartTimeout int64
	// ReportInterval is how often a node that waits says for whom (StartupStatusReportFrequency).
	ReportInterval int64
	// DrainTimeout is how long transactions may take to end at a planned stop (TransactionDeadlockDetectionTimeout).
	DrainTimeout int64
}

// state is how the own node is.
type state uint8

const (
	// held: waits for a StartOrd.
	held state = iota
	// waiting: ready, and waits for the others.
	waiting
	// starting: takes part in an attempt to start.
	starting
	// leaving: the attempt has failed; the own blocks are forgetting it.
	leaving
	// started: clients are served.
	started
	// draining: a planned stop; transactions end.
	draining
	// failing: a data node was lost; the own blocks are told before the end.
	failing
	// ended: the runtime was asked to end the process.
	ended
)

// reported is the state as management knows it.
var reported = [...]uint32{
	held: signal.StateNotStarted, waiting: signal.StateStarting, starting: signal.StateStarting, leaving: signal.StateStarting,
	started: signal.StateStarted, draining: signal.StateStopping, failing: signal.StateStopping, ended: signal.StateStopping,
}

// The kinds of the block's timers.
const (
	tickReport  = 1 + iota // say for whom the start waits
	tickStart              // the start takes too long
	tickDrain              // transactions take too long to end
	tickMembers            // members take too long to drain
	tickFailing            // the own blocks take too long to hear of the failure
)

const (
	second = 1_000_000_000
	// reportDefault is how often a waiting node says so, when the configuration does not say.
	reportDefault = 3 * second
	// tellTime bounds how long a node that ends waits for its own blocks.
	tellTime = second / 5
)

// Block is the membership of one node.
type Block struct {
	env  *kernel.Env
	cfg  Config
	node uint8
	self signal.Addr

	state state
	began int64 // when the block was made
	phase uint32

	configured signal.NodeSet // data nodes with a node group
	links      signal.NodeSet // data nodes that the own node has a link to
	peers      [signal.MaxDataNode + 1]peer
	group      uint32 // own node group

	members   []signal.Member // of the attempt, or of the cluster
	memberSet signal.NodeSet
	president uint8
	attempt   uint32     // number of the attempt: the president's
	dynamicID uint32     // the own one, 0 before an attempt
	gci       signal.GCI // newest epoch that was ever prepared here

	lead leader
	stop stopping
	fail [256]failure // by node: what is being forgotten of it

	forgetting int // while leaving: own blocks that have not yet forgotten the attempt

	// Stale counts signals of attempts that were given up, and others that came too late to matter.
	Stale uint64
}

// New makes the block; all blocks of the node must be placed.
func New(env *kernel.Env, cfg Config) *Block {
	b := &Block{env: env, cfg: cfg, node: env.Node(), self: signal.MakeAddr(env.Node(), signal.BlockMembership, 0), began: env.Now()}
	found := false
	for _, n := range cfg.Nodes {
		invariant.That(n.ID >= 1 && n.ID <= signal.MaxDataNode && !b.configured.Has(n.ID), "data nodes have numbers of their own")
		b.configured.Add(n.ID)
		b.peers[n.ID].group = uint32(n.Group)
		if n.ID == b.node {
			b.group, found = uint32(n.Group), true
		}
	}
	invariant.That(found && cfg.LDMs > 0 && cfg.TCs > 0, "the own node is configured and has ldms and coordinators")
	if b.cfg.ReportInterval == 0 {
		b.cfg.ReportInterval = reportDefault
	}
	if cfg.NoStart {
		b.state = held
	} else {
		b.state = waiting
	}
	b.report(event.NDBStartStarted, version.Number)
	b.report(event.StartPhaseCompleted, 0, event.StartKindInitial)
	env.Tick(b.self, b.cfg.ReportInterval, tickReport, 0, 0)
	if cfg.StartTimeout > 0 {
		env.Tick(b.self, cfg.StartTimeout, tickStart, 0, 0)
	}
	b.tellState()
	b.poke()
	return b
}

// Deliver executes one signal.
func (b *Block) Deliver(h *signal.Head) {
	if b.state == ended {
		b.Stale++
		return
	}
	switch h.Num {
	case signal.NumLinkUpRep:
		b.onLinkUpRep(signal.As[signal.LinkRep](h))
	case signal.NumLinkDownRep:
		b.onLinkDownRep(signal.As[signal.LinkRep](h))
	case signal.NumPeerRep:
		b.onPeerRep(signal.As[signal.PeerRep](h))
	case signal.NumStartReq:
		b.onStartReq(signal.As[signal.StartReq](h))
	case signal.NumStartConf:
		b.onStartConf(signal.As[signal.StartConf](h))
	case signal.NumStartRef:
		b.onStartRef(signal.As[signal.StartConf](h))
	case signal.NumViewCommitConf: // nothing waits for it: the first view of a start takes nothing over
	case signal.NumPhaseReq:
		b.onPhaseReq(signal.As[signal.PhaseReq](h))
	case signal.NumPhaseConf:
		b.onPhaseConf(signal.As[signal.PhaseConf](h))
	case signal.NumJoinRef:
		b.onJoinRef(signal.As[signal.JoinRef](h))
	case signal.NumStartOrd:
		b.onStartOrd()
	case signal.NumNodeFailConf:
		b.onNodeFailConf(signal.As[signal.NodeFailConf](h))
	case signal.NumStopReq:
		b.onStopReq(signal.As[signal.StopReq](h))
	case signal.NumClusterStopReq:
		b.onClusterStopReq(signal.As[signal.ClusterStopReq](h))
	case signal.NumStopStepReq:
		b.onStopStepReq(signal.As[signal.StopStepReq](h))
	case signal.NumStopStepConf:
		b.onStopStepConf(signal.As[signal.StopStepConf](h))
	case signal.NumDrainConf:
		b.onDrainConf(signal.As[signal.DrainConf](h))
	case signal.NumLagRep:
		b.onLagRep(signal.As[signal.LagRep](h))
	case signal.NumEpochRep:
		b.gci = max(b.gci, signal.JoinGCI(signal.As[signal.EpochRep](h).GCI))
	case signal.NumTickOrd:
		b.onTick(signal.As[signal.TickOrd](h))
	default:
		invariant.Failf("membership has no handler for %s", signal.Format(h))
	}
}

func (b *Block) onTick(r *signal.TickOrd) {
	switch r.Kind {
	case tickReport:
		b.reportWaiting()
	case tickStart:
		b.onStartTimeout()
	case tickDrain:
		b.onDrainTimeout()
	case tickMembers:
		b.onMembersTimeout()
	case tickFailing:
		b.onFailingTimeout()
	default:
		invariant.Failf("membership has no timer of kind %d", r.Kind)
	}
}

// at is a block of the own node.
func (b *Block) at(block uint8) signal.Addr { return signal.MakeAddr(b.node, block, 0) }

// peerAt is another node's membership.
func peerAt(node uint8) signal.Addr { return signal.MakeAddr(node, signal.BlockMembership, 0) }

func (b *Block) report(t event.Type, args ...uint32) { b.reportText(t, "", args...) }

func (b *Block) reportText(t event.Type, text string, args ...uint32) {
	e := event.New(b.node, t, args...).WithText(text)
	b.env.Report(b.self, &e)
}

// tellState tells the manager how the own node is; it passes that on to clients, management servers and the runtime.
func (b *Block) tellState() {
	s := kernel.Send[signal.NodeStateRep](b.env, b.at(signal.BlockManager), b.self, signal.NumNodeStateRep)
	h := s.Head
	*s = signal.NodeStateRep{Head: h, State: reported[b.state], StartPhase: b.phase, NodeGroup: b.group,
		President: uint32(b.president), DynamicID: b.dynamicID, Connected: b.links}
}

// workers calls f for each coordinator and ldm of the own node.
func (b *Block) workers(f func(a signal.Addr)) {
	for _, block := range [...]uint8{signal.BlockTC, signal.BlockLDM} {
		for i := range b.env.Instances(block) {
			f(signal.MakeAddr(b.node, block, uint16(i)))
		}
	}
}

// Invariants checks the block as a whole; it is called between signals.
func (b *Block) Invariants() {
	in := b.state == starting || b.state == started
	if in && (!b.memberSet.Has(b.node) || !b.memberSet.Has(b.president) || b.dynamicID == 0) {
		invariant.Failf("in state %d with president %d, who or we are no members", b.state, b.president)
	}
	if in != (len(b.members) > 0) && b.state != draining && b.state != failing && b.state != ended {
		invariant.Failf("in state %d with %d members", b.state, len(b.members))
	}
	if len(b.members) != b.memberSet.Count() {
		invariant.Failf("%d members, but %d in their set", len(b.members), b.memberSet.Count())
	}
	if !b.memberSet.Covers(&b.lead.waiting) || !b.memberSet.Covers(&b.stop.waiting) {
		invariant.Failf("the president waits for a node that is no member")
	}
	if (b.state == leaving) != (b.forgetting > 0) {
		invariant.Failf("in state %d with %d blocks that forget an attempt", b.state, b.forgetting)
	}
	up := b.memberSet
	up.Remove(b.node)
	if in && !b.links.Covers(&up) {
		invariant.Failf("in state %d without a link to each member", b.state)
	}
}
