package host

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// sleepMost bounds how long a thread sleeps, so that it notices when it did not run though it should have.
const sleepMost = 100_000_000 // ns

// pulse is what a thread knows of when it ran, and when it heard of other data nodes. Everything is its own, but for
// told and toldLate: main reads these after the thread's mark has come.
type pulse struct {
	heard [signal.MaxDataNode + 1]int64 // when bytes last came from a data node, ns; 0 = never
	late  int64                         // longest time that it did not run since the last question, ns
	owing int                           // of its data nodes' sockets, those that still hold what they held at the question

	told     [signal.MaxDataNode + 1]int64
	toldLate int64
}

// inquest is main's side of questions.
type inquest struct {
	refs    []uint32 // of the questions that the threads are answering
	next    []uint32 // of those that came meanwhile: they get a round of their own
	missing int      // threads that have not answered
}

// clock reads the clock and notes how long the loop did not run, beyond what it meant to sleep. After too long a time it
// trusts nothing that comes from clients any more.
func (l *loop) clock(meant int64) {
	last := l.now
	l.setNow()
	gap := l.now - last
	l.late = max(l.late, gap-meant)
	if gap > l.host.cfg.StallLimit {
		l.doubt(gap)
	}
}

// doubt shuts clients out, on every thread, and tells membership: at once if this is main, else before main executes
// anything more.
func (l *loop) doubt(gap int64) {
	h := l.host
	h.doubts.Add(1)
	l.mute = true
	if l.index == h.cfg.Main {
		h.tellStall(l, gap)
		return
	}
	h.loops[h.cfg.Main].post(func(m *loop) { h.tellStall(m, gap) })
}

// tellStall runs on main: it reports a stall, unless a report that has gone out since says it already.
func (h *Host) tellStall(l *loop, gap int64) {
	n := h.doubts.Load()
	if n == h.reported {
		return
	}
	h.reported = n
	h.cfg.Log("did not run for %d ms; nothing is taken in from clients until it is known that this node is still in the cluster", gap/1_000_000)
	to := signal.MakeAddr(h.cfg.Node, signal.BlockMembership, 0)
	if !l.env.Has(to) {
		h.trust()
		return
	}
	r := signal.StallRep{Head: signal.Head{Len: uint16(unsafe.Sizeof(signal.StallRep{}) / 4), Num: signal.NumStallRep, To: to, From: h.self},
		Millis: uint32(min(gap/1_000_000, int64(signal.NoRef-1)))}
	l.trace.put(&r.Head)
	l.deliver(unsafe.Pointer(&r)) // straight away: jobs may be waiting from before
}

// distrusted tells whether the node doubts that it is still in the cluster.
func (h *Host) distrusted() bool { return h.doubts.Load() != h.trusted.Load() }

// trust takes membership's word that the node is in the cluster: it covers the stalls that were reported to it.
func (h *Host) trust() {
	h.trusted.Store(h.reported)
	for _, l := range h.loops {
		l.post((*loop).speak)
	}
}

// speak sends the answers that were kept from clients.
func (l *loop) speak() {
	if l.mute = l.host.distrusted(); l.mute {
		return
	}
	for i := 0; i < len(l.list); i++ { // a socket that is lost leaves the list
		s := l.list[i]
		if s.kind == signal.PeerAPI && len(s.rest) == 0 && l.env.Buf(kernel.Dest(s.node)).Len() > 0 {
			if l.send(s); s.fd < 0 {
				i--
			}
		}
	}
}

// heardReq runs on main.
func (h *Host) heardReq(ref uint32) {
	q := &h.inquest
	q.next = append(q.next, ref)
	if q.missing == 0 {
		h.ask()
	}
}

// ask makes every thread look at its sockets.
func (h *Host) ask() {
	q := &h.inquest
	q.refs, q.next = q.next, q.refs[:0]
	q.missing = len(h.loops)
	for _, l := range h.loops {
		l.post((*loop).look)
	}
}

// look notes how much lies in the sockets of data nodes: a question is answered when all of it has been executed.
func (l *loop) look() {
	l.owing = 0
	for _, s := range l.list {
		if s.kind != signal.PeerData || !s.enabled {
			continue
		}
		s.owed = unread(s.fd)
		if s.owes = s.owed > 0 || s.queued; s.owes {
			l.owing++
		}
	}
	if l.owing == 0 {
		l.answer()
	}
}

// paid takes a socket from those that a question waits for, if it has given what it held.
func (l *loop) paid(s *socket) {
	if s.owes && (s.fd < 0 || s.owed <= 0 && !s.queued) {
		s.owes = false
		if l.owing--; l.owing == 0 {
			l.answer()
		}
	}
}

// answer tells main what this thread has heard, behind everything that it handed over.
func (l *loop) answer() {
	l.told, l.toldLate, l.late = l.heard, l.late, 0
	if l.index == l.host.cfg.Main {
		l.host.answered(l)
		return
	}
	l.markTo(l.host.cfg.Main, l.env.Node())
}

// answered runs on main, for each thread that has answered.
func (h *Host) answered(l *loop) {
	q := &h.inquest
	if q.missing--; q.missing > 0 {
		return
	}
	to := signal.MakeAddr(h.cfg.Node, signal.BlockMembership, 0)
	for _, ref := range q.refs {
		c := kernel.Send[signal.HeardConf](l.env, to, h.self, signal.NumHeardConf)
		c.Ref, c.Stall = ref, 0
		for n := range c.Age {
			c.Age[n] = h.age(l, n)
		}
		for _, o := range h.loops {
			c.Stall = max(c.Stall, uint32(min(o.toldLate/1_000_000, int64(signal.NoRef-1))))
		}
	}
	if q.refs = q.refs[:0]; len(q.next) > 0 {
		h.ask()
	}
}

// age is how long ago any thread heard of a data node, milliseconds; NoRef without a link.
func (h *Host) age(l *loop, n int) uint32 {
	p := h.peers[n]
	if p == nil || p.Kind != signal.PeerData {
		return signal.NoRef
	}
	last := p.upAt.Load()
	if last == 0 {
		return signal.NoRef
	}
	for _, o := range h.loops {
		last = max(last, o.told[n])
	}
	return uint32(min(max(l.now-last, 0)/1_000_000, int64(signal.NoRef-1)))
}
