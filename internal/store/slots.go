package store

import (
	"math/bits"
	"unsafe"

	"github.com/cohortdb/cohort/internal/invariant"
)

// slotPages is a set of pages cut into slots of one size: the rows of a fragment, its overflow buckets, a class of
// copies. A slot has a number (logical page << bits | slot) and never moves. A page goes back to the arena with
// its last slot; its logical number is used again before the set grows.
type slotPages struct {
	pages    []uint32 // logical page -> page, noPage if it was given back
	base     unsafe.Pointer
	slotBits uint32
	slotMask uint32 // 1<<slotBits - 1
	slotSize uint32 // bytes
	headSize uint32 // bytes of slotHead and bitmap
	perPage  uint32 // slots
	avail    uint32 // logical page+1: head of the list of pages with room
	a        *Arena
	words    uint32 // of the bitmap
	maxPages uint32
	absent   uint32 // logical pages below len(pages) without a page
	low      uint32 // no absent logical page lies below this one
	kind     PageKind
	keepOne  bool     // the last page stays when it is empty, until trim
	owner    uint32   // written into each page
	keepGCI  bool     // slots are rows: the GCI in their first 8 bytes outlives them
	gone     []uint64 // by logical page: newest GCI of the slots of a page that was given back; nil until the first
}

// slotHead heads each page. The bitmap of free slots follows: so any slot can be taken, in any order.
type slotHead struct {
	next, prev uint32 // logical page+1 in the list of pages with room
	free       uint32 // free slots; the page is in the list if there are any
	hint       uint32 // no word of the bitmap before this one has a bit
	fresh      uint32 // slots from here on were never in use since the page was taken: nothing in them is valid
	lp         uint32 // logical page
	owner      uint32 // slotPages.owner
	unused     uint32
	gci        [2]uint32 // of slots from fresh on
}

const slotHeadSize = uint32(unsafe.Sizeof(slotHead{}))

// maxSlotSize: one slot takes a whole page.
const maxSlotSize = PageSize - slotHeadSize - 8

func (s *slotPages) init(a *Arena, kind PageKind, slotSize, align uint32, keepGCI bool) {
	if slotSize > maxSlotSize || slotSize < 8 || slotSize&3 != 0 {
		invariant.Failf("slot of %d bytes", slotSize)
	}
	*s = slotPages{a: a, base: a.r.base, kind: kind, slotSize: slotSize, keepGCI: keepGCI}
	for n := (PageSize - slotHeadSize) / slotSize; ; n-- {
		s.words = (n + 63) / 64
		s.headSize = (slotHeadSize + 8*s.words + align - 1) &^ (align - 1)
		if s.headSize+n*slotSize <= PageSize {
			s.perPage = n
			break
		}
	}
	s.slotBits = uint32(bits.Len32(s.perPage - 1))
	s.slotMask = 1<<s.slotBits - 1
	// A set never needs more logical pages than there are pages; four times as many allow for a peer with more memory
	// and bound what one row id of a peer can make this node allocate.
	s.maxPages = uint32(min(1<<(32-s.slotBits)-1, 4*uint64(a.r.pages)+64))
}

func (s *slotPages) page(lp uint32) unsafe.Pointer {
	return unsafe.Add(s.base, uintptr(s.pages[lp])<<PageBits)
}

func (s *slotPages) head(lp uint32) *slotHead { return (*slotHead)(s.page(lp)) }

// at is the address of a slot in use.
func (s *slotPages) at(id uint32) unsafe.Pointer {
	return unsafe.Add(s.page(id>>(s.slotBits&31)), s.headSize+id&s.slotMask*s.slotSize)
}

// word is the word of a page's bitmap for slot i: a set bit is a free slot.
func word(h *slotHead, w uint32) *uint64 {
	return (*uint64)(unsafe.Add(unsafe.Pointer(h), slotHeadSize+8*w))
}

