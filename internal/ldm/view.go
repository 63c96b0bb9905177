package ldm

// Views: who is primary of what, and in which order the replicas of a fragment take a write. The primary decides, with
// the view that it has committed when it lets an operation through (Down in a PrepareReq or ChainReq); a replica below
// goes by what it was told.
//
//	membership --ViewPrepareReq--> ldm --ViewPrepareConf--> membership   nothing is left on fragments that move away
//	membership --ViewCommitReq--> ldm --ViewCommitConf--> membership     nothing is left of members that were lost
//
// | signal         | nothing prepared                                | a view is prepared               |
// | ViewPrepareReq | prepare                                         | the newer one takes its place    |
// | ViewCommitReq  | take it as it is: a start, or one that is known | commit: takeover if any was lost |
//
// Prepare: if members are lost, no epoch is drawn until the commit. A fragment whose primary here will be somewhere else,
// though this node lives, takes no new locks. Commit: see takeover.go for what lost members have left behind.

import (
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/view"
)

// asked is a round of a view change that is to be answered.
type asked struct {
	from    signal.Addr // 0: nothing is owed
	view    uint32
	attempt uint32
}

func (b *Block) viewConf(a *asked, num uint16) {
	c := kernel.Send[signal.ViewConf](b.env, a.from, b.self, num)
	c.View, c.Attempt = a.view, a.attempt
	a.from = 0
}

func (b *Block) onViewPrepareReq(r *signal.ViewReq) {
	b.next.Take(r.View, r.President, r.Members())
	b.prepared = true
	b.prepare = asked{r.From, r.View, r.Attempt}
	b.eachFragment(func(f *fragment) {
		was := f.frozen
		f.frozen = f.primary && b.view.Moves(&b.next, f.places())
		if was && !f.frozen {
			b.env.Mark(kernel.MarkThawed)
		}
	})
	lost := b.view.Lost(&b.next)
	b.epoch.Suspend(!lost.Empty())
	b.unparkAll()
	b.prepareDone()
}

// prepareDone confirms a prepare when nothing is under way on fragments that move away. It waits for nothing if members
// are lost: what is under way with them ends only after the commit, and the new primary refuses what it must.
func (b *Block) prepareDone() {
	if b.prepare.from == 0 {
		return
	}
	if lost := b.view.Lost(&b.next); lost.Empty() {
		busy := false
		b.eachFragment(func(f *fragment) { busy = busy || f.frozen && f.ops > 0 })
		if b.awaited = b.awaited || busy; busy {
			return
		}
	}
	b.viewConf(&b.prepare, signal.NumViewPrepareConf)
}

func (b *Block) onViewCommitReq(r *signal.ViewReq) {
	var next view.View
	next.Take(r.View, r.President, r.Members())
	var lost signal.NodeSet
	if b.prepared {
		lost = b.view.Lost(&next)
	}
	b.view, b.prepared, b.prepare = next, false, asked{}
	b.commit = asked{r.From, r.View, r.Attempt}
	b.eachFragment(func(f *fragment) {
		for n := range f.attached {
			if a := f.attached[n]; a != 0 && (lost.Has(a.Node()) || b.view.State(a.Node()) != signal.MemberRecovering) {
				f.attached[n] = 0
			}
		}
		b.chain(f)
	})
	if !lost.Empty() {
		b.takeOver(&lost)
	}
	b.epoch.Suspend(false)
	b.unparkAll()
	if !lost.Empty() {
		b.grantAll()
	}
	b.copyInView()
	b.answerOutcomes()
	b.takeoverDone()
}

// chain says what the committed view makes of a fragment.
func (b *Block) chain(f *fragment) {
	f.primary, f.frozen, f.passed = b.view.Primary(f.places()) == b.self, false, false
	if !f.primary {
		f.attached = below{}
	}
	if c := f.source; c != nil && !f.isAttached(c.to) {
		f.source = nil
	}
	var order [signal.MaxReplicas]signal.Addr
	if b.view.Chain(f.places(), &order); order != f.order || b.copied(f) {
		f.order, f.arrangedIn = order, b.view.Number
	}
	b.line(f)
}

// copied tells whether somebody may copy the fragment.
func (b *Block) copied(f *fragment) bool {
	for _, p := range f.places() {
		if b.view.State(p.Node()) == signal.MemberRecovering {
			return true
		}
	}
	return false
}

// line says who takes a write behind the primary: those that copy the fragment, then the others as the view has them.
func (b *Block) line(f *fragment) {
	f.down = below{}
	if !f.primary {
		return
	}
	k := 0
	for i, a := range f.attached {
		if f.attached[i] = 0; a != 0 {
			f.attached[k], f.down[k] = a, a
			k++
		}
	}
	copy(f.down[k:], f.order[1:])
}

func (f *fragment) isAttached(a signal.Addr) bool {
	for _, x := range f.attached {
		if x == a {
			return true
		}
	}
	return false
}

// recovering tells whether this node still copies its fragments.
func (b *Block) recovering() bool { return b.view.State(b.env.Node()) == signal.MemberRecovering }

func (b *Block) eachFragment(do func(f *fragment)) {
	for t := range b.tables {
		for _, f := range b.tables[t].frags {
			if f != nil {
				do(f)
			}
		}
	}
}

// grantAll lets every operation look again that may go on, after others were taken out of queues in front of them.
func (b *Block) grantAll() {
	for i := uint32(0); i < b.ops.High(); i++ {
		if o := b.ops.Find(i); o != nil && o.state == waiting {
			b.grant(o.frag, o.frag.rows.Row(o.id), o.id)
		}
	}
}

// below is who comes behind this replica, as whoever let the operation through said, without those that were lost since.
func (b *Block) below(r *signal.PrepareReq) below {
	if r.View >= b.newestLoss {
		return r.Down
	}
	var out below
	n := 0
	for _, a := range r.Down {
		if a != 0 && r.View >= b.lostIn[a.Node()] {
			out[n] = a
			n++
		}
	}
	return out
}
