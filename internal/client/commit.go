package client

// What ends a batch: execute, commit, rollback. Each is over at once (false) or when what it awaits has come (true, and
// Done is called).
//
// A batch in which committed reads went to their ldms before the transaction needed a coordinator is committed in
// two steps: execute, and commit when those reads have come. One that fails must be able to stop the commit; and one
// that comes late must not see what was written after it.

import (
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/signal"
)

// Execute ends the batch and leaves the transaction open. False: it is over already, see Err. It does nothing in a
// transaction that is not Defining; nor do Commit and Rollback.
func (t *Tx) Execute() bool {
	if t.state != Defining {
		return false
	}
	if t.err != nil {
		return t.Rollback()
	}
	t.endBatch(signal.FlagExecute, signal.TxExecute)
	if t.awaits == 0 && t.reads == 0 {
		return false
	}
	t.start(Executing)
	return true
}

// endBatch gives the open operation, if it is the transaction's, the flags that end a batch, or sends a TxReq where the
// coordinator is owed one.
func (t *Tx) endBatch(flags uint8, action uint32) {
	s := t.s
	o := s.open
	switch {
	case o != nil && o.tx == t && o.direct && o.kind == signal.OpReadCommitted:
		s.open, s.touched = nil, true
		if t.tc == 0 {
			return
		}
	case o != nil && o.tx == t:
		if o.direct {
			s.redirect(o)
		}
		r := s.openReq()
		r.Flags |= flags
		if action == signal.TxCommit {
			r.Seq, r.Ack = t.seq, s.ack
		}
		s.open, s.touched = nil, true
		t.started, t.batch = true, false
		t.awaits |= awaitsTC
		return
	case !t.started:
		return
	}
	if action == signal.TxExecute && !t.batch {
		return
	}
	t.request(action)
	t.batch = false
	t.awaits |= awaitsTC
}

// request sends a TxReq.
func (t *Tx) request(action uint32) {
	s := t.s
	s.Settle()
	r := kernel.Send[signal.TxReq](s.env, t.tc, s.self, signal.NumTxReq)
	r.Tx, r.Action, r.Seq, r.Ack = t.num, action, 0, s.ack
	if action == signal.TxCommit {
		r.Seq = t.seq
	}
}

// Commit ends the batch and the transaction. False: it is over already, see Err.
func (t *Tx) Commit() bool {
	s := t.s
	if t.state != Defining {
		return false
	}
	if t.err != nil {
		return t.Rollback()
	}
	if o := s.open; o != nil && o.tx == t && o.direct && o.kind != signal.OpReadCommitted {
		return t.commitDirect(o)
	}
	if t.tc == 0 {
		t.endBatch(0, signal.TxExecute)
		if t.reads == 0 {
			t.state = Ended
			return false
		}
		t.start(Committing)
		return true
	}
	if t.straight > 0 {
		t.endBatch(signal.FlagExecute, signal.TxExecute)
		t.awaits |= awaitsCommit
		t.start(Executing)
		return true
	}
	if !t.draw() {
		return t.Rollback()
	}
	t.endBatch(signal.FlagExecute|signal.FlagCommit, signal.TxCommit)
	t.start(Committing)
	return true
}

// commitDirect commits a transaction of one write that goes to its ldm.
func (t *Tx) commitDirect(o *Op) bool {
	s := t.s
	if t.seq = s.nextSeq(); t.seq == 0 {
		t.fail(ndberror.Get(ndberror.CommitWindowFull))
		return t.Rollback()
	}
	r := s.openReq()
	r.Seq, r.Ack = t.seq, s.ack
	s.open, s.touched = nil, true
	o.state = opSent
	s.Counters.Direct++
	t.awaits |= awaitsDirect
	t.start(Committing)
	return true
}

// draw takes a commit sequence number for a transaction that writes through a coordinator. False: the window is full.
func (t *Tx) draw() bool {
	if !t.writes {
		return true
	}
	if t.seq = t.s.nextSeq(); t.seq == 0 {
		t.fail(ndberror.Get(ndberror.CommitWindowFull))
		return false
	}
	return true
}

// Rollback undoes everything. False: nothing had to be asked for; the transaction has ended.
func (t *Tx) Rollback() bool {
	s := t.s
	if t.state != Defining {
		return false
	}
	if s.open != nil && s.open.tx == t {
		s.dropOpen()
	}
	t.forgetReads(t.err)
	if !t.started {
		t.state = Ended
		return false
	}
	t.request(signal.TxRollback)
	t.awaits = awaitsTC
	t.start(RollingBack)
	return true
}

// forgetReads lets rows that are still on their way find nobody.
func (t *Tx) forgetReads(e *ndberror.Error) {
	t.straight = 0
	if t.reads == 0 {
		return
	}
	t.reads = 0
	for o := t.head; o != nil; o = o.next {
		if o.state == opSent {
			o.state = opDone
			if o.err == nil {
				o.err = e
			}
		}
	}
}

func (t *Tx) start(st State) {
	s := t.s
	t.state = st
	t.deadline = s.env.Now() + s.cfg.WaitTimeout
	s.busy++
}

// Release gives the transaction back. What has not ended is rolled back, without anybody waiting for it; an outcome
// that is under way stays unknown. Done is not called for it any more.
func (t *Tx) Release() {
	s := t.s
	switch t.state {
	case free:
		return
	case Defining:
		if s.open != nil && s.open.tx == t {
			s.dropOpen()
		}
		if t.started && !s.closed {
			t.request(signal.TxRollback)
		}
	case Executing, Committing, Asking, RollingBack:
		s.busy--
		s.leaveAsking(t)
		s.hear(t.seq)
		t.letGo()
	}
	s.release(t)
}
