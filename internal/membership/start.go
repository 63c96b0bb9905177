package membership

// How nodes find each other and agree to start:
//
//	each node --PeerRep--> each other, when their link comes up and when its own state or links change
//	president --StartReq--> all members: each block --ViewCommitReq / Conf--; --StartConf--> president
//
// A node proposes a start when it is ready, everybody who must be there is ready, all have links to each other, nobody
// runs already, and its number is the lowest of those.
//
// | signal           | held, waiting    | starting                            | leaving | joining, started, stopping | draining |
// | PeerRep          | note, maybe act  | note; leave if it left the attempt  | note    | note; maybe take it in     | note     |
// | StartReq         | join or refuse   | refuse                              | refuse  | refuse                     | refuse   |
// | StartConf        | stale            | count, or stale                     | stale   | stale                      | stale    |
// | StartRef         | stale            | leave, or stale                     | stale   | stale                      | stale    |
// | JoinRef          | exit             | exit                                | exit    | exit                       | exit     |

import (
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/view"
)

// peer is what is known of another data node.
type peer struct {
	group uint32 // configured
	known bool   // a PeerRep came since the link is up; what follows is from the newest one
	state uint32
	ldms  uint32
	tcs   uint32
	gci   signal.GCI
	links signal.NodeSet
	heard uint32 // our newest StartReq that it has seen
	asked uint32 // our newest StartReq that was sent to it since the link is up; 0 = none
	seen  uint32 // its newest StartReq that we have seen since the link is up; 0 = none

	lost   bool   // a member whose link has ended
	forced bool   // … and that had said that it stops
	going  bool   // it leads nothing any more and wants to be out of the view (LeaveGo)
	lags   bool   // the president wants it out of the view: it does not finish an epoch, or does not answer
	beat   beat   // its newest heartbeat
	ping   uint32 // newest Ping of it that was answered
	pinged int64  // … when
	since  int64  // when it became a member: it has heard the own node then
}

// poke makes a node that may need nobody else look whether it can start. It goes round by the job buffer, so that all
// blocks exist when it acts.
func (b *Block) poke() { b.tellPeer(b.node) }

func (b *Block) onLinkUpRep(r *signal.LinkRep) {
	n := uint8(r.Node)
	b.toManager(&r.Head)
	if signal.Peer(r.Kind) != signal.PeerData {
		invariant.That(!b.fail[n].busy, "a node id is used again only after it was freed")
		b.outer.Add(n)
		if signal.Peer(r.Kind) == signal.PeerAPI {
			for i := range b.env.Instances(signal.BlockLDM) {
				u := kernel.Send[signal.NodeUpRep](b.env, signal.MakeAddr(b.node, signal.BlockLDM, uint16(i)), b.self, signal.NumNodeUpRep)
				u.Node = uint32(n)
			}
		}
		b.outerChanged(n)
		return
	}
	invariant.That(n != b.node && n >= 1 && n <= signal.MaxDataNode && !b.links.Has(n), "a data node's links come up once")
	b.links.Add(n)
	p := &b.peers[n]
	*p = peer{group: p.group, lost: p.lost}
	b.tellPeer(n)
	if b.state <= waiting { // who else takes part depends on all links
		b.tellPeers()
	}
	b.prepareOn()
	b.heardChanged()
}

// toManager passes a link's news on.
func (b *Block) toManager(h *signal.Head) {
	h.To, h.From = b.at(signal.BlockManager), b.self
	b.env.Forward(h)
}

// required is who must be there before the cluster starts, the own node left out.
func (b *Block) required() signal.NodeSet {
	r := b.configured.Minus(&b.cfg.NoWait)
	r.Remove(b.node)
	return r
}

// tellPeer tells one node how the own node is.
func (b *Block) tellPeer(n uint8) {
	s := uint32(signal.PeerBusy)
	switch b.state {
	case held:
		s = signal.PeerHeld
	case waiting:
		s = signal.PeerReady
	case started:
		s = signal.PeerStarted
	case stopping, draining:
		s = signal.PeerStopping
	}
	r := kernel.Send[signal.PeerRep](b.env, peerAt(n), b.self, signal.NumPeerRep)
	r.State, r.Group, r.LDMs, r.TCs = s, b.group, uint32(b.cfg.LDMs), uint32(b.cfg.TCs)
	r.Heard, r.GCI, r.Links = b.peers[n].seen, b.gci.Words(), b.links
	r.Run, r.View = b.run, b.view.Number
}

