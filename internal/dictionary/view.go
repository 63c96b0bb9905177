package dictionary

// Changes of the view, and schema transactions under failures:
//
//	a member is lost:     nobody waits for it any more; what it had passed on is dropped
//	the president is lost:
//	  new president --SchemaStateReq--> all --SchemaStateConf--> new president      what do you know?
//	  the rest of the steps of the newest schema transaction
//	  new president --SchemaGoOrd--> all                                            send your requests
//
// | newest transaction           | what the new president does                       |
// | create, all have prepared    | commits it everywhere; so it does if somebody has committed  |
// | create, otherwise            | undoes it everywhere: nobody can have committed              |
// | drop, begun anywhere         | runs both steps everywhere; whoever is further answers at once |
// | ended at all who know of it  | nothing                                                      |
//
// When all have prepared, the lost president may have committed, and a client may have found the table there and used it
// already: it must not be undone.

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// takeover is what a loss has left behind.
type takeover struct {
	prepared bool   // a view that lost members is prepared
	lost     uint32 // newest committed view that lost members
	ended    uint32 // newest view whose takeover has ended
	asked    uint32 // view in which a president asked what we know, not answered yet; 0 = none
	asker    signal.Addr

	// Of the president, about views in which somebody has another state, though nobody is lost:
	turning bool   // one is prepared
	turned  uint32 // newest that is committed
	owed    bool   // the answer to its prepare, …
	prepare signal.ViewConf
}

// turns tells whether a member's state is being changed. No table may be made meanwhile: a member that still copies has to
// catch up with each fragment that is made, while one that does not any more is in its chain from the beginning; and of a
// fragment that is made between the two rounds nobody has seen that its primary moves. So all have to make a table in the
// same view.
func (t *takeover) turns() bool { return t.turning || t.turned > t.ended }

// holds tells whether operations of lost members may still be under way.
func (t *takeover) holds() bool { return t.prepared || t.lost > t.ended }

// found is what members know of the newest schema transaction.
type found struct {
	tx    schemaTx       // ref 0: there is none
	steps signal.NodeSet // one of signal's Schema constants each: how far somebody is
	made  signal.NodeSet // who has made its part
}

func (b *Block) viewConf(r *signal.ViewReq, num uint16) {
	to, number, attempt := r.From, r.View, r.Attempt
	c := kernel.Send[signal.ViewConf](b.env, to, b.self, num)
	c.View, c.Attempt = number, attempt
}

// lost is who would be lost with a view.
func (b *Block) lost(r *signal.ViewReq) signal.NodeSet {
	var next signal.NodeSet
	for _, m := range r.Members() {
		next.Add(uint8(m.Node))
	}
	members := b.view.Set()
	return members.Minus(&next)
}

// onViewPrepareReq is answered at once, but by a president that is making a table, if the view changes a member's state.
// (Not if members are lost: then what is under way may wait for the commit.)
func (b *Block) onViewPrepareReq(r *signal.ViewReq) {
	o, lost := &b.over, b.lost(r)
	o.prepared, o.turning, o.owed = !lost.Empty(), false, false
	for _, m := range r.Members() {
		if was := b.view.State(uint8(m.Node)); was != 0 && was != m.State && lost.Empty() && b.isPresident() {
			o.turning = true
		}
	}
	if o.turning {
		o.owed, o.prepare = true, signal.ViewConf{Head: signal.Head{From: r.From}, View: r.View, Attempt: r.Attempt}
		b.turn()
		return
	}
	b.viewConf(r, signal.NumViewPrepareConf)
	b.takeNext()
}

// turn answers the prepare that waits for a table to be made.
func (b *Block) turn() {
	o, l := &b.over, &b.lead
	if !o.owed || l.state == asking || l.state != idle && l.kind == signal.SchemaCreate && l.alone == 0 {
		if o.owed {
			b.env.Mark(kernel.MarkViewWaitsForTable)
		}
		return
	}
	o.owed = false
	c := kernel.Send[signal.ViewConf](b.env, o.prepare.From, b.self, signal.NumViewPrepareConf)
	c.View, c.Attempt = o.prepare.View, o.prepare.Attempt
}

// onViewCommitReq takes who is in the cluster. At a start it comes before phase 4, without a prepare.
func (b *Block) onViewCommitReq(r *signal.ViewReq) {
	before, lost := b.view.President, b.lost(r)
	if b.over.turning {
		b.over.turned = r.View
	}
	b.over.prepared, b.over.turning, b.over.owed = false, false, false
	if !lost.Empty() {
		b.over.lost = r.View
	}
	b.view.Take(r.View, r.President, r.Members())
	switch {
	case before == 0:
		b.settled = true
		if b.view.Serving(b.env.Node()) {
			b.part, b.lead.parts = signal.PartFull, b.view.Set()
		}
	case before != b.view.President:
		b.settled = false
		for i := range b.forwards {
			f := &b.forwards[i]
			f.again = f.again || f.sent
		}
		if b.joining && b.forget == keeps { // what the lost president had told us may not be all
			b.env.Mark(kernel.MarkTablesAgain)
			b.forget = forgetsTold
			b.forgetTables()
		}
		if b.isPresident() {
			b.ask()
		}
	}
	if !b.isPresident() {
		b.lead = leader{next: b.lead.next}
	}
	b.forsake(&lost)
	b.dropLost()
	b.answerAsker()
	b.viewConf(r, signal.NumViewCommitConf)
}

// dropLost makes the president's part wait for nobody who is no member any more.
func (b *Block) dropLost() {
	l, members := &b.lead, b.view.Set()
	for _, s := range [...]*signal.NodeSet{&l.parts, &l.newcomers, &l.waiting} {
		gone := s.Minus(&members)
		*s = s.Minus(&gone)
	}
	if l.alone != 0 && !members.Has(l.alone) {
		l.state, l.alone = idle, 0
		b.takeNext()
		return
	}
	b.stepOver()
}

