package kerneltest

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// Views stands for the membership of all nodes: it takes them through changes of the view, signal by signal, as package
// signal's view.go describes it, so that the blocks of a test hear them at different times. Who is lost it knows from the
// Net rather than from the signals, and everybody always goes on without the lost.
//
// Deliver is given the signals to the nodes' memberships. A node that is killed is put out of the view as soon as the others
// have heard of it; Join and Promote change the view for other reasons. Each change waits for the one before it.
type Views struct {
	// Blocks are what hears of the views at each node, all instances of them; TakeoverRep goes to the first only.
	Blocks []uint8
	// Committed is called when a node commits a view; Ended when a takeover has ended for the president. nil = nobody looks.
	Committed func(node uint8, number uint32)
	Ended     func(number uint32)
	// Hold keeps the end of a takeover back until Release.
	Hold bool

	net    *Net
	at     [256]*viewer
	next   viewOf // the change under way; number 0 = none
	asked  bool   // next has been asked for, but not yet committed anywhere
	doing  []want // what next is for, apart from losses; at most one
	wanted []want // changes that come afterwards
	dyn    uint32 // newest dynamic id
	first  [2]uint32
	conf   signal.NodeSet // members who have confirmed the round
}

// viewOf is a view.
type viewOf struct {
	number, attempt uint32
	members         []signal.Member
}

// want is a change that somebody wants.
type want struct {
	node  uint8
	state uint32 // 0: put the node out
	group uint32
}

// viewer is one node's membership.
type viewer struct {
	has      viewOf // committed
	prepared viewOf
	waits    bool   // prepared waits for the end of links
	owed     [2]int // blocks that have not confirmed prepared, and has
	down     signal.NodeSet
}

// NewViews makes the membership of a net.
func NewViews(net *Net, blocks ...uint8) *Views { return &Views{net: net, Blocks: blocks} }

// Start gives all these nodes the first view.
func (v *Views) Start(members []signal.Member, first [2]uint32) {
	v.first = first
	for _, m := range members {
		v.at[m.Node] = &viewer{}
		v.dyn = max(v.dyn, m.DynamicID)
	}
	for _, m := range members {
		v.take(v.net.Nodes[m.Node], viewOf{1, 1, members})
	}
}

// Join takes a node in, as recovering; Promote changes a member's state.
func (v *Views) Join(node uint8, group uint32) {
	v.at[node] = &viewer{}
	v.wanted = append(v.wanted, want{node, signal.MemberRecovering, group})
	v.lead()
}

// Promote changes a member's state.
func (v *Views) Promote(node uint8, state uint32) {
	v.wanted = append(v.wanted, want{node: node, state: state})
	v.lead()
}

// Members is the newest view that anybody alive has committed, and its number.
func (v *Views) Members() ([]signal.Member, uint32) {
	n := v.newest()
	return n.members, n.number
}

// President is its president, 0 = there is none.
func (v *Views) President() uint8 {
	if n := v.newest(); len(n.members) > 0 {
		return uint8(n.members[0].Node)
	}
	return 0
}

// Quiet tells whether no change is under way or wanted.
func (v *Views) Quiet() bool {
	n := v.newest()
	for _, m := range n.members {
		if v.net.Nodes[m.Node].dead {
			return false
		}
	}
	return v.next.number == 0 && len(v.wanted) == 0
}

func (v *Views) newest() viewOf {
	var n viewOf
	for id, a := range v.at {
		if a != nil && !v.net.Nodes[id].dead && a.has.number > n.number {
			n = a.has
		}
	}
	return n
}

func membershipOf(n uint8) signal.Addr { return signal.MakeAddr(n, signal.BlockMembership, 0) }

// put sends a view.
func (v *Views) put(n *Node, to signal.Addr, num uint16, w viewOf) {
	r := (*signal.ViewReq)(n.Env.Put(to, membershipOf(n.ID), num, signal.ViewReqSize(len(w.members))))
	r.View, r.Attempt, r.President, r.GCI, r.Count = w.number, w.attempt, w.members[0].Node, v.first, uint32(len(w.members))
	copy(r.Members(), w.members)
}

