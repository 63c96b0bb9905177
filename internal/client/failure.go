package client

// Nodes that fail and answers that do not come.
//
// When a node's links are gone, or the other nodes have put it out of the cluster, what was asked of it will not be
// answered. A transaction whose coordinator (or the ldm of its only write) was there:
//
//	before its commit was sent   4010: it is rolled back, and may be run again
//	its commit was sent          those who hold its first write are asked what became of it: see outcome.go
//
// A row that was to come from there: 4010, or 4115 when the transaction was committed all the same.
// An answer that does not come within WaitTimeout: 4012 (class "unknown result") whatever was asked.
// A coordinator of a node that is lost may have sent an operation to another node than the client's map says. So a node's
// loss may have cost rows that were expected from another one; they are waited for no longer than rowGrace once all else
// has been answered. The same holds for rows of a node that lives and has lost only its links to this client.

import (
	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/signal"
)

// rowGrace is how long rows are waited for that may have been lost with a node, nanoseconds.
const rowGrace = 200_000_000

// SetView gives the session a newer view. Transactions that depend on a node that failed since the last one are over, or
// ask others. The Env's buffers have been brought in line with it.
func (s *Session) SetView(v *View) {
	old := s.view
	if old == v {
		return
	}
	s.view = v
	for i := range v.nodes {
		a, b := &old.nodes[i], &v.nodes[i]
		if a.Life != b.Life {
			s.upAt[i] = s.seq
		}
		if a.Life != b.Life || b.Started && !a.Started {
			s.lastUp = s.lastTx
		}
		if a.Up && (!b.Up || a.Life != b.Life) {
			s.nodeFailed(uint8(i), a.DynamicID)
		}
	}
	if len(s.doubted) > 0 {
		s.keepDoubts(old)
	}
	if s.asking > 0 {
		s.askAgain()
	}
}

// keepDoubts drops the doubts about maps that the new view replaces.
func (s *Session) keepDoubts(old *View) {
	kept := s.doubted[:0]
	for _, m := range s.doubted {
		if s.view.mapAt(m.table) == old.mapAt(m.table) {
			kept = append(kept, m)
		}
	}
	s.doubted = kept
}

func (s *Session) nodeFailed(node uint8, dynamicID uint32) {
	s.openLost(node)
	for i := range s.txs {
		if t := &s.txs[i]; t.state != free && t.state != Ended {
			s.lost(t, node, dynamicID)
		}
	}
}

// openLost ends the open operation if its request was in a buffer to a failed node, which is gone.
func (s *Session) openLost(node uint8) {
	o := s.open
	if o == nil || o.direct && o.node != node || !o.direct && o.tx.tc.Node() != node {
		return
	}
	s.open = nil
	o.err = ndberror.Get(ndberror.NodeFailed)
	o.tx.fail(o.err)
	o.neverSent()
}

// lost deals with a transaction that may have something at a failed node.
func (s *Session) lost(t *Tx, node uint8, dynamicID uint32) {
	failed := ndberror.Get(ndberror.NodeFailed)
	coordinator := t.tc.Node() == node
	if t.awaits&awaitsDirect != 0 {
		coordinator = t.wroteAt(node)
	}
	switch {
	case t.state == Asking:
		if t.asked == node {
			t.asked = 0
		}
	case !coordinator:
	case t.state == Defining:
		t.started = false
		t.fail(failed)
		t.forgetReads(failed)
		return
	case t.state == Committing && t.awaits&(awaitsTC|awaitsDirect) == 0: // committed; rows are missing
		t.started = false
	case t.state == Committing && t.seq != 0:
		t.started = false
		s.inquire(t, node, dynamicID)
	default:
		t.started = false
		s.giveUp(t, ndberror.NodeFailed, ndberror.NodeFailed)
		return
	}
	if t.reads > 0 {
		s.rowsLost(t, node)
	}
}

// wroteAt tells whether a write without a coordinator is under way at a node; the transaction may have read elsewhere before.
func (t *Tx) wroteAt(node uint8) bool {
	for o := t.head; o != nil; o = o.next {
		if o.state == opSent && o.direct && o.node == node && !signal.IsRead(o.kind) {
			return true
		}
	}
	return false
}

