package store

import (
	"math/bits"
	"unsafe"

	"github.com/cohortdb/cohort/internal/invariant"
)

const (
	PageBits = 15
	PageSize = 1 << PageBits // bytes

	noPage = ^uint32(0)
	// MaxChunkPages: the free pages of a chunk are bits of one word.
	MaxChunkPages = 64
)

// ChunkSource hands out the chunks of a region. Arenas of several threads may share one: then it is the host's
// duty to make it safe. It is called once per chunk, not per page.
type ChunkSource interface {
	// Take gives a chunk number of the region that nobody else has; false if there is none.
	Take() (chunk uint32, ok bool)
	// Give takes a chunk back. Its content is of no interest any more.
	Give(chunk uint32)
}

// Region is a contiguous range of memory in chunks of pages, so that page number -> address is one shift and one
// addition. It is shared by all arenas on it; the state of a chunk is touched only by the arena that has it.
type Region struct {
	base       unsafe.Pointer
	pages      uint32
	chunkPages uint32
	chunkBits  uint32 // log2(chunkPages)
	chunks     []chunkState
}

// chunkState belongs to the arena that took the chunk.
type chunkState struct {
	free       uint64 // a bit per free page
	next, prev uint32 // chunk+1 in its arena's list of chunks with free pages
}

// NewRegion describes bytes of memory at base, which the caller keeps as long as the region is in use: memory from
// the operating system, or Go memory in tests. chunkBytes is a power of two from one page to 64. What does not
// fill a page at the end is not used; the last chunk may be short.
func NewRegion(base unsafe.Pointer, bytes uint64, chunkBytes uint32) *Region {
	chunkPages := chunkBytes >> PageBits
	if chunkPages == 0 || chunkPages > MaxChunkPages || chunkBytes != chunkPages<<PageBits || chunkPages&(chunkPages-1) != 0 {
		invariant.Failf("region: chunk of %d bytes", chunkBytes)
	}
	pages := bytes >> PageBits
	invariant.That(pages < uint64(noPage), "page numbers have 32 bits")
	r := &Region{base: base, pages: uint32(pages), chunkPages: chunkPages, chunkBits: uint32(bits.TrailingZeros32(chunkPages))}
	r.chunks = make([]chunkState, r.Chunks())
	return r
}

// Pages is the number of pages of the region, the exact limit of what all its arenas can use.
func (r *Region) Pages() uint32 { return r.pages }

// Chunks is the number of chunks, numbered from 0.
func (r *Region) Chunks() uint32 { return (r.pages + r.chunkPages - 1) >> r.chunkBits }

// Chunk is where a chunk lies, for a host that wants to touch or return its memory.
func (r *Region) Chunk(c uint32) (p unsafe.Pointer, bytes uint32) {
	return r.page(c << r.chunkBits), uint32(bits.OnesCount64(r.full(c))) << PageBits
}

func (r *Region) page(n uint32) unsafe.Pointer { return unsafe.Add(r.base, uintptr(n)<<PageBits) }

// full has a bit for each page of a chunk.
func (r *Region) full(c uint32) uint64 {
	n := min(r.chunkPages, r.pages-c<<r.chunkBits)
	return ^uint64(0) >> (64 - n)
}

// LocalSource is a ChunkSource for one thread, over Go memory: for tests and the simulator.
type LocalSource struct {
	region *Region
	memory []byte
	free   []uint32
	poison bool
}

// NewLocalSource makes a region of Go memory and the source of its chunks. With poison a chunk is filled with
// rubbish when it is given back (and at first), so that whoever still reads it, or takes new memory for zero, is
// found out.
func NewLocalSource(bytes uint64, chunkBytes uint32, poison bool) (*Region, *LocalSource) {
	const line = 64 // buckets of the hash index want to be cache lines
	m := make([]byte, bytes+line)
	off := -uintptr(unsafe.Pointer(&m[0])) % line
	r := NewRegion(unsafe.Pointer(&m[off]), bytes, chunkBytes)
	s := &LocalSource{region: r, memory: m, poison: poison}
	for c := r.Chunks(); c > 0; c-- {
		s.Give(c - 1)
	}
	return r, s
}

func (s *LocalSource) Take() (uint32, bool) {
	n := len(s.free)
	if n == 0 {
		return 0, false
	}
	c := s.free[n-1]
	s.free = s.free[:n-1]
	return c, true
}

func (s *LocalSource) Give(c uint32) {
	if s.poison {
		p, n := s.region.Chunk(c)
		b := unsafe.Slice((*byte)(p), n)
		b[0] = 0xdb
		for i := 1; i < len(b); i *= 2 {
			copy(b[i:], b[:i])
		}
	}
	s.free = append(s.free, c)
}

// Free is the number of chunks that nobody has.
func (s *LocalSource) Free() int { return len(s.free) }
