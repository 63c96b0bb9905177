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
	turnTime     = 500 * time.Microsecond
	clockSignals = 32
	// jobsPerWindow bounds the jobs run after each window, so that jobs that cause jobs leave room for others. They are run
	// jobsAtOnce at a time, and the clock is looked at in between.
	jobsPerWindow = 256
	jobsAtOnce    = 32
	// jobsMost is how many bytes of them may wait before clients are read from no more.
	jobsMost = 64 << 10
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
		if env.Jobs() && l.jobs(turnTime) || l.left <= l.checkAt && l.took(turnTime) {
			l.left = 0
		}
		if s != nil && s.kind == signal.PeerAPI && l.heldBack(s) {
			break
		}
	}
	return o, fault
}

// jobs runs what blocks of this thread sent to each other, some of it if there is much. It tells whether the turn has
// taken so long meanwhile.
func (l *loop) jobs(long time.Duration) bool {
	for n := 0; n < jobsPerWindow && l.env.Jobs(); n += jobsAtOnce {
		l.left -= l.env.RunJobs(l.job, jobsAtOnce)
		if l.left <= l.checkAt && l.took(long) {
			return true
		}
	}
	return false
}

// took tells whether the turn has taken so long.
func (l *loop) took(long time.Duration) bool {
	l.checkAt = l.left - clockSignals
	return int64(time.Since(l.host.start)) > l.now+int64(long)
}

// dispatch gives a signal to its block; the runtime is one of them.
func (l *loop) dispatch(h *signal.Head) {
	if h.To.Block() == signal.BlockRuntime {
		l.host.control(h)
		return
	}
	l.deliver(unsafe.Pointer(h))
}
