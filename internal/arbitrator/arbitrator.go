// Package arbitrator decides which part of a divided cluster goes on [the arbitrator thread of NDB's API].
//
// When a cluster falls into two parts that are equally good, neither can know whether the other lives. So the president
// picks, while all is well, somebody outside the data nodes (a management server or a client) and leaves a ticket with
// it; every member knows the ticket. A part that may not go on by itself shows the ticket, and the first one wins.
//
//	president --ArbitStartReq--> arbitrator --ArbitStartConf--> president     a new ticket for each view
//	leader of a part --ArbitChooseReq--> arbitrator --ArbitChooseConf|Ref--> leader
//
// A Block is the arbitrator of one process, whichever runtime that has. It owns one ticket and who has won it. It never
// picks itself, knows no members, keeps nothing on disk: one that was started anew knows no ticket and refuses.
//
// Invariants: of one view at most one part wins, whatever tickets there were in it: once a ticket was used, no other of
// the same view is taken, and those of later views only from the part that won. Tickets of a run only get newer. The winner may ask again (its answer may have been lost) and
// hears the same.
//
// Read next: signal's arbitration.go; package view for which parts need a ticket; membership, which asks.
package arbitrator

import (
	"fmt"
	"strings"

	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// Config is what the block is made with.
type Config struct {
	// Delay between a request for a decision and the answer, nanoseconds (ArbitrationDelay). The decision is made when
	// the request comes.
	Delay int64
	// Tell is called with each thing that an operator might want to know, in words; nil: nobody is told.
	Tell func(text string)
}

// maxWaiting bounds the answers that wait for Config.Delay: beyond it they are given at once.
const maxWaiting = 2 * signal.MaxDataNode

// ticket is what the arbitrator was left with.
type ticket struct {
	run    [2]uint32
	view   uint32
	turn   uint32
	ticket [2]uint32
}

// answer waits for its time. All wait equally long, so they keep their order.
type answer struct {
	to      signal.Addr
	attempt uint32
	code    uint32
}

// Block is the arbitrator of one process.
type Block struct {
	env     *kernel.Env
	cfg     Config
	self    signal.Addr
	known   ticket // zero run: none yet
	used    bool
	winner  signal.NodeSet
	waiting []answer
}

// New makes the block; its address (instance 0) must be placed.
func New(env *kernel.Env, cfg Config) *Block {
	if cfg.Tell == nil {
		cfg.Tell = func(string) {}
	}
	return &Block{env: env, cfg: cfg, self: signal.MakeAddr(env.Node(), signal.BlockArbitrator, 0)}
}

// Deliver executes one signal.
func (b *Block) Deliver(h *signal.Head) {
	switch h.Num {
	case signal.NumArbitStartReq:
		b.onArbitStartReq(signal.As[signal.ArbitStartReq](h))
	case signal.NumArbitChooseReq:
		b.onArbitChooseReq(signal.As[signal.ArbitChooseReq](h))
	case signal.NumTickOrd:
		b.onTick()
	default:
		invariant.Failf("the arbitrator has no handler for %s", signal.Format(h))
	}
}

func (b *Block) onArbitStartReq(r *signal.ArbitStartReq) {
	next := ticket{r.Run, r.View, r.Turn, r.Ticket}
	code := b.start(&next, r.From.Node())
	if code != 0 {
		b.env.Mark(kernel.MarkTicketNotTaken)
	}
	c := kernel.Send[signal.ArbitStartConf](b.env, r.From, b.self, signal.NumArbitStartConf)
	c.View, c.Turn, c.Code, c.Node, c.Ticket = r.View, r.Turn, code, uint32(b.env.Node()), r.Ticket
}

// start takes a ticket, or says why not.
func (b *Block) start(next *ticket, from uint8) uint32 {
	switch k := &b.known; {
	case next.run != k.run:
		if k.run != [2]uint32{} {
			b.cfg.Tell("the cluster runs anew: arbitration begins again")
		} else {
			b.cfg.Tell(fmt.Sprintf("arbitrator from view %d on", next.view))
		}
	case *next == *k:
		return 0 // asked again: whether it was used stays as it is
	case next.view < k.view, next.view == k.view && next.turn <= k.turn:
		return signal.ArbitRefOld
	case b.used && (next.view == k.view || !b.winner.Has(from)):
		return signal.ArbitRefUsed // it was sent before its sender knew that the cluster was cut
	}
	b.known, b.used, b.winner = *next, false, signal.NodeSet{}
	return 0
}

func (b *Block) onArbitChooseReq(r *signal.ArbitChooseReq) {
	asked := ticket{r.Run, r.View, r.Turn, r.Ticket}
	code := uint32(0)
	switch {
	case asked != b.known || !r.Part.Has(r.From.Node()):
		code = signal.ArbitRefUnknown
		b.env.Mark(kernel.MarkTicketUnknown)
		b.cfg.Tell(fmt.Sprintf("node %d shows a ticket of view %d that is not known here: refused", r.From.Node(), r.View))
	case !b.used:
		b.used, b.winner = true, r.Part
		b.cfg.Tell(fmt.Sprintf("%s may go on without the other members of view %d", names(&r.Part), r.View))
	case b.winner != r.Part:
		code = signal.ArbitRefUsed
		b.env.Mark(kernel.MarkTicketUsed)
		b.cfg.Tell(fmt.Sprintf("%s may not go on: %s won view %d", names(&r.Part), names(&b.winner), r.View))
	}
	a := answer{r.From, r.Attempt, code}
	if b.cfg.Delay <= 0 || len(b.waiting) >= maxWaiting {
		b.reply(a)
		return
	}
	b.waiting = append(b.waiting, a)
	b.env.Tick(b.self, b.cfg.Delay, 0, 0, 0)
}

// onTick gives the oldest of the answers that wait.
func (b *Block) onTick() {
	invariant.That(len(b.waiting) > 0, "each timer has an answer")
	a := b.waiting[0]
	b.waiting = append(b.waiting[:0], b.waiting[1:]...)
	b.reply(a)
}

func (b *Block) reply(a answer) {
	num := signal.NumArbitChooseConf
	if a.code != 0 {
		num = signal.NumArbitChooseRef
	}
	c := kernel.Send[signal.ArbitChooseConf](b.env, a.to, b.self, num)
	c.Attempt, c.Code = a.attempt, a.code
}

// names lists the nodes of a part.
func names(part *signal.NodeSet) string {
	var s strings.Builder
	for n := part.Next(0); n != 0; n = part.Next(n) {
		if s.Len() > 0 {
			s.WriteString(", ")
		}
		fmt.Fprintf(&s, "%d", n)
	}
	if part.Count() == 1 {
		return "node " + s.String()
	}
	return "nodes " + s.String()
}

// Invariants fails when the block contradicts itself.
func (b *Block) Invariants() {
	invariant.That(b.used == !b.winner.Empty(), "who uses a ticket is a part")
	invariant.That(len(b.waiting) <= maxWaiting, "the answers that wait are bounded")
}
