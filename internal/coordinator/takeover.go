package coordinator

// Takeover: what becomes of transactions that a lost member had a part in.
//
//	ldm --OpRep…, OpEndRep--> tc                        every ldm of every member that was there before, when it has the view
//	tc --CommitReq, CompleteReq, AbortReq (Direct)--> ldm --…Conf (Direct)--> tc
//	tc --ViewCommitConf--> membership                   when nothing is left to be finished here
//
// At the commit of a view that lost members an operation of an own transaction is touched if it is on a fragment of a node
// group that lost one: its chain may be broken anywhere, so that nobody knows how far its prepare or step came. Its
// transaction is rolled back (286) if it is before its commit point; it cannot pass that now. Nothing is sent about a
// touched operation until every ldm has reported what it has of it; then it is decided (decide), and is either as good as
// any other, since its primary lives and got it in the new view only, or finished by direct steps (direct.go). The other
// operations of the transaction go their usual way, and the transaction knows no difference: it counts operations that
// have done a step, and not how they did it.
//
// A transaction of a lost coordinator is decided by the reports alone: foreign.go.
//
// The operations of own transactions at the commit of a view that lost members, and what decides them:
//
//	| operation is | not touched    | touched, until decided     | then, reported by its primary            | … which lives and reported nothing | … which is lost     |
//	| running      | answer: undo   | answer: takes its record   | prepared: direct abort; waits: AbortReq  | answer is to come: undo then       | direct abort        |
//	| waiting      | AbortReq       | answer: takes its record   | prepared: direct abort; waits: AbortReq  | it got it in this view: AbortReq   | direct abort        |
//	| prepared     | AbortReq       | nothing can come           | direct abort                             | it got it in this view: AbortReq   | direct abort        |
//	| undoing      | AbortConf      | AbortConf: says nothing    | prepared: direct abort; waits: AbortReq  | direct abort of what others report | direct abort        |
//	| applying     | CommitConf     | CommitConf: is applied     | direct commit                            | direct commit                      | direct commit       |
//	| applied      | nothing comes  | nothing can come           | complete will be direct                  | complete will be direct            | … will be direct    |
//	| releasing    | CompleteConf   | CompleteConf ends it       | direct complete                          | direct complete                    | direct complete     |
//	| done, released | nothing is held anywhere |               |                                          |                                    |                     |
//
// The first four rows are those of an aborting transaction. Who is reported as waiting still stands in its row's queue: an
// AbortReq of the usual kind takes it out of there, or follows what it has passed on since. Direct steps go to those that
// reported; if nobody did, nothing is left of the operation, and the step counts as done.
//
// Signals that come in the wrong state:
//
//	| signal                   | no such operation | waits for it    | touched          | direct                 | else                         |
//	| PrepareConf, PrepareRef  | late, dropped     | taken           | taken            | late, dropped          | undoing: crossed, dropped    |
//	| WaitRep                  | dropped           | taken           | taken            | dropped                | dropped                      |
//	| CommitConf … of a chain  | late, dropped     | taken           | taken            | late, dropped          | late, dropped                |
//	| CommitConf … Direct      | late, dropped     | –               | of an old view: dropped | its own: counted; of an old view: dropped | late, dropped |
//	| OpRep                    | taken over        | kept; if from its primary: touches it | kept | kept        | kept                         |
//	| OpEndRep                 | counted once for each ldm and view; the last one decides                                                |
//
// Late answers are possible once a takeover has been here, and a broken invariant before. An OpRep of an operation that
// this coordinator has ended is one that was overtaken by the end of the operation, or is left over: it is treated like one
// of a lost coordinator, and if nothing is there any more, that is what the steps find.
//
// An operation that this coordinator has sent after the commit of the view can be executed by a primary that has not got
// so far, and go down its broken chain: the primary reports it, and that touches it. A backup alone may report what is in
// order.
//
// A further view may lose further members in the middle of all this. Operations that are touched (again) then wait for the
// reports of that view, and what was reported of them before counts no more. Others go on with their direct steps, or wait
// for the rest of the reports. What a commit or an abort once decided, it is always decided the same: a transaction past its
// commit point commits, the others abort.
//
// Epochs: what is committed in a takeover carries the epoch that was drawn before, which is older than the present one
// perhaps. Nothing is to be done for that here: the distribution finishes no change of the epoch before TakeoverRep.

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
)

// report is what an ldm said of an operation of an own transaction.
type report struct {
	from  signal.Addr // the ldm
	ref   uint32      // its record
	seq   uint32      // number of the operation, since another may have its record now
	view  uint32
	state uint32 // an Op constant of signal's
	next  uint32 // the one before it about the same record, or None
}

