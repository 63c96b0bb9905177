package store

import (
	"math/bits"
	"unsafe"

	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/rowhash"
)

// RowHead starts every row. Go's 64-bit alignment would cost a quarter of a small row: no field is wider than 32 bits.
type RowHead struct {
	GCILo, GCIHi uint32 // GCI of the last change; of the delete, in a free slot
	Lock         uint32 // the caller's; the store only writes what Insert is given. 0 in a committed row at rest
	Sum          uint32 // UpdateSum's
}

// LockInsert in RowHead.Lock marks a row whose insert has not committed: committed readers do not see it. A
// convention of the store's users; the store does not read it.
const LockInsert = 1 << 31

const rowHeadSize = uint32(unsafe.Sizeof(RowHead{}))

// GCI is the epoch of the row's last change.
func (r *RowHead) GCI() uint64 { return uint64(r.GCILo) | uint64(r.GCIHi)<<32 }

// SetGCI is part of every change.
func (r *RowHead) SetGCI(g uint64) { r.GCILo, r.GCIHi = uint32(g), uint32(g>>32) }

// RowID is logical page << bits | slot: the same on every replica.
type RowID = uint32

// NoRow is the RowID of no row.
const NoRow RowID = ^RowID(0)

// Layout is what the store must know of a table.
type Layout struct {
	KeyFixed  uint32 // bytes of the key image if all key columns are fixed, else 0; a multiple of 4
	FixedSize uint32 // bytes of the fixed image, a multiple of 4
	HasVar    bool   // there is a variable image
}

// MaxVar is the longest variable part: variable image and, if it varies in length, key image and its length.
const MaxVar = PageSize - varHeadSize - blockHead

// SlotSize is the size of a row of this layout in its page.
func (l Layout) SlotSize() uint32 {
	n := rowHeadSize + l.KeyFixed + l.FixedSize
	if l.HasVar || l.KeyFixed == 0 {
		n += uint32(unsafe.Sizeof(VarRef{}))
	}
	return n
}

// Fragment is one replica of a fragment.
type Fragment struct {
	slots    slotPages // first: Find needs its first fields
	idx      index
	keyFixed uint32
	varAt    uint32 // offset of the VarRef in the row; 0 = no variable part
	fixedAt  uint32
	rows     uint64 // indexed rows
	v        varSpace
	l        Layout
}

// NewFragment makes an empty fragment; it takes no page. The layout must fit a page (schema's limit of 30,000 bytes a
// row does).
func NewFragment(a *Arena, l Layout) *Fragment {
	f := &Fragment{l: l, keyFixed: l.KeyFixed, fixedAt: rowHeadSize + l.KeyFixed}
	f.slots.init(a, KindRows, l.SlotSize(), 8, true)
	f.idx.init(a)
	if l.HasVar || l.KeyFixed == 0 {
		f.varAt = f.fixedAt + l.FixedSize
		f.v.init(a)
	}
	return f
}

// Rows is the number of rows in the index.
func (f *Fragment) Rows() uint64 { return f.rows }

// Pages is the number of pages that the fragment holds.
func (f *Fragment) Pages() (rows, vars, index uint32) {
	return f.slots.held(), f.v.pages, uint32(len(f.idx.pages)) + f.idx.over.held()
}

// MaxRows is how many rows a RowID can name; memory usually ends before.
func (f *Fragment) MaxRows() uint64 { return uint64(f.slots.maxPages) * uint64(f.slots.perPage) }

// Row is the row of an id that this node handed out and whose slot is still in use.
func (f *Fragment) Row(id RowID) *RowHead { return (*RowHead)(f.slots.at(id)) }

// CheckedRow is Row for an id that came from another node. False if no such slot is in use.
func (f *Fragment) CheckedRow(id RowID) (*RowHead, bool) {
	if !f.slots.inUse(id) {
		return nil, false
	}
	return f.Row(id), true
}

// Fixed is the fixed image of a row, Layout.FixedSize bytes.
func (f *Fragment) Fixed(r *RowHead) unsafe.Pointer { return unsafe.Add(unsafe.Pointer(r), f.fixedAt) }

