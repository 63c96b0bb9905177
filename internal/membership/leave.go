package membership

// A planned stop of this node alone: the others go on without a gap.
//
//	manager --StopReq--> membership --LeaveReq(LeaveHand)--> president --LeaveConf--> membership --StopConf--> mgm
//	a view in which the node follows: its primaries have moved; clients have heard that it stops
//	each of its coordinators --DrainReq / DrainConf--
//	membership --LeaveReq(LeaveGo)--> all members; the leader makes a view without it, and it agrees; it exits
//
// The node pursues its stop by itself: a new president is asked again. If its node group loses its other members
// meanwhile it stays until one is back. With StopForce it goes without asking when it is refused.
//
// | signal          | asked               | handing, draining, going            | not leaving      |
// | StopReq         | refuse              | refuse                              | ask              |
// | LeaveConf       | hand over           | note                                | stale            |
// | LeaveRef        | refuse, or go       | ask again later                     | stale            |
// | DrainConf       | stale               | draining: count                     | stop.go, or stale|
// | LeaveReq(Hand)  | as president: grant or refuse          |||
// | LeaveReq(Go)    | note: the sender leads nothing any more; it goes  |||

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

const (
	leaveNone = iota
	leaveAsked
	leaveHanding
	leaveDraining
	leaveGoing
)

// departure is a planned stop of the own node alone.
type departure struct {
	stage   int
	flags   uint32
	nodes   signal.NodeSet // that were asked to stop together
	from    signal.Addr    // who asked
	ref     uint32
	granted uint8 // president that has granted it; 0 = none yet
}

const sizeofLeaveRef = unsafe.Sizeof(signal.LeaveRef{})

// onStopReq hears that somebody wants the node to stop. From is the management server, whose request the manager
// passed on as it was.
func (b *Block) onStopReq(r *signal.StopReq) {
	nodes := signal.NodeSet(r.Nodes)
	set := b.view.Set()
	switch {
	case b.state < started:
		b.stopConf(r.From, r.Ref)
		b.exit(exitcode.Done, restartFlags(r.Flags), "stopped before it had started, as management asked")
	case b.state == draining:
		b.Stale++
		b.stopConf(r.From, r.Ref)
	case r.Flags&signal.StopAll != 0, nodes.Covers(&set):
		b.stopConf(r.From, r.Ref)
		kernel.Send[signal.ClusterStopReq](b.env, peerAt(b.view.President), b.self, signal.NumClusterStopReq).Flags = r.Flags
	case b.leave.stage != leaveNone:
		b.stopRef(r.From, r.Ref, codeStopRefused, "node "+number(uint32(b.node))+" is about to stop already")
	default:
		b.leave = departure{stage: leaveAsked, flags: r.Flags, nodes: nodes, from: r.From, ref: r.Ref}
		b.leaveReq(b.view.President, signal.LeaveHand)
	}
}

func (b *Block) stopConf(to signal.Addr, ref uint32) {
	kernel.Send[signal.StopConf](b.env, to, b.self, signal.NumStopConf).Ref = ref
}

func (b *Block) stopRef(to signal.Addr, ref, code uint32, text string) {
	s := (*signal.StopRef)(b.env.Put(to, b.self, signal.NumStopRef, uint32(sizeofStopRef)+signal.Pad(uint32(len(text)))))
	s.Ref, s.Code, s.TextLen = ref, code, uint32(len(text))
	kernel.PutBytes(tailOf(s), text)
}

func (b *Block) leaveReq(to uint8, step uint32) {
	r := kernel.Send[signal.LeaveReq](b.env, peerAt(to), b.self, signal.NumLeaveReq)
	r.Nodes, r.Flags, r.Step = b.leave.nodes, b.leave.flags, step
}

// onLeaveReq hears, as president, that a member wants to stop; or that one leads nothing any more.
func (b *Block) onLeaveReq(r *signal.LeaveReq) {
	n := r.From.Node()
	if !b.active() || !b.view.Has(n) {
		b.Stale++
		return
	}
	if r.Step == signal.LeaveGo {
		b.peers[n].going = true
		b.act()
		return
	}
	if r.Step == signal.LeaveAgain && !b.isPresident() {
		b.Stale++
		return
	}
	if why := b.mayLeave(n, &r.Nodes); why != "" && r.Step != signal.LeaveAgain {
		s := (*signal.LeaveRef)(b.env.Put(r.From, b.self, signal.NumLeaveRef, uint32(sizeofLeaveRef)+signal.Pad(uint32(len(why)))))
		s.Code, s.TextLen = codeStopRefused, uint32(len(why))
		kernel.PutBytes(tailOf(s), why)
		return
	}
	b.join.grants.Add(n)
	kernel.Send[signal.LeaveConf](b.env, r.From, b.self, signal.NumLeaveConf)
	b.act()
}

