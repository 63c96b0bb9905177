package client

import (
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/outcome"
	"github.com/cohortdb/cohort/internal/signal"
)

func TestACommittedReadGoesToThePrimarysLDM(t *testing.T) {
	g := newRig(t, even)
	r := row{a: 11, b: 12}
	tx := g.begin()
	op := g.row.Read(tx, ptr(&r), signal.OpReadCommitted)
	if !tx.Commit() {
		t.Fatal("over at once")
	}
	q := g.one(signal.NumReadReq)
	frag, primary := g.tab.place(unsafe.Pointer(&r), 8)
	if q.To != primary || q.Frag != frag || q.Table != 7 || q.Version != 3 || q.Flags != signal.FlagAll || q.DataLen != 0 || q.KeyLen != 8 || q.Seq != 0 {
		t.Fatal(signal.Format(&q.Head))
	}
	if int(primary.Node()) != tx.Node() || tx.Coordinated() {
		t.Error(tx.Node())
	}
	g.nothingOver()
	g.readConf(q, 100, 200)
	g.over(tx, 0)
	if r.value != 100 || r.other != 200 || op.Err() != nil || tx.State() != Ended {
		t.Fatalf("%+v", r)
	}
	g.readConf(q, 7, 7) // once more
	g.nothingOver()
	if r.value != 100 || g.s.Counters.Stale != 1 {
		t.Error("a late row was taken")
	}
	g.atRest(tx)
}

func TestAOneShotWriteCarriesSequenceAndAcknowledgement(t *testing.T) {
	g := newRig(t, even)
	for i := uint32(1); i <= 3; i++ {
		r := row{a: i, b: i, value: i}
		tx := g.begin()
		g.row.Insert(tx, ptr(&r))
		tx.Commit()
		q := g.one(signal.NumWriteReq)
		if q.Seq != i || q.Ack != i-1 || q.Op != signal.OpInsert || q.DataLen != 8 {
			t.Fatal(signal.Format(&q.Head))
		}
		if d := (*[2]uint32)(q.Data()); d[0] != i || d[1] != 0 {
			t.Fatal(d)
		}
		g.writeConf(q)
		g.over(tx, 0)
		if tx.GCI() != 6<<32|5 {
			t.Error(tx.GCI())
		}
		g.atRest(tx)
	}
}

func TestFailuresOfOneShotOperations(t *testing.T) {
	g := newRig(t, even)
	r := row{}
	tx := g.begin()
	op := g.row.Insert(tx, ptr(&r))
	tx.Commit()
	q := g.one(signal.NumWriteReq)
	g.keyRef(q, q.To, 630)
	g.over(tx, 630)
	if op.Err().Code != 630 || g.s.Unheard() != 0 {
		t.Error(op.Err(), g.s.Unheard())
	}
	g.atRest(tx)

	tx = g.begin()
	op = g.row.Read(tx, ptr(&r), signal.OpReadCommitted)
	op.IgnoreError()
	tx.Commit()
	q = g.one(signal.NumReadReq)
	g.keyRef(q, q.To, 626)
	g.over(tx, 0)
	if op.Err().Code != 626 {
		t.Error(op.Err())
	}
	g.atRest(tx)

	tx = g.begin() // 233 is not for this row alone: it cannot be ignored
	op = g.row.Update(tx, ptr(&r))
	op.IgnoreError()
	tx.Commit()
	q = g.one(signal.NumWriteReq)
	g.keyRef(q, q.To, 233)
	g.over(tx, 233)
	g.atRest(tx)

	tx = g.begin()
	op = g.row.Delete(tx, ptr(&r))
	op.NoWait()
	tx.Commit()
	q = g.one(signal.NumWriteReq)
	if q.Flags&signal.FlagNoWait == 0 || q.DataLen != 0 {
		t.Error(signal.Format(&q.Head))
	}
	g.keyRef(q, q.To, 241)
	g.over(tx, 241)
	if g.s.StaleTable != g.tab {
		t.Error("nobody hears that the table is old")
	}
	g.atRest(tx)
}

