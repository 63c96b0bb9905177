package membership

import (
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/kernel/kerneltest"
	"github.com/cohortdb/cohort/internal/signal"
)

const ms = 1_000_000

// rig is a few data nodes with a membership and fakes for everything around it.
type rig struct {
	t   *testing.T
	net *kerneltest.Net
	n   [256]*node
	cfg Config
}

// node is what a test sees of one data node, by its present process.
type node struct {
	b      *Block
	phases []uint32 // that the own blocks were asked to run, 0 included
	states []uint32 // told to management, without repetitions
	events []signal.EventRep
	exit   *signal.ExitOrd
	reason string
	order  []uint16 // NodeStateRep(stopping) and ExitOrd, as they came
	freed  []uint8
	fails  []signal.NodeFailRep // that coordinators and ldms heard
	drains int
	ups    int // NodeUpRep of node 51 at ldms

	holdFail  bool // coordinators keep NodeFailConf back
	heldFail  []signal.NodeFailRep
	holdDrain bool // coordinators keep DrainConf back
	holdPhase uint32
	dict      [2]uint32 // members and president that the dictionary knows
}

func newRig(t *testing.T, seed uint64, ids ...uint8) *rig {
	r := &rig{t: t, net: kerneltest.New(seed), cfg: Config{LDMs: 2, TCs: 2, DrainTimeout: 1200 * ms}}
	for i, id := range ids {
		r.cfg.Nodes = append(r.cfg.Nodes, Node{ID: id, Group: uint16(i / 2)})
	}
	r.net.After = func(n *kerneltest.Node) {
		if x := r.n[n.ID]; x != nil && x.b != nil {
			x.b.Invariants()
		}
	}
	return r
}

// launch starts a process for a node; an earlier one must be dead.
func (r *rig) launch(id uint8, change func(*Config)) *node {
	kn := r.net.Add(id, signal.PeerData)
	kn.LDMs, kn.TCs = 2, 2
	for _, b := range []uint8{signal.BlockMembership, signal.BlockDistribution, signal.BlockDictionary, signal.BlockManager, signal.BlockRuntime} {
		kn.Env.Place(b, 0, 0)
	}
	for i := range 2 {
		kn.Env.Place(signal.BlockTC, i, 0)
		kn.Env.Place(signal.BlockLDM, i, 0)
	}
	x := &node{}
	r.n[id] = x
	kn.Handle = func(h *signal.Head) { r.handle(kn, x, h) }
	cfg := r.cfg
	if change != nil {
		change(&cfg)
	}
	x.b = New(kn.Env, cfg)
	return x
}

func conf[T any](n *kerneltest.Node, h *signal.Head, num uint16) *T {
	return kernel.Send[T](n.Env, h.From, h.To, num)
}

func (r *rig) handle(n *kerneltest.Node, x *node, h *signal.Head) {
	switch h.To.Block() {
	case signal.BlockMembership:
		x.b.Deliver(h)
	case signal.BlockManager:
		switch h.Num {
		case signal.NumNodeStateRep:
			s := signal.As[signal.NodeStateRep](h).State
			if len(x.states) == 0 || x.states[len(x.states)-1] != s {
				x.states = append(x.states, s)
			}
			if s == signal.StateStopping {
				x.order = append(x.order, h.Num)
			}
		case signal.NumEventRep:
			x.events = append(x.events, *signal.As[signal.EventRep](h))
		}
	case signal.BlockRuntime:
		switch h.Num {
		case signal.NumExitOrd:
			if x.exit != nil {
				r.t.Fatalf("node %d exits twice", n.ID)
			}
			e := *signal.As[signal.ExitOrd](h)
			x.exit, x.reason = &e, signal.As[signal.ExitOrd](h).Text()
			x.order = append(x.order, h.Num)
			r.net.Kill(n.ID)
		case signal.NumNodeFreeRep:
			x.freed = append(x.freed, uint8(signal.As[signal.NodeFreeRep](h).Node))
		default:
			r.t.Fatalf("the runtime hears %s", signal.Format(h))
		}
	case signal.BlockTC, signal.BlockLDM:
		switch h.Num {
		case signal.NumNodeFailRep:
			f := signal.As[signal.NodeFailRep](h)
			x.fails = append(x.fails, *f)
			if x.holdFail && h.To.Block() == signal.BlockTC {
				x.heldFail = append(x.heldFail, *f)
				return
			}
			conf[signal.NodeFailConf](n, h, signal.NumNodeFailConf).Node = f.Node
		case signal.NumNodeUpRep:
			if h.To.Block() == signal.BlockLDM && signal.As[signal.NodeUpRep](h).Node == 51 {
				x.ups++
			}
		case signal.NumDrainReq:
			x.drains++
			if x.holdDrain && h.To.Block() == signal.BlockTC {
				return
			}
			conf[signal.DrainConf](n, h, signal.NumDrainConf).Ref = signal.As[signal.DrainReq](h).Ref
		}
	case signal.BlockDictionary, signal.BlockDistribution:
		switch h.Num {
		case signal.NumPhaseReq:
			p := signal.As[signal.PhaseReq](h)
			x.phases = append(x.phases, p.Phase)
			if p.Phase == x.holdPhase && p.Phase != 0 {
				return
			}
			c := conf[signal.PhaseConf](n, h, signal.NumPhaseConf)
			c.President, c.Attempt, c.Phase, c.Code = p.President, p.Attempt, p.Phase, 0
		case signal.NumNodeFailRep:
			if h.To.Block() == signal.BlockDictionary {
				conf[signal.NodeFailConf](n, h, signal.NumNodeFailConf).Node = signal.As[signal.NodeFailRep](h).Node
			}
		case signal.NumViewCommitReq:
			m := signal.As[signal.ViewReq](h)
			x.dict = [2]uint32{m.Count, m.President}
		}
	}
}

