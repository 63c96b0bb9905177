package membership

// This node's part in a change of the view.
//
//	leader --ViewCheckReq--> member --ViewCheckConf--> leader
//	leader --ViewPrepareReq--> member: LinkCloseOrd / LinkDownRep for each that goes, each block --ViewPrepareReq / Conf--;
//	member --ViewReadyConf--> leader
//	leader --ViewCommitReq--> member: each block --ViewCommitReq / Conf--; --ViewCommitConf--> president
//
// | signal             | waiting              | joining, started, stopping, starting after phase 5                   | others |
// | ViewCheckReq       | stale                | promise and answer; refuse an older attempt                          | stale  |
// | ViewPrepareReq     | begin (it takes us in) | begin, take the place of an older one; refuse an older attempt; a view that is to be adopted first: keep it until then | stale |
// | ViewPrepareConf    | stale                | count                                                                | stale  |
// | ViewCommitReq      | take it              | take it; not prepared: prepare the own blocks first (adopt); an older attempt's: stale | stale |
// | ViewCommitConf     | stale                | of a block: count; of a member: view_leader.go                       | count (starting) |
// | ViewRefOrd         | stale                | exit, if it is the leader's that we follow                           | stale  |
// | TakeoverRep        | stale                | pass on, free the ids of lost nodes                                  | stale  |
// | LinkDownRep        | failure.go           | go on when nothing is left to be cut                                 |        |
//
// Own blocks are asked under numbers of their own (ask), so that answers to what was given up do not count.

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/view"
)

// partTime is how long a member waits, before it cuts a node off that it still hears, for the node to end by itself: that it
// has been killed is known within moments, though not to all at once.
const partTime = 20 * millisecond

// ballot is an attempt to change the view.
type ballot struct {
	attempt uint32
	leader  uint8 // node; 0 = none
}

// follower is this node's part in a change.
type follower struct {
	promised ballot // no older one is followed

	on      bool // a view is being prepared, or is prepared
	by      ballot
	next    view.View
	single  uint32
	gci     signal.GCI
	run     [2]uint32
	chain   uint32         // hash of the views before next, as its leader has it
	code    uint32         // exit status if the own node is not in next
	adopt   bool           // it is committed somewhere: commit it when prepared
	done    bool           // prepared and confirmed
	parting signal.NodeSet // nodes that go and are still heard: if they have ended, or cut us off, their links end any moment
	parts   uint32         // number of the newest wait for that
	cutting signal.NodeSet // links that are being closed
	cut     signal.NodeSet // nodes that were cut off although they were heard, and that may not know it
	until   int64          // … when the last of them does not rely on us any more, nanoseconds

	told     bool // own blocks have been told to prepare next
	owed     int  // … that have not answered
	ask      uint32
	toCommit uint32 // ask of the newest commit
	owing    int    // blocks that have not confirmed it
	from     uint8  // leader that committed the view
	at       int64  // … when

	kept []uint32 // a ViewPrepareReq that waits until a view is adopted
}

// prepared is the view that own blocks are prepared for; 0 = none.
func (m *follower) prepared() uint32 {
	if m.on && (m.told || m.done) && !m.adopt {
		return m.next.Number
	}
	return 0
}

func (m *follower) invariants(b *Block) {
	if m.owed > 0 && !m.told {
		invariant.Failf("%d blocks prepare what they were not told", m.owed)
	}
	if m.on && b.view.Number != 0 && m.next.Number != b.view.Number+1 {
		invariant.Failf("view %d is being prepared after view %d", m.next.Number, b.view.Number)
	}
}

// older tells whether an attempt must not be followed any more.
func (b *Block) older(c ballot) bool {
	p := &b.mem.promised
	if c.attempt != p.attempt || p.leader == 0 {
		return c.attempt < p.attempt
	}
	return c.leader != p.leader && !b.before(c.leader, p.leader)
}

// before tells whether a member has been there longer than another.
func (b *Block) before(a, c uint8) bool {
	x, y := b.view.Member(a), b.view.Member(c)
	return x != nil && (y == nil || x.DynamicID < y.DynamicID)
}

