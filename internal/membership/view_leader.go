package membership

// Leading a change of the view.
//
//	check:    leader --ViewCheckReq--> members --ViewCheckConf--> leader: who hears whom, who has which view
//	decide:   the best set of members that hear each other; may it go on? (package view, arbitrate.go)
//	agree:    leader --ViewPrepareReq--> members that are to go though they answer --ViewReadyConf--> leader
//	prepare:  leader --ViewPrepareReq--> members to come --ViewReadyConf--> leader
//	commit:   leader --ViewCommitReq--> all of both; members --ViewCommitConf--> president --TakeoverRep--> members
//
// Expiring (a state between preparing and commit) is for nodes that were cut off although some member heard them: they may
// not know it, and rely on that member for a while (detect.go). It ends with the commit, or as preparing does.
//
// The leader is the member that has been there longest of those that the own node hears, those left out that are about
// to go. Nothing else decides who leads, so two nodes may; attempts are numbered, and members follow the newest.
//
// | signal or event        | idle        | checking                   | yielding        | retrying | arbitrating | agreeing     | preparing     |
// | somebody must go, come, or change | check | –                   | –               | –        | –           | –            | –             |
// | ViewCheckConf          | stale       | note, decide after the last| the same        | stale    | stale       | stale        | stale         |
// | … with a newer view    | stale       | adopt it, then check       | adopt           | stale    | stale       | stale        | stale         |
// | … Refused              | stale       | retry                      | note            | stale    | stale       | retry        | retry         |
// | ViewReadyConf          | stale       | stale                      | stale           | stale    | stale       | count, prepare after the last | count, after the last commit, or expiring first |
// | who hears whom changes | –           | go on without who is gone  | ask again       | –        | check, if the part is less | the same | the same |
// | a newer attempt of another | –       | idle                       | idle            | idle     | idle        | idle         | idle          |
// | another leads          | –           | idle                       | idle            | idle     | idle        | idle         | idle          |
// | a half interval passed | –           | go on without who is late  | ask again; end after yieldTime | – | –      | who is late is lost | who is late has to go |

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/view"
)

type leadState uint8

const (
	leadIdle leadState = iota
	leadChecking
	leadYielding
	leadRetrying
	leadArbitrating
	leadAgreeing
	leadPreparing
	leadExpiring
)

const (
	// yieldIntervals is for how many heartbeat intervals a node waits, when it sees a better set without itself, before it ends: the
	// others put it out meanwhile, or its picture of them changes.
	yieldIntervals = 8
	// agreeTime is how long a member that is to go may take to agree to it.
	agreeTime = second
	// prepareTime is how long a member may take to prepare a view.
	prepareTime = 5 * second
	// takeoverTime is how long a member may take until nothing of lost members is left with it.
	takeoverTime = 20 * second
)

// answer is what a member said in a check.
type answer struct {
	view     uint32
	hears    signal.NodeSet
	arbiter  bool
	prepared view.View // Number 0 = none
	by       ballot
}

// leader is the leader's part in a change.
type leader struct {
	state   leadState
	attempt uint32 // of the change; grows for ever
	round   uint32 // grows with each timer, so that old ones are known
	since   int64  // when the state began
	waiting signal.NodeSet

	answered signal.NodeSet // in a check: the own node too
	answers  []answer       // by node
	rows     []signal.NodeSet

	part  signal.NodeSet // members that go on
	votes signal.NodeSet // members that take part in the decision: part, and those that agree to go
	going signal.NodeSet // of them those that go
	next  view.View
	one   uint32 // Single of next
	until int64  // when nodes that members have cut off although they heard them do not rely on them any more, nanoseconds
}

func (l *leader) invariants(b *Block) {
	if l.state != leadIdle && !b.active() {
		invariant.Failf("in state %d of leading, but not in the cluster", l.state)
	}
	if (l.state == leadAgreeing || l.state == leadPreparing) && l.waiting.Empty() {
		invariant.Failf("in state %d of leading, waiting for nobody", l.state)
	}
}

