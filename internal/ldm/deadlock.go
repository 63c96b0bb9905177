package ldm

// Deadlocks: the ldm's half of the search for transactions that wait for each other (signal's deadlock.go).
//
//	ldm --ProbeOrd--> coordinator of each that is waited for --WaitProbeOrd--> ldm of each of its waiting operations --ProbeOrd--> …
//
// Whoever waits in a row's queue waits for all that come before it there: for the holders, and for those ahead that will
// hold the row first. The latter matters if one of them waits for something else too. Of these a probe that begins here
// asks a few, and the next probe the next few, so that a queue of a hundred costs a hundred times what a queue of one
// does, not ten thousand times; a probe that passes goes to all holders, and to the few directly ahead. A coordinator
// passes a probe on to the other waiting operations of its transaction, not to the one that the probe names: the ldm has
// looked at that one's row already. Transactions of one write wait for one row at most, and end by themselves once they
// have it: nobody asks about them.
//
// The first probe is sent probeFirst after a wait has begun, the next after pauses that double up to probePause.

import (
	"fmt"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
)

const (
	probeFirst = 2e6   // ns
	probePause = 100e6 // ns
	probeFew   = 8     // transactions that a probe which begins here is sent to
	probeMany  = 64    // … and one that passes
)

// probeDue is when the next probe of a waiting operation is to be sent.
func (o *operation) probeDue() int64 {
	due := o.since
	pause := int64(probeFirst)
	for range min(o.probes, 6) {
		due += pause
		pause *= 2
	}
	if o.probes > 6 {
		due += int64(o.probes-6) * probePause
	}
	return due + min(pause, probePause)
}

// probeSoon sees to it that a timer is set when an operation of a coordinator begins to wait.
func (b *Block) probeSoon(o *operation) {
	if w := &b.waiters; !w.probing && !o.oneShot() {
		w.probing = true
		b.env.Tick(b.self, max(o.probeDue()-b.env.Now(), probeFirst/2), tickProbe, 0, 0)
	}
}

// onProbeTick sends the probes that are due. The longer the list, the less often it is looked through.
func (b *Block) onProbeTick() {
	w := &b.waiters
	w.probing = false
	now, next := b.env.Now(), int64(-1)
	for i := w.head; i != pool.None; {
		o := b.ops.At(i)
		if !o.oneShot() {
			if o.probeDue() <= now {
				b.probe(o, uint64(o.probes)*probeFew, probeFew, &signal.ProbeOrd{Tc: o.tc, Client: o.client, Tx: o.tx, Hops: 0, Round: uint32(now/1e6) + 1})
				o.probes++
			}
			if d := o.probeDue(); next < 0 || d < next {
				next = d
			}
		}
		i = o.wNext
	}
	if next >= 0 {
		w.probing = true
		b.env.Tick(b.self, max(next-now, probeFirst/2, int64(w.n)*1000), tickProbe, 0, 0)
	}
}

// probe sends a probe to the coordinators of at most most transactions that a waiting operation waits for, the first of
// which is chosen by turn if there are more.
func (b *Block) probe(o *operation, turn uint64, most int, p *signal.ProbeOrd) {
	row := o.frag.rows.Row(o.id)
	holders, ahead := 0, 0
	for i := top(row); b.ops.At(i).state != waiting; i = b.ops.At(i).down {
		holders++
		if b.ops.At(i).down == pool.None {
			break
		}
	}
	for i := o.up; i != pool.None && b.ops.At(i).state == waiting && ahead < probeMany; i = b.ops.At(i).up {
		ahead++
	}
	n := holders + ahead
	if n == 0 {
		return
	}
	skip := 0
	if n > most {
		skip = int(turn % uint64(n))
	}
	sent := b.probeSome(top(row), holders, skip, most, false, o, p)
	sent += b.probeSome(o.up, ahead, skip-holders, most-sent, true, o, p)
	if skip > 0 { // round the end
		sent += b.probeSome(top(row), min(holders, skip), 0, most-sent, false, o, p)
		b.probeSome(o.up, min(ahead, skip-holders), 0, most-sent, true, o, p)
	}
}

// probeSome sends a probe about most of the n operations of a row's list that begin at i, but for the first skip; upward
// or downward in the list. It returns how many it looked at.
func (b *Block) probeSome(i uint32, n, skip, most int, upward bool, o *operation, p *signal.ProbeOrd) (looked int) {
	for k := 0; k < n && looked < most; k++ {
		x := b.ops.At(i)
		if i = x.down; upward {
			i = x.up
		}
		if k < skip {
			continue
		}
		looked++
		if x.oneShot() || x.left || x.same(o) || higher(x, p) {
			continue
		}
		s := kernel.Send[signal.ProbeOrd](b.env, x.tc, b.self, signal.NumProbeOrd)
		*s = signal.ProbeOrd{Head: s.Head, Tc: p.Tc, Client: p.Client, Tx: p.Tx, TcRef: x.tcRef, OpSeq: x.seq, OpRef: signal.NoRef, Hops: p.Hops, Round: p.Round}
	}
	return looked
}

// higher tells whether an operation's transaction has a higher rank than the one that a probe began with: the probe would
// be dropped there.
func higher(o *operation, p *signal.ProbeOrd) bool {
	switch {
	case o.client != p.Client:
		return o.client > p.Client
	case o.tx != p.Tx:
		return o.tx > p.Tx
	}
	return o.tc > p.Tc
}

// passedProbe is a probe that passed an operation lately: one that comes again by another way is not passed on again.
type passedProbe struct {
	op     uint32
	client signal.Addr
	tx     uint32
	round  uint32 // 0: none
}

const passedSlots = 1 << 12

// onWaitProbeOrd passes a probe on that has come to a waiting operation.
func (b *Block) onWaitProbeOrd(r *signal.ProbeOrd) {
	o := b.ops.Find(r.OpRef)
	if o == nil || o.state != waiting || o.tc != r.From || o.tcRef != r.TcRef || o.seq != r.OpSeq || o.prev != 0 || r.Hops >= signal.MaxProbeHops {
		return // it does not wait any more
	}
	if b.probed == nil {
		b.probed = make([]passedProbe, passedSlots)
	}
	p := passedProbe{op: r.OpRef, client: r.Client, tx: r.Tx, round: r.Round}
	seen := &b.probed[(p.op*0x9E3779B1^uint32(p.client)*0x85EBCA6B^p.tx*0xC2B2AE35)>>(32-12)]
	if *seen == p {
		b.env.Mark(kernel.MarkProbeTwice)
		return
	}
	*seen = p
	ord := *r
	ord.Hops++
	b.probe(o, b.env.Rand(), probeMany, &ord)
}

// timeoutsPause is how far apart reports of lock waits that took too long are at least, ns.
const timeoutsPause = 1e9

// reportTimeout names whom an operation has waited for in vain.
func (b *Block) reportTimeout(o *operation) {
	now := b.env.Now()
	if b.timeoutAt != 0 && now-b.timeoutAt < timeoutsPause {
		b.timeouts++
		return
	}
	h := b.ops.At(top(o.frag.rows.Row(o.id)))
	text := fmt.Sprintf("waited for table %d fragment %d row id %d; %d more since the last report", o.frag.table.id, o.frag.number, o.id, b.timeouts)
	e := event.New(b.env.Node(), event.LockWaitTimeout, uint32(o.client.Node()), uint32(o.client.Instance()), o.tx,
		uint32(h.client.Node()), uint32(h.client.Instance()), h.tx).WithText(text)
	b.env.Report(b.self, &e)
	b.timeoutAt, b.timeouts = now, 0
}
