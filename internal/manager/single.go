package manager

// Single user mode: the manager hands a management server's wish to membership, which makes it part of the view, and
// carries out what the view says.
//
//	mgm --SingleReq--> manager --SingleOrd--> membership            the wish
//	membership --SingleOrd--> manager --SingleOrd / SingleConf--> each tc and ldm; manager --SingleConf--> mgm
//
// A wish is answered when nothing of other clients is open at the node; one that another one has overtaken is refused.

import (
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// singleMax is how many questions wait.
const singleMax = 64

// Codes of a SingleConf.
const (
	codeStopping = 280  // the node stops
	codeNotYet   = 4035 // the node does not serve yet, or too many questions wait
	codeOther    = 299  // the mode was changed in another way meanwhile
)

// singleAsker waits for the mode to hold at the node.
type singleAsker struct {
	from signal.Addr
	ref  uint32
	node uint32
	seen uint32 // newest order to the blocks when it asked
}

// single is what is under way.
type single struct {
	node   uint32 // the only client that is let in, as the view says; 0 = all are
	ref    uint32 // of the newest SingleOrd to the blocks
	owed   int    // blocks that have not answered it
	askers []singleAsker
}

// forget drops the questions of a management server that is gone.
func (s *single) forget(n uint8) {
	kept := s.askers[:0]
	for _, a := range s.askers {
		if a.from.Node() != n {
			kept = append(kept, a)
		}
	}
	s.askers = kept
}

func (b *Block) onSingleReq(r *signal.SingleReq) {
	a := singleAsker{r.From, r.Ref, r.Node, b.single.ref}
	switch {
	case b.state.State == signal.StateStopping:
		b.singleConf(a, codeStopping)
	case b.state.State != signal.StateStarted && b.state.State != signal.StateSingleUser, r.Node > 255, len(b.single.askers) == singleMax:
		b.singleConf(a, codeNotYet)
	default:
		b.single.askers = append(b.single.askers, a)
		o := kernel.Send[signal.SingleOrd](b.env, signal.MakeAddr(b.env.Node(), signal.BlockMembership, 0), b.self, signal.NumSingleOrd)
		o.Ref, o.Node = 0, a.node
	}
}

func (b *Block) singleConf(a singleAsker, code uint32) {
	c := kernel.Send[signal.SingleConf](b.env, a.from, b.self, signal.NumSingleConf)
	c.Ref, c.Code = a.ref, code
}

// onSingleOrd hears from membership what the view says.
func (b *Block) onSingleOrd(r *signal.SingleOrd) {
	s := &b.single
	s.node, s.owed = r.Node, 0
	s.ref++
	for _, block := range [...]uint8{signal.BlockTC, signal.BlockLDM} {
		for i := range b.env.Instances(block) {
			o := kernel.Send[signal.SingleOrd](b.env, signal.MakeAddr(b.env.Node(), block, uint16(i)), b.self, signal.NumSingleOrd)
			o.Ref, o.Node = s.ref, s.node
			s.owed++
		}
	}
}

// onSingleConf hears that nothing of others is left at a block.
func (b *Block) onSingleConf(r *signal.SingleConf) {
	s := &b.single
	if r.Ref != s.ref || s.owed == 0 {
		return // of an order that another one has overtaken
	}
	if s.owed--; s.owed > 0 {
		return
	}
	kept := s.askers[:0]
	for _, a := range s.askers {
		switch {
		case a.node == s.node:
			b.singleConf(a, 0)
		case s.ref > a.seen+1:
			b.singleConf(a, codeOther)
		default: // its turn is still to come
			kept = append(kept, a)
		}
	}
	s.askers = kept
}
