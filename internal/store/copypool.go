package store

import (
	"math/bits"
	"unsafe"

	"github.com/cohortdb/cohort/internal/invariant"
)

// MaxCopy is the largest block of a copy pool in bytes: more than any row's images together.
const MaxCopy = copyPage &^ 7

const (
	copyPage    = maxSlotSize // room in a page
	smallCopy   = 32          // bytes of the smallest class
	smallBits   = 5
	steppedCopy = 8192 // bytes; up to here classes are quarters of powers of two, above whole fractions of a page
	steppedBits = 13
	stepped     = (steppedBits-smallBits)*4 + 1
	copyClasses = stepped + 3
)

// CopyPool holds the copies of rows with pending changes: blocks of any size up to MaxCopy, 8-aligned, in size
// classes with pages of their own. Its arena, usually on a region of its own, is its exact bound. Seize and Release
// take constant time. A class keeps its last page when that becomes empty, so that a lone operation does not
// fetch and return a page every time; a class that finds no page gets it.
type CopyPool struct {
	a     *Arena
	class [copyClasses]slotPages
	used  uint64 // bytes of blocks in use, as large as their classes
	n     uint64 // blocks in use
}

func NewCopyPool(a *Arena) *CopyPool {
	c := &CopyPool{a: a}
	for i := range c.class {
		s := &c.class[i]
		s.init(a, KindCopy, copySize(uint32(i)), 8, false)
		s.owner, s.keepOne = uint32(i), true
	}
	return c
}

func copySize(class uint32) uint32 {
	if class < stepped {
		return (4 + class&3) << (class>>2 + smallBits - 2)
	}
	return copyPage / (stepped + 3 - class) &^ 7
}

func copyClass(bytes uint32) uint32 {
	switch {
	case bytes <= smallCopy:
		return 0
	case bytes <= steppedCopy:
		// the quarter that bytes-1 lies in, and one more
		e := uint32(bits.Len32(bytes-1)) - 1
		return (e-smallBits)*4 + (bytes-1)>>(e-2)&3 + 1
	case bytes <= copyPage/3&^7:
		return stepped
	case bytes <= copyPage/2&^7:
		return stepped + 1
	}
	return stepped + 2
}

// Seize gives a block of at least that many bytes, content unknown; nil when the pool is used up: the operation is
// refused with CodeNoCopies.
func (c *CopyPool) Seize(bytes uint32) unsafe.Pointer {
	if bytes > MaxCopy {
		invariant.Failf("copy of %d bytes", bytes)
	}
	s := &c.class[copyClass(bytes)]
	id, code := s.alloc()
	if code != 0 {
		if !c.Trim() {
			return nil
		}
		if id, code = s.alloc(); code != 0 {
			return nil
		}
	}
	c.used += uint64(s.slotSize)
	c.n++
	return s.at(id)
}

// Release takes a block back.
func (c *CopyPool) Release(p unsafe.Pointer) {
	off := uintptr(p) - uintptr(c.a.r.base)
	h := (*slotHead)(c.a.r.page(uint32(off >> PageBits)))
	s := &c.class[h.owner]
	i := (uint32(off&(PageSize-1)) - s.headSize) / s.slotSize
	s.release(h.lp<<s.slotBits | i)
	c.used -= uint64(s.slotSize)
	c.n--
}

// Trim gives the empty pages back that classes keep.
func (c *CopyPool) Trim() (given bool) {
	for i := range c.class {
		if c.class[i].trim() {
			given = true
		}
	}
	return given
}

// Used is what is in use: blocks, and their bytes. Both are 0 at rest.
func (c *CopyPool) Used() (blocks, bytes uint64) { return c.n, c.used }

// Total is the bound in bytes. Blocks of different sizes share it page by page.
func (c *CopyPool) Total() uint64 { return uint64(c.a.r.pages) << PageBits }
