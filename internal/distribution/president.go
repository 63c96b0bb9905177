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
	run        uint32 // of the engine: timers of an earlier one are stale
	state      phase  // resting, preparing or committing
	gci        signal.GCI
	next       signal.GCI
	waiting    signal.NodeSet // members whose answer to the round is missing
	began      int64          // when the change began
	checkpoint int64          // when the newest global checkpoint began
	due        bool           // the next change begins when this one has ended
	reportAt   int64          // how long the change may take until that is reported; doubles
	gaveUp     bool           // membership was told that a node lags
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
	b.lead = leader{run: b.lead.run + 1}
	b.env.Tick(b.self, b.interval(), tickEpoch, b.lead.run, 0)
	b.change(b.first)
}

// change begins a change of the epoch.
func (b *Block) change(to signal.GCI) {
	l := &b.lead
	invariant.That(l.state == resting && to > l.gci, "epochs grow, one at a time")
	l.next, l.due, l.gaveUp = to, false, false
	l.began = b.env.Now()
	l.reportAt = max(lagMin, 4*b.interval())
	if uint32(to) == 0 {
		l.checkpoint = l.began
		b.report(event.GlobalCheckpointStarted, uint32(to>>32))
	}
	b.round(preparing, signal.NumEpochPrepareReq)
}

// round sends one of the two rounds to all members.
func (b *Block) round(state phase, num uint16) {
	l := &b.lead
	l.state = state
	for _, m := range b.view.Members {
		l.waiting.Add(uint8(m.Node))
		r := kernel.Send[signal.EpochReq](b.env, signal.MakeAddr(uint8(m.Node), signal.BlockDistribution, 0), b.self, num)
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
	if !l.waiting.Empty() || b.stopped {
		return
	}
	if round == preparing {
		b.round(committing, signal.NumEpochCommitReq)
		return
	}
	l.state, l.gci = resting, l.next
	if uint32(l.gci) == 0 {
		b.report(event.GlobalCheckpointCompleted, uint32(l.gci>>32))
	}
	if l.due {
		b.change(b.following())
	}
}

// following is the epoch after the present one: a micro one, or the first of the next global checkpoint.
func (b *Block) following() signal.GCI {
	l := &b.lead
	if b.cfg.EpochInterval == 0 || b.env.Now()-l.checkpoint >= b.cfg.CheckpointInterval {
		return (l.gci>>32 + 1) << 32
	}
	return l.gci + 1
}

// onEpochDue hears that an epoch has lasted long enough.
func (b *Block) onEpochDue() {
	l := &b.lead
	if b.stopped {
		return
	}
	b.env.Tick(b.self, b.interval(), tickEpoch, l.run, 0)
	if l.state == resting {
		b.change(b.following())
		return
	}
	l.due = true
	b.lag()
}

// lag reports a change that takes long, and in the end asks membership to stop the cluster: a node that cannot finish
// an epoch holds up every commit (first round) or everything that builds on finished epochs (second round).
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

func (b *Block) report(t event.Type, args ...uint32) {
	e := event.New(b.env.Node(), t, args...)
	b.env.Report(b.self, &e)
}
