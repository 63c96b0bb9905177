//go:build unix

package schema

import (
	"math/rand"
	"syscall"
	"testing"
)

// guarded copies b to the end of a page that nothing readable follows: a read behind the end is a fault.
func guarded(t testing.TB, b []byte) []byte {
	t.Helper()
	page := syscall.Getpagesize()
	n := (len(b) + page - 1) / page * page
	m, err := syscall.Mmap(-1, 0, n+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err == nil {
		err = syscall.Mprotect(m[n:], syscall.PROT_NONE)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(m); err != nil {
			t.Error(err)
		}
	})
	c := m[n-len(b) : n : n]
	copy(c, b)
	return c
}

// Sections that are good but for their end, and rubbish: no check reads behind the end.
func TestChecksStayWithinTheSection(t *testing.T) {
	r := rand.New(rand.NewSource(5))
	for name, d := range tables {
		l := compile(t, d)
		img := image(t, l, randomRow(r, d))
		k, _ := l.AppendKey(nil, randomKey(r, d)...)
		cols := []uint32{}
		vals := row{}
		for i, v := range randomRow(r, d) {
			if i%2 == 0 {
				cols, vals = append(cols, uint32(i)), append(vals, v)
			}
		}
		upd, _ := l.AppendWrite(nil, cols, vals)
		for n := 0; n <= len(img) || n <= len(upd) || n <= len(k); n += 1 + n/64 {
			for _, s := range [][]byte{img, upd, k} {
				g := guarded(t, s[:min(n, len(s))])
				for range 4 {
					p, n := ptr(g), uint32(len(g))
					l.CheckKey(p, n)
					l.CheckMask(p, n)
					_, _ = l.CheckWrite(p, n, true)
					_, _ = l.CheckWrite(p, n, false)
					if n > 0 {
						g[r.Intn(len(g))] = byte(r.Intn(256))
					}
				}
				if n < len(s) && n == len(g) {
					if _, code := l.CheckWrite(ptr(guarded(t, img[:min(n, len(img))])), uint32(min(n, len(img))), true); code == 0 && n < len(img) {
						t.Fatalf("%s: %d bytes of %d are enough", name, n, len(img))
					}
				}
			}
		}
	}
}
