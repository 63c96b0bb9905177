package sim

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/arbitrator"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// mgmNode is a management server, as far as the data nodes depend on it: it arbitrates, and asks nodes to stop.
type mgmNode struct {
	id         uint8
	proc       *Process
	arbitrator *arbitrator.Block
	refs       uint32
	asked      [256]func(code uint32, text string) // StopReqs under way, by ref modulo 256
}

// newManager makes a management server.
func (c *cluster) newManager(id uint8) *mgmNode {
	m := &mgmNode{id: id}
	c.bootManager(m)
	return m
}

// bootManager makes a process of a management server, whose arbitrator knows nothing.
func (c *cluster) bootManager(m *mgmNode) {
	m.proc = c.net.addProcess(m.id, signal.PeerMgm, 1, c.random.Sub("manager").Sub(string(rune(m.id))))
	p := m.proc
	p.place(signal.BlockMgm, 0, 0)
	p.place(signal.BlockArbitrator, 0, 0)
	p.onLink = func(*Process, uint16) {}
	t := p.Threads[0]
	m.arbitrator = arbitrator.New(t.Env, arbitrator.Config{})
	t.Handle = func(x unsafe.Pointer) {
		h := (*signal.Head)(x)
		if h.To.Block() == signal.BlockArbitrator {
			m.arbitrator.Deliver(h)
			return
		}
		m.deliver(h)
	}
}

// restartManager starts a new process of a management server that was killed.
func (c *cluster) restartManager(m *mgmNode) {
	if m.proc.dead && c.net.failure == nil {
		c.bootManager(m)
		c.come(m.proc)
	}
}

func (m *mgmNode) deliver(h *signal.Head) {
	switch h.Num {
	case signal.NumStopConf:
		m.answer(signal.As[signal.StopConf](h).Ref, 0, "")
	case signal.NumStopRef:
		r := signal.As[signal.StopRef](h)
		m.answer(r.Ref, r.Code, string(r.Text()))
	}
}

func (m *mgmNode) answer(ref, code uint32, text string) {
	if f := m.asked[ref%256]; f != nil {
		m.asked[ref%256] = nil
		f(code, text)
	}
}

// stop asks a data node to stop. then is called with its answer, which may never come.
func (m *mgmNode) stop(node uint8, flags uint32, then func(code uint32, text string)) bool {
	if !m.proc.alive() || m.proc.paused || !m.proc.ends[node].usable() {
		return false
	}
	m.refs++
	m.asked[m.refs%256] = then
	t := m.proc.Threads[0]
	m.proc.net.onThread(t, func() {
		s := kernel.Send[signal.StopReq](t.Env, signal.MakeAddr(node, signal.BlockManager, 0), signal.MakeAddr(m.id, signal.BlockMgm, 0), signal.NumStopReq)
		s.Ref, s.Flags, s.Nodes = m.refs, flags, [8]uint32{}
		s.Nodes[node/32] |= 1 << (node % 32)
	})
	return true
}