// linkAll links every pair of living processes that has no link, in random order.
func (r *rig) linkAll() {
	var pairs [][2]uint8
	for a := 1; a < 256; a++ {
		for b := a + 1; b < 256; b++ {
			x, y := r.net.Nodes[a], r.net.Nodes[b]
			if x != nil && y != nil && !x.Dead() && !y.Dead() && !r.net.Linked(uint8(a), uint8(b)) && (x.Kind == signal.PeerData || y.Kind == signal.PeerData) {
				pairs = append(pairs, [2]uint8{uint8(a), uint8(b)})
			}
		}
	}
	for i := range pairs {
		j := i + r.net.Rand(len(pairs)-i)
		pairs[i], pairs[j] = pairs[j], pairs[i]
		r.net.Link(pairs[i][0], pairs[i][1])
		for range r.net.Rand(12) { // let the link's first words travel, or not
			r.net.Step(r.net.Now())
		}
	}
}

func (r *rig) started(ids ...uint8) func() bool {
	return func() bool {
		for _, id := range ids {
			if r.n[id].b.state != started {
				return false
			}
		}
		return true
	}
}

func (r *rig) exited(ids ...uint8) func() bool {
	return func() bool {
		for _, id := range ids {
			if r.n[id].exit == nil {
				return false
			}
		}
		return true
	}
}

// settled: all started; or, because somebody was lost just after another had started, those ended and the rest waits.
func (r *rig) settled(ids ...uint8) func() bool {
	return func() bool {
		up, gone := 0, 0
		for _, id := range ids {
			switch r.n[id].b.state {
			case started:
				up++
			case ended:
				gone++
			case waiting:
			default:
				return false
			}
		}
		return up == len(ids) || up == 0 && gone > 0
	}
}

// up launches and starts a cluster of all configured nodes.
func (r *rig) up() []uint8 {
	r.t.Helper()
	var ids []uint8
	for _, n := range r.cfg.Nodes {
		ids = append(ids, n.ID)
		r.launch(n.ID, nil)
	}
	r.linkAll()
	if !r.net.Until(100*ms, r.started(ids...)) {
		r.t.Fatalf("not started; %v", r.net)
	}
	r.net.Run(0)
	return ids
}

func (x *node) saw(t event.Type) (n int) {
	for i := range x.events {
		if event.Type(x.events[i].Event) == t {
			n++
		}
	}
	return n
}

// send puts a signal to a node's membership in the name of a management server, as its manager passes it on.
func send[T any](r *rig, id uint8, num uint16) *T {
	return kernel.Send[T](r.net.Nodes[id].Env, signal.MakeAddr(id, signal.BlockMembership, 0), signal.MakeAddr(49, signal.BlockMgm, 0), num)
}

// addMgm makes a management server that counts the answers to stop requests.
func (r *rig) addMgm(ids ...uint8) *[]*signal.Head {
	answers := &[]*signal.Head{}
	m := r.net.Add(49, signal.PeerMgm)
	m.Handle = func(h *signal.Head) {
		b := make([]uint32, h.Len)
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&b[0])), len(b)*4), unsafe.Slice((*byte)(unsafe.Pointer(h)), h.Bytes()))
		if h.Num == signal.NumStopConf || h.Num == signal.NumStopRef {
			*answers = append(*answers, (*signal.Head)(unsafe.Pointer(&b[0])))
		}
	}
	for _, id := range ids {
		r.net.Link(49, id)
	}
	return answers
}