// inUse is the checked question, for numbers that came from outside.
func (s *slotPages) inUse(id uint32) bool {
	lp, i := id>>(s.slotBits&31), id&s.slotMask
	if lp >= uint32(len(s.pages)) || s.pages[lp] == noPage || i >= s.perPage {
		return false
	}
	return *word(s.head(lp), i>>6)>>(i&63)&1 == 0
}

// alloc takes any free slot.
func (s *slotPages) alloc() (id, code uint32) {
	if s.avail == 0 {
		if code := s.addAny(); code != 0 {
			return 0, code
		}
	}
	lp := s.avail - 1
	h := s.head(lp)
	w := h.hint
	for *word(h, w) == 0 {
		w++
	}
	h.hint = w
	i := w<<6 | uint32(bits.TrailingZeros64(*word(h, w)))
	s.takeFrom(h, i)
	return lp<<s.slotBits | i, 0
}

// take takes exactly the slot that somebody else chose.
func (s *slotPages) take(id uint32) (code uint32) {
	lp, i := id>>(s.slotBits&31), id&s.slotMask
	if lp >= s.maxPages || i >= s.perPage {
		return CodeFragmentFull
	}
	if lp >= uint32(len(s.pages)) || s.pages[lp] == noPage {
		if code := s.add(lp); code != 0 {
			return code
		}
	}
	h := s.head(lp)
	if *word(h, i>>6)>>(i&63)&1 == 0 {
		return CodeRowIDTaken
	}
	s.takeFrom(h, i)
	return 0
}

func (s *slotPages) takeFrom(h *slotHead, i uint32) {
	*word(h, i>>6) &^= 1 << (i & 63)
	if h.free--; h.free == 0 {
		s.unlink(h)
	}
	s.freshen(h, i)
}

// freshen makes what lies in a slot valid.
func (s *slotPages) freshen(h *slotHead, i uint32) {
	for h.fresh <= i { // one step when slots are taken in order
		if s.keepGCI {
			*(*[2]uint32)(unsafe.Add(unsafe.Pointer(h), s.headSize+h.fresh*s.slotSize)) = h.gci
		}
		h.fresh++
	}
}

// release frees a slot in use.
func (s *slotPages) release(id uint32) {
	lp, i := id>>(s.slotBits&31), id&s.slotMask
	h := s.head(lp)
	w := word(h, i>>6)
	invariant.That(*w>>(i&63)&1 == 0, "a freed slot was in use")
	*w |= 1 << (i & 63)
	if h.hint > i>>6 {
		h.hint = i >> 6
	}
	if h.free++; h.free == 1 {
		s.link(h)
	}
	if h.free == s.perPage && !(s.keepOne && s.held() == 1) {
		s.giveBack(lp, h)
	}
}

// held is the number of pages that the set has.
func (s *slotPages) held() uint32 { return uint32(len(s.pages)) - s.absent }

// trim gives the page back that keepOne kept, if it is empty.
func (s *slotPages) trim() (given bool) {
	if s.avail == 0 || s.held() != 1 {
		return false
	}
	if h := s.head(s.avail - 1); h.free == s.perPage {
		s.giveBack(h.lp, h)
		return true
	}
	return false
}

// addAny adds a page under the lowest logical number without one.
func (s *slotPages) addAny() (code uint32) {
	lp := uint32(len(s.pages))
	if s.absent > 0 {
		for lp = s.low; s.pages[lp] != noPage; lp++ {
		}
		s.low = lp
	}
	if lp >= s.maxPages {
		return CodeFragmentFull
	}
	return s.add(lp)
}

