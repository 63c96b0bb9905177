package client

// Answers. A signal from a data node that does not fit what was asked is counted and dropped; what is over is over.

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/signal"
)

// Deliver executes one signal that came for the session. The frame has been checked (signal.Check).
func (s *Session) Deliver(h *signal.Head) {
	switch h.Num {
	case signal.NumReadConf:
		s.onReadConf(signal.As[signal.ReadConf](h))
	case signal.NumWriteConf:
		s.onWriteConf(signal.As[signal.WriteConf](h))
	case signal.NumTxConf:
		s.onTxConf(signal.As[signal.TxConf](h))
	case signal.NumKeyRef:
		s.onKeyRef(signal.As[signal.KeyRef](h))
	case signal.NumTxRef:
		s.onTxRef(signal.As[signal.TxRef](h))
	case signal.NumOutcomeConf:
		s.onOutcomeConf(signal.As[signal.OutcomeConf](h))
	default:
		s.Counters.Malformed++
	}
}

// awaited finds the operation that an answer is about; nil, and counted, when that is over.
func (s *Session) awaited(ref, num uint32) *Op {
	if ref < uint32(len(s.ops)) {
		if o := &s.ops[ref]; o.num == num && o.state == opSent {
			return o
		}
	}
	s.Counters.Stale++
	return nil
}

// find is the transaction of a number; nil, and counted, when it is gone.
func (s *Session) find(num uint32) *Tx {
	i := num & (1<<s.shift - 1)
	if i < uint32(len(s.txs)) {
		if t := &s.txs[i]; t.num == num && t.state != free {
			return t
		}
	}
	s.Counters.Stale++
	return nil
}

func (s *Session) onReadConf(r *signal.ReadConf) {
	o := s.awaited(r.Ref, r.Tx)
	if o == nil {
		return
	}
	if !signal.IsRead(o.kind) {
		s.Counters.Malformed++
		return
	}
	t := o.tx
	o.state = opDone
	src := unsafe.Pointer(r)
	if r.DataLen > 0 { // else nothing may lie behind the signal
		src = r.Data()
	}
	if code := o.format.take(src, r.DataLen, o.row); code != 0 {
		s.Counters.Malformed++
		o.err = ndberror.Get(int(code))
		t.fail(o.err)
	}
	s.rowCame(t, o)
}

// rowCame counts a read that has its row or its error.
func (s *Session) rowCame(t *Tx, o *Op) {
	t.reads--
	if o.direct {
		t.straight--
	}
	if t.reads == 0 && t.awaits&^awaitsCommit == 0 && t.state != Defining && t.state != Asking {
		s.advance(t)
	}
}

func (s *Session) onWriteConf(r *signal.WriteConf) {
	o := s.awaited(r.Ref, r.Tx)
	if o == nil {
		return
	}
	t := o.tx
	if t.awaits&awaitsDirect == 0 || signal.IsRead(o.kind) {
		s.Counters.Malformed++
		return
	}
	o.state = opDone
	t.gci = r.GCI
	s.directOver(t)
}

// directOver: the ldm has said what became of a transaction of one write.
func (s *Session) directOver(t *Tx) {
	t.awaits &^= awaitsDirect
	s.hear(t.seq)
	s.advance(t)
}

func (s *Session) onKeyRef(r *signal.KeyRef) {
	if r.From.Block() == signal.BlockTC {
		s.onIgnored(r)
		return
	}
	o := s.awaited(r.Ref, r.Tx)
	if o == nil {
		return
	}
	t := o.tx
	if !o.direct {
		s.Counters.Malformed++
		return
	}
	if r.Code == ndberror.Moving && r.From.Node() == o.node {
		s.doubt(o)
	}
	s.operationFailed(t, o, r.Code)
	if t.awaits&awaitsDirect != 0 {
		s.directOver(t)
		return
	}
	s.rowCame(t, o)
}

func (s *Session) operationFailed(t *Tx, o *Op, code uint32) {
	o.state = opDone
	o.err = s.refusal(code, o)
	if o.flags&signal.FlagIgnoreError == 0 || !ignorable(code) {
		t.fail(o.err)
	}
}

// ignorable tells which failures may be ignored: those of one row, which say nothing about the transaction's health.
// The coordinator has the same list.
func ignorable(code uint32) bool {
	switch code {
	case 626, 630, 635, 839, 840, 893:
		return true
	}
	return false
}

