// Package outcome keeps what became of commits until their clients have heard it.
//
// Each session of a client numbers its commits 1, 2, 3 …; with each request it tells up to which number it has
// heard every outcome. A participant keeps, per session, a ring of the newest Window outcomes: recording one
// costs a store, and an acknowledgement costs a comparison, with no list to maintain. A client never has more
// than Window commits beyond its acknowledgement, so a live entry is never overwritten.
//
// A Table belongs to one ldm; a coordinator needs only how far sessions have heard (Acks). A Table allocates a ring when a session first commits
// there, up to its bound; it never allocates per outcome. It holds no pointers into the Go heap besides the rings.
package outcome

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/signal"
)

// Window is how many commits a session may have beyond its acknowledgement.
const Window = 2048

type entry struct {
	seq uint32
	gci [2]uint32
}

type ring struct {
	ack  uint32 // every outcome up to here was heard
	high uint32 // newest one recorded
	e    [Window]entry
}

// RingBytes is what a session's outcomes take, bytes: for the sum of a node's memory.
const RingBytes = int64(unsafe.Sizeof(ring{}))

// Table is the outcomes that one block keeps.
type Table struct {
	node  [256][]*ring // node → session → ring
	spare []*ring
	used  int
	bound int
}

// New makes a table for at most bound sessions.
func New(bound int) *Table { return &Table{bound: bound} }

// Admit makes sure that the session has a ring, and takes its acknowledgement. False: the bound is reached, and
// the commit must be refused with a temporary error before anything is done.
func (t *Table) Admit(session signal.Addr, ack uint32) bool {
	s := t.node[session.Node()]
	i := int(session.Instance())
	if i < len(s) && s[i] != nil {
		s[i].heard(ack)
		return true
	}
	return t.open(session, ack)
}

//go:noinline
func (t *Table) open(session signal.Addr, ack uint32) bool {
	if t.used >= t.bound {
		return false
	}
	s := t.node[session.Node()]
	i := int(session.Instance())
	for len(s) <= i {
		s = append(s, nil)
	}
	r := (*ring)(nil)
	if n := len(t.spare); n > 0 {
		r, t.spare = t.spare[n-1], t.spare[:n-1]
		*r = ring{}
	} else {
		r = &ring{}
	}
	r.ack, r.high = ack, ack
	s[i] = r
	t.node[session.Node()] = s
	t.used++
	return true
}

func (r *ring) heard(ack uint32) {
	if int32(ack-r.ack) > 0 {
		r.ack = ack
	}
}

// Record keeps the epoch of commit seq of an admitted session. A seq that is 0 (no outcome wanted) is ignored.
func (t *Table) Record(session signal.Addr, seq uint32, gci [2]uint32) {
	if seq == 0 {
		return
	}
	s := t.node[session.Node()]
	i := int(session.Instance())
	if i >= len(s) || s[i] == nil {
		return // the session has ended meanwhile
	}
	r := s[i]
	r.e[seq%Window] = entry{seq, gci}
	if int32(seq-r.high) > 0 {
		r.high = seq
	}
}

// InWindow tells whether a session may use seq: a request outside the window comes from a broken client.
func (t *Table) InWindow(session signal.Addr, seq uint32) bool {
	s := t.node[session.Node()]
	i := int(session.Instance())
	if i >= len(s) || s[i] == nil {
		return false
	}
	return seq-s[i].ack-1 < Window
}

// Ack takes an acknowledgement of a session that may have nothing here.
func (t *Table) Ack(session signal.Addr, ack uint32) {
	s := t.node[session.Node()]
	if i := int(session.Instance()); i < len(s) && s[i] != nil {
		s[i].heard(ack)
	}
}

// Find looks an outcome up.
func (t *Table) Find(session signal.Addr, seq uint32) (gci [2]uint32, known bool) {
	s := t.node[session.Node()]
	i := int(session.Instance())
	if i >= len(s) || s[i] == nil || seq == 0 {
		return gci, false
	}
	e := &s[i].e[seq%Window]
	return e.gci, e.seq == seq
}

// Keeps tells whether outcomes of a session are kept.
func (t *Table) Keeps(session signal.Addr) bool {
	s := t.node[session.Node()]
	i := int(session.Instance())
	return i < len(s) && s[i] != nil
}

// Unheard is how many outcomes of a session at most wait for its acknowledgement.
func (t *Table) Unheard(session signal.Addr) int {
	s := t.node[session.Node()]
	if i := int(session.Instance()); i < len(s) && s[i] != nil {
		return int(max(int32(s[i].high-s[i].ack), 0))
	}
	return 0
}

// Place is a place in a Table, for going through it in pieces. The zero Place is the beginning.
type Place struct {
	node    int
	session int
	seq     uint32 // the newest that was given of this session; 0 = none
}

// Outcome is what is kept of one commit.
type Outcome struct {
	Session signal.Addr
	Seq     uint32
	Ack     uint32 // up to which the session has heard
	GCI     [2]uint32
}

// Next gives the next outcome that its client has not heard, and moves the place behind it. False: there are no more. What
// is recorded meanwhile may be among them or not.
func (t *Table) Next(p *Place) (Outcome, bool) {
	for ; p.node < len(t.node); p.node, p.session, p.seq = p.node+1, 0, 0 {
		for ; p.session < len(t.node[p.node]); p.session, p.seq = p.session+1, 0 {
			r := t.node[p.node][p.session]
			if r == nil {
				continue
			}
			if p.seq == 0 || int32(p.seq-r.ack) < 0 {
				p.seq = r.ack
			}
			for int32(p.seq-r.high) < 0 {
				p.seq++
				if e := &r.e[p.seq%Window]; p.seq != 0 && e.seq == p.seq {
					return Outcome{signal.MakeAddr(uint8(p.node), signal.BlockClient, uint16(p.session)), e.seq, r.ack, e.gci}, true
				}
			}
		}
	}
	return Outcome{}, false
}

// Forget drops what is kept for a session.
func (t *Table) Forget(session signal.Addr) {
	s := t.node[session.Node()]
	if i := int(session.Instance()); i < len(s) && s[i] != nil {
		t.spare = append(t.spare, s[i])
		s[i] = nil
		t.used--
		invariant.That(t.used >= 0, "no more rings are given back than were taken")
	}
}

// ForgetNode drops what is kept for all sessions of a node.
func (t *Table) ForgetNode(node uint8) {
	for i := range t.node[node] {
		t.Forget(signal.MakeAddr(node, signal.BlockClient, uint16(i)))
	}
	t.node[node] = nil
}

// Sessions is how many sessions something is kept for.
func (t *Table) Sessions() int { return t.used }
