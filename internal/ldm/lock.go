package ldm

// Row locks. The lock word of a row is the index+1 of the first operation on it, with store.LockInsert while the
// row's insert has not committed, and lockLater while its copy waits. The operations of a row form a list: first those that hold, in the order of their
// execution, then those that wait, in the order of their coming (an upgrade of a lock that is held waits in front).

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
)

// lockLater, in a lock word: a replica that copies the fragment waits for this row; it is sent when no write holds it any
// more, before anybody else gets it.
const lockLater = 1 << 30

const lockMask = lockLater - 1

// top is the first operation of a row, or None.
func top(r *store.RowHead) uint32 { return r.Lock&lockMask - 1 }

func setTop(r *store.RowHead, i uint32) { r.Lock = r.Lock&^lockMask | (i+1)&lockMask }

// settled tells whether a row's state is one that stays until somebody else changes it: no transaction that has changed
// it, or is about to, holds it.
func (b *Block) settled(r *store.RowHead) bool {
	for i := top(r); i != pool.None; {
		x := b.ops.At(i)
		if x.state == waiting {
			break
		}
		if x.write || x.hidden {
			return false
		}
		i = x.down
	}
	return r.Lock&store.LockInsert == 0
}

// grantable tells whether an operation may hold the row now. resumed: it stands first in the queue itself.
func (b *Block) grantable(r *store.RowHead, o *operation, resumed bool) bool {
	if r.Lock&lockMask == 0 {
		return true
	}
	own, queue := false, false
	for i := top(r); i != pool.None; {
		x := b.ops.At(i)
		if x.state == waiting { // and so do all behind it
			if own && !resumed && x.same(o) {
				return false // what its transaction asked for before comes first
			}
			queue = true
			break
		}
		if x.same(o) {
			own = true
		} else if o.exclusive || x.exclusive {
			return false
		}
		i = x.down
	}
	return own || resumed || !queue
}

// hold puts an operation behind the last holder of the row.
func (b *Block) hold(r *store.RowHead, i uint32, o *operation) {
	o.state = holding
	last, next := pool.None, top(r)
	for next != pool.None {
		x := b.ops.At(next)
		if x.state == waiting {
			break
		}
		last, next = next, x.down
	}
	b.link(r, i, o, last, next)
}

// enqueue puts an operation into the row's queue: at its end, or in front when its transaction holds the row already. In
// any case it comes behind what its own transaction asked for before, and before whoever came after that.
func (b *Block) enqueue(r *store.RowHead, i uint32, o *operation) {
	last, next := pool.None, top(r)
	upgrade := false
	for next != pool.None {
		x := b.ops.At(next)
		if x.state == waiting {
			break
		}
		upgrade = upgrade || x.same(o)
		last, next = next, x.down
	}
	switch {
	case next == pool.None:
	case upgrade:
		for next != pool.None && b.ops.At(next).same(o) {
			last, next = next, b.ops.At(next).down
		}
	default:
		if last = pool.None; o.flags&signal.FlagStart == 0 && !o.oneShot() {
			last = b.lastOfOwn(next, o)
		}
		if last == pool.None {
			last = b.ops.At(top(r)).rear
		}
		next = b.ops.At(last).down
	}
	o.state = waiting
	b.link(r, i, o, last, next)
	b.waiters.add(b, i, o)
}

// lastOfOwn is the last operation of a queue that is of o's transaction, or None.
func (b *Block) lastOfOwn(first uint32, o *operation) uint32 {
	last := pool.None
	for i := first; i != pool.None; {
		x := b.ops.At(i)
		if x.same(o) {
			last = i
		}
		i = x.down
	}
	return last
}

func (b *Block) link(r *store.RowHead, i uint32, o *operation, up, down uint32) {
	o.up, o.down = up, down
	switch {
	case up == pool.None && down == pool.None:
		o.rear = i
	case up == pool.None:
		o.rear = b.ops.At(down).rear
	case down == pool.None:
		b.ops.At(top(r)).rear = i
	}
	if up == pool.None {
		setTop(r, i)
	} else {
		b.ops.At(up).down = i
	}
	if down != pool.None {
		b.ops.At(down).up = i
	}
}

