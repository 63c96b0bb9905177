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
		// It failed here by itself, and its PrepareRef crossed this; nothing was passed on. Or it was ended here otherwise.
		if b.direct(s, signal.NumAbortConf); s.Direct == 0 {
			b.abortConf(s.Tc, s.TcRef, s.OpSeq)
		}
		return
	}
	f, id := o.frag, o.id
	next := o.rest[0]
	if o.state == waiting {
		next = 0
		b.leaveQueue(i, o)
	} else {
		b.unlink(o.row(), o)
		o.state = executing
	}
	switch {
	case s.Direct != 0:
		b.direct(s, signal.NumAbortConf)
	case next != 0:
		tc, ref, seq := s.Tc, s.TcRef, s.OpSeq
		n := kernel.Send[signal.Step](b.env, next, b.self, signal.NumAbortReq)
		*n = signal.Step{Head: n.Head, OpRef: i, OpSeq: seq, TcRef: ref, Tc: tc, RowID: id, Table: uint16(f.table.id), Frag: uint16(f.number)}
	default:
		b.abortConf(s.Tc, s.TcRef, s.OpSeq)
	}
	ghost := o.ghost
	b.free(i, o)
	if !ghost {
		b.release(f, f.rows.Row(id), id, false)
	}
}

func (b *Block) abortConf(tc signal.Addr, ref, seq uint32) {
	c := kernel.Send[signal.StepConf](b.env, tc, b.self, signal.NumAbortConf)
	c.TcRef, c.OpSeq, c.Direct = ref, seq, 0
}

// toAbort finds the operation to undo, nil when there is none.
func (b *Block) toAbort(s *signal.Step) (uint32, *operation) {
	if s.From.Block() == signal.BlockTC {
		o := b.ops.Find(s.OpRef)
		if o == nil || o.tc != s.Tc || o.tcRef != s.TcRef || o.seq != s.OpSeq || o.tc == 0 {
			return pool.None, nil
		}
		return s.OpRef, o
	}
	f := b.known(s.Table, s.Frag)
	if r, ok := f.rows.CheckedRow(s.RowID); ok {
		if i, o := b.fromAbove(top(r), s); o != nil {
			return i, o
		}
	}
	return b.fromAbove(f.ghosts, s)
}

// fromAbove finds, in a list, the operation that the sender of a step has passed on.
func (b *Block) fromAbove(first uint32, s *signal.Step) (uint32, *operation) {
	for i := first; i != pool.None; {
		o := b.ops.At(i)
		if o.prev == s.From && o.prevOp == s.OpRef && o.tcRef == s.TcRef && o.tc == s.Tc && o.seq == s.OpSeq {
			return i, o
		}
		i = o.down
	}
	return pool.None, nil
}