func TestSeveralOperationsGoThroughACoordinator(t *testing.T) {
	g := newRig(t, even)
	r := row{a: 1, b: 2, value: 3}
	_, primary := g.tab.place(unsafe.Pointer(&r), 8)
	tx := g.begin()
	g.row.Insert(tx, ptr(&r))
	r.b = 9
	g.row.Update(tx, ptr(&r))
	r.a = 5
	g.row.Delete(tx, ptr(&r))
	tx.Commit()
	all := g.sent()
	if len(all) != 3 {
		t.Fatalf("%d signals", len(all))
	}
	tc := signal.MakeAddr(primary.Node(), signal.BlockTC, primary.Instance())
	want := []uint8{signal.FlagAll | signal.FlagStart, signal.FlagAll, signal.FlagAll | signal.FlagExecute | signal.FlagCommit}
	for i, h := range all {
		q := key(h)
		if q.Num != signal.NumKeyReq || q.To != tc || q.Flags != want[i] || (q.Seq != 0) != (i == 2) {
			t.Errorf("%d: %s", i, signal.Format(h))
		}
	}
	if k := (*[2]uint32)(key(all[0]).Key()); k[1] != 2 {
		t.Error("the first operation's key was taken late")
	}
	g.txConf(tc, tx.num, 1)
	g.over(tx, 0)
	if tx.Node() != int(tc.Node()) || tx.GCI() == 0 || g.s.Unheard() != 0 {
		t.Error(tx.Node(), tx.GCI(), g.s.Unheard())
	}
	g.txConf(tc, tx.num, 1)
	g.nothingOver()
	g.atRest(tx)
}

func TestExecuteAndThenCommitWithoutFurtherOperation(t *testing.T) {
	g := newRig(t, even)
	r := row{a: 1}
	tx := g.begin()
	op := g.row.Read(tx, ptr(&r), signal.OpReadExclusive)
	tx.Execute()
	q := g.one(signal.NumKeyReq)
	if q.Flags != signal.FlagAll|signal.FlagStart|signal.FlagExecute {
		t.Fatal(signal.Format(&q.Head))
	}
	tc := q.To
	g.txConf(tc, tx.num, 0) // before the row, which comes from elsewhere
	g.nothingOver()
	g.readConf(q, 7, 8)
	g.over(tx, 0)
	if tx.State() != Defining || r.value != 7 || op.Err() != nil {
		t.Fatal(tx.State(), r)
	}
	if tx.Execute() {
		t.Error("there was nothing to execute")
	}
	r.value = 9
	g.row.Update(tx, ptr(&r))
	tx.Execute()
	q = g.one(signal.NumKeyReq)
	if q.Flags != signal.FlagAll|signal.FlagExecute || q.To != tc {
		t.Fatal(signal.Format(&q.Head))
	}
	g.txConf(tc, tx.num, 0)
	g.over(tx, 0)
	tx.Commit()
	x := txReq(g.one(signal.NumTxReq))
	if x.Action != signal.TxCommit || x.Seq != 1 || x.Tx != tx.num || x.To != tc {
		t.Fatal(signal.Format(&x.Head))
	}
	g.txConf(tc, tx.num, 1)
	g.over(tx, 0)
	g.atRest(tx)
}

func TestATransactionOfLockingReadsHasNoSequence(t *testing.T) {
	g := newRig(t, even)
	r := row{a: 1}
	tx := g.begin()
	g.row.Read(tx, ptr(&r), signal.OpReadShared)
	tx.Commit()
	q := g.one(signal.NumKeyReq)
	if q.Seq != 0 {
		t.Fatal(signal.Format(&q.Head))
	}
	g.readConf(q, 1, 2) // before the coordinator's word
	g.nothingOver()
	g.txConf(q.To, tx.num, 1)
	g.over(tx, 0)
	g.atRest(tx)
}

