package store

import (
	"bytes"
	"encoding/binary"
	"math/rand"
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/rowhash"
)

func newArena(pages int) *Arena {
	r, s := NewLocalSource(uint64(pages)<<PageBits, 4<<PageBits, true)
	return NewArena(r, s)
}

func hash8(k *uint64) uint64 { return rowhash.Hash(unsafe.Pointer(k), 8) }

func mustInsert(t testing.TB, f *Fragment, k uint64) (*RowHead, RowID) {
	t.Helper()
	r, id, code := f.Insert(hash8(&k), unsafe.Pointer(&k), 8, 0)
	if code != 0 {
		t.Fatalf("insert of %d: code %d", k, code)
	}
	return r, id
}

// The limit is exact: every page of the region is used before an insert fails, nothing is lost then, and one page's
// worth of deletes makes room for as many inserts.
func TestFullMemory(t *testing.T) {
	for _, pages := range []int{1, 2, 3, 7, 8, 33} {
		a := newArena(pages)
		f := NewFragment(a, Layout{KeyFixed: 8, FixedSize: 4})
		n := uint64(0)
		for ; ; n++ {
			k := n
			r, _, code := f.Insert(hash8(&k), unsafe.Pointer(&k), 8, 0)
			if code == CodeNoMemory {
				break
			}
			if code != 0 {
				t.Fatalf("code %d", code)
			}
			*(*uint32)(f.Fixed(r)) = uint32(k)
			f.UpdateSum(r)
		}
		if a.UsedPages() != uint32(pages) && pages > 1 {
			t.Fatalf("%d of %d pages used when memory is out", a.UsedPages(), pages)
		}
		if pages == 1 && (n != 0 || a.UsedPages() != 0) {
			t.Fatal("a row needs a page of rows and one of index")
		}
		rows, _, _ := f.Pages()
		if full := uint64(rows) * uint64(f.slots.perPage); n > full || n < full*9/10 {
			t.Fatalf("%d rows in %d pages of %d", n, rows, f.slots.perPage)
		}
		checkFragment(t, f)
		for k := range n {
			r, id := f.Find(hash8(&k), unsafe.Pointer(&k), 8)
			if r == nil || !f.CheckSum(r) || *(*uint32)(f.Fixed(r)) != uint32(k) {
				t.Fatalf("row %d is lost", k)
			}
			if k%2 == 0 {
				f.Remove(hash8(&k), id, 1)
			}
		}
		checkFragment(t, f)
		for k := uint64(0); k < n; k += 2 {
			mustInsert(t, f, k)
		}
		checkFragment(t, f)
	}
}

// Two arenas share a region: what one gives back the other can have.
func TestPagesMoveBetweenArenas(t *testing.T) {
	r, s := NewLocalSource(21<<PageBits, 4<<PageBits, true)
	a, b := NewArena(r, s), NewArena(r, s)
	l := Layout{KeyFixed: 8, FixedSize: 20000}
	f, g := NewFragment(a, l), NewFragment(b, l)
	fill := func(f *Fragment) (n uint64) {
		for ; ; n++ {
			k := n
			if _, _, code := f.Insert(hash8(&k), unsafe.Pointer(&k), 8, 0); code != 0 {
				return n
			}
		}
	}
	first := fill(f)
	if a.UsedPages() != 21 || a.TotalPages() != 21 || fill(g) != 0 {
		t.Fatalf("%d pages used", a.UsedPages())
	}
	for k := range first {
		_, id := f.Find(hash8(&k), unsafe.Pointer(&k), 8)
		f.Remove(hash8(&k), id, 1)
	}
	if second := fill(g); second != first || s.Free() != 0 {
		t.Fatalf("%d rows, then %d", first, second)
	}
	for !g.DropStep(3) {
	}
	if s.Free() != 6 || r.Chunks() != 6 {
		t.Fatal("chunks are missing")
	}
	if _, n := r.Chunk(5); n != PageSize {
		t.Fatalf("the last chunk has %d bytes", n)
	}
}

func TestSmallFragmentsAreSmall(t *testing.T) {
	a := newArena(64)
	f := NewFragment(a, Layout{KeyFixed: 8, FixedSize: 4})
	if a.UsedPages() != 0 || a.Chunks() != 0 {
		t.Fatal("an empty fragment has pages")
	}
	for k := range uint64(100) {
		mustInsert(t, f, k)
	}
	if a.UsedPages() > 3 {
		t.Fatalf("100 rows take %d pages", a.UsedPages())
	}
}

