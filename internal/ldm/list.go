package ldm

// Lists for operators: the locks that somebody waits for, who holds them and who waits. Each block answers the management
// server itself.

import (
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
)

// onListReq answers with the lines of those that wait, longest waiting first, each row's holders before the first line of
// one that waits for it.
func (b *Block) onListReq(r *signal.ListReq) {
	to, ref, kind, most := r.From, r.Ref, r.Kind, int(r.Most)
	lines, listed := b.lockLines[:0], 0
	if kind == signal.ListLocks {
		for i := b.waiters.head; i != pool.None && len(lines) < most; listed++ {
			o := b.ops.At(i)
			first := top(o.frag.rows.Row(o.id))
			if b.longest(first) == i {
				for h := first; b.ops.At(h).state != waiting && len(lines) < most-1; h = b.ops.At(h).down {
					lines = append(lines, b.lockLine(b.ops.At(h)))
				}
			}
			lines = append(lines, b.lockLine(o))
			i = o.wNext
		}
	}
	c := (*signal.ListConf)(b.env.Put(to, b.self, signal.NumListConf, signal.ListConfSize[signal.LockLine](len(lines))))
	c.Ref, c.Kind, c.Blocks, c.Left, c.Count = ref, kind, uint32(b.env.Instances(signal.BlockLDM)), 0, uint32(len(lines))
	if kind == signal.ListLocks {
		c.Left = uint32(b.waiters.n - listed)
	}
	copy(c.Locks(), lines)
	b.lockLines = lines[:0]
}

// longest is the operation of a row's list that has waited longest.
func (b *Block) longest(first uint32) uint32 {
	best := pool.None
	for i := first; i != pool.None; i = b.ops.At(i).down {
		if o := b.ops.At(i); o.state == waiting && (best == pool.None || o.since < b.ops.At(best).since) {
			best = i
		}
	}
	return best
}

func (b *Block) lockLine(o *operation) signal.LockLine {
	l := signal.LockLine{Client: o.client, Tx: o.tx, Tc: o.tc, Table: uint16(o.frag.table.id), Frag: uint16(o.frag.number), Row: o.id,
		Mode: signal.LockIsShared, Millis: uint32(max(b.env.Now()-o.since, 0) / 1e6)}
	if o.exclusive {
		l.Mode = signal.LockIsExclusive
	}
	if o.state == waiting {
		l.Waits = 1
		if o.up != pool.None {
			ahead := b.ops.At(o.up)
			l.Ahead, l.AheadTx = ahead.client, ahead.tx
		}
	}
	return l
}
