package store

import (
	"math/bits"
	"unsafe"

	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/rowhash"
)

// VarRef says where a variable part lies. The zero value is no part. It means nothing on another node.
type VarRef struct {
	page uint32 // of the arena
	off  uint16 // of the block's header, in units
	len  uint16 // bytes of the part
}

// Size is the length of the part in bytes.
func (r VarRef) Size() uint32 { return uint32(r.len) }

// Variable parts lie in blocks of whole units. A block starts with a word:
//
//	bits 0–12   its size in units, this word included
//	bits 13–25  the size of the block before it, 0 for the first of the page
//	bit  31     it is free
//
// so that a freed block joins its free neighbours at once: no two free blocks touch, and a page whose only
// block is free goes back. Free blocks are in lists by size class; a block that is large enough is
// found by a few bit operations (two-level segregated fit). Blocks never move.
const (
	unit       = 4 // bytes
	blockHead  = unit
	sizeBits   = 13
	sizeMask   = 1<<sizeBits - 1
	freeBit    = 1 << 31
	minBlock   = 4 // units: room for freeBlock
	pageUnits  = PageSize / unit
	firstBlock = varHeadSize / unit
	fullBlock  = pageUnits - firstBlock

	linear  = 32 // sizes below are classes of their own; above there are 16 classes to a power of two
	classes = linear + 8*16

	varHeadSize = 8
)

// varHead heads a page of variable parts: the list of all of them.
type varHead struct{ next, prev uint32 } // page+1

type freeBlock struct {
	head               uint32
	nextPage, prevPage uint32 // the list of its class; offset 0 = none
	nextOff, prevOff   uint16
}

// varSpace is the variable parts of one fragment.
type varSpace struct {
	a     *Arena
	base  unsafe.Pointer
	all   uint32 // page+1: list of pages
	pages uint32
	have  [3]uint64 // a bit per class with free blocks
	class []VarRef  // heads of the lists (len is not used)
}

func (v *varSpace) init(a *Arena) {
	v.a, v.base, v.class = a, a.r.base, make([]VarRef, classes)
}

// classOf is the class of a free block of n units: sizes are rounded down.
func classOf(n uint32) uint32 {
	if n < linear {
		return n
	}
	e := uint32(bits.Len32(n)) - 1 // 5 to 12
	return linear + (e-5)*16 + n>>(e-4)&15
}

// roundUp is the smallest class whose every block has n units.
func roundUp(n uint32) uint32 {
	if n < linear {
		return n
	}
	e := uint32(bits.Len32(n)) - 1
	return classOf(n + 1<<(e-4) - 1)
}

func (v *varSpace) word(page, off uint32) *uint32 {
	return (*uint32)(unsafe.Add(v.base, uintptr(page)<<PageBits+uintptr(off)*unit))
}

func (v *varSpace) block(page, off uint32) *freeBlock {
	return (*freeBlock)(unsafe.Pointer(v.word(page, off)))
}

// at is where a part starts; the start of the region for no part, of which nothing may be read.
func (v *varSpace) at(r VarRef) unsafe.Pointer {
	return unsafe.Pointer(v.word(r.page, uint32(r.off)+1))
}

func unitsFor(bytes uint32) uint32 { return max((blockHead+bytes+unit-1)/unit, minBlock) }

// alloc finds room for a part. False if memory is out; then nothing has changed.
func (v *varSpace) alloc(bytes uint32) (VarRef, bool) {
	if bytes > MaxVar {
		invariant.Failf("variable part of %d bytes", bytes)
	}
	n := unitsFor(bytes)
	page, off, ok := v.find(n, 4)
	if !ok {
		if page = v.a.alloc(KindVar); page != noPage {
			off = firstBlock
			*v.head(page) = varHead{next: v.all}
			if v.all != 0 {
				v.head(v.all - 1).prev = page + 1
			}
			v.all = page + 1
			v.pages++
			v.block(page, off).head = fullBlock
		} else if page, off, ok = v.find(n, 1000); !ok {
			return VarRef{}, false
		}
	}
	v.cut(page, off, n)
	return VarRef{page: page, off: uint16(off), len: uint16(bytes)}, true
}

