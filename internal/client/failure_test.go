package client

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/signal"
)

// keyAt finds a row whose primary is on a node.
func (g *rig) keyAt(node uint8) row {
	for i := uint32(0); ; i++ {
		r := row{a: i}
		if _, p := g.tab.place(unsafe.Pointer(&r), 8); p.Node() == node {
			return r
		}
	}
}

const asks = 1 << 20

func TestANodeFails(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(g *rig, tx *Tx, r *row)
		code int // 0: it is not over; below 0: it shows at the next step; asks: it is asked for
	}{
		{"before anything is sent", func(g *rig, tx *Tx, r *row) { g.row.Update(tx, ptr(r)) }, -ndberror.NodeFailed},
		{"committed read", func(g *rig, tx *Tx, r *row) {
			g.row.Read(tx, ptr(r), signal.OpReadCommitted)
			tx.Commit()
		}, ndberror.NodeFailed},
		{"one-shot write", func(g *rig, tx *Tx, r *row) {
			g.row.Update(tx, ptr(r))
			tx.Commit()
		}, asks},
		{"one-shot write after a read at another node", func(g *rig, tx *Tx, r *row) {
			two := g.keyAt(2)
			g.row.Read(tx, ptr(&two), signal.OpReadCommitted)
			tx.Execute()
			g.readConf(g.one(signal.NumReadReq), 1, 2)
			g.done = nil
			g.row.Update(tx, ptr(r))
			tx.Commit()
		}, asks},
		{"execute", func(g *rig, tx *Tx, r *row) {
			g.row.Update(tx, ptr(r))
			tx.Execute()
		}, ndberror.NodeFailed},
		{"commit", func(g *rig, tx *Tx, r *row) {
			g.row.Update(tx, ptr(r))
			g.row.Update(tx, ptr(r))
			tx.Commit()
		}, asks},
		{"commit of locking reads", func(g *rig, tx *Tx, r *row) {
			g.row.Read(tx, ptr(r), signal.OpReadShared)
			tx.Commit()
		}, ndberror.NodeFailed},
		{"rollback", func(g *rig, tx *Tx, r *row) {
			g.row.Update(tx, ptr(r))
			tx.Execute()
			g.txConf(g.one(signal.NumKeyReq).To, tx.num, 0)
			g.done = nil
			tx.Rollback()
		}, ndberror.NodeFailed},
		{"between two batches", func(g *rig, tx *Tx, r *row) {
			g.row.Update(tx, ptr(r))
			tx.Execute()
			g.txConf(g.one(signal.NumKeyReq).To, tx.num, 0)
			g.done = nil
		}, -ndberror.NodeFailed},
		{"the other node", func(g *rig, tx *Tx, r *row) {
			*r = g.keyAt(2)
			g.row.Update(tx, ptr(r))
			tx.Commit()
		}, 0},
		{"a row of another node", func(g *rig, tx *Tx, r *row) {
			two := g.keyAt(2)
			g.row.Read(tx, ptr(&two), signal.OpReadShared)
			g.row.Read(tx, ptr(r), signal.OpReadShared)
			tx.Commit()
			g.readConf(key(g.sent()[0]), 1, 2)
			g.txConf(tx.tc, tx.num, 1)
			g.nothingOver()
		}, ndberror.NodeFailed},
		{"a row of another node, committed", func(g *rig, tx *Tx, r *row) {
			two := g.keyAt(2)
			g.row.Update(tx, ptr(&two))
			g.row.Read(tx, ptr(r), signal.OpReadShared)
			tx.Commit()
			g.sent()
			g.txConf(tx.tc, tx.num, 1)
			g.nothingOver()
		}, ndberror.CommittedNotRead},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t, even)
			r := g.keyAt(1)
			tx := g.begin()
			c.run(g, tx, &r)
			if c.code > 0 {
				g.sent()
			}
			g.nodeDown(1)
			switch {
			case c.code == 0:
				g.nothingOver()
				g.writeConf(g.one(signal.NumWriteReq))
				g.over(tx, 0)
			case c.code < 0: // it shows at the next step
				g.nothingOver()
				if tx.Commit() || tx.Err() == nil || tx.Err().Code != -c.code {
					t.Error(tx.Err())
				}
			case c.code == asks:
				g.nothingOver()
				g.outcome(g.question(), signal.OutcomeCommitted)
				g.over(tx, 0)
			default:
				g.over(tx, c.code)
				if tx.Err().Class == ndberror.ClassUnknownResult {
					t.Error(tx.Err())
				}
			}
			g.sent()
			if g.s.Unheard() != 0 {
				t.Errorf("%d outcomes are awaited for ever", g.s.Unheard())
			}
			g.atRest(tx)
		})
	}
}

