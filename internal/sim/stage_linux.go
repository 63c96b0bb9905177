package sim

import (
	"fmt"
	"syscall"
)

// newStage maps the two places, each in front of memory that faults when it is touched.
func newStage() (*stage, error) {
	s := &stage{}
	guard := syscall.Getpagesize()
	for i := range s.place {
		m, err := syscall.Mmap(-1, 0, stageSize+guard, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			return nil, fmt.Errorf("memory for signals: %w", err)
		}
		if err := syscall.Mprotect(m[stageSize:], syscall.PROT_NONE); err != nil {
			return nil, fmt.Errorf("a protected page behind signals: %w", err)
		}
		s.place[i] = m[:stageSize]
		kill(s.place[i])
	}
	return s, nil
}

// close gives the memory back. syscall.Munmap wants the slice that Mmap returned, which starts where place does.
func (s *stage) close() {
	for i := range s.place {
		// The error of unmapping what was mapped above is not worth more than leaving the memory mapped.
		_ = syscall.Munmap(s.place[i][: stageSize+syscall.Getpagesize() : stageSize+syscall.Getpagesize()])
		s.place[i] = nil
	}
}
