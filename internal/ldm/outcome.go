package ldm

// Questions about outcomes: what became of a commit whose coordinator, or the primary of whose only write, was lost. The
// primary that the write would go to now knows, once nothing of lost members is left anywhere: a write without a coordinator
// may still be on its way here from a replica that has lost the one before it.
//
//	client --OutcomeReq--> ldm --OutcomeConf--> client        at once, or when it is settled
//
// | the lost member                | this replica        | answer                                       |
// | is still in the view           | any                 | waits for the next view                      |
// | is out, takeover not over      | primary             | waits until it is                            |
// | is out, takeover over          | primary             | committed, or not, and never will be         |
// | any                            | not primary         | elsewhere; so too when too many wait already |

import (
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// outcomeAsk is a question that waits.
type outcomeAsk struct {
	client    signal.Addr
	tx, seq   uint32
	node      uint8
	dynamicID uint32
	table     uint16
	frag      uint16
}

// maxAsks bounds the questions that wait. Whoever asks when there are so many asks again a little later, as it does when
// it has come to the wrong place.
const maxAsks = 4096

func (b *Block) onOutcomeReq(r *signal.OutcomeReq) {
	a := outcomeAsk{client: r.From, tx: r.Tx, seq: r.Seq, node: uint8(min(r.Node, 255)), dynamicID: r.DynamicID, table: r.Table, frag: r.Frag}
	switch {
	case b.answerOutcome(&a):
	case len(b.asks) >= maxAsks:
		b.outcomeConf(&a, signal.OutcomeElsewhere, [2]uint32{})
	default:
		b.env.Mark(kernel.MarkOutcomeHeld)
		b.asks = append(b.asks, a)
	}
}

// answerOutcome answers a question if that can be done now.
func (b *Block) answerOutcome(a *outcomeAsk) bool {
	f := b.fragment(uint32(a.table), uint32(a.frag))
	if f == nil || !f.primary {
		b.outcomeConf(a, signal.OutcomeElsewhere, [2]uint32{})
		return true
	}
	if m := b.view.Member(a.node); m != nil && m.DynamicID == a.dynamicID || b.takeoverOver < b.newestLoss {
		return false
	}
	if gci, known := b.outcomes.Find(a.client, a.seq); known {
		b.outcomeConf(a, signal.OutcomeCommitted, gci)
	} else {
		b.outcomeConf(a, signal.OutcomeNone, gci)
	}
	return true
}

func (b *Block) outcomeConf(a *outcomeAsk, known uint32, gci [2]uint32) {
	c := kernel.Send[signal.OutcomeConf](b.env, a.client, b.self, signal.NumOutcomeConf)
	c.Tx, c.Seq, c.Known, c.GCI = a.tx, a.seq, known, gci
}

// answerOutcomes answers what is settled by now.
func (b *Block) answerOutcomes() {
	n := 0
	for i := range b.asks {
		if a := &b.asks[i]; !b.answerOutcome(a) {
			b.asks[n] = *a
			n++
		}
	}
	b.asks = b.asks[:n]
}

// onTakeoverRep hears that nothing of members that were lost up to a view is left anywhere.
func (b *Block) onTakeoverRep(r *signal.TakeoverRep) {
	b.takeoverOver = max(b.takeoverOver, r.View)
	b.answerOutcomes()
}

// dropAsks forgets the questions of clients that hear no answer.
func (b *Block) dropAsks(of func(client signal.Addr) bool) {
	n := 0
	for _, a := range b.asks {
		if !of(a.client) {
			b.asks[n] = a
			n++
		}
	}
	b.asks = b.asks[:n]
}

func (b *Block) onCloseOrd(h *signal.Head) {
	b.outcomes.Forget(h.From)
	if len(b.asks) > 0 {
		from := h.From
		b.dropAsks(func(a signal.Addr) bool { return a == from })
	}
}
