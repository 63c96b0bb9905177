package membership

// Joining a running cluster, and the other planned changes of the view, as the president leads them.
//
//	newcomer --PeerRep (ready, linked to all members)--> president: a view with it, recovering
//	president --PhaseReq--> it --PhaseConf--> president       4 dictionary, 5 epochs, 6 copy
//	a view in which it follows; phase 7: clients are let in; a view in which it leads
//
// Planned changes wait until nothing is left of the one before. All that can be changed is changed in one view. In a node
// group in which a member recovers nobody takes primaries back, nor leaves: it copies from the primary.
//
// | signal            | president                                            | any other |
// | PhaseConf         | next phase, or a view; of an older president: stale  | stale     |
// | SingleOrd (wish)  | a view with it                                       | stale     |

import (
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/view"
)

// joins is the president's part in planned changes.
type joins struct {
	running uint32 // the own node's phase that is under way, while it joins; 0 = none

	attempt     uint32                         // of the PhaseReqs of this president
	out         [signal.MaxDataNode + 1]uint32 // phase that a member was asked for; 0 = none
	done        [signal.MaxDataNode + 1]uint32 // phase that it has finished
	leads       [signal.MaxDataNode + 1]int64  // by node: when it may lead, after it has started
	unconfirmed signal.NodeSet                 // members that have something left of lost ones
	since       int64                          // … or may have since
	grants      signal.NodeSet                 // members that may stop
	single      uint32                         // wanted, when wished
	wished      bool
}

// welcomeTime is how long a node that has come lets clients in before it leads: rows that a primary reads for a coordinator
// go straight to the client, and to one that has no link there yet they go nowhere.
const welcomeTime = 200 * millisecond

// begin begins with another president.
func (j *joins) begin(view uint32) {
	*j = joins{running: j.running, attempt: view}
}

// settled tells whether nothing is left of the last change of the view, so that a planned one may come.
func (b *Block) settled() bool {
	return b.isPresident() && b.state >= started && b.join.unconfirmed.Empty() && b.taken >= b.view.Number
}

// planned is who is in the next view if nobody is lost, and whether that differs from who is.
func (b *Block) planned() (members []signal.Member, change bool) {
	members = append(members, b.view.Members...)
	if !b.settled() || b.resigned(b.node) {
		return members, false
	}
	for i := range members {
		m := &members[i]
		n := uint8(m.Node)
		switch {
		case m.State == signal.MemberRecovering && b.join.done[n] == phaseCopy,
			m.State == signal.MemberLeading && b.join.grants.Has(n) && !b.recoversIn(m.Group):
			m.State, change = signal.MemberFollowing, true
		case m.State == signal.MemberFollowing && (b.join.done[n] == phaseStarted && b.env.Now() >= b.join.leads[n] || n == b.node) &&
			!b.join.grants.Has(n) && !b.recoversIn(m.Group):
			m.State, change = signal.MemberLeading, true
		}
	}
	for n := b.configured.Next(0); n != 0; n = b.configured.Next(n) {
		if !b.admissible(n) || !b.linkedWith(n, members) || newIn(members, b.peers[n].group) || b.recoversIn(b.peers[n].group) || b.leavesIn(b.peers[n].group) {
			continue
		}
		p := &b.peers[n]
		// A dynamic id is never given twice, even if the one that had the highest has left: a client that asks what became of
		// its commit at a lost member names the member by it. A view takes in at most MaxDataNode members.
		id := max(members[len(members)-1].DynamicID, signal.MaxDataNode*b.view.Number) + 1
		members = append(members, signal.Member{Node: uint32(n), DynamicID: id, Group: p.group,
			LDMs: p.ldms, TCs: p.tcs, State: signal.MemberRecovering})
		change = true
	}
	return members, change || b.join.wished && b.join.single != b.single
}

// recoversIn tells whether a member of a node group is still without its data.
func (b *Block) recoversIn(group uint32) bool {
	for _, m := range b.view.Members {
		if m.Group == group && m.State == signal.MemberRecovering && b.join.done[m.Node] != phaseCopy {
			return true
		}
	}
	return false
}

// leavesIn tells whether a member of a node group is about to stop.
func (b *Block) leavesIn(group uint32) bool {
	for _, m := range b.view.Members {
		n := uint8(m.Node)
		if m.Group == group && (b.join.grants.Has(n) || b.goes(n)) {
			return b.serves(b.view.Set(), n) // if it cannot go without the newcomer it waits for it
		}
	}
	return false
}

