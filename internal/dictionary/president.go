package dictionary

// The president's part in a schema transaction:
//
//	create:  check --PlaceReq--> distribution --PlaceConf-->
//	         --SchemaPrepareReq--> all --SchemaPrepareConf--> ; --SchemaCommitReq--> all --SchemaCommitConf--> ; answer
//	         or, when a node could not prepare:                 --SchemaAbortReq--> all --SchemaAbortConf--> ; answer
//	drop:    check
//	         --SchemaPrepareReq--> all (coordinators close the table) --SchemaPrepareConf-->
//	         --SchemaCommitReq--> all (ldms give it up) --SchemaCommitConf--> ; answer
//
// | signal            | idle  | placing | preparing | committing | aborting |
// | PlaceConf         | never | go on   | never     | never      | never    |
// | SchemaPrepareConf | stale | stale   | count     | never      | never    |
// | SchemaCommitConf  | stale | never   | never     | count      | never    |
// | SchemaAbortConf   | stale | never   | never     | never      | count    |
//
// Stale is what belongs to a transaction that was given up with an attempt to start; it has an older number.

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
)

// step is where a schema transaction is.
type step uint8

const (
	// idle: none is under way.
	idle step = iota
	// placing: distribution was asked where the fragments go.
	placing
	// preparingAll: the members were asked to prepare.
	preparingAll
	// committingAll: all have prepared and were asked to commit.
	committingAll
	// abortingAll: one could not prepare; all were asked to undo.
	abortingAll
)

// stepConf is the answer that each step awaits.
var stepConf = [...]uint16{preparingAll: signal.NumSchemaPrepareConf, committingAll: signal.NumSchemaCommitConf, abortingAll: signal.NumSchemaAbortConf}

// leader is the president's part.
type leader struct {
	state   step
	queue   []request
	now     request // whose turn it is
	next    uint32  // number of the newest schema transaction
	table   uint32
	version uint32
	kind    uint32
	waiting signal.NodeSet // members whose answer is missing
	code    uint32         // first refusal of a member
	def     *schema.Table  // of a create
}

// enqueue takes a request; it is carried out when those before it are.
func (b *Block) enqueue(q request) {
	l := &b.lead
	if len(l.queue) >= queueMax {
		b.ref(q.from, q.ref, codeBusy)
		return
	}
	l.queue = append(l.queue, q)
	b.takeNext()
}

// takeNext begins with the next request if nothing is under way. One that is refused at once makes room for the next.
func (b *Block) takeNext() {
	l := &b.lead
	for l.state == idle && len(l.queue) > 0 {
		l.now = l.queue[0]
		copy(l.queue, l.queue[1:])
		l.queue[len(l.queue)-1] = request{}
		l.queue = l.queue[:len(l.queue)-1]
		code := uint32(0)
		if l.now.create {
			code = b.beginCreate()
		} else {
			code = b.beginDrop()
		}
		if code != 0 {
			b.ref(l.now.from, l.now.ref, code)
			l.now = request{}
		}
	}
}

// beginCreate checks a definition, chooses id and version, and asks for its place. It returns an error code, or 0.
func (b *Block) beginCreate() uint32 {
	l := &b.lead
	def, err := schema.DecodeTable(l.now.body)
	if err != nil {
		if e, ok := err.(*schema.Error); ok {
			return e.Code
		}
		return codeBadStructure
	}
	if _, t := b.lookup([]byte(def.Database + "/" + def.Name)); t != nil {
		return codeExists
	}
	if b.attributes+len(def.Columns) > b.cfg.MaxAttributes {
		return codeAttributes
	}
	id := 0
	for id < len(b.tables) && b.tables[id].state != free {
		id++
	}
	if id == len(b.tables) {
		return codeTables
	}
	def.ID, def.Version = uint32(id), b.tables[id].version%0xffff+1
	l.table, l.version, l.kind, l.def = def.ID, def.Version, signal.SchemaCreate, def
	l.state, l.code = placing, 0
	l.next++
	p := kernel.Send[signal.PlaceReq](b.env, signal.MakeAddr(b.env.Node(), signal.BlockDistribution, 0), b.self, signal.NumPlaceReq)
	p.Ref, p.Table, p.Fragments = l.next, def.ID, def.Fragments
	return 0
}