// rowsLost ends the reads whose rows were to come from a failed node, and limits the time for those that may have been to.
func (s *Session) rowsLost(t *Tx, node uint8) {
	for o := t.head; o != nil && t.reads > 0; o = o.next {
		if o.state != opSent || !signal.IsRead(o.kind) {
			continue
		}
		switch {
		case o.node == node:
			if s.rowLost(t, o); t.state == Ended || t.state == free {
				return
			}
		case !o.direct && s.view.mapOf(o.format.table).holds(o.frag, node):
			t.rowsBy, s.deadlines = s.env.Now()+rowGrace, 0
		}
	}
}

// rowsUnsure limits the time for the rows of a batch that is done: some may have been sent by a node that had no links to
// here.
func (s *Session) rowsUnsure(t *Tx) {
	for o := t.head; o != nil; o = o.next {
		if o.state == opSent && !o.direct && signal.IsRead(o.kind) {
			t.rowsBy, s.deadlines = s.env.Now()+rowGrace, 0
			return
		}
	}
}

// rowLost ends a read whose row will not come. Where a commit of changes is under way the coordinator, or who is asked
// after it, will have the last word: 4115 stands if it commits, and gives way to its error if it does not.
func (s *Session) rowLost(t *Tx, o *Op) {
	o.state = opDone
	code := ndberror.NodeFailed
	if (t.state == Committing || t.state == Asking) && t.tc != 0 && t.seq != 0 {
		code = ndberror.CommittedNotRead
	}
	o.err = ndberror.Get(code)
	t.fail(o.err)
	s.rowCame(t, o)
}

// rowsMissing ends the reads of a transaction whose rows have not come after the grace.
func (s *Session) rowsMissing(t *Tx) {
	for o := t.head; o != nil && t.reads > 0; o = o.next {
		if o.state != opSent || !signal.IsRead(o.kind) {
			continue
		}
		if s.rowLost(t, o); t.state == Ended || t.state == free {
			return
		}
	}
}

// giveUp ends a transaction for which something is awaited: with one code, with another when it is not known whether it
// was committed, and with 4115 when it is known that it was, and rows are missing.
func (s *Session) giveUp(t *Tx, code, unknown int) {
	if (t.state == Committing || t.state == Asking) && t.seq != 0 {
		code = ndberror.CommittedNotRead
		if t.state == Asking || t.awaits&(awaitsTC|awaitsDirect) != 0 {
			code = unknown
		}
	}
	e := ndberror.Get(code)
	t.fail(e)
	if code == unknown {
		t.err = e // whatever an operation met before: what counts is that the outcome is not known
	}
	s.leaveAsking(t)
	s.hear(t.seq) // nobody will ask for it
	t.forgetReads(e)
	t.letGo()
	s.over(t, Ended)
}

// letGo rolls back a batch that nobody waits for any more. It does not wait for the coordinator's answer to the batch:
// that may have come already, and until it comes others would wait for the rows.
func (t *Tx) letGo() {
	if t.state == Executing && t.started && !t.s.closed {
		t.request(signal.TxRollback)
		t.started = false
	}
}

// expire gives up transactions whose answers have not come in time.
func (s *Session) expire() {
	now := s.env.Now()
	if now < s.deadlines {
		return
	}
	limit := s.cfg.WaitTimeout
	if limit <= 0 {
		limit = 1 << 62
	}
	next := now + limit
	for i := range s.txs {
		t := &s.txs[i]
		if !t.Busy() {
			continue
		}
		switch {
		case t.rowsBy != 0 && t.awaits&^awaitsCommit == 0 && t.state != Asking && t.rowsBy <= now:
			t.rowsBy = 0
			s.rowsMissing(t)
			next = now // it may go on, with a deadline of its own
		case s.cfg.WaitTimeout > 0 && t.deadline <= now:
			s.Counters.Timeouts++
			unknown := ndberror.NoAnswer
			if t.state == Asking {
				unknown = ndberror.AnswerLost
			}
			s.giveUp(t, ndberror.NoAnswer, unknown)
		case t.rowsBy != 0:
			next = now
		case s.cfg.WaitTimeout > 0:
			next = min(next, t.deadline)
		}
	}
	s.deadlines = next
}

// GiveUp ends a transaction for which something is awaited, because the caller does not want to wait any longer: with
// 4012, the outcome of its commit unknown. Done is called. A batch that it left at data nodes is rolled back.
func (t *Tx) GiveUp() {
	if t.Busy() {
		t.s.giveUp(t, ndberror.NoAnswer, ndberror.NoAnswer)
	}
}