// rest ends leading.
func (l *leader) rest() { l.enter(leadIdle, l.since) }

func (l *leader) enter(s leadState, now int64) {
	l.state, l.since = s, now
	l.round++
	l.waiting = signal.NodeSet{}
}

// leads tells whether it is on the own node to lead.
func (b *Block) leads() bool {
	if b.resigned(b.node) || b.agreedToLeave() {
		return false
	}
	for _, m := range b.view.Members {
		n := uint8(m.Node)
		if n == b.node {
			return true
		}
		if b.heard(n) && !b.resigned(n) {
			return false
		}
	}
	return false
}

// resigned tells whether a member leads nothing any more: it is about to go, and can.
func (b *Block) resigned(n uint8) bool { return b.goes(n) && b.serves(b.view.Set(), n) }

// goes tells whether a member is about to go.
func (b *Block) goes(n uint8) bool {
	if n == b.node {
		return b.leave.stage == leaveGoing || b.peers[n].lags
	}
	return b.peers[n].going || b.peers[n].lags
}

// act does what is to be done about the view. It is called after whatever may make a difference.
func (b *Block) act() {
	if !b.active() || b.mem.on && b.mem.adopt {
		return
	}
	if b.agreedToLeave() && !b.heard(b.mem.by.leader) { // it has cut us off, as agreed, or is lost too
		b.goOut()
		return
	}
	l := &b.lead
	if !b.leads() {
		if l.state != leadIdle {
			l.rest()
		}
		b.lastOneOut()
		return
	}
	switch l.state {
	case leadIdle:
		switch {
		case !b.needed():
			b.takeoverLate()
		case b.state == starting && b.mayGiveUp():
			b.giveUp()
		default:
			b.check()
		}
	case leadChecking, leadYielding:
		b.checkOn()
	case leadArbitrating, leadAgreeing, leadPreparing, leadExpiring:
		b.watch()
	}
}

// lastOneOut ends a node that is about to go when nobody is left who could let it go.
func (b *Block) lastOneOut() {
	if b.leave.stage != leaveGoing || b.agreedToLeave() {
		return
	}
	for _, m := range b.view.Members {
		if n := uint8(m.Node); n != b.node && b.heard(n) {
			return
		}
	}
	b.exit(exitcode.Done, restartFlags(b.leave.flags), "stopped, as management asked")
}

// needed tells whether the view has to change.
func (b *Block) needed() bool {
	set := b.view.Set()
	for _, m := range b.view.Members {
		n := uint8(m.Node)
		if b.resigned(n) {
			return true
		}
		if n == b.node {
			continue
		}
		p := &b.peers[n].beat
		switch {
		case !b.heard(n):
			return true
		case !p.heard:
		case p.view > b.view.Number || p.prepared > b.view.Number:
			return true
		case p.view == b.view.Number && !p.hears.Covers(&set):
			return true
		case p.view < b.view.Number && (b.mem.from != b.node || b.env.Now()-b.mem.at > b.cfg.Heartbeat):
			return true // the commit is not on its way to it, or was refused
		}
	}
	if b.mem.prepared() > b.view.Number {
		return true
	}
	_, change := b.planned()
	return change
}

// serves tells whether a set of members, one of them left out, has one with its data of each node group.
func (b *Block) serves(set signal.NodeSet, without uint8) bool {
	set.Remove(without)
	for _, m := range b.view.Members {
		if m.State >= signal.MemberFollowing && !b.groupServed(m.Group, &set) {
			return false
		}
	}
	return true
}

func (b *Block) groupServed(group uint32, set *signal.NodeSet) bool {
	for _, m := range b.view.Members {
		if m.Group == group && m.State >= signal.MemberFollowing && set.Has(uint8(m.Node)) {
			return true
		}
	}
	return false
}

// check begins an attempt: what do the members hear?
func (b *Block) check() {
	l := &b.lead
	l.attempt = max(l.attempt, b.mem.promised.attempt) + 1
	b.mem.promised = ballot{l.attempt, b.node}
	l.enter(leadChecking, b.env.Now())
	b.ask(l.attempt)
}

