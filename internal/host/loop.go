package host

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

const (
	// bufBytes is the read buffer of a loop: the start of the largest frame, and a read behind it.
	bufBytes = (signal.MaxSize+readBytes+4095)/4096*4096 + 4096
	// holdCheck is how often a loop looks whether clients that it does not read from may be read again.
	holdCheck = 5 * time.Millisecond
	// inspectEvery is how often a loop looks for clients that take nothing and for buffers that grew for one burst.
	inspectEvery = 500 * time.Millisecond
)

// loop is one thread of a node: a goroutine that owns an Env, the blocks placed on it, and sockets.
type loop struct {
	host    *Host
	index   int
	env     *kernel.Env
	self    kernel.Dest
	deliver func(unsafe.Pointer)
	job     func(unsafe.Pointer) // deliver for jobs, with trace
	touch   func(w *[Window]unsafe.Pointer, n int)
	send1   func(kernel.Dest, *kernel.Buf) // flush, made once
	poll    poller
	window  [Window]unsafe.Pointer // of execute; here because what is passed to touch would be allocated
	buf     []byte                 // read buffer; 4-aligned
	now     int64                  // ns, as of the turn's start
	left    int                    // signals that the turn may still execute
	checkAt int                    // at this value of left the clock is looked at
	seenAt  int64                  // last inspect, ns

	byFd  []*socket
	socks [256]*socket // by node
	list  []*socket
	// queued wait for their turn, in this order: they have whole frames in carry, or are to be read. held are clients that
	// are not read from.
	queued, held []*socket
	overs        int  // sockets above their soft limit
	closed       bool // no client may be read from
	mute         bool // nothing may be sent to clients
	pulse

	// in[f] comes from thread f, out[t] goes to thread t; nil for the own thread.
	in, out []*ring
	full    []bool // by thread: something waits in the Env because the ring is full
	fulls   int
	first   int // thread to take from first
	// threadsFirst: sockets used up the last turn, so that nothing was taken from other threads; they come first in this one.
	threadsFirst bool
	marks        [256]uint8

	// sleeping: the loop waits in the poller, or is about to look a last time before it does.
	sleeping atomic.Bool
	// posted: inbox is not empty.
	posted atomic.Bool
	mu     sync.Mutex
	inbox  []func(*loop)

	trace trace
}

func newLoop(h *Host, index int, t Thread) *loop {
	l := &loop{host: h, index: index, env: t.Env, self: kernel.ThreadDest(index), deliver: t.Deliver, touch: t.Touch,
		buf: make([]byte, bufBytes)}
	l.job = func(p unsafe.Pointer) {
		h := (*signal.Head)(p)
		l.trace.put(h)
		l.dispatch(h)
	}
	l.send1 = l.flush
	return l
}

// nudge wakes the loop if it sleeps.
func (l *loop) nudge() {
	if l.sleeping.Load() && l.sleeping.CompareAndSwap(true, false) {
		l.poll.wake()
	}
}

// post runs f in the loop's own goroutine, after what was posted before.
func (l *loop) post(f func(*loop)) {
	l.mu.Lock()
	l.inbox = append(l.inbox, f)
	l.posted.Store(true)
	l.mu.Unlock()
	l.nudge()
}

// runPosted runs what was posted.
func (l *loop) runPosted() {
	l.mu.Lock()
	fs := l.inbox
	l.inbox = nil
	l.posted.Store(false)
	l.mu.Unlock()
	for _, f := range fs {
		f(l)
	}
}

// run turns until the host stops. A panic in a block or in the loop itself ends the node.
func (l *loop) run() {
	defer func() {
		if r := recover(); r != nil {
			l.host.bug(l, r, debug.Stack())
		}
	}()
	if l.host.cfg.LockThreads {
		runtime.LockOSThread()
	}
	debug.SetPanicOnFault(true)
	l.setNow()
	idle := false
	for !l.host.stopping.Load() {
		idle = !l.turn(idle)
	}
	l.drain()
}

func (l *loop) setNow() {
	l.now = int64(time.Since(l.host.start)) + 1
	l.env.SetNow(l.now)
}

// turn polls, executes, and flushes every destination once. wait: nothing is known to be there, so block until
// something is. It tells whether anything was done.
func (l *loop) turn(wait bool) bool {
	var events []ready
	var slept int64
	if wait {
		events, slept = l.sleep()
	} else {
		events = l.poll.peek()
	}
	l.clock(slept)
	l.mute = l.host.distrusted()
	l.left, l.checkAt = turnSignals, turnSignals-clockSignals
	if l.posted.Load() {
		l.runPosted()
	}
	if due, ok := l.env.NextTimer(); ok && due <= l.now {
		l.env.RunTimers(l.job)
	}
	if l.env.Jobs() {
		l.jobs(turnTime / 2) // what comes from outside has its share of the turn in any case
	}
	l.closed = l.mute || l.host.overData.Load() > 0 || l.host.pending.Load() > l.host.cfg.SendTotal || l.fulls > 0 && l.backlogged()
	if len(l.held) > 0 {
		l.release()
	}
	if l.fulls > 0 {
		l.passAgain()
	}
	threads := l.threadsFirst
	if l.threadsFirst = false; threads {
		l.take()
	}
	if len(l.queued) > 0 {
		l.runQueued()
	}
	for i := range events {
		l.event(&events[i])
	}
	if len(l.in) > 1 {
		l.take()
		l.threadsFirst = l.left <= 0 && !threads && l.handed()
	}
	l.clock(0) // what was executed after a stop in the middle of the turn must not reach clients
	l.env.TakeDirty(l.send1)
	if l.now-l.seenAt > int64(inspectEvery) {
		l.seenAt = l.now
		l.inspect()
	}
	return l.left < turnSignals || len(events) > 0 || len(l.queued) > 0 || l.env.Jobs()
}