// Key is the key image of a row.
func (f *Fragment) Key(r *RowHead) (p unsafe.Pointer, n uint32) {
	if f.keyFixed != 0 {
		return unsafe.Add(unsafe.Pointer(r), rowHeadSize), f.keyFixed
	}
	p = f.v.at(*f.varRef(r))
	return unsafe.Add(p, 4), load32(p)
}

func (f *Fragment) hashOf(r *RowHead) uint64 {
	if f.keyFixed == 8 {
		return rowhash.Hash8(*(*uint64)(unsafe.Add(unsafe.Pointer(r), rowHeadSize)))
	}
	return rowhash.Hash(f.Key(r))
}

// HashRow is the hash of the row's key, for who has a row id but not the key.
func (f *Fragment) HashRow(r *RowHead) uint64 { return f.hashOf(r) }

// Find returns the row with that key, whatever its lock word says; nil and NoRow if there is none. h is
// rowhash.Hash of the key.
func (f *Fragment) Find(h uint64, key unsafe.Pointer, keyLen uint32) (*RowHead, RowID) {
	if f.rows == 0 {
		return nil, NoRow
	}
	if f.keyFixed != 8 {
		return f.findAny(h, key, keyLen)
	}
	k, t := *(*uint64)(key), tagOf(h)
	for b := f.idx.bucket(h); ; b = f.idx.overAt(b.next) {
		for m := b.match(t); m != 0; m &= m - 1 {
			id := *b.rowAt(bits.TrailingZeros32(m))
			if r := f.Row(id); *(*uint64)(unsafe.Add(unsafe.Pointer(r), rowHeadSize)) == k {
				return r, id
			}
		}
		if b.next == 0 {
			return nil, NoRow
		}
	}
}

func (f *Fragment) findAny(h uint64, key unsafe.Pointer, keyLen uint32) (*RowHead, RowID) {
	t := tagOf(h)
	for b := f.idx.bucket(h); ; b = f.idx.overAt(b.next) {
		for m := b.match(t); m != 0; m &= m - 1 {
			id := *b.rowAt(bits.TrailingZeros32(m))
			if r := f.Row(id); f.keyIs(r, key, keyLen) {
				return r, id
			}
		}
		if b.next == 0 {
			return nil, NoRow
		}
	}
}

func (f *Fragment) keyIs(r *RowHead, key unsafe.Pointer, n uint32) bool {
	p, m := f.Key(r)
	return m == n && string(unsafe.Slice((*byte)(p), n)) == string(unsafe.Slice((*byte)(key), n))
}

// Insert takes a slot, writes the key, enters the row into the index and sets its lock word. The caller has asked Find
// before: the key must not be there. The variable image is empty, the fixed image and the checksum unknown, and the
// GCI that of the slot's last delete, until the caller sets them. With a code nothing has changed.
func (f *Fragment) Insert(h uint64, key unsafe.Pointer, keyLen, lock uint32) (r *RowHead, id RowID, code uint32) {
	if id, code = f.slots.alloc(); code != 0 {
		return nil, NoRow, code
	}
	if r, code = f.fill(id, h, key, keyLen, lock); code != 0 {
		return nil, NoRow, code
	}
	return r, id, 0
}

// InsertAt is Insert into the slot that the primary chose.
func (f *Fragment) InsertAt(id RowID, h uint64, key unsafe.Pointer, keyLen, lock uint32) (r *RowHead, code uint32) {
	if code = f.slots.take(id); code != 0 {
		return nil, code
	}
	return f.fill(id, h, key, keyLen, lock)
}

