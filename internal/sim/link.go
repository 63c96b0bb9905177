package sim

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// Links between processes, and the wires between their machines.
//
// A link has two ends. Each comes up at a moment of its own (LinkUpRep before every signal of the peer) and goes down at
// one of its own (LinkDownRep after the last signal that was let in). Whoever closes its end sends nothing more and lets
// nothing more in; the other end finds out a little later, unless the wire is cut: then when it is mended.
//
// A cut wire loses nothing, since what is below a link sends again until it is answered: signals wait until the wire is
// mended, and are lost when one of the ends closes before.

// end is one end of a link.
type end struct {
	own, peer *Process
	other     *end
	opens     int64 // nothing of the peer is let in before
	up        bool  // LinkUpRep was executed
	closing   bool  // nothing is sent any more; LinkDownRep follows when nothing is on its way
	gone      bool
}

// wire is the way from one node's machine to another's.
type wire struct {
	cut     int      // by so many faults
	healed  []func() // what the far end will learn when the wire is mended
	slow    Delay    // in addition to what each link takes; zero = nothing
	suspect int64    // until then nodes may give each other up for what was wrong with it
	dials   bool     // lower index first: somebody tries to open a link
}

// never is when a signal on a cut wire arrives.
const never = int64(1) << 62

func (n *Network) wire(from, to *Process) *wire { return &n.wires[from.index][to.index] }

// usable tells whether what is sent at this end may reach the other.
func (e *end) usable() bool {
	return e != nil && e.up && !e.closing && !e.other.closing && !e.other.gone
}

// linked tells whether both ends of a link between two processes are up.
func linked(p, q *Process) bool { return p.ends[q.ID].usable() && q.ends[p.ID].usable() }

// dial makes two nodes open a link as soon as both can, as the dialling side of a real node tries again and again.
func (n *Network) dial(a, b uint8) {
	p, q := n.procs[a], n.procs[b]
	if !p.alive() || !q.alive() {
		return
	}
	w := n.wire(p, q)
	if q.index < p.index {
		w = n.wire(q, p)
	}
	if w.dials {
		return
	}
	w.dials = true
	n.at(n.now+n.links.Exponential(10*millisecond), func() {
		w.dials = false
		n.tryLink(a, b)
	})
}

func (n *Network) tryLink(a, b uint8) {
	p, q := n.procs[a], n.procs[b]
	switch {
	case !p.alive() || !q.alive():
	case p.ends[b] != nil && q.ends[a] != nil && p.ends[b].other == q.ends[a]:
	case p.ends[b] != nil, q.ends[a] != nil, p.taken[b], q.taken[a], p.paused, q.paused, n.wire(p, q).cut > 0, n.wire(q, p).cut > 0:
		n.dial(a, b)
	default:
		n.link(p, q)
	}
}

// link opens a link. Each side learns of it at a time of its own; what comes before is let in after.
func (n *Network) link(p, q *Process) {
	e, f := &end{own: p, peer: q}, &end{own: q, peer: p}
	e.other, f.other = f, e
	p.ends[q.ID], q.ends[p.ID] = e, f
	for _, e := range [2]*end{e, f} {
		e.opens = n.now + n.links.Below(millisecond)
		n.at(e.opens, func() {
			e.own.do(func() {
				if !e.gone && !e.up {
					n.opened(e)
				}
			})
		})
	}
}

func (n *Network) opened(e *end) {
	p := e.own
	e.up = true
	p.heard[e.peer.ID] = n.now
	for _, t := range p.Threads {
		b := t.Env.Buf(kernel.Dest(e.peer.ID))
		b.Init(1<<14, sendBytesMax)
		soil(b)
		t.Env.Via(e.peer.ID, kernel.Dest(e.peer.ID))
	}
	p.onLink(e.peer, signal.NumLinkUpRep)
}

// shut takes the buffers of an end away.
func (e *end) shut() {
	e.closing = true
	for _, t := range e.own.Threads {
		t.Env.Buf(kernel.Dest(e.peer.ID)).Close()
	}
}

// closeLink closes the links of a process to another from its own side.
func (n *Network) closeLink(p *Process, peer uint8, r *Random) bool {
	e := p.ends[peer]
	if e == nil || e.closing {
		return e != nil
	}
	q := e.peer
	if !e.up {
		n.forget(e)
	} else {
		n.drainTo(p)
		e.shut()
		if p.Kind == signal.PeerAPI { // it hears nothing more
			n.tear(q, p, func(int, int, int) int { return 0 })
		} else { // what has arrived was let in; of what is near some may have been
			n.tear(q, p, func(arrived, near, _ int) int { return arrived + r.Int(near-arrived+1) })
		}
		n.whenSilent(q, p, func() { n.down(e) })
	}
	if r.Chance(1, 2) { // a connection that is closed with something unread loses what was sent
		n.tear(p, q, func(_, _, waiting int) int { return r.Int(waiting + 1) })
	}
	n.notice(e.other)
	return true
}

// abandon closes an end whose process ends.
func (n *Network) abandon(e *end, lossy bool, r *Random) {
	p, q := e.own, e.peer
	e.gone = true
	p.ends[q.ID] = nil
	n.tear(q, p, func(int, int, int) int { return 0 })
	if lossy && r.Chance(1, 2) {
		n.tear(p, q, func(_, _, waiting int) int { return r.Int(waiting + 1) })
	}
	n.notice(e.other)
}

