package client

// Nodes that fail and answers that do not come.
//
// When a node's links are gone, what was asked of it will not be answered. A transaction whose coordinator (or the ldm
// of its only write) was there:
//
//	before its commit was sent   4010: it is rolled back, and may be run again
//	its commit was sent          4008: nobody here knows whether it was committed; class "unknown result"
//
// A row that was to come from there: 4010, or 4115 when the transaction was committed all the same.
// An answer that does not come within WaitTimeout: 4012 (class "unknown result") whatever was asked.

import (
	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/signal"
)

// SetView gives the session a newer view. Transactions that depend on a node that failed since the last one are over.
// The Env's buffers have been brought in line with it.
func (s *Session) SetView(v *View) {
	old := s.view
	if old == v {
		return
	}
	s.view = v
	for i := range v.nodes {
		a, b := &old.nodes[i], &v.nodes[i]
		if a.Up && (!b.Up || a.Life != b.Life) {
			s.nodeFailed(uint8(i))
		}
	}
}

func (s *Session) nodeFailed(node uint8) {
	s.openLost(node)
	for i := range s.txs {
		t := &s.txs[i]
		if t.state == free || t.state == Ended || !t.involves(node) {
			continue
		}
		s.lost(t, node)
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

// involves tells whether something of the transaction is at a node.
func (t *Tx) involves(node uint8) bool {
	if t.node == node || t.tc.Node() == node {
		return true
	}
	for o := t.head; o != nil; o = o.next {
		if o.node == node && o.state == opSent {
			return true
		}
	}
	return false
}

// lost deals with a transaction that has something at a failed node.
func (s *Session) lost(t *Tx, node uint8) {
	failed := ndberror.Get(ndberror.NodeFailed)
	coordinator := t.tc.Node() == node
	if t.awaits&awaitsDirect != 0 {
		coordinator = t.wroteAt(node)
	}
	if coordinator {
		t.started = false
		switch {
		case t.state == Defining:
			t.fail(failed)
			t.forgetReads(failed)
		case t.state == Committing && t.awaits&(awaitsTC|awaitsDirect) == 0: // committed; rows are missing
			s.rowsLost(t, node)
		case t.state == Committing && t.seq != 0:
			s.giveUp(t, ndberror.NodeFailed, ndberror.AnswerLost)
		default:
			s.giveUp(t, ndberror.NodeFailed, ndberror.NodeFailed)
		}
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

// rowsLost ends the reads whose rows were to come from a failed node. Where a commit of changes is under way the
// coordinator will have the last word: 4115 stands if it commits, and gives way to its error if it does not.
func (s *Session) rowsLost(t *Tx, node uint8) {
	for o := t.head; o != nil && t.reads > 0; o = o.next {
		if o.state != opSent || o.node != node || !signal.IsRead(o.kind) {
			continue
		}
		o.state = opDone
		code := ndberror.NodeFailed
		if t.state == Committing && t.tc != 0 && t.seq != 0 {
			code = ndberror.CommittedNotRead
		}
		o.err = ndberror.Get(code)
		t.fail(o.err)
		s.rowCame(t, o)
		if t.state == Ended || t.state == free {
			return
		}
	}
}

// giveUp ends a transaction for which something is awaited: with one code, with another when it is not known whether it
// was committed, and with 4115 when it is known that it was, and rows are missing.
func (s *Session) giveUp(t *Tx, code, unknown int) {
	if t.state == Committing && t.seq != 0 {
		code = ndberror.CommittedNotRead
		if t.awaits&(awaitsTC|awaitsDirect) != 0 {
			code = unknown
		}
	}
	e := ndberror.Get(code)
	t.fail(e)
	if code == unknown {
		t.err = e // whatever an operation met before: what counts is that the outcome is not known
	}
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
	next := now + s.cfg.WaitTimeout
	for i := range s.txs {
		t := &s.txs[i]
		if !t.Busy() {
			continue
		}
		if t.deadline > now {
			next = min(next, t.deadline)
			continue
		}
		s.Counters.Timeouts++
		s.giveUp(t, ndberror.NoAnswer, ndberror.NoAnswer)
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