// toBlocks gives a view to the blocks of a node, and returns how many will answer.
func (v *Views) toBlocks(n *Node, num uint16, w viewOf) int {
	owed := 0
	for _, b := range v.Blocks {
		for i := range n.Env.Instances(b) {
			v.put(n, signal.MakeAddr(n.ID, b, uint16(i)), num, w)
			owed++
		}
	}
	return owed
}

func (v *Views) take(n *Node, w viewOf) {
	a := v.at[n.ID]
	a.has, a.waits = w, false
	a.owed[1] = v.toBlocks(n, signal.NumViewCommitReq, w)
	if v.Committed != nil {
		v.Committed(n.ID, w.number)
	}
}

func takeView(r *signal.ViewReq) viewOf {
	return viewOf{r.View, r.Attempt, append([]signal.Member(nil), r.Members()...)}
}

// leader is who leads the next change: the lowest member that is alive.
func (v *Views) leader() *Node {
	for _, m := range v.newest().members {
		if n := v.net.Nodes[m.Node]; !n.dead {
			return n
		}
	}
	return nil
}

// Deliver takes a signal to a node's membership; false = it is not about views.
func (v *Views) Deliver(n *Node, h *signal.Head) bool {
	a := v.at[n.ID]
	if a == nil {
		return false
	}
	switch h.Num {
	case signal.NumLinkDownRep:
		r := signal.As[signal.LinkRep](h)
		if signal.Peer(r.Kind) != signal.PeerData {
			return false
		}
		a.down.Add(uint8(r.Node))
		v.prepare(n)
		v.lead()
	case signal.NumLinkUpRep:
		r := signal.As[signal.LinkRep](h)
		a.down.Remove(uint8(r.Node))
		return false
	case signal.NumViewPrepareReq:
		a.prepared, a.waits = takeView(signal.As[signal.ViewReq](h)), true
		v.prepare(n)
	case signal.NumViewPrepareConf:
		r := signal.As[signal.ViewConf](h)
		if h.From.Block() != signal.BlockMembership {
			if r.View == a.prepared.number && r.Attempt == a.prepared.attempt {
				if a.owed[0]--; a.owed[0] == 0 {
					v.answer(n, signal.NumViewPrepareConf, a.prepared)
				}
			}
			break
		}
		if v.asked && r.View == v.next.number && r.Attempt == v.next.attempt {
			v.conf.Add(h.From.Node())
			if v.all() {
				v.asked = false
				v.round(n, signal.NumViewCommitReq)
				v.take(n, v.next)
			}
		}
	case signal.NumViewCommitReq:
		if w := takeView(signal.As[signal.ViewReq](h)); w.number > a.has.number {
			v.take(n, w)
		} else if w.number > 1 && a.owed[1] == 0 && n != v.leader() {
			v.answer(n, signal.NumViewCommitConf, w)
		}
	case signal.NumViewCommitConf:
		r := signal.As[signal.ViewConf](h)
		if h.From.Block() != signal.BlockMembership {
			if r.View == a.has.number {
				if a.owed[1]--; a.owed[1] == 0 && r.View > 1 {
					v.answer(n, signal.NumViewCommitConf, a.has)
				}
			}
			break
		}
		if !v.asked && r.View == v.next.number {
			v.conf.Add(h.From.Node())
			if v.all() {
				v.over(n)
			}
		}
	case signal.NumTakeoverRep:
		t := kernel.Send[signal.TakeoverRep](n.Env, signal.MakeAddr(n.ID, v.Blocks[0], 0), membershipOf(n.ID), signal.NumTakeoverRep)
		t.View = signal.As[signal.TakeoverRep](h).View
	default:
		return false
	}
	return true
}

// prepare passes a prepare on when the links to all that are lost are down.
func (v *Views) prepare(n *Node) {
	a := v.at[n.ID]
	if !a.waits {
		return
	}
	for _, m := range a.has.members {
		if !a.prepared.has(uint8(m.Node)) && !a.down.Has(uint8(m.Node)) {
			return
		}
	}
	a.waits = false
	a.owed[0] = v.toBlocks(n, signal.NumViewPrepareReq, a.prepared)
}

