package host

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// How a link ended: Code of a LinkDownRep.
const (
	DownByPeer   uint32 = iota // the peer closed it, or the network did
	DownByUs                   // this node closed it
	DownBadFrame               // the peer sent what no signal can be
	DownFull                   // the peer does not read what is sent to it
)

// state is where the link to a peer stands.
type state uint8

const (
	stateDown      state = iota // no socket
	stateGathering              // some of its sockets are there
	stateOpening                // all are there; the loops are taking them over
	stateUp                     // signals flow
	stateClosing                // the loops are letting go
	stateTaken                  // down, and the core has not finished with the failure yet
)

// peer is another node. What is not configuration or atomic is behind Host.mu.
type peer struct {
	Peer
	node uint8
	// over is how many of its sockets have more to send than the soft limit.
	over atomic.Int32
	// upAt is when the link came up, ns of the host's clock; 0 = there is none.
	upAt atomic.Int64

	state  state
	secret [2]uint32 // of the peer's run
	want   int       // sockets that make the link
	fds    []int     // gathered, by socket number; -1: not there yet
	since  time.Time // of the first gathered socket
	rep    signal.LinkRep
	left   int       // loops that have not finished the current step
	cause  downWhy   // valid when lost
	lost   bool      // went down while it was opening
	parts  []*socket // by socket number, from opening on
	// changed is closed when the state changes, for those who wait to dial.
	changed chan struct{}
}

type downWhy struct {
	code uint32
	text string
}

// gatherTime bounds the wait for the remaining sockets of a link.
const gatherTime = 10 * time.Second

// refusal is why a link was not taken.
type refusal struct {
	code uint32
	text string
}

func (r *refusal) Error() string { return r.text }

func (p *peer) set(s state) {
	p.state = s
	close(p.changed)
	p.changed = make(chan struct{})
}

// socketsFor is how many sockets make a link to a peer that can serve `offered` (0: as many as we want).
func (h *Host) socketsFor(kind signal.Peer, offered int) int {
	n := len(h.cfg.Receivers)
	switch {
	case kind == signal.PeerMgm:
		return 1
	case kind == signal.PeerData && offered > 0:
		return min(n, offered)
	}
	return n
}

// loopOf is the loop that owns socket k of a link, and for a loop without one the loop whose socket it uses.
func (h *Host) loopOf(kind signal.Peer, k int) int {
	if kind == signal.PeerMgm {
		return h.cfg.Main
	}
	return h.cfg.Receivers[k]
}

// admit checks whether socket k of a link may come from a run of a peer, and reserves nothing.
func (h *Host) admit(p *peer, secret [2]uint32, k, want int) *refusal {
	if h.stopping.Load() {
		return &refusal{signal.RefuseNotReady, fmt.Sprintf("node %d is stopping", h.cfg.Node)}
	}
	switch p.state {
	case stateDown:
	case stateGathering:
		if p.secret != secret && time.Since(p.since) < gatherTime && !p.abandoned() {
			return &refusal{signal.RefuseTaken, fmt.Sprintf("node %d is being linked by another process", p.node)}
		}
	case stateTaken, stateClosing:
		return &refusal{signal.RefuseTaken, fmt.Sprintf("what node %d left when its last link ended is still being cleared away", p.node)}
	default:
		return &refusal{signal.RefuseTaken, fmt.Sprintf("node %d has a link already", p.node)}
	}
	if k < 0 || k >= want {
		return &refusal{signal.RefuseSocket, fmt.Sprintf("there is no socket %d, only %d", k, want)}
	}
	return nil
}

// offer gives socket k of a link to the host, which owns fd from here on. When it is the last one the link opens.
func (h *Host) offer(p *peer, fd, k, want int, rep signal.LinkRep, secret [2]uint32) *refusal {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.admit(p, secret, k, want); r != nil {
		closeSocket(fd)
		return r
	}
	if p.state == stateDown || p.secret != secret || len(p.fds) != want {
		p.discard()
		p.secret, p.want, p.since, p.rep = secret, want, time.Now(), rep
		p.fds = make([]int, want)
		for i := range p.fds {
			p.fds[i] = -1
		}
		p.set(stateGathering)
	}
	if p.fds[k] >= 0 {
		closeSocket(p.fds[k])
	}
	p.fds[k] = fd
	for _, f := range p.fds {
		if f < 0 {
			return nil
		}
	}
	h.open(p)
	return nil
}

// abandoned tells whether the dialler of a gathered socket has closed it.
func (p *peer) abandoned() bool {
	for _, fd := range p.fds {
		if fd >= 0 && hungUp(fd) {
			return true
		}
	}
	return false
}

// discard closes what was gathered.
func (p *peer) discard() {
	for _, fd := range p.fds {
		if fd >= 0 {
			closeSocket(fd)
		}
	}
	p.fds = nil
}

// ungather gives up a link whose dialler could not complete it.
func (h *Host) ungather(p *peer, secret [2]uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.state == stateGathering && p.secret == secret {
		p.discard()
		p.set(stateDown)
	}
}

