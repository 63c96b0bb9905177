package client

// Operations are built where they will be sent from. Of a session's requests the last one stays open until something
// else is done with the session: as long as it is the last thing in its buffer it can still become another one.
//
//	a committed read opens as ReadReq to the ldm, and stays it unless its transaction goes on with something that
//	needs a coordinator: then it becomes a KeyReq;
//	the first write of a transaction opens as WriteReq to the ldm, and stays it if the commit comes next; else it
//	becomes a KeyReq;
//	every other operation is a KeyReq; an execute or commit that comes next puts its flags there.

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/signal"
)

// Read defines a read of the row whose key is in row; the format's columns are there when the batch is over. kind is
// one of OpReadCommitted, OpReadShared, OpReadExclusive.
func (f *Format) Read(t *Tx, row unsafe.Pointer, kind uint8) *Op { return t.define(f, row, kind) }

// Insert defines an insert of the format's columns.
func (f *Format) Insert(t *Tx, row unsafe.Pointer) *Op { return t.define(f, row, signal.OpInsert) }

// Update defines an update of the format's columns.
func (f *Format) Update(t *Tx, row unsafe.Pointer) *Op { return t.define(f, row, signal.OpUpdate) }

// Write defines an insert or update of the format's columns.
func (f *Format) Write(t *Tx, row unsafe.Pointer) *Op { return t.define(f, row, signal.OpWrite) }

// Delete defines a delete.
func (f *Format) Delete(t *Tx, row unsafe.Pointer) *Op { return t.define(f, row, signal.OpDelete) }

// define makes the operation's record and its request. It never returns nil: where there is no record, the session's
// spare one says why. An error in the values makes the transaction fail at its next step.
func (t *Tx) define(f *Format, row unsafe.Pointer, kind uint8) *Op {
	s := t.s
	o := s.freeOp
	if o == nil || t.state != Defining || t.err != nil {
		return t.undefined()
	}
	s.freeOp = o.next
	o.tx, o.next, o.err, o.format, o.row, o.num = t, nil, nil, f, row, t.num
	o.kind, o.flags, o.state, o.direct = kind, 0, opDefined, false
	if t.tail == nil {
		t.head = o
	} else {
		t.tail.next = o
	}
	t.tail = o
	s.Counters.Operations++

	key := unsafe.Pointer(&s.scratch)
	keyLen, dataLen, code := f.measure(row, key, kind)
	if code != 0 {
		return o.refused(code)
	}
	frag := f.table.fragment(key, keyLen)
	m := s.view.mapOf(f.table)
	primary := m.primary(frag)
	if n := &s.view.nodes[primary.Node()]; !n.Up || !n.Started || uint32(primary.Instance()) >= n.LDMs {
		primary = s.view.placed(m, frag)
	}
	o.frag, o.node = frag, primary.Node()
	if primary == 0 { // its row will come from a node that is up though it begins nothing new
		if o.node = s.holder(m, frag); o.node == 0 && t.tc == 0 {
			return o.refused(s.unreachable())
		}
	}

	read := kind == signal.OpReadCommitted
	direct := t.tc == 0 && primary != 0 && !t.opts.Coordinate && !t.opts.RoundRobin && (len(s.doubted) == 0 || !s.doubts(m)) &&
		(read || t.reads == 0 && kind >= signal.OpInsert && (s.open == nil || s.open.tx != t))
	if s.open != nil {
		s.shut(s.open.tx == t && !(direct && read))
		if t.tc != 0 {
			direct = false
		}
	}
	num, to, flags := signal.NumKeyReq, t.tc, f.flags
	switch {
	case direct && read:
		num, to = signal.NumReadReq, primary
		t.reads++
		t.straight++
		o.state = opSent
	case direct:
		num, to = signal.NumWriteReq, primary
	default:
		if to == 0 {
			if to = s.coordinator(t, primary); to == 0 {
				return o.refused(s.unreachable())
			}
			t.tc = to
			flags |= signal.FlagStart
		}
		t.coordinated(o)
	}
	if t.node == 0 {
		t.node = to.Node()
	}
	o.direct = direct

	n := signal.KeyReqSize + signal.Pad(keyLen) + dataLen
	d := s.env.Dest(to)
	s.open, s.openDest, s.openAt = o, d, uint32(s.env.Buf(d).Len())
	r := (*signal.KeyReq)(s.env.Put(to, s.self, uint16(num), n))
	r.Ref, r.Tx, r.Seq, r.Ack = o.index, t.num, 0, s.ack
	r.Table, r.Version, r.Frag, r.Op, r.Flags = f.table.id, f.table.version, frag, kind, flags
	r.KeyLen, r.DataLen = uint16(keyLen), uint16(dataLen)
	if keyLen == 8 {
		*(*[2]uint32)(r.Key()) = *(*[2]uint32)(key)
	} else {
		copy(unsafe.Slice((*byte)(r.Key()), keyLen), unsafe.Slice((*byte)(key), keyLen))
	}
	if dataLen != 0 {
		f.data(row, unsafe.Add(unsafe.Pointer(r), signal.KeyReqSize+signal.Pad(keyLen)), kind, dataLen)
	}
	return o
}

