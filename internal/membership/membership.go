// Package membership knows who is in the cluster, who is its president, and leads a node through its start and its end
// [QMGR, NDBCNTR].
//
// A Block is one node's. It owns the list of the data nodes and what is known of each, the view that all members have
// agreed on, the state of the own node, and the steps of starting and stopping. It hears from the runtime which links
// are up and who was heard; what that means is decided here and nowhere else. It never touches a table or a
// transaction: it tells the blocks that do.
//
// Start (start.go, phases.go). Each node tells the others that it is ready and whom it has links to. When all that must
// be there are, the one with the lowest number is president: it proposes who starts together, and leads all of them
// through the phases:
//
//	0  blocks made, memory taken          5  epochs run
//	1  links to all members are up        6  node groups defined; a node that joins has copied its data
//	2  members and president agreed       7  started: clients are let in
//	3  fragments have a map               8  indexes built
//	4  the dictionary is ready
//
// A member that is lost before phase 5 is done makes all others forget the attempt and begin again.
//
// Views (view_leader.go, view_member.go, graph.go). Everything that changes who holds or leads what is a change of the
// view, in two rounds: losses, nodes that join (join.go), nodes that leave (leave.go), single user mode. Whose loss
// is noticed how: detect.go. Which part of a divided cluster goes on: package view, arbitrate.go.
//
// Failure (failure.go). A lost client's traces are removed, then its node id is free again; a lost data node's id is
// free when the president says that it is taken over.
//
// Stop (stop.go). Of the whole cluster: the president leads: admit nothing, let transactions end, exit.
//
// Safety of views. An attempt to change to view n+1 is identified by its number and its leader. A member that answers a
// check promises to follow no older attempt. Only the leader of an attempt commits it, when all members to come have
// prepared it. A leader decides with members that have all promised, so an older attempt can only be committed by nodes
// that are not among them; if one of them has prepared such an attempt and its leader is not among them, the part has to be
// good enough not only by the committed view, but also by the prepared one (MarkUncertainView). Hence two parts without
// a common member never both go on, whichever of them has which view.
//
// A leader that is cut off may still commit the view that all had prepared, alone or with a node that it takes in; that part
// never goes on. Views carry a hash of all before them (Chain), so that nobody mistakes one history for the other.
//
// Invariants (checked by Invariants): a node that takes part in a view is a member of it; the president is the member that
// has been there longest; whoever leads a change waits for somebody; nobody waits for a node that is gone.
//
// Read next: start.go, view_leader.go; package signal's cluster.go and view.go for the signals.
package membership

import (
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/version"
	"github.com/cohortdb/cohort/internal/view"
)

// Node is a configured data node that belongs to a node group.
type Node struct {
	ID    uint8
	Group uint16
}

// Arbitrator is a management server or client that may arbitrate.
type Arbitrator struct {
	ID   uint8
	Rank uint8 // 1 is asked before 2
}

// How a part of the cluster that has just half of the members is decided on.
const (
	// ArbitrationDefault: the arbitrator says.
	ArbitrationDefault = iota
	// ArbitrationDisabled: it ends.
	ArbitrationDisabled
	// ArbitrationWaitExternal: it waits for somebody outside to end the other part, then goes on.
	ArbitrationWaitExternal
)

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
	// Heartbeat is the time between two heartbeats (HeartbeatIntervalDbDb); 0 = heartbeatDefault.
	Heartbeat int64
	// CheckTimeout is how long a member that is still heard may take to answer a check (ConnectCheckIntervalDelay), at
	// least lostAfter heartbeats; 0 = as long as it is heard.
	CheckTimeout int64
	// Arbitration is one of the Arbitration constants, ArbitrationTimeout how long the arbitrator may take;
	// 0 = arbitrationDefault.
	Arbitration        int
	ArbitrationTimeout int64
	// Arbitrators are the nodes with an ArbitrationRank above 0.
	Arbitrators []Arbitrator
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
	// joining: a member of a running cluster that does not serve clients yet.
	joining
	// started: clients are served.
	started
	// stopping: this node alone stops; the others go on (leave.go).
	stopping
	// draining: a planned stop of the cluster; transactions end.
	draining
	// ended: the runtime was asked to end the process.
	ended
)