func TestCommittedReadsAloneNeedNoCoordinator(t *testing.T) {
	g := newRig(t, even)
	rows := [4]row{{a: 1}, {a: 2}, {a: 3}, {a: 4}}
	tx := g.begin()
	for i := range rows {
		g.row.Read(tx, ptr(&rows[i]), signal.OpReadCommitted)
	}
	tx.Commit()
	all := g.sent()
	if len(all) != 4 {
		t.Fatalf("%d signals", len(all))
	}
	for _, i := range []int{2, 0, 3, 1} {
		g.nothingOver()
		if all[i].Num != signal.NumReadReq {
			t.Fatal(signal.Format(all[i]))
		}
		g.readConf(key(all[i]), key(all[i]).Ref, 0)
	}
	g.over(tx, 0)
	g.atRest(tx)

	tx = g.begin() // one of them fails: so does the transaction, once all have answered
	for i := range rows {
		g.row.Read(tx, ptr(&rows[i]), signal.OpReadCommitted)
	}
	tx.Execute()
	all = g.sent()
	g.keyRef(key(all[1]), all[1].To, 626)
	g.readConf(key(all[0]), 1, 1)
	g.readConf(key(all[3]), 1, 1)
	g.nothingOver()
	g.readConf(key(all[2]), 1, 1)
	g.over(tx, 626)
	if tx.State() != Ended {
		t.Error(tx.State())
	}
	g.atRest(tx)
}

func TestAReadBecomesACoordinatorsWhenAWriteFollows(t *testing.T) {
	g := newRig(t, even)
	a, b := row{a: 1}, row{a: 2}
	tx := g.begin()
	g.row.Read(tx, ptr(&a), signal.OpReadCommitted)
	g.row.Update(tx, ptr(&b))
	tx.Commit()
	all := g.sent()
	if len(all) != 2 || all[0].Num != signal.NumKeyReq || all[1].Num != signal.NumKeyReq || all[0].To != all[1].To ||
		key(all[0]).Flags != signal.FlagAll|signal.FlagStart || key(all[1]).Flags != signal.FlagAll|signal.FlagExecute|signal.FlagCommit {
		for _, h := range all {
			t.Error(signal.Format(h))
		}
	}
	g.txConf(all[0].To, tx.num, 1)
	g.nothingOver()
	g.readConf(key(all[0]), 1, 2)
	g.over(tx, 0)
	g.atRest(tx)
}

// Two reads have gone to their ldms when a write makes the transaction need a coordinator: the commit must wait for the
// reads, because one that fails must stop it, and because one whose failure is ignored must not see the write either.
func TestDirectReadsAreAwaitedBeforeTheCommit(t *testing.T) {
	for i := range 4 {
		fails, ignored := i%2 == 1, i >= 2
		g := newRig(t, even)
		a, b, c := row{a: 1}, row{a: 2}, row{a: 3}
		tx := g.begin()
		if o := g.row.Read(tx, ptr(&a), signal.OpReadCommitted); ignored {
			o.IgnoreError()
		}
		g.row.Read(tx, ptr(&b), signal.OpReadCommitted)
		g.row.Update(tx, ptr(&c))
		tx.Commit()
		// The second read is still open when the write comes, so it goes with the write; the first stays direct.
		var direct, read, write *signal.KeyReq
		for _, h := range g.sent() {
			switch q := key(h); {
			case q.Num == signal.NumReadReq:
				direct = q
			case q.Op == signal.OpReadCommitted:
				read = q
			default:
				write = q
			}
		}
		if direct == nil || read == nil || write == nil || write.Flags&signal.FlagCommit != 0 || write.Flags&signal.FlagExecute == 0 {
			t.Fatal("not the signals that are expected")
		}
		tc := write.To
		g.txConf(tc, tx.num, 0)
		g.readConf(read, 1, 2)
		g.nothingOver()
		if fails {
			g.keyRef(direct, direct.To, 626)
		} else {
			g.readConf(direct, 1, 2)
		}
		all := g.sent()
		if fails && !ignored {
			x := txReq(key(all[0]))
			if len(all) != 1 || x.Action != signal.TxRollback {
				t.Fatal(signal.Format(&x.Head))
			}
			g.nothingOver()
			g.txRef(tc, tx.num, 0, signal.NoRef)
			g.over(tx, 626)
		} else {
			x := txReq(key(all[0]))
			if len(all) != 1 || x.Action != signal.TxCommit || x.Seq != 1 {
				t.Fatal(signal.Format(&x.Head))
			}
			g.nothingOver()
			g.txConf(tc, tx.num, 1)
			g.over(tx, 0)
		}
		g.atRest(tx)
	}
}

