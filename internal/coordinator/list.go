package coordinator

// The list of open transactions for operators: those that wait for a lock first, and of these who waits longest.

import (
	"cmp"
	"slices"

	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
)

func (b *Block) onListReq(r *signal.ListReq) {
	to, ref, most := r.From, r.Ref, int(r.Most)
	lines := b.lines()
	slices.SortStableFunc(lines, func(x, y signal.TransactionLine) int {
		return cmp.Or(-cmp.Compare(min(x.Waiting, 1), min(y.Waiting, 1)), -cmp.Compare(x.IdleMillis, y.IdleMillis))
	})
	left := len(lines) - min(len(lines), most)
	lines = lines[:len(lines)-left]
	c := (*signal.ListConf)(b.env.Put(to, b.self, signal.NumListConf, signal.ListConfSize[signal.TransactionLine](len(lines))))
	c.Ref, c.Kind, c.Blocks, c.Left, c.Count = ref, signal.ListTransactions, uint32(b.env.Instances(signal.BlockTC)), uint32(left), uint32(len(lines))
	if len(lines) > 0 {
		copy(c.Transactions(), lines)
	}
}

// lines describes every open transaction, those that are being taken over included.
func (b *Block) lines() []signal.TransactionLine {
	lines := make([]signal.TransactionLine, 0, b.txs.Used())
	now := b.env.Now()
	for i := uint32(0); i < b.txs.High(); i++ {
		t := b.txs.Find(i)
		if t == nil {
			continue
		}
		l := signal.TransactionLine{Client: t.client, Tx: t.num, AgeMillis: uint32(uint64(uint32(now>>beganShift)-t.began) << beganShift / 1_000_000),
			IdleMillis: uint32((now - t.lastActive) / 1_000_000)}
		l.AgeMillis = max(l.AgeMillis, l.IdleMillis) // that it began is known a little less exactly
		switch t.state {
		case active:
			l.State = signal.TxIsActive
		case held, committing:
			l.State = signal.TxIsCommitting
		case completing:
			l.State = signal.TxIsCompleting
		case aborting:
			l.State = signal.TxIsAborting
		}
		for oi := t.head; oi != pool.None; {
			o := b.ops.At(oi)
			l.Operations++
			if o.state == waiting {
				l.Waiting++
			}
			oi = o.next
		}
		lines = append(lines, l)
	}
	f := b.taken.foreign
	for i := range f {
		if i == 0 || !f[i].same(&f[i-1]) {
			lines = append(lines, signal.TransactionLine{Client: f[i].client, Tx: f[i].tx, State: signal.TxIsTakenOver})
		}
		lines[len(lines)-1].Operations++
	}
	return lines
}
