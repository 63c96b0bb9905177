package coordinator

import (
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// onDrainReq refuses new transactions from now on, and answers when none is open. If it does not want to wait for their
// clients, those that have not reached their commit point are rolled back.
func (b *Block) onDrainReq(r *signal.DrainReq) {
	b.stopping, b.stopFrom, b.stopRef = true, r.From, r.Ref
	if r.Abort != 0 {
		for i := uint32(0); i < b.txs.High(); i++ {
			if t := b.txs.Find(i); t != nil && (t.state == active || t.state == held) {
				b.abort(i, t, codeShutdown, signal.NoRef)
			}
		}
	}
	b.stopDone()
}

func (b *Block) stopDone() {
	if !b.stopping || b.stopFrom == 0 || b.txs.Used() != 0 {
		return
	}
	to := b.stopFrom
	b.stopFrom = 0
	c := kernel.Send[signal.DrainConf](b.env, to, b.self, signal.NumDrainConf)
	c.Ref = b.stopRef
}
