package coordinator

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/pool"
)

// Invariants checks that counters and states agree. The simulator calls it between signals; it is slow.
func (b *Block) Invariants() {
	ops, open, frozen := 0, 0, 0
	var inside [2]uint32
	sessions := b.sessions
	for i := uint32(0); i < b.txs.High(); i++ {
		t := b.txs.Find(i)
		if t == nil {
			continue
		}
		sessions[sessionHash(t.client)]--
		var run, undo, pend, commits, completes uint32
		touched := false
		for oi := t.head; oi != pool.None; oi = b.ops.At(oi).next {
			o := b.ops.At(oi)
			ops++
			touched = touched || o.bits&(opTouched|opDirect) != 0
			switch {
			case o.tx != i:
				invariant.Failf("operation %d of transaction %d says it belongs to %d", oi, i, o.tx)
			case o.bits&opDirect != 0 && (o.bits&opTouched != 0 || o.state < done || (o.state == undoing || o.state == applying) && o.lastRef == 0):
				invariant.Failf("operation %d in state %d has bits %x, %d direct answers to come", oi, o.state, o.bits, o.lastRef)
			case o.state == running, o.state == waiting:
				run++
				if t.state == aborting && o.state == waiting && o.bits&opTouched == 0 {
					invariant.Failf("operation %d waits in an aborting transaction", oi)
				}
			case o.state == undoing:
				undo++
			case o.state == prepared:
				if t.state == aborting && o.bits&opTouched == 0 || t.state == committing || t.state == completing {
					invariant.Failf("operation %d is prepared in a transaction in state %d", oi, t.state)
				}
				pend++
			case o.state == applying:
				commits++
			case o.state == releasing:
				completes++
			}
		}
		if touched && t.bits&txTouched == 0 {
			invariant.Failf("transaction %d has touched operations and does not know", i)
		}
		if t.bits&txTouched != 0 {
			open++
		}
		if t.bits&txFreeze != 0 {
			frozen++
		}
		switch t.state {
		case active, held:
			if run != t.running || undo != 0 {
				invariant.Failf("transaction %d: %d operations run, its count says %d; %d are being undone", i, run, t.running, undo)
			}
		case aborting:
			if run+undo+pend != t.undo {
				invariant.Failf("transaction %d: %d operations are to be undone, its count says %d", i, run+undo+pend, t.undo)
			}
		case committing, completing:
			inside[t.parity]++
			if commits != t.commits || completes != t.completes {
				invariant.Failf("transaction %d: %d operations commit, %d complete, its counts say %d, %d", i, commits, completes, t.commits, t.completes)
			}
		}
	}
	if open != b.taken.open || frozen != b.ice.inWay {
		invariant.Failf("%d transactions are touched, counted %d; %d are in a prepare's way, counted %d", open, b.taken.open, frozen, b.ice.inWay)
	}
	if ops != b.ops.Used() {
		invariant.Failf("%d operations belong to transactions, %d records are in use", ops, b.ops.Used())
	}
	if sessions != [sessionHashes]uint32{} {
		invariant.Failf("transactions by session are miscounted")
	}
	if inside != b.epoch.Inside() {
		invariant.Failf("transactions inside epochs: %v, counted %v", inside, b.epoch.Inside())
	}
}
