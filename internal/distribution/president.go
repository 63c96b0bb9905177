package distribution

// The president's part in the epochs: when one ends, and who has answered. A timer of the epoch's length runs all the
// time; when it fires while a change is still under way, the next change begins as soon as that one has ended.

import (
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// leader is the president's part.
type leader struct {
	run        uint32 // of the engine: timers of an earlier one are stale; 0 = it does not run
	stale      uint32 // newest run of an attempt to start that was given up
	state      phase  // resting, asking, preparing or committing
	gci        signal.GCI
	next       signal.GCI
	parts      signal.NodeSet // members that take part in changes
	coming     signal.NodeSet // members that do from the next change on
	waiting    signal.NodeSet // members whose answer to the round is missing
	floor      signal.GCI     // newest that a node which joins has seen: epochs go on behind it
	began      int64          // when the change began
	checkpoint int64          // when the newest global checkpoint began
	due        bool           // the next change begins when this one has ended
	reportAt   int64          // how long the change may take until that is reported; doubles
	gaveUp     bool           // membership was told that a node lags
	asked      uint32         // view in which the members were asked how far they are
	again      bool           // the change to the newest epoch has to be run again, …
	pulled     bool           // … and some are in an older one
}

// lagMin is the shortest time after which a slow change is reported, nanoseconds: a busy machine may stop a process
// for a moment.
const lagMin = 1_000_000_000

// interval is how often the epoch changes.
func (b *Block) interval() int64 {
	if b.cfg.EpochInterval == 0 {
		return b.cfg.CheckpointInterval
	}
	return min(b.cfg.EpochInterval, b.cfg.CheckpointInterval)
}

// begin starts the engine with the first epoch.
func (b *Block) begin() {
	b.startEngine()
	b.lead.parts = b.view.Set()
	b.change(b.first)
}

func (b *Block) startEngine() {
	b.lead = leader{run: max(b.lead.run, b.lead.stale) + 1}
	b.env.Tick(b.self, b.interval(), tickEpoch, b.lead.run, 0)
}

// nextChange begins the change to the following epoch. Members that join take part from it on.
func (b *Block) nextChange() {
	l := &b.lead
	to := b.following()
	for n := l.coming.Next(0); n != 0; n = l.coming.Next(n) {
		l.parts.Add(n)
	}
	l.coming = signal.NodeSet{}
	b.change(to)
}

// change begins a change of the epoch.
func (b *Block) change(to signal.GCI) {
	l := &b.lead
	invariant.That(to > l.gci && (l.state == asking || l.state == resting && !b.over.holds()), "epochs grow, one at a time, none new during a takeover")
	l.next, l.due, l.gaveUp = to, false, false
	l.began = b.env.Now()
	l.reportAt = max(lagMin, 4*b.interval())
	if uint32(to) == 0 {
		l.checkpoint = l.began
		b.report(event.GlobalCheckpointStarted, uint32(to>>32))
	}
	b.round(preparing, signal.NumEpochPrepareReq)
}

// round sends one of the two rounds to all members that take part.
func (b *Block) round(state phase, num uint16) {
	l := &b.lead
	l.state, l.waiting = state, l.parts
	for n := l.parts.Next(0); n != 0; n = l.parts.Next(n) {
		r := kernel.Send[signal.EpochReq](b.env, signal.MakeAddr(n, signal.BlockDistribution, 0), b.self, num)
		r.GCI = l.next.Words()
	}
}

// onMemberConf counts a member's answer. One to an earlier engine is stale.
func (b *Block) onMemberConf(r *signal.EpochConf, round phase) {
	l := &b.lead
	n := r.From.Node()
	if l.state != round || l.next != signal.JoinGCI(r.GCI) || !l.waiting.Has(n) {
		b.Stale++
		return
	}
	l.waiting.Remove(n)
	b.roundOver()
}

// roundOver goes on when nobody's answer is missing. The second round does not end before the end of a takeover.
func (b *Block) roundOver() {
	l := &b.lead
	if !l.waiting.Empty() {
		return
	}
	switch {
	case l.state == asking:
		b.resume()
	case l.state == preparing:
		b.round(committing, signal.NumEpochCommitReq)
	case l.state == committing && b.over.holds():
		b.env.Mark(kernel.MarkEpochHeld)
	case l.state == committing:
		l.state, l.gci = resting, l.next
		if uint32(l.gci) == 0 {
			b.report(event.GlobalCheckpointCompleted, uint32(l.gci>>32))
		}
		if l.due {
			b.nextChange()
		}
	}
}

// following is the epoch after the present one: a micro one, or the first of the next global checkpoint.
func (b *Block) following() signal.GCI {
	l := &b.lead
	newest := max(l.gci, l.floor)
	if b.cfg.EpochInterval == 0 || newest > l.gci || b.env.Now()-l.checkpoint >= b.cfg.CheckpointInterval {
		return (newest>>32 + 1) << 32
	}
	return newest + 1
}

// onEpochDue hears that an epoch has lasted long enough.
func (b *Block) onEpochDue() {
	l := &b.lead
	b.env.Tick(b.self, b.interval(), tickEpoch, l.run, 0)
	switch {
	case l.state == resting && !b.over.holds():
		b.nextChange()
	case b.over.holds() || l.state == asking:
		l.due = true
	default:
		l.due = true
		b.lag()
	}
}

// lag reports a change that takes long, and in the end tells membership: a node that cannot finish an epoch holds up
// every commit (first round) or everything that builds on finished epochs (second round).
func (b *Block) lag() {
	l := &b.lead
	waited := b.env.Now() - l.began
	limit := b.cfg.EpochTimeout
	if limit == 0 {
		limit = b.cfg.CheckpointTimeout
	}
	millis := uint32(waited / 1_000_000)
	if waited >= l.reportAt {
		l.reportAt *= 2
		for n := l.waiting.Next(0); n != 0; n = l.waiting.Next(n) {
			b.report(event.EpochLag, uint32(l.next>>32), uint32(l.next), millis, uint32(n))
		}
	}
	if limit > 0 && waited >= limit && !l.gaveUp {
		l.gaveUp = true
		r := kernel.Send[signal.LagRep](b.env, signal.MakeAddr(b.env.Node(), signal.BlockMembership, 0), b.self, signal.NumLagRep)
		r.Node, r.GCI, r.Millis = uint32(l.waiting.Next(0)), l.next.Words(), millis
	}
}

func (l *leader) invariants(b *Block) {
	members := b.view.Set()
	switch {
	case l.run == 0 && l.state != resting, l.run != 0 && !b.isPresident():
		invariant.Failf("the epochs are led by node %d, who is not president", b.env.Node())
	case !members.Covers(&l.parts) || !members.Covers(&l.coming) || !members.Covers(&l.waiting):
		invariant.Failf("the epochs wait for a stranger")
	case l.state != resting && l.waiting.Empty() && !(l.state == committing && b.over.holds()):
		invariant.Failf("a change of the epoch waits for nobody")
	}
}
