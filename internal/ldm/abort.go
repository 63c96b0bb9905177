package ldm

// Abort runs from the primary down the chain; the last replica answers the coordinator. Backups find the operation
// by its row, since the primary does not know their records.
//
//	tc --AbortReq--> primary --AbortReq--> … tail --AbortConf--> tc

import (
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
)

func (b *Block) onAbortReq(s *signal.Step) {
	i, o := b.toAbort(s)
	if o == nil {
		// It failed here by itself, and its PrepareRef crossed this; nothing was passed on.
		b.abortConf(s.Tc, s.TcRef, s.OpSeq)
		return
	}
	f, id := o.frag, o.id
	r := f.rows.Row(id)
	down := o.state == holding && o.write && !f.tail()
	if o.state == waiting {
		b.leaveQueue(i, o)
	} else {
		b.unlink(r, o)
		o.state = executing
	}
	if down {
		tc, ref, seq := s.Tc, s.TcRef, s.OpSeq
		n := kernel.Send[signal.Step](b.env, f.next(), b.self, signal.NumAbortReq)
		*n = signal.Step{Head: n.Head, OpRef: i, OpSeq: seq, TcRef: ref, Tc: tc, RowID: id, Table: uint16(f.table.id), Frag: uint16(f.number)}
	} else {
		b.abortConf(s.Tc, s.TcRef, s.OpSeq)
	}
	b.free(i, o)
	b.release(f, r, id, false)
}

func (b *Block) abortConf(tc signal.Addr, ref, seq uint32) {
	c := kernel.Send[signal.StepConf](b.env, tc, b.self, signal.NumAbortConf)
	c.TcRef, c.OpSeq, c.Direct = ref, seq, 0
}

// toAbort finds the operation to undo, nil when there is none.
func (b *Block) toAbort(s *signal.Step) (uint32, *operation) {
	if s.From.Block() == signal.BlockTC {
		o := b.ops.Find(s.OpRef)
		if o == nil || o.tc != s.From || o.tcRef != s.TcRef {
			return pool.None, nil
		}
		return s.OpRef, o
	}
	f := b.known(s.Table, s.Frag)
	r, ok := f.rows.CheckedRow(s.RowID)
	if !ok || r.Lock&lockMask == 0 {
		return pool.None, nil
	}
	for i := top(r); i != pool.None; {
		o := b.ops.At(i)
		if o.prev == s.From && o.prevOp == s.OpRef && o.tcRef == s.TcRef && o.tc == s.Tc {
			return i, o
		}
		i = o.down
	}
	return pool.None, nil
}
