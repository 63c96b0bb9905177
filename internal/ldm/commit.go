package ldm

// Commit and complete run from the tail of the chain up to the primary, which answers the coordinator.
//
//	tc --CommitReq--> tail --CommitReq--> … primary --CommitConf--> tc
//	tc --CompleteReq--> tail --CompleteReq--> … primary --CompleteConf--> tc
//	tc --CommitReq(direct)--> any replica --CommitConf--> tc          after a loss; the same with complete and abort
//
// Commit makes the change visible and keeps the lock; complete releases it. Since complete reaches the primary last,
// every backup has let the row go when the primary lets the next transaction in, and a slot that the primary hands
// out again is free everywhere.
//
// A step finds its operation by record, and by coordinator, its record there, and number: one that comes late finds
// another one's record, or none. A step of the usual kind then dies (it came up a chain that was broken); a direct one is
// answered all the same.

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
)

// stepped is the operation that a step of a coordinator is about, nil when it is gone.
func (b *Block) stepped(s *signal.Step) *operation {
	o := b.ops.Find(s.OpRef)
	if o == nil || o.tcRef != s.TcRef || o.seq != s.OpSeq || o.tc != s.Tc || o.tc == 0 {
		b.env.Mark(kernel.MarkLateStep)
		b.Stale++
		return nil
	}
	if o.state != holding {
		invariant.Failf("%s for operation %d of coordinator record %d in state %d", signal.Name(s.Num), s.OpRef, s.TcRef, o.state)
	}
	return o
}

func (b *Block) onCommitReq(s *signal.Step) {
	o := b.stepped(s)
	if o == nil {
		b.direct(s, signal.NumCommitConf)
		return
	}
	if !o.applied {
		if o.ghost {
			o.applied, o.gci, o.cseq = true, s.GCI, s.Seq
		} else {
			b.commitRow(o.frag, o.frag.rows.Row(o.id), o, s.GCI, s.Seq)
		}
	}
	if o.flags&signal.FlagMarker != 0 && s.Seq != 0 {
		b.outcomes.Record(o.client, s.Seq, s.GCI)
	}
	b.up(s, o, signal.NumCommitReq, signal.NumCommitConf)
}

// direct answers a direct step; another kind of step that finds nothing is answered by nobody.
func (b *Block) direct(s *signal.Step, conf uint16) {
	if s.Direct == 0 {
		return
	}
	c := kernel.Send[signal.StepConf](b.env, s.From, b.self, conf)
	c.TcRef, c.OpSeq, c.Direct = s.TcRef, s.OpSeq, s.Direct
}

// up passes a step to the replica before, or answers the coordinator.
func (b *Block) up(s *signal.Step, o *operation, req, conf uint16) {
	switch {
	case s.Direct != 0:
		b.direct(s, conf)
	case o.prev == 0:
		c := kernel.Send[signal.StepConf](b.env, o.tc, b.self, conf)
		c.TcRef, c.OpSeq, c.Direct = o.tcRef, o.seq, 0
	case o.cut:
		b.env.Mark(kernel.MarkStepCut)
	default:
		n := kernel.Send[signal.Step](b.env, o.prev, b.self, req)
		h := n.Head
		*n = *s
		n.Head, n.OpRef = h, o.prevOp
	}
}

// commitRow makes all that a transaction has pending on a row the row's state, at once: a committed reader sees the
// row before the transaction or after it, nothing between.
func (b *Block) commitRow(f *fragment, r *store.RowHead, o *operation, gci [2]uint32, seq uint32) {
	var last *operation
	for i := top(r); i != pool.None; {
		x := b.ops.At(i)
		if x.state == waiting {
			break
		}
		if x.same(o) {
			x.applied, x.gci, x.cseq = true, gci, seq
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
	if o == nil {
		b.direct(s, signal.NumCompleteConf)
		return
	}
	f, id, hidden, r := o.frag, o.id, o.hidden, o.row()
	i := s.OpRef
	b.unlink(r, o)
	b.up(s, o, signal.NumCompleteReq, signal.NumCompleteConf)
	b.free(i, o)
	b.release(f, r, id, hidden)
}