// forget ends an end that never came up.
func (n *Network) forget(e *end) {
	e.gone = true
	e.own.ends[e.peer.ID] = nil
	n.tear(e.peer, e.own, func(int, int, int) int { return 0 })
	n.prune(e)
	n.dial(e.own.ID, e.peer.ID)
}

// notice lets an end find out, a little later, that the other one is closed.
func (n *Network) notice(e *end) {
	if e.gone || e.closing || e.own.dead {
		return
	}
	n.at(n.now+n.links.Exponential(200*microsecond), func() {
		if e.gone || e.closing || e.own.dead {
			return
		}
		if w := n.wire(e.peer, e.own); w.cut > 0 {
			w.healed = append(w.healed, func() { n.notice(e) })
			return
		}
		e.own.do(func() { n.noticed(e) })
	})
}

func (n *Network) noticed(e *end) {
	switch {
	case e.gone || e.closing:
	case !e.up:
		n.forget(e)
	case e.own.Kind == signal.PeerAPI: // it sends until it has read all
		n.whenSilent(e.peer, e.own, func() {
			if !e.gone && !e.closing {
				n.drainTo(e.own)
				e.shut()
				n.down(e)
			}
		})
	default:
		e.shut()
		n.whenSilent(e.peer, e.own, func() { n.down(e) })
	}
}

// drainTo lets what a process has to send leave it.
func (n *Network) drainTo(p *Process) {
	for _, t := range p.Threads {
		n.drain(t)
	}
}

// down tells a process that its links to another are down.
func (n *Network) down(e *end) {
	if e.gone || e.own.dead {
		return
	}
	p := e.own
	e.gone = true
	p.ends[e.peer.ID] = nil
	p.taken[e.peer.ID] = p.Kind == signal.PeerData
	n.prune(e)
	p.onLink(e.peer, signal.NumLinkDownRep)
	n.dial(p.ID, e.peer.ID)
}

// prune forgets the routes from a process that has ended, of which nothing is left.
func (n *Network) prune(e *end) {
	if !e.peer.dead {
		return
	}
	for _, t := range e.own.Threads {
		kept := t.in[:0]
		for _, r := range t.in {
			if r.from.Proc != e.peer {
				kept = append(kept, r)
			}
		}
		clear(t.in[len(kept):])
		t.in = kept
	}
}

// tear loses some of what is on its way from one process to another: of each pair of threads as many stay as keep says,
// told how many have arrived, how many have or do not wait at a cut wire, and how many there are.
func (n *Network) tear(from, to *Process, keep func(arrived, near, waiting int) int) {
	if to.dead {
		return
	}
	for _, t := range to.Threads {
		for _, x := range t.in {
			if x.from.Proc != from {
				continue
			}
			waiting, arrived := len(x.at)-x.atRead, 0
			for arrived < waiting && x.at[x.atRead+arrived] <= n.now {
				arrived++
			}
			near := arrived
			for near < waiting && x.at[x.atRead+near] != never {
				near++
			}
			k := keep(arrived, near, waiting)
			if k == 0 {
				x.unready()
			}
			end := x.read
			for range k {
				end += int((*signal.Head)(unsafe.Pointer(&x.bytes[end])).Bytes())
			}
			kill(x.bytes[end:])
			x.bytes, x.at = x.bytes[:end], x.at[:x.atRead+k]
			if k > 0 { // what comes later may be let in as soon as that
				x.last = min(x.last, max(x.at[len(x.at)-1], n.now))
			} else {
				x.last = min(x.last, n.now)
			}
		}
	}
	n.silenced(to)
}

// silent tells whether nothing is on its way from one process to another.
func silent(from, to *Process) bool {
	for _, t := range to.Threads {
		for _, r := range t.in {
			if r.from.Proc == from && !r.empty() {
				return false
			}
		}
	}
	return true
}

// whenSilent calls then, as the runtime of to, when nothing is on its way between two processes any more.
func (n *Network) whenSilent(from, to *Process, then func()) {
	to.waiting = append(to.waiting, waiter{from, then})
	n.silenced(to)
}

// silenced looks for those who wait for what was on its way to a process.
func (n *Network) silenced(to *Process) {
	if len(to.waiting) == 0 {
		return
	}
	kept := to.waiting[:0]
	for _, w := range to.waiting {
		if !silent(w.from, to) {
			kept = append(kept, w)
			continue
		}
		n.at(n.now, func() { to.do(w.then) })
	}
	to.waiting = kept
}

// cut makes signals of one node to another wait, until as many heals have come as cuts.
func (n *Network) cut(from, to *Process) { n.wire(from, to).cut++ }

// heal mends a wire.
func (n *Network) heal(from, to uint8) {
	p, q := n.procs[from], n.procs[to]
	w := n.wire(p, q)
	if w.cut--; w.cut > 0 {
		return
	}
	if q.alive() {
		for _, t := range q.Threads {
			for _, r := range t.in {
				if r.from.Proc.ID == from {
					n.mend(r)
				}
			}
		}
	}
	late := w.healed
	w.healed = nil
	for _, f := range late {
		f()
	}
}

// mend lets what waits on a route travel on.
func (n *Network) mend(r *route) {
	at := n.now
	for i := r.atRead; i < len(r.at); i++ {
		if r.at[i] != never {
			at = max(at, r.at[i])
			continue
		}
		at = max(at, n.now+r.delay.draw(n.travel))
		r.at[i] = at
		if i == r.atRead {
			n.push(happening{at: at, route: r})
		}
	}
	r.last = at
}
