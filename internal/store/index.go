package store

import (
	"math/bits"
	"unsafe"

	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/rowhash"
)

// bucket is one cache line of the hash index: 12 one-byte tags (0 = empty), 12 row ids, a link to an overflow bucket.
type bucket struct {
	tag  [entries]uint8
	next uint32 // overflow slot + 1; 0 = the chain ends here
	row  [entries]uint32
}

const (
	entries       = 12
	bucketSize    = 64
	bucketsInPage = PageSize / bucketSize

	// The index grows by a bucket when it has more than growRows rows per bucket, and shrinks by one when it has fewer
	// than shrinkRows. Between splits a bucket of a linear hash holds up to twice the average, so some overflow.
	// Measured with flexAsynch's rows, bytes a row · ns a lookup at 10 million rows: 6 → 39.3 · 77, 7 → 38.1 · 81,
	// 8 → 37.1 · 83; inserts and deletes do not differ.
	growRows   = 7
	shrinkRows = 5

	maxBuckets = 1 << 30
)

// index is a linear hash: bucket by bucket it grows with inserts and shrinks with deletes, so that neither ever stops
// the thread for longer than one bucket's rows. An empty index has no page.
type index struct {
	pages []uint32 // bucket pages
	base  unsafe.Pointer
	n     uint32 // buckets
	mask  uint32 // buckets at the start of this round - 1; n - mask - 1 of them are split already
	over  slotPages
	a     *Arena
}

func (x *index) init(a *Arena) {
	x.a, x.base = a, a.r.base
	x.over.init(a, KindIndex, bucketSize, bucketSize, false)
}

// tagOf is never 0, and never differs from 0 by bit 0 alone: so the false positives of match are live entries, never
// an emptied one whose stale row id still has the key.
func tagOf(h uint64) uint8 { return uint8(h>>56) | 0x80 }

func (x *index) at(i uint32) *bucket {
	return (*bucket)(unsafe.Add(x.base, uintptr(x.pages[i/bucketsInPage])<<PageBits+uintptr(i%bucketsInPage*bucketSize)))
}

func (x *index) overAt(next uint32) *bucket { return (*bucket)(x.over.at(next - 1)) }

// bucket finds the home bucket: split buckets use one more bit of the hash. Without a branch, which would often be
// mispredicted. Not for an empty index.
func (x *index) bucket(h uint64) *bucket {
	i := uint32(h) & (x.mask<<1 | 1)
	exists := uint32(int64(uint64(i)-uint64(x.n)) >> 63) // all bits if i < n, else none
	return x.at(i & (x.mask | exists))
}

// match returns a bit per tag that equals t: SWAR over 8 + 4 bytes. The borrow of the usual trick can give a false
// positive above a true one; who compares row ids or keys sorts those out, and for t = 0 (empty entries) there
// are none, since no tag is 1.
func (b *bucket) match(t uint8) uint32 {
	const lo, hi = 0x0101010101010101, 0x8080808080808080
	w := *(*uint64)(unsafe.Pointer(&b.tag[0])) ^ uint64(t)*lo
	v := *(*uint32)(unsafe.Pointer(&b.tag[8])) ^ uint32(t)*(lo&0xffffffff)
	w = (w - lo) & ^w & hi
	v = (v - lo&0xffffffff) & ^v & (hi & 0xffffffff)
	// gather bit 7 of each byte
	return uint32(w>>7*0x0102040810204080>>56) | uint32(uint64(v>>7)*0x10204080>>28&0xf)<<8
}

// used has a bit per entry in use.
func (b *bucket) used() uint32 {
	const hi = 0x8080808080808080 // every tag in use has its top bit set
	w := *(*uint64)(unsafe.Pointer(&b.tag[0])) & hi
	v := *(*uint32)(unsafe.Pointer(&b.tag[8])) & (hi & 0xffffffff)
	return uint32(w>>7*0x0102040810204080>>56) | uint32(uint64(v>>7)*0x10204080>>28&0xf)<<8
}

const allEntries = 1<<entries - 1

// rowAt, tagAt: entry i of match or used. Without a bounds check, and the modulo that would make it go away: i is below
// 12 by construction, and this is on the way of every operation.
func (b *bucket) rowAt(i int) *RowID {
	return (*RowID)(unsafe.Add(unsafe.Pointer(&b.row), i*4))
}

func (b *bucket) tagAt(i int) *uint8 { return (*uint8)(unsafe.Add(unsafe.Pointer(&b.tag), i)) }

