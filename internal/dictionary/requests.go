package dictionary

// What clients ask. Questions are answered from what the own node knows; changes go to the president.
//
//	client --TableInfoReq--> any node --TableInfoConf / TableRef--> client
//	client --TableListReq--> any node --TableListConf--> client
//	client --TableCreateReq, TableDropReq--> any node --the same--> president ; the answer comes back the same way

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// request is somebody's request for a change.
type request struct {
	from   signal.Addr // 0: the asker is gone
	ref    uint32      // the asker's
	create bool
	body   []byte // definition, or name

	// Of a record in forwards:
	busy                 bool
	sent                 bool // the president has it
	again                bool // a president that was lost had it
	known                bool // its schema transaction has ended here:
	code, table, version uint32
}

func (b *Block) ref(to signal.Addr, ref, code uint32) {
	if to == 0 {
		return
	}
	r := kernel.Send[signal.TableRef](b.env, to, b.self, signal.NumTableRef)
	r.Ref, r.Code = ref, code
}

func (b *Block) done(to signal.Addr, num uint16, ref, id, version uint32) {
	if to == 0 {
		return
	}
	r := kernel.Send[signal.TableDone](b.env, to, b.self, num)
	r.Ref, r.Table, r.Version = ref, id, version
}

func (b *Block) onTableInfoReq(r *signal.TableNameReq) {
	id, t := b.lookup(r.Name())
	switch {
	case b.part != signal.PartFull:
		b.ref(r.From, r.Ref, codeStarting)
		return
	case t == nil:
		b.ref(r.From, r.Ref, codeNoTable)
		return
	case t.state == dropping:
		b.ref(r.From, r.Ref, codeDropping)
		return
	}
	b.putOpen(r.From, signal.NumTableInfoConf, r.Ref, id)
}

// putOpen sends a table's definition, map and homes; a client gets the chains that these are now.
func (b *Block) putOpen(to signal.Addr, num uint16, ref, id uint32) {
	t := &b.tables[id]
	fragments := uint32(len(t.homes) / signal.MaxReplicas)
	def, buckets := uint32(len(t.def)), uint32(len(t.buckets))
	size := signal.TableOpenSize(def, buckets, fragments)
	c := (*signal.TableOpenReq)(b.env.Put(to, b.self, num, size))
	c.Ref, c.Table, c.Version, c.Fragments, c.Buckets, c.DefLen = ref, id, t.version, fragments, buckets, def
	clearTail(unsafe.Pointer(c), unsafe.Sizeof(*c), size)
	copy(c.Def(), t.def)
	copy(c.Map(), t.buckets)
	if num != signal.NumTableInfoConf {
		copy(c.Chains(), t.homes)
		return
	}
	for i := 0; i < len(t.homes); i += signal.MaxReplicas {
		b.view.Chain(t.homes[i:i+signal.MaxReplicas], (*[signal.MaxReplicas]signal.Addr)(c.Chains()[i:]))
	}
}

// clearTail zeroes a signal's sections, so that their padding is.
func clearTail(p unsafe.Pointer, fixed uintptr, size uint32) {
	clear(unsafe.Slice((*byte)(unsafe.Add(p, fixed)), size-uint32(fixed)))
}

// onTableListReq lists tables in the order of their ids, as many as one answer takes.
func (b *Block) onTableListReq(r *signal.TableListReq) {
	count, size, more := uint32(0), uint32(0), uint32(0)
	visit := func(f func(id uint32, t *table)) {
		for i := int(min(r.After, uint32(len(b.tables)))); i < len(b.tables); i++ {
			if t := &b.tables[i]; t.state == ready {
				f(uint32(i), t)
			}
		}
	}
	visit(func(_ uint32, t *table) {
		n := 16 + signal.Pad(uint32(len(t.name)))
		if more == 1 || size+n > listMax {
			more = 1
			return
		}
		count, size = count+1, size+n
	})
	c := (*signal.TableListConf)(b.env.Put(r.From, b.self, signal.NumTableListConf, uint32(unsafe.Sizeof(signal.TableListConf{}))+size))
	c.Ref, c.Count, c.More, c.BodyLen = r.Ref, count, more, size
	p := unsafe.Add(unsafe.Pointer(c), unsafe.Sizeof(*c))
	visit(func(id uint32, t *table) {
		if count == 0 {
			return
		}
		count--
		e := (*[4]uint32)(p)
		*e = [4]uint32{id, t.version, t.flags(), uint32(len(t.name))}
		kernel.PutBytes(unsafe.Add(p, 16), t.name)
		p = unsafe.Add(p, 16+signal.Pad(uint32(len(t.name))))
	})
}

// flags is what a list says of a table: bit 0 = its rows are logged.
func (t *table) flags() uint32 {
	if t.logging {
		return 1
	}
	return 0
}

func (b *Block) onTableCreateReq(r *signal.TableCreateReq) {
	if r.DefLen > defMax {
		b.ref(r.From, r.Ref, codeBadStructure)
		return
	}
	b.change(&r.Head, r.Ref, true, r.Def())
}

