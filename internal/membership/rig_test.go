package membership

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/arbitrator"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/exitcode"
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

	apart   [256]signal.NodeSet  // by node: those that it cannot reach, whether or not a link is open
	blocked [256]signal.NodeSet  // by node: ids that it does not link with until they are freed
	views   map[[3]uint32]string // run and number → members, as anybody has committed it
	newest  []seenView           // views in the order in which they were committed first
	log     []line
}

// seenView is a view that somebody has committed.
type seenView struct {
	run     [2]uint32
	number  uint32
	at      int64
	members signal.NodeSet
}

// line is something that a script shows.
type line struct {
	at   int64
	node uint8
	text string
}

func (r *rig) say(n uint8, format string, args ...any) {
	r.log = append(r.log, line{r.net.Now(), n, fmt.Sprintf(format, args...)})
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

	history     map[uint32]string // number → members of the views that it committed
	seen        []uint32          // numbers of the views that its distribution committed
	run         [2]uint32         // of the cluster, as of the newest of them
	members     signal.NodeSet    // of the newest
	told        uint32            // newest view that its blocks were told to prepare
	takeover    uint32            // newest TakeoverRep that its distribution heard
	shut        bool              // gate of its first coordinator
	stall       uint32            // milliseconds that its next HeardConf tells
	trusts      int               // TrustOrds
	frozen      int64             // since when its process has stood still; 0 = it runs
	single      uint32            // newest SingleOrd that its manager heard
	holdPrepare bool              // coordinators keep ViewPrepareConf back
	holdCommit  bool              // … ViewCommitConf
	held        []signal.ViewReq
}

func newRig(t *testing.T, seed uint64, ids ...uint8) *rig {
	r := &rig{t: t, net: kerneltest.New(seed), cfg: Config{LDMs: 2, TCs: 2, DrainTimeout: 1200 * ms}}
	for i, id := range ids {
		r.cfg.Nodes = append(r.cfg.Nodes, Node{ID: id, Group: uint16(i / 2)})
	}
	r.views = map[[3]uint32]string{}
	r.net.Seen = func(n *kerneltest.Node, h *signal.Head) {
		if h.Num == signal.NumLinkDownRep && n.Kind == signal.PeerData && h.From.Node() == n.ID && h.From.Block() == signal.BlockRuntime {
			r.blocked[n.ID].Add(uint8(signal.As[signal.LinkRep](h).Node))
		}
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
	r.blocked[id] = signal.NodeSet{}
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
				if len(x.order) == 0 {
					r.say(n.ID, "clients hear that it stops")
				}
				x.order = append(x.order, h.Num)
			}
		case signal.NumEventRep:
			e := signal.As[signal.EventRep](h)
			x.events = append(x.events, *e)
			switch event.Type(e.Event) {
			case event.ArbitState, event.ArbitResult, event.NextLossFatal, event.NodeDistrust, event.WarningEvent:
				r.say(n.ID, "%s", e.Text())
			case event.DeadDueToHeartbeat:
				r.say(n.ID, "does not hear node %d any more", e.Args[0])
			}
		case signal.NumSingleOrd:
			x.single = signal.As[signal.SingleOrd](h).Node
			r.say(n.ID, "single user mode for client %d", x.single)
		}
	case signal.BlockRuntime:
		switch h.Num {
		case signal.NumExitOrd:
			if x.exit != nil {
				r.t.Fatalf("node %d exits twice", n.ID)
			}
			e := *signal.As[signal.ExitOrd](h)
			x.exit, x.reason = &e, signal.As[signal.ExitOrd](h).Text()
			again := ""
			if e.Restart != 0 {
				again = ", starts again"
			}
			r.say(n.ID, "exits (%s%s): %s", exitcode.Text(int(e.Code)), again, x.reason)
			x.order = append(x.order, h.Num)
			r.net.Kill(n.ID)
		case signal.NumNodeFreeRep:
			f := uint8(signal.As[signal.NodeFreeRep](h).Node)
			if f <= signal.MaxDataNode && len(x.seen) > 0 && r.n[f] != nil && f < 49 {
				r.say(n.ID, "id %d may be used again", f)
			}
			x.freed = append(x.freed, f)
			r.blocked[n.ID].Remove(f)
		case signal.NumLinkCloseOrd:
			r.net.Close(n.ID, uint8(signal.As[signal.LinkCloseOrd](h).Node))
		case signal.NumHeardReq:
			if r.net.Pending(n.ID) { // it answers when it has taken in what has arrived
				n.Env.Forward(h)
				return
			}
			c := conf[signal.HeardConf](n, h, signal.NumHeardConf)
			c.Ref, c.Stall = signal.As[signal.HeardReq](h).Ref, x.stall
			x.stall = 0
			for i := range c.Age {
				c.Age[i] = signal.NoRef
				if last, _ := r.net.Heard(n.ID, uint8(i)); i != 0 && x.b.links.Has(uint8(i)) { // it may be cut without our knowing
					c.Age[i] = uint32((r.net.Now() - last) / ms)
				}
			}
		case signal.NumTrustOrd:
			x.trusts++
			r.say(n.ID, "trusted again")
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
			if h.To == signal.MakeAddr(n.ID, signal.BlockTC, 0) {
				r.say(n.ID, "coordinators let transactions end")
			}
			if x.holdDrain && h.To.Block() == signal.BlockTC {
				return
			}
			conf[signal.DrainConf](n, h, signal.NumDrainConf).Ref = signal.As[signal.DrainReq](h).Ref
		case signal.NumGateOrd:
			if h.To == signal.MakeAddr(n.ID, signal.BlockTC, 0) {
				x.shut = signal.As[signal.GateOrd](h).Shut != 0
				r.say(n.ID, "%s", map[bool]string{true: "gates shut", false: "gates open"}[x.shut])
			}
		default:
			r.view(n, x, h)
		}
	case signal.BlockDictionary, signal.BlockDistribution:
		switch h.Num {
		case signal.NumPhaseReq:
			p := signal.As[signal.PhaseReq](h)
			x.phases = append(x.phases, p.Phase)
			r.say(n.ID, "phase %d", p.Phase)
			if p.Phase == 0 {
				x.seen = nil
			}
			if p.Phase == x.holdPhase && p.Phase != 0 {
				return
			}
			c := conf[signal.PhaseConf](n, h, signal.NumPhaseConf)
			c.President, c.Attempt, c.Phase, c.Code = p.President, p.Attempt, p.Phase, 0
		case signal.NumNodeFailRep:
			if h.To.Block() == signal.BlockDictionary {
				conf[signal.NodeFailConf](n, h, signal.NumNodeFailConf).Node = signal.As[signal.NodeFailRep](h).Node
			}
		case signal.NumTakeoverRep:
			x.takeover = signal.As[signal.TakeoverRep](h).View
			r.say(n.ID, "takeover of view %d is done", x.takeover)
		default:
			r.view(n, x, h)
		}
	}
}