// sleep waits until a socket is ready, a timer is due, or another goroutine has something for the loop. It returns how
// long it meant to wait at most, in ns.
func (l *loop) sleep() ([]ready, int64) {
	l.sleeping.Store(true)
	if l.posted.Load() || l.handed() || l.roomAgain() {
		l.sleeping.Store(false)
		return l.poll.peek(), 0
	}
	l.clock(0)
	msec := l.pause()
	events := l.poll.wait(msec)
	l.sleeping.Store(false)
	return events, int64(msec) * 1_000_000
}

// roomAgain tells whether a ring that was full has room: its consumer may have looked before this loop wanted to be woken.
func (l *loop) roomAgain() bool {
	if l.fulls == 0 {
		return false
	}
	for t, full := range l.full {
		if r := l.out[t]; full && r.tail.Load()-r.head.Load() < ringSlots {
			return true
		}
	}
	return false
}

// pause is how many milliseconds the loop may sleep.
func (l *loop) pause() int {
	t := int64(sleepMost)
	if due, ok := l.env.NextTimer(); ok {
		t = min(t, due-l.now)
	}
	if len(l.held) > 0 {
		t = min(t, int64(holdCheck))
	}
	return int((max(t, 0) + 999_999) / 1_000_000)
}

// runQueued serves the sockets that wait for their turn. Whoever used up a turn's budget waits again behind those that
// got none of it, so that a client which sends as fast as it can does not keep others from being read.
func (l *loop) runQueued() {
	n, i := len(l.queued), 0
	for ; i < n && l.left > 0; i++ {
		s := l.queued[i]
		s.queued = false
		if s.fd >= 0 {
			l.again(s)
		}
	}
	l.queued = slices.Delete(l.queued, 0, i)
}

// event serves a socket that is ready.
func (l *loop) event(e *ready) {
	if int(e.Fd) == l.poll.ev {
		l.poll.woken()
		return
	}
	s := l.byFd[e.Fd]
	if s == nil {
		return
	}
	if e.Events&writable != 0 {
		l.send(s)
	}
	if s.fd < 0 || e.Events&(readable|broken|hungup) == 0 {
		return
	}
	switch {
	case s.kind == signal.PeerAPI && e.Events&(broken|hungup) != 0: // what it has sent and we have not read matters to nobody
		l.lose(s, DownByPeer, whyBroken(s.fd))
	case l.left > 0:
		l.read(s)
	default:
		l.queue(s)
	}
}

// drain is the end of a loop: it sends what is left, for at most drainTime, and closes its sockets.
func (l *loop) drain() {
	end := time.Now().Add(drainTime)
	if l.host.abrupt.Load() {
		end = time.Time{}
	}
	l.runPosted()
	l.env.TakeDirty(l.send1)
	for time.Now().Before(end) {
		n := 0
		for _, s := range l.list {
			if l.waiting(s) > 0 && !(l.mute && s.kind == signal.PeerAPI) {
				n++
			}
		}
		if n == 0 {
			break
		}
		for _, e := range l.poll.wait(20) {
			if int(e.Fd) == l.poll.ev {
				l.poll.woken()
			} else if s := l.byFd[e.Fd]; s != nil && e.Events&(writable|broken) != 0 {
				l.send(s)
			}
		}
	}
	for len(l.list) > 0 {
		s := l.list[0]
		fd := s.fd
		l.forget(s)
		finish(fd)
	}
	l.poll.close()
}

// attach makes a socket the loop's own. It is written to at once and read from when it is enabled.
func (l *loop) attach(s *socket) {
	for len(l.byFd) <= s.fd {
		l.byFd = append(l.byFd, nil)
	}
	l.byFd[s.fd] = s
	l.socks[s.node] = s
	l.list = append(l.list, s)
	l.env.Buf(kernel.Dest(s.node)).Init(outBytes, max(2*s.peer.SendHard, outBytes))
	l.env.Via(s.node, kernel.Dest(s.node))
}

// enable starts to read from the socket of a link that is up.
func (l *loop) enable(node uint8) {
	s := l.socks[node]
	if s == nil {
		return
	}
	s.enabled = true
	if s.kind == signal.PeerData {
		l.heard[s.node] = l.now
	}
	s.events = l.wanted(s)
	if err := l.poll.add(s.fd, s.events); err != nil {
		l.lose(s, DownByUs, fmt.Sprintf("cannot watch its socket: %v", err))
	}
}
