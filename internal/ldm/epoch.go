package ldm

// Epochs at an ldm: the commit point of a one-shot write draws the epoch through the gate of package epoch, and waits
// while it is shut: during an epoch change, between the prepare and the
// commit of a view that lost members, and while the node does not know whether it is still in the cluster. A replica of a chain above the tail does not know which epoch the tail will draw: it enters the
// generation of the moment, and leaves when the answer has passed it.

import (
	"github.com/cohortdb/cohort/internal/epoch"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
)

type epochs struct {
	epoch.Gate
	head uint32 // one-shot writes that wait for the gate, first come first
	tail uint32
}

// park puts a one-shot at its commit point behind the end of the change.
func (e *epochs) park(b *Block, i uint32, o *operation) {
	o.wNext, o.wPrev = pool.None, pool.None
	if e.tail == pool.None {
		e.head = i
	} else {
		b.ops.At(e.tail).wNext = i
	}
	e.tail = i
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
	b.unparkAll()
	b.confirmEpoch()
}

// unparkAll lets one-shots at their commit point go on, if an epoch may be drawn.
func (b *Block) unparkAll() {
	if !b.epoch.Open() {
		return
	}
	i := b.epoch.head
	b.epoch.head, b.epoch.tail = pool.None, pool.None
	for i != pool.None {
		o := b.ops.At(i)
		next := o.wNext
		o.wNext = pool.None
		b.unpark(i, o)
		i = next
	}
}

// onGateOrd shuts the gate while the node does not know whether it is still in the cluster.
func (b *Block) onGateOrd(r *signal.GateOrd) {
	b.epoch.Distrust(r.Shut != 0)
	b.unparkAll()
}

// unpark takes a one-shot to its commit point.
func (b *Block) unpark(i uint32, o *operation) {
	if o.state == ready {
		o.state = holding
		b.commitOneShot(i, o, o.row(), b.epoch.GCI)
		return
	}
	invariant.That(o.state == parked, "who waits for an epoch is at its commit point")
	o.state = executing
	b.chainLink(i, o, signal.As[signal.PrepareReq]((*signal.Head)(o.stash)), false)
}
