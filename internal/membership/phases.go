package membership

// The phases of a start, led by the president:
//
//	president --PhaseReq--> all members --PhaseReq--> the block concerned --PhaseConf--> membership --PhaseConf--> president
//
// Phase 3 is distribution's, 4 the dictionary's, 5 distribution's again; 7 makes the node started. Phases without work
// take no round of their own: they are done when the one before them is.
//
// | signal                   | starting                       | leaving          | any other |
// | PhaseReq of the attempt  | run the phase                  | stale            | stale     |
// | PhaseConf of a member    | count, president; else stale   | stale            | count or stale |
// | PhaseConf of a block     | phase done                     | phase 0: count   | never     |

import (
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/version"
)

// phaseBlock is which block runs a phase; 0 = none.
var phaseBlock = [...]uint8{3: signal.BlockDistribution, 4: signal.BlockDictionary, 5: signal.BlockDistribution, 7: 0}

// phaseAfter is the round that follows one; 0 stands for the agreement.
var phaseAfter = [...]uint32{0: 3, 3: 4, 4: 5, 5: 7, 7: 0}

// phaseStarted is the round that lets clients in.
const phaseStarted = 7

// leader is the president's part in a start.
type leader struct {
	attempts uint32         // that this node has proposed in its life
	phase    uint32         // round that is out; 0 = the proposal itself
	waiting  signal.NodeSet // members whose answer is missing
}

func (b *Block) isPresident() bool { return b.president == b.node }

// heard counts a member's answer to the round that is out.
func (l *leader) heard(b *Block, n uint8) {
	if !l.waiting.Has(n) {
		b.Stale++
		return
	}
	l.waiting.Remove(n)
	if !l.waiting.Empty() {
		return
	}
	if l.phase = phaseAfter[l.phase]; l.phase == 0 {
		return
	}
	l.waiting = b.memberSet
	for _, m := range b.members {
		r := kernel.Send[signal.PhaseReq](b.env, peerAt(uint8(m.Node)), b.self, signal.NumPhaseReq)
		r.President, r.Attempt, r.Phase = uint32(b.node), b.attempt, l.phase
	}
}

func (b *Block) onStartConf(r *signal.StartConf) {
	if b.state != starting || !b.isPresident() || r.Attempt != b.attempt || b.lead.phase != 0 {
		b.Stale++
		return
	}
	b.lead.heard(b, r.From.Node())
}

func (b *Block) onStartRef(r *signal.StartConf) {
	if b.state != starting || !b.isPresident() || r.Attempt != b.attempt || b.lead.phase != 0 {
		b.Stale++
		return
	}
	b.leave()
}

// onPhaseReq runs a phase at the own node.
func (b *Block) onPhaseReq(r *signal.PhaseReq) {
	if b.state != starting || uint8(r.President) != b.president || r.Attempt != b.attempt {
		b.Stale++
		return
	}
	invariant.That(int(r.Phase) < len(phaseBlock) && r.Phase > b.phase, "phases come in order")
	if b.phase < 2 {
		b.phaseDone(2)
		b.report(event.PresidentElected, uint32(b.president))
		b.report(event.JoinAccepted, uint32(b.node), uint32(b.president), b.dynamicID)
	}
	if block := phaseBlock[r.Phase]; block != 0 {
		b.toPhase(block, b.president, b.attempt, r.Phase)
		return
	}
	invariant.That(r.Phase == phaseStarted, "a phase without a block is the last one")
	b.phaseDone(6)
	b.phaseDone(7)
	b.phaseDone(8)
	b.become(started)
	for n := b.links.Next(0); n != 0; n = b.links.Next(n) {
		if !b.memberSet.Has(n) && b.peers[n].known {
			b.refuseNewcomer(n)
		}
	}
	b.tellPeers()
	b.report(event.NDBStartCompleted, version.Number)
	b.confPhase(phaseStarted)
}

// toPhase makes a block of the own node run a phase.
func (b *Block) toPhase(block, president uint8, attempt, phase uint32) {
	r := kernel.Send[signal.PhaseReq](b.env, b.at(block), b.self, signal.NumPhaseReq)
	r.President, r.Attempt, r.Phase = uint32(president), attempt, phase
}

func (b *Block) confPhase(phase uint32) {
	c := kernel.Send[signal.PhaseConf](b.env, peerAt(b.president), b.self, signal.NumPhaseConf)
	c.President, c.Attempt, c.Phase, c.Code = uint32(b.president), b.attempt, phase, 0
}

// phaseDone notes that a phase is over at the own node.
func (b *Block) phaseDone(phase uint32) {
	b.phase = phase
	b.report(event.StartPhaseCompleted, phase, event.StartKindInitial)
	if b.state == starting {
		b.tellState()
	}
}

// onPhaseConf hears a member, or a block of the own node.
func (b *Block) onPhaseConf(r *signal.PhaseConf) {
	if r.From.Block() == signal.BlockMembership {
		if uint8(r.President) != b.node || !b.isPresident() || r.Attempt != b.attempt || r.Phase != b.lead.phase {
			b.Stale++
			return
		}
		b.lead.heard(b, r.From.Node())
		return
	}
	if r.Phase == 0 {
		invariant.That(b.state == leaving || b.state == failing || b.state == draining, "blocks forget an attempt when told to")
		if b.state == leaving {
			b.forgotten()
		}
		return
	}
	if b.state != starting || uint8(r.President) != b.president || r.Attempt != b.attempt {
		b.Stale++
		return
	}
	b.phaseDone(r.Phase)
	b.confPhase(r.Phase)
}