// flexAsynch's rows take at most 40 bytes, index included, wherever between two rounds of splits the index is.
func TestBytesPerRow(t *testing.T) {
	a := newArena(800)
	f := NewFragment(a, Layout{KeyFixed: 8, FixedSize: 4})
	for k := range uint64(500_000) {
		mustInsert(t, f, k)
		if n := k + 1; n >= 100_000 && n%10_000 == 0 {
			if b := float64(a.UsedPages()) * PageSize / float64(n); b > 40 {
				t.Fatalf("%.2f bytes a row at %d rows", b, n)
			}
		}
	}
}

// The index follows the rows down: a quarter of the rows does with about a quarter of the index.
func TestIndexShrinks(t *testing.T) {
	f := NewFragment(newArena(400), Layout{KeyFixed: 8, FixedSize: 4})
	for k := range uint64(200_000) {
		mustInsert(t, f, k)
	}
	before, _ := f.Stats()
	for k := range uint64(150_000) {
		_, id := f.Find(hash8(&k), unsafe.Pointer(&k), 8)
		f.Remove(hash8(&k), id, 1)
	}
	after, _ := f.Stats()
	if after > before/2 || f.Rows() != 50_000 {
		t.Fatalf("%d buckets for 200000 rows, %d for 50000", before, after)
	}
	checkFragment(t, f)
}

// keysOfBucket are keys whose hashes agree in the lowest bits.
func keysOfBucket(bits, n int) (keys []uint64) {
	for k := uint64(0); len(keys) < n; k++ {
		if hash8(&k)&(1<<bits-1) == 0 {
			keys = append(keys, k)
		}
	}
	return keys
}

// Long overflow chains through splits, merges and removal.
func TestLongChains(t *testing.T) {
	f := NewFragment(newArena(64), Layout{KeyFixed: 8, FixedSize: 4})
	keys := keysOfBucket(9, 600)
	for i, k := range keys {
		mustInsert(t, f, k)
		if i%50 == 0 {
			checkFragment(t, f)
		}
	}
	if n, over := f.Stats(); over < 10 {
		t.Fatalf("%d buckets, %d overflow: no long chain", n, over)
	}
	rand.New(rand.NewSource(1)).Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for i, k := range keys {
		r, id := f.Find(hash8(&k), unsafe.Pointer(&k), 8)
		if r == nil {
			t.Fatalf("key %d is lost", k)
		}
		f.Remove(hash8(&k), id, 1)
		if i%50 == 0 {
			checkFragment(t, f)
		}
	}
	checkFragment(t, f)
	if f.idx.a.UsedPages() != 0 {
		t.Fatal("pages are left")
	}
}

// A slot remembers its delete, and a page that was given back the newest of its slots.
func TestDeletesAreRemembered(t *testing.T) {
	a := newArena(64)
	f := NewFragment(a, Layout{KeyFixed: 8, FixedSize: 1000})
	per := f.slots.perPage
	ids := map[uint64]RowID{}
	for k := range uint64(per) * 2 {
		r, id := mustInsert(t, f, k)
		r.SetGCI(100)
		ids[k] = id
	}
	del := func(k, gci uint64) { f.Remove(hash8(&k), ids[k], gci) }
	del(3, 1<<40|7)
	if g := f.SlotGCI(ids[3]); g != 1<<40|7 {
		t.Fatalf("%#x", g)
	}
	for k := range uint64(per) {
		if k != 3 {
			del(k, 200+k)
		}
	}
	if f.slots.pages[0] != noPage || f.SlotGCI(ids[0]) != 1<<40|7 || f.SlotGCI(ids[3]) != 1<<40|7 {
		t.Fatalf("page given back: %v, slot remembers %#x", f.slots.pages[0] == noPage, f.SlotGCI(ids[0]))
	}
	if f.SlotGCI(RowID(50)<<f.slots.slotBits) != 0 {
		t.Fatal("a slot behind the end remembers something")
	}
	r, id := mustInsert(t, f, 999) // takes a page under the first free number: 0
	if id>>f.slots.slotBits != 0 || r.GCI() != 1<<40|7 || f.SlotGCI(id+1) != 1<<40|7 {
		t.Fatalf("id %#x, slots of the page remember %#x and %#x", id, r.GCI(), f.SlotGCI(id+1))
	}
}

