package sim

import (
	"fmt"
	"unsafe"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/datanode"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
	"github.com/cohortdb/cohort/internal/version"
)

// cluster is the data nodes and management servers of a run.
type cluster struct {
	net    *Network
	o      *Options
	nodes  []*dataNode // by node id less 1: the newest process
	mgms   []*mgmNode
	random *Random
	// observe, if set, sees every event of every node.
	observe func(e event.Event)
	// ended, if set, is called when a data node has ended by itself.
	ended func(d *dataNode, r exit)
	// disturbed: something was done to the cluster since it was started, so that what a node complains of may be the effect.
	disturbed bool
}

// dataNode is a data node and what the simulator plays for it: memory, and whatever the runtime is told.
type dataNode struct {
	proc   *Process
	node   *datanode.Node
	pages  *store.LocalSource // of data memory
	chunks int                // of it, all of them
	epoch  signal.GCI         // the newest that it was told to be committed
	state  signal.NodeStateRep
	hurt   int64 // when something was done to it or its links last, ns
	random *Random
}

// exit is with what a process has ended by itself.
type exit struct {
	code, restart uint32
	text          string
}

// chunkBytes is the unit in which ldms take memory from their node: small, so that a small node has enough for all.
const chunkBytes = 1 << 16

// newCluster makes the nodes from a configuration as a user would write it.
func newCluster(n *Network, o *Options, r *Random) (*cluster, error) {
	c := &cluster{net: n, o: o, random: r, nodes: make([]*dataNode, o.DataNodes)}
	for i := range c.nodes {
		if err := c.boot(i + 1); err != nil {
			return nil, err
		}
	}
	for i := range o.Managers {
		c.mgms = append(c.mgms, c.newManager(uint8(firstManager-i)))
	}
	return c, nil
}

// boot makes a process of a data node. What its blocks had to say when they were made leaves it when it is started.
func (c *cluster) boot(id int) error {
	life := 1
	if old := c.nodes[id-1]; old != nil {
		life = old.proc.life + 1
	}
	r := c.random.Sub(fmt.Sprint("node ", id, " life ", life))
	o := *c.o
	if life > 1 && o.OtherThreads && r.Chance(1, 2) { // its configuration was changed meanwhile
		o.Threads = append([]Layout(nil), o.Threads...)
		o.Threads[id-1] = drawLayout(r)
	}
	conf, _, err := config.Parse([]byte(o.configText()), config.Options{FileName: "config.ini"})
	if err != nil {
		return fmt.Errorf("the drawn configuration is not one: %w", err)
	}
	cfg, err := datanode.FromConfig(conf, id)
	if err != nil {
		return err
	}
	layout, err := datanode.LayoutFor(&cfg, true, maxCombined)
	if err != nil {
		return err
	}
	d := &dataNode{proc: c.net.addProcess(uint8(id), signal.PeerData, layout.Threads, r), random: r}
	p := d.proc
	if o.Drift != nil {
		p.ppm = o.Drift[id-1]
	}
	p.ldms, p.tcs = uint32(len(layout.LDMs)), uint32(len(layout.TCs))
	p.onLink = func(peer *Process, num uint16) { c.report(p, peer, num) }
	p.stalled = func(ns int64) { c.stalled(p, ns) }
	var m datanode.Memory
	m.Data, d.pages = store.NewLocalSource(uint64(cfg.DataMemory), chunkBytes, true)
	m.Copies, m.CopiesSource = store.NewLocalSource(uint64(c.o.CopyKilobyte)<<10, chunkBytes, true)
	m.DataSource, d.chunks = d.pages, d.pages.Free()
	var envs []*kernel.Env
	for _, t := range p.Threads {
		envs = append(envs, t.Env)
	}
	d.node = datanode.New(cfg, layout, m, envs)
	for i, t := range p.Threads {
		d.node.Threads[i].Runtime = func(h *signal.Head) { c.runtime(d, h) }
		t.Handle, t.Touch = d.node.Threads[i].Deliver, d.node.Threads[i].Touch
	}
	c.nodes[id-1] = d
	return nil
}

// restart starts a new process of a data node that has ended, with an empty memory.
func (c *cluster) restart(id uint8) {
	if d := c.nodes[id-1]; !d.proc.dead || c.net.failure != nil {
		return
	}
	if err := c.boot(int(id)); err != nil {
		c.net.failf("node %d cannot be made anew: %v", id, err)
		return
	}
	c.come(c.nodes[id-1].proc)
}

// come lets a process begin, and its links be opened.
func (c *cluster) come(p *Process) {
	c.net.drainTo(p)
	for _, id := range c.net.ids {
		if q := c.net.procs[id]; id != p.ID && (p.Kind == signal.PeerData || q.Kind == signal.PeerData) {
			c.net.dial(p.ID, id)
		}
	}
}

// start lets all nodes begin.
func (c *cluster) start() {
	for _, id := range c.net.ids {
		c.come(c.net.procs[id])
	}
}

// report tells a node's membership, or a client's connection, that its links to another are up or down.
func (c *cluster) report(p, peer *Process, num uint16) {
	to, from := signal.MakeAddr(p.ID, signal.BlockMembership, 0), signal.MakeAddr(p.ID, signal.BlockRuntime, 0)
	if p.Kind == signal.PeerAPI {
		to = signal.MakeAddr(p.ID, signal.BlockClient, 0)
		from = to
	}
	t := c.net.thread(to)
	r := signal.LinkRep{Node: uint32(peer.ID), Kind: uint32(peer.Kind), Software: version.Number, LDMs: peer.ldms, TCs: peer.tcs}
	c.net.tell(t, func() {
		s := kernel.Send[signal.LinkRep](t.Env, to, from, num)
		head := s.Head
		*s = r
		s.Head = head
	})
}

