package kernel

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/invariant"
)

// Buf collects the signals for one destination, back to back: the bytes that a socket will take, or that
// another thread will read. It grows up to its hard limit.
type Buf struct {
	base unsafe.Pointer // start of mem, kept apart so that reserving is an add and a compare
	n    uint32
	cap  uint32
	hard uint32 // bytes; beyond it the buffer is broken
	mem  []byte
	// Dirty: something was put since the last flush.
	Dirty bool
	// Broken: the hard limit was passed; what was in it is gone, and its link must be cut.
	Broken bool
}

// slack is what a buffer's memory has behind its last byte. An empty section of the last signal begins there, and a
// pointer to it must not lead into other memory: Go's collector ends the program when it finds one into a free object.
const slack = 8

// Init gives the buffer size bytes to start with and a hard limit, both in bytes.
func (b *Buf) Init(size, hard int) {
	invariant.That(size > 0 && size <= hard && hard <= 1<<31, "a buffer starts within its limit")
	b.mem = make([]byte, size+slack)
	b.base, b.cap, b.hard = unsafe.Pointer(&b.mem[0]), uint32(size), uint32(hard)
	b.n, b.Dirty, b.Broken = 0, false, false
}

// Close gives the memory up; a closed buffer swallows what is put into it.
func (b *Buf) Close() { *b = Buf{} }

// Open tells whether the buffer was given memory.
func (b *Buf) Open() bool { return b.mem != nil }

// Bytes is what waits to be sent.
func (b *Buf) Bytes() []byte { return b.mem[:b.n] }

// Len is how many bytes wait.
func (b *Buf) Len() int { return int(b.n) }

// Consume drops the first n bytes, which a socket took.
func (b *Buf) Consume(n int) {
	if n > int(b.n) {
		invariant.Failf("%d bytes of %d consumed", n, b.n)
	}
	copy(b.mem, b.mem[n:b.n])
	b.n -= uint32(n)
}

// Truncate takes back what was put from byte n on: the last signal, by who has just put it.
func (b *Buf) Truncate(n int) {
	if n > int(b.n) {
		invariant.Failf("truncated to %d bytes of %d", n, b.n)
	}
	b.n = uint32(n)
}

// Swap takes the filled memory away and leaves m in its place, of whose capacity all but a few bytes is used.
func (b *Buf) Swap(m []byte) []byte {
	invariant.That(cap(m) > slack, "memory for a buffer is longer than what stays unused")
	full := b.mem[:b.n]
	b.mem = m[:cap(m)]
	b.base, b.cap, b.n = unsafe.Pointer(&b.mem[0]), uint32(cap(m)-slack)&^3, 0
	return full
}

// Reserve returns n fresh bytes at the end, their content undefined. n is a multiple of 4.
func (b *Buf) Reserve(n uint32) unsafe.Pointer {
	if b.n+n > b.cap {
		b.grow(n)
	}
	p := unsafe.Add(b.base, b.n)
	b.n += n
	return p
}

// grow doubles the memory. Past the hard limit the content is dropped and the buffer marked broken: the owner of
// the link sees it at the next flush and cuts the link.
//
//go:noinline
func (b *Buf) grow(n uint32) {
	if b.hard == 0 { // closed: a place to write to
		size := max(4096, n)
		b.mem = make([]byte, size+slack)
		b.base, b.cap, b.n = unsafe.Pointer(&b.mem[0]), size, 0
		b.hard, b.Broken = 1, true
		return
	}
	size := uint64(b.cap) * 2
	for size < uint64(b.n)+uint64(n) {
		size *= 2
	}
	size = min(size, uint64(b.hard))
	if uint64(b.n)+uint64(n) > size {
		b.Broken, b.n = true, 0
		if n <= b.cap {
			return
		}
		size = uint64(n)
	}
	m := make([]byte, size+slack)
	copy(m, b.mem[:b.n])
	b.mem, b.base, b.cap = m, unsafe.Pointer(&m[0]), uint32(size)
}
