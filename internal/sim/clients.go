package sim

import (
	"fmt"
	"unsafe"

	"github.com/cohortdb/cohort/internal/client"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/version"
)

// api is an API node: the connection's block on a thread of its own, and each session on one.
type api struct {
	net      *Network
	id       uint8
	cluster  *cluster
	proc     *Process
	random   *Random
	conn     *client.Conn
	sessions []*session
	asked    []*asking // requests about tables under way
	down     bool      // it was killed, and does not know all tables yet
	seen     *client.View
	due      int64 // when the connection's block will be given the time beside its ticks; 0 = not
}

// session is a session of the record API with the streams of transactions that run in it.
type session struct {
	api        *api
	index      int // instance; from 1
	thread     *Thread
	s          *client.Session
	slots      []*slot
	byTx       []*txn // by the index of the client's transaction
	operations int
	proc       *Process
	from       uint8 // who sent the signal that is being executed; 0 = none is
	closing    bool  // what is under way ends with 4121
}

// clientTick is how often a client's runtime gives its blocks the time.
const clientTick = 100 * millisecond

func newAPI(c *cluster, id uint8, sessions, transactions, operations int, r *Random) *api {
	a := &api{net: c.net, id: id, cluster: c, random: r}
	for i := 1; i <= sessions; i++ {
		a.sessions = append(a.sessions, &session{api: a, index: i, byTx: make([]*txn, transactions), operations: operations})
	}
	a.boot()
	return a
}

// boot makes a process of the API node: new blocks, that know nothing.
func (a *api) boot() {
	n := a.net
	p := n.addProcess(a.id, signal.PeerAPI, 1+len(a.sessions), a.random)
	a.proc = p
	for i := range p.Threads {
		p.place(signal.BlockClient, i, i)
	}
	p.onLink = func(peer *Process, num uint16) {
		a.cluster.report(p, peer, num)
		if num == signal.NumLinkDownRep {
			a.spreadNow()
		}
	}
	t := p.Threads[0]
	a.conn = client.NewConn(t.Env, version.Number)
	a.seen, a.due = a.conn.View(), 0
	t.Handle = func(x unsafe.Pointer) {
		a.conn.Deliver((*signal.Head)(x))
		a.spread()
	}
	for i, s := range a.sessions {
		s.thread, s.proc = p.Threads[i+1], p
		s.open(0)
		s.thread.Handle = func(x unsafe.Pointer) {
			s.from = (*signal.Head)(x).From.Node()
			s.s.Deliver((*signal.Head)(x))
			s.from = 0
			s.tellDoubts()
			if s.s.Counters.Malformed != 0 {
				n.failf("%v met an answer that does not fit what it asked: %s", s, signal.Format((*signal.Head)(x)))
			}
		}
		s.thread.Flush = func() { s.s.Settle() }
		if n.weather.Lazy.Mean > 0 {
			s.thread.Lazy = &n.weather.Lazy
		}
	}
	n.at(n.now+a.random.Below(clientTick), func() { a.tick(p) })
}

// open makes the client's block. first is where transaction numbers begin.
func (s *session) open(first uint32) {
	s.s = client.NewSession(s.thread.Env, client.Config{Instance: uint16(s.index), MaxTransactions: len(s.byTx), MaxOperations: s.operations,
		FirstTx: first, WaitTimeout: s.api.cluster.o.wait(), Done: s.done})
	s.s.SetView(s.api.seen)
}

// reopen closes the session, whatever is under way, and opens another one under the same number at once.
func (s *session) reopen(stats *statistics) {
	for _, x := range s.slots {
		if x.t != nil {
			stats.Cut++
		}
	}
	stats.Reopened++
	s.api.net.onThread(s.thread, func() {
		s.closing = true
		s.s.Close()
		for _, x := range s.slots {
			if x.t != nil { // nothing was awaited for it, so nobody has been told
				x.failed(x.t, x.t.tx.Err())
			}
		}
		s.closing = false
		s.open(s.s.LastTx())
	})
}

// tick gives the blocks the time.
func (a *api) tick(p *Process) {
	if p.dead {
		return
	}
	a.net.onThread(a.proc.Threads[0], func() {
		a.conn.Tick()
		a.spread()
	})
	for _, s := range a.sessions {
		a.net.onThread(s.thread, func() { s.s.Tick() })
	}
	a.net.at(a.net.now+clientTick, func() { a.tick(p) })
}

// spreadNow hands the view to the sessions at once.
func (a *api) spreadNow() {
	a.seen = a.conn.View()
	for _, s := range a.sessions {
		a.net.onThread(s.thread, func() { s.s.SetView(a.seen) })
	}
}

// spread hands a changed view to the sessions. It reaches each of them some time later, as it would another thread.
func (a *api) spread() {
	a.conn.TakeOut(func(id uint8) { a.net.closeLink(a.proc, id, a.random) })
	a.lookAtMaps()
	v := a.conn.View()
	if v == a.seen {
		return
	}
	a.seen = v
	for _, s := range a.sessions {
		p := a.proc
		a.net.at(a.net.now+a.net.weather.Inside.draw(a.net.travel), func() {
			if !p.dead {
				a.net.onThread(s.thread, func() { s.s.SetView(a.seen) })
			}
		})
	}
}

// lookAtMaps gives the connection's block the time when it has a map to ask for.
func (a *api) lookAtMaps() {
	at, ok := a.conn.Due()
	if !ok || at == a.due {
		return
	}
	a.due = at
	p := a.proc
	a.net.at(max(at, a.net.now), func() {
		if !p.dead && a.due == at {
			a.due = 0
			a.net.onThread(p.Threads[0], func() {
				a.conn.Tick()
				a.spread()
			})
		}
	})
}

// tellDoubts tells the connection's block, some time later, which maps data nodes have contradicted.
func (s *session) tellDoubts() {
	s.s.TakeDoubts(func(m *client.Map) {
		a, p := s.api, s.proc
		a.net.at(a.net.now+a.net.weather.Inside.draw(a.net.travel), func() {
			if !p.dead {
				a.net.onThread(p.Threads[0], func() {
					a.conn.Refresh(m)
					a.spread()
				})
			}
		})
	})
}

func (s *session) String() string { return fmt.Sprintf("node %d session %d", s.proc.ID, s.index) }

// done is the client's word that what a transaction was started for is over.
func (s *session) done(tx *client.Tx) {
	t := s.byTx[tx.Index()]
	if t == nil || t.tx != tx {
		s.api.net.failf("%v: a result for a transaction that has none to come", s)
		return
	}
	t.slot.done(t)
}