func (s *slotPages) add(lp uint32) (code uint32) {
	p := s.a.alloc(s.kind)
	if p == noPage {
		return CodeNoMemory
	}
	for uint32(len(s.pages)) <= lp {
		if s.absent++; s.absent == 1 {
			s.low = uint32(len(s.pages))
		}
		s.pages = append(s.pages, noPage)
	}
	s.pages[lp] = p
	s.absent--
	h := s.head(lp)
	*h = slotHead{free: s.perPage, lp: lp, owner: s.owner}
	if lp < uint32(len(s.gone)) {
		h.gci = split(s.gone[lp])
	}
	for w := range s.words {
		*word(h, w) = ^uint64(0)
	}
	if tail := s.perPage & 63; tail != 0 {
		*word(h, s.words-1) = 1<<tail - 1
	}
	s.link(h)
	return 0
}

func (s *slotPages) giveBack(lp uint32, h *slotHead) {
	s.unlink(h)
	if s.keepGCI {
		g := join(h.gci)
		for i := range h.fresh {
			g = max(g, join(*(*[2]uint32)(unsafe.Add(unsafe.Pointer(h), s.headSize+i*s.slotSize))))
		}
		for uint32(len(s.gone)) <= lp {
			s.gone = append(s.gone, 0)
		}
		s.gone[lp] = g
	}
	s.a.release(s.pages[lp], s.kind)
	s.pages[lp] = noPage
	if s.absent++; s.absent == 1 || lp < s.low {
		s.low = lp
	}
}

func (s *slotPages) link(h *slotHead) {
	h.next, h.prev = s.avail, 0
	if s.avail != 0 {
		s.head(s.avail - 1).prev = h.lp + 1
	}
	s.avail = h.lp + 1
}

func (s *slotPages) unlink(h *slotHead) {
	if h.next != 0 {
		s.head(h.next - 1).prev = h.prev
	}
	if h.prev != 0 {
		s.head(h.prev - 1).next = h.next
	} else {
		s.avail = h.next
	}
}

// next is the first slot in use after id (NoRow: the first of all); false at the end.
func (s *slotPages) next(id uint32) (uint32, bool) {
	id++ // from NoRow to 0
	lp, i := id>>(s.slotBits&31), id&s.slotMask
	for ; lp < uint32(len(s.pages)); lp, i = lp+1, 0 {
		if s.pages[lp] == noPage {
			continue
		}
		h := s.head(lp)
		for w := i >> 6; w < s.words; w++ {
			m := ^*word(h, w)
			if w == i>>6 {
				m &= ^uint64(0) << (i & 63)
			}
			if m != 0 {
				if j := w<<6 | uint32(bits.TrailingZeros64(m)); j < s.perPage {
					return lp<<s.slotBits | j, true
				}
				break
			}
		}
	}
	return 0, false
}

// gci is what a slot that is not in use remembers.
func (s *slotPages) gci(id uint32) uint64 {
	lp, i := id>>(s.slotBits&31), id&s.slotMask
	switch {
	case i >= s.perPage:
		return 0
	case lp >= uint32(len(s.pages)) || s.pages[lp] == noPage:
		if lp < uint32(len(s.gone)) {
			return s.gone[lp]
		}
		return 0
	}
	h := s.head(lp)
	if i >= h.fresh {
		return join(h.gci)
	}
	return join(*(*[2]uint32)(unsafe.Add(unsafe.Pointer(h), s.headSize+i*s.slotSize)))
}

// drop gives up to max pages back, the last first, whatever is in them; it returns how many are left of max.
func (s *slotPages) drop(max uint32) uint32 {
	for n := len(s.pages); n > 0; n-- {
		if s.pages[n-1] == noPage {
			s.absent--
		} else if max > 0 {
			s.a.release(s.pages[n-1], s.kind)
			max--
		} else {
			break
		}
		s.pages = s.pages[:n-1]
	}
	if len(s.pages) == 0 {
		s.pages, s.gone, s.avail, s.absent, s.low = nil, nil, 0, 0, 0
	}
	return max
}

func split(g uint64) [2]uint32 { return [2]uint32{uint32(g), uint32(g >> 32)} }
func join(g [2]uint32) uint64  { return uint64(g[0]) | uint64(g[1])<<32 }