// coordinated counts an operation among those of the coordinator.
func (t *Tx) coordinated(o *Op) {
	t.batch = true
	if signal.IsRead(o.kind) {
		t.reads++
		o.state = opSent
	} else {
		t.writes = true
	}
}

//go:noinline
func (t *Tx) undefined() *Op {
	s := t.s
	e := t.err // it fails for what came first
	switch {
	case e != nil:
	case t.state != Defining:
		e = ndberror.Get(ndberror.TxEnded)
		if t.state == Executing { // it would be lost silently, and the transaction go on without it
			t.fail(e)
		}
	default:
		e = ndberror.Get(ndberror.TooManyOperations)
		t.fail(e)
	}
	s.none = Op{err: e}
	return &s.none
}

// Refuse makes the transaction fail with a code at its next step, and returns an operation that says so: for values that
// were found wrong before there was an operation.
func (t *Tx) Refuse(code int) *Op {
	if t.state == Defining || t.state == Executing {
		t.fail(ndberror.Get(code))
	}
	return t.undefined()
}

//go:noinline
func (o *Op) refused(code uint32) *Op {
	o.err = ndberror.Get(int(code))
	o.state = opDone
	o.tx.fail(o.err)
	return o
}

// holder is the first node of a fragment's chain that is up; 0 if none is.
func (s *Session) holder(m *Map, frag uint16) uint8 {
	for _, a := range m.chain(frag) {
		if s.view.nodes[a.Node()].Up {
			return a.Node()
		}
	}
	return 0
}

// unreachable is why an operation can go nowhere: nobody serves, or just no node that has the row.
func (s *Session) unreachable() uint32 {
	if s.closed {
		return ndberror.SessionClosed
	}
	if len(s.view.serving) == 0 {
		return ndberror.ClusterNotReady
	}
	return ndberror.NodeFailed
}

// coordinator chooses where a transaction's coordinator is; 0 when nobody serves.
func (s *Session) coordinator(t *Tx, primary signal.Addr) signal.Addr {
	v := s.view
	n, at := primary.Node(), uint32(primary.Instance())
	switch {
	case t.opts.RoundRobin:
		if len(v.serving) == 0 {
			return 0
		}
		s.turn++
		n, at = v.serving[s.turn%uint32(len(v.serving))], s.turn/uint32(len(v.serving))
	case t.opts.Node != 0 && v.nodes[t.opts.Node].serves():
		n = t.opts.Node
	case !v.nodes[n].serves():
		if len(v.near) == 0 {
			return 0
		}
		s.turn++
		n = v.near[s.turn%uint32(len(v.near))]
	}
	return signal.MakeAddr(n, signal.BlockTC, uint16(at%v.nodes[n].TCs))
}

// openReq is the open operation's request.
func (s *Session) openReq() *signal.KeyReq {
	return (*signal.KeyReq)(unsafe.Pointer(&s.env.Buf(s.openDest).Bytes()[s.openAt]))
}

// shut ends the open operation's openness. A direct read stays what it is unless its transaction needs a coordinator
// now; a direct write becomes an operation of a coordinator.
func (s *Session) shut(coordinate bool) {
	o := s.open
	if o.direct && (coordinate || o.kind != signal.OpReadCommitted) {
		s.redirect(o)
	}
	if !o.direct {
		o.tx.started = true
	}
	s.open = nil
	s.touched = true
}

// redirect turns the open direct request into the first one of a coordinator.
func (s *Session) redirect(o *Op) {
	t, r := o.tx, s.openReq()
	tc := t.tc
	start := uint8(0)
	if tc == 0 {
		if tc = s.coordinator(t, r.To); tc == 0 { // nobody serves any more: the link is gone, and this goes nowhere
			tc = signal.MakeAddr(r.To.Node(), signal.BlockTC, 0)
		}
		t.tc, t.node, start = tc, tc.Node(), signal.FlagStart
	}
	if d := s.env.Dest(tc); d != s.openDest {
		n := r.Bytes()
		p := s.env.Put(tc, s.self, signal.NumKeyReq, n)
		r = s.openReq() // Put may have been anything but this buffer; read it again all the same
		copy(unsafe.Slice((*byte)(p), n), unsafe.Slice((*byte)(unsafe.Pointer(r)), n))
		s.env.Buf(s.openDest).Truncate(int(s.openAt))
		s.openDest, s.openAt = d, uint32(s.env.Buf(d).Len())-n
		r = (*signal.KeyReq)(p)
	}
	r.Num, r.To = signal.NumKeyReq, tc
	r.Flags |= start
	if o.kind == signal.OpReadCommitted {
		t.reads--
		t.straight--
	}
	o.direct = false
	t.coordinated(o)
}

// dropOpen takes the open operation's request back: it was never sent.
func (s *Session) dropOpen() {
	o := s.open
	if o == nil {
		return
	}
	s.env.Buf(s.openDest).Truncate(int(s.openAt))
	s.open = nil
	o.neverSent()
}

// neverSent takes an operation out of the counts of what is awaited.
func (o *Op) neverSent() {
	if o.state == opSent {
		o.tx.reads--
		if o.direct {
			o.tx.straight--
		}
	}
	o.state = opDone
}
