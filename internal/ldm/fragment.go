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
	rows   *store.Fragment
	layout *schema.Layout
	table  *table
	number uint32
	home   [signal.MaxReplicas]signal.Addr // places, the preferred primary first
	homes  int                             // how many of them are used

	// What follows from the view (view.go).
	primary bool                            // in the committed view it is the primary
	frozen  bool                            // … and will not be in the one that is prepared: it takes no new operations
	down    below                           // at the primary: who takes a write behind it, next first
	order   [signal.MaxReplicas]signal.Addr // who takes a write, primary first, but for those that copy the fragment
	// arrangedIn is the number of the newest view in which that has changed, or somebody copies the fragment.
	arrangedIn uint32
	touched    uint32 // number of the newest view that lost a member of its node group
	// passed: a primary of a newer view than the committed one has let an operation through: what is read here may be older
	// than what somebody has read there.
	passed bool

	attached below    // at the primary: recovering members that copy the fragment, or have: they come first in down
	source   *copying // at the primary: the copy under way, or nil
	target   target   // at a recovering member

	ghosts   uint32 // list of ghosts, by up and down
	ops      int    // operation records on it
	oneShots int    // of them writes without a coordinator, as primary
	dropping bool
	dropFrom signal.Addr
	dropRef  uint32
}

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
	f, code := b.fragCreate(r)
	if code == 0 && b.copyAll && b.recovering() {
		b.copyNew(f, r.From, r.Ref)
		return
	}
	b.fragConf(r.From, signal.NumFragCreateConf, r.Ref, r.Table, r.Frag, code)
}

func (b *Block) fragCreate(r *signal.FragCreateReq) (*fragment, uint32) {
	if int(r.Table) >= len(b.tables) {
		return nil, codeNoTable
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
	f := &fragment{layout: t.layout, table: t, number: r.Frag, home: r.Chain, homes: int(r.Replicas), ghosts: signal.NoRef}
	here := false
	for _, p := range f.places() {
		here = here || b.view.Ldm(p) == b.self
	}
	invariant.That(here, "a fragment replica is created at an ldm of its home")
	f.arrangedIn = b.view.Number - 1
	b.view.Chain(f.places(), &f.order)
	b.chain(f)
	l := t.layout
	f.rows = store.NewFragment(b.arena, store.Layout{KeyFixed: l.KeyFixed, FixedSize: l.FixedSize, HasVar: l.HasVar()})
	t.frags[r.Frag] = f
	t.held++
	return f, 0
}

// places is where the fragment belongs.
func (f *fragment) places() []signal.Addr { return f.home[:f.homes] }

func (b *Block) fragConf(to signal.Addr, num uint16, ref, table, frag, code uint32) {
	c := kernel.Send[signal.FragConf](b.env, to, b.self, num)
	c.Ref, c.Table, c.Frag, c.Code = ref, table, frag, code
}

// dropPages is how many pages go back in one step, so that a large drop does not keep operations waiting.
const dropPages = 64

func (b *Block) onFragDropReq(r *signal.FragDropReq) {
	f := b.fragment(r.Table, r.Frag)
	if f == nil {
		b.fragConf(r.From, signal.NumFragDropConf, r.Ref, r.Table, r.Frag, 0)
		return
	}
	if !f.dropping {
		f.dropping, f.dropFrom, f.dropRef = true, r.From, r.Ref
		f.source = nil
		b.copyDropped(f)
	}
	// Operations that are complete for their client may still be on their way out (locks of reads).
	if f.ops > 0 || !f.rows.DropStep(dropPages) {
		num, frag := r.Table, r.Frag
		s := kernel.Send[signal.FragDropReq](b.env, b.self, b.self, signal.NumDropStepOrd)
		s.Ref, s.Table, s.Frag = 0, num, frag
		return
	}
	b.fragConf(f.dropFrom, signal.NumFragDropConf, f.dropRef, r.Table, f.number, 0)
	b.forgetFragment(f)
}

// forgetFragment ends a fragment that has no page and no operation.
func (b *Block) forgetFragment(f *fragment) {
	t := f.table
	t.frags[f.number] = nil
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
	b.closes = append(b.closes, r.Table)
	b.closeTables()
}

// closeTables answers closes of tables when no write without a coordinator is under way on their primaries here.
func (b *Block) closeTables() {
	n := 0
	for _, id := range b.closes {
		if t := &b.tables[id]; t.closeFrom != 0 && !b.closeTable(t) {
			b.closes[n] = id
			n++
		}
	}
	b.closes = b.closes[:n]
	b.awaited = b.awaited || n > 0
}

func (b *Block) closeTable(t *table) (done bool) {
	for _, f := range t.frags {
		if f != nil && f.oneShots > 0 {
			return false
		}
	}
	c := kernel.Send[signal.TableConf](b.env, t.closeFrom, b.self, signal.NumTableCloseConf)
	c.Ref, c.Table, c.Code = t.closeRef, t.id, 0
	t.closeFrom = 0
	return true
}

// lookup is the fragment that a client or a coordinator names, or an error code. write: a lock is asked for.
func (b *Block) lookup(id, version, frag uint16, write bool) (*fragment, uint32) {
	if int(id) >= len(b.tables) {
		return nil, codeNoTable
	}
	t := &b.tables[id]
	switch {
	case t.layout == nil:
		return nil, codeNoTable
	case t.version != version:
		return nil, codeOldVersion
	case int(frag) >= len(t.frags) || t.frags[frag] == nil:
		return nil, codeNotPrimary
	}
	f := t.frags[frag]
	if !f.primary || f.frozen && (write || f.passed) {
		return nil, codeNotPrimary
	}
	return f, 0
}

// fragment is the replica of a fragment that is here, or nil; both numbers may be anything.
func (b *Block) fragment(id, frag uint32) *fragment {
	if id < uint32(len(b.tables)) && frag < uint32(len(b.tables[id].frags)) {
		return b.tables[id].frags[frag]
	}
	return nil
}

// known is the fragment that another data node's signal names.
func (b *Block) known(id, frag uint16) *fragment {
	if f := b.fragment(uint32(id), uint32(frag)); f != nil {
		return f
	}
	invariant.Failf("fragment %d of table %d is not at %v", frag, id, b.self)
	return nil
}
