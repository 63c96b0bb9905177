package distribution

// Phase 6 of a node that joins: its ldms copy their fragments.
//
//	distribution --CopyStartReq--> each ldm of the node --CopyStartConf--> distribution

import (
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// copying is how far the copies are.
type copying struct {
	begun       bool
	owed        int // ldms that have not answered
	code        uint32
	rows, bytes uint64
	began       int64
}

// startCopy begins; asked again, it goes on, or answers again.
func (b *Block) startCopy() {
	c := &b.copy
	if c.begun {
		b.copyOver()
		return
	}
	*c = copying{begun: true, began: b.env.Now(), owed: b.env.Instances(signal.BlockLDM)}
	invariant.That(c.owed > 0, "a node has ldms")
	b.report(event.NRCopyFragsStarted, uint32(b.env.Node()))
	for i := range c.owed {
		q := kernel.Send[signal.CopyStartReq](b.env, signal.MakeAddr(b.env.Node(), signal.BlockLDM, uint16(i)), b.self, signal.NumCopyStartReq)
		q.Ref = uint32(i)
	}
}

func (b *Block) onCopyStartConf(r *signal.CopyStartConf) {
	c := &b.copy
	invariant.That(c.owed > 0, "who answers was asked to copy")
	c.owed--
	if c.code == 0 {
		c.code = r.Code
	}
	c.rows += uint64(signal.JoinGCI(r.Rows))
	c.bytes += uint64(signal.JoinGCI(r.Bytes))
	if c.owed == 0 && c.code == 0 {
		millis := uint32((b.env.Now() - c.began) / 1_000_000)
		b.report(event.NRCopyFragsCompleted, uint32(b.env.Node()), uint32(c.rows>>32), uint32(c.rows), uint32(c.bytes>>32), uint32(c.bytes), millis)
	}
	b.copyOver()
}

// copyOver answers the phase when all ldms have answered. A code ends the node.
func (b *Block) copyOver() {
	if b.copy.owed > 0 || len(b.pending) == 0 || b.pending[0].Phase != 6 {
		return
	}
	r := b.pending[0]
	b.pending = b.pending[:0]
	b.phaseConf(&r, b.copy.code)
}
