package ldm

// Takeover: what is done about operations when members are lost. After the prepare of the view nothing of them arrives,
// so at the commit every survivor knows all that it will ever know.
//
// Transactions of one write. Each replica looks at its own neighbours in the operation's chain:
//
//	prev  X  next            next is lost: the request goes to the one behind it, with FlagAgain, since the lost one may
//	      │                  have passed it on; or if there is none, this replica is the tail now, and the commit point
//	primary ─ChainReq(again)─> tail
//	X  prev  next            prev is lost: the answer from below commits here, and nobody is answered: an orphan. One that
//	                         still waits to be executed is dropped, for nobody below has it
//
// Operations of coordinators: one that waits and whose coordinator is lost holds nothing, and is dropped. All others that
// the primary had not let through in this view, and whose coordinator or a member of whose node group is lost, are
// reported (OpRep) to the coordinator that decides; it ends each replica's part by a direct step. Steps that were under
// way along a broken chain are carried out, and die where it is broken.
//
// A replica may thus be the last to let a row go that the primary of the new view has let go, and changed, already. So
// below the primary a change waits too, behind whatever an older view has left on its row or slot, and only behind that.
//
// The takeover is done here when no operation of a lost coordinator and no orphan is left. Questions about outcomes wait
// until then.

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
)

// takeOver is the commit of a view that lost members.
func (b *Block) takeOver(lost *signal.NodeSet) {
	b.newestLoss = b.view.Number
	for n := range b.lostIn {
		if lost.Has(uint8(n)) {
			b.lostIn[n] = b.view.Number
		}
	}
	b.eachFragment(func(f *fragment) {
		for _, p := range f.places() {
			if lost.Has(p.Node()) {
				f.touched = b.view.Number
			}
		}
	})
	b.dropWaiting(lost)
	b.mendChains(lost)
	b.report(lost)
}

// dropWaiting forgets what was not executed here, and of which somebody is lost who would have to hear of it, or who has
// it in hand now: the waiting operations of lost coordinators; and below the primary what comes from a lost replica, or
// belongs to a coordinator that will not end it here, since the primary reports it.
func (b *Block) dropWaiting(lost *signal.NodeSet) {
	head := b.epoch.head
	b.epoch.head, b.epoch.tail = pool.None, pool.None
	for i := head; i != pool.None; {
		o := b.ops.At(i)
		next := o.wNext
		o.wNext = pool.None
		if o.state == parked && lost.Has(o.prev.Node()) {
			b.env.Mark(kernel.MarkParkedDropped)
			b.free(i, o)
		} else {
			b.epoch.park(b, i, o)
		}
		i = next
	}
	for i := uint32(0); i < b.ops.High(); i++ {
		o := b.ops.Find(i)
		if o == nil || o.state != waiting {
			continue
		}
		switch {
		case !o.oneShot() && lost.Has(o.tc.Node()):
			b.env.Mark(kernel.MarkWaitingDropped)
		case o.prev != 0 && (o.oneShot() && lost.Has(o.prev.Node()) || !o.oneShot() && o.frag.touched == b.view.Number):
			b.env.Mark(kernel.MarkQueuedDropped)
		default:
			continue
		}
		b.leaveQueue(i, o)
		b.free(i, o)
	}
}

// mendChains takes lost members out of the chains of operations under way.
func (b *Block) mendChains(lost *signal.NodeSet) {
	for i := uint32(0); i < b.ops.High(); i++ {
		o := b.ops.Find(i)
		if o == nil {
			continue
		}
		if o.state == waiting { // below its primary; it has gone nowhere yet
			o.without(lost)
			continue
		}
		if lost.Has(o.prev.Node()) && !o.cut {
			o.cut = true
			if o.oneShot() {
				b.env.Mark(kernel.MarkOrphan)
				b.leave(o)
			}
		}
		if !o.oneShot() && lost.Has(o.tc.Node()) {
			b.leave(o)
		}
		next := o.rest[0]
		o.without(lost)
		if o.oneShot() && next != 0 && lost.Has(next.Node()) {
			if o.tail() {
				b.becomeTail(i, o)
			} else {
				b.again(i, o)
			}
		}
	}
}

