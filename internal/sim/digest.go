package sim

import (
	"fmt"
	"unsafe"

	"github.com/cohortdb/cohort/internal/signal"
)

// Digest is a hash chain over all deliveries of a run. Two runs with equal digests delivered the same signals, byte
// for byte, at the same times, between the same blocks.
type Digest uint64

func (d Digest) String() string { return fmt.Sprintf("%016x", uint64(d)) }

// add chains one delivery: its virtual time, and the whole signal (head with both addresses and number, body).
func (d Digest) add(at int64, h *signal.Head) Digest {
	x := (uint64(d) ^ uint64(at)) * 0x9e3779b97f4a7c15
	x ^= x >> 29
	for _, w := range unsafe.Slice((*uint32)(unsafe.Pointer(h)), h.Len) {
		x = (x ^ uint64(w)) * 0xbf58476d1ce4e5b9
		x ^= x >> 32
	}
	return Digest(x)
}
