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

// cluster is the data nodes of a run.
type cluster struct {
	net    *Network
	o      *Options
	nodes  []*dataNode // by node id less 1
	random *Random
	// observe, if set, sees every event of every node.
	observe func(e event.Event)
}

// dataNode is a data node and what the simulator plays for it: memory, and whatever the runtime is told.
type dataNode struct {
	proc   *Process
	node   *datanode.Node
	pages  *store.LocalSource // of data memory
	chunks int                // of it, all of them
}

// chunkBytes is the unit in which ldms take memory from their node: small, so that a small node has enough for all.
const chunkBytes = 1 << 16

// newCluster makes the data nodes from a configuration as a user would write it.
func newCluster(n *Network, o *Options, r *Random) (*cluster, error) {
	conf, _, err := config.Parse([]byte(o.configText()), config.Options{FileName: "config.ini"})
	if err != nil {
		return nil, fmt.Errorf("the drawn configuration is not one: %w", err)
	}
	c := &cluster{net: n, o: o, random: r}
	for i := range o.DataNodes {
		d, err := c.newNode(conf, i+1, r.Sub(fmt.Sprint("node ", i+1)))
		if err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, d)
	}
	return c, nil
}

func (c *cluster) newNode(conf *config.Config, id int, r *Random) (*dataNode, error) {
	cfg, err := datanode.FromConfig(conf, id)
	if err != nil {
		return nil, err
	}
	layout, err := datanode.LayoutFor(&cfg, true, maxCombined)
	if err != nil {
		return nil, err
	}
	d := &dataNode{proc: c.net.addProcess(uint8(id), signal.PeerData, layout.Threads, r)}
	var m datanode.Memory
	m.Data, d.pages = store.NewLocalSource(uint64(cfg.DataMemory), chunkBytes, true)
	m.Copies, m.CopiesSource = store.NewLocalSource(uint64(c.o.CopyKilobyte)<<10, chunkBytes, true)
	m.DataSource, d.chunks = d.pages, d.pages.Free()
	var envs []*kernel.Env
	for _, t := range d.proc.Threads {
		envs = append(envs, t.Env)
	}
	d.node = datanode.New(cfg, layout, m, envs)
	for i, t := range d.proc.Threads {
		d.node.Threads[i].Runtime = func(h *signal.Head) { c.runtime(d, h) }
		t.Handle, t.Touch = d.node.Threads[i].Deliver, d.node.Threads[i].Touch
	}
	return d, nil
}

// runtime takes what a node has to say to whatever runs it.
func (c *cluster) runtime(d *dataNode, h *signal.Head) {
	switch h.Num {
	case signal.NumEventRep:
		r := (*signal.EventRep)(unsafe.Pointer(h))
		e := event.Event{Type: event.Type(r.Event), Node: uint8(r.Node), Args: r.Args, Text: string(r.Text())}
		if c.observe != nil {
			c.observe(e)
		}
		ours := e.Type == event.Disconnected && c.net.procs[e.Args[0]].Kind == signal.PeerAPI // by cut
		if s := e.Info().Severity; !ours && (s == event.Error || s == event.Alert || s == event.Critical) {
			c.net.failf("node %d reports: %s", d.proc.ID, e)
		}
	case signal.NumNodeStateRep:
	case signal.NumNodeFreeRep:
		r := (*signal.NodeFreeRep)(unsafe.Pointer(h))
		peer := c.net.procs[r.Node]
		c.net.at(c.net.now+c.random.Exponential(20*millisecond), func() { c.link(d.proc, peer) })
	case signal.NumExitOrd:
		r := (*signal.ExitOrd)(unsafe.Pointer(h))
		c.net.failf("node %d ends with status %d: %s", d.proc.ID, r.Code, r.Text())
	default:
		c.net.failf("node %d tells its runtime %s", d.proc.ID, signal.Format(h))
	}
}

// start lets all nodes begin, and opens the links between them, each pair at a time of its own.
func (c *cluster) start(apis []*api) {
	var all []*Process
	for _, d := range c.nodes {
		all = append(all, d.proc)
		for _, t := range d.proc.Threads {
			c.net.drain(t) // what the blocks had to say when they were made
		}
	}
	for _, a := range apis {
		all = append(all, a.proc)
	}
	for i, p := range all {
		for _, q := range all[:i] {
			if p.Kind == signal.PeerData || q.Kind == signal.PeerData {
				c.net.at(c.net.now+c.random.Below(50*millisecond), func() { c.link(p, q) })
			}
		}
	}
}

// link opens the links between two nodes. Each side learns of it at a time of its own; what comes before is let in after.
func (c *cluster) link(p, q *Process) {
	for _, side := range [2][2]*Process{{p, q}, {q, p}} {
		own, peer := side[0], side[1]
		at := c.net.now + c.random.Below(millisecond)
		own.heard[peer.ID] = at
		c.net.at(at, func() {
			own.open(peer.ID)
			c.report(own, peer, signal.NumLinkUpRep)
		})
	}
}

// cut breaks the links between a client and a data node. The client knows at once and hears nothing more; the data node
// executes some of what is on its way, and then knows. When nothing of the client is left there they link again.
func (c *cluster) cut(a *api, d *dataNode) {
	p, q := a.proc, d.proc
	for _, side := range [2][2]*Process{{p, q}, {q, p}} {
		for _, t := range side[0].Threads {
			c.net.drain(t)
		}
		side[0].shut(side[1].ID)
	}
	c.net.tear(p, q, c.random)
	c.net.tear(q, p, nil)
	c.report(p, q, signal.NumLinkDownRep)
	a.spreadNow()
	c.whenSilent(p, q, func() { c.report(q, p, signal.NumLinkDownRep) })
}

// whenSilent calls f when nothing is on its way between two processes any more.
func (c *cluster) whenSilent(from, to *Process, f func()) {
	if silent(from, to) {
		f()
		return
	}
	c.net.at(c.net.now+microsecond, func() { c.whenSilent(from, to, f) })
}

// report tells a node's membership, or a client's connection, that its links to another are up or down.
func (c *cluster) report(p, peer *Process, num uint16) {
	to, from := signal.MakeAddr(p.ID, signal.BlockMembership, 0), signal.MakeAddr(p.ID, signal.BlockRuntime, 0)
	if p.Kind == signal.PeerAPI {
		to = signal.MakeAddr(p.ID, signal.BlockClient, 0)
		from = to
	}
	t := c.net.thread(to)
	r := signal.LinkRep{Node: uint32(peer.ID), Kind: uint32(peer.Kind), Software: version.Number}
	if peer.Kind == signal.PeerData {
		l := &c.nodes[peer.ID-1].node.Layout
		r.LDMs, r.TCs = uint32(len(l.LDMs)), uint32(len(l.TCs))
	}
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
		for _, t := range d.node.Threads {
			t.Invariants()
		}
	}
}
