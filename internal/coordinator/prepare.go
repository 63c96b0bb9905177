package coordinator

// Prepare: the coordinator sends each operation to the primary of its row as soon as it comes; the primary locks
// the row, keeps the change beside it and passes it down the chain; the tail answers.
//
//	client --KeyReq--> tc --PrepareReq--> primary --PrepareReq--> backup
//	tc <--PrepareConf-- backup            primary --ReadConf--> client   (reads end at the primary)
//	tc <--WaitRep-- primary               while the row is locked by others
//	tc <--PrepareRef-- primary or backup  it failed there
//	client <--TxConf-- tc                 when the batch asked for an execute and all its operations are answered

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
)

func (b *Block) onKeyReq(r *signal.KeyReq) {
	i, t := b.find(r.From, r.Tx)
	if t == nil {
		if r.Flags&signal.FlagStart == 0 {
			b.Stale++ // its transaction was aborted, and the TxRef is on its way
			return
		}
		if i, t = b.start(r); t == nil {
			return
		}
	} else if r.Flags&signal.FlagStart != 0 {
		if t.state == active {
			b.abort(i, t, codeProtocol, r.Ref)
		}
		return
	}
	if t.state != active || t.want != wantNothing {
		b.Stale++
		return
	}
	t.lastActive = b.env.Now()
	if !b.prepare(i, t, r) {
		return
	}
	if r.Flags&signal.FlagExecute != 0 {
		b.wants(i, t, r.Flags&signal.FlagCommit != 0, r.Seq)
	}
}

// start opens a transaction for its first operation, or refuses it.
func (b *Block) start(r *signal.KeyReq) (uint32, *transaction) {
	code := uint32(0)
	switch {
	case b.stopping:
		code = codeStopping
	case b.single.node != 0 && b.single.node != r.From.Node():
		code = codeSingle
	case b.clients[r.From.Node()].failing:
		b.Stale++
		return pool.None, nil
	case !b.acks.Admit(r.From, r.Ack):
		code = codeSessions
	default:
		if i, t := b.begin(r.From, r.Tx); t != nil {
			return i, t
		}
		code = codeNoTransactions
	}
	b.txRef(r.From, r.Tx, code, r.Ref)
	return pool.None, nil
}

// prepare makes the operation's record and sends it to the primary. False: the transaction is not active any more.
func (b *Block) prepare(i uint32, t *transaction, r *signal.KeyReq) bool {
	code := b.usable(r.Table, r.Version, r.Frag)
	write := !signal.IsRead(r.Op)
	if code == 0 && write && b.cfg.MaxWrites > 0 && t.writes >= uint32(b.cfg.MaxWrites) {
		code = codeTooMany
	}
	if code != 0 {
		return b.failed(i, t, r.Ref, r.Flags, code)
	}
	oi, o := b.ops.Seize()
	if o == nil {
		b.abort(i, t, codeNoOperations, r.Ref)
		return false
	}
	b.seq++
	primary := b.tables[r.Table].primary[r.Frag]
	flags := r.Flags & (signal.FlagAll | signal.FlagNoWait)
	if t.running == 0 {
		flags |= signal.FlagStart
	}
	*o = operation{tx: i, next: pool.None, ref: r.Ref, primary: primary, first: signal.NoRef, lastRef: signal.NoRef,
		seq: b.seq, table: r.Table, frag: r.Frag, op: r.Op, flags: r.Flags}
	if write {
		t.writes++
		if t.bits&txMarked == 0 {
			o.bits = opMarker
			flags |= signal.FlagMarker
		}
	}
	if t.tail == pool.None {
		t.head = oi
	} else {
		b.ops.At(t.tail).next = oi
	}
	t.tail = oi
	t.running++
	t.batch++
	b.tables[r.Table].users++

	body := signal.Pad(uint32(r.KeyLen)) + signal.Pad(uint32(r.DataLen))
	s := (*signal.PrepareReq)(b.env.Put(primary, b.self, signal.NumPrepareReq, signal.PrepareReqSize+body))
	s.OpRef, s.TcRef, s.Tc, s.Client, s.Ref, s.Tx, s.Seq, s.Ack = oi, oi, b.self, r.From, r.Ref, r.Tx, o.seq, r.Ack
	s.Table, s.Version, s.Frag, s.Op, s.Flags = r.Table, r.Version, r.Frag, r.Op, flags
	s.RowID, s.First, s.KeyLen, s.DataLen = signal.NoRef, signal.NoRef, r.KeyLen, r.DataLen
	s.View, s.Down = 0, [signal.MaxReplicas - 1]signal.Addr{}
	copy(unsafe.Slice((*byte)(s.Key()), body), unsafe.Slice((*byte)(r.Key()), body))
	return true
}

// failed deals with an operation that left nothing anywhere. True: the transaction goes on.
func (b *Block) failed(i uint32, t *transaction, ref uint32, flags uint8, code uint32) bool {
	if flags&signal.FlagIgnoreError == 0 || !ignorable(code) {
		b.abort(i, t, code, ref)
		return false
	}
	k := kernel.Send[signal.KeyRef](b.env, t.client, b.self, signal.NumKeyRef)
	k.Ref, k.Tx, k.Code = ref, t.num, code
	return true
}

