package ldm

// The primary's side of a copy: see signal's copy.go.
//
// From CopyReq on the sender comes directly behind the primary in the chain of every write that is let through. The rows
// go in the order of their ids, a run at a turn, so that the traffic of others is not delayed, and a few runs at a time.
// A row that a transaction holds which changes it is passed over (lockLater); it is sent when it is let go, before
// whoever waits for it gets it. Free slots that remember a delete are told of too. At the end, when every write has ended
// that the sender had no part in, it gets the outcomes that clients may still ask for.
//
// | signal      | no copy of the fragment           | one is under way                                     |
// | CopyReq     | attach, begin                     | of the same: begin anew; of another: refuse for now  |
// | CopyAckOrd  | stale, or it fails late: detach   | go on; with a code: detach                           |
// | CopyStepOrd | stale                             | the next run                                         |
//
// One copy of a fragment at a time; who has copied it stays attached as long as it recovers.

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/outcome"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
)

// copying is a copy under way at the primary.
type copying struct {
	to       signal.Addr
	ref      uint32      // the asker's number of it
	since    uint64      // only what is newer is copied, 0 = everything
	at       store.RowID // what has a lower id was sent, or is in later
	later    int         // rows that were passed over and not sent since
	run      uint32      // runs sent
	acked    uint32      // … and in place
	scanned  bool        // every slot was looked at
	outcomes outcome.Place
	ended    bool // the last run was sent
	stepping bool // a CopyStepOrd is under way
}

func (b *Block) onCopyReq(r *signal.CopyReq) {
	f := b.fragment(r.Table, r.Frag)
	code := uint32(0)
	switch {
	case f == nil || f.dropping:
		code = codeNoTable
	case uint32(f.table.version) != r.Version:
		code = codeOldVersion
	case !f.primary || f.frozen || f.source != nil && f.source.to != r.From ||
		b.view.State(r.From.Node()) != signal.MemberRecovering || !b.livesAt(f, r.From):
		code = codeNotPrimary
	}
	if code != 0 {
		b.env.Mark(kernel.MarkCopyRefused)
		b.copyRef(r.From, r.Ref, r.Table, r.Frag, code)
		return
	}
	b.detach(f, r.From) // it asks anew
	f.attached = below{r.From, f.attached[0], f.attached[1]}
	f.source = &copying{to: r.From, ref: r.Ref, since: uint64(signal.JoinGCI(r.GCI))}
	b.line(f)
	b.copyRun(f)
}

// livesAt tells whether a fragment's home has the ldm.
func (b *Block) livesAt(f *fragment, a signal.Addr) bool {
	for _, p := range f.places() {
		if b.view.Ldm(p) == a {
			return true
		}
	}
	return false
}

// detach takes a replica out of the chain again.
func (b *Block) detach(f *fragment, a signal.Addr) {
	for i := range f.attached {
		if f.attached[i] == a {
			f.attached[i] = 0
		}
	}
	if c := f.source; c != nil && c.to == a {
		f.source = nil
	}
	b.line(f)
}

func (b *Block) copyRef(to signal.Addr, ref, table, frag, code uint32) {
	c := kernel.Send[signal.CopyRef](b.env, to, b.self, signal.NumCopyRef)
	c.Ref, c.Table, c.Frag, c.Code = ref, table, frag, code
}

// copyRun sends the next run of a copy, and sees to it that another follows if there is room for it.
func (b *Block) copyRun(f *fragment) {
	c := f.source
	if c.scanned {
		c.lastRuns(b, f)
		return
	}
	run, count := b.copier.run[:0], uint32(0)
	for steps := 0; !c.scanned && steps < runSteps; steps++ {
		s, ok := f.rows.NextSlots(c.at)
		if !ok {
			c.scanned = true
			break
		}
		if !s.Used {
			if s.GCI > c.since {
				if len(run)+int(entryHeadSize) > runBytes {
					break
				}
				run = appendFree(run, s.First, s.N, s.GCI)
				count++
			}
			c.at = s.First + s.N
			continue
		}
		r := f.rows.Row(s.First)
		switch {
		case !b.settled(r):
			b.env.Mark(kernel.MarkCopyLater)
			r.Lock |= lockLater
			c.later++
		case r.GCI() > c.since:
			if n := f.rowEntryBytes(r); count > 0 && len(run)+n > runBytes {
				c.putRun(b, f, run, count)
				return
			}
			if !f.rows.CheckSum(r) {
				b.copyRef(c.to, c.ref, f.table.id, f.number, store.CodeCorrupt)
				b.detach(f, c.to)
				return
			}
			run = f.appendRow(run, r, s.First)
			count++
		}
		c.at = s.First + 1
	}
	c.putRun(b, f, run, count)
}