func (b *Block) tellPeers() {
	for n := b.links.Next(0); n != 0; n = b.links.Next(n) {
		b.tellPeer(n)
	}
}

func (b *Block) onPeerRep(r *signal.PeerRep) {
	n := r.From.Node()
	if n == b.node { // a poke
		b.tryStart()
		return
	}
	if !b.links.Has(n) {
		b.Stale++
		return
	}
	if !b.configured.Has(n) || r.Group != b.peers[n].group {
		b.refuse(n, signal.JoinRefConfig, "the configuration of the others does not have this node in this node group: give all nodes the same configuration")
		return
	}
	p := &b.peers[n]
	ran := p.known && p.state == signal.PeerStarted
	p.known, p.state, p.ldms, p.tcs = true, r.State, r.LDMs, r.TCs
	p.gci, p.links, p.heard = signal.JoinGCI(r.GCI), r.Links, r.Heard
	switch b.state {
	case waiting:
		if p.state == signal.PeerStarted && !ran {
			b.tellPeer(n) // it takes us in when it knows our links
		}
		b.tryStart()
	case starting:
		// The president leaves with each member, and each member with the president.
		left := p.state == signal.PeerReady || p.state == signal.PeerHeld
		switch {
		case left && b.isPresident() && b.view.Has(n) && p.heard == b.attempt && b.mayGiveUp():
			b.giveUp()
		case left && n == b.view.President:
			b.giveUp()
		}
	case joining, started, stopping:
		if p.ran() && !b.view.Has(n) && b.outranks(r) {
			b.refuse(n, signal.JoinRefOut, "the other data nodes run without this one: it starts again")
		}
		b.act()
	}
}

// outranks tells which of two nodes that run without each other goes on: of one run of the cluster the one with the newer
// view, since it has put the other out. Two clusters that were started without each other are an operator's mistake (he
// said that nobody need be waited for); one of them ends.
func (b *Block) outranks(r *signal.PeerRep) bool {
	if r.Run == b.run {
		return b.view.Number > r.View
	}
	return b.run[0] < r.Run[0] || b.run[0] == r.Run[0] && b.run[1] < r.Run[1]
}

// ran tells whether a peer runs in a cluster.
func (p *peer) ran() bool { return p.state == signal.PeerStarted || p.state == signal.PeerStopping }

// refuse tells a node that it cannot be in this cluster.
func (b *Block) refuse(n uint8, code uint32, text string) {
	size := uint32(sizeofJoinRef) + signal.Pad(uint32(len(text)))
	r := (*signal.JoinRef)(b.env.Put(peerAt(n), b.self, signal.NumJoinRef, size))
	r.Code, r.TextLen = code, uint32(len(text))
	kernel.PutBytes(tailOf(r), text)
}

func (b *Block) onJoinRef(r *signal.JoinRef) {
	b.report(event.JoinRefused, uint32(b.node), uint32(r.From.Node()), r.Code)
	if r.Code == signal.JoinRefOut {
		b.exit(exitcode.PutOut, signal.StopRestart, r.Text())
		return
	}
	b.exit(exitcode.Refused, 0, r.Text())
}

func (b *Block) onStartOrd() {
	if b.state != held {
		b.Stale++
		return
	}
	b.become(waiting)
	b.tellPeers()
	b.tryStart()
}

// ready tells whether a peer can take part in an attempt.
func (p *peer) ready() bool { return p.known && p.state == signal.PeerReady && p.heard == p.asked }

// tryStart proposes a start when the time has come and it is on us to do so.
func (b *Block) tryStart() {
	if b.state != waiting {
		return
	}
	var set signal.NodeSet
	set.Add(b.node)
	for n := b.links.Next(0); n != 0; n = b.links.Next(n) {
		if b.peers[n].ready() {
			set.Add(n)
		}
		if b.peers[n].ran() {
			return // it takes us in
		}
	}
	required := b.required()
	if !set.Covers(&required) {
		return
	}
	for n := set.Next(0); n != 0; n = set.Next(n) {
		linked := b.peers[n].links
		linked.Add(n)
		if n != b.node && !linked.Covers(&required) {
			return // it does not see everybody yet, and will tell when it does
		}
	}
	b.withoutStrangers(&set, &required)
	if set.Next(0) != b.node || !b.everyGroup(&set) {
		return
	}
	b.propose(&set)
}

