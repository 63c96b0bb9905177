package ldm

// Prepare: an operation of a coordinator's transaction, at the primary and at the backups.
//
//	tc --PrepareReq--> primary --PrepareReq--> backup … tail --PrepareConf--> tc
//	primary --ReadConf--> client            a read ends at the primary, which then confirms
//	tc <--WaitRep-- primary                 the row is locked by others
//	tc <--PrepareRef-- primary, backup      it failed

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/rowhash"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
)

func keyRequest(r *signal.KeyReq) request {
	return request{r.Key(), r.Data(), uint32(r.KeyLen), uint32(r.DataLen)}
}

func prepareRequest(r *signal.PrepareReq) request {
	return request{r.Key(), r.Data(), uint32(r.KeyLen), uint32(r.DataLen)}
}

// check examines what a client sent: key image and data section.
func (f *fragment) check(op, flags uint8, q *request) uint32 {
	if code := f.layout.CheckKey(q.key, q.keyLen); code != 0 {
		return code
	}
	all := flags&signal.FlagAll != 0
	switch {
	case signal.IsRead(op):
		if all && q.dataLen != 0 {
			return codeProtocol
		} else if !all {
			return f.layout.CheckMask(q.data, q.dataLen)
		}
		return 0
	case op == signal.OpDelete:
		if q.dataLen != 0 {
			return codeProtocol
		}
		return 0
	}
	_, code := f.layout.CheckWrite(q.data, q.dataLen, all)
	return code
}

func (b *Block) onPrepareReq(r *signal.PrepareReq) {
	if r.From.Block() == signal.BlockLDM {
		b.prepareAtBackup(r)
		return
	}
	f, code := b.lookup(r.Table, r.Version, r.Frag, r.Op != signal.OpReadCommitted)
	q := prepareRequest(r)
	if code == 0 {
		code = f.check(r.Op, r.Flags, &q)
	}
	if code == 0 && r.Op == signal.OpReadCommitted {
		if code = b.readCommitted(f, r.Flags, &q, r.Tc, r.Client, r.Ref, r.Tx); code == 0 {
			c := kernel.Send[signal.PrepareConf](b.env, r.Tc, b.self, signal.NumPrepareConf)
			c.TcRef, c.OpSeq, c.First, c.Tail = r.TcRef, r.Seq, signal.NoRef, signal.NoRef
			return
		}
	}
	if code != 0 {
		b.prepareRef(r.Tc, r.TcRef, r.Seq, code, signal.NoRef)
		return
	}
	if !b.admitMarker(r) {
		b.prepareRef(r.Tc, r.TcRef, r.Seq, codeSessions, signal.NoRef)
		return
	}
	i, o := b.seize(f)
	if o == nil {
		b.prepareRef(r.Tc, r.TcRef, r.Seq, codeNoOperations, signal.NoRef)
		return
	}
	o.client, o.tx, o.ref, o.seq, o.tc, o.tcRef = r.Client, r.Tx, r.Ref, r.Seq, r.Tc, r.TcRef
	o.op, o.flags = r.Op, r.Flags
	o.write, o.exclusive = !signal.IsRead(r.Op), r.Op != signal.OpReadShared
	b.execute(i, o, q, &r.Head, false)
}

// admitMarker sees to it that the outcome can be kept of a transaction that this operation is the marker of.
func (b *Block) admitMarker(r *signal.PrepareReq) bool {
	return r.Flags&signal.FlagMarker == 0 || b.gone[r.Client.Node()] || b.outcomes.Admit(r.Client, r.Ack)
}

// execute runs an operation at the primary that may have to wait for its row: it looks the row up, locks it, makes
// the pending change and passes it on. h is the request, kept if the operation must wait.
func (b *Block) execute(i uint32, o *operation, q request, h *signal.Head, resumed bool) {
	f := o.frag
	hash := rowhash.Hash(q.key, q.keyLen)
	r, id := f.rows.Find(hash, q.key, q.keyLen)
	if r == nil {
		if o.op != signal.OpInsert && o.op != signal.OpWrite {
			b.fail(i, o, codeNoRow)
			return
		}
		r, id, code := f.rows.Insert(hash, q.key, q.keyLen, store.LockInsert)
		if code != 0 {
			b.fail(i, o, code)
			return
		}
		o.id = id
		b.hold(r, i, o)
		if code := b.fillSlot(o, r, &q); code != 0 {
			b.failHeld(i, o, r, code)
			return
		}
		b.executed(i, o, r, &q)
		return
	}
	o.id = id
	if !b.grantable(r, o, resumed) {
		b.wait(i, o, r, h)
		return
	}
	if r.Lock == 0 && o.op == signal.OpInsert { // the commonest failure, without a lock taken
		b.fail(i, o, codeExists)
		return
	}
	v := b.version(f, r, o)
	b.hold(r, i, o)
	code := uint32(0)
	switch {
	case o.op == signal.OpInsert && v.exists:
		code = codeExists
	case o.op != signal.OpInsert && o.op != signal.OpWrite && !v.exists:
		code = codeNoRow
	case o.op == signal.OpDelete:
		o.exists = false
	case o.write:
		code = b.pend(o, r, v, &q)
	default:
		o.exists = true
		b.readConf(f, v, o.flags, &q, o.client, o.ref, o.tx)
	}
	if code != 0 {
		b.failHeld(i, o, r, code)
		return
	}
	b.executed(i, o, r, &q)
}

