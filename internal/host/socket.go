package host

import (
	"fmt"
	"syscall"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

const (
	// readBytes is what one read takes at most: enough to make the system call cheap per signal, little enough to
	// stay in the processor's cache and within a turn's budget.
	readBytes = 64 << 10
	// outBytes is the size of a send buffer to start with, and the size to which an unused larger one shrinks.
	outBytes = 64 << 10
)

// socket is one TCP connection of a link, owned by a loop.
type socket struct {
	fd   int
	node uint8
	kind signal.Peer
	peer *peer
	// carry is what the last read left: the start of a frame, or whole frames that the turn's budget did not reach.
	carry []byte
	// rest is what the kernel did not take, from off on; while it is not empty the socket waits to become writable.
	rest []byte
	off  int
	// spare is memory for the next outgoing buffer.
	spare []byte
	// events is what the poller watches for; 0 before the link is up.
	events uint32
	// enabled: the link is up, the socket may be read.
	enabled bool
	// held: reading is suspended (clients only).
	held bool
	// queued: the socket is in the loop's list of those that wait for their turn.
	queued bool
	// over: more than the soft limit waits to be sent; counted in the peer or the host.
	over bool
	// tookAt is when the kernel last took bytes, while over; ns.
	tookAt int64
	// pending is what was last counted as waiting in the host's sum, bytes.
	pending int64
	// owed is how many bytes that it held at main's last question have not been read; owes: the question still waits for it.
	owed int
	owes bool
	// peak is the largest batch since the last look at buffer sizes, bytes.
	peak int
}

// waiting is how many bytes wait to be sent.
func (l *loop) waiting(s *socket) int {
	return len(s.rest) - s.off + l.env.Buf(kernel.Dest(s.node)).Len()
}

// heldBack tells whether a client must not be read from now.
func (l *loop) heldBack(s *socket) bool {
	return l.closed || s.peer.over.Load() > 0 || l.waiting(s) > s.peer.SendSoft || l.env.Buf(l.self).Len() > jobsMost
}

// read takes what the socket has and executes it.
func (l *loop) read(s *socket) {
	if s.held || s.queued {
		return
	}
	if s.kind == signal.PeerAPI && l.heldBack(s) {
		l.hold(s)
		return
	}
	k := copy(l.buf, s.carry)
	n, e := receive(s.fd, l.buf[k:min(k+s.peer.ReadBytes, len(l.buf))])
	switch {
	case e == errAgain:
		s.owed = 0
		l.paid(s)
		return
	case e != 0:
		l.lose(s, DownByPeer, e.Error())
		return
	case n == 0:
		l.lose(s, DownByPeer, "closed by the peer")
		return
	}
	if s.kind == signal.PeerData {
		l.heard[s.node] = l.now
		s.owed -= n
	}
	l.digest(s, l.buf[:k+n])
	l.paid(s)
}

// again goes on with a socket that a former turn had no budget for: it executes the frames in carry, or reads.
func (l *loop) again(s *socket) {
	if n, fault := signal.Whole(s.carry); n == 0 && fault == nil {
		l.read(s)
		return
	}
	if s.kind == signal.PeerAPI && l.heldBack(s) {
		l.hold(s)
		return
	}
	l.digest(s, l.buf[:copy(l.buf, s.carry)])
	l.paid(s)
}

// digest executes the frames in b, which is the loop's read buffer, and keeps what is left of them.
func (l *loop) digest(s *socket, b []byte) {
	used, fault := l.execute(b, s)
	if fault != nil {
		l.lose(s, DownBadFrame, fault.Error())
		return
	}
	s.carry = append(s.carry[:0], b[used:]...)
	if len(s.carry) == 0 {
		if cap(s.carry) > readBytes {
			s.carry = nil
		}
		return
	}
	if n, fault := signal.Whole(s.carry); n > 0 || fault != nil {
		l.queue(s)
	}
}

// queue puts a socket behind the others that wait for their turn.
func (l *loop) queue(s *socket) {
	if !s.queued {
		s.queued = true
		l.queued = append(l.queued, s)
	}
}

// hold suspends reading from a client until the loop finds that it may go on.
func (l *loop) hold(s *socket) {
	if !s.held {
		s.held = true
		l.held = append(l.held, s)
		l.watch(s)
	}
}

// release looks at the clients that are not read from and resumes those that may be.
func (l *loop) release() {
	kept := l.held[:0]
	for _, s := range l.held {
		switch {
		case s.fd < 0:
		case l.heldBack(s):
			kept = append(kept, s)
		default:
			s.held = false
			l.watch(s)
			if n, _ := signal.Whole(s.carry); n > 0 {
				l.queue(s)
			}
		}
	}
	clear(l.held[len(kept):])
	l.held = kept
}

// wanted is what the poller is to watch for.
func (l *loop) wanted(s *socket) (events uint32) {
	if !s.held {
		events = readable
	}
	if s.kind == signal.PeerAPI {
		events |= hungup
	}
	if len(s.rest) > 0 {
		events |= writable
	}
	return events
}

// watch tells the poller what the socket waits for.
func (l *loop) watch(s *socket) {
	if !s.enabled || s.fd < 0 {
		return
	}
	if want := l.wanted(s); want != s.events {
		s.events = want
		if err := l.poll.change(s.fd, want); err != nil {
			l.lose(s, DownByUs, err.Error())
		}
	}
}

// send writes what waits for a socket, as far as the kernel takes it.
func (l *loop) send(s *socket) {
	took, ok := l.sendRest(s)
	if ok && len(s.rest) == 0 && !(l.mute && s.kind == signal.PeerAPI) {
		var n int
		n, ok = l.sendNew(s)
		took += n
	}
	if ok {
		l.measure(s, took > 0)
		l.watch(s)
	}
}

// sendRest writes what the kernel did not take the last time; ok is false when the socket is gone.
func (l *loop) sendRest(s *socket) (n int, ok bool) {
	if len(s.rest) == 0 {
		return 0, true
	}
	n, e := transmit(s.fd, s.rest[s.off:])
	if n, ok = l.accept(s, n, e); !ok {
		return 0, false
	}
	if s.off += n; s.off == len(s.rest) {
		if cap(s.rest) <= chunkKeepBytes {
			s.spare = s.rest[:0]
		}
		s.rest, s.off = nil, 0
	}
	return n, true
}

// sendNew writes the outgoing buffer. What the kernel does not take becomes the rest, so that nothing is ever moved.
func (l *loop) sendNew(s *socket) (n int, ok bool) {
	b := l.env.Buf(kernel.Dest(s.node))
	if b.Len() == 0 {
		return 0, true
	}
	s.peak = max(s.peak, b.Len())
	n, e := transmit(s.fd, b.Bytes())
	if n, ok = l.accept(s, n, e); !ok {
		return 0, false
	}
	if n == b.Len() {
		b.Consume(n)
		return n, true
	}
	if s.spare == nil {
		s.spare = make([]byte, outBytes)
	}
	s.rest, s.off, s.spare = b.Swap(s.spare), n, nil
	return n, true
}

// accept judges what a write returned: how much was taken, or false when the socket is gone.
func (l *loop) accept(s *socket, n int, e syscall.Errno) (int, bool) {
	switch e {
	case 0:
		return n, true
	case errAgain:
		return 0, true
	}
	l.lose(s, DownByPeer, e.Error())
	return 0, false
}

// measure compares what waits for a socket with its limits.
func (l *loop) measure(s *socket, took bool) {
	n := l.waiting(s)
	if n == 0 && !s.over && s.pending == 0 {
		return
	}
	if p := int64(n); p != s.pending {
		l.host.pending.Add(p - s.pending)
		s.pending = p
	}
	if took || !s.over {
		s.tookAt = l.now
	}
	switch {
	case n > s.peer.SendHard:
		l.overflow(s, n, "more than its send buffer holds")
	case !s.over && n > s.peer.SendSoft:
		s.over = true
		l.overs++
		if s.kind == signal.PeerData {
			l.host.overData.Add(1)
			l.host.report(event.SendBufferFull, "", uint32(s.node), uint32(n))
		}
		s.peer.over.Add(1)
	case s.over && n <= s.peer.SendSoft/2:
		l.under(s)
	}
}

// under takes back that a socket is above its soft limit.
func (l *loop) under(s *socket) {
	s.over = false
	l.overs--
	if s.kind == signal.PeerData {
		l.host.overData.Add(-1)
	}
	s.peer.over.Add(-1)
}

// overflow cuts a link that does not take what is sent to it.
func (l *loop) overflow(s *socket, n int, why string) {
	if s.kind != signal.PeerData {
		l.host.report(event.ClientCutOff, "", uint32(s.node), uint32(n))
	}
	l.lose(s, DownFull, fmt.Sprintf("the peer does not read: %d bytes wait, %s", n, why))
}

// flush writes a destination of the Env: a socket or another thread.
func (l *loop) flush(d kernel.Dest, b *kernel.Buf) {
	if d >= kernel.ThreadDest(0) {
		l.pass(d, b)
		return
	}
	s := l.socks[d]
	switch {
	case s == nil: // the link is down: what is sent to it is lost
		b.Consume(b.Len())
	case b.Broken:
		l.overflow(s, s.peer.SendHard, "more than its send buffer holds")
	case len(s.rest) > 0, l.mute && s.kind == signal.PeerAPI:
		l.measure(s, false)
	default:
		l.send(s)
	}
}

// inspect looks at things that need no look at every turn: clients that take nothing, buffers that grew for one burst.
func (l *loop) inspect() {
	for _, s := range l.list {
		if s.fd < 0 {
			continue
		}
		if s.over && s.kind != signal.PeerData && l.now-s.tookAt > int64(l.host.cfg.Patience) {
			l.overflow(s, l.waiting(s), fmt.Sprintf("nothing was taken for %v", l.host.cfg.Patience))
			continue
		}
		b := l.env.Buf(kernel.Dest(s.node))
		if c := cap(b.Bytes()); c > 4*outBytes && b.Len() == 0 && s.peak < c/4 {
			b.Swap(make([]byte, outBytes))
		}
		s.peak = 0
	}
}

// drop ends a socket: the loop forgets it, and what was waiting for it is lost.
func (l *loop) drop(s *socket) {
	if s.fd < 0 {
		return
	}
	closeSocket(s.fd)
	l.forget(s)
}

// forget takes a socket out of the loop's books.
func (l *loop) forget(s *socket) {
	l.byFd[s.fd] = nil
	s.fd = -1
	l.socks[s.node] = nil
	for i, o := range l.list {
		if o == s {
			l.list = append(l.list[:i], l.list[i+1:]...)
			break
		}
	}
	if s.over {
		l.under(s)
	}
	if s.pending != 0 {
		l.host.pending.Add(-s.pending)
		s.pending = 0
	}
	s.carry, s.rest, s.spare = nil, nil, nil
	l.env.Buf(kernel.Dest(s.node)).Close()
	l.paid(s)
}

// lose drops a socket and with it the whole link.
func (l *loop) lose(s *socket, code uint32, why string) {
	p := s.peer
	l.drop(s)
	l.host.down(p, code, why)
}