// reported is the state as management knows it.
var reported = [...]uint32{
	held: signal.StateNotStarted, waiting: signal.StateStarting, starting: signal.StateStarting, leaving: signal.StateStarting,
	joining: signal.StateStarting, started: signal.StateStarted, stopping: signal.StateStopping, draining: signal.StateStopping,
	ended: signal.StateStopping,
}

// The kinds of the block's timers.
const (
	tickReport  = 1 + iota // say for whom the start waits
	tickStart              // the start takes too long
	tickDrain              // transactions take too long to end
	tickMembers            // members take too long to drain
	tickHear               // ask the runtime who was heard
	tickLead               // A = lead.round: lead again
	tickArbit              // A = arb.asked: the arbitrator takes too long
	tickPart               // A = mem.parts: nodes that are to go have not ended their links by themselves
)

const (
	millisecond = 1_000_000
	second      = 1000 * millisecond
	// reportDefault is how often a waiting node says so, when the configuration does not say.
	reportDefault = 3 * second
	// tellTime bounds how long a node that ends waits for transactions that it rolls back.
	tellTime = second / 5
	// heartbeatDefault and arbitrationDefault are what the configuration says if nobody changes it.
	heartbeatDefault   = 250 * millisecond
	arbitrationDefault = 7500 * millisecond
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
	outer      signal.NodeSet // management servers and clients that it has a link to
	peers      [signal.MaxDataNode + 1]peer
	group      uint32 // own node group

	view    view.View // committed, or of the attempt to start; nobody before
	attempt uint32    // number of the attempt to start: the president's
	run     [2]uint32 // random number of this run of the cluster
	chain   uint32    // hash of all views up to view
	base    uint32    // … of those before it
	single  uint32    // of the view: the only client that is let in
	gci     signal.GCI
	taken   uint32 // newest view up to which everything of lost members is taken over, as the president said

	begin starter   // the president's part in a start
	hear  detector  // who is heard (detect.go)
	mem   follower  // this node's part in a change of the view (view_member.go)
	lead  leader    // the leader's part (view_leader.go)
	arb   arbiter   // who arbitrates (arbitrate.go)
	join  joins     // the president's part in joining (join.go)
	leave departure // of this node alone (leave.go)
	stop  clusterStop
	fail  [256]failure // by node: what is being forgotten of it

	wish       uint32 // single user mode that the own manager wants, when wished
	wished     bool
	fatal      bool // the next loss may end the cluster: as it was last announced
	forgetting int  // while leaving: own blocks that have not yet forgotten the attempt

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
	if b.cfg.Heartbeat == 0 {
		b.cfg.Heartbeat = heartbeatDefault
	}
	if b.cfg.ArbitrationTimeout == 0 {
		b.cfg.ArbitrationTimeout = arbitrationDefault
	}
	if cfg.NoStart {
		b.state = held
	} else {
		b.state = waiting
	}
	b.report(event.NDBStartStarted, version.Number)
	b.report(event.StartPhaseCompleted, 0, event.StartKindInitial)
	env.Tick(b.self, b.cfg.ReportInterval, tickReport, 0, 0)
	env.Tick(b.self, b.cfg.Heartbeat/2, tickHear, 0, 0)
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
		b.deliverView(h)
	}
}