// wait puts an operation into the row's queue, unless it does not want to wait or there is no room to keep it.
func (b *Block) wait(i uint32, o *operation, r *store.RowHead, h *signal.Head) {
	switch {
	case o.flags&signal.FlagNoWait != 0:
		b.fail(i, o, codeLocked)
		return
	case o.stash == nil && !b.keep(o, h):
		b.fail(i, o, codeNoOperations)
		return
	}
	b.enqueue(r, i, o)
	if !o.oneShot() && !o.waited {
		o.waited = true
		w := kernel.Send[signal.WaitRep](b.env, o.tc, b.self, signal.NumWaitRep)
		w.TcRef, w.First, w.Seq = o.tcRef, i, o.seq
	}
}

// failHeld ends an operation that holds its row already.
func (b *Block) failHeld(i uint32, o *operation, r *store.RowHead, code uint32) {
	f, id := o.frag, o.id
	b.unlink(r, o)
	o.state = executing
	b.fail(i, o, code)
	b.release(f, r, id, false)
}

// executed passes a change on to the next replica; without one it is prepared, or for a one-shot at its commit point.
func (b *Block) executed(i uint32, o *operation, r *store.RowHead, q *request) {
	o.first, o.view = i, b.view.Number
	if o.write {
		if o.rest = o.frag.down; o.up != pool.None {
			b.follow(o)
		}
	}
	if o.oneShot() {
		b.executedOneShot(i, o, r, q)
		return
	}
	if !o.tail() {
		b.passOn(i, o, signal.NumPrepareReq, q)
	} else {
		c := kernel.Send[signal.PrepareConf](b.env, o.tc, b.self, signal.NumPrepareConf)
		c.TcRef, c.OpSeq, c.First, c.Tail = o.tcRef, o.seq, i, i
	}
	b.dropStash(o)
}

// follow lets a change go the way of what its transaction has changed on the row before, if that came through here too:
// the order of the replicas may be another one by now, and on two ways the later change could arrive first.
func (b *Block) follow(o *operation) {
	for i := o.up; i != pool.None; {
		x := b.ops.At(i)
		if x.write && x.prev == 0 {
			o.rest, o.view = x.rest, max(x.view, o.frag.touched)
			return
		}
		i = x.up
	}
}

// passOn sends a change down the chain.
func (b *Block) passOn(i uint32, o *operation, num uint16, q *request) {
	f := o.frag
	key, data := signal.Pad(q.keyLen), signal.Pad(q.dataLen)
	s := (*signal.PrepareReq)(b.env.Put(o.rest[0], b.self, num, signal.PrepareReqSize+key+data))
	s.OpRef, s.TcRef, s.Tc, s.Client, s.Ref, s.Tx, s.Seq, s.Ack = i, o.tcRef, o.tc, o.client, o.ref, o.tx, o.seq, 0
	s.Table, s.Version, s.Frag, s.Op, s.Flags = uint16(f.table.id), f.table.version, uint16(f.number), o.op, o.flags
	s.RowID, s.First, s.KeyLen, s.DataLen = o.id, o.first, uint16(q.keyLen), uint16(q.dataLen)
	s.View, s.Down = o.view, below{o.rest[1], o.rest[2]}
	copy(unsafe.Slice((*byte)(s.Key()), key), unsafe.Slice((*byte)(q.key), key))
	copy(unsafe.Slice((*byte)(s.Data()), data), unsafe.Slice((*byte)(q.data), data))
}

// prepareAtBackup does what the primary has done, at the same row id.
func (b *Block) prepareAtBackup(r *signal.PrepareReq) {
	f := b.known(r.Table, r.Frag)
	if b.stale(f, r) {
		b.env.Mark(kernel.MarkLatePrepareDropped)
		b.Stale++
		return
	}
	f.passed = f.passed || r.View > b.view.Number
	if !b.admitMarker(r) {
		b.prepareRef(r.Tc, r.TcRef, r.Seq, codeSessions, r.First)
		return
	}
	i, o := b.seize(f)
	if o == nil {
		b.prepareRef(r.Tc, r.TcRef, r.Seq, codeNoOperations, r.First)
		return
	}
	o.client, o.tx, o.ref, o.seq, o.tc, o.tcRef = r.Client, r.Tx, r.Ref, r.Seq, r.Tc, r.TcRef
	o.op, o.flags, o.first, o.prev, o.prevOp, o.id = r.Op, r.Flags, r.First, r.From, r.OpRef, r.RowID
	o.write, o.exclusive, o.view, o.rest = true, true, r.View, r.Down
	b.prepareLink(i, o, r, false)
}

