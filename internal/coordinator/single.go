package coordinator

// Single user mode: only one client is let in. What others have open is rolled back, or ends, and then that is said.

import (
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

type single struct {
	node  uint8       // the only client that is let in, 0 = all are
	asker signal.Addr // who is to be told that nothing of others is open; 0 = nobody
	ref   uint32
}

func (b *Block) onSingleOrd(r *signal.SingleOrd) {
	b.single = single{node: uint8(r.Node), asker: r.From, ref: r.Ref}
	if b.single.node != 0 {
		for i := uint32(0); i < b.txs.High(); i++ {
			t := b.txs.Find(i)
			if t != nil && t.client.Node() != b.single.node && (t.state == active || t.state == held) {
				b.abort(i, t, codeSingle, signal.NoRef)
			}
		}
	}
	b.singleDone()
}

// singleDone answers when nothing of others is open.
func (b *Block) singleDone() {
	s := &b.single
	if s.asker == 0 || s.node != 0 && b.txs.Used() != int(b.clients[s.node].open) {
		return
	}
	to := s.asker
	s.asker = 0
	c := kernel.Send[signal.SingleConf](b.env, to, b.self, signal.NumSingleConf)
	c.Ref, c.Code = s.ref, 0
}
