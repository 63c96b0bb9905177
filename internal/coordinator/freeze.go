package coordinator

// Freeze: a primary is about to move from a node that lives, because that stops or gives back what it took over. Between
// the prepare and the commit of the view nothing may use the fragment: the old primary has locks that the new one does not
// know. New operations on it are refused (1204), and the prepare is confirmed when no open transaction has one. Those that
// still have after FreezeMillis and are not past their commit point are rolled back (270).
//
// A transaction that the same view takes a member away from is not waited for: it cannot go on before the commit, and
// then the takeover ends it. One may come to be so after the prepare, so that is looked at again every FreezeMillis.

import (
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
)

// freeze is what a coordinator owes a prepare.
type freeze struct {
	asker   signal.Addr // who is to be told that nothing is in the way; 0 = nobody
	view    uint32
	attempt uint32
	inWay   int // open transactions that use a fragment whose primary moves
}

// freeze begins what the prepare of a view asks for; it takes the place of an earlier one.
func (b *Block) freeze(r *signal.ViewReq, lost *signal.NodeSet) {
	b.thaw()
	b.ice = freeze{asker: r.From, view: r.View, attempt: r.Attempt}
	b.resolveAll()
	if b.view.Number != 0 {
		for i := uint32(0); i < b.txs.High(); i++ {
			if t := b.txs.Find(i); t != nil && b.usesMoving(t) && !b.hitTx(t, lost) {
				t.bits |= txFreeze
				b.ice.inWay++
			}
		}
	}
	if b.ice.inWay > 0 {
		b.env.Tick(b.self, signal.FreezeMillis*1_000_000, tickFreeze, r.View, r.Attempt)
	}
	b.frozen()
}

// usesMoving tells whether a transaction has an operation on a fragment whose primary moves.
func (b *Block) usesMoving(t *transaction) bool {
	for oi := t.head; oi != pool.None; {
		o := b.ops.At(oi)
		if b.view.Moves(&b.next, b.tables[o.table].home(o.frag)) {
			return true
		}
		oi = o.next
	}
	return false
}

// frozen confirms the prepare when nothing is in the way any more.
func (b *Block) frozen() {
	if b.ice.asker == 0 || b.ice.inWay != 0 {
		return
	}
	to := b.ice.asker
	b.ice.asker = 0
	b.viewConf(to, signal.NumViewPrepareConf, b.ice.view, b.ice.attempt)
}

// freezeOver rolls back what is in the way of a prepare for too long.
func (b *Block) freezeOver(view, attempt uint32) {
	if b.ice.asker == 0 || b.ice.view != view || b.ice.attempt != attempt {
		return
	}
	lost := b.view.Lost(&b.next)
	for i := uint32(0); i < b.txs.High(); i++ {
		t := b.txs.Find(i)
		if t == nil || t.bits&txFreeze == 0 {
			continue
		}
		if b.hitTx(t, &lost) {
			t.bits &^= txFreeze
			b.ice.inWay--
		} else if t.state == active || t.state == held {
			b.env.Mark(kernel.MarkFreezeRollback)
			b.abort(i, t, codeShutdown, signal.NoRef)
		}
	}
	if b.frozen(); b.ice.asker != 0 && !lost.Empty() {
		b.env.Tick(b.self, signal.FreezeMillis*1_000_000, tickFreeze, view, attempt)
	}
}

// thaw forgets what was in the way of a prepare.
func (b *Block) thaw() {
	if b.ice.inWay > 0 {
		for i := uint32(0); i < b.txs.High(); i++ {
			if t := b.txs.Find(i); t != nil {
				t.bits &^= txFreeze
			}
		}
	}
	b.ice = freeze{}
}
