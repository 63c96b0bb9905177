package coordinator

import "github.com/cohortdb/cohort/internal/signal"

const (
	tickInactive = 1 + iota // look for inactive transactions
	tickClose               // a table's close has waited long enough: A = table, B = which close
	tickFreeze              // a view's prepare has waited long enough: A = view, B = attempt
)

func (b *Block) onTick(r *signal.TickOrd) {
	switch r.Kind {
	case tickInactive:
		b.abortInactive()
		b.env.Tick(b.self, b.cfg.InactiveCheck, tickInactive, 0, 0)
	case tickClose:
		b.closeNow(r.A, r.B)
	case tickFreeze:
		b.freezeOver(r.A, r.B)
	}
}

// abortInactive ends transactions whose client has not asked for anything for too long while it holds locks.
func (b *Block) abortInactive() {
	for i := uint32(0); i < b.txs.High(); i++ {
		t := b.txs.Find(i)
		if t != nil && t.state == active && t.want == wantNothing && b.env.Now()-t.lastActive >= b.cfg.InactiveTimeout {
			b.abort(i, t, codeTimeout, signal.NoRef)
		}
	}
}