func TestAWriteAfterExecutedReadsGoesStraight(t *testing.T) {
	g := newRig(t, even)
	r := row{a: 1}
	tx := g.begin()
	g.row.Read(tx, ptr(&r), signal.OpReadCommitted)
	tx.Execute()
	g.readConf(g.one(signal.NumReadReq), 4, 5)
	g.over(tx, 0)
	r.value++
	g.row.Update(tx, ptr(&r))
	tx.Commit()
	q := g.one(signal.NumWriteReq)
	if d := (*[2]uint32)(q.Data()); d[0] != 5 || d[1] != 5 {
		t.Error(d)
	}
	g.writeConf(q)
	g.over(tx, 0)
	g.atRest(tx)
}

func TestTransactionsMayBeDefinedTogether(t *testing.T) {
	g := newRig(t, even)
	r := row{a: 1}
	one, two := g.begin(), g.begin()
	g.row.Update(one, ptr(&r))
	g.row.Update(two, ptr(&r)) // one's request must take its final form now
	two.Commit()
	one.Commit()
	all := g.sent()
	var kinds []uint16
	for _, h := range all {
		kinds = append(kinds, h.Num)
	}
	if len(all) != 3 || key(all[0]).Tx != one.num || kinds[0] != signal.NumKeyReq || kinds[1] != signal.NumWriteReq || kinds[2] != signal.NumTxReq {
		t.Fatal(kinds)
	}
	g.txConf(all[0].To, one.num, 1)
	g.over(one, 0)
	g.writeConf(key(all[1]))
	g.over(two, 0)
	g.atRest(one, two)
}

// With three ldms and one coordinator the coordinator's requests travel another way than the ldm's: the open request
// must move from one buffer to the other.
func TestAnOpenRequestMovesToTheCoordinatorsSocket(t *testing.T) {
	g := newRig(t, layout{sockets: 3, ldms: 3, tcs: 1})
	moved := 0
	for i := range uint32(40) {
		r := row{a: i, value: i}
		_, primary := g.tab.place(unsafe.Pointer(&r), 8)
		if primary.Instance() != 0 {
			moved++
		}
		tx := g.begin()
		g.row.Write(tx, ptr(&r))
		if i%2 == 0 {
			g.row.Read(tx, ptr(&r), signal.OpReadCommitted)
		}
		tx.Execute()
		all := g.sent()
		if len(all) != 1+int(1-i%2) {
			t.Fatalf("%d signals", len(all))
		}
		for _, h := range all {
			q := key(h)
			if q.Num != signal.NumKeyReq || q.To != signal.MakeAddr(primary.Node(), signal.BlockTC, 0) || (*[2]uint32)(q.Key())[0] != i {
				t.Fatal(signal.Format(h))
			}
		}
		tc := tx.tc
		tx.Release() // before its answer came
		if x := txReq(g.one(signal.NumTxReq)); x.Action != signal.TxRollback {
			t.Fatal(signal.Format(&x.Head))
		}
		g.txConf(tc, tx.num, 0)
		if x := txReq(g.one(signal.NumTxReq)); x.Action != signal.TxRollback {
			t.Fatal(signal.Format(&x.Head))
		}
	}
	if moved == 0 {
		t.Error("nothing had to move")
	}
	g.atRest()
}

func TestRollback(t *testing.T) {
	g := newRig(t, even)
	r := row{a: 1}
	tx := g.begin() // nothing was sent: nothing is to be undone
	g.row.Update(tx, ptr(&r))
	if tx.Rollback() || len(g.sent()) != 0 || tx.State() != Ended {
		t.Error("a request that was never sent was rolled back by a signal")
	}
	g.atRest(tx)

	tx = g.begin()
	g.row.Update(tx, ptr(&r))
	g.row.Update(tx, ptr(&r))
	g.row.Read(tx, ptr(&r), signal.OpReadShared)
	if !tx.Rollback() {
		t.Fatal("over at once")
	}
	all := g.sent() // the third operation was open and is taken back
	if len(all) != 3 || all[2].Num != signal.NumTxReq || txReq(key(all[2])).Action != signal.TxRollback {
		t.Fatal(len(all))
	}
	g.txRef(all[0].To, tx.num, 0, signal.NoRef)
	g.over(tx, 0)
	g.atRest(tx)

	tx = g.begin() // released while open
	g.row.Read(tx, ptr(&r), signal.OpReadExclusive)
	tx.Execute()
	q := g.one(signal.NumKeyReq)
	g.txConf(q.To, tx.num, 0)
	g.readConf(q, 1, 2)
	g.over(tx, 0)
	tx.Release()
	x := txReq(g.one(signal.NumTxReq))
	g.txRef(x.To, x.Tx, 0, signal.NoRef)
	g.nothingOver()
	g.atRest()
}

