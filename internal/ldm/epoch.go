package ldm

// Epochs at an ldm: the commit point of a one-shot write draws the epoch, never between the prepare of an epoch change
// and its commit. A replica of a chain above the tail does not know which epoch the tail will draw: until the answer
// has passed it counts in the generation that it entered in, and the change is confirmed when that is empty.

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
)

type epoch struct {
	gci      [2]uint32
	prepared bool // a change is under way: nobody draws
	parity   uint8
	inside   [2]uint32 // chains under way here, by generation
	waiting  bool      // the confirmation of a change is owed
	asker    signal.Addr
	head     uint32 // one-shot writes that wait for the end of the change
	tail     uint32
}

func (e *epoch) init() { e.head, e.tail = pool.None, pool.None }

func (e *epoch) enter() uint8 {
	e.inside[e.parity]++
	return e.parity
}

func (e *epoch) leave(b *Block, parity uint8) {
	invariant.That(e.inside[parity] > 0, "who leaves an epoch has entered it")
	e.inside[parity]--
	e.confirm(b)
}

func (e *epoch) confirm(b *Block) {
	if !e.waiting || e.inside[e.parity^1] != 0 {
		return
	}
	e.waiting = false
	c := kernel.Send[signal.EpochConf](b.env, e.asker, b.self, signal.NumEpochCommitConf)
	c.GCI = e.gci
}

// park puts a one-shot at its commit point behind the end of the change.
func (e *epoch) park(b *Block, i uint32, o *operation) {
	o.wNext, o.wPrev = pool.None, pool.None
	if e.tail == pool.None {
		e.head = i
	} else {
		b.ops.At(e.tail).wNext = i
	}
	e.tail = i
}

func (b *Block) onEpochPrepareReq(r *signal.EpochReq) {
	e := &b.epoch
	invariant.That(!e.prepared && !e.waiting, "one epoch change at a time")
	invariant.That(signal.JoinGCI(r.GCI) > signal.JoinGCI(e.gci), "epochs grow")
	e.prepared = true
	to, gci := r.From, r.GCI
	c := kernel.Send[signal.EpochConf](b.env, to, b.self, signal.NumEpochPrepareConf)
	c.GCI = gci
}

func (b *Block) onEpochCommitReq(r *signal.EpochReq) {
	e := &b.epoch
	invariant.That(e.prepared, "an epoch change is prepared before it is committed")
	e.gci, e.prepared = r.GCI, false
	e.parity ^= 1
	invariant.That(e.inside[e.parity] == 0, "the generation before the last one is empty")
	e.waiting, e.asker = true, r.From
	i := e.head
	e.head, e.tail = pool.None, pool.None
	for i != pool.None {
		o := b.ops.At(i)
		next := o.wNext
		o.wNext = pool.None
		b.unpark(i, o)
		i = next
	}
	e.confirm(b)
}

// unpark takes a one-shot to its commit point.
func (b *Block) unpark(i uint32, o *operation) {
	if o.state == ready {
		o.state = holding
		b.commitOneShot(i, o, o.frag.rows.Row(o.id), b.epoch.gci)
		return
	}
	invariant.That(o.state == parked, "who waits for an epoch is at its commit point")
	r := as[signal.PrepareReq]((*signal.Head)(o.stash))
	f := o.frag
	b.chainTail(f, r)
	b.free(i, o)
}
