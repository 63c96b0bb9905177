package host

import (
	"os"
	"strings"
	"testing"
	"unsafe"
)

func TestLockedMemoryIsResidentAndStays(t *testing.T) {
	m, err := NewMemory(8<<20, 2<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Lock(); err != nil {
		if strings.Contains(err.Error(), "mlock") && os.Geteuid() != 0 {
			t.Log("this user may not lock memory: ", err)
			return
		}
		t.Fatal(err)
	}
	var taken []uint32
	for {
		c, ok := m.Take()
		if !ok {
			break
		}
		taken = append(taken, c)
		p, _ := m.Region().Chunk(c)
		*(*byte)(unsafe.Pointer(p)) = 7
	}
	if len(taken) != 4 {
		t.Fatalf("%d chunks of 4", len(taken))
	}
	for _, c := range taken {
		m.Give(c)
	}
	c, _ := m.Take()
	if p, _ := m.Region().Chunk(c); *(*byte)(p) != 7 {
		t.Fatal("locked memory was given back to the system")
	}
}