// takeover is what a coordinator does after members were lost. Its zero value has nothing to do.
type takeover struct {
	asker   signal.Addr                      // who is to be told that nothing of the lost members is left; 0 = nobody
	attempt uint32                           // of the present view
	round   uint32                           // the newest view that lost members, 0 = none yet
	settled uint32                           // the newest round whose reports were decided about
	from    signal.NodeSet                   // members whose ldms report in it
	missing int                              // ldms whose OpEndRep is to come
	open    int                              // own transactions that were touched
	ends    [signal.MaxDataNode + 1][]uint32 // node → instance → view of the newest OpEndRep

	reports []report
	heads   []uint32 // record of an own operation → its newest report, or None; nil without reports
	ahead   uint32   // newest view of a report

	foreign  []foreign // operations that are being taken over
	incoming []foreign // … that were reported, until all are
	decided  []decision
	stage    stage
	waits    int // direct answers of foreign operations outstanding
}

// takeOver begins with the commit of a view that lost members; stayed are those of the old view that are in the new one.
func (b *Block) takeOver(lost, stayed *signal.NodeSet) {
	x := &b.taken
	if !x.over() {
		b.env.Mark(kernel.MarkTakeoverAgain)
	}
	x.round, x.from = b.view.Number, *stayed
	x.foreign, x.stage, x.waits = nil, idle, 0
	x.missing = 0
	for n := stayed.Next(0); n != 0; n = stayed.Next(n) {
		for k := range b.view.Member(n).LDMs {
			if x.endOf(n, k) < x.round {
				x.missing++
			}
		}
	}
	for i := uint32(0); i < b.txs.High(); i++ {
		if t := b.txs.Find(i); t != nil && b.hitTx(t, lost) {
			b.touch(i, t, x.round, func(o *operation) bool { return b.hit(o, lost) })
		}
	}
	if x.missing == 0 {
		b.decide()
	}
}

// touch makes operations of a transaction wait for the reports, and rolls it back if that can be. What was reported before
// that view counts no more: all that have something of the operation report it anew.
func (b *Block) touch(i uint32, t *transaction, view uint32, which func(o *operation) bool) {
	if t.bits&txTouched == 0 {
		t.bits |= txTouched
		b.taken.open++
	}
	for oi := t.head; oi != pool.None; {
		o := b.ops.At(oi)
		if o.state != done && o.state != released && which(o) {
			o.bits = o.bits&^(opDirect|opLast) | opTouched
			o.last = signal.Addr(2 * view)
		}
		oi = o.next
	}
	if t.state == active || t.state == held {
		b.abort(i, t, codeNodeFailed, signal.NoRef)
	}
}

// endOf is the view of the newest OpEndRep of an ldm.
func (x *takeover) endOf(node uint8, instance uint32) uint32 {
	if e := x.ends[node]; int(instance) < len(e) {
		return e[instance]
	}
	return 0
}

// over tells whether nothing is left to do.
func (x *takeover) over() bool { return x.missing == 0 && x.open == 0 && x.stage == idle }

func (b *Block) onOpRep(r *signal.OpRep) {
	x := &b.taken
	o := b.ops.Find(r.TcRef)
	if r.Tc != b.self || o == nil || o.seq != r.OpSeq {
		x.incoming = append(x.incoming, foreign{from: r.From, ref: r.OpRef, tc: r.Tc, tcRef: r.TcRef, seq: r.OpSeq, client: r.Client, tx: r.Tx,
			view: r.View, state: r.State, write: r.Write != 0, gci: r.GCI, commitSeq: r.Seq, table: r.Table, frag: r.Frag})
		return
	}
	if x.heads == nil {
		x.heads = make([]uint32, b.ops.Cap())
		for i := range x.heads {
			x.heads[i] = pool.None
		}
	}
	x.reports = append(x.reports, report{from: r.From, ref: r.OpRef, seq: r.OpSeq, view: r.View, state: r.State, next: x.heads[r.TcRef]})
	x.heads[r.TcRef] = uint32(len(x.reports) - 1)
	x.ahead = max(x.ahead, r.View)
}

func (b *Block) onOpEndRep(r *signal.OpEndRep) {
	x := &b.taken
	n, k := r.From.Node(), uint32(r.From.Instance())
	old := x.endOf(n, k)
	if r.View <= old {
		return
	}
	for len(x.ends[n]) <= int(k) {
		x.ends[n] = append(x.ends[n], 0)
	}
	x.ends[n][k] = r.View
	if m := b.view.Member(n); old < x.round && r.View >= x.round && x.from.Has(n) && m != nil && k < m.LDMs {
		if x.missing--; x.missing == 0 {
			b.decide()
			b.takenOver()
		}
	}
}

// about finds the reports of an operation that is or was touched, from that view to the present round, the newest of each
// ldm that is a member, and calls f for each until that returns false. What an ldm has reported for a later view is
// incomplete.
func (b *Block) about(oi uint32, o *operation, f func(r *report) bool) {
	x := &b.taken
	if x.heads == nil {
		return
	}
	for i := x.heads[oi]; i != pool.None; i = x.reports[i].next {
		r := &x.reports[i]
		if r.seq != o.seq || 2*r.view < uint32(o.last) || r.view > x.round || !b.view.Has(r.from.Node()) || b.newer(oi, i, r) {
			continue
		}
		if !f(r) {
			return
		}
	}
}

