package ldm

// Commit and complete run from the tail of the chain up to the primary, which answers the coordinator.
//
//	tc --CommitReq--> tail --CommitReq--> … primary --CommitConf--> tc
//	tc --CompleteReq--> tail --CompleteReq--> … primary --CompleteConf--> tc
//
// Commit makes the change visible and keeps the lock; complete releases it. Since complete reaches the primary last,
// every backup has let the row go when the primary lets the next transaction in, and a slot that the primary hands
// out again is free everywhere.

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
)

// step finds the operation that a step of a coordinator is about.
func (b *Block) stepped(s *signal.Step) *operation {
	o := b.ops.At(s.OpRef)
	if o.tcRef != s.TcRef || o.state != holding {
		invariant.Failf("%s for operation %d of coordinator record %d, which is %d in state %d", signal.Name(s.Num), s.OpRef, s.TcRef, o.tcRef, o.state)
	}
	return o
}

func (b *Block) onCommitReq(s *signal.Step) {
	o := b.stepped(s)
	r := o.frag.rows.Row(o.id)
	if !o.applied {
		b.commitRow(o.frag, r, o, s.GCI)
	}
	if s.Seq != 0 && o.flags&signal.FlagMarker != 0 && !b.gone[o.client.Node()] && b.outcomes.Admit(o.client, s.Ack) {
		b.outcomes.Record(o.client, s.Seq, s.GCI)
	}
	b.up(s, o, signal.NumCommitReq, signal.NumCommitConf)
}

// up passes a step to the replica before, or answers the coordinator.
func (b *Block) up(s *signal.Step, o *operation, req, conf uint16) {
	if o.prev == 0 {
		c := kernel.Send[signal.StepConf](b.env, o.tc, b.self, conf)
		c.TcRef, c.OpSeq, c.Direct = o.tcRef, o.seq, 0
		return
	}
	n := kernel.Send[signal.Step](b.env, o.prev, b.self, req)
	h := n.Head
	*n = *s
	n.Head, n.OpRef = h, o.prevOp
}

// commitRow makes all that a transaction has pending on a row the row's state, at once: a committed reader sees the
// row before the transaction or after it, nothing between.
func (b *Block) commitRow(f *fragment, r *store.RowHead, o *operation, gci [2]uint32) {
	var last *operation
	for i := top(r); i != pool.None; {
		x := b.ops.At(i)
		if x.state == waiting {
			break
		}
		if x.same(o) {
			x.applied = true
			if x.write {
				last = x
			}
		}
		i = x.down
	}
	r.GCILo, r.GCIHi = gci[0], gci[1]
	if last.exists {
		b.become(last, r)
		r.Lock &^= store.LockInsert
		f.rows.UpdateSum(r)
		return
	}
	r.Lock &^= store.LockInsert
	f.rows.Unindex(f.rows.HashRow(r), o.id)
	for i := top(r); i != pool.None; {
		x := b.ops.At(i)
		if x.state == waiting {
			break
		}
		x.hidden = x.hidden || x.same(o)
		i = x.down
	}
}

func (b *Block) onCompleteReq(s *signal.Step) {
	o := b.stepped(s)
	f, id, hidden := o.frag, o.id, o.hidden
	r := f.rows.Row(id)
	b.unlink(r, o)
	b.up(s, o, signal.NumCompleteReq, signal.NumCompleteConf)
	b.free(s.OpRef, o)
	b.release(f, r, id, hidden)
}