// fragment is a fragment replica at an ldm, nil if there is none.
func (c *cluster) fragment(a signal.Addr, table, frag uint32) *store.Fragment {
	return c.nodes[a.Node()-1].node.LDMs[a.Instance()].Fragment(table, frag)
}

// invariants examines every block.
func (c *cluster) invariants() {
	for _, d := range c.nodes {
		if d.proc.dead {
			continue
		}
		for _, t := range d.node.Threads {
			t.Invariants()
		}
	}
	for _, m := range c.mgms {
		m.arbitrator.Invariants()
	}
}

// severe tells whether an event fails a run.
func (c *cluster) severe(e event.Event) bool {
	switch e.Info().Severity {
	case event.Critical, event.Error:
		return true
	case event.Alert:
		client := e.Type == event.Disconnected && c.net.procs[e.Args[0]].Kind != signal.PeerData
		return !c.disturbed && !client
	}
	return false
}

// at is the address of a block of a data node of which there is one.
func (d *dataNode) at(block uint8) signal.Addr { return signal.MakeAddr(d.proc.ID, block, 0) }

// main is the thread of a data node's membership.
func (d *dataNode) main() *Thread { return d.proc.net.thread(d.at(signal.BlockMembership)) }

// runtime takes what a node has to say to whatever runs it.
func (c *cluster) runtime(d *dataNode, h *signal.Head) {
	n, p := c.net, d.proc
	switch h.Num {
	case signal.NumEventRep:
		r := (*signal.EventRep)(unsafe.Pointer(h))
		e := event.Event{Type: event.Type(r.Event), Node: uint8(r.Node), Args: r.Args, Text: string(r.Text())}
		if c.observe != nil {
			c.observe(e)
		}
		if c.severe(e) {
			n.failf("node %d reports: %s", p.ID, e)
		}
	case signal.NumNodeStateRep:
		d.state = *signal.As[signal.NodeStateRep](h)
	case signal.NumNodeFreeRep:
		p.taken[signal.As[signal.NodeFreeRep](h).Node] = false
	case signal.NumLinkCloseOrd:
		peer := uint8(signal.As[signal.LinkCloseOrd](h).Node)
		n.at(n.now, func() {
			p.do(func() {
				if !n.closeLink(p, peer, n.links) {
					p.onLink(n.procs[peer], signal.NumLinkDownRep)
				}
			})
		})
	case signal.NumHeardReq:
		ref, asked := signal.As[signal.HeardReq](h).Ref, n.now
		n.at(n.now, func() { c.answerHeard(d, ref, asked) })
	case signal.NumTrustOrd:
		n.at(n.now, func() { n.trust(p) })
	case signal.NumExitOrd:
		r := signal.As[signal.ExitOrd](h)
		x := exit{r.Code, r.Restart, string(r.Text())}
		n.at(n.now, func() { p.do(func() { c.exit(d, x) }) })
	default:
		n.failf("node %d tells its runtime %s", p.ID, signal.Format(h))
	}
}

// exit ends a data node that wants to end.
func (c *cluster) exit(d *dataNode, x exit) {
	c.net.end(d.proc, false, d.random)
	if c.ended == nil {
		c.net.failf("node %d ends with status %d: %s", d.proc.ID, x.code, x.text)
		return
	}
	c.ended(d, x)
}

// answerHeard answers a HeardReq when what had come until then was executed.
func (c *cluster) answerHeard(d *dataNode, ref uint32, asked int64) {
	p := d.proc
	p.do(func() {
		for _, t := range p.Threads {
			for _, r := range t.in {
				if !r.empty() && r.at[r.atRead] <= asked && r.from.Proc.Kind == signal.PeerData {
					c.net.at(c.net.now+20*microsecond, func() { c.answerHeard(d, ref, asked) })
					return
				}
			}
		}
		t := d.main()
		c.net.onThread(t, func() {
			s := kernel.Send[signal.HeardConf](t.Env, d.at(signal.BlockMembership), d.at(signal.BlockRuntime), signal.NumHeardConf)
			s.Ref, s.Stall = ref, 0
			for id := range s.Age {
				s.Age[id] = signal.NoRef
				if e := p.ends[id]; e != nil && e.up && !e.closing {
					s.Age[id] = uint32((p.clock(c.net.now) - p.clock(p.heard[id])) / millisecond)
				}
			}
			for _, x := range p.Threads {
				s.Stall = max(s.Stall, uint32(x.stall/millisecond))
				x.stall = 0
			}
		})
	})
}

// stalled tells a node's membership that the node did not run, and takes nothing in from clients until that answers.
func (c *cluster) stalled(p *Process, stall int64) {
	c.net.distrust(p)
	d := c.nodes[p.ID-1]
	t := d.main()
	c.net.tell(t, func() {
		s := kernel.Send[signal.StallRep](t.Env, d.at(signal.BlockMembership), d.at(signal.BlockRuntime), signal.NumStallRep)
		s.Millis = uint32(stall / millisecond)
	})
}
