package client

import (
	"testing"

	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/signal"
)

// asking is a transaction whose commit was sent to node 1 when that was lost, in both forms.
func asking(t *testing.T, direct bool) (g *rig, tx *Tx) {
	g = newRig(t, even)
	r := g.keyAt(1)
	tx = g.begin()
	g.row.Update(tx, ptr(&r))
	if !direct {
		g.row.Update(tx, ptr(&r))
	}
	tx.Commit()
	g.sent()
	g.nodeDown(1)
	g.nothingOver()
	if tx.State() != Asking || !tx.Busy() || g.s.Unheard() != 1 {
		t.Fatal(tx.State(), g.s.Unheard())
	}
	return g, tx
}

// answered checks the end of a transaction that was asked for.
func (g *rig) answered(tx *Tx, code int, committed bool) {
	g.t.Helper()
	g.over(tx, code)
	if tx.State() != Ended || (tx.GCI() != 0) != committed || g.s.Unheard() != 0 || g.s.asking != 0 || g.s.Counters.Malformed != 0 {
		g.t.Fatalf("state %d, epoch %d, %d outcomes not heard, %d ask, %+v", tx.State(), tx.GCI(), g.s.Unheard(), g.s.asking, g.s.Counters)
	}
	for _, h := range g.sent() {
		if h.Num != signal.NumAckOrd {
			g.t.Fatal(signal.Format(h))
		}
	}
	g.atRest(tx)
}

func TestTheOutcomeOfACommitIsAskedFor(t *testing.T) {
	for _, direct := range []bool{true, false} {
		for _, c := range []struct {
			name      string
			run       func(g *rig, tx *Tx)
			code      int
			committed bool
		}{
			{"committed", func(g *rig, tx *Tx) { g.outcome(g.question(), signal.OutcomeCommitted) }, 0, true},
			{"rolled back", func(g *rig, tx *Tx) { g.outcome(g.question(), signal.OutcomeNone) }, ndberror.NodeFailed, false},
			{"elsewhere, and known there", func(g *rig, tx *Tx) {
				g.outcome(g.question(), signal.OutcomeElsewhere)
				if g.sent(); tx.asked != 0 || !g.s.Doubts() {
					t.Error("nobody asks where")
				}
				g.remap(func(c []signal.Addr) { c[0], c[1] = signal.MakeAddr(2, signal.BlockLDM, 1), 0 })
				q := g.question()
				if q.To != signal.MakeAddr(2, signal.BlockLDM, 1) {
					t.Error(signal.Format(&q.Head))
				}
				g.outcome(q, signal.OutcomeCommitted)
			}, 0, true},
			{"elsewhere, and asked again after a while", func(g *rig, tx *Tx) {
				g.outcome(g.question(), signal.OutcomeElsewhere)
				g.s.Tick()
				g.outcome(g.question(), signal.OutcomeNone)
			}, ndberror.NodeFailed, false},
			{"lost too, and nobody left", func(g *rig, tx *Tx) {
				g.sent()
				g.nodeDown(2)
			}, ndberror.AnswerLost, false},
			{"no answer in time", func(g *rig, tx *Tx) {
				g.sent()
				g.env.SetNow(999)
				g.s.Tick()
				g.nothingOver()
				g.env.SetNow(1000)
				g.s.Tick()
			}, ndberror.AnswerLost, false},
			{"given up", func(g *rig, tx *Tx) {
				g.sent()
				tx.GiveUp()
			}, ndberror.NoAnswer, false},
			{"an answer to something else, and one that cannot be", func(g *rig, tx *Tx) {
				q := g.question()
				for _, change := range []func(*signal.OutcomeReq){
					func(q *signal.OutcomeReq) { q.Seq++ },
					func(q *signal.OutcomeReq) { q.Tx++ },
					func(q *signal.OutcomeReq) { q.To = signal.MakeAddr(1, signal.BlockLDM, 0) },
				} {
					x := *q
					change(&x)
					g.outcome(&x, signal.OutcomeCommitted)
					g.nothingOver()
				}
				g.outcome(q, signal.OutcomeElsewhere+1)
				g.nothingOver()
				if g.s.Counters.Malformed != 1 || g.s.Counters.Stale != 3 {
					t.Errorf("%+v", g.s.Counters)
				}
				g.s.Counters.Malformed = 0
				g.s.Tick()
				g.outcome(g.question(), signal.OutcomeCommitted)
			}, 0, true},
			{"the last words of the lost node", func(g *rig, tx *Tx) {
				q := g.question()
				op := tx.Head()
				say(g, signal.MakeAddr(1, signal.BlockLDM, 0), signal.NumWriteConf, func(c *signal.WriteConf) { c.Ref, c.Tx = op.index, tx.num })
				say(g, signal.MakeAddr(1, signal.BlockLDM, 0), signal.NumKeyRef, func(c *signal.KeyRef) { c.Ref, c.Tx, c.Code = op.index, tx.num, 630 })
				if tx.tc != 0 {
					g.txConf(tx.tc, tx.num, 1)
					g.txRef(tx.tc, tx.num, 266, signal.NoRef)
					say(g, tx.tc, signal.NumKeyRef, func(c *signal.KeyRef) { c.Ref, c.Tx, c.Code = op.index, tx.num, 630 })
				}
				g.nothingOver()
				g.outcome(q, signal.OutcomeNone)
			}, ndberror.NodeFailed, false},
			{"only the links were lost", func(g *rig, tx *Tx) {
				if q := g.question(); q.Node != 1 || q.DynamicID != 1 || q.Seq != 1 {
					t.Error(signal.Format(&q.Head))
				}
				g.nodeUp(1, 0) // how it is has not been told yet
				if len(g.sent()) != 0 {
					t.Error("asked too early")
				}
				g.node(1, func(n *Node) { n.DynamicID = 1 })
				q := g.question()
				if q.Node != 0 || q.To.Node() != 2 {
					t.Error(signal.Format(&q.Head))
				}
				g.outcome(q, signal.OutcomeCommitted)
			}, 0, true},
			{"only the links were lost, and the primary is there", func(g *rig, tx *Tx) {
				g.sent()
				g.nodeUp(1, 1)
				g.outcome(g.question(), signal.OutcomeElsewhere)
			}, ndberror.AnswerLost, false},
			{"the node was started anew", func(g *rig, tx *Tx) {
				q := g.question()
				g.nodeUp(1, 3)
				if len(g.sent()) != 0 {
					t.Error("asked twice")
				}
				g.outcome(q, signal.OutcomeCommitted)
			}, 0, true},
		} {
			name := " through a coordinator"
			if direct {
				name = " without a coordinator"
			}
			t.Run(c.name+name, func(t *testing.T) {
				g, tx := asking(t, direct)
				c.run(g, tx)
				g.answered(tx, c.code, c.committed)
			})
		}
	}
}