// without takes lost members out of those that come behind.
func (o *operation) without(lost *signal.NodeSet) {
	n := 0
	for k, a := range o.rest {
		if o.rest[k] = 0; a != 0 && !lost.Has(a.Node()) {
			o.rest[n] = a
			n++
		}
	}
}

// leave counts an operation that must end before the takeover is done.
func (b *Block) leave(o *operation) {
	if !o.left {
		o.left = true
		b.left++
	}
}

// becomeTail takes a one-shot whose chain has lost all below this replica to its commit point.
func (b *Block) becomeTail(i uint32, o *operation) {
	b.env.Mark(kernel.MarkBecameTail)
	b.epoch.Leave(o.parity)
	b.dropStash(o) // of a ghost
	o.state = ready
	b.epoch.park(b, i, o)
	b.confirmEpoch()
}

// again sends a one-shot to the replica that is next now. The request is made anew from what the operation will leave:
// the whole image, whatever part of it the client has named.
func (b *Block) again(i uint32, o *operation) {
	b.env.Mark(kernel.MarkSentAgain)
	f := o.frag
	o.view = b.view.Number // it may come behind what the one before it on the row has left in the old view
	if o.ghost {
		r := signal.As[signal.PrepareReq]((*signal.Head)(o.stash))
		q := prepareRequest(r)
		o.flags |= signal.FlagAgain
		b.passOn(i, o, signal.NumChainReq, &q)
		return
	}
	r := f.rows.Row(o.id)
	key, keyLen := f.rows.Key(r)
	q := request{key: key, keyLen: keyLen}
	if o.exists {
		v := committed(f, r) // of an insert, which lies in the slot
		if o.imaged {
			v.fixed = o.image
			if o.newPart {
				v.vars, v.nvars = f.rows.VarOf(o.vref)
			}
		}
		n := f.layout.FixedSize
		copy(b.scratch[:n], unsafe.Slice((*byte)(v.fixed), n))
		copy(b.scratch[n:n+v.nvars], unsafe.Slice((*byte)(v.vars), v.nvars))
		q.data, q.dataLen = unsafe.Pointer(&b.scratch[0]), n+v.nvars
	}
	o.flags |= signal.FlagAll | signal.FlagAgain
	b.passOn(i, o, signal.NumChainReq, &q)
}

// report tells coordinators of the operations that they have to decide about.
func (b *Block) report(lost *signal.NodeSet) {
	president := b.view.Member(b.view.President)
	for i := uint32(0); i < b.ops.High(); i++ {
		o := b.ops.Find(i)
		if o == nil || o.oneShot() || o.state != waiting && o.view >= b.view.Number {
			continue
		}
		to := o.tc
		switch {
		case o.left: // its coordinator was lost, in this view or in an earlier one
			to = signal.MakeAddr(b.view.President, signal.BlockTC, uint16(uint32(to.Instance())%president.TCs))
		case o.frag.touched != b.view.Number:
			continue
		}
		s := kernel.Send[signal.OpRep](b.env, to, b.self, signal.NumOpRep)
		*s = signal.OpRep{Head: s.Head, View: b.view.Number, Tc: o.tc, TcRef: o.tcRef, OpSeq: o.seq, Client: o.client, Tx: o.tx, OpRef: i,
			State: signal.OpPrepared, Table: uint16(o.frag.table.id), Frag: uint16(o.frag.number)}
		if o.state == waiting {
			s.State = signal.OpWaiting
		}
		if o.write {
			s.Write = 1
		}
		if o.flags&signal.FlagMarker != 0 {
			s.Marker = 1
		}
		if o.applied {
			s.State, s.Seq, s.GCI = signal.OpApplied, o.cseq, o.gci
		}
	}
	for _, m := range b.view.Members {
		for k := range m.TCs {
			kernel.Send[signal.OpEndRep](b.env, signal.MakeAddr(uint8(m.Node), signal.BlockTC, uint16(k)), b.self, signal.NumOpEndRep).View = b.view.Number
		}
	}
}

