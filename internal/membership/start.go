package membership

// How nodes find each other and agree to start:
//
//	each node --PeerRep--> each other, when their link comes up and when its own state or links change
//	president --StartReq--> all members --StartConf--> president
//
// A node proposes a start when it is ready, everybody who must be there is ready, all have links to each other, and its
// number is the lowest of those.
//
// | signal           | held, waiting    | starting                            | leaving | started, draining | failing |
// | PeerRep          | note, maybe act  | note; leave if it left the attempt  | note    | note, refuse it   | note    |
// | StartReq         | join or refuse   | refuse                              | refuse  | refuse            | refuse  |
// | StartConf        | stale            | count, or stale                     | stale   | stale             | stale   |
// | StartRef         | stale            | leave, or stale                     | stale   | stale             | stale   |
// | JoinRef          | exit             | exit                                | exit    | exit              | stale   |

import (
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
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
}

// poke makes a node that may need nobody else look whether it can start. It goes round by the job buffer, so that all
// blocks exist when it acts.
func (b *Block) poke() { b.tellPeer(b.node) }

func (b *Block) onLinkUpRep(r *signal.LinkRep) {
	n := uint8(r.Node)
	b.toManager(&r.Head)
	if signal.Peer(r.Kind) != signal.PeerData {
		invariant.That(!b.fail[n].busy, "a node id is used again only after it was freed")
		if signal.Peer(r.Kind) == signal.PeerAPI {
			for i := range b.env.Instances(signal.BlockLDM) {
				u := kernel.Send[signal.NodeUpRep](b.env, signal.MakeAddr(b.node, signal.BlockLDM, uint16(i)), b.self, signal.NumNodeUpRep)
				u.Node = uint32(n)
			}
		}
		return
	}
	invariant.That(n != b.node && n >= 1 && n <= signal.MaxDataNode && !b.links.Has(n), "a data node's links come up once")
	b.links.Add(n)
	p := &b.peers[n]
	*p = peer{group: p.group}
	b.tellPeer(n)
	if required := b.required(); b.links.Covers(&required) && b.state <= waiting {
		b.tellPeers() // each link beyond the last one needed decides who else takes part
	}
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
	case draining:
		s = signal.PeerStopping
	}
	r := kernel.Send[signal.PeerRep](b.env, peerAt(n), b.self, signal.NumPeerRep)
	r.State, r.Group, r.LDMs, r.TCs = s, b.group, uint32(b.cfg.LDMs), uint32(b.cfg.TCs)
	r.Heard, r.GCI, r.Links = b.peers[n].seen, b.gci.Words(), b.links
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
		b.refuse(n, signal.JoinRefOther, "the configuration of the others does not have this node in this node group: give all nodes the same configuration")
		return
	}
	p := &b.peers[n]
	p.known, p.state, p.ldms, p.tcs = true, r.State, r.LDMs, r.TCs
	p.gci, p.links, p.heard = signal.JoinGCI(r.GCI), r.Links, r.Heard
	switch b.state {
	case waiting:
		b.tryStart()
	case starting:
		// The president leaves with each member, and each member with the president.
		left := p.state == signal.PeerReady || p.state == signal.PeerHeld
		switch {
		case left && b.isPresident() && b.memberSet.Has(n) && p.heard == b.attempt:
			b.leave()
		case left && n == b.president:
			b.leave()
		}
	case started:
		if !b.memberSet.Has(n) && p.state != signal.PeerStopping {
			b.refuseNewcomer(n)
		}
	}
}

// refuseNewcomer turns a node away that comes after the start.
func (b *Block) refuseNewcomer(n uint8) {
	b.refuse(n, signal.JoinRefRunning, "joining a running cluster is not supported yet: stop the cluster and start all data nodes together")
}

// refuse tells a node that it cannot be in this cluster.
func (b *Block) refuse(n uint8, code uint32, text string) {
	size := uint32(sizeofJoinRef) + signal.Pad(uint32(len(text)))
	r := (*signal.JoinRef)(b.env.Put(peerAt(n), b.self, signal.NumJoinRef, size))
	r.Code, r.TextLen = code, uint32(len(text))
	kernel.PutBytes(tailOf(r), text)
}

