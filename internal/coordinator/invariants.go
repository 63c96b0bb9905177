package coordinator

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
)

// Invariants checks that counters and states agree. The simulator calls it between signals; it is slow.
func (b *Block) Invariants() {
	ops := 0
	var inside [2]uint32
	sessions := b.sessions
	for i := uint32(0); i < b.txs.High(); i++ {
		t := b.txs.Find(i)
		if t == nil {
			continue
		}
		sessions[sessionHash(t.client)]--
		var run, undo, prep uint32
		for oi := t.head; oi != pool.None; oi = b.ops.At(oi).next {
			o := b.ops.At(oi)
			ops++
			switch {
			case o.tx != i:
				invariant.Failf("operation %d of transaction %d says it belongs to %d", oi, i, o.tx)
			case o.state == running, o.state == waiting:
				run++
				if t.state == aborting && o.state == waiting {
					invariant.Failf("operation %d waits in an aborting transaction", oi)
				}
			case o.state == undoing:
				undo++
			case o.state == prepared && !signal.IsRead(o.op):
				prep++
			}
		}
		switch t.state {
		case active, held:
			if run != t.running || undo != 0 {
				invariant.Failf("transaction %d: %d operations run, its count says %d; %d are being undone", i, run, t.running, undo)
			}
		case aborting:
			if run+undo != t.undo {
				invariant.Failf("transaction %d: %d operations are to be undone, its count says %d", i, run+undo, t.undo)
			}
		case committing, completing:
			inside[t.parity]++
			if t.commits > prep {
				invariant.Failf("transaction %d: %d commits outstanding of %d", i, t.commits, prep)
			}
		}
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
