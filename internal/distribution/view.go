package distribution

// Changes of the view, and the epochs under failures:
//
//	a member is lost:       nobody waits for it any more; no change of the epoch begins or ends until TakeoverRep
//	the president is lost:  new president's distribution --EpochStateReq--> all --EpochStateConf-->
//	                        the change to the newest epoch that anybody has prepared, once more
//	a member joins:         distribution --EpochJoinReq--> president's: it takes part from the next change on
//
// The rounds of a change go on during a takeover, since what is left of the lost members may wait for the new epoch; it
// is only the end of the change that has to wait, for it says that nothing of older epochs is left.

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/view"
)

// takeover is what holds the epochs up after a loss.
type takeover struct {
	prepared bool   // a view that lost members is prepared
	lost     uint32 // newest committed view that lost members
	ended    uint32 // newest view whose takeover has ended
	asked    uint32 // view in which a president has asked how far we are, while we have not committed it; 0 = none
	asker    signal.Addr
}

// holds tells whether a change of the epoch may neither begin nor end.
func (t *takeover) holds() bool { return t.prepared || t.lost > t.ended }

// View is who is in the cluster, for those who inspect a node.
func (b *Block) View() *view.View { return &b.view }

// Takeover tells whether something of lost members may be left.
func (b *Block) Takeover() bool { return b.over.holds() }

// Epoch is the newest epoch that is committed here.
func (b *Block) Epoch() signal.GCI { return b.local.gci }

func (b *Block) viewConf(r *signal.ViewReq, num uint16) {
	to, number, attempt := r.From, r.View, r.Attempt
	c := kernel.Send[signal.ViewConf](b.env, to, b.self, num)
	c.View, c.Attempt = number, attempt
}

// loses tells whether a view lacks somebody of the present one.
func (b *Block) loses(r *signal.ViewReq) bool {
	var next signal.NodeSet
	for _, m := range r.Members() {
		next.Add(uint8(m.Node))
	}
	members := b.view.Set()
	return !next.Covers(&members)
}

func (b *Block) onViewPrepareReq(r *signal.ViewReq) {
	b.over.prepared = b.loses(r)
	b.viewConf(r, signal.NumViewPrepareConf)
}

// onViewCommitReq takes who is in the cluster. At a start it comes before phase 3, without a prepare.
func (b *Block) onViewCommitReq(r *signal.ViewReq) {
	o := &b.over
	before := b.view.President // 0: this is the node's first view
	o.prepared = false
	if b.loses(r) {
		o.lost = r.View
	}
	b.view.Take(r.View, r.President, r.Members())
	if before == 0 {
		b.first = signal.JoinGCI(r.GCI)
		if b.view.Serving(b.env.Node()) {
			b.local.part = signal.PartFull
		}
	}
	switch {
	case !b.isPresident():
	case before != 0 && before != b.view.President:
		b.ask()
	default:
		b.dropLost()
	}
	b.answerAsker()
	b.viewConf(r, signal.NumViewCommitConf)
}

// dropLost makes the president's part wait for nobody who is no member any more.
func (b *Block) dropLost() {
	l, members := &b.lead, b.view.Set()
	for _, s := range [...]*signal.NodeSet{&l.parts, &l.coming, &l.waiting} {
		gone := s.Minus(&members)
		*s = s.Minus(&gone)
	}
	l.gaveUp = false
	if l.state != resting {
		b.roundOver()
	}
}

// onTakeoverRep hears that nothing is left of members that were lost.
func (b *Block) onTakeoverRep(r *signal.TakeoverRep) {
	o := &b.over
	held := o.holds()
	o.ended = max(o.ended, r.View)
	d := kernel.Send[signal.TakeoverRep](b.env, signal.MakeAddr(b.env.Node(), signal.BlockDictionary, 0), b.self, signal.NumTakeoverRep)
	d.View = o.ended
	for i := range b.env.Instances(signal.BlockLDM) {
		kernel.Send[signal.TakeoverRep](b.env, signal.MakeAddr(b.env.Node(), signal.BlockLDM, uint16(i)), b.self, signal.NumTakeoverRep).View = o.ended
	}
	l := &b.lead
	if !held || o.holds() || l.run == 0 {
		return
	}
	l.began = b.env.Now() // nobody was late: there was a takeover
	switch {
	case l.state == committing:
		b.roundOver()
	case l.state == resting && l.due:
		b.nextChange()
	}
}

