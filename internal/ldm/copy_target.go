package ldm

// The side of the new replica: a recovering node's ldms copy their fragments from the primaries (signal's copy.go).
//
//	distribution --CopyStartReq--> ldm --CopyStartConf--> distribution
//	dictionary --FragCreateReq--> ldm --FragCreateConf--> dictionary     a fragment that is created meanwhile is copied first
//
// A fragment's copy passes through these states; two at a time are in copyClearing to copyRunning.
//
//	copyNone ──CopyStartReq, FragCreateReq──> copyWanted ──(empty)──> copyAsked ──first run──> copyRunning ──last run──> copyDone
//	copyWanted ──(has rows of a copy that was not finished)──> copyClearing ──> copyAsked
//	copyAsked, copyRunning ──refused for now──> copyPaused ──copyRetry later──> copyAsked
//	any ──the fragment's primary moves in a new view──> copyWanted
//	copyAsked, copyRunning ──it cannot be──> copyFailed: the node gives up
//
// From copyAsked on writes come down the chain: one on a row that is here is executed, and so is an insert; any other is a
// ghost (operation.go), which passes everything on and changes nothing, since the row's copy is still to come.

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
)

type copyState uint8

const (
	// copyNone: nobody has asked for a copy.
	copyNone copyState = iota
	// copyWanted: it waits for its turn.
	copyWanted
	// copyClearing: rows of an earlier copy are being given up.
	copyClearing
	// copyAsked: CopyReq is out.
	copyAsked
	// copyPaused: the primary cannot serve it yet.
	copyPaused
	// copyRunning: runs come.
	copyRunning
	// copyDone: the replica is complete.
	copyDone
	// copyFailed: it cannot be completed, and the node gives up; until then writes pass.
	copyFailed
)

const (
	copiesAtOnce = 2
	copyRetry    = 5e6 // ns
	// createRetries bounds how often a fragment that is being created is asked for: if its primary cannot create it, nobody
	// will have it.
	createRetries = 400
)

// target is how far the copy of a fragment to this replica is.
type target struct {
	state   copyState
	ref     uint32      // of the newest CopyReq
	from    signal.Addr // the primary that was asked
	refused int         // how often, since the fragment was created
	create  signal.Addr // who is owed a FragCreateConf; 0 = nobody
	crRef   uint32      // its reference
}

// copier is what an ldm keeps about all copies.
type copier struct {
	from        signal.Addr // who is owed a CopyStartConf; 0 = nobody
	ref         uint32
	queue       []*fragment // whose copy is wanted
	active      int
	refs        uint32 // CopyReqs so far
	ticking     bool
	rows, bytes uint64 // copied
	run         []byte // a run being built
}

// copying tells whether the copy of the fragment to this replica is under way, so that it may lack rows.
func (f *fragment) copying() bool { return f.target.state != copyNone && f.target.state != copyDone }

func (b *Block) onCopyStartReq(r *signal.CopyStartReq) {
	c := &b.copier
	c.from, c.ref = r.From, r.Ref
	b.copyAll = true
	if b.recovering() {
		b.eachFragment(func(f *fragment) {
			if f.target.state == copyNone && !f.dropping {
				b.copyWant(f)
			}
		})
	}
	b.copyMore()
}

// copyNew copies a fragment that was created while the node recovers, before anything else.
func (b *Block) copyNew(f *fragment, from signal.Addr, ref uint32) {
	f.target.create, f.target.crRef = from, ref
	f.target.state = copyWanted
	b.copier.queue = append([]*fragment{f}, b.copier.queue...)
	b.copyMore()
}

func (b *Block) copyWant(f *fragment) {
	f.target.state = copyWanted
	b.copier.queue = append(b.copier.queue, f)
}

// copyMore begins what may begin, and says when all is done.
func (b *Block) copyMore() {
	c := &b.copier
	for c.active < copiesAtOnce && len(c.queue) > 0 {
		f := c.queue[0]
		if c.queue = c.queue[1:]; len(c.queue) == 0 {
			c.queue = nil
		}
		if f.target.state != copyWanted || f.dropping {
			continue
		}
		c.active++
		f.target.state = copyClearing
		b.copyClear(f)
	}
	if c.active == 0 && len(c.queue) == 0 {
		b.copyOver(0)
	}
}

// copyClear gives up what an earlier copy has left, a little at a time, and then asks.
func (b *Block) copyClear(f *fragment) {
	if r, v, i := f.rows.Pages(); r+v+i > 0 && (f.ops > 0 || !f.rows.DropStep(dropPages)) {
		b.env.Mark(kernel.MarkCopyCleared)
		s := kernel.Send[signal.CopyAckOrd](b.env, b.self, b.self, signal.NumCopyStepOrd)
		s.Ref, s.Table, s.Frag, s.Run, s.Code = 0, f.table.id, f.number, 0, 0
		return
	}
	b.copyAsk(f)
}

func (b *Block) copyAsk(f *fragment) {
	c, t := &b.copier, &f.target
	t.from = b.view.Primary(f.places())
	if t.from == 0 { // its group is gone, and so will this node be
		b.copyPause(f)
		return
	}
	c.refs++
	t.state, t.ref = copyAsked, c.refs
	r := kernel.Send[signal.CopyReq](b.env, t.from, b.self, signal.NumCopyReq)
	r.Ref, r.Table, r.Version, r.Frag, r.GCI = t.ref, f.table.id, uint32(f.table.version), f.number, [2]uint32{}
}