func (b *Block) onJoinRef(r *signal.JoinRef) {
	if b.state == failing {
		b.Stale++
		return
	}
	b.report(event.JoinRefused, uint32(b.node), uint32(r.From.Node()), r.Code)
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

func (b *Block) become(s state) {
	b.state = s
	b.tellState()
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
	b.lead.attempts++
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
			p.asked = b.lead.attempts
		}
		members = append(members, m)
	}
	first := (newest>>32 + 1) << 32
	for _, m := range members {
		if n := uint8(m.Node); n != b.node {
			r := (*signal.StartReq)(b.env.Put(peerAt(n), b.self, signal.NumStartReq, signal.StartReqSize(len(members))))
			r.President, r.Attempt, r.GCI, r.Count = uint32(b.node), b.lead.attempts, first.Words(), uint32(len(members))
			copy(r.Members(), members)
		}
	}
	b.join(b.node, b.lead.attempts, first, members)
	b.lead.waiting, b.lead.phase = b.memberSet, 0
	b.lead.heard(b, b.node)
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
	num := signal.NumStartConf
	if code != 0 {
		num = signal.NumStartRef
	}
	c := kernel.Send[signal.StartConf](b.env, r.From, b.self, num)
	c.President, c.Attempt, c.Code = r.President, r.Attempt, code
	if code == 0 {
		b.join(n, r.Attempt, signal.JoinGCI(r.GCI), r.Members())
	}
}

// join makes the own node take part in an attempt.
func (b *Block) join(president uint8, attempt uint32, first signal.GCI, members []signal.Member) {
	b.members = append(b.members[:0], members...)
	b.memberSet = signal.NodeSet{}
	b.president, b.attempt = president, attempt
	for _, m := range b.members {
		b.memberSet.Add(uint8(m.Node))
		if uint8(m.Node) == b.node {
			b.dynamicID = m.DynamicID
		}
	}
	b.become(starting)
	b.phaseDone(1)
	tell := func(a signal.Addr) {
		r := (*signal.ViewReq)(b.env.Put(a, b.self, signal.NumViewCommitReq, signal.ViewReqSize(len(b.members))))
		r.View, r.Attempt, r.President, r.GCI, r.Count = 1, attempt, uint32(president), first.Words(), uint32(len(b.members))
		copy(r.Members(), b.members)
	}
	tell(b.at(signal.BlockDistribution))
	tell(b.at(signal.BlockDictionary))
	b.workers(tell)
}

// leave gives the attempt up; the own blocks forget it before the node is ready again.
func (b *Block) leave() {
	b.lead.waiting = signal.NodeSet{}
	b.members, b.memberSet = b.members[:0], signal.NodeSet{}
	president, attempt := b.president, b.attempt
	b.president, b.dynamicID, b.phase = 0, 0, 0
	b.forgetting = 2
	b.become(leaving)
	for _, block := range [...]uint8{signal.BlockDistribution, signal.BlockDictionary} {
		b.toPhase(block, president, attempt, 0)
	}
}

// forgotten hears that one of the own blocks has forgotten the attempt.
func (b *Block) forgotten() {
	if b.forgetting--; b.forgetting > 0 {
		return
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
		return b.lead.waiting
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

// reportWaiting says every few seconds for whom the start waits.
func (b *Block) reportWaiting() {
	if b.state >= started {
		return
	}
	b.env.Tick(b.self, b.cfg.ReportInterval, tickReport, 0, 0)
	if b.state == held {
		return
	}
	gone := b.missing()
	b.report(event.StartReport, uint32((b.env.Now()-b.began)/second), 1, gone[0], gone[1], gone[2], gone[3], gone[4])
}

func (b *Block) onStartTimeout() {
	if b.state < started && b.state != held {
		gone := b.missing()
		b.exit(exitcode.StartFailed, 0, "the cluster did not start within StartFailureTimeout; missing: node "+listOf(&gone)+": start these nodes, or set StartFailureTimeout=0 to wait for ever")
	}
}