// ask asks all members what they hear, with the number of an attempt or with 0.
func (b *Block) ask(attempt uint32) {
	l := &b.lead
	l.waiting, l.answered = signal.NodeSet{}, signal.NodeSet{}
	l.answers = make([]answer, signal.MaxDataNode+1)
	l.rows = make([]signal.NodeSet, signal.MaxDataNode+1)
	l.answered.Add(b.node)
	for _, m := range b.view.Members {
		n := uint8(m.Node)
		if n == b.node || !b.links.Has(n) || b.peers[n].lost {
			continue
		}
		b.askOne(n, attempt)
		if b.heard(n) {
			l.waiting.Add(n)
		}
	}
	b.checkOn()
}

func (b *Block) askOne(n uint8, attempt uint32) {
	r := kernel.Send[signal.ViewCheckReq](b.env, peerAt(n), b.self, signal.NumViewCheckReq)
	r.View, r.Attempt = b.view.Number, attempt
}

// checkOn goes on when everybody has answered who can.
func (b *Block) checkOn() {
	l := &b.lead
	// Who is put out must have stopped relying on us before.
	late := b.cfg.CheckTimeout > 0 && b.env.Now()-l.since > max(b.cfg.CheckTimeout, lostAfter*b.cfg.Heartbeat)
	for n := l.waiting.Next(0); n != 0; n = l.waiting.Next(n) {
		if late || !b.heard(n) {
			l.waiting.Remove(n)
		}
	}
	if l.waiting.Empty() {
		b.decide()
	}
}

func (b *Block) onViewCheckConf(r *signal.ViewCheckConf) {
	n := r.From.Node()
	l := &b.lead
	asked := l.attempt
	if l.state == leadYielding {
		asked = 0
	}
	if !b.active() || !b.view.Has(n) || b.peers[n].lost || l.state == leadIdle || r.Attempt != asked {
		b.Stale++
		return
	}
	if r.Refused != 0 {
		b.env.Mark(kernel.MarkTwoLeaders)
		l.attempt = max(l.attempt, r.Promised)
		if l.state != leadRetrying {
			l.enter(leadRetrying, b.env.Now())
			pause := b.cfg.Heartbeat/8 + int64(b.dynamicID()%16)*millisecond
			b.env.Tick(b.self, pause, tickLead, l.round, 0)
		}
		return
	}
	if l.state != leadChecking && l.state != leadYielding {
		b.Stale++
		return
	}
	if r.View > b.view.Number {
		b.adoptConf(r)
		return
	}
	if r.View == b.view.Number && r.Chain != b.base {
		b.peers[n].lost = true // it has gone another way
		b.checkOn()
		return
	}
	a := answer{view: r.View, hears: r.Hears, arbiter: r.Arbiter != 0}
	if r.View+1 == b.view.Number && l.state == leadChecking {
		b.env.Mark(kernel.MarkViewAdopted)
		b.sendView(n, signal.NumViewCommitReq, &b.view, b.single, 0) // it has not heard of the commit
	}
	if r.Prepared == b.view.Number+1 {
		a.prepared.Take(r.Prepared, r.PreparePresident, r.PrepareMembers())
		a.by = ballot{r.PrepareAttempt, uint8(r.PrepareLeader)}
	}
	if r.View == b.view.Number {
		for i, m := range r.Members() {
			if row := &r.Rows()[i]; !row.Empty() {
				l.rows[m.Node] = *row
			}
		}
		b.peers[n].beat.hears = r.Hears
	}
	l.answered.Add(n)
	l.answers[n] = a
	l.waiting.Remove(n)
	b.checkOn()
}

func (b *Block) onLeadTick(round uint32) {
	switch {
	case round != b.lead.round:
	case b.lead.state == leadRetrying:
		b.lead.rest()
		b.act()
	case b.lead.state == leadExpiring:
		b.commit()
	}
}

