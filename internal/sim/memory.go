package sim

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/signal"
)

// poisoned is a word of what dead bytes are overwritten with: a pointer, a length or an index made of it is far out of
// range. A delivered signal that holds it has a field that nobody wrote.
const poisoned = 0xDBDBDBDB

func kill(b []byte) {
	w := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
	for i := range w {
		w[i] = poisoned
	}
}

// stage is where signals lie while their handlers run. A signal's last byte is the last one of the memory, so that
// reading behind it faults where the machine can protect a page (stage_linux.go). Two places take turns: whoever
// keeps a pointer to a signal reads poison at least until the next but one.
type stage struct {
	place [2][]byte // MaxSize bytes each, an untouchable page behind
	turn  int
}

// put copies a signal to the stage.
func (s *stage) put(b []byte) []byte {
	s.turn ^= 1
	p := s.place[s.turn]
	d := p[len(p)-len(b):]
	copy(d, b)
	return d
}

// stageSize is room for the largest signal, in whole pages of any machine.
const stageSize = (signal.MaxSize + 1<<16 - 1) &^ (1<<16 - 1)