// A session that is closed does not know the outcome; a transaction that is given back is not reported.
func TestAskingEndsWithItsSession(t *testing.T) {
	g, tx := asking(t, true)
	g.s.Close()
	g.over(tx, ndberror.AnswerLost)
	g.sent()
	g.atRest(tx)
	g, tx = asking(t, false)
	q := g.question()
	tx.Release()
	g.outcome(q, signal.OutcomeCommitted)
	g.nothingOver()
	if g.s.Counters.Stale != 1 || g.s.asking != 0 || g.s.Unheard() != 0 {
		t.Errorf("%+v", g.s)
	}
	g.atRest()
}

// The acknowledgement does not pass a commit whose outcome is being asked for.
func TestWhatIsAskedForIsNotAcknowledged(t *testing.T) {
	g, tx := asking(t, true)
	q := g.question()
	r := g.keyAt(2)
	for range 3 {
		next := g.begin()
		g.row.Update(next, ptr(&r))
		next.Commit()
		w := g.one(signal.NumWriteReq)
		if w.Ack != 0 {
			t.Error(signal.Format(&w.Head))
		}
		g.writeConf(w)
		g.over(next, 0)
		next.Release()
	}
	g.outcome(q, signal.OutcomeCommitted)
	g.over(tx, 0)
	if g.s.ack != 4 {
		t.Error(g.s.ack)
	}
	g.atRest(tx)
}

