package membership

// Who arbitrates, and asking him.
//
//	president --ArbitOrd--> all members (give the old ticket up; or: this one comes next)
//	president --ArbitStartReq--> arbitrator --ArbitStartConf--> president --ArbitOrd--> all members
//	leader of half the members --ArbitChooseReq--> arbitrator --ArbitChooseConf / Ref--> leader
//	leader without a link to it --ArbitChooseReq--> member of its part --ArbitChooseReq--> arbitrator; back the same way
//
// A new ticket is made for each view, when all members have committed it, and when the arbitrator is lost, is back, or a
// better one comes. Two good tickets must never be in the hands of two parts:
//
//   - of one arbitrator only the newest is good; members hold the next one beside the present one for the short time in
//     which that changes, so that one of the two is good at any moment;
//   - before another arbitrator is asked, all members have given the old ticket up, and their heartbeats have said so.
//
// | signal          | president                                   | other member      | leader of a part         |
// | ArbitStartConf  | announce it, or try another; old: stale     | stale             | stale                    |
// | ArbitOrd        | take it (of the president of this view; else stale)  || the same                        |
// | ArbitChooseReq  | pass it on; no link: stale                  || the same                                     |
// | ArbitChooseConf | of one passed on: pass back; else stale     || of the own question: go on                   |
// | ArbitChooseRef  | the same                                    || another ticket, or the end                   |

