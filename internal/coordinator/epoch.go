package coordinator

// Epochs: a transaction draws its epoch at its commit point, through the gate of package epoch; it leaves when it is
// complete. While the gate is shut, for whatever reason, transactions that are to commit are held, first come first.

import (
	"github.com/cohortdb/cohort/internal/epoch"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
)

type epochs struct {
	epoch.Gate
	heldHead uint32 // transactions that wait for the gate, first come first
	heldTail uint32
}

func (e *epochs) hold(b *Block, i uint32) {
	b.txs.At(i).heldNext = pool.None
	if e.heldTail == pool.None {
		e.heldHead = i
	} else {
		b.txs.At(e.heldTail).heldNext = i
	}
	e.heldTail = i
}

func (e *epochs) unhold(b *Block, i uint32) {
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
	b.epoch.Prepare(r)
	to, gci := r.From, r.GCI
	kernel.Send[signal.EpochConf](b.env, to, b.self, signal.NumEpochPrepareConf).GCI = gci
}

// leaveEpoch says that what entered is complete here.
func (b *Block) leaveEpoch(parity uint8) {
	b.epoch.Leave(parity)
	b.confirmEpoch()
}

// confirmEpoch confirms the change of the epoch when that is due.
func (b *Block) confirmEpoch() {
	if to, due := b.epoch.Due(); due {
		kernel.Send[signal.EpochConf](b.env, to, b.self, signal.NumEpochCommitConf).GCI = b.epoch.GCI
	}
}

func (b *Block) onEpochCommitReq(r *signal.EpochReq) {
	b.epoch.Commit(r)
	b.letGo()
	b.confirmEpoch()
}

// letGo commits what waited for the gate, if that is open now.
func (b *Block) letGo() {
	e := &b.epoch
	if !e.Open() {
		return
	}
	i := e.heldHead
	e.heldHead, e.heldTail = pool.None, pool.None
	for i != pool.None {
		t := b.txs.At(i)
		next := t.heldNext
		t.heldNext = pool.None
		b.commit(i, t)
		i = next
	}
}

func (b *Block) onGateOrd(r *signal.GateOrd) {
	b.epoch.Distrust(r.Shut != 0)
	b.letGo()
}
