package client

// What became of a commit whose coordinator (or, without one, the primary of its only write) was lost before it said so.
// The replicas of a transaction's first write keep the outcome until the client has acknowledged it, so the one that is
// primary now is asked:
//
//	session --OutcomeReq--> ldm --OutcomeConf--> session
//
//	committed    the transaction is, in that epoch; its rows may still be on their way
//	none         4010: it was rolled back, and may be run again
//	elsewhere    the fragment's primary is not there: the map is asked for anew, then the question once more
//
// An ldm answers when the lost node is out of the cluster and all that it left has been decided. Until then the commit
// stays unacknowledged. If the ldm's node is lost too, the next of the chain is asked. Nodes that the session has lost its
// links to since the commit was sent are not asked: with the links they have lost what they knew of it. 4008 (unknown) if
// there is nobody left to ask, or no answer within WaitTimeout.
//
// If the link was lost but not the node, the links come up again and the node has the dynamic id that it had. It has then
// brought everything of the old links to an end, and the question is asked again without naming a lost node.
//
// Which write is asked about: the coordinator gives the outcome into the keeping of the replicas of each write until one
// of these has been prepared. A write that was told to ignore its errors may have had one; one that was not is part of the
// transaction for sure, if that was committed. So the writes are asked about in turn, up to the first that does not ignore
// its errors, which mostly is the first of all. The first that is known to have been committed decides.

import (
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/signal"
)

// inquire begins to ask what became of a commit.
func (s *Session) inquire(t *Tx, node uint8, dynamicID uint32) {
	t.state, t.awaits = Asking, 0
	t.lost, t.lostID = node, dynamicID
	t.asked, t.refused, t.question = 0, 0, nil
	for o := t.head; o != nil && t.question == nil; o = o.next {
		if !signal.IsRead(o.kind) && o.err == nil {
			t.question = o
		}
		if o.direct && !signal.IsRead(o.kind) {
			o.state = opDone
		}
	}
	t.deadline = s.env.Now() + s.cfg.WaitTimeout
	s.asking++
	s.Counters.Asked++
}

// leaveAsking takes a transaction out of the count of those that ask.
func (s *Session) leaveAsking(t *Tx) {
	if t.state == Asking {
		s.asking--
		t.question = nil
	}
}

// askAgain asks for every transaction that has nobody's answer to wait for.
func (s *Session) askAgain() {
	for i := range s.txs {
		t := &s.txs[i]
		if t.state != Asking {
			continue
		}
		if n := &s.view.nodes[t.lost]; t.lost != 0 && n.Up && n.DynamicID == t.lostID && n.DynamicID != 0 {
			t.lost, t.asked = 0, 0 // it was not the node that was lost, only the links
		}
		if t.asked == 0 {
			s.ask(t)
		}
	}
}

// ask sends the question.
func (s *Session) ask(t *Tx) {
	o := t.question
	if o == nil { // every write is known to have failed, and was told to be ignored
		s.known(t, signal.OutcomeNone, [2]uint32{})
		return
	}
	to := s.witness(t, s.view.mapOf(o.format.table), o.frag)
	if to == 0 {
		s.giveUp(t, ndberror.AnswerLost, ndberror.AnswerLost)
		return
	}
	s.Settle()
	t.asked = to.Node()
	r := kernel.Send[signal.OutcomeReq](s.env, to, s.self, signal.NumOutcomeReq)
	r.Tx, r.Seq, r.Node, r.DynamicID, r.Table, r.Frag = t.num, t.seq, uint32(t.lost), t.lostID, o.format.table.id, o.frag
}

// witness chooses whom to ask: the first of the chain that may know it, but rather not the one that has just sent the
// session elsewhere. 0: nobody is left.
func (s *Session) witness(t *Tx, m *Map, frag uint16) signal.Addr {
	last := signal.Addr(0)
	for _, a := range m.chain(frag) {
		if n := a.Node(); s.view.nodes[n].Up && int32(t.seq-s.upAt[n]) > 0 {
			if n != t.refused {
				return s.view.existing(a)
			}
			last = s.view.existing(a)
		}
	}
	return last
}

func (s *Session) onOutcomeConf(r *signal.OutcomeConf) {
	t := s.find(r.Tx)
	if t == nil {
		return
	}
	if t.state != Asking || t.asked != r.From.Node() || t.seq != r.Seq {
		s.Counters.Stale++
		return
	}
	switch r.Known {
	case signal.OutcomeCommitted:
		s.known(t, r.Known, r.GCI)
	case signal.OutcomeNone:
		if o := t.nextQuestion(); o != nil {
			t.question = o
			s.ask(t)
			return
		}
		s.known(t, r.Known, r.GCI)
	case signal.OutcomeElsewhere:
		t.asked, t.refused = 0, r.From.Node()
		if t.lost == 0 { // whoever is primary has lost the links meanwhile, or it would have been asked
			s.giveUp(t, ndberror.AnswerLost, ndberror.AnswerLost)
			return
		}
		m := s.view.mapOf(t.question.format.table)
		if !s.doubts(m) {
			s.doubted = append(s.doubted, m)
			s.untold = append(s.untold, m)
		}
	default:
		s.Counters.Malformed++
		t.asked = 0
	}
}

// nextQuestion is the write to ask about after one whose replicas know nothing; nil if that was decisive.
func (t *Tx) nextQuestion() *Op {
	if t.question.flags&signal.FlagIgnoreError == 0 {
		return nil
	}
	for o := t.question.next; o != nil; o = o.next {
		if !signal.IsRead(o.kind) && o.err == nil {
			return o
		}
	}
	return nil
}

// known ends the asking.
func (s *Session) known(t *Tx, outcome uint32, gci [2]uint32) {
	s.leaveAsking(t)
	s.hear(t.seq)
	if outcome == signal.OutcomeNone {
		e := ndberror.Get(ndberror.NodeFailed)
		t.notCommitted()
		t.fail(e)
		for o := t.head; o != nil; o = o.next {
			if o.direct && !signal.IsRead(o.kind) {
				o.err = e
			}
		}
		t.forgetReads(t.err)
		s.over(t, Ended)
		return
	}
	t.gci = gci
	t.ignoredUnheard()
	if t.reads == 0 {
		s.over(t, Ended)
		return
	}
	t.state = Committing
	t.deadline = s.env.Now() + s.cfg.WaitTimeout
	t.rowsBy, s.deadlines = s.env.Now()+rowGrace, 0
}

// ignoredUnheard marks the operations of the last batch that were told to ignore their errors: whether they had one has
// been lost with the coordinator.
func (t *Tx) ignoredUnheard() {
	o := t.head
	if t.before != nil {
		o = t.before.next
	}
	for ; o != nil; o = o.next {
		if o.flags&signal.FlagIgnoreError != 0 && o.err == nil && !o.direct && !signal.IsRead(o.kind) {
			o.err = ndberror.Get(ndberror.CommittedNotRead)
			t.fail(o.err)
		}
	}
}
