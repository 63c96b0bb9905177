package ldm

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
)

// fragment is one fragment replica.
type fragment struct {
	rows     *store.Fragment
	layout   *schema.Layout
	table    *table
	number   uint32
	chain    [signal.MaxReplicas]signal.Addr // primary first
	replicas int
	pos      int // own place in the chain
	ops      int // operation records on it
	oneShots int // of them writes without a coordinator, as primary
	dropping bool
	dropFrom signal.Addr
	dropRef  uint32
}

func (f *fragment) tail() bool { return f.pos == f.replicas-1 }

// next is the ldm of the next replica down the chain.
func (f *fragment) next() signal.Addr { return f.chain[f.pos+1] }

// table is what an ldm knows of a table.
type table struct {
	layout    *schema.Layout
	version   uint16
	id        uint32
	closing   bool // no new one-shot operations
	frags     []*fragment
	held      int // fragments that live here
	closeFrom signal.Addr
	closeRef  uint32
}

func (b *Block) onFragCreateReq(r *signal.FragCreateReq) {
	code := b.fragCreate(r)
	b.fragConf(r.From, signal.NumFragCreateConf, r.Ref, r.Table, r.Frag, code)
}

func (b *Block) fragCreate(r *signal.FragCreateReq) uint32 {
	if int(r.Table) >= len(b.tables) {
		return codeNoTable
	}
	t := &b.tables[r.Table]
	if t.layout == nil {
		def, err := schema.DecodeTable(r.Def())
		invariant.That(err == nil, "the dictionary sends a definition that it has checked")
		layout, err := schema.Compile(def)
		invariant.That(err == nil, "the dictionary sends a definition that it has checked")
		*t = table{layout: layout, version: uint16(r.Version), id: r.Table}
	}
	invariant.That(t.version == uint16(r.Version), "a table has one version at a time")
	for len(t.frags) <= int(r.Frag) {
		t.frags = append(t.frags, nil)
	}
	invariant.That(t.frags[r.Frag] == nil, "a fragment is created once")
	f := &fragment{layout: t.layout, table: t, number: r.Frag, pos: -1}
	f.replicas = b.view.Chain(r.Chain[:r.Replicas], &f.chain)
	for i := range f.replicas {
		if f.chain[i] == b.self {
			f.pos = i
		}
	}
	invariant.That(f.pos >= 0, "a fragment replica is created at an ldm of its chain")
	l := t.layout
	f.rows = store.NewFragment(b.arena, store.Layout{KeyFixed: l.KeyFixed, FixedSize: l.FixedSize, HasVar: l.HasVar()})
	t.frags[r.Frag] = f
	t.held++
	return 0
}

func (b *Block) fragConf(to signal.Addr, num uint16, ref, table, frag, code uint32) {
	c := kernel.Send[signal.FragConf](b.env, to, b.self, num)
	c.Ref, c.Table, c.Frag, c.Code = ref, table, frag, code
}

// dropPages is how many pages go back in one step, so that a large drop does not keep operations waiting.
const dropPages = 64

func (b *Block) onFragDropReq(r *signal.FragDropReq) {
	t := &b.tables[r.Table%uint32(len(b.tables))]
	if t.id != r.Table || int(r.Frag) >= len(t.frags) || t.frags[r.Frag] == nil {
		b.fragConf(r.From, signal.NumFragDropConf, r.Ref, r.Table, r.Frag, 0)
		return
	}
	f := t.frags[r.Frag]
	if !f.dropping {
		f.dropping, f.dropFrom, f.dropRef = true, r.From, r.Ref
	}
	// Operations that are complete for their client may still be on their way out (locks of reads).
	if f.ops > 0 || !f.rows.DropStep(dropPages) {
		num, frag := r.Table, r.Frag
		s := kernel.Send[signal.FragDropReq](b.env, b.self, b.self, signal.NumDropStepOrd)
		s.Ref, s.Table, s.Frag = 0, num, frag
		return
	}
	id := r.Table
	t.frags[f.number] = nil
	b.fragConf(f.dropFrom, signal.NumFragDropConf, f.dropRef, id, f.number, 0)
	if t.held--; t.held == 0 {
		*t = table{}
	}
}

func (b *Block) onTableCloseReq(r *signal.TableCloseReq) {
	if int(r.Table) >= len(b.tables) || b.tables[r.Table].layout == nil {
		c := kernel.Send[signal.TableConf](b.env, r.From, b.self, signal.NumTableCloseConf)
		ref, id := r.Ref, r.Table
		c.Ref, c.Table, c.Code = ref, id, 0
		return
	}
	t := &b.tables[r.Table]
	t.closing, t.closeFrom, t.closeRef = true, r.From, r.Ref
	b.closeTable(t)
}

// closeTable answers a close when no write without a coordinator is under way on the table's primaries here.
func (b *Block) closeTable(t *table) {
	if t.closeFrom == 0 {
		return
	}
	for _, f := range t.frags {
		if f != nil && f.oneShots > 0 {
			return
		}
	}
	c := kernel.Send[signal.TableConf](b.env, t.closeFrom, b.self, signal.NumTableCloseConf)
	c.Ref, c.Table, c.Code = t.closeRef, t.id, 0
	t.closeFrom = 0
}

// lookup is the fragment that a client's request names, or an error code.
func (b *Block) lookup(id, version, frag uint16) (*fragment, uint32) {
	if int(id) >= len(b.tables) {
		return nil, codeNoTable
	}
	t := &b.tables[id]
	switch {
	case t.layout == nil:
		return nil, codeNoTable
	case t.version != version:
		return nil, codeOldVersion
	case int(frag) >= len(t.frags) || t.frags[frag] == nil || t.frags[frag].pos != 0:
		return nil, codeNotPrimary
	}
	return t.frags[frag], 0
}

// known is the fragment that another data node's signal names.
func (b *Block) known(id, frag uint16) *fragment {
	if int(id) < len(b.tables) && int(frag) < len(b.tables[id].frags) {
		if f := b.tables[id].frags[frag]; f != nil {
			return f
		}
	}
	invariant.Failf("fragment %d of table %d is not at %v", frag, id, b.self)
	return nil
}