// promise follows an attempt, and no older one any more.
func (b *Block) promise(c ballot) {
	if c != b.mem.promised && b.lead.state != leadIdle && c.leader != b.node {
		b.env.Mark(kernel.MarkTwoLeaders)
		b.lead.rest()
	}
	b.mem.promised = c
}

func (b *Block) onViewCheckReq(r *signal.ViewCheckReq) {
	n := r.From.Node()
	if !b.active() || !b.view.Has(n) || b.peers[n].lost {
		b.Stale++
		return
	}
	c := ballot{r.Attempt, n}
	refused := r.Attempt != 0 && b.older(c)
	if r.Attempt != 0 && !refused {
		b.promise(c)
	}
	b.checkConf(n, r.Attempt, refused)
}

// checkConf tells a leader what the own node knows.
func (b *Block) checkConf(n uint8, attempt uint32, refused bool) {
	m := &b.mem
	next := m.next.Members
	if !m.on {
		next = nil
	}
	members := b.view.Members
	c := (*signal.ViewCheckConf)(b.env.Put(peerAt(n), b.self, signal.NumViewCheckConf, signal.ViewCheckConfSize(len(members), len(next))))
	h := c.Head
	*c = signal.ViewCheckConf{Head: h, View: b.view.Number, Attempt: attempt, Promised: m.promised.attempt, Chain: b.base,
		President: uint32(b.view.President), Single: b.single, Hears: b.rawHears(), Count: uint32(len(members)), PrepareCount: uint32(len(next))}
	if refused {
		c.Refused = 1
	}
	if b.arbitratorLinked() {
		c.Arbiter = 1
	}
	if len(next) > 0 {
		c.Prepared, c.PrepareAttempt, c.PrepareLeader, c.PreparePresident = m.next.Number, m.by.attempt, uint32(m.by.leader), uint32(m.next.President)
		if m.adopt { // it is committed somewhere, whoever asks
			c.PrepareLeader = 0
		}
	}
	copy(c.Members(), members)
	copy(c.PrepareMembers(), next)
	rows := c.Rows()
	for i, o := range members {
		rows[i] = signal.NodeSet{}
		if p := &b.peers[o.Node].beat; p.heard && p.view == b.view.Number {
			rows[i] = p.hears
		}
	}
}

func (b *Block) onViewPrepareReq(r *signal.ViewReq) {
	n := r.From.Node()
	c := ballot{r.Attempt, n}
	first := b.state == waiting
	switch {
	case first && (!b.links.Has(n) || !hasMember(r, b.node) || r.View < 2):
		b.Stale++
		return
	case first:
		if r.View != b.mem.next.Number { // of attempts at other views nothing is left
			b.mem.promised = ballot{}
		}
	case !b.active(), !b.view.Has(n), b.peers[n].lost, r.View <= b.view.Number:
		b.Stale++
		return
	case r.View > b.view.Number+1 || b.mem.on && b.mem.adopt:
		b.keep(r) // the leader has sent the view before it too
		return
	}
	if !first && r.Chain != b.chain {
		b.diverged()
		return
	}
	if b.older(c) {
		b.checkConf(n, r.Attempt, true)
		return
	}
	b.promise(c)
	b.prepare(r, c, false)
}

// diverged ends a node that has come by other views to where it is than the part that goes on.
func (b *Block) diverged() {
	b.env.Mark(kernel.MarkDiverged)
	b.exit(exitcode.PutOut, signal.StopRestart, "the other data nodes went on without this one, while it was cut off")
}

// chainOf is the hash of a view and all before it.
func chainOf(before uint32, v *view.View) uint32 {
	h := before
	mix := func(x uint32) { h = (h ^ x) * 16777619 }
	mix(v.Number)
	for _, m := range v.Members {
		mix(m.Node | m.State<<8)
		mix(m.DynamicID)
	}
	return h
}

func hasMember(r *signal.ViewReq, n uint8) bool {
	for _, m := range r.Members() {
		if uint8(m.Node) == n {
			return true
		}
	}
	return false
}

// keep keeps a prepare until the view before it is adopted.
func (b *Block) keep(r *signal.ViewReq) {
	b.mem.kept = append(b.mem.kept[:0], unsafe.Slice((*uint32)(unsafe.Pointer(r)), r.Bytes()/4)...)
}