// mayLeave says why a member may not stop now; nothing if it may. Nodes are all that want to stop together.
func (b *Block) mayLeave(n uint8, nodes *signal.NodeSet) string {
	if !b.isPresident() {
		return "the president of the cluster is changing: try again"
	}
	others := b.join.grants.Minus(nodes)
	others.Remove(n)
	left := b.view.ServingSet()
	left = left.Minus(nodes)
	left = left.Minus(&b.join.grants)
	left.Remove(n)
	lost := signal.NodeSet{}
	for _, m := range b.view.Members {
		if o := uint8(m.Node); o != b.node && !b.heard(o) {
			lost.Add(o)
		}
	}
	switch m := b.view.Member(n); {
	case !others.Empty():
		return "node " + listOf(&others) + " is being stopped: try again when it is out of the cluster"
	case !lost.Empty() || b.tookOver():
		return "a node failure is being handled: try again in a moment"
	case b.recoversIn(m.Group):
		return "another node of node group " + number(m.Group) + " is being started and needs this one: try again when it has started"
	case !b.serves(left, 0):
		return "without " + listOf(nodes) + " a node group would have no node with its data: stop the whole cluster, or use force (-f)"
	}
	return ""
}

// tookOver tells whether a takeover of lost members is under way.
func (b *Block) tookOver() bool {
	for n := b.configured.Next(0); n != 0; n = b.configured.Next(n) {
		if b.fail[n].out != 0 {
			return true
		}
	}
	return false
}

func (b *Block) onLeaveConf(r *signal.LeaveConf) {
	n := r.From.Node()
	l := &b.leave
	if l.stage == leaveNone || b.state == draining || n != b.view.President {
		b.Stale++
		return
	}
	l.granted = n
	if l.stage != leaveAsked {
		return
	}
	l.stage = leaveHanding
	b.stopConf(l.from, l.ref)
	b.report(event.NDBStopStarted, event.StopScopeNode)
	b.become(stopping) // clients go elsewhere from now on
	b.tellPeers()
	b.leaveOn()
}

func (b *Block) onLeaveRef(r *signal.LeaveRef) {
	l := &b.leave
	if l.stage != leaveAsked {
		b.Stale++
		return
	}
	if l.flags&signal.StopForce == 0 {
		b.stopRef(l.from, l.ref, r.Code, r.Text())
		*l = departure{}
		return
	}
	// By force: the others will see what they can do without it.
	b.stopConf(l.from, l.ref)
	b.report(event.NDBStopStarted, event.StopScopeNode)
	b.become(stopping)
	b.tellPeers()
	b.leaveDrain(true)
}

// leaveOn goes on leaving when a view has been committed at the own node, or the president has agreed.
func (b *Block) leaveOn() {
	l := &b.leave
	if l.stage == leaveNone {
		return
	}
	if l.granted != b.view.President && l.granted != 0 && l.stage < leaveGoing {
		l.granted = 0
		b.leaveReq(b.view.President, signal.LeaveAgain)
	}
	switch {
	case l.stage == leaveHanding && b.view.State(b.node) == signal.MemberFollowing && b.mem.owing == 0:
		b.leaveDrain(false)
	case l.stage == leaveGoing:
		b.leaveGo()
	}
}

// leaveDrain lets the transactions of the own coordinators end.
func (b *Block) leaveDrain(alone bool) {
	b.leave.stage = leaveDraining
	if alone {
		b.leave.granted = b.node
		b.leave.flags |= signal.StopForce
	} else {
		b.leave.flags &^= signal.StopForce
	}
	b.drain(b.leave.flags, false)
}

// leaveDrained goes on when they have ended.
func (b *Block) leaveDrained() {
	if b.leave.flags&signal.StopForce != 0 {
		b.exit(exitcode.Done, restartFlags(b.leave.flags), "stopped by force, as management asked")
		return
	}
	b.leave.stage = leaveGoing
	b.lead.rest()
	b.leaveGo()
	b.act()
}

// leaveGo tells everybody that the own node leads nothing any more, so that somebody else takes it out.
func (b *Block) leaveGo() {
	for _, m := range b.view.Members {
		if n := uint8(m.Node); n != b.node && b.links.Has(n) {
			b.leaveReq(n, signal.LeaveGo)
		}
	}
}

// leaveAgain asks a new president.
func (b *Block) leaveAgain() {
	l := &b.leave
	if l.stage == leaveAsked && !b.links.Has(b.view.President) && !b.isPresident() {
		b.stopRef(l.from, l.ref, codeStopRefused, "the president of the cluster was lost: try again")
		*l = departure{}
		return
	}
	if l.stage >= leaveHanding && l.stage < leaveGoing && l.granted == 0 && b.state == stopping {
		b.leaveReq(b.view.President, signal.LeaveAgain)
	}
}
