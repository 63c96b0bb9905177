// Package datanode puts a data node together: which blocks there are, on which thread each runs, and with which limits.
//
// FromConfig turns the configuration into limits (config.go), LayoutFor into threads (layout.go), MemorySum into the
// memory that all that may take (memory.go). New makes an Env for each thread, or takes those of the runtime, places all
// blocks in all of them, and makes the blocks. A Thread gives each signal to its block.
//
// It owns the assembly and nothing else: no protocol is here, and no I/O. Both runtimes build their nodes with it, host
// with threads and sockets, sim on virtual time.
//
// Invariants: every block of the node is placed in every Env of the node before any block is made; a signal is delivered
// only on the thread of its block.
//
// Read next: membership for how a node starts; host and sim for who calls Deliver.
package datanode

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/coordinator"
	"github.com/cohortdb/cohort/internal/dictionary"
	"github.com/cohortdb/cohort/internal/distribution"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/ldm"
	"github.com/cohortdb/cohort/internal/manager"
	"github.com/cohortdb/cohort/internal/membership"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
)

// jobBytes is the room for signals between blocks of a thread, to start with.
const jobBytes = 1 << 16

// Node is a data node: its threads, and its blocks for those who inspect them.
type Node struct {
	Config  Config
	Layout  Layout
	Threads []*Thread

	Membership   *membership.Block
	Distribution *distribution.Block
	Dictionary   *dictionary.Block
	Manager      *manager.Block
	TCs          []*coordinator.Block
	LDMs         []*ldm.Block
}

// Thread is one thread of a node: its Env and the blocks that run on it.
type Thread struct {
	Env *kernel.Env
	// Runtime takes the signals that the node has for what runs it (BlockRuntime): set on the main thread by a runtime
	// that does not take them out of the jobs itself.
	Runtime func(h *signal.Head)

	node *Node
	tcs  []*coordinator.Block // by instance; nil: on another thread
	ldms []*ldm.Block         // by instance; nil: on another thread
	main bool
}

// NewEnvs makes the Envs of a node's threads, for a runtime that has no wishes of its own. seed starts their random
// sources.
func NewEnvs(node uint8, l *Layout, seed uint64) []*kernel.Env {
	envs := make([]*kernel.Env, l.Threads)
	for i := range envs {
		seed = seed*6364136223846793005 + 1442695040888963407
		envs[i] = kernel.NewEnv(node, i, seed, jobBytes)
	}
	return envs
}

// New makes a node. envs are those of its threads; the time of each is set already. The first signals wait in the Envs'
// jobs afterwards.
func New(cfg Config, l Layout, m Memory, envs []*kernel.Env) *Node {
	if what := l.check(); what != "" {
		invariant.Failf("node %d: %s", cfg.Node, what)
	}
	invariant.That(len(envs) == l.Threads, "a thread has an Env")
	n := &Node{Config: cfg, Layout: l}
	for _, e := range envs {
		place(e, &l)
	}
	for i, e := range envs {
		n.Threads = append(n.Threads, &Thread{Env: e, node: n, main: i == l.Main,
			tcs: make([]*coordinator.Block, len(l.TCs)), ldms: make([]*ldm.Block, len(l.LDMs))})
	}
	main := envs[l.Main]
	cfg.Manager.LDMs, cfg.Manager.TCs = len(l.LDMs), len(l.TCs)
	cfg.Membership.LDMs, cfg.Membership.TCs = len(l.LDMs), len(l.TCs)
	cfg.Distribution.LogParts = l.LogParts
	n.Manager = manager.New(main, cfg.Manager)
	n.Dictionary = dictionary.New(main, cfg.Dictionary)
	n.Distribution = distribution.New(main, cfg.Distribution)
	for i, t := range l.TCs {
		b := coordinator.New(envs[t], coordinator.Config{Instance: i, MaxTransactions: cfg.MaxTransactions, MaxOperations: cfg.MaxOperations,
			MaxTables: cfg.Dictionary.MaxTables, Sessions: cfg.Sessions, MaxWrites: cfg.MaxWrites,
			InactiveTimeout: cfg.InactiveTimeout, InactiveCheck: cfg.InactiveCheck})
		n.TCs = append(n.TCs, b)
		n.Threads[t].tcs[i] = b
	}
	for i, t := range l.LDMs {
		b := ldm.New(envs[t], ldm.Config{Instance: i, Arena: store.NewArena(m.Data, m.DataSource),
			Copies:        store.NewCopyPool(store.NewArena(m.Copies, m.CopiesSource)),
			MaxOperations: cfg.MaxLocalOperations, MaxTables: cfg.Dictionary.MaxTables, Sessions: cfg.Sessions, LockTimeout: cfg.LockTimeout})
		n.LDMs = append(n.LDMs, b)
		n.Threads[t].ldms[i] = b
	}
	n.describe(main)
	n.Membership = membership.New(main, cfg.Membership)
	return n
}