// onTakeoverRep hears that nothing is left of members that were lost.
func (b *Block) onTakeoverRep(r *signal.TakeoverRep) {
	b.over.ended = max(b.over.ended, r.View)
	b.stepOver()
	b.takeNext()
}

// ask makes a new president ask what everybody knows. It knows all tables itself: whoever still joins came after the
// members that it copies from, and is put out of the view with them.
func (b *Block) ask() {
	invariant.That(b.part == signal.PartFull, "the president knows all tables")
	b.lead = leader{state: asking, next: b.lead.next, waiting: b.view.Set(), asked: b.view.Number}
	l := &b.lead
	for n := l.waiting.Next(0); n != 0; n = l.waiting.Next(n) {
		q := kernel.Send[signal.SchemaStateReq](b.env, signal.MakeAddr(n, signal.BlockDictionary, 0), b.self, signal.NumSchemaStateReq)
		q.View = l.asked
	}
}

// onSchemaStateReq keeps a new president's question until the own node has committed its view, too, and nothing is under
// way here.
func (b *Block) onSchemaStateReq(r *signal.SchemaStateReq) {
	b.over.asked, b.over.asker = r.View, r.From
	b.answerAsker()
}

func (b *Block) answerAsker() {
	o, x := &b.over, &b.local.tx
	if o.asked == 0 || o.asked > b.view.Number || b.local.doing != resting {
		return
	}
	asked, asker := o.asked, o.asker
	o.asked, o.asker = 0, 0
	if asker.Node() != b.view.President {
		b.Stale++
		return
	}
	c := kernel.Send[signal.SchemaStateConf](b.env, asker, b.self, signal.NumSchemaStateConf)
	c.View, c.Part, c.Ref, c.Kind, c.Table, c.Version, c.Step, c.Code = asked, b.part, x.ref, x.kind, x.table, x.version, x.step, x.code
	c.Asker, c.AskerRef, c.Alone = x.asker, x.askerRef, 0
	if x.alone {
		c.Alone = 1
	}
}

// onSchemaStateConf collects what members know of the newest schema transaction.
func (b *Block) onSchemaStateConf(r *signal.SchemaStateConf) {
	l := &b.lead
	n := r.From.Node()
	if l.state != asking || r.View != l.asked || !l.waiting.Has(n) {
		b.Stale++
		return
	}
	l.waiting.Remove(n)
	l.next = max(l.next, r.Ref)
	if r.Part == signal.PartFull {
		l.parts.Add(n)
		if f := &l.found; r.Ref > f.tx.ref && r.Alone == 0 {
			*f = found{tx: schemaTx{ref: r.Ref, kind: r.Kind, table: r.Table, version: r.Version, asker: r.Asker, askerRef: r.AskerRef}}
		}
		if f := &l.found; r.Ref == f.tx.ref && r.Alone == 0 && r.Ref != 0 {
			if f.steps.Add(uint8(r.Step)); r.Step == signal.SchemaPrepared && r.Code == 0 || r.Step == signal.SchemaCommitted {
				f.made.Add(n)
			}
		}
	}
	b.stepOver()
}

// resume makes a new president finish what the lost one had begun.
func (b *Block) resume() {
	l := &b.lead
	x, steps := l.found.tx, l.found.steps
	committed, aborted := steps.Has(uint8(signal.SchemaCommitted)), steps.Has(uint8(signal.SchemaAborted))
	if invariant.That(!committed || !aborted, "a schema transaction ends everywhere in the same way"); !steps.Has(uint8(signal.SchemaPrepared)) {
		l.state = idle // all who know of it have ended it
		b.letGo()
		return
	}
	l.ref, l.kind, l.table, l.version, l.asker, l.askerRef = x.ref, x.kind, x.table, x.version, x.asker, x.askerRef
	l.resuming, l.code = true, 0
	if l.name = b.local.tx.name; b.local.tx.ref != x.ref && int(x.table) < len(b.tables) {
		l.name = b.tables[x.table].name
	}
	size := signal.SchemaReqSize(0, 0, 0)
	switch {
	case x.kind == signal.SchemaDrop:
		b.env.Mark(kernel.MarkDropFinished)
		l.state = preparingAll
		b.toMembers(signal.NumSchemaPrepareReq, size, nil)
	case committed || l.found.made.Covers(&l.parts):
		b.env.Mark(kernel.MarkCreateFinished)
		l.state = committingAll
		b.toMembers(signal.NumSchemaCommitReq, size, nil)
	default:
		b.env.Mark(kernel.MarkCreateUndone)
		l.state, l.code = abortingAll, codeNodeFailure
		b.toMembers(signal.NumSchemaAbortReq, size, nil)
	}
}

// letGo lets all members send their requests: nothing is left of what the lost president had begun.
func (b *Block) letGo() {
	l := &b.lead
	l.resuming = false
	b.turn()
	members := b.view.Set()
	for n := members.Next(0); n != 0; n = members.Next(n) {
		g := kernel.Send[signal.SchemaGoOrd](b.env, signal.MakeAddr(n, signal.BlockDictionary, 0), b.self, signal.NumSchemaGoOrd)
		g.View = b.view.Number
	}
}

func (b *Block) onSchemaGoOrd(r *signal.SchemaGoOrd) {
	if r.From.Node() != b.view.President {
		b.Stale++
		return
	}
	b.settled = true
	b.passAll()
	if b.isPresident() {
		b.takeNext()
	}
	b.askTables()
}
