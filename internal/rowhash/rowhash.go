// Package rowhash is the one hash function of the cluster: it places a key (distribution bucket, index bucket,
// tag) and sums a row (checksum). Every node must compute the same value for the same bytes for ever, since
// what it decides is stored and sent; so it has no seed, and a change of it is a change of the wire format.
//
// It owns no state and never allocates. It is not made to withstand somebody who chooses keys that collide:
// such keys make their index chains long, nothing else.
//
// The bits of a hash are dealt out so that no use of them disturbs another: the low bits choose the bucket of
// the hash index, bits 24–55 the distribution bucket (its upper end decides), the top byte is the tag. If the
// index and the distribution shared bits, all rows of a fragment would crowd into a part of its buckets.
package rowhash

import (
	"math/bits"
	"unsafe"
)

const (
	k0 = 0x9E3779B97F4A7C15
	k1 = 0xD6E8FEB86659FD93
	k2 = 0xBF58476D1CE4E5B9
	k3 = 0x94D049BB133111EB
)

// DistributionBuckets is the number of buckets of the distribution hash map.
const DistributionBuckets = 3840

// Hash mixes n bytes at p; n is a multiple of 4. It is one leaf function: 8 and 4 bytes, the commonest, leave it
// after a few instructions.
func Hash(p unsafe.Pointer, n uint32) uint64 {
	if n == 8 {
		return Hash8(*(*uint64)(p))
	}
	if n == 4 {
		return finish(mum(load4(p, 0)^k3, k1))
	}
	s := uint64(n) * k0
	if n > 64 {
		// four independent lanes: the latency of a multiplication is hidden behind the others
		t, u, v := s^k1, s^k2, s^k3
		for ; n > 64; n -= 64 {
			s = mum(load8(p, 0)^k1, load8(p, 8)^s)
			t = mum(load8(p, 16)^k2, load8(p, 24)^t)
			u = mum(load8(p, 32)^k3, load8(p, 40)^u)
			v = mum(load8(p, 48)^k0, load8(p, 56)^v)
			p = unsafe.Add(p, 64)
		}
		s = mum(s^t^k2, u^bits.RotateLeft64(v, 32)^k3)
	}
	for ; n > 16; n -= 16 {
		s = mum(load8(p, 0)^k1, load8(p, 8)^s)
		p = unsafe.Add(p, 16)
	}
	var a, b uint64
	switch {
	case n == 16:
		a, b = load8(p, 0), load8(p, 8)
	case n == 12: // not two overlapping loads: those wait for a store that has just been made
		a, b = load8(p, 0), load4(p, 8)
	case n == 8:
		a = load8(p, 0)
	case n == 4:
		a = load4(p, 0)
	}
	return finish(mum(mum(a^k2, b^s)^k0, k1))
}

// Hash8 is Hash of the 8 bytes of x, small enough to be inlined.
func Hash8(x uint64) uint64 { return finish(mum(x^k0, k1)) }

// finish spreads the folded product once more: without it the low bits of sequential keys are too even.
func finish(x uint64) uint64 { return x ^ x>>29*k2 }

func mum(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

func load8(p unsafe.Pointer, at uint32) uint64 { return *(*uint64)(unsafe.Add(p, at)) }

func load4(p unsafe.Pointer, at uint32) uint64 { return uint64(*(*uint32)(unsafe.Add(p, at))) }

// Sum is a checksum of n bytes at p (a multiple of 4), chained through the sum of what came before (0 at first).
func Sum(before uint32, p unsafe.Pointer, n uint32) uint32 {
	h := Hash(p, n) + uint64(before)*k3
	return uint32(h ^ h>>32)
}

// DistributionBucket is the distribution bucket of a hash, 0 to DistributionBuckets-1.
func DistributionBucket(h uint64) uint32 {
	return uint32((h >> 24 & 0xffffffff) * DistributionBuckets >> 32)
}
