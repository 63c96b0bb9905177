package coordinator

// Abort: before the commit point only. Every operation that holds something, or may come to hold something, is undone;
// the client is told when nothing is left.
//
//	tc --AbortReq--> primary --AbortReq--> … tail --AbortConf--> tc      for each operation that is prepared or waits
//	client <--TxRef-- tc
//
// An operation whose prepare is not answered yet is undone when its answer comes: only then its record is known. One
// whose chain lost a member waits for the decision of the takeover.

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
)

// abort begins to undo an active or held transaction. code 0: the client asked for it.
func (b *Block) abort(i uint32, t *transaction, code, ref uint32) {
	invariant.That(t.state == active || t.state == held, "a transaction is aborted before its commit point")
	if t.state == held {
		b.epoch.unhold(b, i)
	}
	t.state, t.code, t.failRef, t.undo = aborting, code, ref, 0
	for oi := t.head; oi != pool.None; {
		o := b.ops.At(oi)
		switch o.state {
		case running:
			t.undo++
		case waiting, prepared:
			t.undo++
			if o.bits&opTouched == 0 {
				b.undo(t, o, oi)
			}
		}
		oi = o.next
	}
	if t.undo == 0 {
		b.aborted(i, t)
	}
}

// undo sends the AbortReq of an operation whose record at the primary is known.
func (b *Block) undo(t *transaction, o *operation, oi uint32) {
	o.state = undoing
	b.step(signal.NumAbortReq, o.primary, o.first, oi, o, t)
}

// undoAnswered goes on with an operation whose prepare was answered while its transaction aborts.
func (b *Block) undoAnswered(i uint32, t *transaction, o *operation, oi uint32) {
	switch {
	case o.state == done:
		b.undone(i, t)
	case o.bits&opTouched == 0:
		b.undo(t, o, oi)
	}
}

func (b *Block) onAbortConf(r *signal.StepConf) {
	if r.Direct != 0 {
		b.onDirectConf(r)
		return
	}
	o := b.stepped(r, undoing)
	switch {
	case o == nil:
	case o.bits&opTouched != 0:
		b.Stale++ // behind the gap in its chain somebody may have it still
	default:
		o.state = done
		b.undone(o.tx, b.txs.At(o.tx))
	}
}

func (b *Block) undone(i uint32, t *transaction) {
	invariant.That(t.undo > 0, "no more is undone than was done")
	if t.undo--; t.undo == 0 {
		b.aborted(i, t)
	}
}

func (b *Block) aborted(i uint32, t *transaction) {
	b.txRef(t.client, t.num, t.code, t.failRef)
	b.end(i, t)
}
