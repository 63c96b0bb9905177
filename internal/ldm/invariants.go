package ldm

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
)

// tally is what counters should say.
type tally struct {
	waiters, queued, shots, left, parked int
	byClient                             [256]uint32
	inside                               [2]uint32
	ops, oneShots                        int // over all fragments
}

// Invariants checks that locks, queues and counters agree. The simulator calls it between signals; it is slow.
func (b *Block) Invariants() {
	var t tally
	for i := uint32(0); i < b.ops.High(); i++ {
		if o := b.ops.Find(i); o != nil {
			b.checkOperation(i, o, &t)
		}
	}
	listed, before := 0, int64(-1<<63)
	for i := b.waiters.head; i != pool.None; i = b.ops.At(i).wNext {
		listed++
		if o := b.ops.At(i); o.since < before || o.state != waiting || o.prev != 0 {
			invariant.Failf("operation %d is in the wrong place of the list of those that wait", i)
		}
		before = b.ops.At(i).since
	}
	if listed != t.waiters || listed != b.waiters.n || t.waiters > 0 && !b.waiters.ticking {
		invariant.Failf("%d operations wait, %d are listed, %d counted, ticking %v", t.waiters, listed, b.waiters.n, b.waiters.ticking)
	}
	listed = 0
	for i := b.epoch.head; i != pool.None; i = b.ops.At(i).wNext {
		listed++
	}
	if listed != t.parked || t.parked > 0 && b.epoch.Open() {
		invariant.Failf("%d operations wait for an epoch, %d are listed, the gate is open: %v", t.parked, listed, b.epoch.Open())
	}
	if t.shots != b.oneShots || t.queued != b.queued || t.left != b.left {
		invariant.Failf("one-shot writes %d, counted %d; queued below the primary %d, counted %d; left by lost members %d, counted %d",
			t.shots, b.oneShots, t.queued, b.queued, t.left, b.left)
	}
	if t.byClient != b.shots {
		invariant.Failf("one-shot writes by client: %v, counted %v", t.byClient, b.shots)
	}
	if t.inside != b.epoch.Inside() {
		invariant.Failf("chains inside epochs: %v, counted %v", t.inside, b.epoch.Inside())
	}
	owed := b.stopFrom != 0 || b.nfailing > 0 || len(b.closes) > 0 || b.singleFrom != 0 || b.prepare.from != 0 || b.commit.from != 0
	if owed && !b.awaited {
		invariant.Failf("somebody waits for the end of operations, and will not hear of it")
	}
	if b.left == 0 && b.commit.from != 0 {
		invariant.Failf("the commit of view %d is not confirmed, though nothing is left", b.commit.view)
	}
	b.checkFragments(&t)
}

func (b *Block) checkOperation(i uint32, o *operation, t *tally) {
	t.ops++
	if o.oneShot() {
		t.byClient[o.client.Node()]++
		if o.prev == 0 {
			t.shots++
			t.oneShots++
		}
	}
	if o.left {
		t.left++
	}
	if o.oneShot() && o.cut && !o.left || o.cut && o.prev == 0 {
		invariant.Failf("operation %d is cut: %v, left: %v, from %v", i, o.cut, o.left, o.prev)
	}
	switch o.state {
	case executing:
		invariant.Failf("operation %d executes between signals", i)
	case parked:
		t.parked++
		if o.stash == nil || !o.tail() {
			invariant.Failf("operation %d is parked without its request, or with a chain behind it", i)
		}
		return
	case ready:
		t.parked++
		if !o.tail() || !o.oneShot() {
			invariant.Failf("operation %d is at its commit point with a chain behind it", i)
		}
	case waiting:
		if t.waiters++; o.prev != 0 {
			t.waiters--
			t.queued++
		}
		if o.stash == nil || o.ghost {
			invariant.Failf("operation %d waits without its request, or for no row", i)
		}
	case holding:
		if o.oneShot() {
			if o.tail() {
				invariant.Failf("one-shot operation %d waits for an answer of nobody", i)
			}
			t.inside[o.parity]++
		}
	}
	for _, a := range o.rest {
		if a != 0 && b.view.Number > o.view && b.lostIn[a.Node()] > o.view {
			invariant.Failf("operation %d of view %d goes on to %v, which was lost in view %d", i, o.view, a, b.lostIn[a.Node()])
		}
	}
	if o.ghost {
		b.checkGhost(i, o)
		return
	}
	b.checkRow(i, o)
}

