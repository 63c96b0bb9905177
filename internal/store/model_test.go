package store

import (
	"bytes"
	"fmt"
	"math/rand"
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/rowhash"
)

// model is a fragment beside what it must hold, and a twin that takes the same slots: the backup.
type model struct {
	t       testing.TB
	l       Layout
	arena   [2]*Arena
	source  [2]*LocalSource
	f       [2]*Fragment
	rows    map[string]*modelRow
	keys    []string // of rows, in any order
	hidden  []*modelRow
	deleted map[RowID]uint64 // newest delete of a free slot
	gci     uint64
	full    int // operations that failed for want of memory
}

type modelRow struct {
	key    string
	at     int // in keys
	id     RowID
	lock   uint32
	gci    uint64
	fixed  []byte
	vari   []byte
	hasVar bool
}

func words(n int) int { return (n + 3) &^ 3 }

func at(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// aligned gives the bytes of a key a place of their own, as a signal does.
func aligned(b []byte) []byte {
	w := make([]uint64, len(b)/8+1)
	c := unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), len(b))
	copy(c, b)
	return c
}

func newModel(t testing.TB, l Layout, pages, backupPages int) *model {
	m := &model{t: t, l: l, rows: map[string]*modelRow{}, deleted: map[RowID]uint64{}}
	for i, n := range []int{pages, backupPages} {
		r, s := NewLocalSource(uint64(n)<<PageBits, 8<<PageBits, true)
		m.source[i] = s
		m.arena[i] = NewArena(r, s)
		m.f[i] = NewFragment(m.arena[i], l)
	}
	return m
}

func (m *model) key(n uint32) []byte {
	if m.l.KeyFixed > 0 {
		b := make([]byte, m.l.KeyFixed)
		for i := range b {
			b[i] = byte(n >> (i % 4 * 8))
		}
		return aligned(b)
	}
	b := fmt.Appendf(nil, "%d", n)
	for range n % 40 {
		b = append(b, 'k')
	}
	return aligned(append(b, make([]byte, words(len(b))-len(b))...))
}

func (m *model) hash(key []byte) uint64 { return rowhash.Hash(at(key), uint32(len(key))) }

func (m *model) find(key []byte) *modelRow {
	want := m.rows[string(key)]
	for i, f := range m.f {
		r, id := f.Find(m.hash(key), at(key), uint32(len(key)))
		switch {
		case (want == nil) != (r == nil):
			m.t.Fatalf("replica %d: key %x found: %v, should be: %v", i, key, r != nil, want != nil)
		case want == nil && id != NoRow:
			m.t.Fatalf("replica %d: an id for a key that is not there", i)
		case want != nil && id != want.id:
			m.t.Fatalf("replica %d: key %x has id %#x, should have %#x", i, key, id, want.id)
		}
	}
	return want
}

// write sets everything of a row behind its key on one replica.
func (m *model) write(f *Fragment, w *modelRow) (code uint32) {
	r := f.Row(w.id)
	if w.hasVar {
		if code := f.SetVar(r, at(w.vari), uint32(len(w.vari))); code != 0 {
			return code
		}
	}
	copy(unsafe.Slice((*byte)(f.Fixed(r)), len(w.fixed)), w.fixed)
	r.SetGCI(w.gci)
	r.Lock = w.lock
	f.UpdateSum(r)
	return 0
}

func (m *model) content(rng *rand.Rand, w *modelRow) {
	w.fixed = make([]byte, m.l.FixedSize)
	rng.Read(w.fixed)
	if m.l.HasVar {
		n := rng.Intn(60)
		switch rng.Intn(20) {
		case 0:
			n = rng.Intn(30000 - 200)
		case 1, 2:
			n = rng.Intn(2000)
		case 3:
			n = 0
		}
		w.vari, w.hasVar = aligned(make([]byte, words(n))), true
		rng.Read(w.vari)
	}
	m.gci++
	w.gci = m.gci
}

