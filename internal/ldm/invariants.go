package ldm

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/pool"
)

// Invariants checks that locks, queues and counters agree. The simulator calls it between signals; it is slow.
func (b *Block) Invariants() {
	waiters, shots := 0, 0
	var byClient [256]uint32
	var inside [2]uint32
	for i := uint32(0); i < b.ops.High(); i++ {
		o := b.ops.Find(i)
		if o == nil {
			continue
		}
		if o.oneShot() {
			byClient[o.client.Node()]++
			if o.prev == 0 {
				shots++
			}
		}
		switch o.state {
		case executing:
			invariant.Failf("operation %d executes between signals", i)
		case parked:
			continue
		case waiting:
			waiters++
			if o.stash == nil {
				invariant.Failf("operation %d waits without its request", i)
			}
		case holding:
			if o.oneShot() && o.frag.replicas > 1 {
				inside[o.parity]++
			}
		}
		r, ok := o.frag.rows.CheckedRow(o.id)
		if !ok {
			invariant.Failf("operation %d is on row %d, which is free", i, o.id)
		}
		found, seenWaiting, last := false, false, pool.None
		for j, up := top(r), pool.None; j != pool.None; {
			x := b.ops.At(j)
			if x.up != up || x.id != o.id || x.frag != o.frag {
				invariant.Failf("the list of row %d is broken at operation %d", o.id, j)
			}
			if seenWaiting && x.state != waiting {
				invariant.Failf("operation %d holds row %d behind one that waits", j, o.id)
			}
			seenWaiting = x.state == waiting
			found = found || j == i
			last, up, j = j, j, x.down
		}
		if b.ops.At(top(r)).rear != last {
			invariant.Failf("the last operation on row %d is %d, not %d", o.id, last, b.ops.At(top(r)).rear)
		}
		if !found {
			invariant.Failf("operation %d is not on its row %d", i, o.id)
		}
		if b.ops.At(top(r)).state == waiting {
			invariant.Failf("operation %d waits for row %d, which nobody holds", top(r), o.id)
		}
	}
	listed := 0
	for i := b.waiters.head; i != pool.None; i = b.ops.At(i).wNext {
		listed++
	}
	if listed != waiters || waiters > 0 && !b.waiters.ticking {
		invariant.Failf("%d operations wait, %d are listed, ticking %v", waiters, listed, b.waiters.ticking)
	}
	if shots != b.oneShots {
		invariant.Failf("%d one-shot writes are under way, counted %d", shots, b.oneShots)
	}
	if byClient != b.shots {
		invariant.Failf("one-shot writes by client: %v, counted %v", byClient, b.shots)
	}
	if inside != b.epoch.Inside() {
		invariant.Failf("chains inside epochs: %v, counted %v", inside, b.epoch.Inside())
	}
}