// prepareLink goes on with an operation below the primary: it is new, or comes from a row's queue.
func (b *Block) prepareLink(i uint32, o *operation, r *signal.PrepareReq, resumed bool) {
	q := prepareRequest(r)
	if !b.applyAtBackup(i, o, &q, &r.Head, resumed) {
		return
	}
	if !o.tail() {
		b.passOn(i, o, signal.NumPrepareReq, &q)
	} else {
		c := kernel.Send[signal.PrepareConf](b.env, o.tc, b.self, signal.NumPrepareConf)
		c.TcRef, c.OpSeq, c.First, c.Tail = o.tcRef, o.seq, o.first, i
	}
	b.dropStash(o)
}

// applyAtBackup locks the row at a backup and makes the pending change; h is the request. False: the operation has to
// wait, or it failed, and that was said.
func (b *Block) applyAtBackup(i uint32, o *operation, q *request, h *signal.Head, resumed bool) bool {
	f := o.frag
	r, ok := f.rows.CheckedRow(o.id)
	if !ok && o.op != signal.OpInsert && o.op != signal.OpWrite {
		if f.copying() {
			b.haunt(i, o)
			return true
		}
		// Its transaction inserted the row, and that was refused here: the coordinator knows by now, or will before this.
		invariant.That(!o.oneShot(), "a backup has every committed row that its primary has")
		b.fail(i, o, codeNoOperations)
		return false
	}
	if !ok {
		r, code := f.rows.InsertAt(o.id, rowhash.Hash(q.key, q.keyLen), q.key, q.keyLen, store.LockInsert)
		if code != 0 {
			b.fail(i, o, code)
			return false
		}
		b.hold(r, i, o)
		if code := b.fillSlot(o, r, q); code != 0 {
			b.failHeld(i, o, r, code)
			return false
		}
		return true
	}
	if !b.grantable(r, o, resumed) {
		b.queue(i, o, r, h)
		return false
	}
	key, n := f.rows.Key(r)
	same := sameBytes(key, n, q.key, q.keyLen)
	if !same || r.Lock == 0 && o.op == signal.OpInsert {
		// An insert of a coordinator's may come where there is a row: behind a delete by its transaction that is undone here
		// already, by a direct step, or by one that came along the chain of an older view.
		invariant.That(f.primary || o.tc != 0 && (same || !b.inOrder(o)), "a row id means the same row on every replica")
		b.fail(i, o, codeNotPrimary)
		return false
	}
	v := b.version(f, r, o)
	b.hold(r, i, o)
	if o.op == signal.OpDelete {
		o.exists = false
		return true
	}
	if code := b.pend(o, r, v, q); code != 0 {
		b.failHeld(i, o, r, code)
		return false
	}
	return true
}

// inOrder tells whether an operation comes in the order in which the primary lets operations through: all come the same
// way. Else it may overtake the AbortReq of one before it, or that one itself.
func (b *Block) inOrder(o *operation) bool {
	return o.view > o.frag.arrangedIn && o.view <= b.view.Number
}

// queue lets an operation below the primary wait behind what has come there before in another order of the replicas: of an
// older view, or before one was taken in to copy. Who is primary himself by now has given the row or slot to somebody else,
// and refuses.
func (b *Block) queue(i uint32, o *operation, r *store.RowHead, h *signal.Head) {
	switch {
	case o.frag.primary:
		b.env.Mark(kernel.MarkLateLinkRefused)
		b.fail(i, o, codeNotPrimary)
		return
	case o.stash == nil && !b.keep(o, h):
		b.fail(i, o, codeNoOperations)
		return
	}
	last := pool.None
	for k := top(r); k != pool.None; k = b.ops.At(k).down {
		if x := b.ops.At(k); x.state != waiting && b.inOrder(x) && b.inOrder(o) {
			invariant.Failf("operation %d of view %d is on the row of operation %d of view %d, below the primary", k, x.view, i, o.view)
		}
		last = k
	}
	b.env.Mark(kernel.MarkQueuedBelow)
	o.state = waiting
	b.link(r, i, o, last, pool.None)
	b.queued++
}

func sameBytes(a unsafe.Pointer, n uint32, c unsafe.Pointer, m uint32) bool {
	return n == m && string(unsafe.Slice((*byte)(a), n)) == string(unsafe.Slice((*byte)(c), n))
}