func TestNobodyServes(t *testing.T) {
	g := newRig(t, even)
	r := g.keyAt(1)
	g.remap(func(c []signal.Addr) { c[1] = 0 })
	g.nodeDown(1)
	tx := g.begin()
	if op := g.row.Read(tx, ptr(&r), signal.OpReadCommitted); op.Err().Code != ndberror.NodeFailed || !op.Err().Retry {
		t.Error(op.Err())
	}
	g.atRest(tx)
	g.nodeDown(2)
	tx = g.begin()
	if op := g.row.Read(tx, ptr(&r), signal.OpReadCommitted); op.Err().Code != ndberror.ClusterNotReady {
		t.Error(op.Err())
	}
	g.atRest(tx)
}

func TestAnswersThatDoNotCome(t *testing.T) {
	g := newRig(t, even)
	r := row{a: 1}
	g.env.SetNow(5000)
	tx := g.begin()
	g.row.Update(tx, ptr(&r))
	tx.Execute()
	q := g.one(signal.NumKeyReq)
	g.env.SetNow(5999)
	g.s.Tick()
	g.nothingOver()
	later := g.begin()
	g.row.Update(later, ptr(&r))
	later.Commit()
	w := g.one(signal.NumWriteReq)
	g.env.SetNow(6000)
	g.s.Tick()
	g.over(tx, ndberror.NoAnswer)
	if x := txReq(g.one(signal.NumTxReq)); x.Action != signal.TxRollback || x.Tx != q.Tx || x.To != q.To {
		t.Error(signal.Format(&x.Head))
	}
	// If it runs on there: when it says so, it must be rolled back, now and after its record has another owner.
	g.txConf(q.To, q.Tx, 0)
	if x := txReq(g.one(signal.NumTxReq)); x.Action != signal.TxRollback || x.Tx != q.Tx || x.To != q.To {
		t.Error(signal.Format(&x.Head))
	}
	tx.Release()
	next := g.begin()
	g.txConf(q.To, q.Tx, 0)
	if x := txReq(g.one(signal.NumTxReq)); x.Action != signal.TxRollback || x.Tx != q.Tx {
		t.Error(signal.Format(&x.Head))
	}
	g.txRef(q.To, q.Tx, 0, signal.NoRef)
	g.nothingOver()
	g.env.SetNow(6998)
	g.s.Tick()
	g.nothingOver()
	g.env.SetNow(6999)
	g.s.Tick()
	g.over(later, ndberror.NoAnswer)
	g.writeConf(w)
	g.nothingOver()
	if g.s.Unheard() != 0 || g.s.Counters.Timeouts != 2 || g.s.Counters.Stale == 0 {
		t.Errorf("%d %+v", g.s.Unheard(), g.s.Counters)
	}
	g.atRest(later, next)
}

func TestGiveUp(t *testing.T) {
	g := newRig(t, even)
	r := row{a: 1}
	tx := g.begin()
	tx.GiveUp() // nothing is awaited
	g.row.Read(tx, ptr(&r), signal.OpReadCommitted)
	tx.Commit()
	q := g.one(signal.NumReadReq)
	tx.GiveUp()
	g.over(tx, ndberror.NoAnswer)
	r.value = 5
	g.readConf(q, 1, 2)
	if r.value != 5 {
		t.Error("a row came after its transaction was given up")
	}
	g.atRest(tx)
}

