package mgmd

import (
	"sync"
	"time"
	"unsafe"

	"github.com/cohortdb/cohort/internal/arbitrator"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// arbitration runs the server's arbitrator: a block like those of a data node, which gets its signals from the links one
// at a time, whichever session they come by. It never waits for a link to take an answer while it holds mu.
type arbitration struct {
	server *Server
	began  time.Time

	mu    sync.Mutex
	env   *kernel.Env
	block *arbitrator.Block
	wake  *time.Timer // for the block's own timers, nil when it has none
}

// answers is what one node is to be sent.
type answers struct {
	node  uint8
	bytes []byte
}

// room is what the block may have to say at once; it says little.
const room, roomMax = 4 << 10, 1 << 20

func newArbitration(s *Server, delay time.Duration) *arbitration {
	a := &arbitration{server: s, began: time.Now(), env: kernel.NewEnv(s.own, 0, s.secret, room)}
	a.env.Place(signal.BlockArbitrator, 0, 0)
	for id := 1; id <= signal.MaxDataNode; id++ {
		a.env.Via(uint8(id), kernel.Dest(id))
		a.env.Buf(kernel.Dest(id)).Init(room, roomMax)
	}
	a.block = arbitrator.New(a.env, arbitrator.Config{Delay: delay.Nanoseconds(), Tell: func(text string) { s.note(event.Note, "Arbitration: %s", text) }})
	return a
}

// deliver gives the block a signal that has come over a link.
func (a *arbitration) deliver(h *signal.Head) {
	a.mu.Lock()
	a.env.SetNow(time.Since(a.began).Nanoseconds())
	a.block.Deliver(h)
	out := a.drain()
	a.mu.Unlock()
	a.send(out)
}

// tick runs the block's timers.
func (a *arbitration) tick() {
	a.mu.Lock()
	a.wake = nil
	a.env.SetNow(time.Since(a.began).Nanoseconds())
	a.env.FireTimers()
	a.env.RunJobs(func(p unsafe.Pointer) { a.block.Deliver((*signal.Head)(p)) }, 1<<16)
	out := a.drain()
	a.mu.Unlock()
	a.send(out)
}

// drain takes what the block has said, and sees to its next timer. The caller holds mu.
func (a *arbitration) drain() (out []answers) {
	a.env.TakeDirty(func(d kernel.Dest, b *kernel.Buf) {
		out = append(out, answers{uint8(d), append([]byte(nil), b.Bytes()...)})
		b.Consume(b.Len())
	})
	if due, ok := a.env.NextTimer(); ok && a.wake == nil {
		a.wake = time.AfterFunc(time.Duration(due-a.env.Now()), a.tick)
	}
	return out
}

func (a *arbitration) send(out []answers) {
	for _, o := range out {
		a.server.mu.Lock()
		var l *link
		if n := a.server.nodes[o.node]; n != nil {
			l = n.link
		}
		a.server.mu.Unlock()
		if l != nil {
			l.send(o.bytes)
		}
	}
}
