package rowhash

import (
	"math/bits"
	"testing"
	"unsafe"
)

// Stored and sent values depend on these: a change of any of them is a change of format.
func TestHashIsFixedForEver(t *testing.T) {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i*7 + 1)
	}
	for _, c := range []struct {
		n    uint32
		want uint64
	}{
		{4, 0x98e742819b45092a},
		{8, 0x139f1d654944fedb},
		{12, 0x51be73044d2fd7e9},
		{16, 0xe864a7ea5db762c1},
		{64, 0xa1a08d96860535d9},
		{68, 0xcc00d8a5b1d3011a},
		{200, 0xba921a306276b39f},
	} {
		if got := Hash(unsafe.Pointer(&b[0]), c.n); got != c.want {
			t.Errorf("{%d, %#016x},", c.n, got)
		}
	}
}

// Keys as benchmarks and people make them: sequences, strides, pairs. Index buckets must fill like random ones,
// also within one fragment of the distribution, and every tag must be met.
func TestSequentialKeysSpread(t *testing.T) {
	const n, buckets = 1 << 17, 1 << 13 // 16 a bucket
	for name, key := range map[string]func(i uint32) uint64{
		"sequence":       func(i uint32) uint64 { return uint64(i) },
		"stride 4096":    func(i uint32) uint64 { return uint64(i) * 4096 },
		"equal pair":     func(i uint32) uint64 { return uint64(i) | uint64(i)<<32 },
		"high word":      func(i uint32) uint64 { return uint64(i) << 32 },
		"16 bits a word": func(i uint32) uint64 { return uint64(i&0xff) | uint64(i>>8)<<32 },
	} {
		for _, size := range []uint32{4, 8, 12} {
			if size == 4 && (name == "high word" || name == "16 bits a word" || name == "stride 4096") {
				continue // not distinct in 4 bytes
			}
			var count [buckets]int
			var part [8][buckets / 8]int
			var tags [256]int
			var dist [DistributionBuckets]int
			for i := range uint32(n) {
				k := [3]uint32{uint32(key(i)), uint32(key(i) >> 32), 7}
				h := Hash(unsafe.Pointer(&k), size)
				count[h%buckets]++
				tags[h>>56]++
				d := DistributionBucket(h)
				dist[d]++
				part[d%8][h%(buckets/8)]++
			}
			chi := func(c []int, total int) float64 { // per degree of freedom: 1 when random
				mean, s := float64(total)/float64(len(c)), 0.0
				for _, x := range c {
					s += (float64(x) - mean) * (float64(x) - mean) / mean
				}
				return s / float64(len(c)-1)
			}
			for what, x := range map[string]float64{
				"index buckets": chi(count[:], n), "tags": chi(tags[:], n), "distribution": chi(dist[:], n),
			} {
				if x > 1.5 {
					t.Errorf("%s, %d bytes: %s deviate %.2f times as much as random", name, size, what, x)
				}
			}
			for p := range part {
				total := 0
				for _, c := range part[p] {
					total += c
				}
				if x := chi(part[p][:], total); x > 1.5 {
					t.Errorf("%s, %d bytes: partition %d: index buckets deviate %.2f", name, size, p, x)
				}
			}
		}
	}
}

// Each bit of input flips each bit of output about half of the time.
func TestAvalanche(t *testing.T) {
	for _, n := range []uint32{4, 8, 12, 16, 20, 64, 68, 200} {
		b := make([]uint32, 50)
		for i := range b {
			b[i] = uint32(i) * 2654435761
		}
		p := unsafe.Pointer(&b[0])
		flips, tries := 0, 0
		var per [64]int
		for round := range 64 {
			b[0] = uint32(round)
			h := Hash(p, n)
			for bit := range n * 8 {
				b[bit/32] ^= 1 << (bit % 32)
				d := Hash(p, n) ^ h
				b[bit/32] ^= 1 << (bit % 32)
				if d == 0 {
					t.Fatalf("%d bytes: bit %d changes nothing", n, bit)
				}
				flips += bits.OnesCount64(d)
				for i := range per {
					per[i] += int(d >> i & 1)
				}
				tries++
			}
		}
		if m := float64(flips) / float64(tries); m < 31 || m > 33 {
			t.Errorf("%d bytes: %.1f of 64 bits flip", n, m)
		}
		for i, c := range per {
			if f := float64(c) / float64(tries); f < 0.4 || f > 0.6 {
				t.Errorf("%d bytes: output bit %d flips in %.2f of cases", n, i, f)
			}
		}
	}
}

func TestSumSeesEverySingleBit(t *testing.T) {
	b := make([]uint32, 64)
	p := unsafe.Pointer(&b[0])
	for _, n := range []uint32{4, 12, 100, 256} {
		s := Sum(0, p, n)
		for bit := range n * 8 {
			b[bit/32] ^= 1 << (bit % 32)
			if Sum(0, p, n) == s {
				t.Errorf("%d bytes: flip of bit %d not seen", n, bit)
			}
			b[bit/32] ^= 1 << (bit % 32)
		}
		if Sum(1, p, n) == s {
			t.Error("the sum of what came before does not matter")
		}
	}
}

var sink uint64

func benchmark(b *testing.B, n uint32, f func(unsafe.Pointer, uint32) uint64) {
	x := make([]uint64, n/8+1)
	for range b.N {
		x[0]++
		sink += f(unsafe.Pointer(&x[0]), n)
	}
}

func BenchmarkHash(b *testing.B) {
	for _, c := range []struct {
		name string
		n    uint32
	}{{"4", 4}, {"8", 8}, {"12", 12}, {"48", 48}, {"108", 108}, {"4096", 4096}} {
		b.Run(c.name, func(b *testing.B) { benchmark(b, c.n, Hash) })
	}
}