// find takes a free block of at least n units out of its list: out of the size's own class if one of the first `tries`
// blocks there is large enough (which packs better than always cutting a larger one), else out of the next class
// in which all are.
func (v *varSpace) find(n uint32, tries int) (page, off uint32, ok bool) {
	r := v.class[classOf(n)]
	for ; r.off != 0 && tries > 0; tries-- {
		b := v.block(r.page, uint32(r.off))
		if b.head&sizeMask >= n {
			v.unlink(r.page, uint32(r.off))
			return r.page, uint32(r.off), true
		}
		r = VarRef{page: b.nextPage, off: b.nextOff}
	}
	c := roundUp(n)
	if c >= classes {
		return 0, 0, false
	}
	w := c >> 6
	m := v.have[w] >> (c & 63) << (c & 63)
	for m == 0 && w < uint32(len(v.have))-1 {
		w++
		m = v.have[w]
	}
	if m == 0 {
		return 0, 0, false
	}
	r = v.class[w<<6|uint32(bits.TrailingZeros64(m))]
	v.unlink(r.page, uint32(r.off))
	return r.page, uint32(r.off), true
}

// cut makes the block at off one of n units in use; what is left of it becomes (or joins) a free block.
func (v *varSpace) cut(page, off, n uint32) {
	w := v.word(page, off)
	size, before := *w&sizeMask, *w>>sizeBits&sizeMask
	rest := size - n
	end := off + size
	if rest > 0 && end < pageUnits && *v.word(page, end)&freeBit != 0 {
		rest += *v.word(page, end) & sizeMask
		v.unlink(page, end)
		end = off + n + rest
	}
	if rest < minBlock {
		n, rest = n+rest, 0
	}
	*w = n | before<<sizeBits
	if rest > 0 {
		*v.word(page, off+n) = rest | n<<sizeBits
		v.setBefore(page, end, rest)
		v.link(page, off+n)
	} else {
		v.setBefore(page, end, n)
	}
}

func (v *varSpace) setBefore(page, off, n uint32) {
	if off < pageUnits {
		w := v.word(page, off)
		*w = *w&^(sizeMask<<sizeBits) | n<<sizeBits
	}
}

// free frees a part.
func (v *varSpace) free(r VarRef) {
	if r.off == 0 {
		return
	}
	page, off := r.page, uint32(r.off)
	w := *v.word(page, off)
	invariant.That(w&freeBit == 0, "a freed variable part was in use")
	size, before := w&sizeMask, w>>sizeBits&sizeMask
	if end := off + size; end < pageUnits && *v.word(page, end)&freeBit != 0 {
		size += *v.word(page, end) & sizeMask
		v.unlink(page, end)
	}
	if before != 0 && *v.word(page, off-before)&freeBit != 0 {
		off -= before
		size += before
		v.unlink(page, off)
		before = *v.word(page, off) >> sizeBits & sizeMask
	}
	if size == fullBlock {
		v.giveBack(page)
		return
	}
	*v.word(page, off) = size | before<<sizeBits
	v.setBefore(page, off+size, size)
	v.link(page, off)
}

func (v *varSpace) head(page uint32) *varHead {
	return (*varHead)(unsafe.Add(v.base, uintptr(page)<<PageBits))
}

func (v *varSpace) giveBack(page uint32) {
	h := v.head(page)
	if h.next != 0 {
		v.head(h.next - 1).prev = h.prev
	}
	if h.prev != 0 {
		v.head(h.prev - 1).next = h.next
	} else {
		v.all = h.next
	}
	v.pages--
	v.a.release(page, KindVar)
}

func (v *varSpace) link(page, off uint32) {
	b := v.block(page, off)
	c := classOf(b.head & sizeMask)
	old := v.class[c]
	b.head |= freeBit
	b.nextPage, b.nextOff, b.prevPage, b.prevOff = old.page, old.off, 0, 0
	if old.off != 0 {
		o := v.block(old.page, uint32(old.off))
		o.prevPage, o.prevOff = page, uint16(off)
	} else {
		v.have[c>>6] |= 1 << (c & 63)
	}
	v.class[c] = VarRef{page: page, off: uint16(off)}
}

func (v *varSpace) unlink(page, off uint32) {
	b := v.block(page, off)
	if b.nextOff != 0 {
		n := v.block(b.nextPage, uint32(b.nextOff))
		n.prevPage, n.prevOff = b.prevPage, b.prevOff
	}
	if b.prevOff != 0 {
		p := v.block(b.prevPage, uint32(b.prevOff))
		p.nextPage, p.nextOff = b.nextPage, b.nextOff
	} else {
		c := classOf(b.head & sizeMask)
		v.class[c] = VarRef{page: b.nextPage, off: b.nextOff}
		if b.nextOff == 0 {
			v.have[c>>6] &^= 1 << (c & 63)
		}
	}
	b.head &^= freeBit
}

// drop gives up to max pages back; it returns how many are left of max.
func (v *varSpace) drop(max uint32) uint32 {
	if v.a == nil {
		return max
	}
	clear(v.class)
	v.have = [3]uint64{}
	for ; v.all != 0 && max > 0; max-- {
		v.giveBack(v.all - 1)
	}
	return max
}