// newIn tells whether a list of members has somebody of a group that is no member yet.
func newIn(members []signal.Member, group uint32) bool {
	for _, m := range members {
		if m.Group == group && m.State == signal.MemberRecovering {
			return true
		}
	}
	return false
}

// admissible tells whether a node can be taken in: it is ready, and it and all members have links to each other.
func (b *Block) admissible(n uint8) bool {
	p := &b.peers[n]
	if b.view.Has(n) || !b.links.Has(n) || !p.known || p.state != signal.PeerReady || b.fail[n].out != 0 {
		return false
	}
	for _, m := range b.view.Members {
		o := uint8(m.Node)
		if !p.links.Has(o) || o != b.node && !b.peers[o].beat.hears.Has(n) {
			return false
		}
	}
	return true
}

// linkedWith tells whether a newcomer has links to those of a list that are newcomers too.
func (b *Block) linkedWith(n uint8, members []signal.Member) bool {
	for _, m := range members {
		if o := uint8(m.Node); !b.view.Has(o) && !(b.peers[n].links.Has(o) && b.peers[o].links.Has(n)) {
			return false
		}
	}
	return true
}

// drive asks members that join for their next phase.
func (b *Block) drive() {
	if !b.settled() {
		return
	}
	for _, m := range b.view.Members {
		n := uint8(m.Node)
		next := uint32(0)
		switch {
		case n == b.node:
		case m.State == signal.MemberRecovering && b.join.done[n] < phaseCopy:
			next = max(b.join.done[n]+1, phaseDictionary)
		case m.State == signal.MemberFollowing && b.join.done[n] < phaseStarted:
			next = phaseStarted
		}
		if next != 0 && b.join.out[n] != next {
			b.join.out[n] = next
			b.phaseReq(peerAt(n), b.join.attempt, next)
		}
	}
}

// onJoinPhase hears that a member that joins has finished a phase.
func (b *Block) onJoinPhase(r *signal.PhaseConf) {
	n := r.From.Node()
	if !b.isPresident() || !b.view.Has(n) || r.Attempt != b.join.attempt || r.Phase != b.join.out[n] {
		b.Stale++
		return
	}
	b.join.done[n] = r.Phase
	if r.Phase == phaseStarted {
		b.join.leads[n] = b.env.Now() + welcomeTime
	}
	b.drive()
	b.act()
}

// forgetMembers drops what the president knows of those that are no members any more, or have just come.
func (b *Block) forgetMembers(old *view.View) {
	for n := uint8(1); n <= signal.MaxDataNode; n++ {
		if !b.view.Has(n) || !old.Has(n) {
			b.join.out[n], b.join.done[n] = 0, 0
			b.join.grants.Remove(n)
		}
	}
}

// onSingleOrd hears that somebody wants single user mode, or its end: the own manager, or a member in its name.
func (b *Block) onSingleOrd(r *signal.SingleOrd) {
	switch {
	case r.From.Block() == signal.BlockManager:
		b.wish, b.wished = r.Node, true
		b.wishOn()
	case b.isPresident() && b.view.Has(r.From.Node()) && b.state >= started && b.state != draining:
		b.join.single, b.join.wished = r.Node, r.Node != b.single
		b.act()
	default:
		b.Stale++
	}
}

// wishOn tells the manager that its wish has come true, or the president that there is one.
func (b *Block) wishOn() {
	switch {
	case !b.wished || b.state != started && b.state != stopping:
	case b.wish == b.single:
		b.wished = false
		b.tellSingle()
	default:
		r := kernel.Send[signal.SingleOrd](b.env, peerAt(b.view.President), b.self, signal.NumSingleOrd)
		r.Ref, r.Node = 0, b.wish
	}
}

func (b *Block) tellSingle() {
	r := kernel.Send[signal.SingleOrd](b.env, b.at(signal.BlockManager), b.self, signal.NumSingleOrd)
	r.Ref, r.Node = 0, b.single
}

// singleChanged makes the manager carry out what the view says about single user mode.
func (b *Block) singleChanged(was uint32) {
	if b.single != was {
		if b.wished && b.wish == b.single {
			b.wished = false
		}
		b.tellSingle()
		if b.isPresident() {
			if b.single != 0 {
				b.reportText(event.SingleUser, "entered", 1, b.single)
			} else {
				b.reportText(event.SingleUser, "ended", 0, was)
			}
		}
	}
	b.wishOn()
	invariant.That(b.single <= 255, "a client has a node id")
}
