package host

import (
	"fmt"
	"io"
	"syscall"
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// cpuNow is the processor time of this process in ns.
func cpuNow() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkLoopback is a client that sends batches of requests over a loopback socket to one loop and reads the
// answers: ns per request and answer, and the processor time of both sides together.
func BenchmarkLoopback(b *testing.B) {
	for _, batch := range []int{1, 16, 256, 1024} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			n := newTestNode(b, 1, 1, nil).run(b)
			c := newClient(b, n, 51)[0]
			req := c.request(0, 0, batch)
			ans := make([]byte, batch*int(unsafe.Sizeof(signal.WriteConf{})))
			b.ReportAllocs()
			b.ResetTimer()
			cpu := cpuNow()
			for i := 0; i < b.N; i += batch {
				if _, err := c.Write(req); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, ans); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuNow()-cpu)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkExecute is what a loop adds to a block's work for a signal from a link: check, trace, dispatch, and the
// answer put into the send buffer.
func BenchmarkExecute(b *testing.B) {
	n := newTestNode(b, 1, 1, nil)
	l := n.loops[0]
	c := &client{node: 51, peer: 1}
	req := c.request(0, 0, 1024)
	s := &socket{fd: 1 << 20, node: 51, kind: signal.PeerAPI, peer: n.peers[51]}
	n.linked[51].Store(true)
	l.env.Buf(51).Init(1<<20, 1<<20)
	l.env.Via(51, 51)
	b.ReportAllocs()
	for i := 0; i < b.N; i += 1024 {
		l.left = turnSignals
		if used, f := l.execute(req, s); f != nil || int(used) != len(req) {
			b.Fatal(used, f)
		}
		l.env.TakeDirty(func(_ kernel.Dest, o *kernel.Buf) { o.Consume(o.Len()) })
	}
}

// BenchmarkHandover sends signals from one thread of a node to another and back, so many at a time.
func BenchmarkHandover(b *testing.B) {
	for _, batch := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			n := newTestNode(b, 1, 2, nil)
			ldm := func(i int) signal.Addr { return signal.MakeAddr(1, signal.BlockLDM, uint16(i)) }
			left, done := 0, make(chan bool)
			n.handle = func(env *kernel.Env, h *signal.Head) {
				if h.Num == signal.NumTickOrd { // begin
					for range batch {
						kernel.Send[signal.StepConf](env, ldm(1), ldm(0), signal.NumCommitConf).TcRef = 0
					}
					return
				}
				if env.Thread() == 0 {
					if left--; left == 0 {
						done <- true
					}
					if left < batch {
						return
					}
				}
				kernel.Send[signal.StepConf](env, h.From, h.To, signal.NumCommitConf).TcRef = 0
			}
			n.run(b)
			left = max(b.N, batch)
			b.ReportAllocs()
			b.ResetTimer()
			cpu := cpuNow()
			n.loops[0].post(func(l *loop) { l.env.Tick(ldm(0), 0, 0, 0, 0) })
			<-done
			b.ReportMetric(float64(cpuNow()-cpu)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkTrace is what remembering a signal costs.
func BenchmarkTrace(b *testing.B) {
	t := new(trace)
	h := &signal.Head{Len: 4, Num: signal.NumAckOrd}
	for range b.N {
		t.put(h)
	}
}