// lastRuns sends a run of outcomes; behind the last of them nothing is left.
func (c *copying) lastRuns(b *Block, f *fragment) {
	run, count := b.copier.run[:0], uint32(0)
	for len(run)+int(outcomeBytes) <= runBytes {
		o, ok := b.outcomes.Next(&c.outcomes)
		if c.ended = !ok; !ok {
			break
		}
		run = appendOutcome(run, &o)
		count++
	}
	c.putRun(b, f, run, count)
}

// putRun sends entries.
func (c *copying) putRun(b *Block, f *fragment, run []byte, count uint32) {
	b.copier.run = run[:0]
	c.run++
	s := (*signal.CopyRowsOrd)(b.env.Put(c.to, b.self, signal.NumCopyRowsOrd, uint32(unsafe.Sizeof(signal.CopyRowsOrd{}))+uint32(len(run))))
	s.Ref, s.Table, s.Frag, s.Run, s.Last, s.Count, s.BodyLen = c.ref, f.table.id, f.number, c.run, 0, count, uint32(len(run))
	if c.ended {
		s.Last = 1
	}
	copy(s.Body(), run)
	c.more(b, f)
}

// more sees to it that the next run follows, in a turn of its own.
func (c *copying) more(b *Block, f *fragment) {
	if c.ended || c.scanned && c.later > 0 || c.stepping || c.run-c.acked >= runWindow {
		return
	}
	c.stepping = true
	s := kernel.Send[signal.CopyAckOrd](b.env, b.self, b.self, signal.NumCopyStepOrd)
	s.Ref, s.Table, s.Frag, s.Run, s.Code = c.ref, f.table.id, f.number, 0, 0
}

// sendLater sends a row that was passed over, as it is now, if a copy waits for it.
func (b *Block) sendLater(f *fragment, r *store.RowHead, id store.RowID) {
	r.Lock &^= lockLater
	if c := f.source; c != nil && id < c.at {
		b.env.Mark(kernel.MarkCopyLaterSent)
		c.later--
		c.putRun(b, f, f.appendRow(b.copier.run[:0], r, id), 1)
	}
}

// sendLaterFree is sendLater for a row that is gone.
func (b *Block) sendLaterFree(f *fragment, id store.RowID, gci uint64) {
	if c := f.source; c != nil && id < c.at {
		b.env.Mark(kernel.MarkCopyLaterGone)
		c.later--
		c.putRun(b, f, appendFree(b.copier.run[:0], id, 1, gci), 1)
	}
}

func (b *Block) onCopyAckOrd(r *signal.CopyAckOrd) {
	f := b.fragment(r.Table, r.Frag)
	if f == nil || !f.isAttached(r.From) {
		b.Stale++
		return
	}
	c := f.source
	mine := c != nil && c.to == r.From && c.ref == r.Ref
	switch {
	case r.Code != 0:
		b.env.Mark(kernel.MarkCopyFailed)
		b.detach(f, r.From)
	case !mine:
		b.Stale++
	default:
		c.acked = r.Run
		if c.ended && c.acked == c.run {
			f.source = nil
			return
		}
		c.more(b, f)
	}
}

func (b *Block) onCopyStepOrd(r *signal.CopyAckOrd) {
	f := b.fragment(r.Table, r.Frag)
	if f == nil {
		return
	}
	if f.target.state == copyClearing {
		b.copyClear(f)
		return
	}
	if c := f.source; c != nil && c.ref == r.Ref && c.stepping {
		c.stepping = false
		if !(c.scanned && c.later > 0) && c.run-c.acked < runWindow {
			b.copyRun(f)
		}
	}
}