func TestTheClusterRollsATransactionBack(t *testing.T) {
	g := newRig(t, even)
	r := row{a: 1}
	tx := g.begin()
	first := g.row.Update(tx, ptr(&r))
	second := g.row.Read(tx, ptr(&r), signal.OpReadShared)
	tx.Commit()
	all := g.sent()
	g.txRef(all[0].To, tx.num, 266, key(all[1]).Ref)
	g.over(tx, 266)
	if first.Err() != nil || second.Err().Code != 266 || g.s.Unheard() != 0 {
		t.Error(first.Err(), second.Err(), g.s.Unheard())
	}
	r.value = 77
	g.readConf(key(all[1]), 1, 1) // too late
	if r.value != 77 {
		t.Error("a row was taken after the end")
	}
	g.atRest(tx)

	tx = g.begin() // between two batches
	g.row.Update(tx, ptr(&r))
	tx.Execute()
	q := g.one(signal.NumKeyReq)
	g.txConf(q.To, tx.num, 0)
	g.over(tx, 0)
	g.txRef(q.To, tx.num, 237, signal.NoRef)
	g.nothingOver()
	g.row.Update(tx, ptr(&r))
	if tx.Commit() || tx.Err().Code != 237 || len(g.sent()) != 0 {
		t.Error(tx.Err())
	}
	g.atRest(tx)
}

func TestIgnoredErrorsOfACoordinator(t *testing.T) {
	g := newRig(t, even)
	r := row{a: 1}
	tx := g.begin()
	ins := g.row.Insert(tx, ptr(&r))
	ins.IgnoreError()
	read := g.row.Read(tx, ptr(&r), signal.OpReadExclusive)
	read.IgnoreError()
	tx.Commit()
	all := g.sent()
	if key(all[0]).Flags&signal.FlagIgnoreError == 0 || key(all[1]).Flags&signal.FlagIgnoreError == 0 {
		t.Fatal("the flags are missing")
	}
	tc := all[0].To
	g.keyRef(key(all[0]), tc, 630)
	g.keyRef(key(all[1]), tc, 626)
	g.keyRef(key(all[1]), tc, 626) // twice
	g.nothingOver()
	g.txConf(tc, tx.num, 1)
	g.over(tx, 0)
	if ins.Err().Code != 630 || read.Err().Code != 626 {
		t.Error(ins.Err(), read.Err())
	}
	g.atRest(tx)

	tx = g.begin() // too late to say so
	ins = g.row.Insert(tx, ptr(&r))
	g.row.Insert(tx, ptr(&r))
	ins.IgnoreError()
	tx.Commit()
	if tx.Err() == nil || tx.Err().Code != ndberror.TooLate {
		t.Error(tx.Err())
	}
	tx.Release()
}

func TestValuesThatCannotBe(t *testing.T) {
	g := newRig(t, even)
	type odd struct {
		a, b uint32
		v    uint64
	}
	f := mustFormat(t, g.tab, Binding{Column: 0, Off: 0, Size: 4}, Binding{Column: 1, Off: 4, Size: 4}, Binding{Column: 2, Off: 8, Size: 8, Codec: CodecUint})
	x := odd{v: 1 << 32}
	tx := g.begin()
	op := f.Update(tx, unsafe.Pointer(&x))
	if op.Err().Code != ndberror.ValueTooLong || tx.Commit() || tx.Err() != op.Err() || len(g.sent()) != 0 {
		t.Error(op.Err(), tx.Err())
	}
	g.atRest(tx)

	tx = g.begin() // what was sent before is rolled back
	x.v = 1
	f.Update(tx, unsafe.Pointer(&x))
	f.Update(tx, unsafe.Pointer(&x))
	x.v = 1 << 40
	f.Update(tx, unsafe.Pointer(&x))
	if !tx.Commit() || tx.State() != RollingBack {
		t.Error(tx.State())
	}
	all := g.sent()
	if len(all) != 2 || txReq(key(all[1])).Action != signal.TxRollback {
		t.Error(len(all))
	}
	g.txRef(all[1].To, tx.num, 0, signal.NoRef)
	g.over(tx, ndberror.ValueTooLong)
	g.atRest(tx)
}