import (
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// ticket is what an arbitrator was left with; node 0 = none.
type ticket struct {
	node   uint8
	view   uint32
	turn   uint32
	secret [2]uint32
}

// Steps of the president.
const (
	arbitIdle = iota
	arbitVoiding
	arbitStarting
	arbitTelling
)

// badTime is how long an arbitrator that did not answer, or refused, is not asked again.
const badTime = 10 * second

// arbiter is what the node knows of arbitration.
type arbiter struct {
	cur, next  ticket // that the own node holds
	view, turn uint32 // of the newest ArbitOrd

	step    int        // the president's
	made    ticket     // … that is being started
	asked   uint32     // number of the newest question, for its timer
	bad     [256]int64 // by node: not to be asked before then, nanoseconds
	renew   bool       // the arbitrator has been away: it has forgotten the ticket
	told    uint8      // arbitrator that was announced last
	missing bool       // … or that there is none

	shown  ticket // the leader's: that was shown
	ways   uint8  // … by way of this member last
	relay  uint8  // who asked by way of the own node
	number uint32 // … and the number of his attempt
}

// forget drops everything about a run of the cluster that is given up.
func (a *arbiter) forget() { *a = arbiter{asked: a.asked} }

func arbitratorAt(n uint8) signal.Addr { return signal.MakeAddr(n, signal.BlockArbitrator, 0) }

// arbitratorLinked tells whether the own node holds a ticket and has a link to its arbitrator.
func (b *Block) arbitratorLinked() bool {
	a := &b.arb
	return a.cur.node != 0 && b.outer.Has(a.cur.node) || a.next.node != 0 && b.outer.Has(a.next.node)
}

// arbitratorNow is who arbitrates, as far as the own node can reach him; 0 = nobody.
func (b *Block) arbitratorNow() uint8 {
	if n := b.arb.cur.node; n != 0 && b.outer.Has(n) {
		return n
	}
	return 0
}

// allCommitted tells whether all members have said that they have the view.
func (b *Block) allCommitted() bool {
	for _, m := range b.view.Members {
		n := uint8(m.Node)
		if p := &b.peers[n].beat; n != b.node && (!p.heard || p.view != b.view.Number || !b.heard(n)) {
			return false
		}
	}
	return true
}

// candidate is the best arbitrator that there is; 0 = none.
func (b *Block) candidate() uint8 {
	best := Arbitrator{}
	for _, c := range b.cfg.Arbitrators {
		if !b.outer.Has(c.ID) || c.Rank == 0 || b.arb.bad[c.ID] > b.env.Now() {
			continue
		}
		if best.ID == 0 || c.Rank < best.Rank || c.Rank == best.Rank && c.ID < best.ID {
			best = c
		}
	}
	return best.ID
}

// holders tells whether all members hold tickets of that arbitrator only, or none.
func (b *Block) holders(arbitrator uint8) bool {
	for _, m := range b.view.Members {
		n := uint8(m.Node)
		h := b.peers[n].beat.arbitrator
		if n == b.node {
			h = b.arb.holder()
		}
		if h != 0 && h != arbitrator {
			return false
		}
	}
	return true
}

// holder is whose ticket the own node holds.
func (a *arbiter) holder() uint8 {
	if a.cur.node != 0 {
		return a.cur.node
	}
	return a.next.node
}

// elect sees to it that there is an arbitrator, if the own node is president and all is quiet. It is called after
// whatever may make a difference.
func (b *Block) elect() {
	a := &b.arb
	if b.state != started && b.state != stopping || !b.isPresident() || b.lead.state != leadIdle || b.mem.on {
		return
	}
	if b.cfg.Arbitration != ArbitrationDefault || !b.allCommitted() {
		b.announceFatal()
		return
	}
	if a.step == arbitVoiding && a.view == b.view.Number && b.holders(0) && b.allTold() {
		b.start(a.made.node)
	}
	c := b.candidate()
	if a.step == arbitStarting && a.made.view == b.view.Number && b.outer.Has(a.made.node) {
		return
	}
	if a.step == arbitVoiding && a.view == b.view.Number && b.outer.Has(a.made.node) {
		return
	}
	if a.step == arbitTelling && a.view == b.view.Number && !b.allTold() {
		return
	}
	a.step = arbitIdle
	switch {
	case c == 0:
		b.announceArbitrator()
	case a.cur.node == c && a.cur.view == b.view.Number && !a.renew && b.holders(c) && b.allTold():
		b.announceArbitrator()
	case b.holders(c):
		b.start(c)
	default:
		b.env.Mark(kernel.MarkArbitChanged)
		a.step, a.made = arbitVoiding, ticket{node: c}
		b.arbitOrd(&ticket{turn: b.nextTurn()}, 0)
	}
}

// allTold tells whether all members have taken the newest ArbitOrd.
func (b *Block) allTold() bool {
	for _, m := range b.view.Members {
		n := uint8(m.Node)
		if p := &b.peers[n].beat; n != b.node && (p.arbitView != b.arb.view || p.arbitTurn != b.arb.turn) {
			return false
		}
	}
	return true
}

// nextTurn is the number of the next ArbitOrd.
func (b *Block) nextTurn() uint32 {
	if b.arb.view != b.view.Number {
		return 1
	}
	return b.arb.turn + 1
}

// arbitOrd tells all members of a ticket.
func (b *Block) arbitOrd(t *ticket, code uint32) {
	for _, m := range b.view.Members {
		r := kernel.Send[signal.ArbitStartConf](b.env, peerAt(uint8(m.Node)), b.self, signal.NumArbitOrd)
		r.View, r.Turn, r.Code, r.Node, r.Ticket = b.view.Number, t.turn, code, uint32(t.node), t.secret
	}
	b.arb.view, b.arb.turn = b.view.Number, t.turn // so that no number is used twice
}

// start leaves a new ticket with an arbitrator.
func (b *Block) start(n uint8) {
	a := &b.arb
	x := b.env.Rand()
	a.made = ticket{node: n, view: b.view.Number, turn: b.nextTurn(), secret: [2]uint32{uint32(x), uint32(x>>32) | 1}}
	a.step = arbitStarting
	b.arbitOrd(&a.made, signal.ArbitNext)
	r := kernel.Send[signal.ArbitStartReq](b.env, arbitratorAt(n), b.self, signal.NumArbitStartReq)
	r.Run, r.View, r.Turn, r.Ticket = b.run, a.made.view, a.made.turn, a.made.secret
	a.asked++
	b.env.Tick(b.self, b.cfg.ArbitrationTimeout, tickArbit, a.asked, 0)
}

func (b *Block) onArbitStartConf(r *signal.ArbitStartConf) {
	a := &b.arb
	if !b.active() || !b.isPresident() || a.step != arbitStarting || r.View != a.made.view || r.Turn != a.made.turn || r.From.Node() != a.made.node ||
		a.made.view != b.view.Number {
		b.Stale++
		return
	}
	a.step = arbitTelling
	if r.Code != 0 {
		a.step = arbitIdle
		a.bad[a.made.node] = b.env.Now() + badTime
		b.reportText(event.ArbitState, "Node "+number(uint32(a.made.node))+" does not want to arbitrate", r.Code, uint32(a.made.node))
		b.elect()
		return
	}
	a.renew = false
	t := a.made
	t.turn = b.nextTurn()
	b.arbitOrd(&t, 0)
}

// onArbitOrd hears from the president which ticket is good.
func (b *Block) onArbitOrd(r *signal.ArbitStartConf) {
	a := &b.arb
	own := r.From.Node() == b.node
	if !b.active() || r.From.Node() != b.view.President || r.View != b.view.Number || !own && a.view == r.View && r.Turn <= a.turn {
		b.Stale++
		return
	}
	if !own { // the president has noted it already
		a.view, a.turn = r.View, r.Turn
	}
	// The ticket's own turn is that of the order which announced it first, with the arbitrator; the one that makes it
	// good has the next.
	t := ticket{node: uint8(r.Node), view: r.View, turn: r.Turn, secret: r.Ticket}
	switch {
	case r.Node == 0:
		a.cur, a.next = ticket{}, ticket{}
	case r.Code == signal.ArbitNext:
		a.next = t
	case a.next.node == t.node && a.next.secret == t.secret:
		a.cur, a.next = a.next, ticket{}
	default:
		t.turn--
		a.cur, a.next = t, ticket{}
	}
	b.beat()
	b.tellState()
	if own {
		b.elect()
	}
}

// announceArbitrator tells who arbitrates, once.
func (b *Block) announceArbitrator() {
	a := &b.arb
	now := b.arbitratorNow()
	if now != a.told || now == 0 && !a.missing {
		a.told, a.missing = now, now == 0
		if now != 0 {
			b.reportText(event.ArbitState, "President "+number(uint32(b.node))+" has chosen node "+number(uint32(now)), 0, uint32(now))
		} else {
			b.reportText(event.ArbitState, "There is no arbitrator: no management server or client with an ArbitrationRank above 0 is connected to node "+
				number(uint32(b.node)), 1, 0)
		}
		b.tellState()
	}
	b.announceFatal()
}

func (b *Block) onArbitTimeout(asked uint32) {
	a := &b.arb
	if asked != a.asked {
		return
	}
	switch {
	case b.lead.state == leadArbitrating && b.cfg.Arbitration == ArbitrationWaitExternal:
		b.reportText(event.ArbitResult, "Nobody ended this part within ArbitrationTimeout: it goes on", 0, 0)
		b.goOn()
	case b.lead.state == leadArbitrating:
		b.loseArbitration("the arbitrator, node " + number(uint32(a.shown.node)) + ", did not answer within ArbitrationTimeout")
	case a.step == arbitStarting:
		a.step = arbitIdle
		a.bad[a.made.node] = b.env.Now() + badTime
		b.elect()
	}
}

// arbitrate finds out whether the part that is being led may go on though it has just half of the members.
func (b *Block) arbitrate() {
	l, a := &b.lead, &b.arb
	switch b.cfg.Arbitration {
	case ArbitrationDisabled:
		b.loseArbitration("arbitration is disabled (Arbitration=Disabled)")
		return
	case ArbitrationWaitExternal:
		b.reportText(event.ArbitState, "The part with nodes "+listOf(&l.part)+" waits ArbitrationTimeout for somebody outside to end one of the parts", 2, 0)
	default:
		if a.holder() == 0 {
			b.loseArbitration("there is no arbitrator")
			return
		}
	}
	l.enter(leadArbitrating, b.env.Now())
	a.asked++
	b.env.Tick(b.self, b.cfg.ArbitrationTimeout, tickArbit, a.asked, 0)
	if b.cfg.Arbitration == ArbitrationDefault {
		t := a.next
		if t.node == 0 {
			t = a.cur
		}
		b.show(t)
	}
}

// show shows the arbitrator a ticket, by way of another member if need be.
func (b *Block) show(t ticket) {
	a := &b.arb
	a.shown, a.ways = t, 0
	if b.outer.Has(t.node) {
		b.showBy(arbitratorAt(t.node))
	} else {
		b.showNext()
	}
}

// showAgain asks in another way when no answer has come for two heartbeats: whoever wins hears it again.
func (b *Block) showAgain() {
	if b.cfg.Arbitration == ArbitrationDefault && b.hear.halves%4 == 0 && b.arb.shown.node != 0 {
		b.showNext()
	}
}

// showNext asks by way of the next member of the part that can reach the arbitrator; after the last one directly. If there
// is no way a link may come up within ArbitrationTimeout.
func (b *Block) showNext() {
	a, l := &b.arb, &b.lead
	for n := l.part.Next(a.ways); n != 0; n = l.part.Next(n) {
		if n != b.node && l.answers[n].arbiter {
			a.ways = n
			b.env.Mark(kernel.MarkArbitRelay)
			b.showBy(peerAt(n))
			return
		}
	}
	a.ways = 0
	if b.outer.Has(a.shown.node) {
		b.showBy(arbitratorAt(a.shown.node))
	}
}

func (b *Block) showBy(to signal.Addr) {
	t, l := &b.arb.shown, &b.lead
	r := kernel.Send[signal.ArbitChooseReq](b.env, to, b.self, signal.NumArbitChooseReq)
	r.Attempt, r.Run, r.View, r.Turn, r.Ticket, r.Part = l.attempt, b.run, t.view, t.turn, t.secret, l.votes
}

// outerChanged hears that the link to a management server or client has come or gone.
func (b *Block) outerChanged(n uint8) {
	a := &b.arb
	if n == a.cur.node && !b.outer.Has(n) {
		a.renew = true
	}
	if b.lead.state == leadArbitrating && n == a.shown.node {
		b.show(a.shown) // the question or its answer may have been lost
	}
	b.elect()
}

// onArbitChooseReq passes a question on for a leader that has no link to the arbitrator.
func (b *Block) onArbitChooseReq(r *signal.ArbitChooseReq) {
	a := &b.arb
	n := r.From.Node()
	to := uint8(0)
	for _, t := range [...]ticket{a.cur, a.next} {
		if t.node != 0 && t.secret == r.Ticket && b.outer.Has(t.node) {
			to = t.node
		}
	}
	if !b.active() || !b.view.Has(n) || to == 0 {
		b.Stale++
		return
	}
	a.relay, a.number = n, r.Attempt
	r.From, r.To = b.self, arbitratorAt(to)
	b.env.Forward(&r.Head)
}

func (b *Block) onArbitChooseConf(r *signal.ArbitChooseConf) {
	a, l := &b.arb, &b.lead
	won := r.Num == signal.NumArbitChooseConf
	switch {
	case l.state == leadArbitrating && r.Attempt == l.attempt && won:
		b.env.Mark(kernel.MarkArbitWon)
		b.reportText(event.ArbitResult, "Arbitration won: node "+listOf(&l.votes)+" may go on", 0, uint32(a.shown.node))
		b.goOn()
	case l.state == leadArbitrating && r.Attempt == l.attempt && r.Code == signal.ArbitRefUnknown && a.next.node != 0 && a.shown == a.next && a.cur.node != 0:
		b.show(a.cur)
	case l.state == leadArbitrating && r.Attempt == l.attempt && r.Code == signal.ArbitRefUnknown:
		b.loseArbitration("the arbitrator, node " + number(uint32(a.shown.node)) + ", does not know the ticket: it was started anew, or another part has gone on")
	case l.state == leadArbitrating && r.Attempt == l.attempt:
		b.loseArbitration("the arbitrator, node " + number(uint32(a.shown.node)) + ", let another part of the cluster go on")
	case a.relay != 0 && r.Attempt == a.number && b.outer.Has(r.From.Node()):
		r.From, r.To = b.self, peerAt(a.relay)
		a.relay = 0
		b.env.Forward(&r.Head)
	default:
		b.Stale++
	}
}

// loseArbitration ends the part.
func (b *Block) loseArbitration(why string) {
	b.env.Mark(kernel.MarkArbitLost)
	b.reportText(event.ArbitResult, "Arbitration lost: "+why, 1, uint32(b.arb.shown.node))
	b.die(exitcode.Arbitration, b.lostWords()+" cannot be reached, this part has just half of the data nodes, and "+why+"; this node starts again")
}
