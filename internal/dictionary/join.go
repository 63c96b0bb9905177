package dictionary

// How a node that joins learns the tables, in its start phase 4:
//
//	new node's dictionary --SchemaJoinReq--> president's
//	president's --SchemaPrepareReq, SchemaCommitReq (Alone)--> new node's     for each table
//	president's --SchemaJoinConf--> new node's     with the versions of ids that are free
//
// No schema transaction runs meanwhile, and from then on the new node takes part in all of them. If the president is lost
// before, the new node forgets what it was told, and asks the next one.

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// askTables asks the president for all tables, if this node waits for them, has forgotten what a lost president had told
// it, and the present one takes requests.
func (b *Block) askTables() {
	if b.joining && b.settled && b.forget == keeps {
		kernel.Send[signal.SchemaJoinReq](b.env, signal.MakeAddr(b.view.President, signal.BlockDictionary, 0), b.self, signal.NumSchemaJoinReq)
	}
}

func (b *Block) onSchemaJoinReq(r *signal.SchemaJoinReq) {
	l := &b.lead
	n := r.From.Node()
	if !b.isPresident() || b.part != signal.PartFull || !b.view.Has(n) || l.alone == n || l.parts.Has(n) {
		b.Stale++
		return
	}
	l.newcomers.Add(n)
	b.takeNext()
}

// beginTelling begins to tell a node all tables.
func (b *Block) beginTelling(n uint8) {
	b.lead.alone = n
	b.lead.now, b.lead.def = request{}, nil
	b.tellNext(0)
}

// tellNext tells it the next table from an id on, or ends.
func (b *Block) tellNext(from uint32) {
	id := from
	for int(id) < len(b.tables) && b.tables[id].state != ready {
		id++
	}
	if int(id) == len(b.tables) {
		b.told(0)
		return
	}
	t := &b.tables[id]
	b.beginTx(preparingAll, signal.SchemaCreate, id, t.version, t.name)
	def, buckets, fragments := uint32(len(t.def)), uint32(len(t.buckets)), uint32(len(t.homes)/signal.MaxReplicas)
	size := signal.SchemaReqSize(def, buckets, fragments)
	b.toMembers(signal.NumSchemaPrepareReq, size, func(q *signal.SchemaReq) {
		q.DefLen, q.Buckets, q.Fragments = def, buckets, fragments
		clearTail(unsafe.Pointer(q), unsafe.Sizeof(*q), size)
		copy(q.Def(), t.def)
		copy(q.Map(), t.buckets)
		copy(q.Chains(), t.homes)
	})
}

// told ends the telling. From now on the node takes part, unless it could not hold a table: then it ends.
func (b *Block) told(code uint32) {
	l := &b.lead
	n := l.alone
	count := uint32(0)
	versions := func(f func(v uint32)) {
		for id := range b.tables {
			if t := &b.tables[id]; code == 0 && t.state == free && t.version != 0 {
				f(uint32(id)<<16 | t.version)
			}
		}
	}
	versions(func(uint32) { count++ })
	c := (*signal.SchemaJoinConf)(b.env.Put(signal.MakeAddr(n, signal.BlockDictionary, 0), b.self, signal.NumSchemaJoinConf, signal.SchemaJoinConfSize(count)))
	c.Code, c.Table, c.Count = code, l.table, count
	i := 0
	versions(func(v uint32) {
		c.Versions()[i] = v
		i++
	})
	if code == 0 {
		l.parts.Add(n)
	}
	l.state, l.alone, l.code = idle, 0, 0
	b.takeNext()
}

// onSchemaJoinConf hears that the president has told this node everything, and ends phase 4.
func (b *Block) onSchemaJoinConf(r *signal.SchemaJoinConf) {
	if r.From.Node() != b.view.President || !b.joining {
		b.Stale++
		return
	}
	invariant.That(b.local.doing == resting && b.forget == keeps, "a node that was told everything is at rest")
	b.joining = false
	if r.Code == 0 {
		for _, v := range r.Versions() {
			if id := v >> 16; int(id) < len(b.tables) {
				b.tables[id].version = v & 0xffff
			}
		}
		b.part = signal.PartFull
		b.env.Mark(kernel.MarkTablesTold)
		b.report(event.NRCopyDict, "", uint32(b.env.Node()), uint32(len(b.names)))
	}
	b.phaseConf(r.Code)
}