// withoutStrangers takes those out of the set who need not be there and have no link to one of the others yet.
func (b *Block) withoutStrangers(set, required *signal.NodeSet) {
	for again := true; again; {
		again = false
		for n := set.Next(0); n != 0; n = set.Next(n) {
			if n == b.node || required.Has(n) {
				continue
			}
			for o := set.Next(0); o != 0; o = set.Next(o) {
				if o != n && o != b.node && (!b.peers[o].links.Has(n) || !b.peers[n].links.Has(o)) {
					set.Remove(n)
					again = true
					break
				}
			}
		}
	}
}

// everyGroup tells whether each node group has a node in the set: without that data would have no place.
func (b *Block) everyGroup(set *signal.NodeSet) bool {
	for _, n := range b.cfg.Nodes {
		here := false
		for _, o := range b.cfg.Nodes {
			here = here || o.Group == n.Group && set.Has(o.ID)
		}
		if !here {
			return false
		}
	}
	return true
}

// propose makes the own node president of an attempt.
func (b *Block) propose(set *signal.NodeSet) {
	b.begin.attempts++
	newest := b.gci
	var members []signal.Member
	for n := set.Next(0); n != 0; n = set.Next(n) {
		p := &b.peers[n]
		m := signal.Member{Node: uint32(n), DynamicID: uint32(len(members) + 1), Group: p.group, LDMs: p.ldms, TCs: p.tcs,
			State: signal.MemberLeading}
		if n == b.node {
			m.LDMs, m.TCs = uint32(b.cfg.LDMs), uint32(b.cfg.TCs)
		} else {
			newest = max(newest, p.gci)
			p.asked = b.begin.attempts
		}
		members = append(members, m)
	}
	first := (newest>>32 + 1) << 32
	run := [2]uint32{uint32(b.env.Rand()) | 1, uint32(b.env.Rand() >> 32)}
	for _, m := range members {
		if n := uint8(m.Node); n != b.node {
			r := (*signal.StartReq)(b.env.Put(peerAt(n), b.self, signal.NumStartReq, signal.StartReqSize(len(members))))
			r.President, r.Attempt, r.GCI, r.Run, r.Count = uint32(b.node), b.begin.attempts, first.Words(), run, uint32(len(members))
			copy(r.Members(), members)
		}
	}
	b.begin.waiting, b.begin.phase = *set, 0
	b.enter(b.node, b.begin.attempts, first, run, members)
}

// onStartReq hears a president's proposal.
func (b *Block) onStartReq(r *signal.StartReq) {
	n := r.From.Node()
	if !b.links.Has(n) || r.President != uint32(n) {
		b.Stale++
		return
	}
	b.peers[n].seen = r.Attempt
	var set signal.NodeSet
	for _, m := range r.Members() {
		set.Add(uint8(m.Node))
	}
	others := set
	others.Remove(b.node)
	code := uint32(0)
	switch {
	case b.state == starting || b.state == leaving:
		code = signal.StartRefBusy
	case b.state != waiting || !set.Has(b.node) || !set.Has(n):
		code = signal.StartRefState
	case !b.links.Covers(&others):
		code = signal.StartRefLinks
	}
	if code != 0 {
		c := kernel.Send[signal.StartConf](b.env, r.From, b.self, signal.NumStartRef)
		c.President, c.Attempt, c.Code = r.President, r.Attempt, code
		return
	}
	b.enter(n, r.Attempt, signal.JoinGCI(r.GCI), r.Run, r.Members())
}

// enter makes the own node take part in an attempt: its blocks get the first view.
func (b *Block) enter(president uint8, attempt uint32, first signal.GCI, run [2]uint32, members []signal.Member) {
	b.view.Take(1, uint32(president), members)
	b.attempt, b.run, b.join.running = attempt, run, 0
	b.base, b.chain = run[0], chainOf(run[0], &b.view)
	b.mem = follower{ask: b.mem.ask + 1}
	b.sinceNow(&view.View{})
	b.become(starting)
	b.phaseDone(1)
	b.tellCommit(first)
}

