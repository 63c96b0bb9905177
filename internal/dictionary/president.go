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
// | signal            | idle  | asking | placing | preparing | committing | aborting |
// | PlaceConf         | never | never  | go on   | never     | never      | never    |
// | SchemaStateConf   | stale | count  | stale   | stale     | stale      | stale    |
// | SchemaPrepareConf | stale | stale  | stale   | count     | never      | never    |
// | SchemaCommitConf  | stale | stale  | never   | never     | count      | never    |
// | SchemaAbortConf   | stale | stale  | never   | never     | never      | count    |
//
// Stale is what belongs to a transaction that was given up with an attempt to start, or that a lost president led; it has
// an older number, or nobody waits for it.

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
	// asking: a new president has asked the members what they know (view.go).
	asking
)

// stepConf is the answer that each step awaits.
var stepConf = [...]uint16{preparingAll: signal.NumSchemaPrepareConf, committingAll: signal.NumSchemaCommitConf, abortingAll: signal.NumSchemaAbortConf,
	asking: 0}

// leader is the president's part.
type leader struct {
	state    step
	queue    []request
	now      request // whose turn it is
	next     uint32  // number of the newest schema transaction
	ref      uint32  // number of the one under way
	table    uint32
	version  uint32
	kind     uint32
	asker    signal.Addr // who has passed the request on
	askerRef uint32
	parts    signal.NodeSet // members that take part
	waiting  signal.NodeSet // members whose answer is missing
	code     uint32         // first refusal of a member
	name     string         // of the table
	def      *schema.Table  // of a create

	newcomers signal.NodeSet // who waits to be told all tables
	alone     uint8          // who is being told them; 0 = nobody

	asked    uint32 // view in which the members were asked
	found    found  // what they answered
	resuming bool   // the transaction is one that a lost president had begun
}

// enqueue takes a request; it is carried out when those before it are.
func (b *Block) enqueue(q request) {
	l := &b.lead
	if len(l.queue) >= queueMax {
		b.ref(q.from, q.ref, codeBusy)
		return
	}
	l.queue = append(l.queue, request{from: q.from, ref: q.ref, create: q.create, body: q.body})
	b.takeNext()
}

