package store

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/invariant"
)

// Scanning a fragment slot by slot, and giving another replica's slots the same memory: for copies of fragments.

// Slots are consecutive slots of one page in the order of their ids.
type Slots struct {
	First RowID
	N     uint32
	Used  bool   // a row lies there (N is 1), hidden rows and rows of uncommitted inserts included
	GCI   uint64 // of free slots: what each of them remembers of its last delete, not 0
}

// NextSlots is what comes first at or behind an id: a slot in use, or free slots that remember the same delete. Free slots
// that remember nothing are passed over. False: nothing comes any more.
func (f *Fragment) NextSlots(at RowID) (Slots, bool) { return f.slots.scan(at) }

func (s *slotPages) scan(at uint32) (Slots, bool) {
	lp, i := at>>(s.slotBits&31), at&s.slotMask
	for ; lp < uint32(max(len(s.pages), len(s.gone))); lp, i = lp+1, 0 {
		for i < s.perPage {
			id := lp<<s.slotBits | i
			if s.inUse(id) {
				return Slots{First: id, N: 1, Used: true}, true
			}
			g := s.gci(id)
			n := uint32(1)
			if lp < uint32(len(s.pages)) && s.pages[lp] != noPage {
				for i+n < s.perPage && !s.inUse(id+n) && s.gci(id+n) == g {
					n++
				}
			} else {
				n = s.perPage - i
			}
			if g != 0 {
				return Slots{First: id, N: n, GCI: g}, true
			}
			i += n
		}
	}
	return Slots{}, false
}

// Forget makes those of n slots of one page that are free remember a delete in epoch gci, as SlotGCI of another replica
// tells it. While the page is not there the newest of its deletes counts for all of it. False: the ids name no slots of
// one page.
func (f *Fragment) Forget(id RowID, n uint32, gci uint64) bool { return f.slots.forget(id, n, gci) }

func (s *slotPages) forget(id, n uint32, gci uint64) bool {
	lp, i := id>>(s.slotBits&31), id&s.slotMask
	if lp >= s.maxPages || i >= s.perPage || n < 1 || n > s.perPage-i {
		return false
	}
	invariant.That(s.keepGCI, "only rows remember their delete")
	if lp >= uint32(len(s.pages)) || s.pages[lp] == noPage {
		for uint32(len(s.gone)) <= lp {
			s.gone = append(s.gone, 0)
		}
		s.gone[lp] = max(s.gone[lp], gci)
		return true
	}
	h := s.head(lp)
	for j := i; j < i+n; j++ {
		if s.inUse(lp<<s.slotBits | j) {
			continue
		}
		s.freshen(h, j)
		*(*[2]uint32)(unsafe.Add(unsafe.Pointer(h), s.headSize+j*s.slotSize)) = split(gci)
	}
	return true
}