// Row ids from another node are checked, and cannot make this one allocate without bound.
func TestRowIDsFromOutside(t *testing.T) {
	a := newArena(8)
	f := NewFragment(a, Layout{KeyFixed: 8, FixedSize: 4})
	_, id := mustInsert(t, f, 1)
	for _, bad := range []RowID{NoRow, id + 1, RowID(f.slots.perPage), 1 << f.slots.slotBits, 0x80000000} {
		if _, ok := f.CheckedRow(bad); ok {
			t.Errorf("a row at %#x", bad)
		}
	}
	if r, ok := f.CheckedRow(id); !ok || r != f.Row(id) {
		t.Error("the row is not found")
	}
	k := uint64(2)
	for bad, want := range map[RowID]uint32{NoRow: CodeFragmentFull, RowID(f.slots.perPage): CodeFragmentFull,
		0x80000000: CodeFragmentFull, id: CodeRowIDTaken} {
		if _, code := f.InsertAt(bad, hash8(&k), unsafe.Pointer(&k), 8, 0); code != want {
			t.Errorf("insert at %#x: code %d, should be %d", bad, code, want)
		}
	}
	far := RowID(20) << f.slots.slotBits
	if _, code := f.InsertAt(far, hash8(&k), unsafe.Pointer(&k), 8, 0); code != 0 {
		t.Errorf("insert at %#x: code %d", far, code)
	}
	checkFragment(t, f)
	if f.MaxRows() > uint64(4*8+64)*uint64(f.slots.perPage) {
		t.Error("one row id can make the map of pages as long as it likes")
	}
}

func TestRowSizes(t *testing.T) {
	for _, l := range []Layout{{KeyFixed: 4}, {KeyFixed: 4, FixedSize: 29996}, {KeyFixed: 3072, FixedSize: 26928}, {FixedSize: 29000, HasVar: true}} {
		f := NewFragment(newArena(64), l)
		if n := f.slots.headSize + f.slots.perPage*l.SlotSize(); n > PageSize || f.slots.perPage == 0 || n+l.SlotSize()+8 < PageSize-64 {
			t.Errorf("%+v: %d slots, %d bytes of a page", l, f.slots.perPage, n)
		}
	}
}

func TestDamageIsSeen(t *testing.T) {
	f := NewFragment(newArena(64), Layout{KeyFixed: 8, FixedSize: 12, HasVar: true})
	r, _ := mustInsert(t, f, 1)
	v := []uint32{1, 2, 3}
	if code := f.SetVar(r, unsafe.Pointer(&v[0]), 12); code != 0 {
		t.Fatal(code)
	}
	clear(unsafe.Slice((*byte)(f.Fixed(r)), 12))
	f.UpdateSum(r)
	p, n := f.Var(r)
	row := unsafe.Slice((*byte)(unsafe.Pointer(r)), f.l.SlotSize())
	for _, b := range [][]byte{row[16:], unsafe.Slice((*byte)(p), n)} {
		for i := range b {
			for bit := range 8 {
				b[i] ^= 1 << bit
				if f.CheckSum(r) {
					t.Errorf("bit %d of byte %d of %d changed and not seen", bit, i, len(b))
				}
				b[i] ^= 1 << bit
			}
		}
	}
	if !f.CheckSum(r) {
		t.Fatal("CheckSum changes something")
	}
}