// copyPause asks again a little later.
func (b *Block) copyPause(f *fragment) {
	f.target.state = copyPaused
	if c := &b.copier; !c.ticking {
		c.ticking = true
		b.env.Tick(b.self, copyRetry, tickCopy, 0, 0)
	}
}

func (b *Block) onCopyTick() {
	b.copier.ticking = false
	b.eachFragment(func(f *fragment) {
		if f.target.state == copyPaused {
			b.copyAsk(f)
		}
	})
}

// underWay is the fragment that a signal of a copy is about, nil if it is about one that is not under way any more.
func (b *Block) underWay(table, frag, ref uint32, from signal.Addr) *fragment {
	f := b.fragment(table, frag)
	if f == nil || f.dropping || f.target.ref != ref || f.target.from != from || f.target.state != copyAsked && f.target.state != copyRunning {
		b.Stale++
		return nil
	}
	return f
}

func (b *Block) onCopyRef(r *signal.CopyRef) {
	f := b.underWay(r.Table, r.Frag, r.Ref, r.From)
	if f == nil {
		return
	}
	t := &f.target
	t.refused++
	code := r.Code
	switch {
	case code != codeNotPrimary && code != codeNoTable && code != codeOldVersion, t.create != 0 && t.refused > createRetries:
		b.copyFailed(f, code)
	default:
		b.copyPause(f)
	}
}

func (b *Block) onCopyRowsOrd(r *signal.CopyRowsOrd) {
	f := b.underWay(r.Table, r.Frag, r.Ref, r.From)
	if f == nil {
		return
	}
	f.target.state = copyRunning
	code := b.install(f, r.Body(), r.Count)
	a := kernel.Send[signal.CopyAckOrd](b.env, r.From, b.self, signal.NumCopyAckOrd)
	a.Ref, a.Table, a.Frag, a.Run, a.Code = r.Ref, r.Table, r.Frag, r.Run, code
	switch {
	case code != 0:
		b.copyFailed(f, code)
	case r.Last != 0:
		b.copyDone(f)
	}
}

// copyDone goes on with the next one.
func (b *Block) copyDone(f *fragment) {
	for i := f.ghosts; i != pool.None; i = b.ops.At(i).down {
		invariant.That(b.ops.At(i).view < b.view.Number, "a fragment is complete when no write passes it by any more")
	}
	f.target.state = copyDone
	b.copier.active--
	b.copyCreated(f, 0)
	b.copyMore()
}

// copyCreated answers whoever has created the fragment.
func (b *Block) copyCreated(f *fragment, code uint32) {
	if t := &f.target; t.create != 0 {
		b.fragConf(t.create, signal.NumFragCreateConf, t.crRef, f.table.id, f.number, code)
		t.create = 0
	}
}

// copyFailed gives the copy of a fragment up. A fragment that is being created is no fragment then; for any other the node
// must give up.
func (b *Block) copyFailed(f *fragment, code uint32) {
	created := f.target.create != 0
	b.copyCreated(f, code)
	b.copier.active--
	f.target.state = copyFailed
	if created {
		invariant.That(f.ops == 0 && f.rows.Rows() == 0, "nobody uses a table that is being created")
		b.forgetFragment(f)
		b.copyMore()
		return
	}
	b.copyOver(code)
}

// copyOver tells the distribution that everything is here, or that it cannot be.
func (b *Block) copyOver(code uint32) {
	c := &b.copier
	if c.from == 0 {
		return
	}
	to := c.from
	c.from = 0
	s := kernel.Send[signal.CopyStartConf](b.env, to, b.self, signal.NumCopyStartConf)
	s.Ref, s.Code, s.Rows, s.Bytes = c.ref, code, signal.GCI(c.rows).Words(), signal.GCI(c.bytes).Words()
}

// copyDropped ends the copy of a fragment that is dropped.
func (b *Block) copyDropped(f *fragment) {
	t := &f.target
	switch t.state {
	case copyClearing, copyAsked, copyPaused, copyRunning:
		b.env.Mark(kernel.MarkCopyDropped)
		b.copier.active--
	}
	t.state = copyNone
	b.copyCreated(f, codeDropping)
	b.copyMore()
}

// copyInView goes by a new view: who is complete counts as a replica; whose primary has moved begins anew, since the new
// one does not know of it.
func (b *Block) copyInView() {
	if !b.recovering() {
		if b.copyAll {
			b.copyAll = false
			b.eachFragment(func(f *fragment) {
				invariant.That(!f.copying(), "a member has all its data when it recovers no more")
				f.target = target{}
			})
			b.copier.queue, b.copier.run = nil, nil
		}
		return
	}
	b.eachFragment(func(f *fragment) {
		t := &f.target
		if t.state == copyNone || t.state == copyWanted || t.state == copyClearing || t.state == copyFailed || t.from == b.view.Primary(f.places()) {
			return
		}
		b.env.Mark(kernel.MarkCopyMoved)
		if t.state != copyDone {
			b.copier.active--
		}
		b.copyWant(f)
	})
	b.copyMore()
}