func TestRecordsRunOut(t *testing.T) {
	g := newRig(t, even, func(c *Config) { c.MaxTransactions, c.MaxOperations = 2, 3 })
	r := row{a: 1}
	one, two := g.begin(), g.begin()
	if g.s.Begin(TxOptions{}) != nil {
		t.Error("a third transaction")
	}
	for range 3 {
		g.row.Update(one, ptr(&r))
	}
	op := g.row.Update(two, ptr(&r))
	if op.Err().Code != ndberror.TooManyOperations || two.Commit() || two.Err().Code != ndberror.TooManyOperations || !two.Err().Retry {
		t.Error(op.Err(), two.Err())
	}
	op.IgnoreError() // an operation without a record bears it
	g.row.Update(one, ptr(&r))
	one.Commit()
	if one.State() != RollingBack {
		t.Error(one.State())
	}
	g.atRest(one, two)
	if g.row.Update(one, ptr(&r)).Err() == nil || g.s.Open() != 0 {
		t.Error("an operation on a released transaction")
	}
}

func TestTheCommitWindow(t *testing.T) {
	g := newRig(t, even, func(c *Config) { c.MaxTransactions = 8 })
	r := row{a: 1}
	slow := g.begin()
	g.row.Update(slow, ptr(&r))
	slow.Commit()
	q := g.one(signal.NumWriteReq)
	for n := 0; ; n++ {
		tx := g.begin()
		g.row.Update(tx, ptr(&r))
		if !tx.Commit() {
			if tx.Err().Code != ndberror.CommitWindowFull || !tx.Err().Retry || n != outcome.Window-2 {
				t.Errorf("after %d commits: %v", n, tx.Err())
			}
			tx.Release()
			break
		}
		g.writeConf(g.one(signal.NumWriteReq))
		g.over(tx, 0)
		tx.Release()
	}
	if len(g.sent()) != 0 {
		t.Error("a refused commit was sent")
	}
	tx := g.begin() // the same through a coordinator: what was done is rolled back
	g.row.Update(tx, ptr(&r))
	g.row.Update(tx, ptr(&r))
	tx.Commit()
	if tx.State() != RollingBack || tx.Err().Code != ndberror.CommitWindowFull {
		t.Error(tx.State(), tx.Err())
	}
	tx.Release()
	g.sent()
	g.writeConf(q)
	g.over(slow, 0)
	if g.s.Unheard() != 0 {
		t.Error(g.s.Unheard())
	}
	g.atRest(slow)
}

func TestSequenceNumbersWrap(t *testing.T) {
	g := newRig(t, even)
	g.s.seq, g.s.ack, g.s.told = ^uint32(0)-2, ^uint32(0)-2, ^uint32(0)-2
	r := row{a: 1}
	var txs []*Tx
	var reqs []*signal.KeyReq
	for range 6 {
		tx := g.begin()
		g.row.Update(tx, ptr(&r))
		tx.Commit()
		q := g.one(signal.NumWriteReq)
		if q.Seq == 0 {
			t.Error("0 is no sequence number")
		}
		txs, reqs = append(txs, tx), append(reqs, q)
	}
	for _, i := range []int{5, 1, 0, 3, 2, 4} {
		g.writeConf(reqs[i])
		g.over(txs[i], 0)
	}
	if g.s.seq != 4 || g.s.Unheard() != 0 {
		t.Error(g.s.seq, g.s.Unheard())
	}
	g.atRest(txs...)
}