func (b *Block) onTableDropReq(r *signal.TableNameReq) { b.change(&r.Head, r.Ref, false, r.Name()) }

// change takes a request for a change: into the president's queue, or on to the president.
func (b *Block) change(h *signal.Head, ref uint32, create bool, body []byte) {
	switch {
	case !b.running():
		b.ref(h.From, ref, codeStarting)
	case b.isPresident() && b.settled:
		b.enqueue(request{from: h.From, ref: ref, create: create, body: append([]byte(nil), body...)})
	case h.From.Block() == signal.BlockDictionary: // another node takes us for the president
		b.ref(h.From, ref, codeStarting)
	default:
		b.forward(h, ref, create, body)
	}
}

// forward keeps a client's request, and passes it on to the president under a reference of our own if that takes
// requests.
func (b *Block) forward(h *signal.Head, ref uint32, create bool, body []byte) {
	for i := range b.forwards {
		if f := &b.forwards[i]; !f.busy {
			*f = request{busy: true, from: h.From, ref: ref, create: create, body: append([]byte(nil), body...)}
			if b.settled {
				b.pass(uint32(i))
			}
			return
		}
	}
	b.ref(h.From, ref, codeBusy)
}

// pass sends a request to the president.
func (b *Block) pass(i uint32) {
	f := &b.forwards[i]
	f.sent = true
	to, n := signal.MakeAddr(b.view.President, signal.BlockDictionary, 0), uint32(len(f.body))
	if f.create {
		size := uint32(unsafe.Sizeof(signal.TableCreateReq{}))
		q := (*signal.TableCreateReq)(b.env.Put(to, b.self, signal.NumTableCreateReq, size+signal.Pad(n)))
		q.Ref, q.DefLen = i, n
		kernel.PutBytes(unsafe.Add(unsafe.Pointer(q), size), f.body)
		return
	}
	size := uint32(unsafe.Sizeof(signal.TableNameReq{}))
	q := (*signal.TableNameReq)(b.env.Put(to, b.self, signal.NumTableDropReq, size+signal.Pad(n)))
	q.Ref, q.NameLen = i, n
	kernel.PutBytes(unsafe.Add(unsafe.Pointer(q), size), f.body)
}

// passAll deals with all requests that wait when a president takes them: some are answered, for a lost president has
// carried them out; of the others nothing has happened.
func (b *Block) passAll() {
	for i := range b.forwards {
		f := &b.forwards[i]
		switch {
		case !f.busy || f.sent && !f.again:
			continue
		case f.known:
			b.env.Mark(kernel.MarkRequestKnown)
			b.answer(f)
		case f.from == 0: // nobody waits for it any more
		case b.isPresident():
			b.enqueue(*f)
		default:
			if f.again {
				b.env.Mark(kernel.MarkRequestAgain)
			}
			f.again = false
			b.pass(uint32(i))
			continue
		}
		*f = request{}
	}
}

// answer tells a client what a lost president could not tell it.
func (b *Block) answer(f *request) {
	switch {
	case f.code != 0:
		b.ref(f.from, f.ref, f.code)
	case f.create:
		b.done(f.from, signal.NumTableCreateConf, f.ref, f.table, f.version)
	default:
		b.done(f.from, signal.NumTableDropConf, f.ref, f.table, f.version)
	}
}

// answered takes the record of a request that the president has answered; nil when there is none.
func (b *Block) answered(h *signal.Head, ref uint32) *request {
	if h.From.Node() != b.view.President || int(ref) >= len(b.forwards) || !b.forwards[ref].busy {
		b.Stale++
		return nil
	}
	f := b.forwards[ref]
	b.forwards[ref] = request{}
	return &f
}

func (b *Block) onTableDone(r *signal.TableDone) {
	if f := b.answered(&r.Head, r.Ref); f != nil {
		b.done(f.from, r.Num, f.ref, r.Table, r.Version)
	}
}

func (b *Block) onTableRef(r *signal.TableRef) {
	if f := b.answered(&r.Head, r.Ref); f != nil {
		b.ref(f.from, f.ref, r.Code)
	}
}

// orphan makes sure that nobody of a lost client is answered.
func (b *Block) orphan(n uint8) {
	gone := func(q *request) {
		if q.from.Node() == n {
			q.from = 0
		}
	}
	for i := range b.forwards {
		gone(&b.forwards[i])
	}
	for i := range b.lead.queue {
		gone(&b.lead.queue[i])
	}
	gone(&b.lead.now)
}

// forsake drops the requests that a lost node had passed on: whoever asked it asks another node, and nothing has
// happened. The one under way goes on.
func (b *Block) forsake(lost *signal.NodeSet) {
	l := &b.lead
	kept := l.queue[:0]
	for _, q := range l.queue {
		if n := q.from.Node(); n > signal.MaxDataNode || !lost.Has(n) {
			kept = append(kept, q)
		}
	}
	clear(l.queue[len(kept):])
	l.queue = kept
	if n := l.now.from.Node(); n <= signal.MaxDataNode && lost.Has(n) {
		l.now.from = 0
	}
}
