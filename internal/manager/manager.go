// Package manager is the face of a data node towards management and clients' libraries [CMVMI].
//
// A Block is one node's. It passes every event of the node on to the management servers that want it and to the
// runtime, tells clients and management servers how the node is whenever that changes, answers reports, and hands
// orders (start, stop, single user mode) to membership, which decides. It owns who is linked and who listens; it decides nothing about
// the cluster and touches no data.
//
// Events that no management server could hear wait, the newest backlogMax of them, for the first one that listens: a
// node's first events come before its first link.
//
// Bounds: backlogMax events, askersMax reports under way; a report beyond that is answered with the last figures. singleMax
// questions about single user mode; those beyond are refused.
//
// Invariants (checked by Invariants): whoever listens is a linked management server; answers of ldms are awaited only
// while figures are being gathered.
//
// Read next: events.go, report.go, single.go; package event for what events there are.
package manager

import (
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/version"
)

// Config is what the block is made with. Times in nanoseconds.
type Config struct {
	LDMs, TCs        int // of the own node
	Replicas, Groups int // of the cluster
	// MemoryReport is how often memory usage is reported although nothing happened (MemReportFrequency); 0 = never.
	MemoryReport int64
}

// The kinds of the block's timers.
const (
	tickMemory = 1 + iota // look at memory usage
	tickReport            // report memory usage
)

const second = 1_000_000_000

// Block is the manager of one node.
type Block struct {
	env  *kernel.Env
	cfg  Config
	self signal.Addr

	state signal.NodeStateRep // newest word of membership; its Head is not used
	gci   [2]uint32           // newest epoch

	links     signal.NodeSet
	kinds     [256]signal.Peer // of linked nodes
	mgms      signal.NodeSet   // linked management servers
	listeners signal.NodeSet   // of them those that want events
	levels    [256]event.Levels
	clients   [256]signal.Addr // registered clients, 0 = none

	single single // single user mode (single.go)

	backlog []event.Event // heard by nobody yet
	gather  gather
	last    figures
	memory  [2]int // index into thresholds of data and index memory
	pages   uint32 // in use, as management servers were told last
}

// New makes the block; all blocks of the node must be placed.
func New(env *kernel.Env, cfg Config) *Block {
	b := &Block{env: env, cfg: cfg, self: signal.MakeAddr(env.Node(), signal.BlockManager, 0)}
	b.state.NodeGroup = signal.NoRef
	env.Tick(b.self, second, tickMemory, 0, 0)
	if cfg.MemoryReport > 0 {
		env.Tick(b.self, cfg.MemoryReport, tickReport, 0, 0)
	}
	return b
}

// Deliver executes one signal.
func (b *Block) Deliver(h *signal.Head) {
	switch h.Num {
	case signal.NumEventRep:
		b.onEventRep(signal.As[signal.EventRep](h))
	case signal.NumEpochRep:
		b.gci = signal.As[signal.EpochRep](h).GCI
	case signal.NumNodeStateRep:
		b.onNodeStateRep(signal.As[signal.NodeStateRep](h))
	case signal.NumLinkUpRep:
		b.onLinkUpRep(signal.As[signal.LinkRep](h))
	case signal.NumLinkDownRep:
		b.onLinkDownRep(signal.As[signal.LinkRep](h))
	case signal.NumEventSubscribeOrd:
		b.onEventSubscribeOrd(signal.As[signal.EventSubscribeOrd](h))
	case signal.NumApiRegReq:
		b.onApiRegReq(signal.As[signal.ApiRegReq](h))
	case signal.NumStopReq, signal.NumStartOrd:
		h.To = signal.MakeAddr(b.env.Node(), signal.BlockMembership, 0) // it answers whoever asked
		b.env.Forward(h)
	case signal.NumSingleReq:
		b.onSingleReq(signal.As[signal.SingleReq](h))
	case signal.NumSingleOrd:
		b.onSingleOrd(signal.As[signal.SingleOrd](h))
	case signal.NumSingleConf:
		b.onSingleConf(signal.As[signal.SingleConf](h))
	case signal.NumListReq:
		b.onListReq(h)
	case signal.NumReportReq:
		b.onReportReq(signal.As[signal.ReportReq](h))
	case signal.NumDumpOrd:
		b.onDumpOrd(signal.As[signal.DumpOrd](h))
	case signal.NumStatConf:
		b.onStatConf(signal.As[signal.StatConf](h))
	case signal.NumTickOrd:
		b.onTick(signal.As[signal.TickOrd](h))
	default:
		invariant.Failf("the manager has no handler for %s", signal.Format(h))
	}
}