// graphOf is who hears whom, as the check has shown.
func (b *Block) graphOf() (g graph, known signal.NodeSet) {
	l := &b.lead
	g.view = &b.view
	for _, m := range b.view.Members {
		n := uint8(m.Node)
		switch {
		case n == b.node:
			g.rows[n] = b.rawHears()
		case l.answered.Has(n):
			g.rows[n] = l.answers[n].hears
		case b.heard(n): // it is late
			continue
		default:
			g.rows[n] = l.rows[n]
			g.rows[n].Remove(b.node)
		}
		if !g.rows[n].Empty() {
			known.Add(n)
		}
	}
	return g, known
}

// decide makes a view of what the check has shown.
func (b *Block) decide() {
	l := &b.lead
	g, known := b.graphOf()
	best := g.bestSet(known)
	if !best.Has(b.node) {
		b.yield()
		return
	}
	if l.state == leadYielding {
		b.check()
		return
	}
	l.votes, l.part = best, best
	for n := l.answered.Next(0); n != 0; n = l.answered.Next(n) {
		if g.both(b.node, n) { // it can be asked to agree to go; then it votes too
			l.votes.Add(n)
		}
	}
	for _, m := range b.view.Members {
		n := uint8(m.Node)
		if best.Has(n) && b.goes(n) && b.serves(l.part, n) {
			l.part.Remove(n)
		}
	}
	b.dropRecovering()
	l.going = l.votes.Minus(&l.part)
	if !l.part.Has(b.node) && !l.part.Empty() {
		b.exit(exitcode.JoinFailed, signal.StopRestart, "a data node that this one copied its data from was lost; the node starts again")
		return
	}
	switch b.weigh() {
	case view.Lives:
		b.goOn()
	case view.Arbitrates:
		b.arbitrate()
	case view.DiesGroup:
		b.die(exitcode.NodeLost, b.lostWords()+" cannot be reached, and with it all data of a node group: the cluster cannot go on; this node starts again")
	default:
		b.die(exitcode.Minority, b.lostWords()+" cannot be reached, and may be going on without this part, which is the smaller one; this node starts again")
	}
}

// lostWords names the members that are not in the part.
func (b *Block) lostWords() string {
	set := b.view.Set()
	lost := set.Minus(&b.lead.votes)
	for n := lost.Next(0); n != 0; n = lost.Next(n) {
		if b.peers[n].forced && lost.Count() == 1 {
			return "node " + listOf(&lost) + " was stopped by force and"
		}
	}
	if lost.Count() > 1 {
		return "nodes " + listOf(&lost)
	}
	return "node " + listOf(&lost)
}

// dropRecovering takes recovering members out of the part whose node group loses one that has data: they may have been
// copying from it.
func (b *Block) dropRecovering() {
	for _, m := range b.view.Members {
		if m.State != signal.MemberRecovering || !b.lead.part.Has(uint8(m.Node)) {
			continue
		}
		for _, o := range b.view.Members {
			if o.Group == m.Group && o.State >= signal.MemberFollowing && !b.lead.part.Has(uint8(o.Node)) {
				b.lead.part.Remove(uint8(m.Node))
				b.env.Mark(kernel.MarkRecoveringOut)
				break
			}
		}
	}
}

// weigh decides what becomes of those that vote: by the committed view, and by each view that others may have committed.
func (b *Block) weigh() view.Verdict {
	l := &b.lead
	worst := b.view.Weigh(&l.votes)
	consider := func(v *view.View, by ballot) {
		if v.Number != b.view.Number+1 || l.answered.Has(by.leader) {
			return // nobody can commit it any more: only its leader could
		}
		b.env.Mark(kernel.MarkUncertainView)
		worst = max(worst, v.Weigh(&l.votes))
	}
	for n := l.answered.Next(0); n != 0; n = l.answered.Next(n) {
		if n != b.node {
			consider(&l.answers[n].prepared, l.answers[n].by)
		}
	}
	if m := &b.mem; m.on && !m.adopt {
		consider(&m.next, m.by)
	}
	return worst
}

// anyPrepared tells whether blocks of somebody are prepared for a view, so that one has to follow.
func (b *Block) anyPrepared() bool {
	l := &b.lead
	for n := l.answered.Next(0); n != 0; n = l.answered.Next(n) {
		if l.answers[n].prepared.Number > b.view.Number {
			return true
		}
	}
	return b.mem.on
}

