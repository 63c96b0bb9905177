package membership

// The phases of a start, led by the president:
//
//	president --PhaseReq--> all members --PhaseReq--> the block concerned --PhaseConf--> membership --PhaseConf--> president
//
// Phase 3 is distribution's, 4 the dictionary's, 5 distribution's again; 7 makes the node started. Phases without work
// take no round of their own: they are done when the one before them is. A node that joins a running cluster does the
// same alone, phase 3 apart and with phase 6, its distribution's too, in which it copies its data (join.go).
//
// | signal                   | starting                       | leaving          | joining                 | any other |
// | PhaseReq of the attempt  | run the phase                  | stale            | run, or say that it is done | done (7), or stale |
// | PhaseConf of a member    | count, president; else stale   | stale            | stale                   | join.go, or stale |
// | PhaseConf of a block     | phase done                     | phase 0: count   | phase done, or the end  | never     |

import (
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/version"
)

// phaseBlock is which block runs a phase; 0 = none.
var phaseBlock = [...]uint8{3: signal.BlockDistribution, 4: signal.BlockDictionary, 5: signal.BlockDistribution,
	6: signal.BlockDistribution, 7: 0}

// phaseAfter is the round that follows one at a start of all; 0 stands for the agreement.
var phaseAfter = [...]uint32{0: 3, 3: 4, 4: 5, 5: 7, 7: 0}

const (
	phaseDictionary = 4
	// phaseEpochs is the last phase before anybody may serve clients.
	phaseEpochs = 5
	phaseCopy   = 6
	// phaseStarted is the round that lets clients in.
	phaseStarted = 7
)

// starter is the president's part in a start of all.
type starter struct {
	attempts uint32         // that this node has proposed in its life
	phase    uint32         // round that is out; 0 = the proposal itself
	waiting  signal.NodeSet // members whose answer is missing
}

// heard counts a member's answer to the round that is out.
func (l *starter) heard(b *Block, n uint8) {
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
	l.waiting = b.view.Set()
	for _, m := range b.view.Members {
		b.phaseReq(peerAt(uint8(m.Node)), b.attempt, l.phase)
	}
}

func (b *Block) phaseReq(to signal.Addr, attempt, phase uint32) {
	r := kernel.Send[signal.PhaseReq](b.env, to, b.self, signal.NumPhaseReq)
	r.President, r.Attempt, r.Phase = uint32(b.view.President), attempt, phase
}

func (b *Block) onStartConf(r *signal.StartConf) {
	if b.state != starting || !b.isPresident() || r.Attempt != b.attempt || b.begin.phase != 0 {
		b.Stale++
		return
	}
	b.begin.heard(b, r.From.Node())
}

func (b *Block) onStartRef(r *signal.StartConf) {
	if b.state != starting || !b.isPresident() || r.Attempt != b.attempt || b.begin.phase != 0 {
		b.Stale++
		return
	}
	b.giveUp()
}

// onPhaseReq runs a phase at the own node.
func (b *Block) onPhaseReq(r *signal.PhaseReq) {
	if uint8(r.President) != b.view.President || r.From.Node() != b.view.President {
		b.Stale++
		return
	}
	switch {
	case b.state == starting && r.Attempt == b.attempt && r.Phase > b.phase:
		invariant.That(int(r.Phase) < len(phaseBlock) && r.Phase != phaseCopy, "a start of all has its phases")
		if b.phase < 2 {
			b.phaseDone(2)
			b.report(event.PresidentElected, uint32(b.view.President))
			b.report(event.JoinAccepted, uint32(b.node), uint32(b.view.President), b.dynamicID())
		}
	case b.state == joining:
		b.attempt = r.Attempt // whoever is president now waits for the answer
		if r.Phase <= b.phase {
			b.confPhase(r.Phase)
			return
		}
		if r.Phase == b.join.running {
			return
		}
		invariant.That(b.join.running == 0 && int(r.Phase) < len(phaseBlock), "a node that joins does one phase after the other")
	case b.state == started || b.state == stopping: // a new president does not know
		b.attempt = r.Attempt
		b.confPhase(r.Phase)
		return
	default:
		b.Stale++
		return
	}
	if block := phaseBlock[r.Phase]; block != 0 {
		b.join.running = r.Phase
		b.phaseReq(b.at(block), b.attempt, r.Phase)
		return
	}
	invariant.That(r.Phase == phaseStarted, "a phase without a block is the last one")
	b.serve()
	b.confPhase(phaseStarted)
}

// serve lets clients in.
func (b *Block) serve() {
	for p := b.phase + 1; p <= 8; p++ {
		b.phaseDone(p)
	}
	b.begin.waiting = signal.NodeSet{}
	b.become(started)
	b.tellPeers()
	b.report(event.NDBStartCompleted, version.Number)
	if b.view.Number == 1 {
		b.taken = 1
		b.join.begin(1)
	}
	b.newPing()
	b.beat()
	b.elect()
	b.act()
}

func (b *Block) confPhase(phase uint32) {
	c := kernel.Send[signal.PhaseConf](b.env, peerAt(b.view.President), b.self, signal.NumPhaseConf)
	c.President, c.Attempt, c.Phase, c.Code = uint32(b.view.President), b.attempt, phase, 0
}

// phaseDone notes that a phase is over at the own node.
func (b *Block) phaseDone(phase uint32) {
	b.phase = phase
	kind := uint32(event.StartKindInitial)
	if b.state == joining {
		kind = event.StartKindInitialNode
	}
	b.report(event.StartPhaseCompleted, phase, kind)
	if b.state == starting || b.state == joining {
		b.tellState()
	}
}

// onPhaseConf hears a member, or a block of the own node.
func (b *Block) onPhaseConf(r *signal.PhaseConf) {
	switch {
	case r.From.Block() == signal.BlockMembership && b.state == starting:
		if uint8(r.President) != b.node || !b.isPresident() || r.Attempt != b.attempt || r.Phase != b.begin.phase {
			b.Stale++
			return
		}
		b.begin.heard(b, r.From.Node())
	case r.From.Block() == signal.BlockMembership:
		b.onJoinPhase(r)
	case r.Phase == 0:
		invariant.That(b.state == leaving || b.state == draining, "blocks forget an attempt when told to")
		if b.state == leaving {
			b.forgotten()
		}
	case b.state != starting && b.state != joining, b.state == starting && r.Attempt != b.attempt, r.Phase != b.join.running:
		b.Stale++
	case r.Code != 0:
		b.exit(exitcode.JoinFailed, signal.StopRestart, "start phase "+number(r.Phase)+" failed with error "+number(r.Code)+
			" (perror tells what it means); the node starts again")
	default:
		b.join.running = 0
		b.phaseDone(r.Phase)
		b.confPhase(r.Phase)
		b.heardChanged() // from now on others may rely on it
	}
}