// A transaction that is given up, or released, while it waits for rows is rolled back at once: the coordinator may have
// answered its batch already and would keep the locks for ever.
func TestGiveUpLetsGo(t *testing.T) {
	for _, answered := range []bool{false, true} {
		for name, end := range map[string]func(*Tx){"GiveUp": (*Tx).GiveUp, "Release": (*Tx).Release} {
			t.Run(fmt.Sprint(name, " answered ", answered), func(t *testing.T) {
				g := newRig(t, even)
				r := row{a: 1}
				tx := g.begin()
				g.row.Read(tx, ptr(&r), signal.OpReadExclusive)
				tx.Execute()
				q := g.one(signal.NumKeyReq)
				if answered { // the row is still on its way
					g.txConf(q.To, q.Tx, 0)
				}
				g.nothingOver()
				end(tx)
				if x := txReq(g.one(signal.NumTxReq)); x.Action != signal.TxRollback || x.Tx != q.Tx || x.To != q.To {
					t.Error(signal.Format(&x.Head))
				}
				if name == "GiveUp" {
					g.over(tx, ndberror.NoAnswer)
				}
				g.txRef(q.To, q.Tx, 0, signal.NoRef)
				g.nothingOver()
				if g.atRest(tx); len(g.sent()) != 0 {
					t.Error("it is rolled back twice")
				}
			})
		}
	}
}

func TestAnswersThatDoNotFit(t *testing.T) {
	for _, c := range []struct {
		name string
		say  func(g *rig, q *signal.KeyReq)
	}{
		{"no such operation", func(g *rig, q *signal.KeyReq) { q.Ref = 1 << 30; g.readConf(q, 1, 2) }},
		{"another transaction", func(g *rig, q *signal.KeyReq) { q.Tx++; g.readConf(q, 1, 2) }},
		{"a free operation", func(g *rig, q *signal.KeyReq) { q.Ref++; q.Tx = 0; g.readConf(q, 1, 2) }},
		{"a write's answer to a read", func(g *rig, q *signal.KeyReq) { g.writeConf(q) }},
		{"a coordinator's word on a direct read", func(g *rig, q *signal.KeyReq) { g.txConf(q.To, q.Tx, 1) }},
		{"a coordinator's refusal of a direct read", func(g *rig, q *signal.KeyReq) {
			g.keyRef(q, signal.MakeAddr(1, signal.BlockTC, 0), 626)
		}},
		{"an abort by nobody", func(g *rig, q *signal.KeyReq) { g.txRef(signal.MakeAddr(1, signal.BlockTC, 0), q.Tx, 266, q.Ref) }},
		{"an outcome that nobody asked for", func(g *rig, q *signal.KeyReq) {
			say(g, q.To, signal.NumOutcomeConf, func(c *signal.OutcomeConf) { c.Tx = q.Tx })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t, even)
			r := row{a: 1}
			tx := g.begin()
			g.row.Read(tx, ptr(&r), signal.OpReadCommitted)
			tx.Commit()
			q := g.one(signal.NumReadReq)
			was := *q
			c.say(g, q)
			g.nothingOver()
			if g.s.Counters.Malformed+g.s.Counters.Stale == 0 {
				t.Error("nobody noticed")
			}
			copyOf := append([]uint32(nil), unsafe.Slice((*uint32)(unsafe.Pointer(q)), q.Len)...)
			q = (*signal.KeyReq)(unsafe.Pointer(&copyOf[0]))
			q.Ref, q.Tx = was.Ref, was.Tx
			g.readConf(q, 8, 9)
			g.over(tx, 0)
			if r.value != 8 {
				t.Error(r)
			}
			g.atRest(tx)
		})
	}
	t.Run("a row of another length", func(t *testing.T) {
		for _, words := range [][]uint32{{}, {1}, {1, 2, 3}} {
			g := newRig(t, even)
			r := row{a: 1}
			tx := g.begin()
			g.row.Read(tx, ptr(&r), signal.OpReadCommitted)
			tx.Commit()
			g.readConf(g.one(signal.NumReadReq), words...)
			g.over(tx, ndberror.BadAnswer)
			g.atRest(tx)
		}
	})
	t.Run("a row for a write, and a commit that nobody asked for", func(t *testing.T) {
		g := newRig(t, even)
		r := row{a: 1}
		tx := g.begin()
		g.row.Update(tx, ptr(&r))
		g.row.Update(tx, ptr(&r))
		tx.Execute()
		all := g.sent()
		tc := all[0].To
		g.readConf(key(all[0]), 1, 2)
		g.writeConf(key(all[0]))
		g.txConf(tc, tx.num, 1)
		g.txConf(signal.MakeAddr(2, signal.BlockTC, 1), tx.num, 0)
		g.txRef(signal.MakeAddr(2, signal.BlockTC, 1), tx.num, 266, signal.NoRef)
		g.keyRef(key(all[0]), all[0].To+1, 630)
		g.nothingOver()
		g.txConf(tc, tx.num, 0)
		g.over(tx, 0)
		g.atRest(tx)
	})
	t.Run("refusals without a reason", func(t *testing.T) {
		g := newRig(t, even)
		r := row{a: 1}
		tx := g.begin()
		g.row.Update(tx, ptr(&r))
		tx.Commit()
		q := g.one(signal.NumWriteReq)
		g.keyRef(q, q.To, 0)
		g.over(tx, ndberror.BadAnswer)
		tx.Release()
		tx = g.begin()
		g.row.Update(tx, ptr(&r))
		tx.Execute()
		g.txRef(g.one(signal.NumKeyReq).To, tx.num, 0, 1<<31)
		g.over(tx, ndberror.TxFailed)
		g.atRest(tx)
	})
}