// unlink takes an operation off its row; a ghost, which has none (r is nil), out of the ghosts.
func (b *Block) unlink(r *store.RowHead, o *operation) {
	if r == nil {
		b.unhaunt(o)
		return
	}
	if o.up == pool.None {
		setTop(r, o.down)
	} else {
		b.ops.At(o.up).down = o.down
	}
	switch {
	case o.down != pool.None:
		x := b.ops.At(o.down)
		if x.up = o.up; o.up == pool.None {
			x.rear = o.rear
		}
	case o.up != pool.None:
		b.ops.At(top(r)).rear = o.up
	}
	o.up, o.down = pool.None, pool.None
}

// release lets a row go after an operation has left it: if the row has no holder any more and does not exist, it is
// removed; then whoever may go on, goes on.
func (b *Block) release(f *fragment, r *store.RowHead, id store.RowID, hidden bool) {
	if r == nil {
		return // a ghost's
	}
	first := top(r)
	if first != pool.None && b.ops.At(first).state != waiting {
		// The row is still held. Its holders may all be readers now, and a reader may be first in the queue.
		if r.Lock&lockLater != 0 && b.settled(r) {
			b.sendLater(f, r, id)
		}
		if !hidden {
			b.grant(f, r, id)
		}
		return
	}
	later := r.Lock&lockLater != 0
	gone := hidden || r.Lock&store.LockInsert != 0
	if !gone {
		if later {
			b.sendLater(f, r, id)
		}
		if first != pool.None {
			b.grant(f, r, id)
		}
		return
	}
	// Detach the queue, take the row away, then let each of the queue look for its row again.
	r.Lock = 0
	gci := r.GCI()
	if hidden {
		f.rows.FreeSlot(id, gci)
	} else {
		f.rows.Remove(f.rows.HashRow(r), id, gci)
	}
	if later {
		b.sendLaterFree(f, id, gci)
	}
	for i := first; i != pool.None; {
		o := b.ops.At(i)
		next := o.down
		o.up, o.down = pool.None, pool.None
		b.unlist(i, o)
		if next != pool.None {
			b.ops.At(next).up = pool.None
		}
		b.resume(i, o)
		i = next
	}
}

// grant resumes waiting operations from the front of the queue as far as they may go on.
func (b *Block) grant(f *fragment, r *store.RowHead, id store.RowID) {
	if b.waiters.head == pool.None && b.queued == 0 || b.granting == r {
		return // nobody waits for any row; or an operation that was resumed below calls: the loop there goes on
	}
	before := b.granting
	b.granting = r
	defer func() { b.granting = before }()
	for {
		i := b.firstWaiting(r)
		if i == pool.None {
			return
		}
		o := b.ops.At(i)
		if !b.grantable(r, o, true) {
			return
		}
		b.unlink(r, o)
		b.unlist(i, o)
		b.resume(i, o)
		// What was resumed may have removed the row, and another may have taken its slot: then it has no queue of ours.
		if x, ok := f.rows.CheckedRow(id); !ok || x != r {
			return
		}
	}
}

func (b *Block) firstWaiting(r *store.RowHead) uint32 {
	for i := top(r); i != pool.None; {
		o := b.ops.At(i)
		if o.state == waiting {
			return i
		}
		i = o.down
	}
	return pool.None
}

// resume executes a kept request again.
func (b *Block) resume(i uint32, o *operation) {
	h := (*signal.Head)(o.stash)
	o.state = executing
	switch {
	case o.prev == 0 && !o.frag.primary:
		b.fail(i, o, codeNotPrimary) // a view that lost members moved the primary too
	case h.Num == signal.NumChainReq:
		b.chainLink(i, o, signal.As[signal.PrepareReq](h), true)
	case o.prev != 0:
		b.prepareLink(i, o, signal.As[signal.PrepareReq](h), true)
	case h.Num == signal.NumPrepareReq:
		b.execute(i, o, prepareRequest(signal.As[signal.PrepareReq](h)), h, true)
	default:
		b.execute(i, o, keyRequest(signal.As[signal.KeyReq](h)), h, true)
	}
}

// unlist takes a waiting operation out of the list of those that wait at their primary.
func (b *Block) unlist(i uint32, o *operation) {
	if o.prev != 0 {
		b.queued--
		return
	}
	b.waiters.remove(b, i, o)
}

// waitList is every operation that waits at its primary, longest waiting first: all wait equally long at most.
type waitList struct {
	head, tail uint32
	n          int
	ticking    bool
	probing    bool // a tick for probes is under way
}