// Writes are asked about in turn, up to the first that is part of the transaction for sure.
func TestWhichWriteIsAskedAbout(t *testing.T) {
	for _, c := range []struct {
		ignore []bool // by operation; row i of node 1 is operation i
		failed int    // operation whose error has come; -1 none
		know   int    // operation whose replicas know the outcome; -1 none
		asked  []int
		code   int
	}{
		{[]bool{false, false}, -1, 0, []int{0}, 0},
		{[]bool{true, false, true}, -1, 0, []int{0}, ndberror.CommittedNotRead}, // whether the others were ignored is lost
		{[]bool{true, false, false}, -1, 1, []int{0, 1}, ndberror.CommittedNotRead},
		{[]bool{true, false, false}, -1, -1, []int{0, 1}, ndberror.NodeFailed},
		{[]bool{true, false, true}, 0, 1, []int{1}, ndberror.CommittedNotRead},
		{[]bool{true, true, true}, -1, 1, []int{0, 1}, ndberror.CommittedNotRead},
		{[]bool{true, true}, 0, 1, []int{1}, ndberror.CommittedNotRead},
		{[]bool{true, true}, -1, -1, []int{0, 1}, ndberror.NodeFailed},
	} {
		g := newRig(t, even)
		tx := g.begin()
		rows := []row{g.keyAt(1), g.keyAt(1), g.keyAt(1)}
		for i, ignore := range c.ignore {
			for g.tab.fragment(ptr(&rows[i]), 8) != uint16(2*i) { // fragments of node 1 are the even ones
				rows[i].a++
			}
			op := g.row.Insert(tx, ptr(&rows[i]))
			if ignore {
				op.IgnoreError()
			}
		}
		tx.Commit()
		all := g.sent()
		if c.failed >= 0 {
			g.keyRef(key(all[c.failed]), tx.tc, 630)
		}
		g.nodeDown(1)
		for _, i := range c.asked {
			q := g.question()
			if q.Frag != uint16(2*i) {
				t.Fatalf("%+v: fragment %d is asked about", c, q.Frag)
			}
			known := signal.OutcomeNone
			if i == c.know {
				known = signal.OutcomeCommitted
			}
			g.outcome(q, known)
		}
		g.answered(tx, c.code, c.know >= 0)
	}
	g := newRig(t, even) // every write is known to have failed: there is nothing to ask about
	tx := g.begin()
	r := g.keyAt(1)
	g.row.Insert(tx, ptr(&r)).IgnoreError()
	g.row.Insert(tx, ptr(&r)).IgnoreError()
	tx.Commit()
	for _, h := range g.sent() {
		g.keyRef(key(h), tx.tc, 630)
	}
	g.nodeDown(1)
	g.answered(tx, ndberror.NodeFailed, false)
}

// An operation that ignored its error in a batch that is over is known to have had none.
func TestErrorsIgnoredBefore(t *testing.T) {
	g := newRig(t, even)
	tx := g.begin()
	r := g.keyAt(1)
	op := g.row.Insert(tx, ptr(&r))
	op.IgnoreError()
	tx.Execute()
	g.txConf(g.one(signal.NumKeyReq).To, tx.num, 0)
	g.over(tx, 0)
	g.row.Update(tx, ptr(&r))
	tx.Commit()
	g.sent()
	g.nodeDown(1)
	g.outcome(g.question(), signal.OutcomeCommitted)
	if op.Err() != nil {
		t.Error(op.Err())
	}
	g.answered(tx, 0, true)
}

// A commit with reads: rows of the lost node are lost, rows of others may come before or after the outcome.
func TestRowsOfACommitThatIsAskedFor(t *testing.T) {
	for _, c := range []struct {
		name  string
		first bool // the row of node 2 comes before the outcome
		known uint32
		lost  bool // a row of node 1 is awaited too
		code  int
	}{
		{"row, committed", true, signal.OutcomeCommitted, false, 0},
		{"committed, row", false, signal.OutcomeCommitted, false, 0},
		{"row, rolled back", true, signal.OutcomeNone, false, ndberror.NodeFailed},
		{"rolled back, row", false, signal.OutcomeNone, false, ndberror.NodeFailed},
		{"a row is lost, committed", true, signal.OutcomeCommitted, true, ndberror.CommittedNotRead},
		{"a row is lost, committed, row", false, signal.OutcomeCommitted, true, ndberror.CommittedNotRead},
		{"a row is lost, rolled back", true, signal.OutcomeNone, true, ndberror.NodeFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t, even)
			one, two := g.keyAt(1), g.keyAt(2)
			other := one
			tx := g.begin()
			g.row.Update(tx, ptr(&one))
			op := g.row.Read(tx, ptr(&two), signal.OpReadShared)
			if c.lost {
				g.row.Read(tx, ptr(&other), signal.OpReadShared)
			}
			tx.Commit()
			all := g.sent()
			g.nodeDown(1)
			q := g.question()
			if c.first {
				g.readConf(key(all[1]), 1, 2)
				g.nothingOver()
			}
			g.outcome(q, c.known)
			if !c.first {
				if c.known == signal.OutcomeCommitted {
					g.nothingOver()
				}
				g.readConf(key(all[1]), 1, 2)
			}
			if c.first || c.known == signal.OutcomeCommitted {
				if op.Err() != nil || two.value != 1 {
					t.Error(op.Err(), two)
				}
			}
			g.answered(tx, c.code, c.known == signal.OutcomeCommitted)
		})
	}
}