// A variable part that does not grow can be replaced when memory is out; one that grows cannot, and stays what it was.
func TestFullMemoryOfVariableParts(t *testing.T) {
	a := newArena(6)
	f := NewFragment(a, Layout{KeyFixed: 8, HasVar: true})
	buf := make([]uint32, 30000/4)
	set := func(r *RowHead, bytes, fill uint32) uint32 {
		for i := range buf {
			buf[i] = fill
		}
		return f.SetVar(r, unsafe.Pointer(&buf[0]), bytes)
	}
	var rows []*RowHead
	for k := uint64(0); ; k++ {
		r, id := mustInsert(t, f, k)
		if code := set(r, 1000, uint32(k)); code != 0 {
			if code != CodeNoMemory {
				t.Fatal(code)
			}
			f.Remove(hash8(&k), id, r.GCI())
			break
		}
		rows = append(rows, r)
	}
	if a.UsedPages() != 6 || len(rows) < 3*32 {
		t.Fatalf("%d rows in %d pages", len(rows), a.UsedPages())
	}
	if code := set(rows[0], 30000, 7); code != CodeNoMemory {
		t.Fatalf("code %d", code)
	}
	if _, code := f.NewVar(rows[0], unsafe.Pointer(&buf[0]), 30000); code != CodeNoMemory {
		t.Fatalf("code %d", code)
	}
	for i, r := range rows {
		if p, n := f.Var(r); n != 1000 || load32(p) != uint32(i) || load32(unsafe.Add(p, 996)) != uint32(i) {
			t.Fatalf("row %d changed", i)
		}
		if code := set(r, 1000-uint32(i%2)*500, uint32(i)+1); code != 0 {
			t.Fatalf("row %d cannot be changed in place: code %d", i, code)
		}
	}
	checkFragment(t, f)
	if code := set(rows[1], 500, 0); code != 0 { // the halves that were freed are whole parts again
		t.Fatal(code)
	}
	k := uint64(1 << 40)
	for range len(rows) / 2 {
		r, _ := mustInsert(t, f, k)
		if code := set(r, 480, 9); code != 0 {
			t.Fatalf("freed room cannot be used: code %d", code)
		}
		k++
	}
	checkFragment(t, f)
}

// Rows that come, change their length and go: about four fifths of the pages of variable parts stay in use.
func TestVariablePartsDoNotFragment(t *testing.T) {
	a := newArena(2000)
	f := NewFragment(a, Layout{KeyFixed: 8, HasVar: true})
	rng := rand.New(rand.NewSource(1))
	buf := make([]uint32, 400)
	size := map[uint64]uint32{}
	stored := uint64(0)
	const rows = 30_000
	for i := range 20 * rows {
		k := uint64(rng.Intn(rows))
		h := hash8(&k)
		r, id := f.Find(h, unsafe.Pointer(&k), 8)
		if r != nil && rng.Intn(3) == 0 {
			f.Remove(h, id, 1)
			stored -= uint64(size[k])
			delete(size, k)
			continue
		}
		if r == nil {
			r, _ = mustInsert(t, f, k)
		}
		n := uint32(rng.Intn(100)) * 4
		if rng.Intn(10) == 0 {
			n *= 4
		}
		if code := f.SetVar(r, unsafe.Pointer(&buf[0]), n); code != 0 {
			t.Fatal(code)
		}
		stored += uint64(n) - uint64(size[k])
		size[k] = n
		if i > 2*rows && i%1000 == 0 {
			if use := float64(stored) / (float64(a.Used(KindVar)) * PageSize); use < 0.78 {
				t.Fatalf("after %d operations %.0f%% of the pages are used", i, 100*use)
			}
		}
	}
	checkVar(t, f)
}