func (m *model) insert(rng *rand.Rand, key []byte) {
	p, b := m.f[0], m.f[1]
	r, id, code := p.Insert(m.hash(key), at(key), uint32(len(key)), LockInsert|7)
	if code != 0 {
		if code != CodeNoMemory {
			m.t.Fatalf("insert: code %d", code)
		}
		m.full++
		return
	}
	if r.Lock != LockInsert|7 || p.Row(id) != r {
		m.t.Fatal("insert: wrong row or lock")
	}
	if g := r.GCI(); g != m.deleted[id] && (g < m.deleted[id] || g > m.gci) {
		m.t.Fatalf("insert: slot %#x remembers %d, deleted at %d", id, g, m.deleted[id])
	}
	old := r.GCI()
	w := &modelRow{key: string(key), id: id}
	m.content(rng, w)
	if m.write(p, w) != 0 { // roll back, as the LDM does
		m.full++
		p.Remove(m.hash(key), id, old)
		m.deleted[id] = old
		return
	}
	if _, code := b.InsertAt(id, m.hash(key), at(key), uint32(len(key)), 0); code != 0 || m.write(b, w) != 0 {
		if code != 0 && code != CodeNoMemory {
			m.t.Fatalf("insert at %#x: code %d", id, code)
		}
		m.full++
		if code == 0 {
			b.Remove(m.hash(key), id, old)
		}
		p.Remove(m.hash(key), id, old)
		m.deleted[id] = old
		return
	}
	if _, code := b.InsertAt(id, m.hash(key), at(key), uint32(len(key)), 0); code != CodeRowIDTaken {
		m.t.Fatalf("a slot could be taken twice: code %d", code)
	}
	delete(m.deleted, id)
	w.at = len(m.keys)
	m.rows[w.key] = w
	m.keys = append(m.keys, w.key)
}

func (m *model) update(rng *rand.Rand, w *modelRow) {
	n := *w
	m.content(rng, &n)
	n.lock = rng.Uint32()
	if n.hasVar && rng.Intn(2) == 0 { // in two steps, as two-phase commit does
		var ref [2]VarRef
		for i, f := range m.f {
			var code uint32
			if ref[i], code = f.NewVar(f.Row(w.id), at(n.vari), uint32(len(n.vari))); code != 0 {
				m.full++
				if i == 1 {
					m.f[0].FreeVar(ref[0])
				}
				return
			}
			if p, l := f.VarOf(ref[i]); !bytes.Equal(unsafe.Slice((*byte)(p), l), n.vari) {
				m.t.Fatal("NewVar holds something else")
			}
		}
		if rng.Intn(4) == 0 {
			m.f[0].FreeVar(ref[0])
			m.f[1].FreeVar(ref[1])
			return
		}
		for i, f := range m.f {
			f.SwapVar(f.Row(w.id), ref[i])
		}
		n.hasVar = false
	}
	if m.write(m.f[0], &n) != 0 {
		m.full++
		return
	}
	if m.write(m.f[1], &n) != 0 {
		m.full++
		if m.write(m.f[0], w) != 0 {
			m.t.Fatal("there was room for the old variable part just now")
		}
		return
	}
	n.hasVar = m.l.HasVar
	*w = n
}

func (m *model) remove(rng *rand.Rand, w *modelRow) {
	m.gci++
	h := m.hash(aligned([]byte(w.key)))
	for _, f := range m.f {
		f.Unindex(h, w.id)
	}
	last := m.rows[m.keys[len(m.keys)-1]]
	m.keys[w.at], last.at = last.key, w.at
	m.keys = m.keys[:len(m.keys)-1]
	delete(m.rows, w.key)
	w.gci = m.gci
	m.hidden = append(m.hidden, w)
	if rng.Intn(3) > 0 {
		m.complete()
	}
}

// complete frees the slots of deleted rows.
func (m *model) complete() {
	for _, w := range m.hidden {
		for _, f := range m.f {
			f.FreeSlot(w.id, w.gci)
			if _, ok := f.CheckedRow(w.id); ok {
				m.t.Fatal("a freed slot is in use")
			}
		}
		m.deleted[w.id] = w.gci
	}
	m.hidden = m.hidden[:0]
}