// view is a block's part in a change of the view.
func (r *rig) view(n *kerneltest.Node, x *node, h *signal.Head) {
	hold, num := x.holdPrepare, signal.NumViewPrepareConf
	switch h.Num {
	case signal.NumViewPrepareReq:
	case signal.NumViewCommitReq:
		hold, num = x.holdCommit, signal.NumViewCommitConf
	default:
		r.t.Fatalf("node %d: %s", n.ID, signal.Format(h))
	}
	v := signal.As[signal.ViewReq](h)
	if h.To.Block() == signal.BlockDistribution {
		r.seeView(n, x, v)
	}
	if hold && h.To.Block() == signal.BlockTC {
		k := *v
		k.Len = signal.HeadSize / 4
		x.held = append(x.held, k)
		return
	}
	answerView(n, v, num)
}

func answerView(n *kerneltest.Node, v *signal.ViewReq, num uint16) {
	c := kernel.Send[signal.ViewConf](n.Env, v.From, v.To, num)
	c.View, c.Attempt = v.View, v.Attempt
}

// letGo answers what blocks have kept back.
func (r *rig) letGo(id uint8) {
	x := r.n[id]
	x.holdPrepare, x.holdCommit = false, false
	for i := range x.held {
		num := signal.NumViewPrepareConf
		if x.held[i].Num == signal.NumViewCommitReq {
			num = signal.NumViewCommitConf
		}
		answerView(r.net.Nodes[id], &x.held[i], num)
	}
	x.held = nil
}

