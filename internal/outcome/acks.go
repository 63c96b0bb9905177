package outcome

import "github.com/cohortdb/cohort/internal/signal"

// Acks is what a coordinator needs of sessions' commits: how far each session has heard their outcomes, so that none uses a
// number that would fall outside of the rings of those that keep them. It keeps no outcome itself.
type Acks struct {
	node  [256][]mark // node → session
	used  int
	bound int
}

// mark is one session's: every outcome up to ack was heard.
type mark struct {
	ack   uint32
	known bool
}

// AckBytes is what a session takes, bytes: for the sum of a node's memory.
const AckBytes = 8

// NewAcks makes a table for at most bound sessions.
func NewAcks(bound int) *Acks { return &Acks{bound: bound} }

func (t *Acks) find(session signal.Addr) *mark {
	s := t.node[session.Node()]
	if i := int(session.Instance()); i < len(s) && s[i].known {
		return &s[i]
	}
	return nil
}

// Admit takes a session's acknowledgement. False: there are too many sessions.
func (t *Acks) Admit(session signal.Addr, ack uint32) bool {
	if m := t.find(session); m != nil {
		m.heard(ack)
		return true
	}
	return t.open(session, ack)
}

//go:noinline
func (t *Acks) open(session signal.Addr, ack uint32) bool {
	if t.used >= t.bound {
		return false
	}
	n, i := session.Node(), int(session.Instance())
	for len(t.node[n]) <= i {
		t.node[n] = append(t.node[n], mark{})
	}
	t.node[n][i] = mark{ack: ack, known: true}
	t.used++
	return true
}

func (m *mark) heard(ack uint32) {
	if int32(ack-m.ack) > 0 {
		m.ack = ack
	}
}

// InWindow tells whether a session may use seq: a request outside the window comes from a broken client.
func (t *Acks) InWindow(session signal.Addr, seq uint32) bool {
	m := t.find(session)
	return m != nil && seq-m.ack-1 < Window
}

// Ack takes an acknowledgement of a session that may not be known here.
func (t *Acks) Ack(session signal.Addr, ack uint32) {
	if m := t.find(session); m != nil {
		m.heard(ack)
	}
}

// Forget drops a session.
func (t *Acks) Forget(session signal.Addr) {
	if m := t.find(session); m != nil {
		*m = mark{}
		t.used--
	}
}

// ForgetNode drops all sessions of a node.
func (t *Acks) ForgetNode(node uint8) {
	for i := range t.node[node] {
		t.Forget(signal.MakeAddr(node, signal.BlockClient, uint16(i)))
	}
	t.node[node] = nil
}

// Sessions is how many sessions are known.
func (t *Acks) Sessions() int { return t.used }