// check compares everything.
func (m *model) check() {
	for i, f := range m.f {
		if f.Rows() != uint64(len(m.rows)) {
			m.t.Fatalf("replica %d: %d rows, should be %d", i, f.Rows(), len(m.rows))
		}
		n := 0
		before := NoRow
		for r, id, ok := f.NextRow(NoRow); ok; r, id, ok = f.NextRow(id) {
			if before != NoRow && id <= before {
				m.t.Fatal("NextRow is not in order")
			}
			before = id
			kp, kn := f.Key(r)
			key := string(unsafe.Slice((*byte)(kp), kn))
			w := m.rows[key]
			if w == nil || w.id != id {
				for _, x := range m.hidden {
					if x.id == id {
						w = x
					}
				}
			} else {
				n++
			}
			if w == nil || w.key != key {
				m.t.Fatalf("replica %d: a row at %#x that should not be there", i, id)
			}
			if f.HashRow(r) != m.hash([]byte(key)) {
				m.t.Fatal("HashRow")
			}
			if fixed := unsafe.Slice((*byte)(f.Fixed(r)), len(w.fixed)); !bytes.Equal(fixed, w.fixed) {
				m.t.Fatalf("replica %d: fixed image of %#x is %x, should be %x", i, id, fixed, w.fixed)
			}
			if p, l := f.Var(r); !bytes.Equal(unsafe.Slice((*byte)(p), l), w.vari) {
				m.t.Fatalf("replica %d: variable image of %#x differs", i, id)
			}
			if !f.CheckSum(r) {
				m.t.Fatalf("replica %d: checksum of %#x", i, id)
			}
			if w == m.rows[key] && (r.GCI() != w.gci || r.Lock != w.lock) {
				m.t.Fatalf("replica %d: header of %#x", i, id)
			}
			if o := m.f[1-i].Row(id); o.Sum != r.Sum {
				m.t.Fatal("the checksums of two replicas differ")
			}
		}
		if n != len(m.rows) {
			m.t.Fatalf("replica %d: NextRow met %d rows of %d", i, n, len(m.rows))
		}
		for id, g := range m.deleted {
			if got := f.SlotGCI(id); got < g || got > m.gci {
				m.t.Fatalf("replica %d: slot %#x remembers %d, was deleted at %d", i, id, got, g)
			}
		}
		checkFragment(m.t, f)
		r, v, x := f.Pages()
		a := m.arena[i]
		if a.Used(KindRows) != r || a.Used(KindVar) != v || a.Used(KindIndex) != x {
			m.t.Fatalf("replica %d: pages: arena says %v, fragment %d %d %d", i, a.used, r, v, x)
		}
		checkArena(m.t, a, m.source[i])
	}
	for _, k := range m.keys {
		m.find(aligned([]byte(k)))
	}
}

// checkArena: pages free and in use add up, chunks too.
func checkArena(t testing.TB, a *Arena, s *LocalSource) {
	t.Helper()
	free := uint32(0)
	lists := 0
	for c := a.avail; c != 0; c = a.r.chunks[c-1].next {
		for m := a.r.chunks[c-1].free; m != 0; m &= m - 1 {
			free++
		}
		lists++
	}
	inChunks := uint32(0)
	isFree := map[uint32]bool{}
	for _, c := range s.free {
		isFree[c] = true
	}
	for c := range a.r.Chunks() {
		if !isFree[c] {
			_, n := a.r.Chunk(c)
			inChunks += n >> PageBits
		}
	}
	if free+a.UsedPages() != inChunks || int(a.Chunks())+s.Free() != int(a.r.Chunks()) {
		t.Fatalf("arena: %d free and %d used pages in chunks of %d", free, a.UsedPages(), inChunks)
	}
	if a.UsedPages() == 0 && a.Chunks() != 0 {
		t.Fatal("an unused arena keeps chunks")
	}
}