// takeNext begins with the next request if nothing is under way. One that is refused at once makes room for the next. A
// node that joins comes before all of them.
func (b *Block) takeNext() {
	l := &b.lead
	for b.settled && !b.over.turns() && l.state == idle && (len(l.queue) > 0 || !l.newcomers.Empty()) {
		if n := l.newcomers.Next(0); n != 0 {
			l.newcomers.Remove(n)
			b.beginTelling(n)
			continue
		}
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
	l.def = def
	b.beginTx(placing, signal.SchemaCreate, def.ID, def.Version, def.Database+"/"+def.Name)
	p := kernel.Send[signal.PlaceReq](b.env, signal.MakeAddr(b.env.Node(), signal.BlockDistribution, 0), b.self, signal.NumPlaceReq)
	p.Ref, p.Table, p.Fragments = l.ref, def.ID, def.Fragments
	return 0
}

// onPlaceConf has the table's place, and lets all members prepare it.
func (b *Block) onPlaceConf(r *signal.PlaceConf) {
	l := &b.lead
	if l.state != placing || r.Ref != l.ref {
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
	b.beginTx(preparingAll, signal.SchemaDrop, id, t.version, t.name)
	b.toMembers(signal.NumSchemaPrepareReq, signal.SchemaReqSize(0, 0, 0), nil)
	return 0
}

// beginTx begins a schema transaction for the request whose turn it is.
func (b *Block) beginTx(state step, kind, table, version uint32, name string) {
	l := &b.lead
	l.next++
	l.ref = l.next
	l.state, l.kind, l.table, l.version, l.name, l.code = state, kind, table, version, name, 0
	l.asker, l.askerRef = 0, 0
	if l.now.from.Block() == signal.BlockDictionary {
		l.asker, l.askerRef = l.now.from, l.now.ref
	}
}

// toMembers sends a step to every member that takes part, or to the one that is told what it has missed; fill writes what
// only a prepare of a create has.
func (b *Block) toMembers(num uint16, size uint32, fill func(*signal.SchemaReq)) {
	l := &b.lead
	l.waiting = l.parts
	alone := uint32(0)
	if l.alone != 0 {
		l.waiting, alone = signal.NodeSet{}, 1
		l.waiting.Add(l.alone)
	}
	for n := l.waiting.Next(0); n != 0; n = l.waiting.Next(n) {
		q := (*signal.SchemaReq)(b.env.Put(signal.MakeAddr(n, signal.BlockDictionary, 0), b.self, num, size))
		q.Ref, q.Kind, q.Table, q.Version = l.ref, l.kind, l.table, l.version
		q.Asker, q.AskerRef, q.Alone, q.Code = l.asker, l.askerRef, alone, l.code
		q.Fragments, q.Buckets, q.DefLen = 0, 0, 0
		if fill != nil {
			fill(q)
		}
	}
}

// onSchemaConf counts a member's answer to the step that is out.
func (b *Block) onSchemaConf(r *signal.SchemaConf) {
	l := &b.lead
	n := r.From.Node()
	if r.Ref != l.ref || !l.waiting.Has(n) || l.state == asking {
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
	b.stepOver()
}

// stepOver goes on when nobody's answer is missing.
func (b *Block) stepOver() {
	l := &b.lead
	if !l.waiting.Empty() {
		return
	}
	size := signal.SchemaReqSize(0, 0, 0)
	switch {
	case l.state == idle || l.state == placing:
	case l.state == asking:
		b.resume()
	case l.state == preparingAll && l.code != 0 && l.alone != 0:
		b.told(l.code)
	case l.state == preparingAll && l.code != 0:
		invariant.That(l.kind == signal.SchemaCreate, "closing a table does not fail")
		l.state = abortingAll
		b.toMembers(signal.NumSchemaAbortReq, size, nil)
	case l.state == preparingAll && l.kind == signal.SchemaDrop && b.over.holds():
		b.env.Mark(kernel.MarkDropHeld) // what the lost members had begun on the table may still be under way
	case l.state == preparingAll:
		l.state = committingAll
		b.toMembers(signal.NumSchemaCommitReq, size, nil)
	case l.alone != 0:
		b.tellNext(l.table + 1)
	default:
		b.finish(l.code)
	}
}

// finish answers the asker and takes the next request.
func (b *Block) finish(code uint32) {
	l := &b.lead
	q, asker := l.now, l.now.from.Node()
	if l.resuming {
		asker = l.asker.Node()
	}
	l.state, l.now, l.def = idle, request{}, nil
	switch {
	case code != 0:
		b.ref(q.from, q.ref, code)
	case l.kind == signal.SchemaCreate:
		b.report(event.CreateSchemaObject, l.name, l.table, l.version, typeUserTable, uint32(asker))
		b.done(q.from, signal.NumTableCreateConf, q.ref, l.table, l.version)
	default:
		b.report(event.DropSchemaObject, l.name, l.table, l.version, typeUserTable, uint32(asker))
		b.done(q.from, signal.NumTableDropConf, q.ref, l.table, l.version)
	}
	if l.resuming {
		b.letGo()
		return
	}
	b.turn()
	b.takeNext()
}

func (l *leader) invariants(b *Block) {
	members := b.view.Set()
	switch {
	case l.state == idle:
		invariant.That(l.waiting.Empty() && l.alone == 0, "an idle president waits for nobody")
		invariant.That(!b.settled || b.over.turns() || len(l.queue) == 0 && l.newcomers.Empty(), "an idle president has nothing to do")
	case !b.isPresident():
		invariant.Failf("a schema transaction is led by node %d, who is not president", b.env.Node())
	case l.state != placing && l.waiting.Empty():
		invariant.That(l.kind == signal.SchemaDrop && l.state == preparingAll && b.over.holds(), "a step waits for somebody, or for the end of a takeover")
	}
	if len(l.queue) > queueMax || !members.Covers(&l.waiting) || !members.Covers(&l.parts) || !members.Covers(&l.newcomers) {
		invariant.Failf("%d requests wait, or the president waits for a stranger", len(l.queue))
	}
}