// seeView checks what a node's distribution is told of views: all nodes commit the same, one after the other, each
// prepared but for a process's first.
func (r *rig) seeView(n *kerneltest.Node, x *node, v *signal.ViewReq) {
	if v.Num == signal.NumViewPrepareReq {
		if len(x.seen) == 0 || v.View != x.seen[len(x.seen)-1]+1 {
			r.t.Fatalf("node %d prepares view %d after %v", n.ID, v.View, x.seen)
		}
		x.told = v.View
		return
	}
	again := v.View == 1 // a start may be tried more than once
	text := ""
	x.members = signal.NodeSet{}
	for _, m := range v.Members() {
		x.members.Add(uint8(m.Node))
		text += fmt.Sprintf(" %d%s", m.Node, [...]string{signal.MemberRecovering: "(recovering)", signal.MemberFollowing: "(following)", signal.MemberLeading: ""}[m.State])
	}
	if v.Single != 0 {
		text += fmt.Sprintf(", only client %d", v.Single)
	}
	switch k := len(x.seen); {
	case again:
		x.seen = x.seen[:0]
	case k > 0 && (v.View != x.seen[k-1]+1 || x.told != v.View):
		r.t.Fatalf("node %d commits view %d after %v, having prepared %d", n.ID, v.View, x.seen, x.told)
	}
	x.seen = append(x.seen, v.View)
	x.dict = [2]uint32{v.Count, v.President}
	key := [3]uint32{v.Run[0], v.Run[1], v.View}
	if was, ok := r.views[key]; ok && was != text {
		r.say(n.ID, "not the view %d of others", v.View)
	}
	if x.history == nil || again {
		x.history = map[uint32]string{}
	}
	x.history[v.View] = text
	if _, ok := r.views[key]; !ok {
		r.newest = append(r.newest, seenView{run: [2]uint32{v.Run[0], v.Run[1]}, number: v.View, at: r.net.Now(), members: x.members})
	}
	r.views[key] = text
	x.run = [2]uint32{v.Run[0], v.Run[1]}
	r.say(n.ID, "view %d:%s", v.View, text)
}

// linkAll links every pair of living processes that has no link and can reach each other, in random order.
func (r *rig) linkAll() {
	var pairs [][2]uint8
	for a := 1; a < 256; a++ {
		for b := a + 1; b < 256; b++ {
			x, y := r.net.Nodes[a], r.net.Nodes[b]
			if x != nil && y != nil && !x.Dead() && !y.Dead() && r.mayLink(uint8(a), uint8(b)) && (x.Kind == signal.PeerData || y.Kind == signal.PeerData) {
				pairs = append(pairs, [2]uint8{uint8(a), uint8(b)})
			}
		}
	}
	for i := range pairs {
		j := i + r.net.Rand(len(pairs)-i)
		pairs[i], pairs[j] = pairs[j], pairs[i]
		if r.net.Nodes[pairs[i][0]].Dead() || r.net.Nodes[pairs[i][1]].Dead() {
			continue // it has ended meanwhile
		}
		r.net.Link(pairs[i][0], pairs[i][1])
		for range r.net.Rand(12) { // let the link's first words travel, or not
			r.net.Step(r.net.Now())
		}
	}
}