func TestCopyPool(t *testing.T) {
	a := newArena(40)
	c := NewCopyPool(a)
	if c.Total() != 40*PageSize {
		t.Fatal(c.Total())
	}
	for n := uint32(0); n <= MaxCopy; n++ {
		s := copySize(copyClass(n))
		if s < n || s > max(32, n+n/4+8) && s*3 < PageSize/2 || copyClass(s) != copyClass(n) {
			t.Fatalf("%d bytes get %d", n, s)
		}
	}
	rng := rand.New(rand.NewSource(2))
	type block struct {
		p    unsafe.Pointer
		n    uint32
		fill byte
	}
	var blocks []block
	refused := 0
	total := uint64(0)
	release := func(i int) {
		b := blocks[i]
		if bytes.Count(unsafe.Slice((*byte)(b.p), b.n), []byte{b.fill}) != int(b.n) {
			t.Fatal("somebody else wrote into a block")
		}
		c.Release(b.p)
		total -= uint64(copySize(copyClass(b.n)))
		blocks[i] = blocks[len(blocks)-1]
		blocks = blocks[:len(blocks)-1]
	}
	for i := range 60_000 {
		if rng.Intn(60_000) < 35_000-i/4 {
			n := uint32(rng.Intn(200))
			switch rng.Intn(8) {
			case 0:
				n = uint32(rng.Intn(int(MaxCopy) + 1))
			case 1, 2:
				n = uint32(rng.Intn(3000))
			}
			p := c.Seize(n)
			if p == nil {
				if a.UsedPages() != 40 {
					t.Fatalf("refused with %d of 40 pages used", a.UsedPages())
				}
				refused++
				continue
			}
			if uintptr(p)&7 != 0 {
				t.Fatal("not aligned")
			}
			b := block{p, n, byte(i)}
			copy(unsafe.Slice((*byte)(p), n), bytes.Repeat([]byte{b.fill}, int(n)))
			blocks = append(blocks, b)
			total += uint64(copySize(copyClass(n)))
		} else if len(blocks) > 0 {
			release(rng.Intn(len(blocks)))
		}
		if n, size := c.Used(); n != uint64(len(blocks)) || size != total {
			t.Fatalf("%d blocks of %d bytes counted, %d of %d in use", n, size, len(blocks), total)
		}
		if i%5000 == 0 {
			for k := range c.class {
				checkSlots(t, &c.class[k])
			}
		}
	}
	if refused == 0 {
		t.Error("the pool was never used up")
	}
	for len(blocks) > 0 {
		release(0)
	}
	if n, size := c.Used(); n != 0 || size != 0 {
		t.Fatalf("%d blocks, %d bytes at rest", n, size)
	}
	if c.Trim(); a.UsedPages() != 0 || a.Chunks() != 0 {
		t.Fatalf("%d pages at rest", a.UsedPages())
	}
}

// A class that needs a page gets the empty ones that others keep.
func TestCopyPoolIsNotFullOfEmptyPages(t *testing.T) {
	c := NewCopyPool(newArena(2))
	p, q := c.Seize(100), c.Seize(1000)
	c.Release(p)
	c.Release(q)
	if p, q = c.Seize(5000), c.Seize(10000); p == nil || q == nil {
		t.Fatal("refused")
	}
	if c.Seize(100) != nil {
		t.Fatal("three pages out of two")
	}
}

func TestNothingAllocates(t *testing.T) {
	a := newArena(200)
	c := NewCopyPool(newArena(64))
	f := NewFragment(a, Layout{KeyFixed: 8, FixedSize: 4})
	g := NewFragment(a, Layout{FixedSize: 4, HasVar: true})
	v := make([]uint32, 50)
	key := []uint32{0, 3}
	next := uint64(0)
	work := func() {
		for range 100 {
			k := next
			next++
			h := hash8(&k)
			var p [16]unsafe.Pointer
			p[0] = f.BucketPtr(h)
			Prefetch16(&p)
			p[0] = f.RowPtr(h)
			PrefetchRows16(&p)
			r, _, code := f.Insert(h, unsafe.Pointer(&k), 8, LockInsert)
			if code != 0 {
				t.Fatal(code)
			}
			*(*uint32)(f.Fixed(r)) = 1
			r.SetGCI(5)
			f.UpdateSum(r)
			if x, _ := f.Find(h, unsafe.Pointer(&k), 8); x != r || !f.CheckSum(r) {
				t.Fatal("not found")
			}
			if k >= 5000 {
				old := k - 5000
				_, id := f.Find(hash8(&old), unsafe.Pointer(&old), 8)
				f.Remove(hash8(&old), id, 6)
			}

			key[0] = uint32(k)
			h = rowhash.Hash(unsafe.Pointer(&key[0]), 8)
			r, _, code = g.Insert(h, unsafe.Pointer(&key[0]), 8, 0)
			if code != 0 || g.SetVar(r, unsafe.Pointer(&v[0]), uint32(k%50)*4) != 0 || g.SetVar(r, unsafe.Pointer(&v[0]), uint32(k%37)*4) != 0 {
				t.Fatal(code)
			}
			ref, code := g.NewVar(r, unsafe.Pointer(&v[0]), 12)
			if code != 0 {
				t.Fatal(code)
			}
			g.SwapVar(r, ref)
			if k >= 500 {
				key[0] = uint32(k - 500)
				h = rowhash.Hash(unsafe.Pointer(&key[0]), 8)
				_, id := g.Find(h, unsafe.Pointer(&key[0]), 8)
				g.Unindex(h, id)
				g.FreeSlot(id, 7)
			}
			b := c.Seize(uint32(k%9) * 100)
			c.Release(b)
		}
	}
	for range 100 {
		work() // the maps of pages have their size then
	}
	if n := testing.AllocsPerRun(100, work); n != 0 {
		t.Errorf("%v allocations in 100 inserts, lookups, updates and deletes", n)
	}
}