// prepare begins to prepare a view.
func (b *Block) prepare(r *signal.ViewReq, by ballot, adopt bool) {
	m := &b.mem
	var next view.View
	next.Take(r.View, r.President, r.Members())
	same := m.on && sameView(&m.next, &next) && m.single == r.Single
	m.on, m.by, m.adopt, m.done = true, by, adopt, false
	m.gci, m.run, m.chain, m.code = signal.JoinGCI(r.GCI), r.Run, r.Chain, r.Code
	if same {
		b.prepareOn()
		return
	}
	m.next.Copy(&next)
	m.single, m.told, m.owed, m.parting = r.Single, false, 0, signal.NodeSet{}
	if next.Has(b.node) {
		gone := r.Gone
		lost := b.view.Lost(&next)
		for n := lost.Next(0); n != 0; n = lost.Next(n) {
			switch {
			case !b.links.Has(n) || m.cutting.Has(n):
			case gone.Has(n) || adopt || b.reliedOn(n) == 0:
				b.cutOff(n)
			default:
				m.parting.Add(n)
			}
		}
		if !m.parting.Empty() {
			m.parts++
			b.env.Tick(b.self, partTime, tickPart, m.parts, 0)
		}
	}
	b.prepareOn()
}

// cutOff closes the link to a node.
func (b *Block) cutOff(n uint8) {
	b.mem.parting.Remove(n)
	b.mem.cutting.Add(n)
	kernel.Send[signal.LinkCloseOrd](b.env, b.at(signal.BlockRuntime), b.self, signal.NumLinkCloseOrd).Node = uint32(n)
}

// onPartTick cuts off those that have not ended their links by themselves.
func (b *Block) onPartTick(parts uint32) {
	m := &b.mem
	if parts != m.parts {
		return
	}
	for n := m.parting.Next(0); n != 0; n = m.parting.Next(n) {
		m.cut.Add(n)
		m.until = max(m.until, b.env.Now()+b.reliedOn(n))
		b.cutOff(n)
	}
}

// sameView tells whether two views are the same in all.
func sameView(a, c *view.View) bool {
	if a.Number != c.Number || len(a.Members) != len(c.Members) {
		return false
	}
	for i := range a.Members {
		if a.Members[i] != c.Members[i] {
			return false
		}
	}
	return true
}

// prepareOn goes on preparing: links are cut, then the blocks are told, then the leader.
func (b *Block) prepareOn() {
	m := &b.mem
	if !m.on || m.done {
		return
	}
	if m.next.Has(b.node) { // who is to leave has only to agree
		others := m.next.Set()
		others.Remove(b.node)
		if !m.cutting.Empty() || !m.parting.Empty() || !m.adopt && !b.links.Covers(&others) {
			return // what is committed holds even if somebody has been lost since
		}
		if !m.told {
			m.told = true
			if m.ask++; b.view.Number != 0 { // the blocks of a node that joins have no view to leave
				b.tellBlocks(signal.NumViewPrepareReq, &m.next, m.ask, m.gci, m.single, &m.owed)
				b.beat()
			}
		}
		if m.owed > 0 {
			return
		}
	}
	if m.adopt {
		m.done = true
		b.commitNext()
		return
	}
	if m.promised != m.by { // another leader has been promised something since, and may be gone again
		if m.by.leader != b.node {
			b.checkConf(m.by.leader, m.by.attempt, true)
		}
		return
	}
	m.done = true
	b.gates()
	c := kernel.Send[signal.ViewReadyConf](b.env, peerAt(m.by.leader), b.self, signal.NumViewReadyConf)
	c.View, c.Attempt, c.Cut, c.Millis = m.next.Number, m.by.attempt, m.cut, 0
	if left := m.until - b.env.Now(); left > 0 {
		c.Millis = uint32(left/millisecond) + 1
	}
}

// tellBlocks sends a view to every block of the own node that has to know it, and counts them.
func (b *Block) tellBlocks(num uint16, v *view.View, ask uint32, gci signal.GCI, single uint32, owed *int) {
	*owed = 0
	tell := func(a signal.Addr) {
		r := (*signal.ViewReq)(b.env.Put(a, b.self, num, signal.ViewReqSize(len(v.Members))))
		r.View, r.Attempt, r.President, r.GCI = v.Number, ask, uint32(v.President), gci.Words()
		r.Run, r.Chain, r.Single, r.Code, r.Gone, r.Count = b.run, b.chain, single, 0, signal.NodeSet{}, uint32(len(v.Members))
		copy(r.Members(), v.Members)
		*owed++
	}
	tell(b.at(signal.BlockDistribution))
	tell(b.at(signal.BlockDictionary))
	b.workers(tell)
}

