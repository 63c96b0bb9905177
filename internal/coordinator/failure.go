package coordinator

// Clients that end or vanish: their open transactions are rolled back, their sessions forgotten.

import (
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// client is what a coordinator knows of a client node.
type client struct {
	open    uint32 // transactions
	failing bool   // the node is gone; NodeFailConf is owed when open is 0
	asker   signal.Addr
}

// rollBack aborts a client's transactions that have not reached their commit point. session 0 stands for all.
func (b *Block) rollBack(node uint8, session uint16) {
	for i := uint32(0); i < b.txs.High(); i++ {
		t := b.txs.Find(i)
		if t == nil || t.client.Node() != node || session != 0 && t.client.Instance() != session {
			continue
		}
		if t.state == active || t.state == held {
			b.abort(i, t, 0, signal.NoRef)
		}
	}
}

func (b *Block) onCloseOrd(h *signal.Head) {
	if n, session := h.From.Node(), h.From.Instance(); session == 0 && b.clients[n].open > 0 || b.sessions[sessionHash(h.From)] > 0 {
		b.rollBack(n, session)
	}
	b.acks.Forget(h.From)
}

func (b *Block) onNodeFailRep(r *signal.NodeFailRep) {
	n := uint8(r.Node)
	c := &b.clients[n]
	c.failing, c.asker = true, r.From
	b.rollBack(n, 0)
	b.acks.ForgetNode(n)
	b.clientDone(n)
}

// clientDone tells when nothing of a failed node is left.
func (b *Block) clientDone(n uint8) {
	c := &b.clients[n]
	if !c.failing || c.open != 0 {
		return
	}
	c.failing = false
	f := kernel.Send[signal.NodeFailConf](b.env, c.asker, b.self, signal.NumNodeFailConf)
	f.Node = uint32(n)
	b.acks.ForgetNode(n)
}
