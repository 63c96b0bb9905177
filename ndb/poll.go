package ndb

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/cohortdb/cohort/internal/signal"
)

// poller reads the sockets of a connection. Exactly one goroutine does so at a time: the holder of the token. With one
// session that is the session itself, in its Poll; with more, the receiver goroutine, which hands each session what came
// for it. Whoever reads reads for everyone, so nothing depends on when the one gives way to the other.
type poller struct {
	token  sync.Mutex
	epoll  int
	wake   int           // an eventfd: makes whoever waits in epoll look around; -1 when it is closed
	wakeM  sync.Mutex    // guards wake against being closed while it is written to
	inside atomic.Int32  // goroutines that wait in epoll
	shared atomic.Bool   // the receiver reads
	begin  chan struct{} // tells the receiver that shared is true
	events [64]syscall.EpollEvent

	late  []int // sockets that were shut down and are to be closed by the token's holder
	lateM sync.Mutex
	count atomic.Int32 // of late
}

// wakeSlot marks the eventfd among the events.
const wakeSlot = maxLinks

func (p *poller) init() (err error) {
	if p.epoll, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	const nonblock, cloexec = 0x800, 0x80000
	fd, _, errno := syscall.Syscall(syscall.SYS_EVENTFD2, 0, nonblock|cloexec, 0)
	if errno != 0 {
		syscall.Close(p.epoll)
		return os.NewSyscallError("eventfd", errno)
	}
	p.wake = int(fd)
	p.begin = make(chan struct{}, 1)
	e := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: wakeSlot}
	return os.NewSyscallError("epoll_ctl", syscall.EpollCtl(p.epoll, syscall.EPOLL_CTL_ADD, p.wake, &e))
}

// close gives the descriptors back; nobody uses the poller any more.
func (p *poller) close() {
	p.token.Lock()
	p.closeLate()
	syscall.Close(p.epoll)
	p.wakeM.Lock()
	syscall.Close(p.wake)
	p.wake = -1
	p.wakeM.Unlock()
	p.token.Unlock()
}

// add begins to read a link.
func (c *Conn) add(l *link) {
	l.mu.Lock()
	if !l.closed {
		e := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(l.slot)}
		if l.blocked { // by what sessions have sent since the link was made known
			e.Events |= syscall.EPOLLOUT
		}
		_ = syscall.EpollCtl(c.epoll, syscall.EPOLL_CTL_ADD, l.fd, &e)
	}
	l.mu.Unlock()
}

// wantWrite says whether the poller is to tell when the socket takes bytes again. The caller holds l.mu.
func (c *Conn) wantWrite(l *link, want bool) {
	e := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(l.slot)}
	if want {
		e.Events |= syscall.EPOLLOUT
	}
	_ = syscall.EpollCtl(c.epoll, syscall.EPOLL_CTL_MOD, l.fd, &e)
}

// forget leaves a socket that was shut down to the token's holder to close: only he knows that nobody reads it.
func (p *poller) forget(fd int) {
	p.lateM.Lock()
	p.late = append(p.late, fd)
	p.lateM.Unlock()
	p.count.Add(1)
}

func (p *poller) closeLate() {
	if p.count.Load() == 0 {
		return
	}
	p.lateM.Lock()
	for _, fd := range p.late {
		syscall.Close(fd)
	}
	p.late = p.late[:0]
	p.count.Store(0)
	p.lateM.Unlock()
}

// kick makes whoever waits in epoll look around.
func (p *poller) kick() {
	if p.inside.Load() == 0 {
		return
	}
	p.wakeM.Lock()
	if p.wake >= 0 {
		one := [8]byte{1}
		_, _ = syscall.Write(p.wake, one[:])
	}
	p.wakeM.Unlock()
}

// wait waits for sockets and executes what came: self's signals at once (self is the session whose goroutine this is,
// nil for none), others' by their inboxes. The caller holds the token. ms < 0 waits for ever.
func (c *Conn) wait(self *Session, ms int) {
	if c.state.Load().closed { // since the caller looked: the descriptors may be another's by now
		return
	}
	c.closeLate()
	if ms != 0 {
		c.inside.Add(1)
	}
	n, err := syscall.EpollWait(c.epoll, c.events[:], ms)
	if ms != 0 {
		c.inside.Add(-1)
	}
	if err != nil || n <= 0 {
		return
	}
	st := c.state.Load()
	for i := range c.events[:n] {
		e := &c.events[i]
		if e.Fd == wakeSlot {
			var b [8]byte
			_, _ = syscall.Read(c.wake, b[:])
			continue
		}
		l := st.links[e.Fd]
		if l == nil {
			continue
		}
		if e.Events&syscall.EPOLLOUT != 0 {
			c.writable(l)
		}
		if e.Events&^syscall.EPOLLOUT != 0 {
			c.readLink(l, self)
		}
	}
}

