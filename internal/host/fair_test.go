package host

import (
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// flood writes signals that need no answer as fast as the node takes them, until the test ends.
func (c *client) flood(ldm int) {
	m := signal.CloseOrd{Head: signal.Head{Len: signal.HeadSize / 4, Num: signal.NumCloseOrd,
		To: signal.MakeAddr(c.peer, signal.BlockLDM, uint16(ldm)), From: signal.MakeAddr(c.node, signal.BlockClient, 0)}}
	var b []byte
	for range 20_000 {
		b = append(b, unsafe.Slice((*byte)(unsafe.Pointer(&m)), signal.HeadSize)...)
	}
	for {
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

// A client that sends without pause gets its share of each thread and no more: others are read, and signals between
// threads are executed.
func TestAClientThatSendsWithoutPauseStarvesNobody(t *testing.T) {
	for threads := 1; threads <= 2; threads++ {
		n := newTestNode(t, 1, threads, nil)
		n.handle = func(*kernel.Env, *signal.Head) {}
		n.run(t)
		good := newClient(t, n, 60)
		done := make(chan struct{})
		bad := newClient(t, n, 51)
		for k, c := range bad {
			go func() {
				c.flood(k)
				done <- struct{}{}
			}()
		}
		for i := range 20 {
			k := i % threads
			last := good[threads-1-k] // by way of another thread, where there is one
			if _, err := last.Write(last.request(k, i, 1)); err != nil {
				t.Fatal(err)
			}
			good[k].answers(t, i, 1)
		}
		for _, c := range bad {
			c.Close()
			<-done
		}
	}
}
