package manager

// The way of an event:
//
//	any block of the node --EventRep--> manager --EventRep--> runtime, and each management server whose levels admit it

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// backlogMax is how many events wait for somebody to hear them.
const backlogMax = 256

func (b *Block) onEventRep(r *signal.EventRep) {
	b.pass(event.Event{Type: event.Type(r.Event), Node: uint8(r.Node), Args: r.Args, Text: string(r.Text())})
}

// report is for what the manager itself has to say.
func (b *Block) report(t event.Type, args ...uint32) { b.pass(event.New(b.env.Node(), t, args...)) }

func (b *Block) reportText(t event.Type, text string) {
	b.pass(event.New(b.env.Node(), t).WithText(text))
}

// pass gives an event to everybody who wants it.
func (b *Block) pass(e event.Event) {
	b.send(signal.MakeAddr(b.env.Node(), signal.BlockRuntime, 0), &e)
	if b.listeners.Empty() {
		if len(b.backlog) == backlogMax {
			copy(b.backlog, b.backlog[1:])
			b.backlog = b.backlog[:backlogMax-1]
		}
		b.backlog = append(b.backlog, e)
		return
	}
	for n := b.listeners.Next(0); n != 0; n = b.listeners.Next(n) {
		b.offer(n, &e)
	}
}

// offer sends an event to a management server if it wants such ones.
func (b *Block) offer(n uint8, e *event.Event) {
	info := e.Info()
	if b.levels[n].Admits(info.Category, info.Level) {
		b.send(mgmAt(n), e)
	}
}

func (b *Block) send(to signal.Addr, e *event.Event) {
	n := uint32(min(len(e.Text), event.TextMax))
	r := (*signal.EventRep)(b.env.Put(to, b.self, signal.NumEventRep, uint32(unsafe.Sizeof(signal.EventRep{}))+signal.Pad(n)))
	r.Event, r.Node, r.Args, r.TextLen = uint32(e.Type), uint32(e.Node), e.Args, n
	kernel.PutBytes(unsafe.Add(unsafe.Pointer(r), unsafe.Sizeof(*r)), e.Text[:n])
}

// onEventSubscribeOrd hears what a management server wants to hear. The first one gets what nobody has heard.
func (b *Block) onEventSubscribeOrd(r *signal.EventSubscribeOrd) {
	n := r.From.Node()
	b.links.Add(n) // the news of its link takes a hop more than the order itself
	b.mgms.Add(n)
	for c := range b.levels[n] {
		b.levels[n][c] = r.Levels[c]
	}
	first := b.listeners.Empty()
	b.listeners.Add(n)
	if !first {
		return
	}
	for i := range b.backlog {
		b.offer(n, &b.backlog[i])
	}
	b.backlog = nil
}
