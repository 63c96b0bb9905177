package coordinator

// Deadlocks: the coordinators' half of the search for cycles.
//
//	ldm --ProbeOrd--> tc --WaitProbeOrd--> ldm      for each other operation of the transaction that waits
//	client <--TxRef (274)-- tc                      when the probe is back at the transaction that it began with
//
// Each transaction that waits for long enough sends probes (its ldm does), so a cycle sees one from each of its
// transactions. All but one are dropped on the way: a probe does not pass a transaction of higher rank than the one that
// it began with. So the highest of the cycle is rolled back, and nobody else, even if it was on several probes' way: when
// it has begun to abort it waits for nothing any more. What a probe finds may have changed behind it; a transaction that
// does not wait when its own probe comes back stays.

import (
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
)

func (b *Block) onProbeOrd(r *signal.ProbeOrd) {
	o := b.ops.Find(r.TcRef)
	if o == nil || o.seq != r.OpSeq {
		b.Stale++ // whom somebody waited for has ended
		return
	}
	t := b.txs.At(o.tx)
	if t.state != active {
		return // it ends by itself
	}
	if r.Tc == b.self && r.Client == t.client && r.Tx == t.num {
		if w := b.waitsFor(t); w != nil {
			b.env.Mark(kernel.MarkDeadlock)
			b.abort(o.tx, t, codeDeadlock, w.ref)
		}
		return
	}
	if r.Hops >= signal.MaxProbeHops || b.outranks(t, r) {
		return
	}
	for oi := t.head; oi != pool.None; {
		w := b.ops.At(oi)
		if w.state == waiting && oi != r.TcRef {
			p := kernel.Send[signal.ProbeOrd](b.env, w.primary, b.self, signal.NumWaitProbeOrd)
			p.Tc, p.Client, p.Tx, p.TcRef, p.OpSeq, p.OpRef, p.Hops, p.Round = r.Tc, r.Client, r.Tx, oi, w.seq, w.first, r.Hops+1, r.Round
		}
		oi = w.next
	}
}

// waitsFor is the first operation of a transaction that waits for a lock, nil if none does.
func (b *Block) waitsFor(t *transaction) *operation {
	for oi := t.head; oi != pool.None; {
		o := b.ops.At(oi)
		if o.state == waiting {
			return o
		}
		oi = o.next
	}
	return nil
}

// outranks tells whether a transaction of this coordinator is higher than the one that a probe began with. Clients do not
// give a number twice; if one does, coordinators decide.
func (b *Block) outranks(t *transaction, r *signal.ProbeOrd) bool {
	switch {
	case t.client != r.Client:
		return t.client > r.Client
	case t.num != r.Tx:
		return t.num > r.Tx
	}
	return b.self > r.Tc
}