func (b *Block) checkGhost(i uint32, o *operation) {
	for j, up := o.frag.ghosts, pool.None; j != pool.None; up, j = j, b.ops.At(j).down {
		if b.ops.At(j).up != up {
			invariant.Failf("the list of ghosts is broken at operation %d", j)
		}
		if j == i {
			return
		}
	}
	invariant.Failf("operation %d is not among the ghosts of its fragment", i)
}

// checkRow checks the list of the row that an operation is on.
func (b *Block) checkRow(i uint32, o *operation) {
	r, ok := o.frag.rows.CheckedRow(o.id)
	if !ok {
		invariant.Failf("operation %d is on row %d, which is free", i, o.id)
	}
	found, seenWaiting, last := false, false, pool.None
	for j, up := top(r), pool.None; j != pool.None; {
		x := b.ops.At(j)
		if x.up != up || x.id != o.id || x.frag != o.frag || x.ghost {
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
	if r.Lock&lockLater != 0 && b.settled(r) {
		invariant.Failf("row %d is to be copied when it is let go, and nobody changes it", o.id)
	}
}

func (b *Block) checkFragments(t *tally) {
	ops, oneShots, active := 0, 0, 0
	b.eachFragment(func(f *fragment) {
		ops += f.ops
		oneShots += f.oneShots
		var c [signal.MaxReplicas]signal.Addr
		n := b.view.Chain(f.places(), &c)
		if f.primary != (n > 0 && c[0] == b.self) || f.frozen && (!f.primary || !b.prepared) {
			invariant.Failf("fragment %d of table %d is primary here: %v, frozen: %v; in view %d the primary is %v", f.number, f.table.id, f.primary, f.frozen, b.view.Number, c[0])
		}
		if !f.primary && (f.down != below{} || f.attached != below{} || f.source != nil) {
			invariant.Failf("fragment %d of table %d is led from here, though its primary is elsewhere", f.number, f.table.id)
		}
		for _, a := range f.attached {
			if a != 0 && b.view.State(a.Node()) != signal.MemberRecovering {
				invariant.Failf("%v is attached to fragment %d of table %d and does not recover", a, f.number, f.table.id)
			}
		}
		if c := f.source; c != nil {
			b.checkCopy(f, c)
		}
		switch f.target.state {
		case copyClearing, copyAsked, copyPaused, copyRunning:
			active++
		}
		if f.ghosts != pool.None && f.target.state == copyNone {
			invariant.Failf("fragment %d of table %d has ghosts and is not copied", f.number, f.table.id)
		}
	})
	if ops != t.ops || oneShots != t.oneShots {
		invariant.Failf("%d operations, counted %d; %d one-shot writes, counted %d", t.ops, ops, t.oneShots, oneShots)
	}
	if active != b.copier.active || active > copiesAtOnce {
		invariant.Failf("%d copies are under way, counted %d", active, b.copier.active)
	}
}

// checkCopy checks a copy under way at the primary.
func (b *Block) checkCopy(f *fragment, c *copying) {
	later := 0
	for id := store.NoRow; ; {
		r, next, ok := f.rows.NextRow(id)
		if !ok {
			break
		}
		if id = next; r.Lock&lockLater != 0 && id < c.at {
			later++
		}
	}
	if later != c.later || c.acked > c.run || c.ended && (!c.scanned || later > 0) || !f.isAttached(c.to) {
		invariant.Failf("copy of fragment %d of table %d: %d rows come later, counted %d; run %d, acknowledged %d, ended %v",
			f.number, f.table.id, later, c.later, c.run, c.acked, c.ended)
	}
}