// open makes the loops take the sockets over: every loop attaches, then main tells the blocks, then every loop
// reads. So no signal of the peer is executed anywhere before its LinkUpRep is.
func (h *Host) open(p *peer) {
	p.set(stateOpening)
	p.lost = false
	p.left = len(h.loops)
	p.parts = make([]*socket, p.want)
	for k, fd := range p.fds {
		p.parts[k] = &socket{fd: fd, node: p.node, kind: p.Kind, peer: p}
	}
	p.fds = nil
	parts := p.parts
	for i, l := range h.loops {
		own := -1
		for k := range parts {
			if h.loopOf(p.Kind, k) == i {
				own = k
			}
		}
		l.post(func(l *loop) {
			if own >= 0 {
				l.attach(parts[own])
			} else {
				l.env.Via(p.node, kernel.ThreadDest(h.loopOf(p.Kind, i%len(parts))))
			}
			if h.stepDone(p) {
				h.loops[h.cfg.Main].post(func(l *loop) { h.announce(l, p) })
			}
		})
	}
}

// stepDone counts a loop that has finished the current step; it is true for the last one.
func (h *Host) stepDone(p *peer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.left--
	return p.left == 0
}

// announce runs on main: the blocks hear of the link, then every loop reads from it.
func (h *Host) announce(l *loop, p *peer) {
	h.tell(l, signal.NumLinkUpRep, p.rep)
	l.env.RunJobs(l.job, turnSignals) // what follows from it on this thread
	h.mu.Lock()
	defer h.mu.Unlock()
	p.set(stateUp)
	p.upAt.Store(l.now)
	for _, o := range h.loops {
		o.post(func(o *loop) { o.enable(p.node) })
	}
	if p.lost {
		p.upAt.Store(0)
		h.close(p)
	}
}

// tell gives membership a LinkRep.
func (h *Host) tell(l *loop, num uint16, rep signal.LinkRep) {
	s := kernel.Send[signal.LinkRep](l.env, signal.MakeAddr(h.cfg.Node, signal.BlockMembership, 0), h.self, num)
	head := s.Head
	*s = rep
	s.Head = head
}

// down says that a link is lost; any goroutine may call it, more than once.
func (h *Host) down(p *peer, code uint32, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.lost || p.state != stateUp && p.state != stateOpening || h.stopping.Load() {
		return
	}
	p.lost, p.cause = true, downWhy{code, why}
	p.upAt.Store(0)
	h.cfg.Log("link to node %d closed: %s", p.node, why)
	if code == DownBadFrame || code == DownByUs && why != byOrder {
		h.report(event.TransporterError, why, uint32(p.node), code)
	}
	if p.state == stateUp {
		h.close(p)
	}
}

// close makes every loop let the link go. Each sends a mark to every other one behind the last signal of the peer that
// it handed over; when all marks have arrived no signal of the peer is left on its way, and main tells the blocks.
func (h *Host) close(p *peer) {
	p.set(stateClosing)
	p.left = len(h.loops)
	for _, l := range h.loops {
		l.post(func(l *loop) {
			if s := l.socks[p.node]; s != nil {
				l.drop(s)
			}
			l.mark(p.node)
			l.marked(p.node)
		})
	}
}

// marked counts the marks for a peer that have come from all threads, the own included.
func (l *loop) marked(node uint8) {
	if node == l.env.Node() {
		l.host.answered(l)
		return
	}
	l.marks[node]++
	if int(l.marks[node]) < len(l.in) {
		return
	}
	l.marks[node] = 0
	h, p := l.host, l.host.peers[node]
	if h.stepDone(p) {
		h.loops[h.cfg.Main].post(func(l *loop) { h.bury(l, p) })
	}
}

// bury runs on main: the blocks hear that the link is down.
func (h *Host) bury(l *loop, p *peer) {
	h.mu.Lock()
	p.parts = nil
	p.set(stateTaken)
	rep := p.rep
	rep.Code = p.cause.code
	h.mu.Unlock()
	h.tell(l, signal.NumLinkDownRep, rep)
}

// byOrder is why a link ended that membership wanted to end.
const byOrder = "the node is no member of the cluster"

// closeLink runs on main: membership wants to hear nothing more of a node. If there is a link it ends like any other;
// else that is said at once, and the node may not link again before it is free.
func (h *Host) closeLink(l *loop, node uint8) {
	p := h.peers[node]
	if p == nil {
		return
	}
	h.mu.Lock()
	state := p.state
	if state == stateDown || state == stateGathering {
		p.discard()
		p.set(stateTaken)
	}
	h.mu.Unlock()
	switch state {
	case stateOpening, stateUp:
		h.down(p, DownByUs, byOrder)
	case stateClosing: // the word about it is on its way
	default:
		h.tell(l, signal.NumLinkDownRep, signal.LinkRep{Node: uint32(node), Kind: uint32(p.Kind), Code: DownByUs})
	}
}

// free takes the core's word that nothing of a node is left since its link went down: it may link again.
func (h *Host) free(node uint8) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.peers[node]; p != nil && p.state == stateTaken {
		p.set(stateDown)
	}
}