// Addresses that are no memory do no harm.
func TestPrefetchAnything(t *testing.T) {
	k := uint64(7)
	f := NewFragment(newArena(8), Layout{KeyFixed: 8, FixedSize: 4})
	p := [16]unsafe.Pointer{0: f.BucketPtr(hash8(&k)), 1: f.RowPtr(hash8(&k)), 15: unsafe.Pointer(f)}
	before := p
	Prefetch16(&p)
	PrefetchRows16(&p)
	if p != before {
		t.Fatal("addresses changed")
	}
	mustInsert(t, f, k)
	if r, _ := f.Find(hash8(&k), unsafe.Pointer(&k), 8); f.RowPtr(hash8(&k)) != unsafe.Pointer(r) {
		t.Fatal("RowPtr is not the row")
	}
}

// Who uses a page or slot twice is stopped, not served.
func TestMisuseIsStopped(t *testing.T) {
	stopped := func(what string, do func()) {
		defer func() {
			if _, ok := recover().(invariant.Violation); !ok {
				t.Errorf("%s: not stopped", what)
			}
		}()
		do()
	}
	a := newArena(8)
	f := NewFragment(a, Layout{KeyFixed: 8, FixedSize: 4})
	k, k2 := uint64(1), uint64(2)
	_, id := mustInsert(t, f, k)
	mustInsert(t, f, k2)
	f.Remove(hash8(&k), id, 1)
	stopped("slot freed twice", func() { f.FreeSlot(id, 1) })
	stopped("row removed twice", func() { f.Unindex(hash8(&k), id) })
	stopped("chunk of half a page", func() { NewRegion(nil, 1<<20, 100) })
	stopped("chunk of 3 pages", func() { NewRegion(nil, 1<<20, 3<<PageBits) })
	stopped("slot of 40 KB", func() { NewFragment(a, Layout{KeyFixed: 4, FixedSize: 40000}) })
	stopped("copy of 40 KB", func() { NewCopyPool(a).Seize(40000) })
	stopped("variable image without words", func() {
		g := NewFragment(a, Layout{KeyFixed: 8, HasVar: true})
		r, _ := mustInsert(t, g, 1)
		g.SetVar(r, unsafe.Pointer(&k), 3)
	})
}

// FuzzFragment is TestFragmentIsAMap with operations from the fuzzer.
func FuzzFragment(f *testing.F) {
	f.Add(uint8(0), uint8(2), []byte("insert some, delete some, look for others"))
	f.Add(uint8(5), uint8(9), []byte{0, 1, 2, 3, 1, 1, 1, 2, 1, 3, 2, 9, 9, 3, 1, 4, 1, 4, 0, 0, 9})
	names := []string{"flexAsynch", "key only", "four words", "4 KB", "one row a page", "variable", "variable key", "everything varies"}
	f.Fuzz(func(t *testing.T, layout, pages uint8, ops []byte) {
		m := newModel(t, layouts[names[layout%8]], int(pages%20)+1, int(pages/20)+2)
		for len(ops) > 2 {
			op, n := ops[0], binary.LittleEndian.Uint16(ops[1:])
			ops = ops[3:]
			rng := rand.New(rand.NewSource(int64(n)))
			k := m.key(uint32(n))
			w := m.find(k)
			switch {
			case op < 20:
				for i := range uint32(op) * 8 { // many at once, so that pages fill
					if k := m.key(uint32(n) + i); m.find(k) == nil {
						m.insert(rng, k)
					}
				}
			case op < 30:
				for range uint32(op) * 8 {
					if len(m.keys) > 0 {
						m.remove(rng, m.rows[m.keys[rng.Intn(len(m.keys))]])
					}
				}
			case w == nil && op < 200:
				m.insert(rng, k)
			case w != nil && op < 130:
				m.update(rng, w)
			case w != nil:
				m.remove(rng, w)
			default:
				m.complete()
			}
		}
		m.complete()
		m.check()
	})
}
