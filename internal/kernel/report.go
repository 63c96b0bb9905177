package kernel

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/signal"
)

// Report sends an event to the own node's manager, which passes it on to whoever listens.
func (e *Env) Report(from signal.Addr, ev *event.Event) {
	text := ev.Text
	if len(text) > event.TextMax {
		text = text[:event.TextMax]
	}
	n := uint32(len(text))
	r := (*signal.EventRep)(e.Put(signal.MakeAddr(e.node, signal.BlockManager, 0), from, signal.NumEventRep,
		uint32(unsafe.Sizeof(signal.EventRep{}))+signal.Pad(n)))
	r.Event, r.Node, r.Args, r.TextLen = uint32(ev.Type), uint32(e.node), ev.Args, n
	PutBytes(unsafe.Add(unsafe.Pointer(r), unsafe.Sizeof(*r)), text)
}

// PutBytes writes a section: the bytes at p, and zeros up to the next whole word.
func PutBytes[S ~string | ~[]byte](p unsafe.Pointer, s S) {
	b := unsafe.Slice((*byte)(p), signal.Pad(uint32(len(s))))
	clear(b[copy(b, s):])
}