func (f *Fragment) varRef(r *RowHead) *VarRef {
	return (*VarRef)(unsafe.Add(unsafe.Pointer(r), f.varAt))
}

// keyRoom is what the key takes at the start of a variable part.
func (f *Fragment) keyRoom(p unsafe.Pointer) uint32 {
	if f.keyFixed != 0 {
		return 0
	}
	return 4 + load32(p)
}

// Var is the variable image of a row; n is 0 if there is none.
func (f *Fragment) Var(r *RowHead) (p unsafe.Pointer, n uint32) {
	if f.varAt == 0 {
		return nil, 0
	}
	return f.VarOf(*f.varRef(r))
}

// VarOf is the variable image of a part that is not yet a row's.
func (f *Fragment) VarOf(ref VarRef) (p unsafe.Pointer, n uint32) {
	if ref.off == 0 {
		return nil, 0
	}
	p = f.v.at(ref)
	k := f.keyRoom(p)
	return unsafe.Add(p, k), uint32(ref.len) - k
}

// NewVar makes a variable part for a row, with n bytes at p as variable image, beside the one that the row has. It
// becomes the row's with SwapVar, which cannot fail, or goes with FreeVar. p must not be in this fragment's memory
// unless it is this row's own.
func (f *Fragment) NewVar(r *RowHead, p unsafe.Pointer, n uint32) (ref VarRef, code uint32) {
	invariant.That(f.varAt != 0 && n&3 == 0, "a variable image, of whole words, of a table that has them")
	old := *f.varRef(r)
	k := uint32(0)
	if f.keyFixed == 0 {
		k = f.keyRoom(f.v.at(old))
	}
	if k+n == 0 {
		return VarRef{}, 0
	}
	ref, ok := f.v.alloc(k + n)
	if !ok {
		return VarRef{}, CodeNoMemory
	}
	q := f.v.at(ref)
	move(q, f.v.at(old), k)
	move(unsafe.Add(q, k), p, n)
	return ref, 0
}

// SwapVar makes the part the row's and frees the one before.
func (f *Fragment) SwapVar(r *RowHead, ref VarRef) {
	v := f.varRef(r)
	f.v.free(*v)
	*v = ref
}

// FreeVar frees a part of NewVar that no row got.
func (f *Fragment) FreeVar(ref VarRef) { f.v.free(ref) }

// SetVar replaces the variable image of a row by n bytes at p. A part that does not grow stays where it is and needs
// no memory. With CodeNoMemory nothing has changed. p as for NewVar.
func (f *Fragment) SetVar(r *RowHead, p unsafe.Pointer, n uint32) (code uint32) {
	invariant.That(f.varAt != 0 && n&3 == 0, "a variable image, of whole words, of a table that has them")
	v := f.varRef(r)
	if v.off != 0 {
		q := f.v.at(*v)
		k := f.keyRoom(q)
		have := *f.v.word(v.page, uint32(v.off)) & sizeMask
		if need := unitsFor(k + n); k+n > 0 && need <= have {
			move(unsafe.Add(q, k), p, n)
			v.len = uint16(k + n)
			if need < have {
				f.v.cut(v.page, uint32(v.off), need)
			}
			return 0
		}
	}
	ref, code := f.NewVar(r, p, n)
	if code != 0 {
		return code
	}
	f.SwapVar(r, ref)
	return 0
}

// sumOf is the checksum of everything that is the same on every replica: key, fixed and variable image.
func (f *Fragment) sumOf(r *RowHead) uint32 {
	n := f.keyFixed + f.l.FixedSize
	s := uint32(0)
	if n > 0 {
		s = rowhash.Sum(0, unsafe.Add(unsafe.Pointer(r), rowHeadSize), n)
	}
	if f.varAt != 0 {
		if ref := *f.varRef(r); ref.len != 0 {
			s = rowhash.Sum(s, f.v.at(ref), uint32(ref.len))
		}
	}
	return s
}

// UpdateSum makes the checksum of a changed row right again; it is the last step of a change.
func (f *Fragment) UpdateSum(r *RowHead) { r.Sum = f.sumOf(r) }

// CheckSum says whether a row is as UpdateSum saw it; if not, answer CodeCorrupt. It reads nothing outside of the
// region whatever the row holds.
func (f *Fragment) CheckSum(r *RowHead) bool {
	if f.varAt != 0 {
		ref := *f.varRef(r)
		if ref.page >= f.v.a.r.pages || uint32(ref.off)*unit+blockHead+uint32(ref.len) > PageSize {
			return false
		}
	}
	return f.sumOf(r) == r.Sum
}
