package host

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/cohortdb/cohort/internal/store"
)

const (
	// ChunkBytes is the piece in which data memory is handed out: a huge page.
	ChunkBytes = 2 << 20
	// pageBytes is how far apart two touches must be to make a range resident.
	pageBytes = 4096
)

// Memory is the data memory of a node: one range of addresses outside the Go heap, reserved at once, that becomes real
// memory piece by piece as it is used. It hands out chunks to the ldms of all threads.
//
// A goroutine, the tender, keeps some free chunks warm (resident), so that the threads seldom wait for the system to
// find memory, and gives the memory of further free ones back when they are half as many again.
type Memory struct {
	region *store.Region
	warmup int // chunks to keep warm

	mu   sync.Mutex
	warm []uint32 // free and resident
	cold []uint32 // free, given back to the system
	next uint32   // chunks from here on were never used
	idle bool     // the tender waits
	busy bool     // the tender has a chunk in its hands
	// trimming: the tender is giving memory back, until no more than warmup is warm.
	trimming bool
	// locked: everything is resident and stays so.
	locked bool
	// back: the tender has put a chunk back.
	back sync.Cond
	// tend wakes the tender; it is closed by Close.
	tend   chan struct{}
	closed bool
	done   chan struct{}
}

// NewMemory reserves bytes of data memory and keeps up to warm bytes of the free part resident.
func NewMemory(bytes uint64, warm uint64) (*Memory, error) {
	bytes = bytes / store.PageSize * store.PageSize
	if bytes == 0 || bytes > 1<<46 {
		return nil, fmt.Errorf("data memory of %d bytes cannot be had", bytes)
	}
	p, err := reserve(uintptr(bytes) + ChunkBytes)
	if err != nil {
		return nil, fmt.Errorf("data memory of %d bytes cannot be reserved: %w", bytes, err)
	}
	base := unsafe.Add(p, -uintptr(p)%ChunkBytes)
	adviseHuge(base, uintptr(bytes))
	m := &Memory{region: store.NewRegion(base, bytes, ChunkBytes), warmup: int(warm / ChunkBytes),
		tend: make(chan struct{}, 1), done: make(chan struct{})}
	m.back.L = &m.mu
	go m.tender()
	return m, nil
}

// Lock touches all of the memory and keeps it from being swapped out; none of it is given back any more.
func (m *Memory) Lock() error {
	m.mu.Lock()
	m.locked = true
	for m.busy {
		m.back.Wait()
	}
	m.mu.Unlock()
	for c := range m.region.Chunks() {
		p, bytes := m.region.Chunk(c)
		if err := lock(p, uintptr(bytes)); err != nil {
			return fmt.Errorf("data memory cannot be locked: %w", err)
		}
	}
	return nil
}

// Region is where the memory lies.
func (m *Memory) Region() *store.Region { return m.region }

// Take hands out a chunk; a warm one if there is one. When the last free one is just in the tender's hands it waits
// for it, so that the limit is exact.
func (m *Memory) Take() (uint32, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.warm)+len(m.cold) == 0 && m.next == m.region.Chunks() && m.busy {
		m.back.Wait()
	}
	if n := len(m.warm); n > 0 {
		c := m.warm[n-1]
		m.warm = m.warm[:n-1]
		m.wake()
		return c, true
	}
	return m.takeCold()
}

func (m *Memory) takeCold() (uint32, bool) {
	if n := len(m.cold); n > 0 {
		c := m.cold[n-1]
		m.cold = m.cold[:n-1]
		return c, true
	}
	if m.next < m.region.Chunks() {
		m.next++
		return m.next - 1, true
	}
	return 0, false
}

// Give takes a chunk back.
func (m *Memory) Give(c uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.warm = append(m.warm, c)
	m.wake()
}

// wake lets the tender look, when there is something to do for it. The caller holds mu.
func (m *Memory) wake() {
	if !m.idle || m.closed || !m.wanting() && !m.wasting() {
		return
	}
	m.idle = false
	m.tend <- struct{}{} // there is room: it is idle
}

func (m *Memory) wanting() bool {
	return !m.locked && len(m.warm) < m.warmup/2 && (len(m.cold) > 0 || m.next < m.region.Chunks())
}

func (m *Memory) wasting() bool { return !m.locked && len(m.warm) > m.warmup+m.warmup/2 }

// tender keeps as many free chunks warm as was asked for, one chunk at a time.
func (m *Memory) tender() {
	defer close(m.done)
	for {
		m.mu.Lock()
		if m.closed {
			m.mu.Unlock()
			return
		}
		c, touch, ok := m.choose()
		m.idle, m.busy = !ok, ok
		m.mu.Unlock()
		if !ok {
			if _, open := <-m.tend; !open {
				return
			}
			continue
		}
		p, bytes := m.region.Chunk(c)
		if touch {
			for o := uint32(0); o < bytes; o += pageBytes {
				*(*byte)(unsafe.Add(p, o)) = 0
			}
		} else {
			discard(p, uintptr(bytes))
		}
		m.mu.Lock()
		m.busy = false
		m.back.Broadcast()
		if touch {
			m.warm = append(m.warm, c)
		} else {
			m.cold = append(m.cold, c)
		}
		m.mu.Unlock()
	}
}

// choose picks a free chunk to make warm, or one to give back: the coldest, which lies first.
func (m *Memory) choose() (c uint32, touch, ok bool) {
	switch {
	case m.locked:
		return 0, false, false
	case len(m.warm) < m.warmup:
		m.trimming = false
		c, ok = m.takeCold()
		return c, true, ok
	case len(m.warm) > m.warmup && (m.trimming || m.wasting()):
		m.trimming = true
		c = m.warm[0]
		m.warm = append(m.warm[:0], m.warm[1:]...)
		return c, false, true
	}
	m.trimming = false
	return 0, false, false
}

// Close ends the care for free memory. The memory itself stays.
func (m *Memory) Close() {
	m.mu.Lock()
	if !m.closed {
		m.closed = true
		close(m.tend)
	}
	m.mu.Unlock()
	<-m.done
}