// sinceNow notes when those that were not in an old view became members.
func (b *Block) sinceNow(old *view.View) {
	for _, m := range b.view.Members {
		if !old.Has(uint8(m.Node)) {
			b.peers[m.Node].since = b.env.Now()
		}
	}
}

// entered answers the proposal when all own blocks have the first view.
func (b *Block) entered() {
	c := kernel.Send[signal.StartConf](b.env, peerAt(b.view.President), b.self, signal.NumStartConf)
	c.President, c.Attempt, c.Code = uint32(b.view.President), b.attempt, 0
}

// mayGiveUp tells whether nobody can have let clients in yet, as far as this node knows: it has not finished phase 5, or is
// the president and has not yet told anybody to.
func (b *Block) mayGiveUp() bool {
	return !b.active() || b.isPresident() && b.begin.phase < phaseStarted
}

// giveUp gives the attempt up; the own blocks forget it before the node is ready again.
func (b *Block) giveUp() {
	if b.state == leaving {
		return
	}
	b.begin.waiting = signal.NodeSet{}
	president, attempt := uint32(b.view.President), b.attempt
	b.view.Clear()
	b.phase, b.single, b.taken = 0, 0, 0
	b.mem = follower{ask: b.mem.ask}
	b.lead.state = leadIdle
	b.hear.forget()
	b.arb.forget()
	b.openGates()
	for n := b.configured.Next(0); n != 0; n = b.configured.Next(n) {
		b.peers[n].lost, b.peers[n].beat = false, beat{}
	}
	b.forgetting = 2
	b.become(leaving)
	for _, block := range [...]uint8{signal.BlockDistribution, signal.BlockDictionary} {
		r := kernel.Send[signal.PhaseReq](b.env, b.at(block), b.self, signal.NumPhaseReq)
		r.President, r.Attempt, r.Phase = president, attempt, 0
	}
}

// forgotten hears that one of the own blocks has forgotten the attempt.
func (b *Block) forgotten() {
	if b.forgetting--; b.forgetting > 0 {
		return
	}
	for n := b.configured.Next(0); n != 0; n = b.configured.Next(n) {
		if b.fail[n].late {
			b.fail[n].late = false
			b.free(n)
		}
	}
	b.become(waiting)
	b.tellPeers()
	b.tryStart()
}

// missing is for whom the start waits.
func (b *Block) missing() signal.NodeSet {
	required := b.required()
	gone := required.Minus(&b.links)
	if b.state == starting && b.isPresident() {
		return b.begin.waiting
	}
	if !gone.Empty() || b.state != waiting {
		return gone
	}
	for n := required.Next(0); n != 0; n = required.Next(n) {
		linked := b.peers[n].links
		linked.Add(n)
		if !b.peers[n].ready() || !linked.Covers(&required) {
			gone.Add(n)
		}
	}
	return gone
}

// reportWaiting says every few seconds what the start waits for.
func (b *Block) reportWaiting() {
	if b.state >= started {
		return
	}
	b.env.Tick(b.self, b.cfg.ReportInterval, tickReport, 0, 0)
	if b.state == held {
		return
	}
	kind, gone := uint32(event.StartWaitsNodes), b.missing()
	switch {
	case b.state == joining && b.join.running != 0:
		kind, gone = event.StartWaitsPhase+b.join.running, signal.NodeSet{}
	case b.state == joining:
		kind, gone = event.StartWaitsPresident, signal.NodeSet{}
		gone.Add(b.view.President)
	case b.state == waiting:
		running := signal.NodeSet{}
		for n := b.links.Next(0); n != 0; n = b.links.Next(n) {
			if b.peers[n].ran() {
				running.Add(n)
			}
		}
		if !running.Empty() {
			kind, gone = event.StartWaitsPresident, running
		}
	}
	b.report(event.StartReport, uint32((b.env.Now()-b.began)/second), kind, gone[0], gone[1], gone[2], gone[3], gone[4])
}

func (b *Block) onStartTimeout() {
	if b.state < started && b.state != held {
		gone := b.missing()
		text := "; missing: node " + listOf(&gone)
		if gone.Empty() {
			text = ""
		}
		b.exit(exitcode.StartFailed, 0, "the node did not start within StartFailureTimeout"+text+": start the other data nodes, or set StartFailureTimeout=0 to wait for ever")
	}
}