// place says in an Env where every block of the node runs.
func place(e *kernel.Env, l *Layout) {
	for _, b := range [...]uint8{signal.BlockMembership, signal.BlockDistribution, signal.BlockDictionary, signal.BlockManager, signal.BlockRuntime} {
		e.Place(b, 0, l.Main)
	}
	for i, t := range l.TCs {
		e.Place(signal.BlockTC, i, t)
	}
	for i, t := range l.LDMs {
		e.Place(signal.BlockLDM, i, t)
	}
}

// describe reports how the node is put together.
func (n *Node) describe(main *kernel.Env) {
	from := signal.MakeAddr(n.Config.Node, signal.BlockManager, 0)
	report := func(t event.Type, text string, args ...uint32) {
		e := event.New(n.Config.Node, t, args...).WithText(text)
		main.Report(from, &e)
	}
	for i := range n.Layout.Threads {
		report(event.ThreadLayout, n.Layout.Roles(i), uint32(i), 0)
	}
	items := MemorySum(&n.Config, &n.Layout)
	for _, i := range append(items, Item{"sum", Total(items)}) {
		report(event.MemoryLayout, i.Name, uint32(i.Bytes>>32), uint32(i.Bytes))
	}
	for _, w := range n.Layout.Warnings {
		report(event.WarningEvent, w)
	}
}

// Deliver gives the signal at p to its block, which runs on this thread.
func (t *Thread) Deliver(p unsafe.Pointer) {
	h := (*signal.Head)(p)
	switch h.To.Block() {
	case signal.BlockLDM:
		if b := t.ldms[h.To.Instance()]; b != nil {
			b.Deliver(h)
			return
		}
	case signal.BlockTC:
		if b := t.tcs[h.To.Instance()]; b != nil {
			b.Deliver(h)
			return
		}
	default:
		if t.main {
			t.deliverMain(h)
			return
		}
	}
	invariant.Failf("%s is delivered on thread %d", signal.Format(h), t.Env.Thread())
}

func (t *Thread) deliverMain(h *signal.Head) {
	switch h.To.Block() {
	case signal.BlockDistribution:
		t.node.Distribution.Deliver(h)
	case signal.BlockManager:
		t.node.Manager.Deliver(h)
	case signal.BlockDictionary:
		t.node.Dictionary.Deliver(h)
	case signal.BlockMembership:
		t.node.Membership.Deliver(h)
	case signal.BlockRuntime:
		invariant.That(t.Runtime != nil, "whoever runs the node takes what the node has to say to it")
		t.Runtime(h)
	default:
		invariant.Failf("a data node has no block for %s", signal.Format(h))
	}
}

// Touch prefetches what the first n signals of w will look at first, so that their cache misses overlap: the places in
// the hash index of all of them, then the rows behind these. A hint: it changes no result.
func (t *Thread) Touch(w *[16]unsafe.Pointer, n int) {
	var at [16]unsafe.Pointer
	var rows [16]*store.Fragment
	var hash [16]uint64
	for i := range min(n, len(w)) {
		h := (*signal.Head)(w[i])
		switch {
		case h.To.Block() == signal.BlockLDM && int(h.To.Instance()) < len(t.ldms):
			if b := t.ldms[h.To.Instance()]; b != nil {
				at[i], rows[i], hash[i] = b.Aim(h)
			}
		case h.Num == signal.NumKeyReq: // the coordinator will pass it on, mostly to an ldm of its own thread
			for _, b := range t.ldms {
				if b != nil && at[i] == nil {
					at[i], rows[i], hash[i] = b.Aim(h)
				}
			}
		}
	}
	store.Prefetch16(&at)
	for i, f := range rows {
		if at[i] = nil; f != nil {
			at[i] = f.RowPtr(hash[i])
		}
	}
	store.PrefetchRows16(&at)
}

// Invariants checks every block of the thread; it is called between signals.
func (t *Thread) Invariants() {
	for _, b := range t.ldms {
		if b != nil {
			b.Invariants()
		}
	}
	for _, b := range t.tcs {
		if b != nil {
			b.Invariants()
		}
	}
	if t.main {
		t.node.Membership.Invariants()
		t.node.Distribution.Invariants()
		t.node.Dictionary.Invariants()
		t.node.Manager.Invariants()
	}
}
