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
				b.step(signal.NumCompleteReq, o.primary, o.first, oi, o, t)
				t.completes++
			} else {
				s := b.step(signal.NumCommitReq, o.last, o.lastRef, oi, o, t)
				if o.isMarker {
					s.Seq = t.seq
				}
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

func (b *Block) onCommitConf(r *signal.StepConf) {
	_, i, t := b.answered(r.TcRef, r.Num)
	invariant.That(t.state == committing && t.commits > 0, "a commit is confirmed while it is under way")
	if t.commits--; t.commits == 0 {
		b.committed(i, t)
	}
}

// committed tells the client: every replica of every row has the change. Then the locks go.
func (b *Block) committed(i uint32, t *transaction) {
	b.outcomes.Record(t.client, t.seq, t.gci)
	b.txConf(t, true)
	t.state = completing
	if t.writes > 0 {
		for oi := t.head; oi != pool.None; {
			o := b.ops.At(oi)
			if o.state == prepared && !signal.IsRead(o.op) {
				b.step(signal.NumCompleteReq, o.last, o.lastRef, oi, o, t)
				t.completes++
			}
			oi = o.next
		}
	}
	if t.completes == 0 {
		b.completed(i, t)
	}
}

func (b *Block) onCompleteConf(r *signal.StepConf) {
	_, i, t := b.answered(r.TcRef, r.Num)
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

func (b *Block) onOutcomeReq(r *signal.OutcomeReq) {
	gci, known := b.outcomes.Find(r.From, r.Seq)
	tx, seq := r.Tx, r.Seq
	c := kernel.Send[signal.OutcomeConf](b.env, r.From, b.self, signal.NumOutcomeConf)
	c.Tx, c.Seq, c.Known, c.GCI = tx, seq, 0, gci
	if known {
		c.Known = 1
	}
}
