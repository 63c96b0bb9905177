package coordinator

// Epochs: between the prepare of an epoch change and its commit no commit point draws an epoch, so that a later
// holder of a lock never gets an older epoch than an earlier one, whichever coordinators the two have.
//
// Transactions that have drawn count in one of two generations. The change to epoch n+1 is confirmed when the
// generation of n is empty; the president begins no further change before that.

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
	inside   [2]uint32   // transactions that have drawn and are not complete, by generation
	waiting  bool        // the confirmation of a change is owed
	asker    signal.Addr // to whom
	heldHead uint32      // transactions that wait for the end of the change, first come first
	heldTail uint32
	closing  int // tables that are being closed
}

func (e *epoch) init() { e.heldHead, e.heldTail = pool.None, pool.None }

// draw puts one more into the current generation.
func (e *epoch) draw() uint8 {
	e.inside[e.parity]++
	return e.parity
}

func (e *epoch) leave(b *Block, parity uint8) {
	invariant.That(e.inside[parity] > 0, "who leaves an epoch has drawn it")
	e.inside[parity]--
	e.confirm(b)
}

// confirm answers the change when nothing of the old epoch is left.
func (e *epoch) confirm(b *Block) {
	if !e.waiting || e.inside[e.parity^1] != 0 {
		return
	}
	e.waiting = false
	c := kernel.Send[signal.EpochConf](b.env, e.asker, b.self, signal.NumEpochCommitConf)
	c.GCI = e.gci
}

func (e *epoch) hold(b *Block, i uint32) {
	b.txs.At(i).heldNext = pool.None
	if e.heldTail == pool.None {
		e.heldHead = i
	} else {
		b.txs.At(e.heldTail).heldNext = i
	}
	e.heldTail = i
}

func (e *epoch) unhold(b *Block, i uint32) {
	prev := pool.None
	for x := e.heldHead; x != pool.None; prev, x = x, b.txs.At(x).heldNext {
		if x != i {
			continue
		}
		next := b.txs.At(x).heldNext
		if prev == pool.None {
			e.heldHead = next
		} else {
			b.txs.At(prev).heldNext = next
		}
		if next == pool.None {
			e.heldTail = prev
		}
		return
	}
	invariant.That(false, "a held transaction is in the list")
}

func (b *Block) onEpochPrepareReq(r *signal.EpochReq) {
	e := &b.epoch
	invariant.That(!e.prepared && !e.waiting, "one epoch change at a time")
	invariant.That(signal.JoinGCI(r.GCI) > signal.JoinGCI(e.gci), "epochs grow")
	e.prepared = true
	gci := r.GCI
	c := kernel.Send[signal.EpochConf](b.env, r.From, b.self, signal.NumEpochPrepareConf)
	c.GCI = gci
}

func (b *Block) onEpochCommitReq(r *signal.EpochReq) {
	e := &b.epoch
	invariant.That(e.prepared, "an epoch change is prepared before it is committed")
	e.gci, e.prepared = r.GCI, false
	e.parity ^= 1
	invariant.That(e.inside[e.parity] == 0, "the generation before the last one is empty")
	e.waiting, e.asker = true, r.From
	for i := e.heldHead; i != pool.None; {
		t := b.txs.At(i)
		next := t.heldNext
		t.heldNext = pool.None
		b.commit(i, t)
		i = next
	}
	e.heldHead, e.heldTail = pool.None, pool.None
	e.confirm(b)
}
