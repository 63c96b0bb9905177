package ldm

// Transactions of one write, without a coordinator.
//
// With one replica the write is executed and committed in one visit. If an epoch change is under way it is parked
// and starts over when the change is through; if the row is locked it queues like any other operation.
//
//	client --WriteReq--> ldm --WriteConf--> client
//
// With more replicas see chain.go.

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/rowhash"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
)

func (b *Block) onWriteReq(r *signal.KeyReq) {
	// It comes over the client's own link, and its NodeFailRep came behind everything from the one before: so the client
	// is back, though membership's word of that may still be on its way from another thread.
	b.gone[r.From.Node()] = false
	f, code := b.lookup(r.Table, r.Version, r.Frag, true)
	q := keyRequest(r)
	if code == 0 {
		switch {
		case signal.IsRead(r.Op):
			code = codeProtocol
		case b.single != 0 && b.single != r.From.Node():
			code = codeSingle
		case b.stopping:
			code = codeStopping
		case f.table.closing:
			code = codeDropping
		case !b.outcomes.Admit(r.From, r.Ack):
			code = codeSessions
		case !b.outcomes.InWindow(r.From, r.Seq):
			code = codeProtocol
		default:
			code = f.check(r.Op, r.Flags, &q)
		}
	}
	if code != 0 {
		b.keyRef(r.From, r.Ref, r.Tx, code)
		return
	}
	if f.down[0] == 0 && b.epoch.Open() && b.writeAtOnce(f, r, &q) {
		return
	}
	i, o := b.seize(f)
	if o == nil {
		b.keyRef(r.From, r.Ref, r.Tx, codeNoOperations)
		return
	}
	o.client, o.tx, o.ref, o.seq = r.From, r.Tx, r.Ref, r.Seq
	o.op, o.flags, o.write, o.exclusive = r.Op, r.Flags&(signal.FlagAll|signal.FlagNoWait), true, true
	f.oneShots++
	b.oneShots++
	b.shots[r.From.Node()]++
	b.execute(i, o, q, &r.Head, false)
}

// writeAtOnce executes and commits a write in one visit, without an operation record. False: the row is locked.
func (b *Block) writeAtOnce(f *fragment, r *signal.KeyReq, q *request) bool {
	hash := rowhash.Hash(q.key, q.keyLen)
	row, id := f.rows.Find(hash, q.key, q.keyLen)
	code := uint32(0)
	switch {
	case row == nil && (r.Op == signal.OpInsert || r.Op == signal.OpWrite):
		code = b.insertAtOnce(f, r.Flags, q, hash)
	case row == nil:
		code = codeNoRow
	case row.Lock != 0:
		return false
	case r.Op == signal.OpInsert:
		code = codeExists
	case r.Op == signal.OpDelete:
		f.rows.Remove(hash, id, uint64(signal.JoinGCI(b.epoch.GCI)))
	default:
		code = b.updateAtOnce(f, r.Flags, q, row)
	}
	if code != 0 {
		b.keyRef(r.From, r.Ref, r.Tx, code)
		return true
	}
	b.outcomes.Record(r.From, r.Seq, b.epoch.GCI)
	b.writeConf(r.From, r.Ref, r.Tx, b.epoch.GCI)
	return true
}

func (b *Block) writeConf(to signal.Addr, ref, tx uint32, gci [2]uint32) {
	c := kernel.Send[signal.WriteConf](b.env, to, b.self, signal.NumWriteConf)
	c.Ref, c.Tx, c.GCI = ref, tx, gci
}

func (b *Block) insertAtOnce(f *fragment, flags uint8, q *request, hash uint64) uint32 {
	if code := f.complete(flags, q); code != 0 {
		return code
	}
	r, id, code := f.rows.Insert(hash, q.key, q.keyLen, 0)
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

func (b *Block) updateAtOnce(f *fragment, flags uint8, q *request, r *store.RowHead) uint32 {
	l := f.layout
	if !l.HasVar() && flags&signal.FlagAll != 0 {
		b.compute(f, flags, version{}, q, f.rows.Fixed(r)) // a whole image replaces the old one
		b.stamp(f, r)
		return 0
	}
	image := unsafe.Pointer(&b.scratch[0])
	n := b.compute(f, flags, committed(f, r), q, image)
	if l.HasVar() {
		if code := f.rows.SetVar(r, unsafe.Pointer(&b.work[0]), n); code != 0 {
			return code
		}
	}
	copy(unsafe.Slice((*byte)(f.rows.Fixed(r)), l.FixedSize), unsafe.Slice((*byte)(image), l.FixedSize))
	b.stamp(f, r)
	return 0
}

// stamp ends a change of a committed row.
func (b *Block) stamp(f *fragment, r *store.RowHead) {
	r.GCILo, r.GCIHi = b.epoch.GCI[0], b.epoch.GCI[1]
	f.rows.UpdateSum(r)
}

// executedOneShot goes on with a one-shot write that holds its row: down the chain, or to its commit point.
func (b *Block) executedOneShot(i uint32, o *operation, r *store.RowHead, q *request) {
	if !o.tail() {
		b.enterChain(i, o)
		b.passOn(i, o, signal.NumChainReq, q)
		b.dropStash(o)
		return
	}
	b.dropStash(o)
	if !b.epoch.Open() {
		o.state = ready
		b.epoch.park(b, i, o)
		return
	}
	b.commitOneShot(i, o, r, b.epoch.GCI)
}

// commitOneShot makes a one-shot's change the row's state, tells whoever waits for it, and lets the row go.
func (b *Block) commitOneShot(i uint32, o *operation, r *store.RowHead, gci [2]uint32) {
	f, id := o.frag, o.id
	if !o.ghost {
		b.commitRow(f, r, o, gci, 0)
	}
	hidden := o.hidden
	b.outcomes.Record(o.client, o.seq, gci)
	b.unlink(r, o)
	switch {
	case o.prev == 0:
		b.writeConf(o.client, o.ref, o.tx, gci)
	case !o.cut:
		b.chainConf(o.prev, o.prevOp, gci)
	}
	b.free(i, o)
	b.release(f, r, id, hidden)
}