// checkFragment: index, slots and variable parts agree with each other.
func checkFragment(t testing.TB, f *Fragment) {
	t.Helper()
	x := &f.idx
	seen := map[RowID]bool{}
	overSeen := uint32(0)
	for i := range x.n {
		for b, o := x.at(i), uint32(0); ; {
			if o != 0 && b.used() == 0 {
				t.Fatal("an empty overflow bucket")
			}
			for e, tag := range b.tag {
				if tag == 0 {
					continue
				}
				id := b.row[e]
				if seen[id] || !f.slots.inUse(id) {
					t.Fatalf("bucket %d: row %#x twice, or not in use", i, id)
				}
				seen[id] = true
				h := f.hashOf(f.Row(id))
				if tagOf(h) != tag || x.bucket(h) != x.at(i) {
					t.Fatalf("row %#x is in the wrong bucket or has the wrong tag", id)
				}
			}
			if o = b.next; o == 0 {
				break
			}
			overSeen++
			b = x.overAt(o)
		}
	}
	if uint64(len(seen)) != f.rows {
		t.Fatalf("index has %d rows of %d", len(seen), f.rows)
	}
	if _, over := f.Stats(); over != overSeen {
		t.Fatalf("%d overflow buckets in use, %d in chains", over, overSeen)
	}
	if f.rows == 0 && x.n != 0 {
		t.Fatal("an empty index has buckets")
	}
	if f.rows > 0 && (f.rows > growRows*2*uint64(x.n) || x.n > 1 && f.rows*4 < uint64(x.n)) {
		t.Logf("index of %d buckets for %d rows", x.n, f.rows)
	}
	checkSlots(t, &f.slots)
	checkSlots(t, &x.over)
	if f.varAt != 0 {
		checkVar(t, f)
	}
}

func checkSlots(t testing.TB, s *slotPages) {
	t.Helper()
	listed := map[uint32]bool{}
	for p, before := s.avail, uint32(0); p != 0; before, p = p, s.head(p-1).next {
		if listed[p-1] || s.head(p-1).prev != before {
			t.Fatal("list of pages with room is broken")
		}
		listed[p-1] = true
	}
	absent := uint32(0)
	for lp := range uint32(len(s.pages)) {
		if s.pages[lp] == noPage {
			if absent++; lp < s.low {
				t.Fatal("an absent page below low")
			}
			continue
		}
		h := s.head(lp)
		free := uint32(0)
		for w := range s.words {
			for i := range uint32(64) {
				if *word(h, w)>>i&1 != 0 {
					if free++; w < h.hint || w<<6|i >= s.perPage {
						t.Fatal("a free slot before the hint or behind the end")
					}
				} else if w<<6|i < s.perPage && w<<6|i >= h.fresh {
					t.Fatal("a slot in use that was never taken")
				}
			}
		}
		if h.free != free || h.lp != lp || (free > 0) != listed[lp] || free == s.perPage && !s.keepOne {
			t.Fatalf("page %d: %d free slots, head says %d", lp, free, h.free)
		}
	}
	if absent != s.absent {
		t.Fatal("absent pages")
	}
}

func checkVar(t testing.TB, f *Fragment) {
	t.Helper()
	v := &f.v
	inUse := map[VarRef]bool{}
	for r, id, ok := f.NextRow(NoRow); ok; r, id, ok = f.NextRow(id) {
		if ref := *f.varRef(r); ref.off != 0 {
			ref.len = 0
			inUse[ref] = true
		}
	}
	free := map[VarRef]bool{}
	for c, r := range v.class {
		if (r.off != 0) != (v.have[c>>6]>>(c&63)&1 != 0) {
			t.Fatalf("bit of class %d", c)
		}
		for r.off != 0 {
			b := v.block(r.page, uint32(r.off))
			if b.head&freeBit == 0 || classOf(b.head&sizeMask) != uint32(c) {
				t.Fatal("a block in the wrong list")
			}
			free[VarRef{page: r.page, off: r.off}] = true
			r = VarRef{page: b.nextPage, off: b.nextOff}
		}
	}
	pages := uint32(0)
	for p := v.all; p != 0; p = v.head(p - 1).next {
		pages++
		before, wasFree := uint32(0), false
		for off := uint32(firstBlock); off < pageUnits; {
			w := *v.word(p-1, off)
			r := VarRef{page: p - 1, off: uint16(off)}
			isFree := w&freeBit != 0
			if w>>sizeBits&sizeMask != before || isFree && wasFree || isFree != free[r] || isFree == inUse[r] {
				t.Fatalf("page %d: block at %d of %d units, free %v", p-1, off, w&sizeMask, isFree)
			}
			delete(free, r)
			delete(inUse, r)
			before, wasFree = w&sizeMask, isFree
			off += before
		}
		if before == fullBlock && wasFree {
			t.Fatal("an empty page was kept")
		}
	}
	if pages != v.pages || len(free)+len(inUse) != 0 {
		t.Fatal("blocks outside of the pages")
	}
}