// refusal is the error of a code that a data node gave, and remembers the table when it is the table that is old.
func (s *Session) refusal(code uint32, o *Op) *ndberror.Error {
	switch code {
	case 0: // a refusal without a reason
		code = ndberror.BadAnswer
	case ndberror.OldTable, ndberror.TableDropped, 284, ndberror.NoSuchTable:
		if o != nil && o.format != nil {
			s.StaleTable = o.format.table
		}
	}
	return ndberror.Get(int(code))
}

// onIgnored: an operation of a coordinator failed, and was told to be ignored.
func (s *Session) onIgnored(r *signal.KeyRef) {
	t := s.find(r.Tx)
	if t == nil {
		return
	}
	if r.Ref >= uint32(len(s.ops)) || s.ops[r.Ref].num != t.num || s.ops[r.Ref].direct || r.From != t.tc {
		s.Counters.Malformed++
		return
	}
	o := &s.ops[r.Ref]
	if o.state == opDone || t.state == Asking { // a rollback was asked for while it was under way
		s.Counters.Stale++
		return
	}
	was := o.state
	o.state, o.err = opDone, s.refusal(r.Code, o)
	if was == opSent {
		s.rowCame(t, o)
	}
}

func (s *Session) onTxConf(r *signal.TxConf) {
	t := s.find(r.Tx)
	if t == nil || t.state == Ended {
		if r.Committed == 0 && r.From.Block() == signal.BlockTC { // whatever became of it here: it must not keep its locks
			s.Settle()
			q := kernel.Send[signal.TxReq](s.env, r.From, s.self, signal.NumTxReq)
			q.Tx, q.Action, q.Seq, q.Ack = r.Tx, signal.TxRollback, 0, s.ack
		}
		return
	}
	if t.state == Asking { // the last word of a node that is lost: whoever is left decides
		s.Counters.Stale++
		return
	}
	if r.From != t.tc || t.awaits&awaitsTC == 0 || (t.state == Committing) != (r.Committed == 1) || t.state == RollingBack {
		s.Counters.Malformed++
		return
	}
	t.awaits &^= awaitsTC
	if r.Committed == 1 {
		t.gci = r.GCI
		s.hear(t.seq)
	}
	if t.reads == 0 {
		s.advance(t)
	} else if s.view.partial || int32(s.lastUp<<s.shift-t.num&^(1<<s.shift-1)) >= 0 {
		s.rowsUnsure(t)
	}
}

func (s *Session) onTxRef(r *signal.TxRef) {
	t := s.find(r.Tx)
	if t == nil {
		return
	}
	if r.From != t.tc || t.state == Ended || t.state == Asking {
		s.Counters.Stale++
		return
	}
	s.hear(t.seq)
	if t.state != RollingBack || r.Code != 0 {
		var o *Op
		if r.Ref < uint32(len(s.ops)) && s.ops[r.Ref].num == t.num {
			o = &s.ops[r.Ref]
		}
		code := r.Code
		if code == 0 {
			code = ndberror.TxFailed
		}
		e := s.refusal(code, o)
		if t.state != RollingBack {
			t.notCommitted()
			t.fail(e)
		}
		if o != nil && o.err == nil {
			o.err = e
		}
	}
	t.forgetReads(t.err)
	t.awaits, t.started = 0, false
	if t.state == Defining { // rolled back by the cluster between two batches: Execute or Commit will say so
		if s.open != nil && s.open.tx == t {
			s.dropOpen()
		}
		return
	}
	s.over(t, Ended)
}

// notCommitted takes back what was said of a transaction that seemed to have been committed.
func (t *Tx) notCommitted() {
	if t.err != nil && t.err.Code == ndberror.CommittedNotRead {
		t.err = nil
	}
	for o := t.head; o != nil; o = o.next {
		if o.err != nil && o.err.Code == ndberror.CommittedNotRead {
			o.err = ndberror.Get(ndberror.NodeFailed)
		}
	}
}

// advance goes on with a transaction for which nothing is awaited any more.
func (s *Session) advance(t *Tx) {
	if t.state != Executing {
		s.over(t, Ended)
		return
	}
	commit := t.awaits&awaitsCommit != 0
	t.awaits = 0
	switch {
	case t.err != nil && t.started, commit && t.err == nil && !t.draw():
		t.state = RollingBack
		t.request(signal.TxRollback)
		t.awaits = awaitsTC
	case t.err != nil:
		s.over(t, Ended)
	case commit:
		t.state = Committing
		t.request(signal.TxCommit)
		t.awaits = awaitsTC
	default:
		s.over(t, Defining)
	}
}

// over ends what the transaction was started for.
func (s *Session) over(t *Tx, st State) {
	t.state, t.awaits, t.before = st, 0, t.tail
	s.busy--
	s.cfg.Done(t)
}
