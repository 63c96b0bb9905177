package coordinator

// Changes of the view, at a coordinator.
//
//	membership --ViewPrepareReq--> tc --ViewPrepareConf--> membership    when no transaction is in the way (freeze.go)
//	membership --ViewCommitReq--> tc --ViewCommitConf--> membership      when the takeover is through (takeover.go)
//
// From the prepare to the commit of a view that lost members no epoch is drawn: no transaction passes its commit point
// while it is being found out who has what of it. With the commit operations go to the primaries of the new view.

import (
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
)

func (b *Block) onViewPrepareReq(r *signal.ViewReq) {
	b.next.Take(r.View, r.President, r.Members())
	lost := b.view.Lost(&b.next)
	b.epoch.Suspend(!lost.Empty())
	b.freeze(r, &lost)
	b.letGo() // an earlier attempt may have lost members where this one has them
}

func (b *Block) onViewCommitReq(r *signal.ViewReq) {
	// The first view of a start comes without a prepare. It takes nothing over, even if an attempt to start before it had
	// more members: nothing was under way then.
	prepared := b.next.Number == r.View
	b.next.Clear()
	b.next.Take(r.View, r.President, r.Members())
	var lost, stayed signal.NodeSet
	if prepared {
		lost = b.view.Lost(&b.next)
		set := b.view.Set()
		stayed = set.Minus(&lost)
	}
	b.view.Copy(&b.next)
	b.next.Clear()
	b.thaw()
	b.resolveAll()
	b.taken.asker, b.taken.attempt = r.From, r.Attempt
	if !lost.Empty() {
		b.takeOver(&lost, &stayed)
	}
	b.epoch.Suspend(false)
	b.letGo()
	b.takenOver()
}

// resolve finds where the operations on a table go. While a view is prepared that moves a primary which is alive, they
// go nowhere.
func (b *Block) resolve(t *table) {
	for f := range t.primary {
		if home := t.home(uint16(f)); b.next.Number != 0 && b.view.Moves(&b.next, home) {
			t.primary[f] = 0
		} else {
			t.primary[f] = b.view.Primary(home)
		}
	}
}

func (b *Block) resolveAll() {
	for i := range b.tables {
		b.resolve(&b.tables[i])
	}
}

// home is the places of a fragment.
func (t *table) home(frag uint16) []signal.Addr {
	return t.homes[int(frag)*signal.MaxReplicas:][:signal.MaxReplicas]
}

// hit tells whether an operation is on a fragment of a node group that lost a member.
func (b *Block) hit(o *operation, lost *signal.NodeSet) bool {
	for _, p := range b.tables[o.table].home(o.frag) {
		if p != 0 && lost.Has(p.Node()) {
			return true
		}
	}
	return false
}

// hitTx tells whether a transaction has an operation under way on such a fragment.
func (b *Block) hitTx(t *transaction, lost *signal.NodeSet) bool {
	for oi := t.head; oi != pool.None; {
		o := b.ops.At(oi)
		if o.state != done && o.state != released && b.hit(o, lost) {
			return true
		}
		oi = o.next
	}
	return false
}

func (b *Block) viewConf(to signal.Addr, num uint16, number, attempt uint32) {
	c := kernel.Send[signal.ViewConf](b.env, to, b.self, num)
	c.View, c.Attempt = number, attempt
}

// untie is the end of a transaction that a change of the view waits for.
func (b *Block) untie(bits uint8) {
	if bits&txFreeze != 0 {
		b.ice.inWay--
		b.frozen()
	}
	if bits&txTouched != 0 {
		b.taken.open--
		b.takenOver()
	}
}