// add enters a row. False if there is no memory for it; then no entry has changed.
func (x *index) add(f *Fragment, h uint64, id RowID) bool {
	if x.n == 0 && !x.first() {
		return false
	}
	for !x.addTo(x.bucket(h), tagOf(h), id) {
		// Memory is out. What is left of the last page of buckets needs none: the chains get shorter.
		if x.n%bucketsInPage == 0 || !x.split(f) {
			return false
		}
	}
	return true
}

func (x *index) addTo(b *bucket, t uint8, id RowID) bool {
	for {
		if m := b.used() ^ allEntries; m != 0 {
			i := bits.TrailingZeros32(m)
			*b.tagAt(i), *b.rowAt(i) = t, id
			return true
		}
		if b.next == 0 {
			o, code := x.over.alloc()
			if code != 0 {
				return false
			}
			n := (*bucket)(x.over.at(o))
			*n = bucket{}
			n.tag[0], n.row[0] = t, id
			b.next = o + 1
			return true
		}
		b = x.overAt(b.next)
	}
}

// first makes bucket 0.
func (x *index) first() bool {
	pn := x.a.alloc(KindIndex)
	if pn == noPage {
		return false
	}
	x.pages = append(x.pages, pn)
	x.n, x.mask = 1, 0
	*x.at(0) = bucket{}
	return true
}

// remove takes a row out; an overflow bucket that becomes empty leaves the chain.
func (x *index) remove(h uint64, id RowID) {
	invariant.That(x.n > 0, "an indexed row has a bucket")
	b, t := x.bucket(h), tagOf(h)
	var before *bucket
	for {
		for m := b.match(t); m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			if *b.rowAt(i) != id || *b.tagAt(i) != t {
				continue
			}
			*b.tagAt(i) = 0
			if before != nil && b.used() == 0 {
				o := before.next - 1
				before.next = b.next
				x.over.release(o)
			}
			return
		}
		invariant.That(b.next != 0, "an indexed row is in the chain of its bucket")
		before, b = b, x.overAt(b.next)
	}
}

// grown and shrunk do at most two steps per call, so that the index catches up after a time without memory.
func (f *Fragment) grown() {
	x := &f.idx
	for i := 0; i < 2 && f.rows > growRows*uint64(x.n) && x.n < maxBuckets; i++ {
		if !x.split(f) {
			return
		}
	}
}

func (f *Fragment) shrunk() {
	x := &f.idx
	if f.rows == 0 {
		x.drop(^uint32(0))
		return
	}
	for i := 0; i < 2 && f.rows < shrinkRows*uint64(x.n) && x.n > 1; i++ {
		if !x.merge() {
			return
		}
	}
}

// chain is where split puts entries: a bucket with room, and how to go on when it is full.
type chain struct {
	tail *bucket
	n    int // entries in the tail
}

// more continues a full chain with a spare overflow bucket.
func (c *chain) more(x *index, spare *uint32) {
	o := *spare
	b := x.overAt(o)
	*spare = b.next
	*b = bucket{}
	c.tail.next = o
	c.tail, c.n = b, 0
}

// split divides bucket n-mask-1 over itself and a new bucket n. It needs no overflow bucket that the old chain did not
// have: when k buckets of it have been read, k+1 are there to write to (the new one counts), and 12k entries in two
// chains fill no more. False if there is no memory for the new bucket.
func (x *index) split(f *Fragment) bool {
	if x.n%bucketsInPage == 0 {
		pn := x.a.alloc(KindIndex)
		if pn == noPage {
			return false
		}
		x.pages = append(x.pages, pn)
	}
	b := x.at(x.n - x.mask - 1)
	to := [2]chain{{tail: b}, {tail: x.at(x.n)}} // by the bit of the hash that decides
	*to[1].tail = bucket{}
	shift := uint(bits.Len32(x.mask)) & 31
	var spare uint32 // overflow buckets that have been read
	from := uint32(0)
	for {
		old := *b
		if from != 0 {
			b.next, spare = spare, from
		} else {
			*b = bucket{}
		}
		// All rows are hashed first, then put: so their misses, if any, overlap.
		var bit [16]uint8
		n := 0
		for m := old.used(); m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			id := *old.rowAt(i)
			*old.rowAt(n), *old.tagAt(n) = id, *old.tagAt(i)
			r := f.Row(id)
			h := uint64(0)
			if f.keyFixed == 8 {
				h = rowhash.Hash8(*(*uint64)(unsafe.Add(unsafe.Pointer(r), rowHeadSize)))
			} else {
				h = f.hashOf(r)
			}
			bit[n&15] = uint8(h >> shift & 1)
			n++
		}
		for i := range n {
			c := &to[bit[i&15]&1] // not a branch: it would be mispredicted half of the time
			if c.n == entries {
				c.more(x, &spare)
			}
			*c.tail.tagAt(c.n), *c.tail.rowAt(c.n) = *old.tagAt(i), *old.rowAt(i)
			c.n++
		}
		if from = old.next; from == 0 {
			break
		}
		b = x.overAt(from)
	}
	for spare != 0 {
		o := spare
		spare = x.overAt(o).next
		x.over.release(o - 1)
	}
	if x.n++; x.n == 2*(x.mask+1) {
		x.mask = x.mask<<1 | 1
	}
	x.lookAhead(f)
	return true
}

