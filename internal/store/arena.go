package store

import (
	"math/bits"
	"unsafe"

	"github.com/cohortdb/cohort/internal/invariant"
)

// PageKind says what a page is used for, in reports of memory usage.
type PageKind uint8

const (
	KindRows  PageKind = iota // slots of rows
	KindVar                   // variable parts
	KindIndex                 // hash index
	KindCopy                  // copies for pending changes
	kinds
)

// Arena gives the fragments of one LDM instance pages from the chunks that it has taken, and gives a chunk back when
// its last page is free.
type Arena struct {
	r     *Region
	src   ChunkSource
	avail uint32        // chunk+1: head of the list of chunks with free pages
	used  [kinds]uint32 // pages in use, by kind
	taken uint32        // chunks
}

func NewArena(r *Region, src ChunkSource) *Arena { return &Arena{r: r, src: src} }

// Used is the number of pages in use for a kind.
func (a *Arena) Used(k PageKind) uint32 { return a.used[k] }

// UsedPages is the number of pages in use.
func (a *Arena) UsedPages() uint32 {
	n := uint32(0)
	for _, u := range a.used {
		n += u
	}
	return n
}

// TotalPages is the size of the region, which the arena shares with others.
func (a *Arena) TotalPages() uint32 { return a.r.pages }

// Region is where the pages lie.
func (a *Arena) Region() *Region { return a.r }

// Chunks is the number of chunks that the arena has at the moment.
func (a *Arena) Chunks() uint32 { return a.taken }

// alloc gives a page with unknown content; noPage if there is none.
func (a *Arena) alloc(k PageKind) uint32 {
	if a.avail == 0 {
		c, ok := a.src.Take()
		if !ok {
			return noPage
		}
		invariant.That(c < uint32(len(a.r.chunks)), "a chunk source gives chunks of its region")
		a.taken++
		a.r.chunks[c].free = a.r.full(c)
		a.link(c)
	}
	c := a.avail - 1
	s := &a.r.chunks[c]
	i := uint32(bits.TrailingZeros64(s.free))
	if s.free &= s.free - 1; s.free == 0 {
		a.unlink(c)
	}
	a.used[k]++
	return c<<a.r.chunkBits | i
}

func (a *Arena) release(page uint32, k PageKind) {
	c := page >> a.r.chunkBits
	s := &a.r.chunks[c]
	bit := uint64(1) << (page & (a.r.chunkPages - 1))
	invariant.That(s.free&bit == 0 && a.used[k] > 0, "a released page was in use")
	a.used[k]--
	if s.free == 0 {
		a.link(c)
	}
	if s.free |= bit; s.free == a.r.full(c) {
		a.unlink(c)
		a.taken--
		a.src.Give(c)
	}
}

func (a *Arena) link(c uint32) {
	s := &a.r.chunks[c]
	s.next, s.prev = a.avail, 0
	if a.avail != 0 {
		a.r.chunks[a.avail-1].prev = c + 1
	}
	a.avail = c + 1
}

func (a *Arena) unlink(c uint32) {
	s := &a.r.chunks[c]
	if s.next != 0 {
		a.r.chunks[s.next-1].prev = s.prev
	}
	if s.prev != 0 {
		a.r.chunks[s.prev-1].next = s.next
	} else {
		a.avail = s.next
	}
}

func load32(p unsafe.Pointer) uint32 { return *(*uint32)(p) }

// move copies n bytes; the ranges may overlap.
func move(dst, src unsafe.Pointer, n uint32) {
	copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
}
