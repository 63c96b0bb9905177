package distribution

// This node's part in a change of the epoch:
//
//	president's distribution --EpochPrepareReq--> distribution --EpochPrepareReq--> each tc and ldm of the node
//	president's distribution <--EpochPrepareConf-- distribution <--EpochPrepareConf-- each tc and ldm
//	and the same with EpochCommitReq and EpochCommitConf
//
// | signal           | resting            | preparing       | prepared       | committing      |
// | EpochPrepareReq  | send on, or answer | answer at its end | answer       | answer          |
// | PrepareConf      | never              | count           | never          | never           |
// | EpochCommitReq   | answer             | never           | send on        | answer at its end |
// | CommitConf       | never              | never           | never          | count           |
//
// All that is only answered comes from a new president, which runs the last one's change again. A request from a node
// that is not the president is stale in every state.

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// phase is where a change of the epoch is.
type phase uint8

const (
	// resting: no change is under way.
	resting phase = iota
	// preparing: the first round is out.
	preparing
	// prepared: this node has answered the first round. (The president's part has no such state.)
	prepared
	// committing: the second round is out.
	committing
	// asking: a new president has asked how far everybody is. (The node's part has no such state.)
	asking
)

// local is the node's part.
type local struct {
	state     phase
	gci       signal.GCI // newest that is committed here
	next      signal.GCI // newest that is prepared here
	owed      int        // answers of the node's coordinators and ldms that are missing
	abandoned bool       // the attempt to start was given up: end the change without the president
	part      uint32     // one of signal's Part constants
	done      bool       // a change has ended here since the node takes part
}

// fromPresident tells whether a request belongs to the present attempt.
func (b *Block) fromPresident(h *signal.Head) bool {
	if !b.begun() || h.From.Node() != b.view.President {
		b.Stale++
		return false
	}
	return true
}

func (b *Block) onEpochPrepareReq(r *signal.EpochReq) {
	if !b.fromPresident(&r.Head) {
		return
	}
	l, to := &b.local, signal.JoinGCI(r.GCI)
	l.part = signal.PartFull
	switch {
	case to == l.next && l.state == preparing: // answered when it is done
	case to == l.next:
		b.toPresident(signal.NumEpochPrepareConf)
	default:
		invariant.That(l.state == resting && to > l.next, "epochs grow, one at a time")
		l.next, l.state = to, preparing
		b.toAll(signal.NumEpochPrepareReq)
	}
}

func (b *Block) onEpochCommitReq(r *signal.EpochReq) {
	if !b.fromPresident(&r.Head) {
		return
	}
	l := &b.local
	invariant.That(l.state != preparing && l.next == signal.JoinGCI(r.GCI), "what was prepared is committed")
	switch l.state {
	case prepared:
		b.commitLocal()
	case resting:
		b.toPresident(signal.NumEpochCommitConf)
	}
}

func (b *Block) commitLocal() {
	b.local.state = committing
	b.local.gci = b.local.next
	b.toAll(signal.NumEpochCommitReq)
	e := kernel.Send[signal.EpochRep](b.env, signal.MakeAddr(b.env.Node(), signal.BlockManager, 0), b.self, signal.NumEpochRep)
	e.GCI = b.local.gci.Words()
}

// toAll sends a round to every coordinator and ldm of the node.
func (b *Block) toAll(num uint16) {
	for _, block := range [...]uint8{signal.BlockTC, signal.BlockLDM} {
		for i := range b.env.Instances(block) {
			r := kernel.Send[signal.EpochReq](b.env, signal.MakeAddr(b.env.Node(), block, uint16(i)), b.self, num)
			r.GCI = b.local.next.Words()
			b.local.owed++
		}
	}
	invariant.That(b.local.owed > 0, "a node has coordinators and ldms")
}

// onEpochConf counts an answer: of a member for the president's part, of an own block for the node's.
func (b *Block) onEpochConf(r *signal.EpochConf, round phase) {
	if r.From.Block() == signal.BlockDistribution {
		b.onMemberConf(r, round)
		return
	}
	l := &b.local
	invariant.That(l.state == round && l.owed > 0 && l.next == signal.JoinGCI(r.GCI), "an own block answers the round that is out")
	if l.owed--; l.owed > 0 {
		return
	}
	if round == preparing {
		l.state = prepared
		if l.abandoned {
			b.commitLocal()
			return
		}
		b.toPresident(signal.NumEpochPrepareConf)
		return
	}
	l.state = resting
	if !l.abandoned {
		l.done = true
		b.toPresident(signal.NumEpochCommitConf)
	}
	l.abandoned = false
	b.atRest()
}

func (b *Block) toPresident(num uint16) {
	c := kernel.Send[signal.EpochConf](b.env, signal.MakeAddr(b.view.President, signal.BlockDistribution, 0), b.self, num)
	c.GCI = b.local.next.Words()
}

// abandon ends what is under way without the president, because the start begins again. Nothing can have been drawn:
// clients are let in only at the end of a start.
func (b *Block) abandon() {
	l := &b.local
	e := kernel.Send[signal.EpochRep](b.env, signal.MakeAddr(b.env.Node(), signal.BlockMembership, 0), b.self, signal.NumEpochRep)
	e.GCI = max(l.gci, l.next).Words()
	switch l.state {
	case resting:
		b.atRest()
	case preparing, committing:
		l.abandoned = true
	case prepared:
		l.abandoned = true
		b.commitLocal()
	}
}
