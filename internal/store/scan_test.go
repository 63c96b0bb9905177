package store

import (
	"testing"
	"unsafe"
)

// slotsOf is everything that a scan gives.
func slotsOf(f *Fragment) (all []Slots) {
	for at := RowID(0); ; {
		s, ok := f.NextSlots(at)
		if !ok {
			return all
		}
		all = append(all, s)
		at = s.First + s.N
	}
}

// TestAScanTellsWhatAnotherReplicaNeeds copies what a scan gives to a second fragment, in which rows come later than what
// free slots remember, and expects the same memory there.
func TestAScanTellsWhatAnotherReplicaNeeds(t *testing.T) {
	a := newArena(64)
	l := Layout{KeyFixed: 8, FixedSize: 400}
	f, g := NewFragment(a, l), NewFragment(a, l)
	per := uint64(f.slots.perPage)
	ids := map[uint64]RowID{}
	for k := range 4 * per {
		_, id := mustInsert(t, f, k)
		ids[k] = id
	}
	del := func(k, gci uint64) { f.Remove(hash8(&k), ids[k], gci) }
	for k := range per { // the first page is given back
		del(k, 100+k)
	}
	for k := per; k < per+5; k++ { // five that remember the same, behind each other
		del(k, 7)
	}
	del(per+9, 8)
	del(4*per-1, 1<<40)
	got := slotsOf(f)
	used, free := 0, 0
	for i, s := range got {
		if i > 0 && s.First <= got[i-1].First {
			t.Fatalf("%v comes behind %v", s, got[i-1])
		}
		if s.Used {
			used++
			continue
		}
		free++
		if !g.Forget(s.First, s.N, s.GCI) {
			t.Fatalf("%v cannot be remembered", s)
		}
	}
	if used != int(3*per)-7 || got[0] != (Slots{First: ids[0], N: uint32(per), GCI: 100 + per - 1}) || free != 4 {
		t.Fatalf("%d used, %d free runs; the first is %v", used, free, got[0])
	}
	for _, s := range got {
		if s.Used {
			p, _ := f.Key(f.Row(s.First))
			k := *(*uint64)(p)
			if _, code := g.InsertAt(s.First, hash8(&k), unsafe.Pointer(&k), 8, 0); code != 0 {
				t.Fatal(code)
			}
		}
	}
	for _, s := range got {
		if !s.Used {
			g.Forget(s.First, s.N, s.GCI) // now that the pages are there
		}
	}
	for lp := range uint32(4) {
		for i := range f.slots.perPage {
			id := lp<<f.slots.slotBits | i
			if f.slots.inUse(id) != g.slots.inUse(id) {
				t.Fatalf("slot %#x is used here: %v, there: %v", id, f.slots.inUse(id), g.slots.inUse(id))
			}
			if !f.slots.inUse(id) && f.SlotGCI(id) != g.SlotGCI(id) {
				t.Fatalf("slot %#x remembers %d here, %d there", id, f.SlotGCI(id), g.SlotGCI(id))
			}
		}
	}
}

// TestForgetChecksItsSlots: the ids come from another node.
func TestForgetChecksItsSlots(t *testing.T) {
	f := NewFragment(newArena(8), Layout{KeyFixed: 8, FixedSize: 4})
	_, id := mustInsert(t, f, 1)
	p := f.slots.perPage
	for _, bad := range [][2]uint32{{NoRow, 1}, {id, 0}, {id, p + 1}, {p, 1}, {p - 1, 2}, {f.slots.maxPages << f.slots.slotBits, 1}, {0, ^uint32(0)}} {
		if f.Forget(bad[0], bad[1], 5) {
			t.Errorf("%d slots from %#x are taken", bad[1], bad[0])
		}
	}
	if !f.Forget(id, 2, 5) || f.SlotGCI(id+1) != 5 {
		t.Fatal("a free slot beside a row does not remember")
	}
	if r, ok := f.CheckedRow(id); !ok || r.GCI() == 5 {
		t.Fatal("a row was taken for a free slot")
	}
	if f.Forget(3<<f.slots.slotBits, 4, 9); f.SlotGCI(3<<f.slots.slotBits|7) != 9 {
		t.Fatal("a page that is not there does not remember for all of it")
	}
	if rows, _, _ := f.Pages(); rows != 1 {
		t.Fatalf("%d pages are held for one row", rows)
	}
}
