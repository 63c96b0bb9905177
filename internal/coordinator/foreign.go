package coordinator

// Transactions of lost coordinators, and operations of own transactions that are left over somewhere. The ldms report them
// to a coordinator of the president; nothing else is known of them.
//
// If any operation of a transaction is applied, its coordinator has passed the commit point: all are committed in the same
// epoch, with the outcome for the client, and completed. Otherwise the client was not told that it has committed, since all
// replicas of all rows would have applied it then, and it is rolled back. No client is told; it asks those that keep the
// outcome (OutcomeReq). Whoever takes over has nothing but the reports, so if it is lost itself the next one decides the
// same from the reports that it gets: what was applied stays so until all is.
//
// Everything goes in three stages, each for all transactions at once, and a stage begins when all of the one before have
// answered:
//
//	commits    CommitReq to each that has not applied its change
//	others     CompleteReq or AbortReq to each that is not at the primary of its fragment
//	primaries  … to those that are
//
// A further view that loses members ends that: everything is reported again, and decided again. One thing is remembered
// until the end: what was to be committed, for whoever had applied it may be lost now while our CommitReq is on its way.

import (
	"cmp"
	"slices"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// foreign is an operation that is taken over.
type foreign struct {
	from      signal.Addr // the ldm
	ref       uint32      // its record
	tc        signal.Addr // its coordinator, tcRef the record there, seq its number of it
	tcRef     uint32
	seq       uint32
	client    signal.Addr
	tx        uint32
	view      uint32 // in which it was reported
	state     uint32 // an Op constant of signal's
	gci       [2]uint32
	commitSeq uint32 // the client's number of the commit
	table     uint16
	frag      uint16
	write     bool
	commit    bool // decided; else it is rolled back
	primary   bool // it is at the primary of its fragment
}

func (f *foreign) same(g *foreign) bool {
	return f.tc == g.tc && f.client == g.client && f.tx == g.tx
}

// decision is a transaction that was to be committed.
type decision struct {
	tc, client signal.Addr
	tx         uint32
	gci        [2]uint32
	commitSeq  uint32
}

type stage uint8

const (
	// idle: nothing is being taken over.
	idle stage = iota
	// commits, others, primaries: see above.
	commits
	others
	primaries
)

// takeForeign begins with what was reported in this view.
func (b *Block) takeForeign() {
	x := &b.taken
	later := x.incoming[:0:0]
	for _, f := range x.incoming {
		switch {
		case f.view == x.round:
			f.primary = f.from == b.primaryOf(f.table, f.frag)
			x.foreign = append(x.foreign, f)
		case f.view > x.round:
			later = append(later, f)
		}
	}
	x.incoming = later
	slices.SortStableFunc(x.foreign, func(f, g foreign) int {
		return cmp.Or(cmp.Compare(f.tc, g.tc), cmp.Compare(f.client, g.client), cmp.Compare(f.tx, g.tx), cmp.Compare(f.seq, g.seq))
	})
	for i := 0; i < len(x.foreign); {
		n := i + 1
		for n < len(x.foreign) && x.foreign[n].same(&x.foreign[i]) {
			n++
		}
		b.judge(x.foreign[i:n])
		i = n
	}
	b.nextForeign()
}

// judge decides one transaction.
func (b *Block) judge(ops []foreign) {
	applied := 0
	d := decision{tc: ops[0].tc, client: ops[0].client, tx: ops[0].tx}
	commit := false
	for i := range b.taken.decided {
		if y := &b.taken.decided[i]; y.tc == d.tc && y.client == d.client && y.tx == d.tx {
			d, commit = *y, true
		}
	}
	known := commit
	for i := range ops {
		if ops[i].state == signal.OpApplied {
			applied++
			d.gci, d.commitSeq, commit = ops[i].gci, ops[i].commitSeq, true
		}
	}
	switch {
	case !commit:
		b.env.Mark(kernel.MarkTakeoverAborts)
		return
	case applied > 0 && applied < len(ops):
		b.env.Mark(kernel.MarkTakeoverMixed)
	}
	if !known {
		b.taken.decided = append(b.taken.decided, d)
	}
	for i := range ops {
		ops[i].commit, ops[i].gci, ops[i].commitSeq = true, d.gci, d.commitSeq
	}
}

// primaryOf is the ldm with the primary of a fragment, 0 if the table is not open here any more.
func (b *Block) primaryOf(id, frag uint16) signal.Addr {
	if int(id) >= len(b.tables) || int(frag) >= len(b.tables[id].primary) {
		return 0
	}
	return b.view.Primary(b.tables[id].home(frag))
}

// nextForeign sends the steps of the present stage, and goes on to the next one if there are none.
func (b *Block) nextForeign() {
	x := &b.taken
	for ; x.stage != idle; x.stage = (x.stage + 1) % (primaries + 1) {
		for i := range x.foreign {
			f := &x.foreign[i]
			num := uint16(signal.NumAbortReq)
			if f.commit {
				num = signal.NumCompleteReq
			}
			turn := f.primary == (x.stage == primaries)
			if x.stage == commits {
				num, turn = signal.NumCommitReq, f.commit && f.write && f.state != signal.OpApplied
			}
			if turn {
				b.foreignStep(num, f)
				x.waits++
			}
		}
		if x.waits > 0 {
			return
		}
	}
	x.foreign = nil
}

func (b *Block) foreignStep(num uint16, f *foreign) {
	s := kernel.Send[signal.Step](b.env, f.from, b.self, num)
	*s = signal.Step{Head: s.Head, OpRef: f.ref, OpSeq: f.seq, TcRef: f.tcRef, Tc: f.tc, GCI: f.gci, Seq: f.commitSeq, RowID: signal.NoRef,
		Direct: 2*b.taken.round + 1, Table: f.table, Frag: f.frag}
}

func (b *Block) onForeignConf(r *signal.StepConf) {
	x := &b.taken
	if r.Direct != 2*x.round+1 || x.waits == 0 {
		b.late(&r.Head, r.TcRef)
		return
	}
	if x.waits--; x.waits == 0 {
		x.stage = (x.stage + 1) % (primaries + 1)
		b.nextForeign()
		b.takenOver()
	}
}
