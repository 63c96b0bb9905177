package host

import (
	"sync"
	"testing"
	"unsafe"
)

// settle waits until the tender has nothing to do.
func settle(m *Memory) {
	for {
		m.mu.Lock()
		idle := m.idle
		m.mu.Unlock()
		if idle {
			return
		}
	}
}

func TestMemoryHandsOutEachChunkOnce(t *testing.T) {
	const chunks = 20
	m, err := NewMemory(chunks*ChunkBytes-32<<10, 4*ChunkBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var mu sync.Mutex
	held := map[uint32]bool{}
	var wg sync.WaitGroup
	for range 4 { // threads that take and give
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 300 {
				c, ok := m.Take()
				if !ok {
					continue
				}
				mu.Lock()
				if held[c] || c >= chunks {
					t.Errorf("chunk %d is handed out twice or does not exist", c)
				}
				held[c] = true
				mu.Unlock()
				p, n := m.Region().Chunk(c)
				*(*byte)(p) = 1
				*(*byte)(unsafe.Add(p, n-1)) = 1
				mu.Lock()
				delete(held, c)
				mu.Unlock()
				m.Give(c)
			}
		}()
	}
	wg.Wait()
	settle(m)
	if r := m.resident(); r < 2*ChunkBytes || r > 8*ChunkBytes {
		t.Errorf("%d free chunks are warm, 4 were asked for", r/ChunkBytes)
	}
	for range chunks {
		if _, ok := m.Take(); !ok {
			t.Fatal("the memory is not all there")
		}
	}
	if c, ok := m.Take(); ok {
		t.Errorf("chunk %d beyond the limit", c)
	}
}

func TestMemoryThatCannotBe(t *testing.T) {
	for _, bytes := range []uint64{0, 100, 1 << 60} {
		if m, err := NewMemory(bytes, 0); err == nil {
			m.Close()
			t.Errorf("%d bytes were given", bytes)
		}
	}
}

// resident is how many bytes of free chunks are kept warm.
func (m *Memory) resident() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return uint64(len(m.warm)) * ChunkBytes
}