// A node that has one of a transaction's rows fails while its commit is under way at another: whether it was committed
// is what the coordinator says, not what became of the row.
func TestARowIsLostWhileTheCommitIsUnderWay(t *testing.T) {
	for _, code := range []int{ndberror.CommittedNotRead, ndberror.LockTimeout, ndberror.NodeFailed, ndberror.AnswerLost} {
		g := newRig(t, even)
		one, two := g.keyAt(1), g.keyAt(2)
		tx := g.begin()
		g.row.Update(tx, ptr(&two))
		op := g.row.Read(tx, ptr(&one), signal.OpReadShared)
		tx.Commit()
		g.sent()
		tc := tx.tc
		g.nodeDown(1)
		g.nothingOver()
		switch code {
		case ndberror.CommittedNotRead:
			g.txConf(tc, tx.num, 1)
		case ndberror.AnswerLost: // the coordinator's node fails too
			g.nodeDown(2)
		default:
			g.txRef(tc, tx.num, uint32(code), signal.NoRef)
		}
		g.over(tx, code)
		if said := op.Err().Code == ndberror.CommittedNotRead; said && code != ndberror.CommittedNotRead && code != ndberror.AnswerLost {
			t.Errorf("%v, and its read says %v", tx.Err(), op.Err())
		}
		if committed := tx.GCI() != 0; committed != (code == ndberror.CommittedNotRead) {
			t.Errorf("%v: epoch %d", tx.Err(), tx.GCI())
		}
		if g.s.Unheard() != 0 {
			t.Errorf("%d outcomes are awaited for ever", g.s.Unheard())
		}
		g.atRest(tx)
	}
}

// A session that is closed, or given up, when it knows that a transaction was committed does not call it rolled back.
func TestACommittedTransactionWithoutItsRows(t *testing.T) {
	for _, end := range []func(*rig, *Tx){func(g *rig, _ *Tx) { g.s.Close() }, func(_ *rig, tx *Tx) { tx.GiveUp() }} {
		g := newRig(t, even)
		one, two := g.keyAt(1), g.keyAt(2)
		tx := g.begin()
		g.row.Update(tx, ptr(&two))
		g.row.Read(tx, ptr(&one), signal.OpReadShared)
		tx.Commit()
		g.sent()
		g.txConf(tx.tc, tx.num, 1)
		g.nothingOver()
		end(g, tx)
		g.over(tx, ndberror.CommittedNotRead)
		g.sent()
		g.atRest(tx)
	}
}