func TestAcknowledgementsWhenIdleAndWhenMany(t *testing.T) {
	g := newRig(t, even)
	r := row{a: 1}
	tx := g.begin()
	g.row.Update(tx, ptr(&r))
	tx.Commit()
	g.writeConf(g.one(signal.NumWriteReq))
	g.over(tx, 0)
	g.s.Tick()
	all := g.sent()
	if len(all) != 8 { // two coordinators and two ldms of two nodes
		t.Fatalf("%d acknowledgements", len(all))
	}
	for _, h := range all {
		if h.Num != signal.NumAckOrd || (*signal.AckOrd)(unsafe.Pointer(h)).Ack != 1 {
			t.Error(signal.Format(h))
		}
	}
	g.s.Tick()
	if len(g.sent()) != 0 {
		t.Error("acknowledged twice")
	}
	g.atRest(tx)

	busy := g.begin() // while something is under way, only when many have gathered
	g.row.Read(busy, ptr(&r), signal.OpReadCommitted)
	busy.Commit()
	g.sent()
	for i := range ackEvery {
		if i == ackEvery-1 {
			g.s.Tick()
			if len(g.sent()) != 0 {
				t.Error("acknowledged too early")
			}
		}
		tx := g.begin()
		g.row.Update(tx, ptr(&r))
		tx.Commit()
		g.writeConf(g.one(signal.NumWriteReq))
		g.over(tx, 0)
		tx.Release()
	}
	g.s.Tick()
	if len(g.sent()) != 8 {
		t.Error("not acknowledged")
	}
	g.atRest(busy)
}

func TestCloseTellsEveryInstance(t *testing.T) {
	g := newRig(t, even)
	r := row{a: 1}
	open, executing, committing, never := g.begin(), g.begin(), g.begin(), g.begin()
	g.row.Update(executing, ptr(&r))
	executing.Execute()
	g.row.Update(committing, ptr(&r))
	committing.Commit()
	g.sent()
	g.row.Update(open, ptr(&r))
	g.s.Close()
	all := g.sent()
	if len(all) != 8 {
		t.Fatalf("%d signals", len(all))
	}
	for _, h := range all {
		if h.Num != signal.NumCloseOrd {
			t.Error(signal.Format(h))
		}
	}
	for tx, code := range map[*Tx]int{open: ndberror.SessionClosed, executing: ndberror.SessionClosed, committing: ndberror.AnswerLost, never: ndberror.SessionClosed} {
		if tx.Err() == nil || tx.Err().Code != code || tx.State() != Ended {
			t.Errorf("want %d, got %v", code, tx.Err())
		}
	}
	if len(g.done) != 2 || g.s.Begin(TxOptions{}) != nil {
		t.Error(len(g.done))
	}
	g.s.Close()
	g.s.Tick()
	if len(g.sent()) != 0 {
		t.Error("something is sent after the end")
	}
	g.atRest(open, executing, committing, never)
	quiet := newRig(t, even)
	quiet.s.Close()
	if len(quiet.sent()) != 0 {
		t.Error("a session that never asked for anything says good-bye")
	}
}

func TestWhereTheCoordinatorIs(t *testing.T) {
	g := newRig(t, even)
	r := row{a: 1}
	seen := map[signal.Addr]int{}
	for range 8 {
		tx := g.begin(TxOptions{RoundRobin: true})
		g.row.Read(tx, ptr(&r), signal.OpReadCommitted)
		tx.Commit()
		seen[g.one(signal.NumKeyReq).To]++
		tx.Release()
	}
	if len(seen) != 4 {
		t.Errorf("round robin went to %v", seen)
	}
	for node := uint8(1); node <= 2; node++ {
		tx := g.begin(TxOptions{Node: node, Coordinate: true})
		g.row.Update(tx, ptr(&r))
		tx.Commit()
		if q := g.one(signal.NumKeyReq); q.To.Node() != node || tx.Node() != int(node) {
			t.Error(signal.Format(&q.Head))
		}
		tx.Release()
	}
	tx := g.begin(TxOptions{Node: 77}) // no such node: where the row is
	g.row.Read(tx, ptr(&r), signal.OpReadShared)
	tx.Commit()
	if _, primary := g.tab.place(unsafe.Pointer(&r), 8); tx.Node() != int(primary.Node()) {
		t.Error(tx.Node())
	}
	tx.Release()
	g.atRest()
}

func TestDoneMayStartTheNextTransaction(t *testing.T) {
	g := newRig(t, even, func(c *Config) { c.MaxTransactions, c.MaxOperations = 1, 1 })
	r := row{a: 1}
	n := 0
	g.hook = func(tx *Tx) {
		tx.Release()
		if n++; n < 5 {
			tx := g.begin()
			g.row.Update(tx, ptr(&r))
			tx.Commit()
		}
	}
	tx := g.begin()
	g.row.Update(tx, ptr(&r))
	tx.Commit()
	for range 5 {
		g.writeConf(g.one(signal.NumWriteReq))
	}
	if n != 5 {
		t.Error(n)
	}
	g.atRest()
}