// ask makes a new president ask how far everybody is.
func (b *Block) ask() {
	b.startEngine()
	l := &b.lead
	l.state, l.waiting, l.asked = asking, b.view.Set(), b.view.Number
	for n := l.waiting.Next(0); n != 0; n = l.waiting.Next(n) {
		q := kernel.Send[signal.EpochStateReq](b.env, signal.MakeAddr(n, signal.BlockDistribution, 0), b.self, signal.NumEpochStateReq)
		q.View = l.asked
	}
}

// onEpochStateReq keeps a new president's question until the own node has committed its view, too.
func (b *Block) onEpochStateReq(r *signal.EpochStateReq) {
	b.over.asked, b.over.asker = r.View, r.From
	b.answerAsker()
}

func (b *Block) answerAsker() {
	o, l := &b.over, &b.local
	if o.asked == 0 || o.asked > b.view.Number {
		return
	}
	asked, asker := o.asked, o.asker
	o.asked, o.asker = 0, 0
	if asker.Node() != b.view.President {
		b.Stale++
		return
	}
	c := kernel.Send[signal.EpochStateConf](b.env, asker, b.self, signal.NumEpochStateConf)
	c.View, c.GCI, c.Next, c.Busy, c.Part = asked, l.gci.Words(), l.next.Words(), 0, l.part
	if l.state != resting {
		c.Busy = 1
	}
}

// onEpochStateConf collects the newest epoch that anybody has seen, and who takes part.
func (b *Block) onEpochStateConf(r *signal.EpochStateConf) {
	l := &b.lead
	n := r.From.Node()
	if l.state != asking || r.View != l.asked || !l.waiting.Has(n) {
		b.Stale++
		return
	}
	l.waiting.Remove(n)
	gci, next := signal.JoinGCI(r.GCI), signal.JoinGCI(r.Next)
	switch r.Part {
	case signal.PartFull:
		l.pulled = l.pulled || !l.parts.Empty() && next != l.next
		l.again = l.again || l.pulled || r.Busy != 0 || gci != next
		l.parts.Add(n)
		l.next = max(l.next, next)
	case signal.PartComing:
		l.coming.Add(n)
		l.floor = max(l.floor, next)
	}
	b.roundOver()
}

// resume makes a new president go on where the last one was lost.
func (b *Block) resume() {
	l := &b.lead
	due := l.due
	l.checkpoint = b.env.Now()
	if !l.again {
		l.state, l.gci = resting, l.next
		if due && !b.over.holds() {
			b.nextChange()
		}
		return
	}
	b.env.Mark(kernel.MarkEpochRunAgain)
	if l.pulled {
		b.env.Mark(kernel.MarkEpochPulled)
	}
	b.change(l.next)
	l.due = due
}

// askToJoin asks the president to let the own node take part in changes of the epoch. A president that is lost before it
// hears that has a successor who asks.
func (b *Block) askToJoin() {
	invariant.That(b.begun(), "a node joins a cluster")
	q := kernel.Send[signal.EpochJoinReq](b.env, signal.MakeAddr(b.view.President, signal.BlockDistribution, 0), b.self, signal.NumEpochJoinReq)
	q.GCI = b.local.next.Words()
}

func (b *Block) onEpochJoinReq(r *signal.EpochJoinReq) {
	l := &b.lead
	n := r.From.Node()
	if l.run == 0 || !b.view.Has(n) || l.parts.Has(n) {
		b.Stale++
		return
	}
	b.env.Mark(kernel.MarkEpochJoined)
	l.coming.Add(n)
	l.floor = max(l.floor, signal.JoinGCI(r.GCI))
}
