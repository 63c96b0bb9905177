//go:build unix

package store

import (
	"math/rand"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/cohortdb/cohort/internal/rowhash"
)

// osSource is a region as the host makes it: reserved address space with huge pages, touched before the clock starts.
func osSource(b *testing.B, bytes int) *Arena {
	b.Helper()
	const chunk = 2 << 20
	m, err := syscall.Mmap(-1, 0, bytes+chunk, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := syscall.Munmap(m); err != nil {
			b.Error(err)
		}
	})
	m2 := m[-uintptr(unsafe.Pointer(&m[0]))%chunk:]
	hugePages(m2[:bytes])
	for i := 0; i < bytes; i += 4096 {
		m2[i] = 1
	}
	r := NewRegion(unsafe.Pointer(&m2[0]), uint64(bytes), chunk)
	s := &LocalSource{region: r}
	for c := r.Chunks(); c > 0; c-- {
		s.free = append(s.free, c-1)
	}
	return NewArena(r, s)
}

type benchmark struct {
	f    *Fragment
	keys [][2]uint32
	b    *testing.B
}

// cpuTime is the processor time of this process: on a shared machine it is steadier than the clock.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// run executes op for all keys in random order, plainly or with touch-ahead of 16; ns of processor time per operation.
func (x *benchmark) run(ahead bool, op func(h uint64, k *[2]uint32)) float64 {
	rand.New(rand.NewSource(int64(len(x.keys)))).Shuffle(len(x.keys), func(i, j int) {
		x.keys[i], x.keys[j] = x.keys[j], x.keys[i]
	})
	x.b.StartTimer()
	defer x.b.StopTimer()
	start := cpuTime(x.b)
	if !ahead {
		for i := range x.keys {
			k := &x.keys[i]
			op(rowhash.Hash(unsafe.Pointer(k), 8), k)
		}
		return float64(cpuTime(x.b)-start) / float64(len(x.keys))
	}
	var h [16]uint64
	var p [16]unsafe.Pointer
	for i := 0; i < len(x.keys); i += 16 {
		w := x.keys[i:min(i+16, len(x.keys))]
		for j := range w {
			h[j] = rowhash.Hash(unsafe.Pointer(&w[j]), 8)
			p[j] = x.f.BucketPtr(h[j])
		}
		Prefetch16(&p)
		for j := range w {
			p[j] = x.f.RowPtr(h[j])
		}
		PrefetchRows16(&p)
		for j := range w {
			op(h[j], &w[j])
		}
	}
	return float64(cpuTime(x.b)-start) / float64(len(x.keys))
}

// BenchmarkStore: flexAsynch's rows (8-byte key, 4-byte value), random keys, one fragment. Each iteration inserts, looks
// up, updates and deletes them all; processor time per operation of each, and the bytes that a row takes, are its metrics.
func BenchmarkStore(b *testing.B) {
	sizes := []struct {
		name string
		rows int
	}{{"100k", 100_000}, {"2M", 2_000_000}, {"10M", 10_000_000}}
	if testing.Short() {
		sizes = sizes[:2]
	}
	for _, size := range sizes {
		a := osSource(b, size.rows*42+8<<20)
		for _, ahead := range []bool{false, true} {
			name := size.name + "/plain"
			if ahead {
				name = size.name + "/ahead"
			}
			b.Run(name, func(b *testing.B) {
				b.StopTimer()
				x := &benchmark{f: NewFragment(a, Layout{KeyFixed: 8, FixedSize: 4}), keys: make([][2]uint32, size.rows), b: b}
				f := x.f
				for i := range x.keys {
					x.keys[i] = [2]uint32{uint32(i), uint32(i) * 7}
				}
				var ns [4]float64
				var bytesPerRow, overflow float64
				sum := uint32(0)
				for range b.N {
					ns[0] += x.run(ahead, func(h uint64, k *[2]uint32) {
						if r, _ := f.Find(h, unsafe.Pointer(k), 8); r != nil {
							panic("found")
						}
						r, _, code := f.Insert(h, unsafe.Pointer(k), 8, LockInsert)
						if code != 0 {
							panic("memory")
						}
						*(*uint32)(f.Fixed(r)) = k[0]
						r.SetGCI(1)
						r.Lock = 0
					})
					bytesPerRow = float64(a.UsedPages()) * PageSize / float64(size.rows)
					n, over := f.Stats()
					overflow = float64(over) / float64(n)
					ns[1] += x.run(ahead, func(h uint64, k *[2]uint32) {
						r, _ := f.Find(h, unsafe.Pointer(k), 8)
						sum += *(*uint32)(f.Fixed(r))
					})
					ns[2] += x.run(ahead, func(h uint64, k *[2]uint32) {
						r, _ := f.Find(h, unsafe.Pointer(k), 8)
						*(*uint32)(f.Fixed(r))++
						r.SetGCI(2)
					})
					ns[3] += x.run(ahead, func(h uint64, k *[2]uint32) {
						_, id := f.Find(h, unsafe.Pointer(k), 8)
						f.Remove(h, id, 3)
					})
				}
				for i, what := range []string{"insert", "lookup", "update", "delete"} {
					b.ReportMetric(ns[i]/float64(b.N), what+"-ns")
				}
				b.ReportMetric(bytesPerRow, "bytes/row")
				b.ReportMetric(100*overflow, "overflow-%")
				b.ReportMetric(0, "ns/op")
				sink += sum
			})
		}
	}
}

var sink uint32

func BenchmarkSum(b *testing.B) {
	for _, n := range []uint32{4, 100, 4000} {
		b.Run(itoa(n), func(b *testing.B) {
			r, s := NewLocalSource(1<<20, 1<<PageBits, false)
			f := NewFragment(NewArena(r, s), Layout{KeyFixed: 8, FixedSize: n})
			k := uint64(5)
			row, _, _ := f.Insert(1, unsafe.Pointer(&k), 8, 0)
			for range b.N {
				f.UpdateSum(row)
			}
		})
	}
}

func itoa(n uint32) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}