func (w *viewOf) has(n uint8) bool {
	for _, m := range w.members {
		if uint8(m.Node) == n {
			return true
		}
	}
	return false
}

func (v *Views) answer(n *Node, num uint16, w viewOf) {
	if l := v.leader(); l != nil {
		c := kernel.Send[signal.ViewConf](n.Env, membershipOf(l.ID), membershipOf(n.ID), num)
		c.View, c.Attempt = w.number, w.attempt
	}
}

func (v *Views) all() bool {
	for _, m := range v.next.members {
		if !v.conf.Has(uint8(m.Node)) {
			return false
		}
	}
	return true
}

// round sends one of the rounds of the change under way to all members to come.
func (v *Views) round(leader *Node, num uint16) {
	v.conf = signal.NodeSet{}
	for _, m := range v.next.members {
		v.put(leader, membershipOf(uint8(m.Node)), num, v.next)
	}
}

// Release lets a takeover end that Hold kept back.
func (v *Views) Release() {
	v.Hold = false
	if l := v.leader(); l != nil && v.next.number != 0 && !v.asked && v.all() {
		v.over(l)
	}
}

// over ends a change.
func (v *Views) over(leader *Node) {
	if v.Hold {
		return
	}
	for _, m := range v.next.members {
		t := kernel.Send[signal.TakeoverRep](leader.Env, membershipOf(uint8(m.Node)), membershipOf(leader.ID), signal.NumTakeoverRep)
		t.View = v.next.number
	}
	if v.Ended != nil {
		v.Ended(v.next.number)
	}
	v.next, v.doing = viewOf{}, nil
	v.lead()
}

// known tells whether everybody who is alive has heard all that a lost node had sent.
func (v *Views) known(members []signal.Member, lost uint8) bool {
	for _, m := range members {
		if !v.net.Nodes[m.Node].dead && !v.at[m.Node].down.Has(lost) {
			return false
		}
	}
	return true
}

// lead begins what is to be done next, if anything is and everybody knows all that are lost.
func (v *Views) lead() {
	leader := v.leader()
	if leader == nil {
		return
	}
	now := v.newest()
	to := viewOf{number: now.number + 1, attempt: v.next.attempt + 1}
	lost := false
	for _, m := range now.members {
		switch {
		case !v.net.Nodes[m.Node].dead:
			to.members = append(to.members, m)
		case !v.known(now.members, uint8(m.Node)) || !v.known(v.next.members, uint8(m.Node)):
			return // they will hear
		default:
			lost = true
		}
	}
	fresh := false // the change under way has lost somebody
	for _, m := range v.next.members {
		fresh = fresh || v.net.Nodes[m.Node].dead
	}
	if !lost && !fresh && v.next.number != 0 {
		return
	}
	for _, m := range to.members { // whoever has not committed the newest view does so first
		if v.at[m.Node].has.number < now.number {
			v.put(leader, membershipOf(uint8(m.Node)), signal.NumViewCommitReq, now)
		}
	}
	if v.next.number > now.number { // nobody alive has taken it: again, later
		v.wanted = append(v.doing, v.wanted...)
	}
	v.doing = nil
	if !lost && !fresh {
		if len(v.wanted) == 0 {
			return
		}
		w := v.wanted[0]
		v.wanted, v.doing = v.wanted[1:], []want{w}
		if v.net.Nodes[w.node].dead {
			v.lead()
			return
		}
		found := false
		for i := range to.members {
			if m := &to.members[i]; uint8(m.Node) == w.node {
				m.State, found = w.state, true
			}
		}
		if !found {
			invariant.That(w.state == signal.MemberRecovering, "a node joins before it is promoted")
			v.dyn++
			n := v.net.Nodes[w.node]
			to.members = append(to.members, signal.Member{Node: uint32(w.node), DynamicID: v.dyn, Group: w.group, LDMs: n.LDMs, TCs: n.TCs, State: w.state})
		}
	}
	if lost || fresh || len(to.members) > 0 {
		v.next, v.asked = to, true
		v.round(leader, signal.NumViewPrepareReq)
	}
}
