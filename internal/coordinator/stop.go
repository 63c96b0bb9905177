package coordinator

import (
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// onDrainReq refuses new transactions from now on, and answers when none is open.
func (b *Block) onDrainReq(r *signal.DrainReq) {
	b.stopping, b.stopFrom, b.stopRef = true, r.From, r.Ref
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
