package coordinator

// Commit and complete. The commit point is the draw of the epoch in commit.
//
//	tc --CommitReq--> tail --CommitReq--> … primary --CommitConf--> tc      for each write
//	client <--TxConf{committed}-- tc                                        when all have answered
//	tc --CompleteReq--> tail --CompleteReq--> … primary --CompleteConf--> tc
//
// Locks of reads live at the primary only; they are released by a CompleteReq at the commit point, since the epoch
// is drawn: whoever gets the lock next draws the same epoch or a later one.

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
)

func (b *Block) commit(i uint32, t *transaction) {
	if !b.epoch.Open() {
		t.state = held
		b.epoch.hold(b, i)
		return
	}
	t.state = committing
	t.gci = b.epoch.GCI
	t.parity = b.epoch.Enter()
	for oi := t.head; oi != pool.None; {
		o := b.ops.At(oi)
		if o.state == prepared {
			if signal.IsRead(o.op) {
				o.state = releasing
				b.step(signal.NumCompleteReq, o.primary, o.first, oi, o, t)
				t.completes++
			} else {
				o.state = applying
				b.step(signal.NumCommitReq, o.last, o.lastRef, oi, o, t).Seq = t.seq
				t.commits++
			}
		}
		oi = o.next
	}
	if t.commits == 0 {
		b.committed(i, t)
	}
}

// step sends one signal of commit, complete or abort.
func (b *Block) step(num uint16, to signal.Addr, opRef, tcRef uint32, o *operation, t *transaction) *signal.Step {
	s := kernel.Send[signal.Step](b.env, to, b.self, num)
	s.OpRef, s.TcRef, s.Tc, s.GCI, s.Seq, s.Ack = opRef, tcRef, b.self, t.gci, 0, 0
	s.OpSeq, s.Direct = o.seq, 0
	s.RowID, s.Table, s.Frag = signal.NoRef, o.table, o.frag
	return s
}

// stepped finds the operation that the answer to a step of the usual kind is about, nil if the answer does not matter any
// more: that happens only where a takeover has finished the operation in another way.
func (b *Block) stepped(r *signal.StepConf, in opState) *operation {
	o := b.ops.Find(r.TcRef)
	if o != nil && o.seq == r.OpSeq && o.state == in && o.bits&opDirect == 0 {
		return o
	}
	b.late(&r.Head, r.TcRef)
	return nil
}

// late counts an answer to an operation that does not wait for it.
func (b *Block) late(h *signal.Head, ref uint32) {
	if b.taken.round == 0 {
		invariant.Failf("%s for operation %d, which does not wait for it", signal.Name(h.Num), ref)
	}
	b.Stale++
	b.env.Mark(kernel.MarkLateAnswer)
}

func (b *Block) onCommitConf(r *signal.StepConf) {
	if r.Direct != 0 {
		b.onDirectConf(r)
		return
	}
	if o := b.stepped(r, applying); o != nil {
		o.state = applied
		b.opCommitted(o.tx, b.txs.At(o.tx))
	}
}

// opCommitted counts one write of a transaction that has committed at every replica.
func (b *Block) opCommitted(i uint32, t *transaction) {
	invariant.That(t.state == committing && t.commits > 0, "a commit is confirmed while it is under way")
	if t.commits--; t.commits == 0 {
		b.committed(i, t)
	}
}

// committed tells the client: every replica of every row has the change. Then the locks go.
func (b *Block) committed(i uint32, t *transaction) {
	b.txConf(t, true)
	t.state = completing
	t.completes++ // until all are on their way
	if t.writes > 0 {
		for oi := t.head; oi != pool.None; {
			o := b.ops.At(oi)
			next := o.next
			if o.state == applied {
				o.state = releasing
				t.completes++
				switch {
				case o.bits&(opTouched|opDirect) == 0:
					b.step(signal.NumCompleteReq, o.last, o.lastRef, oi, o, t)
				case o.bits&opDirect != 0:
					b.direct(i, t, oi, o)
				}
			}
			oi = next
		}
	}
	b.opCompleted(i, t)
}

func (b *Block) onCompleteConf(r *signal.StepConf) {
	if r.Direct != 0 {
		b.onDirectConf(r)
		return
	}
	if o := b.stepped(r, releasing); o != nil {
		o.state = released
		b.opCompleted(o.tx, b.txs.At(o.tx))
	}
}

// opCompleted counts one operation of a transaction whose lock is released everywhere.
func (b *Block) opCompleted(i uint32, t *transaction) {
	invariant.That((t.state == completing || t.state == committing) && t.completes > 0, "a complete is confirmed while it is under way")
	if t.completes--; t.completes == 0 && t.state == completing {
		b.completed(i, t)
	}
}

func (b *Block) completed(i uint32, t *transaction) {
	p := t.parity
	b.end(i, t)
	b.leaveEpoch(p)
}