func TestTheAsynchronousPathDoesNotAllocate(t *testing.T) {
	g := newRig(t, even, func(c *Config) { c.MaxTransactions, c.MaxOperations = 64, 128 })
	g.hook = func(tx *Tx) { tx.Release() }
	e := &echo{g: g}
	rows := make([]row, 64)
	batch := func() {
		for k := range rows {
			tx := g.s.Begin(TxOptions{})
			rows[k].a = uint32(k)
			switch k % 3 {
			case 0:
				g.row.Read(tx, ptr(&rows[k]), signal.OpReadCommitted)
			case 1:
				g.row.Write(tx, ptr(&rows[k]))
			default:
				g.row.Write(tx, ptr(&rows[k]))
				g.wide.Update(tx, ptr(&rows[k]))
			}
			tx.Commit()
		}
		e.run()
	}
	batch()
	if n := testing.AllocsPerRun(100, batch); n != 0 {
		t.Errorf("%v allocations in 64 transactions", n)
	}
	g.atRest()
}

// Reads whose failure is ignored are no reason to put the commit off, wherever they went.
func TestIgnoredDirectReadsDoNotHoldTheCommitBack(t *testing.T) {
	for _, alone := range []bool{false, true} {
		g := newRig(t, even)
		a, b, c := row{a: 1}, row{a: 2}, row{a: 3}
		tx := g.begin()
		g.row.Read(tx, ptr(&a), signal.OpReadCommitted).IgnoreError()
		if alone { // it has left for its ldm before the next operation comes
			g.s.Settle()
		}
		g.row.Read(tx, ptr(&b), signal.OpReadCommitted).IgnoreError()
		g.row.Update(tx, ptr(&c))
		tx.Execute()
		tc := signal.Addr(0)
		for _, h := range g.sent() {
			switch q := key(h); {
			case q.Num == signal.NumReadReq:
				g.keyRef(q, q.To, 626)
			case q.Op == signal.OpReadCommitted:
				g.readConf(q, 1, 2)
			default:
				tc = q.To
			}
		}
		g.txConf(tc, tx.num, 0)
		g.over(tx, 0)
		tx.Commit()
		if x := txReq(g.one(signal.NumTxReq)); x.Action != signal.TxCommit || x.Seq != 1 {
			t.Fatal(signal.Format(&x.Head))
		}
		g.txConf(tc, tx.num, 1)
		g.over(tx, 0)
		g.atRest(tx)
	}
}

// An operation's failure may be on its way while the program gives its transaction up.
func TestAFailureThatCrossesARollbackIsStale(t *testing.T) {
	g := newRig(t, even)
	a, b := row{a: 1}, row{a: 2}
	tx := g.begin()
	g.row.Read(tx, ptr(&a), signal.OpReadShared).IgnoreError()
	g.row.Read(tx, ptr(&b), signal.OpReadShared).IgnoreError()
	tx.Rollback()
	all := g.sent()
	g.keyRef(key(all[0]), all[0].To, 626)
	g.txRef(all[0].To, tx.num, 0, signal.NoRef)
	g.over(tx, 0)
	if g.s.Counters.Malformed != 0 || g.s.Counters.Stale != 1 {
		t.Fatalf("%d malformed, %d stale", g.s.Counters.Malformed, g.s.Counters.Stale)
	}
	g.atRest(tx)
}

// A session that takes up the number of another one numbers its commits above those of that one: to an ldm that still
// hears of the old one they are not of the past.
func TestASessionUnderAnOldNumberGoesOnInTheCommits(t *testing.T) {
	g := newRig(t, even)
	s := NewSession(g.env, Config{Instance: 9, MaxTransactions: 8, MaxOperations: 32, FirstTx: 4711, Done: func(*Tx) {}})
	if got := s.nextSeq(); got != 4712 || s.Unheard() != 1 {
		t.Fatalf("the first commit has number %d, and %d are not heard", got, s.Unheard())
	}
	s.hear(4712)
	if s.ack != 4712 || s.Unheard() != 0 {
		t.Fatalf("acknowledged up to %d, %d are not heard", s.ack, s.Unheard())
	}
}