// onPlaceConf has the table's place, and lets all members prepare it.
func (b *Block) onPlaceConf(r *signal.PlaceConf) {
	l := &b.lead
	if l.state != placing || r.Ref != l.next {
		b.Stale++
		return
	}
	if r.Code != 0 {
		b.finish(r.Code)
		return
	}
	l.def.Fragments = r.Fragments
	def, err := l.def.AppendBinary(nil)
	if err != nil {
		invariant.Failf("a definition that was valid is not any more: %v", err)
	}
	l.state = preparingAll
	size := signal.SchemaReqSize(uint32(len(def)), r.Buckets, r.Fragments)
	b.toMembers(signal.NumSchemaPrepareReq, size, func(q *signal.SchemaReq) {
		q.DefLen, q.Buckets, q.Fragments = uint32(len(def)), r.Buckets, r.Fragments
		clearTail(unsafe.Pointer(q), unsafe.Sizeof(*q), size)
		copy(q.Def(), def)
		copy(q.Map(), r.Map())
		copy(q.Chains(), r.Chains())
	})
}

// beginDrop closes a table everywhere. It returns an error code, or 0.
func (b *Block) beginDrop() uint32 {
	l := &b.lead
	id, t := b.lookup(l.now.body)
	if t == nil {
		return codeNoTable
	}
	invariant.That(t.state == ready, "a table with a name is ready while no schema transaction is under way")
	l.table, l.version, l.kind, l.def = id, t.version, signal.SchemaDrop, nil
	l.state, l.code = preparingAll, 0
	l.next++
	b.toMembers(signal.NumSchemaPrepareReq, signal.SchemaReqSize(0, 0, 0), nil)
	return 0
}

// toMembers sends a step to every member; fill writes what only a prepare of a create has.
func (b *Block) toMembers(num uint16, size uint32, fill func(*signal.SchemaReq)) {
	l := &b.lead
	l.waiting = b.view.Set()
	for n := l.waiting.Next(0); n != 0; n = l.waiting.Next(n) {
		q := (*signal.SchemaReq)(b.env.Put(signal.MakeAddr(n, signal.BlockDictionary, 0), b.self, num, size))
		q.Ref, q.Kind, q.Table, q.Version = l.next, l.kind, l.table, l.version
		q.Asker, q.AskerRef, q.Alone, q.Code, q.Fragments, q.Buckets, q.DefLen = 0, 0, 0, 0, 0, 0, 0
		if fill != nil {
			fill(q)
		}
	}
}

// onSchemaConf counts a member's answer to the step that is out.
func (b *Block) onSchemaConf(r *signal.SchemaConf) {
	l := &b.lead
	n := r.From.Node()
	if r.Ref != l.next || !l.waiting.Has(n) {
		b.Stale++
		return
	}
	if r.Num != stepConf[l.state] {
		invariant.Failf("in step %d node %d answers %s", l.state, n, signal.Name(r.Num))
	}
	l.waiting.Remove(n)
	if r.Code != 0 && l.code == 0 {
		l.code = r.Code
	}
	if !l.waiting.Empty() {
		return
	}
	size := signal.SchemaReqSize(0, 0, 0)
	switch {
	case l.state == preparingAll && l.code != 0:
		invariant.That(l.kind == signal.SchemaCreate, "closing a table does not fail")
		l.state = abortingAll
		b.toMembers(signal.NumSchemaAbortReq, size, nil)
	case l.state == preparingAll:
		l.state = committingAll
		b.toMembers(signal.NumSchemaCommitReq, size, nil)
	default:
		b.finish(l.code)
	}
}

// finish answers the asker and takes the next request.
func (b *Block) finish(code uint32) {
	l := &b.lead
	q, kind := l.now, l.kind
	l.state, l.now, l.def = idle, request{}, nil
	switch {
	case code != 0:
		b.ref(q.from, q.ref, code)
	case kind == signal.SchemaCreate:
		b.report(event.CreateSchemaObject, b.tables[l.table].name, l.table, l.version, typeUserTable, uint32(q.from.Node()))
		b.done(q.from, signal.NumTableCreateConf, q.ref, l.table, l.version)
	default:
		b.report(event.DropSchemaObject, string(q.body), l.table, l.version, typeUserTable, uint32(q.from.Node()))
		b.done(q.from, signal.NumTableDropConf, q.ref, l.table, l.version)
	}
	b.takeNext()
}

func (l *leader) invariants(b *Block) {
	switch {
	case l.state == idle:
		invariant.That(l.waiting.Empty() && len(l.queue) == 0, "an idle president has nothing to do")
	case !b.isPresident():
		invariant.Failf("a schema transaction is led by node %d, who is not president", b.env.Node())
	}
	members := b.view.Set()
	if len(l.queue) > queueMax || !members.Covers(&l.waiting) {
		invariant.Failf("%d requests wait, or the president waits for a stranger", len(l.queue))
	}
}