// tellCommit commits the view at the own blocks.
func (b *Block) tellCommit(gci signal.GCI) {
	m := &b.mem
	m.toCommit = m.ask
	b.tellBlocks(signal.NumViewCommitReq, &b.view, m.ask, gci, b.single, &m.owing)
}

// onViewPrepareConf hears a block.
func (b *Block) onViewPrepareConf(r *signal.ViewConf) {
	m := &b.mem
	if !m.on || !m.told || r.View != m.next.Number || r.Attempt != m.ask || m.owed == 0 {
		b.Stale++
		return
	}
	if m.owed--; m.owed == 0 {
		b.prepareOn()
	}
}

func (b *Block) onViewCommitReq(r *signal.ViewReq) {
	n := r.From.Node()
	m := &b.mem
	c := ballot{r.Attempt, n}
	switch {
	case b.state == waiting && m.on && m.by == c && m.done && r.View == m.next.Number:
		b.commitNext()
		return
	case !b.active(), !b.view.Has(n), b.peers[n].lost, r.View != b.view.Number+1:
		b.Stale++
		return
	case m.on && m.by == c && m.done && !m.adopt: // all of its members have said that they are ready, whatever was promised since
		m.code = r.Code
		b.commitNext()
		return
	case b.older(c):
		b.Stale++
		return
	}
	if r.Chain != b.chain {
		b.diverged()
		return
	}
	// Its leader has learned that it is committed somewhere.
	b.adopt(r, c)
}

// adopt takes a view that is committed elsewhere; the own blocks prepare it first.
func (b *Block) adopt(r *signal.ViewReq, by ballot) {
	b.env.Mark(kernel.MarkViewAdopted)
	b.lead.rest()
	b.prepare(r, by, true)
}

// adoptConf does the same with what an answer to the own check says.
func (b *Block) adoptConf(c *signal.ViewCheckConf) {
	if c.View != b.view.Number+1 || c.Chain != b.chain {
		b.diverged()
		return
	}
	words := make([]uint32, signal.ViewReqSize(int(c.Count))/4)
	r := (*signal.ViewReq)(unsafe.Pointer(&words[0]))
	r.Len, r.View, r.President, r.GCI, r.Run, r.Single, r.Count = uint16(len(words)), c.View, c.President, b.gci.Words(), b.run, c.Single, c.Count
	r.Chain = c.Chain
	r.Code = exitcode.PutOut
	copy(r.Members(), c.Members())
	b.adopt(r, ballot{b.lead.attempt, b.node})
}

// commitNext makes the prepared view the one that holds.
func (b *Block) commitNext() {
	m := &b.mem
	if !m.next.Has(b.node) {
		b.goOut()
		return
	}
	var old view.View
	old.Copy(&b.view)
	joined := b.state == waiting
	b.view.Copy(&m.next)
	was := b.single
	b.single, m.from, m.at = m.single, m.by.leader, b.env.Now()
	gci := m.gci
	if joined {
		b.run, b.chain = m.run, m.chain
	}
	b.base, b.chain = b.chain, chainOf(b.chain, &b.view)
	m.on, m.told, m.done, m.adopt, m.promised = false, false, false, false, ballot{}
	m.cut, m.parting, m.until = signal.NodeSet{}, signal.NodeSet{}, 0
	b.lead.rest()
	b.tellCommit(gci)
	b.hear.forget()
	b.forgetLost(&old)
	b.forgetMembers(&old)
	if joined {
		b.become(joining)
		b.phaseDone(1)
		b.report(event.JoinAccepted, uint32(b.node), uint32(b.view.President), b.dynamicID())
		b.phaseDone(2)
		b.phaseDone(3)
		b.tellPeers()
	}
	if old.President != b.view.President {
		b.report(event.PresidentElected, uint32(b.view.President))
		b.join.begin(b.view.Number)
	}
	b.takeoverBegins(&old)
	b.singleChanged(was)
	b.announce(&old)
	b.tellState()
	b.beat()
	switch {
	case b.state == starting, // somebody was lost when all was ready: others may serve clients already
		b.state == joining && b.isPresident() && b.view.Serving(b.node): // nobody is left who could tell it to
		b.serve()
	}
	b.leaveOn()
	b.regain()
	b.gates()
	b.elect()
	if len(m.kept) > 0 {
		kept := m.kept
		m.kept = nil
		b.onViewPrepareReq((*signal.ViewReq)(unsafe.Pointer(&kept[0])))
	}
	b.act()
}