func (b *Block) onTick(r *signal.TickOrd) {
	switch r.Kind {
	case tickMemory:
		b.env.Tick(b.self, second, tickMemory, 0, 0)
		b.gather.watch = true
	case tickReport:
		b.env.Tick(b.self, b.cfg.MemoryReport, tickReport, 0, 0)
		b.gather.tell = true
	default:
		invariant.Failf("the manager has no timer of kind %d", r.Kind)
	}
	b.begin()
}

// onNodeStateRep hears from membership how the node is, and tells everybody.
func (b *Block) onNodeStateRep(r *signal.NodeStateRep) {
	b.state = *r
	b.tellState(signal.MakeAddr(b.env.Node(), signal.BlockRuntime, 0))
	b.tellMgms()
	for _, c := range b.clients {
		if c != 0 {
			b.tellState(c)
		}
	}
}

func mgmAt(n uint8) signal.Addr { return signal.MakeAddr(n, signal.BlockMgm, 0) }

func (b *Block) tellMgms() {
	b.pages = b.last.data + b.last.index
	for n := b.mgms.Next(0); n != 0; n = b.mgms.Next(n) {
		b.tellState(mgmAt(n))
	}
}

func (b *Block) tellState(to signal.Addr) {
	s := kernel.Send[signal.NodeStateRep](b.env, to, b.self, signal.NumNodeStateRep)
	h := s.Head
	*s = b.state
	s.Head, s.Software, s.GCI, s.Connected, s.Pages = h, version.Number, b.gci, b.links, b.last.data+b.last.index
}

func (b *Block) onLinkUpRep(r *signal.LinkRep) {
	n := uint8(r.Node)
	kind := signal.Peer(r.Kind)
	b.links.Add(n)
	b.kinds[n] = kind
	b.report(event.Connected, uint32(n))
	b.tellMgms()
	if kind == signal.PeerMgm {
		b.mgms.Add(n)
		b.tellState(mgmAt(n))
	}
	if kind == signal.PeerAPI {
		b.report(event.ConnectedApiVersion, uint32(n), r.Software)
	}
}

func (b *Block) onLinkDownRep(r *signal.LinkRep) {
	n := uint8(r.Node)
	known := b.links.Has(n)
	b.links.Remove(n)
	b.mgms.Remove(n)
	b.listeners.Remove(n)
	b.clients[n] = 0
	b.forgetAsker(n)
	b.single.forget(n)
	if known { // a client with only some of its sockets was never announced
		b.report(event.Disconnected, uint32(n))
		b.tellMgms()
	}
}

// onApiRegReq introduces a client: from now on it hears how the node is.
func (b *Block) onApiRegReq(r *signal.ApiRegReq) {
	b.clients[r.From.Node()] = r.From
	c := kernel.Send[signal.ApiRegConf](b.env, r.From, b.self, signal.NumApiRegConf)
	c.Ref, c.Version, c.State = r.Ref, version.Number, b.state.State
	c.LDMs, c.TCs, c.Replicas, c.Groups = uint32(b.cfg.LDMs), uint32(b.cfg.TCs), uint32(b.cfg.Replicas), uint32(b.cfg.Groups)
	b.tellState(r.From)
}

// Invariants checks the block as a whole; it is called between signals.
func (b *Block) Invariants() {
	invariant.That(b.links.Covers(&b.mgms) && b.mgms.Covers(&b.listeners), "whoever listens is a linked management server")
	g := &b.gather
	invariant.That(len(b.backlog) <= backlogMax && len(g.askers) <= askersMax, "what waits is bounded")
	invariant.That(len(b.single.askers) <= singleMax, "what waits is bounded")
	invariant.That(g.owed > 0 || len(g.askers) == 0 && !g.watch && !g.tell && !g.count, "figures that somebody wants are being gathered")
}