// goOn leads the part into the next view.
func (b *Block) goOn() {
	l := &b.lead
	lost := b.view.Set()
	lost = lost.Minus(&l.votes)
	members, change := b.planned()
	l.one = b.single
	if !lost.Empty() || !l.going.Empty() {
		members, change = members[:0], true
		for _, m := range b.view.Members {
			if l.part.Has(uint8(m.Node)) {
				members = append(members, m)
			}
		}
	} else if change && b.join.wished {
		l.one = b.join.single
	}
	if !change && !b.anyPrepared() {
		b.env.Mark(kernel.MarkSuspectReturned)
		l.rest()
		return
	}
	if b.anyPrepared() && l.answeredLeaderLost(b) {
		b.env.Mark(kernel.MarkLeaderLost)
	}
	l.next.Take(b.view.Number+1, members[0].Node, members)
	if l.going.Empty() {
		b.prepareAll()
		return
	}
	l.enter(leadAgreeing, b.env.Now())
	l.waiting, l.until = l.going, 0
	for n := l.going.Next(0); n != 0; n = l.going.Next(n) {
		b.sendView(n, signal.NumViewPrepareReq, &l.next, l.one, b.codeFor(n))
	}
}

// answeredLeaderLost tells whether the leader of a prepared view is not among those that answered.
func (l *leader) answeredLeaderLost(b *Block) bool {
	for n := l.answered.Next(0); n != 0; n = l.answered.Next(n) {
		if a := &l.answers[n]; a.prepared.Number > b.view.Number && !l.answered.Has(a.by.leader) {
			return true
		}
	}
	return b.mem.on && !l.answered.Has(b.mem.by.leader)
}

// codeFor is the exit status of a member that has to go.
func (b *Block) codeFor(n uint8) uint32 {
	switch {
	case b.peers[n].lags:
		b.env.Mark(kernel.MarkLaggingOut)
		return exitcode.Lagging
	case b.peers[n].going:
		return exitcode.Done
	case b.view.Serving(n):
		return exitcode.Minority
	}
	return exitcode.JoinFailed
}

// prepareAll makes the members to come prepare the next view.
func (b *Block) prepareAll() {
	l := &b.lead
	l.enter(leadPreparing, b.env.Now())
	l.waiting, l.until = l.next.Set(), 0
	for _, m := range l.next.Members {
		b.sendView(uint8(m.Node), signal.NumViewPrepareReq, &l.next, l.one, 0)
	}
}

func (b *Block) sendView(n uint8, num uint16, v *view.View, single, code uint32) {
	r := (*signal.ViewReq)(b.env.Put(peerAt(n), b.self, num, signal.ViewReqSize(len(v.Members))))
	r.View, r.Attempt, r.President, r.GCI = v.Number, b.lead.attempt, uint32(v.President), b.gci.Words()
	r.Run, r.Chain, r.Single, r.Code, r.Gone, r.Count = b.run, b.chain, single, code, b.lead.going, uint32(len(v.Members))
	if v.Number == b.view.Number {
		r.Chain = b.base
	}
	copy(r.Members(), v.Members)
}

// onViewReadyConf hears that a member has prepared the view, or agrees to go.
func (b *Block) onViewReadyConf(r *signal.ViewReadyConf) {
	n := r.From.Node()
	l := &b.lead
	if !b.active() || l.state != leadAgreeing && l.state != leadPreparing || r.View != l.next.Number || r.Attempt != l.attempt || !l.waiting.Has(n) {
		b.Stale++
		return
	}
	l.waiting.Remove(n)
	if cut := signal.NodeSet(r.Cut); !l.going.Covers(&cut) {
		l.until = max(l.until, b.env.Now()+int64(r.Millis)*millisecond)
	}
	switch {
	case !l.waiting.Empty():
	case l.state == leadAgreeing:
		b.prepareAll()
	case l.until > b.env.Now():
		b.env.Mark(kernel.MarkLeaseExpires)
		l.enter(leadExpiring, b.env.Now())
		b.env.Tick(b.self, l.until-b.env.Now(), tickLead, l.round, 0)
	default:
		b.commit()
	}
}