var layouts = map[string]Layout{
	"flexAsynch":        {KeyFixed: 8, FixedSize: 4},
	"key only":          {KeyFixed: 4},
	"four words":        {KeyFixed: 16, FixedSize: 16},
	"4 KB":              {KeyFixed: 8, FixedSize: 4000},
	"one row a page":    {KeyFixed: 8, FixedSize: 29980},
	"variable":          {KeyFixed: 8, FixedSize: 8, HasVar: true},
	"variable key":      {FixedSize: 12},
	"everything varies": {HasVar: true},
}

// run does random operations from one seed. Phases of growing and shrinking let the memory fill up and pages go.
func run(t testing.TB, l Layout, seed int64, ops, pages, backup int) *model {
	rng := rand.New(rand.NewSource(seed))
	m := newModel(t, l, pages, backup)
	grow := 60
	for i := range ops {
		if rng.Intn(ops/6+1) == 0 {
			grow = 5 + rng.Intn(90)
		}
		switch x := rng.Intn(100); {
		case x < 10: // a key that may be there or not
			k := m.key(rng.Uint32() % uint32(ops))
			m.find(k)
		case x < 30 && len(m.keys) > 0:
			m.update(rng, m.rows[m.keys[rng.Intn(len(m.keys))]])
		case rng.Intn(100) < grow:
			if k := m.key(rng.Uint32() % uint32(2*ops)); m.find(k) == nil {
				m.insert(rng, k)
			}
		case len(m.keys) > 0:
			m.remove(rng, m.rows[m.keys[rng.Intn(len(m.keys))]])
		}
		if i%(ops/8+1) == 0 {
			m.check()
		}
	}
	m.check()
	return m
}

// Whatever is done to a fragment, it holds what a map would hold, its backup has the same rows under the same ids,
// and in the end all memory is back.
func TestFragmentIsAMap(t *testing.T) {
	for name, l := range layouts {
		t.Run(name, func(t *testing.T) {
			for seed := range int64(4) {
				m := run(t, l, seed, 6000, 900, 1000)
				for len(m.keys) > 0 {
					m.remove(rand.New(rand.NewSource(seed)), m.rows[m.keys[0]])
				}
				m.complete()
				m.check()
				for i, a := range m.arena {
					if a.UsedPages() != 0 || m.source[i].Free() != int(a.r.Chunks()) {
						t.Fatalf("replica %d: an empty fragment holds %d pages", i, a.UsedPages())
					}
				}
			}
		})
	}
}

// The same with too little memory, at the primary or at the backup: operations fail with a code, and change nothing.
func TestFragmentIsAMapWhenMemoryIsOut(t *testing.T) {
	for name, l := range layouts {
		t.Run(name, func(t *testing.T) {
			full := 0
			for seed := range int64(6) {
				pages, backup := 3+int(seed)*5, 4+int(seed)*5
				if l.SlotSize() < 100 && !l.HasVar {
					pages, backup = 2+int(seed)/2, 2+int(seed)/2
				}
				if seed%2 == 1 {
					pages, backup = backup+1, pages
				}
				m := run(t, l, 100+seed, 5000, pages, backup)
				full += m.full
				for done := false; !done; {
					done = m.f[0].DropStep(2)
				}
				for done := false; !done; {
					done = m.f[1].DropStep(1)
				}
				for i, a := range m.arena {
					if a.UsedPages() != 0 || m.source[i].Free() != int(a.r.Chunks()) {
						t.Fatalf("replica %d: a dropped fragment holds %d pages", i, a.UsedPages())
					}
					checkFragment(t, m.f[i])
				}
				m.rows, m.keys, m.hidden, m.deleted = map[string]*modelRow{}, nil, nil, map[RowID]uint64{}
				k := m.key(5)
				m.insert(rand.New(rand.NewSource(1)), k) // and is a new one
				m.check()
			}
			if full == 0 {
				t.Error("memory never ran out")
			}
		})
	}
}