// forgetLost notes who is no member any more; his id is free when he is taken over.
func (b *Block) forgetLost(old *view.View) {
	lost := old.Lost(&b.view)
	for n := lost.Next(0); n != 0; n = lost.Next(n) {
		p := &b.peers[n]
		b.report(event.NodeFailReport, uint32(n), old.State(n))
		*p = peer{group: p.group}
		b.fail[n].out = b.view.Number
	}
	for _, m := range b.view.Members {
		n := uint8(m.Node)
		if !old.Has(n) { // it has just come
			p := &b.peers[n]
			p.lost, p.going, p.lags, p.beat = false, false, false, beat{}
		}
	}
	b.sinceNow(old)
}

// goOut ends a node that has agreed to be a member no more.
func (b *Block) goOut() {
	if b.leave.stage != leaveNone && b.mem.code == exitcode.Done {
		b.exit(exitcode.Done, restartFlags(b.leave.flags), "stopped, as management asked")
		return
	}
	text := "the other data nodes went on without this one"
	switch b.mem.code {
	case exitcode.Lagging:
		text = "this node did not finish an epoch or a change of the cluster in time, and the others went on without it: see whether its machine is overloaded"
	case exitcode.Minority:
		text = "this node does not hear all of the data nodes that hear each other; they go on without it, and it starts again"
	case exitcode.JoinFailed:
		text = "a data node that this one copied its data from was lost; the node starts again"
	}
	code := b.mem.code
	if code == exitcode.Done {
		code = exitcode.PutOut
	}
	b.exit(code, signal.StopRestart, text)
}

// agreedToLeave tells whether the own node has agreed to a view without itself. It must not go on by itself any more.
func (b *Block) agreedToLeave() bool { return b.mem.on && b.mem.done && !b.mem.next.Has(b.node) }

// onViewCommitConf hears a block, or a member.
func (b *Block) onViewCommitConf(r *signal.ViewConf) {
	if r.From.Block() == signal.BlockMembership {
		b.onMemberConfirmed(r)
		return
	}
	m := &b.mem
	if r.View != b.view.Number || r.Attempt != m.toCommit || m.owing == 0 {
		b.Stale++
		return
	}
	if m.owing--; m.owing > 0 {
		return
	}
	if b.state == starting && b.phase < 2 {
		b.entered()
		return
	}
	b.confirm()
	b.leaveOn()
}

// confirm tells the president that nothing of lost members is left here.
func (b *Block) confirm() {
	if b.view.Number < 2 || b.mem.owing > 0 {
		return
	}
	c := kernel.Send[signal.ViewConf](b.env, peerAt(b.view.President), b.self, signal.NumViewCommitConf)
	c.View, c.Attempt = b.view.Number, 0
}

func (b *Block) onViewRefOrd(r *signal.ViewRefOrd) {
	if !b.active() || r.From.Node() != b.mem.promised.leader {
		b.Stale++
		return
	}
	b.exit(r.Code, signal.StopRestart, r.Text())
}

// onTakeoverRep hears that nothing of lost members is left anywhere.
func (b *Block) onTakeoverRep(r *signal.TakeoverRep) {
	if !b.active() || r.View > b.view.Number || r.From.Node() != b.view.President && !b.view.Has(r.From.Node()) {
		b.Stale++
		return
	}
	b.taken = max(b.taken, r.View)
	b.freeLost(r.View)
	kernel.Send[signal.TakeoverRep](b.env, b.at(signal.BlockDistribution), b.self, signal.NumTakeoverRep).View = r.View
	b.drive()
	b.act()
}