// lookAhead prefetches what the next splits will read: which bucket is next is known, and until then some inserts pass.
// The rows of the next one, whose buckets came with the two calls before; the overflow bucket of the one after it; and
// the third, and the next new one. Without it the misses of split are half the cost of an insert.
func (x *index) lookAhead(f *Fragment) {
	next := x.n - x.mask - 1
	b := x.at(next)
	var p [2][16]unsafe.Pointer
	for i := range p[0] {
		p[0][i], p[1][i] = unsafe.Pointer(b), unsafe.Pointer(b)
	}
	for m := b.used(); m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		p[0][i%16] = f.slots.at(*b.rowAt(i))
	}
	if o := b.next; o != 0 {
		b = x.overAt(o)
		for m := b.used(); m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			p[1][i%16] = f.slots.at(*b.rowAt(i))
		}
	}
	if o := x.at((next + 1) & x.mask).next; o != 0 {
		p[0][entries] = unsafe.Pointer(x.overAt(o))
	}
	p[0][entries+1] = unsafe.Pointer(x.at((next + 2) & x.mask))
	if x.n%bucketsInPage != 0 {
		p[0][entries+2] = unsafe.Pointer(x.at(x.n - 1)) // its neighbour is the new one
		p[0][entries+2] = unsafe.Add(p[0][entries+2], bucketSize)
	}
	PrefetchRows16(&p[0])
	PrefetchRows16(&p[1])
}

// merge undoes the last split: the entries of bucket n-1 move to the bucket that it was split from. No row is touched.
// False if there is no memory for an overflow bucket; then nothing has changed.
func (x *index) merge() bool {
	mask := x.mask
	if x.n == mask+1 {
		mask >>= 1
	}
	hi := x.at(x.n - 1)
	tail := x.at(x.n - 2 - mask)
	room := 0
	for b := tail; ; b = x.overAt(b.next) {
		room += entries - bits.OnesCount32(b.used())
		tail = b
		if b.next == 0 {
			break
		}
	}
	todo := hi.used()
	// The overflow buckets of hi join the chain as they are; their holes are not counted, but used last.
	if bits.OnesCount32(todo) > room {
		o, code := x.over.alloc()
		if code != 0 {
			return false
		}
		*(*bucket)(x.over.at(o)) = bucket{next: hi.next}
		tail.next = o + 1
	} else {
		tail.next = hi.next
	}
	b := x.at(x.n - 2 - mask)
	for todo != 0 {
		m := b.used() ^ allEntries
		if m == 0 {
			b = x.overAt(b.next)
			continue
		}
		i, j := bits.TrailingZeros32(m), bits.TrailingZeros32(todo)
		*b.tagAt(i), *b.rowAt(i) = *hi.tagAt(j), *hi.rowAt(j)
		todo &= todo - 1
	}
	x.mask = mask
	if x.n--; x.n%bucketsInPage == 0 {
		last := len(x.pages) - 1
		x.a.release(x.pages[last], KindIndex)
		x.pages = x.pages[:last]
	}
	return true
}

// drop gives up to max pages back; it returns how many are left of max.
func (x *index) drop(max uint32) uint32 {
	x.n = 0
	max = x.over.drop(max)
	for n := len(x.pages); n > 0 && max > 0; n, max = n-1, max-1 {
		x.a.release(x.pages[n-1], KindIndex)
		x.pages = x.pages[:n-1]
	}
	return max
}
