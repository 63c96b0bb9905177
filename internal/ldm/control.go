package ldm

// Stops, failed nodes, counters.

import (
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
)

func (b *Block) onDrainReq(r *signal.DrainReq) {
	b.stopping, b.stopFrom, b.stopRef = true, r.From, r.Ref
	b.stopDone()
}

// stopDone answers a drain when no write without a coordinator is under way here.
func (b *Block) stopDone() {
	if b.stopFrom == 0 {
		return
	}
	if b.oneShots != 0 {
		b.awaited = true
		return
	}
	to := b.stopFrom
	b.stopFrom = 0
	c := kernel.Send[signal.DrainConf](b.env, to, b.self, signal.NumDrainConf)
	c.Ref = b.stopRef
}

// onNodeFailRep forgets a failed client. Its writes that wait for a lock are given up; those in a chain end by
// themselves. Transactions of coordinators are rolled back by these.
func (b *Block) onNodeFailRep(r *signal.NodeFailRep) {
	n := uint8(r.Node)
	if b.failing[n] == 0 {
		b.nfailing++
	}
	b.failing[n] = r.From
	b.gone[n], b.changed[n] = true, b.copier.refs
	if signal.Peer(r.Kind) == signal.PeerAPI {
		for i := uint32(0); i < b.ops.High(); i++ {
			if o := b.ops.Find(i); o != nil && o.state == waiting && o.oneShot() && o.prev == 0 && o.client.Node() == n {
				b.giveUp(i, o, codeStopping) // nobody hears the answer
			}
		}
		b.outcomes.ForgetNode(n)
		b.dropAsks(func(a signal.Addr) bool { return a.Node() == n })
	}
	b.clientDone(n)
}

// clientDone confirms that nothing of a failed node is left.
func (b *Block) clientDone(n uint8) {
	if b.failing[n] == 0 {
		return
	}
	if b.shots[n] != 0 {
		b.awaited = true
		return
	}
	to := b.failing[n]
	b.failing[n] = 0
	b.nfailing--
	c := kernel.Send[signal.NodeFailConf](b.env, to, b.self, signal.NumNodeFailConf)
	c.Node = uint32(n)
}

func (b *Block) onNodeUpRep(r *signal.NodeUpRep) {
	n := uint8(r.Node)
	b.gone[n], b.changed[n] = false, b.copier.refs
}

// onSingleOrd lets one client in, or all. What others wait for is given up; what they have under way ends by itself.
func (b *Block) onSingleOrd(r *signal.SingleOrd) {
	b.single, b.singleFrom, b.singleRef = uint8(r.Node), r.From, r.Ref
	if b.single != 0 {
		for i := uint32(0); i < b.ops.High(); i++ {
			if o := b.ops.Find(i); o != nil && o.state == waiting && o.oneShot() && o.prev == 0 && o.client.Node() != b.single {
				b.giveUp(i, o, codeSingle)
			}
		}
	}
	b.singleDone()
}

// singleDone answers a SingleOrd when no write of another client is under way here.
func (b *Block) singleDone() {
	if b.singleFrom == 0 {
		return
	}
	for n, shots := range b.shots {
		if b.single != 0 && uint8(n) != b.single && shots > 0 {
			b.awaited = true
			return
		}
	}
	c := kernel.Send[signal.SingleConf](b.env, b.singleFrom, b.self, signal.NumSingleConf)
	c.Ref, c.Code = b.singleRef, 0
	b.singleFrom = 0
}

func (b *Block) onStatReq(r *signal.StatReq) {
	to, ref := r.From, r.Ref
	_, copies := b.copies.Used()
	index := b.arena.Used(store.KindIndex)
	c := kernel.Send[signal.StatConf](b.env, to, b.self, signal.NumStatConf)
	*c = signal.StatConf{Head: c.Head, Ref: ref, Operations: uint32(b.ops.Used()), Copies: uint32(copies),
		Outcomes: uint32(b.outcomes.Sessions()), DataPages: b.arena.UsedPages() - index, DataTotal: b.arena.TotalPages(),
		IndexPages: index, IndexTotal: b.arena.TotalPages()}
}

// Operations is how many operation records are in use; Copies how many bytes of the copy pool; Sessions how many
// sessions' outcomes are kept.
func (b *Block) Operations() int { return b.ops.Used() }

// Copies is the copy pool's bytes in use.
func (b *Block) Copies() uint64 {
	_, n := b.copies.Used()
	return n
}

// Sessions is the number of sessions whose outcomes are kept.
func (b *Block) Sessions() int { return b.outcomes.Sessions() }

// Fragment gives access to a fragment replica's rows, for comparing replicas and for touch-ahead; nil if it is not
// here.
func (b *Block) Fragment(table, frag uint32) *store.Fragment {
	if f := b.fragment(table, frag); f != nil {
		return f.rows
	}
	return nil
}
