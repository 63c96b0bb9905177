package host

import (
	"time"
	"unsafe"

	"github.com/cohortdb/cohort/internal/signal"
)

const (
	// Window is how many signals are touched ahead before they are executed.
	Window = 16
	// turnSignals bounds the signals that a turn executes, the jobs that they cause included: about half a millisecond.
	turnSignals = 2048
	// turnTime ends a turn early: some signals cost more than others. The clock is looked at every clockSignals signals.
	turnTime     = 2 * time.Millisecond
	clockSignals = 64
	// jobsPerWindow bounds the jobs run after each window, so that jobs that cause jobs leave room for others.
	jobsPerWindow = 256
)

// execute checks, touches ahead and executes the whole signals at the start of b, until none is left, the turn's
// budget is used up, or the socket that they came from is to be read no more for now. s is nil for signals of another
// thread of this node, which need no check. It returns the bytes used; after a fault the signals before it have been
// executed.
func (l *loop) execute(b []byte, s *socket) (uint32, *signal.Fault) {
	base := unsafe.Pointer(unsafe.SliceData(b))
	n := uint32(len(b))
	env, self := l.env, l.self
	w := &l.window
	var fault *signal.Fault
	o := uint32(0)
	for l.left > 0 && fault == nil {
		k := 0
		for k < Window && n-o >= signal.HeadSize {
			p := unsafe.Add(base, o)
			h := (*signal.Head)(p)
			size := h.Bytes()
			if s != nil {
				if size < signal.HeadSize {
					_, fault = signal.Whole(b[o:])
					break
				}
				if size > n-o {
					fault = signal.CheckHead(h, s.kind, s.node, env.Node())
					break
				}
				if fault = signal.Check(h, s.kind, s.node, env.Node()); fault != nil {
					break
				}
				if h.Num <= signal.NumHelloRef {
					fault = &signal.Fault{Reason: "a second handshake", Num: h.Num, Len: size}
					break
				}
				if !env.Has(h.To) || h.To.Block() == signal.BlockRuntime {
					fault = &signal.Fault{Reason: "meant for a block that does not exist", Num: h.Num, Len: size}
					break
				}
			} else if h.Num == markNum {
				if k > 0 {
					break
				}
				o += size
				l.marked(h.From.Node())
				continue
			}
			w[k] = p
			k++
			o += size
		}
		if k == 0 {
			break
		}
		if k > 1 && l.touch != nil {
			l.touch(w, k)
		}
		for _, p := range w[:k] {
			h := (*signal.Head)(p)
			l.trace.put(h)
			if env.Dest(h.To) == self {
				env.Delivered++
				l.dispatch(h)
			} else {
				env.Forward(h)
			}
		}
		l.left -= k
		if env.Jobs() {
			l.left -= env.RunJobs(l.job, jobsPerWindow)
		}
		if l.left <= l.checkAt {
			l.checkTime()
		}
		if s != nil && s.kind == signal.PeerAPI && l.heldBack(s) {
			break
		}
	}
	return o, fault
}

// checkTime ends the turn's budget when the turn has taken long enough.
func (l *loop) checkTime() {
	l.checkAt = l.left - clockSignals
	if int64(time.Since(l.host.start)) > l.now+int64(turnTime) {
		l.left = 0
	}
}

// dispatch gives a signal to its block; the runtime is one of them.
func (l *loop) dispatch(h *signal.Head) {
	if h.To.Block() == signal.BlockRuntime {
		l.host.control(h)
		return
	}
	l.deliver(unsafe.Pointer(h))
}
