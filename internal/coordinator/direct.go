package coordinator

// Direct steps: an own operation whose chain lost a member is finished by one step to each replica that has reported it,
// instead of one that walks along the chain. To the operation's transaction there is no difference.
//
//	commit           tc --CommitReq--> every replica that has not applied it
//	complete, abort  tc --…Req--> every replica but the primary; then, when these have answered, the primary of the view
//
// The primary is last because it lets somebody else in as soon as it has let the row go, and the others must have done
// so by then.

import (
	"github.com/cohortdb/cohort/internal/signal"
)

// goDirect begins to finish the step that an operation is in directly.
func (b *Block) goDirect(i uint32, t *transaction, oi uint32, o *operation) {
	o.bits |= opDirect
	b.direct(i, t, oi, o)
}

// direct sends the step that an operation is in to those whose turn it is.
func (b *Block) direct(i uint32, t *transaction, oi uint32, o *operation) {
	num := uint16(signal.NumCommitReq)
	switch o.state {
	case releasing:
		num = signal.NumCompleteReq
	case undoing:
		num = signal.NumAbortReq
	}
	o.lastRef = 0
	primary := b.view.Primary(b.tables[o.table].home(o.frag))
	b.about(oi, o, func(r *report) bool {
		turn := (r.from == primary) == (o.bits&opLast != 0)
		if o.state == applying {
			turn = r.state != signal.OpApplied
		}
		if turn {
			s := b.step(num, r.from, r.ref, oi, o, t)
			s.Seq, s.Direct = t.seq, uint32(o.last)
			o.lastRef++
		}
		return true
	})
	if o.lastRef == 0 {
		b.directDone(i, t, oi, o)
	}
}

// directDone goes on when all have answered.
func (b *Block) directDone(i uint32, t *transaction, oi uint32, o *operation) {
	switch {
	case o.state == applying:
		o.state = applied
		b.opCommitted(i, t)
	case o.bits&opLast == 0:
		o.bits |= opLast
		b.direct(i, t, oi, o)
	case o.state == releasing:
		o.state = released
		b.opCompleted(i, t)
	default:
		o.state = done
		b.undone(i, t)
	}
}

func (b *Block) onDirectConf(r *signal.StepConf) {
	if r.Direct&1 != 0 {
		b.onForeignConf(r)
		return
	}
	want := applying
	switch r.Num {
	case signal.NumCompleteConf:
		want = releasing
	case signal.NumAbortConf:
		want = undoing
	}
	o := b.ops.Find(r.TcRef)
	if o == nil || o.seq != r.OpSeq || o.state != want || o.bits&opDirect == 0 || uint32(o.last) != r.Direct || o.lastRef == 0 {
		b.late(&r.Head, r.TcRef)
		return
	}
	if o.lastRef--; o.lastRef == 0 {
		b.directDone(o.tx, b.txs.At(o.tx), r.TcRef, o)
	}
}
