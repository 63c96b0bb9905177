package ldm

// The chain: a transaction of one write on a fragment with two replicas or more. The primary locks the row and keeps
// the change pending; each further replica does the same; the tail is the commit point: it draws the epoch and
// commits in one visit, and the answer commits every replica on its way up.
//
//	client --WriteReq--> primary --ChainReq--> … tail
//	client <--WriteConf-- primary <--ChainConf-- … tail
//	          primary <--ChainRef-- …              a replica cannot: everybody undoes, the client gets a KeyRef

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/rowhash"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
)

func (b *Block) onChainReq(r *signal.PrepareReq) {
	f := b.known(r.Table, r.Frag)
	rest, view := r.Down, r.View
	if r.View != b.view.Number || r.Flags&signal.FlagAgain != 0 {
		if b.oddChainReq(f, r) {
			return
		}
		if rest = b.below(r); rest != r.Down { // it may come behind what the one before it on the row has left there in the old view
			view = b.view.Number
		}
	}
	if !b.gone[r.Client.Node()] && !b.outcomes.Admit(r.Client, r.Ack) {
		b.chainRef(r.From, r.OpRef, codeSessions)
		return
	}
	row, ok := f.rows.CheckedRow(r.RowID)
	if rest[0] == 0 && b.epoch.Open() && (!ok || row.Lock == 0) {
		b.chainTail(f, r, row, ok)
		return
	}
	i, o := b.seize(f)
	if o == nil {
		b.chainRef(r.From, r.OpRef, codeNoOperations)
		return
	}
	o.client, o.tx, o.ref, o.seq = r.Client, r.Tx, r.Ref, r.Seq
	b.shots[r.Client.Node()]++
	o.op, o.flags, o.first, o.prev, o.prevOp, o.id = r.Op, r.Flags, r.First, r.From, r.OpRef, r.RowID
	o.write, o.exclusive, o.view, o.rest = true, true, view, rest
	b.chainLink(i, o, r, false)
}

// oddChainReq looks at a request of another view, or one that comes again. True: it is dealt with.
func (b *Block) oddChainReq(f *fragment, r *signal.PrepareReq) bool {
	again := r.Flags&signal.FlagAgain != 0
	switch {
	case again && b.hereAlready(f, r):
		return true
	case f.primary && (again || r.View < b.view.Number):
		// It was on its way here when this node became primary: whoever is above has lost the primary before it, or is no
		// primary any more.
		b.env.Mark(kernel.MarkLateChainRefused)
		b.chainRef(r.From, r.OpRef, codeNotPrimary)
		return true
	}
	f.passed = f.passed || r.View > b.view.Number
	return false
}

// chainLink goes on with a link of a chain that has a record: it is new, or was parked, or comes from a row's queue.
func (b *Block) chainLink(i uint32, o *operation, r *signal.PrepareReq, resumed bool) {
	f := o.frag
	q := prepareRequest(r)
	if o.tail() {
		row, ok := f.rows.CheckedRow(o.id)
		switch {
		case !b.epoch.Open():
			if o.stash == nil && !b.keep(o, &r.Head) {
				b.fail(i, o, codeNoOperations)
				return
			}
			o.state = parked
			b.epoch.park(b, i, o)
		case !ok || row.Lock == 0:
			b.chainTail(f, r, row, ok)
			b.free(i, o)
		case b.applyAtBackup(i, o, &q, &r.Head, resumed): // others wait behind it
			b.commitOneShot(i, o, row, b.epoch.GCI)
		}
		return
	}
	if !b.applyAtBackup(i, o, &q, &r.Head, resumed) {
		return
	}
	if o.ghost && o.stash == nil && !b.keep(o, &r.Head) { // it cannot be made anew from a row
		b.unlink(nil, o)
		o.state = executing
		b.fail(i, o, codeNoOperations)
		return
	}
	b.enterChain(i, o)
	b.passOn(i, o, signal.NumChainReq, &q)
	if !o.ghost {
		b.dropStash(o)
	}
}

// enterChain: the operation's epoch will be drawn further down; it may be the present one, which is finished only
// when the answer has passed here.
func (b *Block) enterChain(_ uint32, o *operation) { o.parity = b.epoch.Enter() }

// chainTail is the commit point: it draws the epoch and commits in one visit, without a record. An update finds its
// row by its id; nobody is on the row.
func (b *Block) chainTail(f *fragment, r *signal.PrepareReq, row *store.RowHead, ok bool) {
	q := prepareRequest(r)
	code := uint32(0)
	switch {
	case !ok && r.Op != signal.OpInsert:
		invariant.That(f.copying(), "a backup has every row that its primary has")
		b.env.Mark(kernel.MarkGhost)
	case !ok:
		code = b.insertAt(f, r.Flags, &q, r.RowID)
	default:
		key, n := f.rows.Key(row)
		if !sameBytes(key, n, q.key, q.keyLen) || r.Op == signal.OpInsert {
			invariant.That(f.primary, "a row id means the same row on every replica")
			code = codeNotPrimary
			break
		}
		if r.Op == signal.OpDelete {
			f.rows.Remove(rowhash.Hash(q.key, q.keyLen), r.RowID, uint64(signal.JoinGCI(b.epoch.GCI)))
		} else {
			code = b.updateAtOnce(f, r.Flags, &q, row)
		}
	}
	if code != 0 {
		b.chainRef(r.From, r.OpRef, code)
		return
	}
	b.outcomes.Record(r.Client, r.Seq, b.epoch.GCI)
	b.chainConf(r.From, r.OpRef, b.epoch.GCI)
}

func (b *Block) insertAt(f *fragment, flags uint8, q *request, id store.RowID) uint32 {
	hash := rowhash.Hash(q.key, q.keyLen)
	r, code := f.rows.InsertAt(id, hash, q.key, q.keyLen, 0)
	if code != 0 {
		return code
	}
	n := b.compute(f, flags, version{}, q, f.rows.Fixed(r))
	if n > 0 {
		if code := f.rows.SetVar(r, unsafe.Pointer(&b.work[0]), n); code != 0 {
			f.rows.Remove(hash, id, r.GCI())
			return code
		}
	}
	b.stamp(f, r)
	return 0
}

func (b *Block) chainConf(to signal.Addr, op uint32, gci [2]uint32) {
	c := kernel.Send[signal.ChainConf](b.env, to, b.self, signal.NumChainConf)
	c.OpRef, c.GCI = op, gci
}

// inChain finds the operation that the next replica's answer is about.
func (b *Block) inChain(ref uint32, from signal.Addr) *operation {
	o := b.ops.At(ref)
	if !o.oneShot() || o.state != holding || o.rest[0] != from {
		invariant.Failf("an answer of %v to operation %d, which is not in a chain with it", from, ref)
	}
	return o
}

func (b *Block) onChainConf(c *signal.ChainConf) {
	o := b.inChain(c.OpRef, c.From)
	parity := o.parity
	b.commitOneShot(c.OpRef, o, o.row(), c.GCI)
	b.leaveEpoch(parity)
}

func (b *Block) onChainRef(c *signal.ChainRef) {
	o := b.inChain(c.OpRef, c.From)
	parity := o.parity
	b.failHeld(c.OpRef, o, o.row(), c.Code)
	b.leaveEpoch(parity)
}