// newer tells whether an ldm has said something newer about the operation of a report.
func (b *Block) newer(oi, i uint32, r *report) bool {
	x := &b.taken
	for j := x.heads[oi]; j != i; j = x.reports[j].next {
		if y := &x.reports[j]; y.from == r.from && y.seq == r.seq && y.view <= x.round {
			return true
		}
	}
	return false
}

// reportOf is what an ldm has said about an operation last, nil if nothing.
func (b *Block) reportOf(oi uint32, o *operation, from signal.Addr) (found *report) {
	b.about(oi, o, func(r *report) bool {
		if r.from == from {
			found = r
		}
		return found == nil
	})
	return found
}

// decide finishes what is touched: all reports are there.
func (b *Block) decide() {
	x := &b.taken
	x.stage = commits // it is not over when the last own transaction ends
	for oi := range uint32(len(x.heads)) {
		b.touchedByReport(oi)
	}
	if x.open > 0 {
		for i := uint32(0); i < b.txs.High(); i++ {
			if t := b.txs.Find(i); t != nil && t.bits&txTouched != 0 {
				b.decideTx(i, t)
			}
		}
	}
	x.settled = x.round
	b.takeForeign()
}

// touchedByReport touches an operation that its primary has reported, though it was sent in the new view.
func (b *Block) touchedByReport(oi uint32) {
	if b.taken.heads[oi] == pool.None {
		return
	}
	o := b.ops.Find(oi)
	if o == nil || o.bits&(opTouched|opDirect) != 0 || o.state == done || o.state == released {
		return
	}
	last := o.last
	o.last = signal.Addr(2*b.taken.settled + 1)
	r := b.reportOf(oi, o, o.primary)
	if o.last = last; r != nil {
		b.env.Mark(kernel.MarkTouchedByReport)
		b.touch(o.tx, b.txs.At(o.tx), r.view, func(p *operation) bool { return p == o })
	}
}

// decideTx decides a transaction's touched operations. It must not end while they are gone through, so it counts one more
// of each kind until then.
func (b *Block) decideTx(i uint32, t *transaction) {
	t.undo, t.commits, t.completes = t.undo+1, t.commits+1, t.completes+1
	for oi := t.head; oi != pool.None; {
		o := b.ops.At(oi)
		next := o.next
		if o.bits&opTouched != 0 {
			o.bits &^= opTouched
			b.decideOp(i, t, oi, o)
		}
		oi = next
	}
	t.undo, t.commits, t.completes = t.undo-1, t.commits-1, t.completes-1
	switch {
	case t.state == aborting && t.undo == 0:
		b.aborted(i, t)
	case t.state == committing && t.commits == 0:
		b.committed(i, t)
	case t.state == completing && t.completes == 0:
		b.completed(i, t)
	}
}

func (b *Block) decideOp(i uint32, t *transaction, oi uint32, o *operation) {
	lives := b.view.Has(o.primary.Node())
	p := b.reportOf(oi, o, o.primary)
	queues := p != nil && p.state == signal.OpWaiting
	switch o.state {
	case running:
		switch {
		case lives && p == nil:
			b.env.Mark(kernel.MarkAbortUnreported) // the answer is to come
		case queues:
			o.first = p.ref
			b.undo(t, o, oi)
		default:
			o.state = undoing
			b.goDirect(i, t, oi, o)
		}
	case waiting, prepared:
		if lives && p == nil || queues {
			b.undo(t, o, oi)
			return
		}
		o.state = undoing
		b.goDirect(i, t, oi, o)
	case undoing:
		if queues { // it is asked again, since the answer may have come
			b.undo(t, o, oi)
			return
		}
		b.goDirect(i, t, oi, o)
	case applying:
		b.env.Mark(kernel.MarkCommitDirect)
		b.survives(oi, o)
		b.goDirect(i, t, oi, o)
	case applied:
		b.survives(oi, o)
		o.bits |= opDirect
		o.lastRef = 0
	case releasing:
		b.goDirect(i, t, oi, o)
	}
}

// survives sees to it that somebody has a write that is past its commit point and not complete: of each node group a node
// with all its data is left, and it was in the chain.
func (b *Block) survives(oi uint32, o *operation) {
	n := 0
	b.about(oi, o, func(*report) bool { n++; return true })
	invariant.That(n > 0, "a survivor has every write that is being committed")
}

// takenOver tells membership, once, that nothing of lost members is left here.
func (b *Block) takenOver() {
	x := &b.taken
	if !x.over() {
		return
	}
	if x.ahead <= x.round {
		x.reports, x.heads = nil, nil
	}
	x.foreign, x.decided = nil, nil
	if x.asker == 0 {
		return
	}
	invariant.That(x.waits == 0, "a takeover that is through waits for nothing")
	to := x.asker
	x.asker = 0
	b.viewConf(to, signal.NumViewCommitConf, b.view.Number, x.attempt)
}