// A committed transaction whose row does not come, because the coordinator had sent the read to a node that is lost too,
// ends after the grace.
func TestARowFromElsewhereIsLost(t *testing.T) {
	g := newRig(t, even, func(c *Config) { c.WaitTimeout = 0 })
	one, two := g.keyAt(1), g.keyAt(2)
	tx := g.begin()
	g.row.Update(tx, ptr(&one))
	g.row.Read(tx, ptr(&two), signal.OpReadShared)
	tx.Commit()
	g.sent()
	g.nodeDown(1)
	g.outcome(g.question(), signal.OutcomeCommitted)
	g.env.SetNow(rowGrace - 1)
	g.s.Tick()
	g.nothingOver()
	g.env.SetNow(rowGrace)
	g.s.Tick()
	g.answered(tx, ndberror.CommittedNotRead, true)

	// The same without a commit: its coordinator is alive, and says that the batch is done.
	g = newRig(t, even)
	g.env.SetNow(1)
	tx = g.begin()
	g.row.Read(tx, ptr(&two), signal.OpReadShared)
	tx.Execute()
	tc := g.one(signal.NumKeyReq).To
	g.nodeDown(1) // it has a replica too, and may have been the primary
	g.nothingOver()
	g.txConf(tc, tx.num, 0)
	tx.deadline = 1 << 60
	g.s.Tick()
	g.nothingOver()
	g.env.SetNow(rowGrace + 1)
	g.s.Tick()
	if x := txReq(g.one(signal.NumTxReq)); x.Action != signal.TxRollback {
		t.Error(signal.Format(&x.Head))
	}
	g.txRef(tc, tx.num, 0, signal.NoRef)
	g.over(tx, ndberror.NodeFailed)
	g.atRest(tx)
}

// A node that has lost its links to the client alone is still primary: the coordinator reads there, and the row goes
// nowhere.
func TestARowOfANodeThatIsOutOfReach(t *testing.T) {
	for _, back := range []bool{false, true} {
		g := newRig(t, even)
		g.env.SetNow(1)
		r := g.keyAt(1)
		g.nodeDown(1)
		tx := g.begin()
		g.row.Read(tx, ptr(&r), signal.OpReadExclusive)
		tx.Execute()
		tc := g.one(signal.NumKeyReq).To
		if back {
			g.nodeUp(1, 1)
		}
		g.txConf(tc, tx.num, 0)
		tx.deadline = 1 << 60
		g.s.Tick()
		g.nothingOver()
		g.env.SetNow(rowGrace + 1)
		g.s.Tick()
		if x := txReq(g.one(signal.NumTxReq)); x.Action != signal.TxRollback {
			t.Error(signal.Format(&x.Head))
		}
		g.txRef(tc, tx.num, 0, signal.NoRef)
		g.over(tx, ndberror.NodeFailed)
		g.atRest(tx)
	}
}

// With three replicas the next of the chain is asked when the one that was asked is lost too.
func TestTheNextReplicaIsAsked(t *testing.T) {
	g := newRig(t, even)
	g.env.Buf(30).Init(4096, 1<<20)
	g.env.Spread(3, 30, 1)
	g.node(3, func(n *Node) { *n = Node{ID: 3, Up: true, Started: true, LDMs: 2, TCs: 2, Life: 1, DynamicID: 3} })
	g.remap(func(c []signal.Addr) { c[2] = signal.MakeAddr(3, signal.BlockLDM, 0) })
	r := g.keyAt(1)
	tx := g.begin()
	g.row.Update(tx, ptr(&r))
	tx.Commit()
	g.sent()
	g.nodeDown(1)
	if q := g.question(); q.To.Node() != 2 {
		t.Error(signal.Format(&q.Head))
	}
	g.nodeDown(2)
	q := g.question()
	if q.To.Node() != 3 || q.Node != 1 {
		t.Error(signal.Format(&q.Head))
	}
	g.outcome(q, signal.OutcomeCommitted)
	g.answered(tx, 0, true)
}
