package ldm

// Images: what a row looks like before and after an operation. See package schema for the formats.

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/rowhash"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
)

// maxImage bounds an image in bytes.
const maxImage = 32 << 10

// version is a row as one transaction sees it.
type version struct {
	exists bool
	fixed  unsafe.Pointer
	vars   unsafe.Pointer
	nvars  uint32 // bytes
}

// committed is the row as everybody sees it; the row must exist.
func committed(f *fragment, r *store.RowHead) version {
	v := version{exists: true, fixed: f.rows.Fixed(r)}
	v.vars, v.nvars = f.rows.Var(r)
	return v
}

// version is the row as the transaction of o sees it: with its own pending changes.
func (b *Block) version(f *fragment, r *store.RowHead, o *operation) version {
	var last *operation
	for i := top(r); i != pool.None; {
		x := b.ops.At(i)
		if x.state == waiting {
			break
		}
		if x.write && x.same(o) {
			last = x
		}
		i = x.down
	}
	switch {
	case last == nil:
		if r.Lock&store.LockInsert != 0 {
			return version{}
		}
		return committed(f, r)
	case !last.exists:
		return version{}
	case !last.imaged: // its insert: the row is in the slot
		return committed(f, r)
	}
	v := version{exists: true, fixed: last.image}
	v.vars, v.nvars = f.rows.VarOf(last.vref)
	return v
}

// compute makes the image that a checked write leaves: the fixed part at fixed, the variable part in b.work. Without
// an old version it is an insert.
func (b *Block) compute(f *fragment, flags uint8, old version, q *request, fixed unsafe.Pointer) (vars uint32) {
	w := f.layout.AsWrite(q.data, q.dataLen, flags&signal.FlagAll != 0)
	return f.layout.Apply(w, old.fixed, old.vars, old.nvars, fixed, unsafe.Pointer(&b.work[0]))
}

// complete tells whether an insert names every column that cannot be NULL; 0 or a code.
func (f *fragment) complete(flags uint8, q *request) uint32 {
	return f.layout.CheckInsert(f.layout.AsWrite(q.data, q.dataLen, flags&signal.FlagAll != 0).Mask)
}

// fillSlot writes a new row into its slot, where nobody but its transaction sees it.
func (b *Block) fillSlot(o *operation, r *store.RowHead, q *request) uint32 {
	f := o.frag
	o.op, o.exists = signal.OpInsert, true
	if code := f.complete(o.flags, q); code != 0 {
		return code
	}
	n := b.compute(f, o.flags, version{}, q, f.rows.Fixed(r))
	if n > 0 {
		return f.rows.SetVar(r, unsafe.Pointer(&b.work[0]), n)
	}
	return 0
}

// pend makes a change of an existing slot beside the row: the new fixed image in the copy pool, the new variable
// part in the fragment, so that the commit cannot fail.
func (b *Block) pend(o *operation, r *store.RowHead, old version, q *request) uint32 {
	f := o.frag
	if o.op == signal.OpWrite {
		o.op = signal.OpUpdate
		if !old.exists {
			o.op = signal.OpInsert
		}
	}
	if !old.exists {
		if code := f.complete(o.flags, q); code != 0 {
			return code
		}
	}
	o.image = b.copies.Seize(max(f.layout.FixedSize, 4))
	if o.image == nil {
		return codeNoOperations
	}
	n := b.compute(f, o.flags, old, q, o.image)
	o.exists, o.imaged = true, true
	if f.layout.HasVar() {
		ref, code := f.rows.NewVar(r, unsafe.Pointer(&b.work[0]), n)
		if code != 0 {
			return code
		}
		o.vref, o.newPart = ref, true
	}
	return 0
}

// become makes a pending change the row's state.
func (b *Block) become(o *operation, r *store.RowHead) {
	f := o.frag
	if !o.imaged {
		return
	}
	n := f.layout.FixedSize
	copy(unsafe.Slice((*byte)(f.rows.Fixed(r)), n), unsafe.Slice((*byte)(o.image), n))
	if o.newPart {
		f.rows.SwapVar(r, o.vref)
		o.newPart = false
	}
}

// readCommitted answers a read that takes no lock: with the committed row, or, if it comes by way of a coordinator (tc),
// with what its own transaction has made of that. A read that comes straight from the client was asked for before
// its transaction got a coordinator, so it sees none of the changes, even if they overtake it.
func (b *Block) readCommitted(f *fragment, flags uint8, q *request, tc, client signal.Addr, ref, tx uint32) uint32 {
	r, _ := f.rows.Find(rowhash.Hash(q.key, q.keyLen), q.key, q.keyLen)
	if r == nil {
		return codeNoRow
	}
	v := committed(f, r)
	own := false
	if r.Lock != 0 {
		o := operation{tc: tc, client: client, tx: tx}
		w := b.version(f, r, &o)
		if !w.exists {
			return codeNoRow
		}
		own = w.fixed != v.fixed || r.Lock&store.LockInsert != 0
		v = w
	}
	if !own && !f.rows.CheckSum(r) {
		return store.CodeCorrupt
	}
	b.readConf(f, v, flags, q, client, ref, tx)
	return 0
}

// readConf sends a client the columns it asked for.
func (b *Block) readConf(f *fragment, v version, flags uint8, q *request, client signal.Addr, ref, tx uint32) {
	l := f.layout
	if flags&signal.FlagAll != 0 {
		n := l.FixedSize + v.nvars
		c := (*signal.ReadConf)(b.env.Put(client, b.self, signal.NumReadConf, signal.ReadConfSize+n))
		c.Ref, c.Tx, c.DataLen = ref, tx, n
		l.Project(nil, v.fixed, v.vars, v.nvars, c.Data())
		return
	}
	n := l.ProjectSize(q.data, v.vars, v.nvars)
	c := (*signal.ReadConf)(b.env.Put(client, b.self, signal.NumReadConf, signal.ReadConfSize+n))
	c.Ref, c.Tx, c.DataLen = ref, tx, n
	l.Project(q.data, v.fixed, v.vars, v.nvars, c.Data())
}

func (b *Block) onReadReq(r *signal.KeyReq) {
	f, code := b.lookup(r.Table, r.Version, r.Frag, false)
	q := keyRequest(r)
	if code == 0 {
		switch {
		case r.Op != signal.OpReadCommitted:
			code = codeProtocol
		case b.single != 0 && b.single != r.From.Node():
			code = codeSingle
		case f.table.closing:
			code = codeDropping
		default:
			code = f.check(r.Op, r.Flags, &q)
		}
	}
	if code == 0 {
		code = b.readCommitted(f, r.Flags, &q, 0, r.From, r.Ref, r.Tx)
	}
	if code != 0 {
		b.keyRef(r.From, r.Ref, r.Tx, code)
	}
}