// commit makes the next view hold: from here on it is decided.
func (b *Block) commit() {
	l := &b.lead
	invariant.That(b.mem.on && b.mem.done && b.mem.by == ballot{l.attempt, b.node}, "the leader has prepared what it commits")
	for n := l.part.Next(0); n != 0; n = l.part.Next(n) {
		if n != b.node && !b.relies(n) { // they may follow another leader by now
			b.check()
			return
		}
	}
	all := l.next.Set()
	for n := l.going.Next(0); n != 0; n = l.going.Next(n) {
		b.sendView(n, signal.NumViewCommitReq, &l.next, l.one, b.codeFor(n))
	}
	for n := all.Next(0); n != 0; n = all.Next(n) {
		if n != b.node {
			b.sendView(n, signal.NumViewCommitReq, &l.next, l.one, 0)
		}
	}
	if l.one == b.join.single {
		b.join.wished = false
	}
	b.commitNext()
}

// watch begins again if the part that is being led is not what it was.
func (b *Block) watch() {
	l := &b.lead
	var g graph
	g.view = &b.view
	for n := l.votes.Next(0); n != 0; n = l.votes.Next(n) {
		p := &b.peers[n].beat
		switch {
		case n == b.node:
			g.rows[n] = b.rawHears()
		case p.heard && p.view == b.view.Number:
			g.rows[n] = p.hears
		default:
			g.rows[n] = b.view.Set()
		}
		// who goes is cut off by some before it is by others
		if l.state >= leadPreparing && l.going.Has(n) {
			g.rows[n] = signal.NodeSet{}
		}
	}
	must := l.part
	ok := g.clique(&must)
	if l.state < leadPreparing {
		must = l.votes
	}
	for n := must.Next(0); n != 0; n = must.Next(n) {
		ok = ok && (n == b.node || b.heard(n) && b.peers[n].beat.view <= b.view.Number)
	}
	if l.state >= leadPreparing {
		set := l.next.Set()
		set.Remove(b.node)
		ok = ok && b.links.Covers(&set)
	}
	if !ok {
		if l.state >= leadPreparing {
			b.env.Mark(kernel.MarkMemberLostInPrepare)
		}
		b.check()
		return
	}
	b.late()
}

// late acts on members that take too long.
func (b *Block) late() {
	l := &b.lead
	passed := b.env.Now() - l.since
	switch {
	case l.state == leadAgreeing && passed > agreeTime:
		for n := l.waiting.Next(0); n != 0; n = l.waiting.Next(n) {
			b.peers[n].lost = true
		}
		b.check()
	case l.state == leadPreparing && passed > prepareTime:
		b.putOutLate(l.waiting, "did not prepare view "+number(l.next.Number)+" in time")
		if b.state != ended {
			b.check()
		}
	}
}

// anyGoing tells whether a member has to go.
func (b *Block) anyGoing() bool {
	for _, m := range b.view.Members {
		if n := uint8(m.Node); n != b.node && b.goes(n) {
			return true
		}
	}
	return false
}

// putOutLate puts members out that hold up all others, as far as the cluster can do without them; the own node ends if it
// is the one.
func (b *Block) putOutLate(set signal.NodeSet, what string) {
	for n := set.Next(0); n != 0; n = set.Next(n) {
		one := signal.NodeSet{}
		one.Add(n)
		b.reportText(event.WarningEvent, "Node "+listOf(&one)+" "+what)
		left := b.view.Set()
		switch {
		case !b.view.Has(n):
			b.peers[n].known = false // it does not join now
		case !b.serves(left, n):
		case n == b.node:
			b.exit(exitcode.Lagging, signal.StopRestart, "this node "+what+"; the others go on without it: see whether its machine is overloaded")
			return
		default:
			b.peers[n].lags = true
		}
	}
}