// ignorable tells which failures a client may ignore: those of one row, which say nothing about the health of
// the transaction.
func ignorable(code uint32) bool {
	switch code {
	case 626, 630, 635, 839, 840, 893:
		return true
	}
	return false
}

// wants remembers what the client waits for, and does it if nothing is under way.
func (b *Block) wants(i uint32, t *transaction, commit bool, seq uint32) {
	t.want = wantExecute
	if commit {
		t.want, t.seq = wantCommit, seq
		if seq != 0 && !b.acks.InWindow(t.client, seq) {
			b.abort(i, t, codeProtocol, signal.NoRef)
			return
		}
	}
	b.settle(i, t)
}

// settle answers an execute, or commits, once no operation is running.
func (b *Block) settle(i uint32, t *transaction) {
	if t.state != active || t.running != 0 {
		return
	}
	switch t.want {
	case wantExecute:
		t.want, t.lastActive = wantNothing, b.env.Now() // the client's turn begins now, however long it had to wait
		b.txConf(t, false)
	case wantCommit:
		b.commit(i, t)
	}
}

func (b *Block) txConf(t *transaction, committed bool) {
	c := kernel.Send[signal.TxConf](b.env, t.client, b.self, signal.NumTxConf)
	c.Tx, c.Batch, c.Committed, c.GCI = t.num, t.batch, 0, t.gci
	if committed {
		c.Committed = 1
	}
	t.batch = 0
}

func (b *Block) txRef(client signal.Addr, num, code, ref uint32) {
	c := kernel.Send[signal.TxRef](b.env, client, b.self, signal.NumTxRef)
	c.Tx, c.Code, c.Ref = num, code, ref
}

func (b *Block) onTxReq(r *signal.TxReq) {
	i, t := b.find(r.From, r.Tx)
	switch {
	case t == nil && r.Action == signal.TxRollback:
		b.txRef(r.From, r.Tx, 0, signal.NoRef) // nothing to roll back is rolled back
		return
	case t != nil && r.Action == signal.TxRollback && (t.state == active || t.state == held):
		// Whatever the client waited for: it does not want to any more.
	case t == nil || t.state != active || t.want != wantNothing:
		b.Stale++
		return
	}
	t.lastActive = b.env.Now()
	b.acks.Ack(r.From, r.Ack)
	switch r.Action {
	case signal.TxExecute:
		b.wants(i, t, false, 0)
	case signal.TxCommit:
		b.wants(i, t, true, r.Seq)
	case signal.TxRollback:
		b.abort(i, t, 0, signal.NoRef)
	}
}

// prepareAnswered finds the operation that an ldm's answer to its prepare is about, nil if it does not wait for one any
// more: the answer crossed our AbortReq, or a takeover was faster.
func (b *Block) prepareAnswered(h *signal.Head, ref, seq uint32) *operation {
	o := b.ops.Find(ref)
	switch {
	case o == nil || o.seq != seq || o.bits&opDirect != 0:
		b.late(h, ref)
		return nil
	case o.state == undoing:
		b.Stale++
		return nil
	}
	invariant.That(o.state == running || o.state == waiting, "an operation is prepared once")
	return o
}

func (b *Block) onPrepareConf(r *signal.PrepareConf) {
	o := b.prepareAnswered(&r.Head, r.TcRef, r.OpSeq)
	if o == nil {
		return
	}
	i := o.tx
	t := b.txs.At(i)
	if o.first = r.First; o.bits&opTouched == 0 {
		o.last, o.lastRef = r.From, r.Tail
	}
	if r.First == signal.NoRef {
		o.state = done
	} else {
		o.state = prepared
		if o.bits&opMarker != 0 {
			t.bits |= txMarked
		}
	}
	if t.state == aborting {
		b.undoAnswered(i, t, o, r.TcRef)
		return
	}
	t.running--
	b.settle(i, t)
}

func (b *Block) onWaitRep(r *signal.WaitRep) {
	o := b.ops.Find(r.TcRef)
	if o == nil || o.state != running || o.seq != r.Seq {
		b.Stale++ // overtaken by what the tail said, or by the end of its transaction
		return
	}
	i := o.tx
	t := b.txs.At(i)
	o.state, o.first = waiting, r.First
	if t.state == aborting && o.bits&opTouched == 0 {
		b.undo(t, o, r.TcRef)
	}
}

func (b *Block) onPrepareRef(r *signal.PrepareRef) {
	o := b.prepareAnswered(&r.Head, r.TcRef, r.OpSeq) // nil: an AbortReq that is on its way finds nothing, and is answered all the same
	if o == nil {
		return
	}
	i := o.tx
	t := b.txs.At(i)
	o.first = r.First
	left := r.First != signal.NoRef // a backup refused: the replicas before it hold it
	if left {
		o.state = prepared
	} else {
		o.state = done
	}
	if t.state == aborting {
		b.undoAnswered(i, t, o, r.TcRef)
		return
	}
	t.running--
	if left {
		b.abort(i, t, r.Code, o.ref)
		return
	}
	if b.failed(i, t, o.ref, o.flags, r.Code) {
		b.settle(i, t)
	}
}