// takeoverDone confirms the commit of a view when nothing of lost members is left.
func (b *Block) takeoverDone() {
	if b.left > 0 {
		b.awaited = true
		return
	}
	if b.commit.from != 0 {
		b.viewConf(&b.commit, signal.NumViewCommitConf)
	}
}

// stale tells whether an operation that another replica passes on was let through before a view that lost somebody of its
// node group, or its coordinator: its coordinator does not count on this replica any more.
func (b *Block) stale(f *fragment, r *signal.PrepareReq) bool {
	return r.View < f.touched || r.View < b.lostIn[r.Tc.Node()]
}

// hereAlready deals with a one-shot that comes again and was here before. True: it was, and whoever sent it has been, or
// will be, answered.
func (b *Block) hereAlready(f *fragment, r *signal.PrepareReq) bool {
	if o := b.findAgain(f, r); o != nil {
		b.env.Mark(kernel.MarkAgainUnderWay)
		if o.left {
			b.left--
		}
		o.cut, o.left = false, false
		o.prev, o.prevOp, o.first = r.From, r.OpRef, r.First
		if o.stash != nil { // it was not executed yet, and whoever sends it now is to be answered when it is
			q := signal.As[signal.PrepareReq]((*signal.Head)(o.stash))
			q.From, q.OpRef, q.First = r.From, r.OpRef, r.First
		}
		b.takeoverDone()
		return true
	}
	// What is known of the client's commits may be of an earlier life of it, so the row has a say too.
	row, ok := f.rows.CheckedRow(r.RowID)
	q := prepareRequest(r)
	gci, known := b.outcomes.Find(r.Client, r.Seq)
	switch {
	case !ok && f.copying():
		if !known {
			return false
		}
	case !ok && r.Op == signal.OpDelete:
		if !known {
			gci = signal.GCI(f.rows.SlotGCI(r.RowID)).Words()
		}
	case !ok || row.Lock != 0 || r.Op == signal.OpDelete || !f.isImage(row, &q):
		return false
	case known:
	case r.Op == signal.OpUpdate && b.outcomes.Keeps(r.Client):
		return false // an update that changes nothing
	default: // the client is gone, and with it what was known of its commits; nobody will be told
		gci = [2]uint32{row.GCILo, row.GCIHi}
	}
	mark := kernel.MarkAgainCommitted
	if !known {
		mark = kernel.MarkAgainSeen
	}
	b.env.Mark(mark)
	b.chainConf(r.From, r.OpRef, gci)
	return true
}

// isImage tells whether a row has the key and the columns of a request with whole images.
func (f *fragment) isImage(r *store.RowHead, q *request) bool {
	key, n := f.rows.Key(r)
	if !sameBytes(key, n, q.key, q.keyLen) {
		return false
	}
	v := committed(f, r)
	size := f.layout.FixedSize
	return q.dataLen == size+v.nvars && sameBytes(v.fixed, size, q.data, size) && sameBytes(v.vars, v.nvars, unsafe.Add(q.data, size), v.nvars)
}

// findAgain is the record of a one-shot that comes again, or nil.
func (b *Block) findAgain(f *fragment, r *signal.PrepareReq) *operation {
	is := func(o *operation) bool {
		return o.oneShot() && o.prev != 0 && o.frag == f && o.id == r.RowID && o.client == r.Client && o.seq == r.Seq && o.tx == r.Tx
	}
	if row, ok := f.rows.CheckedRow(r.RowID); ok {
		for i := top(row); i != pool.None; i = b.ops.At(i).down {
			if o := b.ops.At(i); is(o) {
				return o
			}
		}
	}
	for i := f.ghosts; i != pool.None; i = b.ops.At(i).down {
		if o := b.ops.At(i); is(o) {
			return o
		}
	}
	for i := b.epoch.head; i != pool.None; i = b.ops.At(i).wNext {
		if o := b.ops.At(i); is(o) {
			return o
		}
	}
	return nil
}