// deliverView executes the signals about views.
func (b *Block) deliverView(h *signal.Head) {
	switch h.Num {
	case signal.NumHeartbeatRep:
		b.onHeartbeatRep(signal.As[signal.HeartbeatRep](h))
	case signal.NumHeardConf:
		b.onHeardConf(signal.As[signal.HeardConf](h))
	case signal.NumStallRep:
		b.onStallRep(signal.As[signal.StallRep](h))
	case signal.NumViewCheckReq:
		b.onViewCheckReq(signal.As[signal.ViewCheckReq](h))
	case signal.NumViewCheckConf:
		b.onViewCheckConf(signal.As[signal.ViewCheckConf](h))
	case signal.NumViewPrepareReq:
		b.onViewPrepareReq(signal.As[signal.ViewReq](h))
	case signal.NumViewPrepareConf:
		b.onViewPrepareConf(signal.As[signal.ViewConf](h))
	case signal.NumViewReadyConf:
		b.onViewReadyConf(signal.As[signal.ViewReadyConf](h))
	case signal.NumViewCommitReq:
		b.onViewCommitReq(signal.As[signal.ViewReq](h))
	case signal.NumViewCommitConf:
		b.onViewCommitConf(signal.As[signal.ViewConf](h))
	case signal.NumViewRefOrd:
		b.onViewRefOrd(signal.As[signal.ViewRefOrd](h))
	case signal.NumTakeoverRep:
		b.onTakeoverRep(signal.As[signal.TakeoverRep](h))
	case signal.NumArbitStartConf:
		b.onArbitStartConf(signal.As[signal.ArbitStartConf](h))
	case signal.NumArbitOrd:
		b.onArbitOrd(signal.As[signal.ArbitStartConf](h))
	case signal.NumArbitChooseReq:
		b.onArbitChooseReq(signal.As[signal.ArbitChooseReq](h))
	case signal.NumArbitChooseConf, signal.NumArbitChooseRef:
		b.onArbitChooseConf(signal.As[signal.ArbitChooseConf](h))
	case signal.NumLeaveReq:
		b.onLeaveReq(signal.As[signal.LeaveReq](h))
	case signal.NumLeaveConf:
		b.onLeaveConf(signal.As[signal.LeaveConf](h))
	case signal.NumLeaveRef:
		b.onLeaveRef(signal.As[signal.LeaveRef](h))
	case signal.NumSingleOrd:
		b.onSingleOrd(signal.As[signal.SingleOrd](h))
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
		b.onDrainTimeout(r.A)
	case tickMembers:
		b.onMembersTimeout()
	case tickHear:
		b.onHearTick()
	case tickLead:
		b.onLeadTick(r.A)
	case tickPart:
		b.onPartTick(r.A)
	case tickArbit:
		b.onArbitTimeout(r.A)
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
		President: uint32(b.view.President), DynamicID: b.dynamicID(), Connected: b.links,
		View: b.view.Number, Members: b.view.Set(), Serving: b.view.ServingSet(), Hears: b.rawHears(),
		Arbitrator: uint32(b.arbitratorNow()), Single: b.single}
	if b.state == started && b.single != 0 {
		s.State = signal.StateSingleUser
	}
}

func (b *Block) become(s state) {
	b.state = s
	b.tellState()
}

// dynamicID is the own one, 0 before there is one.
func (b *Block) dynamicID() uint32 {
	if m := b.view.Member(b.node); m != nil {
		return m.DynamicID
	}
	return 0
}

func (b *Block) isPresident() bool { return b.view.President == b.node }

// active tells whether the node takes part in changes of the view: it is a member, and others may rely on that.
func (b *Block) active() bool {
	switch b.state {
	case joining, started, stopping:
		return true
	case starting:
		return b.phase >= phaseEpochs
	}
	return false
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
	in := b.active() || b.state == starting
	if in && !b.view.Has(b.node) {
		invariant.Failf("in state %d, but no member of view %d", b.state, b.view.Number)
	}
	if in && uint32(b.view.President) != b.view.Members[0].Node {
		invariant.Failf("president %d is not the member that has been there longest", b.view.President)
	}
	if !in && b.state != draining && b.state != ended && b.view.Number != 0 {
		invariant.Failf("in state %d with view %d", b.state, b.view.Number)
	}
	set := b.view.Set()
	if !set.Covers(&b.begin.waiting) || !set.Covers(&b.stop.waiting) || !set.Covers(&b.join.unconfirmed) {
		invariant.Failf("the president waits for a node that is no member")
	}
	if (b.state == leaving) != (b.forgetting > 0) {
		invariant.Failf("in state %d with %d blocks that forget an attempt", b.state, b.forgetting)
	}
	others := set
	others.Remove(b.node)
	if b.state == starting && b.phase < phaseEpochs && !b.links.Covers(&others) {
		invariant.Failf("in an attempt to start without a link to each member")
	}
	b.lead.invariants(b)
	b.mem.invariants(b)
}