func (w *waitList) init() { w.head, w.tail = pool.None, pool.None }

func (w *waitList) add(b *Block, i uint32, o *operation) {
	// An operation that waits for the second time keeps its time: its place is before later ones.
	after := w.tail
	for after != pool.None && b.ops.At(after).since > o.since {
		after = b.ops.At(after).wPrev
	}
	o.wPrev = after
	if after == pool.None {
		o.wNext, w.head = w.head, i
	} else {
		p := b.ops.At(after)
		o.wNext, p.wNext = p.wNext, i
	}
	if o.wNext == pool.None {
		w.tail = i
	} else {
		b.ops.At(o.wNext).wPrev = i
	}
	w.n++
	if !w.ticking {
		w.ticking = true
		b.env.Tick(b.self, max(o.since+b.cfg.LockTimeout-b.env.Now(), 1), tickLocks, 0, 0)
	}
	b.probeSoon(o)
}

func (w *waitList) remove(b *Block, _ uint32, o *operation) {
	if o.wPrev == pool.None {
		w.head = o.wNext
	} else {
		b.ops.At(o.wPrev).wNext = o.wNext
	}
	if o.wNext == pool.None {
		w.tail = o.wPrev
	} else {
		b.ops.At(o.wNext).wPrev = o.wPrev
	}
	o.wNext, o.wPrev = pool.None, pool.None
	w.n--
}

// Kinds of timers.
const (
	tickLocks = 1 + iota // the longest wait for a lock may be over
	tickProbe            // a waiting operation is to look for a deadlock
	tickCopy             // a copy that was refused is to be asked for again
)

func (b *Block) onTick(r *signal.TickOrd) {
	switch r.Kind {
	case tickLocks:
		b.onLockTick()
	case tickProbe:
		b.onProbeTick()
	case tickCopy:
		b.onCopyTick()
	default:
		invariant.Failf("an ldm has no timer of kind %d", r.Kind)
	}
}

func (b *Block) onLockTick() {
	w := &b.waiters
	w.ticking = false
	for w.head != pool.None {
		i := w.head
		o := b.ops.At(i)
		if left := o.since + b.cfg.LockTimeout - b.env.Now(); left > 0 {
			w.ticking = true
			// At most every 10 ms: a later deadline may fall a little behind.
			b.env.Tick(b.self, max(left, 10_000_000), tickLocks, 0, 0)
			return
		}
		b.reportTimeout(o)
		b.giveUp(i, o, codeLockTimeout)
	}
}

// giveUp ends a waiting operation with an error.
func (b *Block) giveUp(i uint32, o *operation, code uint32) {
	f, id := o.frag, o.id
	r := f.rows.Row(id)
	b.leaveQueue(i, o)
	b.fail(i, o, code)
	b.release(f, r, id, false)
}

// leaveQueue takes a waiting operation off its row.
func (b *Block) leaveQueue(i uint32, o *operation) {
	invariant.That(o.state == waiting, "who leaves the queue has waited")
	b.unlink(o.frag.rows.Row(o.id), o)
	b.unlist(i, o)
	o.state = executing
}

// fail tells whoever asked that an operation failed and left nothing here.
func (b *Block) fail(i uint32, o *operation, code uint32) {
	if o.oneShot() {
		switch {
		case o.prev == 0:
			b.keyRef(o.client, o.ref, o.tx, code)
		case !o.cut:
			b.chainRef(o.prev, o.prevOp, code)
		}
	} else {
		b.prepareRef(o.tc, o.tcRef, o.seq, code, o.first)
	}
	b.free(i, o)
}

func (b *Block) keyRef(to signal.Addr, ref, tx, code uint32) {
	k := kernel.Send[signal.KeyRef](b.env, to, b.self, signal.NumKeyRef)
	k.Ref, k.Tx, k.Code = ref, tx, code
}

func (b *Block) prepareRef(to signal.Addr, tcRef, seq, code, first uint32) {
	p := kernel.Send[signal.PrepareRef](b.env, to, b.self, signal.NumPrepareRef)
	p.TcRef, p.OpSeq, p.Code, p.First = tcRef, seq, code, first
}

func (b *Block) chainRef(to signal.Addr, op, code uint32) {
	c := kernel.Send[signal.ChainRef](b.env, to, b.self, signal.NumChainRef)
	c.OpRef, c.Code = op, code
}
