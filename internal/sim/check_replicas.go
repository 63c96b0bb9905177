package sim

import (
	"bytes"
	"unsafe"

	"github.com/cohortdb/cohort/internal/client"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
)

// checkReplicas demands that all replicas of each fragment hold the same rows: row id, key, columns, epoch, no lock, a
// right checksum.
func checkReplicas(x *run) {
	for _, r := range x.load.tables {
		f := x.load.opened[tableKey{x.apis[0], r}]
		if f == nil {
			continue
		}
		t := f[wholeRow].Table()
		for frag := range t.Fragments() {
			x.compareFragment(r, t, frag)
		}
	}
}

func (x *run) compareFragment(r *relation, t *client.Table, frag int) {
	var first *store.Fragment
	var at signal.Addr
	for _, a := range t.Chain(frag) {
		f := x.cluster.fragment(a, uint32(t.ID()), uint32(frag))
		if f == nil {
			x.net.failf("%s: %v has no replica of fragment %d", r.name, a, frag)
			return
		}
		if first == nil {
			first, at = f, a
		}
		if x.net.failure == nil {
			x.compareReplicas(r, t, frag, first, f, at, a)
		}
	}
}

// compareReplicas compares two replicas row by row. The first one is compared with itself too, for what must hold of
// every row.
func (x *run) compareReplicas(r *relation, t *client.Table, frag int, f, g *store.Fragment, at, other signal.Addr) {
	differ := func(what string, id store.RowID) {
		x.net.failf("%s fragment %d: %s of row id %d differs between %v and %v", r.name, frag, what, id, at, other)
	}
	if f.Rows() != g.Rows() {
		x.net.failf("%s fragment %d: %v has %d rows, %v has %d", r.name, frag, at, f.Rows(), other, g.Rows())
		return
	}
	af, ag := store.NoRow, store.NoRow
	for {
		h, id, ok := f.NextRow(af)
		k, id2, ok2 := g.NextRow(ag)
		switch {
		case ok != ok2 || ok && id != id2:
			differ("the presence", min(id, id2))
			return
		case !ok:
			return
		case h.Lock != 0 || k.Lock != 0:
			x.net.failf("%s fragment %d: row id %d is locked at rest: %x at %v, %x at %v", r.name, frag, id, h.Lock, at, k.Lock, other)
			return
		case h.GCI() != k.GCI():
			differ("the epoch ("+signal.GCI(h.GCI()).String()+" and "+signal.GCI(k.GCI()).String()+")", id)
			return
		case !f.CheckSum(h) || !g.CheckSum(k):
			x.net.failf("%s fragment %d: the checksum of row id %d is wrong at %v or %v", r.name, frag, id, at, other)
			return
		}
		if !same(f.Key(h))(g.Key(k)) {
			differ("the key", id)
			return
		}
		size := t.Layout.FixedSize
		if !same(f.Fixed(h), size)(g.Fixed(k), size) {
			differ("a fixed column", id)
			return
		}
		if t.Layout.HasVar() && !same(f.Var(h))(g.Var(k)) {
			differ("a variable column", id)
			return
		}
		af, ag = id, id2
	}
}

// same compares two pieces of memory.
func same(p unsafe.Pointer, n uint32) func(q unsafe.Pointer, m uint32) bool {
	return func(q unsafe.Pointer, m uint32) bool {
		return n == m && bytes.Equal(unsafe.Slice((*byte)(p), n), unsafe.Slice((*byte)(q), m))
	}
}