// mayLink tells whether the runtimes of two nodes would link.
func (r *rig) mayLink(a, b uint8) bool {
	return !r.net.Linked(a, b) && !r.net.Linked(b, a) && r.net.Quiet(a, b) && !r.apart[a].Has(b) && !r.blocked[a].Has(b) && !r.blocked[b].Has(a)
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

// heal lets the runtimes do what they do: processes that are to start again are started, nodes that may link do. It tells
// whether all nodes have started, with the same view.
func (r *rig) heal(d int64, ids ...uint8) bool {
	until := r.net.Now() + d
	for r.net.Now() < until {
		r.net.Run(20 * ms)
		for _, id := range ids {
			if x := r.n[id]; r.net.Nodes[id].Dead() && (x.exit == nil || x.exit.Restart != 0) {
				r.launch(id, nil)
			}
		}
		r.linkAll()
		if r.agree(ids...) {
			return true
		}
	}
	return false
}

// agree tells whether all of these nodes, and only these, are in one view, have started, and all is taken over.
func (r *rig) agree(ids ...uint8) bool {
	for _, id := range ids {
		b, first := r.n[id].b, r.n[ids[0]].b
		if b.state != started || b.view.Number != first.view.Number || len(b.view.Members) != len(ids) || b.taken != b.view.Number {
			return false
		}
	}
	return true
}

func (r *rig) states(ids ...uint8) (s string) {
	for _, id := range ids {
		b := r.n[id].b
		s += fmt.Sprintf("\n  node %d: state %d, view %d %s, president %d, taken %d, leads %d, links %s, ticket %v, step %d", id, b.state, b.view.Number,
			listOf(ptr(b.view.Set())), b.view.President, b.taken, b.lead.state, listOf(&b.links), b.arb.cur, b.arb.step)
	}
	return s
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

// freeze stops a node's process for a while; its runtime says so when it runs again.
func (r *rig) freeze(id uint8) {
	r.net.Freeze(id, true)
	r.n[id].frozen = r.net.Now()
}

func (r *rig) thaw(id uint8) {
	x := r.n[id]
	r.net.Freeze(id, false)
	took := uint32((r.net.Now() - x.frozen) / ms)
	x.stall, x.frozen = took, 0
	if took < 100 {
		return
	}
	s := signal.StallRep{Head: signal.Head{Len: uint16(unsafe.Sizeof(signal.StallRep{}) / 4), Num: signal.NumStallRep,
		To: signal.MakeAddr(id, signal.BlockMembership, 0), From: signal.MakeAddr(id, signal.BlockRuntime, 0)}, Millis: took}
	r.net.Tell(id, &s.Head)
}

// safe fails if two parts of the cluster live: a node that commits, though a view without it has been committed a moment
// ago; two that run in different clusters, or have come by different views to where they are. (A node that is cut off may
// have committed a view that the others have not, since it was the last to hear that all had agreed; but then it does not go on.)
func (r *rig) safe(ids ...uint8) {
	r.t.Helper()
	var other *node
	for _, id := range ids {
		x := r.n[id]
		if x == nil || r.net.Nodes[id].Dead() || x.frozen != 0 || x.b.state != started && x.b.state != stopping || x.shut {
			continue
		}
		if other != nil {
			if other.run != x.run {
				r.t.Fatalf("two clusters run")
			}
			for number, text := range x.history {
				if o, ok := other.history[number]; ok && o != text {
					r.t.Fatalf("view %d is%s for some that go on and%s for node %d", number, o, text, id)
				}
			}
		}
		other = x
		for i := range r.newest {
			if v := &r.newest[i]; v.run == x.run && v.number > x.seen[len(x.seen)-1] && !v.members.Has(id) && v.at < r.net.Now() {
				r.t.Fatalf("node %d commits in view %d, though view %d without it holds for %d ms", id, x.seen[len(x.seen)-1], v.number, (r.net.Now()-v.at)/ms)
			}
		}
	}
}

// send puts a signal to a node's membership in the name of a management server, as its manager passes it on.
func send[T any](r *rig, id uint8, num uint16) *T {
	return kernel.Send[T](r.net.Nodes[id].Env, signal.MakeAddr(id, signal.BlockMembership, 0), signal.MakeAddr(49, signal.BlockMgm, 0), num)
}

// addMgm makes a management server that counts the answers to stop requests, and arbitrates.
func (r *rig) addMgm(ids ...uint8) *[]*signal.Head { return r.addMgmAt(49, ids...) }

func (r *rig) addMgmAt(id uint8, ids ...uint8) *[]*signal.Head {
	answers := &[]*signal.Head{}
	m := r.net.Add(id, signal.PeerMgm)
	r.n[id], r.blocked[id] = &node{}, signal.NodeSet{}
	m.Env.Place(signal.BlockArbitrator, 0, 0)
	arb := arbitrator.New(m.Env, arbitrator.Config{Tell: func(text string) { r.say(id, "%s", text) }})
	m.Handle = func(h *signal.Head) {
		if h.To.Block() == signal.BlockArbitrator {
			arb.Deliver(h)
			arb.Invariants()
			return
		}
		b := make([]uint32, h.Len)
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&b[0])), len(b)*4), unsafe.Slice((*byte)(unsafe.Pointer(h)), h.Bytes()))
		switch h.Num {
		case signal.NumStopConf:
			r.say(h.From.Node(), "agrees to stop")
		case signal.NumStopRef:
			r.say(h.From.Node(), "does not stop: %s", signal.As[signal.StopRef](h).Text())
		default:
			return
		}
		*answers = append(*answers, (*signal.Head)(unsafe.Pointer(&b[0])))
	}
	for _, n := range ids {
		r.net.Link(id, n)
	}
	return answers
}

func ptr[T any](x T) *T { return &x }