// yield waits, because a better set of members goes on without the own node.
func (b *Block) yield() {
	l := &b.lead
	if l.state != leadYielding {
		b.env.Mark(kernel.MarkPartYields)
		l.enter(leadYielding, b.env.Now())
		return
	}
	if b.env.Now()-l.since > yieldIntervals*b.cfg.Heartbeat {
		b.exit(exitcode.Minority, signal.StopRestart, "this node does not hear all of the data nodes that hear each other; they go on without it, and it starts again")
	}
}

// die ends the part: it may not go on.
func (b *Block) die(code uint32, text string) {
	for n := b.lead.votes.Next(0); n != 0; n = b.lead.votes.Next(n) {
		if n == b.node {
			continue
		}
		r := (*signal.ViewRefOrd)(b.env.Put(peerAt(n), b.self, signal.NumViewRefOrd, uint32(sizeofViewRefOrd)+signal.Pad(uint32(len(text)))))
		r.Code, r.TextLen = code, uint32(len(text))
		kernel.PutBytes(tailOf(r), text)
	}
	b.exit(code, signal.StopRestart, text)
}

const sizeofViewRefOrd = unsafe.Sizeof(signal.ViewRefOrd{})

// takeoverBegins makes the president wait for all members' confirmation of the view.
func (b *Block) takeoverBegins(old *view.View) {
	if !b.join.unconfirmed.Empty() {
		if lost := old.Lost(&b.view); !lost.Empty() {
			b.env.Mark(kernel.MarkLossInTakeover)
		}
	}
	b.join.unconfirmed = signal.NodeSet{}
	if b.isPresident() {
		b.join.unconfirmed, b.join.since = b.view.Set(), b.env.Now()
	}
}

// onMemberConfirmed hears that nothing of lost members is left with a member.
func (b *Block) onMemberConfirmed(r *signal.ViewConf) {
	n := r.From.Node()
	if !b.active() || r.View != b.view.Number || !b.join.unconfirmed.Has(n) {
		b.Stale++
		return
	}
	b.join.unconfirmed.Remove(n)
	if !b.join.unconfirmed.Empty() {
		return
	}
	for _, m := range b.view.Members {
		t := kernel.Send[signal.TakeoverRep](b.env, peerAt(uint8(m.Node)), b.self, signal.NumTakeoverRep)
		t.View = b.view.Number
	}
}

// takeoverLate puts members out that do not finish a takeover.
func (b *Block) takeoverLate() {
	if b.join.unconfirmed.Empty() || b.env.Now()-b.join.since < takeoverTime {
		return
	}
	b.join.since = b.env.Now()
	b.putOutLate(b.join.unconfirmed, "does not finish to take over what lost nodes have left")
	if b.state != ended && b.anyGoing() {
		b.check()
	}
}

// announce says who is in the cluster, and whether the next loss would end it.
func (b *Block) announce(old *view.View) {
	serving := b.view.ServingSet()
	set := b.view.Set()
	if b.isPresident() {
		what := "nodes " + listOf(&set)
		if lost := old.Lost(&b.view); !lost.Empty() {
			what += ", without " + listOf(&lost)
		}
		b.reportText(event.ViewCommitted, what, b.view.Number, uint32(b.view.President), uint32(set.Count()), uint32(serving.Count()))
	}
	b.announceFatal()
}

// announceFatal says when the loss of one more node would end the cluster, and when it would not any more.
func (b *Block) announceFatal() {
	if !b.isPresident() || b.state != started && b.state != stopping || b.arb.step != arbitIdle || !b.allCommitted() {
		return
	}
	fatal := b.view.Fatal(b.arbitratorLinked())
	if fatal == b.fatal {
		return
	}
	b.fatal = fatal
	if fatal {
		b.reportText(event.NextLossFatal, "The loss of one more data node may end the cluster: a node group has only one node with its data, or half of the nodes would need an arbitrator and there is none", 1, b.view.Number)
	} else {
		b.reportText(event.NextLossFatal, "The cluster survives the loss of any one data node", 0, b.view.Number)
	}
}