func (f *Fragment) fill(id RowID, h uint64, key unsafe.Pointer, keyLen, lock uint32) (*RowHead, uint32) {
	p := f.slots.at(id)
	r := (*RowHead)(p)
	var ref VarRef
	switch {
	case f.keyFixed == 8:
		*(*uint64)(unsafe.Add(p, rowHeadSize)) = *(*uint64)(key)
	case f.keyFixed != 0:
		move(unsafe.Add(p, rowHeadSize), key, f.keyFixed)
	default:
		var ok bool
		if ref, ok = f.v.alloc(4 + keyLen); !ok {
			f.slots.release(id)
			return nil, CodeNoMemory
		}
		v := f.v.at(ref)
		*(*uint32)(v) = keyLen
		move(unsafe.Add(v, 4), key, keyLen)
	}
	if f.varAt != 0 {
		*f.varRef(r) = ref
	}
	if !f.idx.add(f, h, id) {
		f.v.free(ref)
		f.slots.release(id)
		return nil, CodeNoMemory
	}
	r.Lock = lock
	if f.rows++; f.rows > growRows*uint64(f.idx.n) {
		f.grown()
	}
	return r, 0
}

// Unindex hides a row: Find does not see it any more, its slot stays in use. h is the hash of its key.
func (f *Fragment) Unindex(h uint64, id RowID) {
	f.idx.remove(h, id)
	if f.rows--; f.rows < shrinkRows*uint64(f.idx.n) {
		f.shrunk()
	}
}

// FreeSlot frees the slot of a row that is not in the index, and its variable part. The slot remembers gci.
func (f *Fragment) FreeSlot(id RowID, gci uint64) {
	r := f.Row(id)
	if f.varAt != 0 {
		f.v.free(*f.varRef(r))
		*f.varRef(r) = VarRef{}
	}
	*r = RowHead{GCILo: uint32(gci), GCIHi: uint32(gci >> 32)}
	f.slots.release(id)
}

// Remove is Unindex and FreeSlot in one.
func (f *Fragment) Remove(h uint64, id RowID, gci uint64) {
	f.Unindex(h, id)
	f.FreeSlot(id, gci)
}

// NextRow is the first row behind an id in the order of row ids (behind NoRow: the first of all), for comparing and
// copying replicas. Hidden rows and rows of uncommitted inserts are among them.
func (f *Fragment) NextRow(after RowID) (r *RowHead, id RowID, ok bool) {
	if id, ok = f.slots.next(after); !ok {
		return nil, NoRow, false
	}
	return f.Row(id), id, true
}

// SlotGCI is the GCI that a slot which is not in use remembers of its last delete: exactly, while its page is there;
// after the page was given back, the newest of the page. 0 if nothing was ever deleted there.
func (f *Fragment) SlotGCI(id RowID) uint64 {
	invariant.That(!f.slots.inUse(id), "a slot in use has a row")
	return f.slots.gci(id)
}

// BucketPtr is where Find will look first: for Prefetch16.
func (f *Fragment) BucketPtr(h uint64) unsafe.Pointer {
	if f.rows == 0 {
		return unsafe.Pointer(f)
	}
	return unsafe.Pointer(f.idx.bucket(h))
}

// RowPtr is the row that Find will probably read first: for PrefetchRows16, when the line at BucketPtr has come.
func (f *Fragment) RowPtr(h uint64) unsafe.Pointer {
	if f.rows == 0 {
		return unsafe.Pointer(f)
	}
	b := f.idx.bucket(h)
	if m := b.match(tagOf(h)); m != 0 {
		return f.slots.at(*b.rowAt(bits.TrailingZeros32(m)))
	}
	return unsafe.Pointer(b)
}

// Stats is the state of the hash index: buckets, and overflow buckets in use.
func (f *Fragment) Stats() (buckets, overflow uint32) {
	x := &f.idx.over
	n := x.held() * x.perPage
	for p := x.avail; p != 0; p = x.head(p - 1).next {
		n -= x.head(p - 1).free
	}
	return f.idx.n, n
}

// DropStep gives back up to maxPages of the fragment's pages, whatever rows they hold, and says whether that was all.
// From the first call on until done the fragment must not be used otherwise; then it is empty and new.
func (f *Fragment) DropStep(maxPages uint32) (done bool) {
	f.rows = 0
	left := f.idx.drop(maxPages)
	left = f.v.drop(left)
	f.slots.drop(left)
	r, v, i := f.Pages()
	return r+v+i == 0
}