// readLink reads what a socket has and executes the whole frames of it.
func (c *Conn) readLink(l *link, self *Session) {
	for {
		n, err := read(l.fd, l.in[l.n:])
		switch {
		case err == syscall.EAGAIN:
			return
		case err != nil:
			c.lost(l, os.NewSyscallError("read", err))
			return
		case n == 0:
			c.lost(l, io.EOF)
			return
		}
		room := len(l.in) - l.n
		l.n += n
		// The state is looked at after the read: a session that was opened a moment ago may have its answer in it.
		if fault := c.execute(c.state.Load(), l, self); fault != nil {
			c.lost(l, fault)
			return
		}
		if n < room {
			return
		}
	}
}

// execute delivers the whole frames at the front of what a link has received.
func (c *Conn) execute(st *state, l *link, self *Session) error {
	in := l.in[:l.n]
	var cur *Session // whose inbox is locked
	own := uint16(0)
	if self != nil {
		own = self.instance
	}
	for {
		n, fault := signal.Whole(in)
		if fault != nil {
			cur.leave()
			return fault
		}
		if n == 0 {
			break
		}
		h := (*signal.Head)(unsafe.Pointer(unsafe.SliceData(in)))
		if fault := signal.Check(h, signal.PeerData, l.node, c.id); fault != nil {
			cur.leave()
			return fault
		}
		if h.To.Block() != signal.BlockClient || h.Num <= signal.NumHelloRef {
			if h.To.Block() == signal.BlockArbitrator && h.To.Instance() == 0 && c.arb != nil {
				cur.leave()
				cur = nil
				c.toCore(h)
				in = in[n:]
				continue
			}
			cur.leave()
			return fmt.Errorf("bad frame: %s for %v", signal.Name(h.Num), h.To)
		}
		switch to := h.To.Instance(); {
		case to == own && self != nil:
			if cur != nil {
				cur.leave()
				cur = nil
			}
			self.core.Deliver(h)
		case to == 0:
			cur.leave()
			cur = nil
			c.toCore(h)
		default:
			if cur == nil || cur.instance != to {
				cur.leave()
				if cur = nil; int(to) < len(st.sessions) {
					cur = st.sessions[to]
				}
				cur.enter()
			}
			if cur != nil {
				cur.take(in[:n])
			}
		}
		in = in[n:]
	}
	cur.leave()
	l.keep(in)
	return nil
}

// newIn makes room for n bytes of frames. Behind the last one are a few more: an empty section of the last frame begins
// there, and a pointer to it must not lead into other memory.
func newIn(n int) []byte { return make([]byte, n+8)[:n] }

// keep moves the beginning of a frame to the front, and makes room for the rest of a large one.
func (l *link) keep(rest []byte) {
	need := receiveBuffer
	if len(rest) >= 4 {
		need = max(need, int((*signal.Head)(unsafe.Pointer(unsafe.SliceData(rest))).Bytes()))
	}
	if need > len(l.in) {
		in := newIn(need)
		copy(in, rest)
		l.in = in
	} else {
		copy(l.in, rest)
	}
	l.n = len(rest)
}

// receive is the receiver goroutine: it reads while several goroutines want answers.
func (c *Conn) receive(ctx context.Context) {
	if c.opts.OnReceiver != nil {
		c.opts.OnReceiver()
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-c.begin:
		}
		c.token.Lock()
		for c.shared.Load() && ctx.Err() == nil {
			c.wait(nil, int(tick/time.Millisecond))
		}
		c.token.Unlock()
		// Who waited for the receiver reads for himself from now on.
		for _, s := range c.state.Load().sessions {
			if s != nil {
				s.inbox.wakeUp()
			}
		}
	}
}

// readForAll reads without waiting, if nobody else reads: for those that have asked and do not poll.
func (c *Conn) readForAll() {
	if c.shared.Load() || !c.token.TryLock() {
		return
	}
	c.wait(nil, 0)
	c.token.Unlock()
}

// reading decides who reads after readers or open has changed. The caller holds mu.
func (c *Conn) reading() {
	want := c.readers > 0 || c.open > 1
	if c.shared.Swap(want) == want {
		return
	}
	if want {
		select {
		case c.begin <- struct{}{}:
		default:
		}
	}
	c.kick()
}

// wantReceiver makes the receiver read until the function that it returns is called.
func (c *Conn) wantReceiver() (release func()) {
	c.mu.Lock()
	c.readers++
	c.reading()
	c.mu.Unlock()
	return func() {
		c.mu.Lock()
		c.readers--
		c.reading()
		c.mu.Unlock()
	}
}
