package coordinator_test

import (
	"slices"
	"testing"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// TestRandomReturns is TestRandomFailures in which nodes come back with nothing, copy their fragments under the load, and
// serve again, until they are killed again, in the middle of that too.
func TestRandomReturns(t *testing.T) {
	marks := runLoads(t, []shape{{2, 2, 1, 1, 1, 1}, {2, 2, 2, 2, 2, 1}, {4, 2, 2, 2, 1, 2}, {3, 3, 2, 1, 2, 2}, {4, 4, 1, 1, 1, 2}}, true)
	if t.Failed() || testing.Short() || *seeds != 0 {
		return
	}
	for _, m := range []kernel.Mark{kernel.MarkGhost, kernel.MarkCopyLater, kernel.MarkCopyLaterSent, kernel.MarkCopyLaterGone, kernel.MarkTakeoverMixed} {
		if !marks.Has(m) {
			t.Errorf("no run came to the place %q", m)
		}
	}
}

// comingBack is the node that comes back, and how far it is.
type comingBack struct {
	returns bool
	left    kernel.Marks // that nodes had reached which were killed and have come back
	joined  uint32       // nodes that have come back so far
	back    uint8        // 0 = none
	created bool         // it has the view and its table
	copies  int          // its ldms that copy
	copied  bool
	failed  bool
}

// serves tells whether a node lives and has its data.
func (l *load) serves(n uint8) bool { return !l.sites[n][0].dead && l.view.Serving(n) }

// comeBack takes a dead node a step further on its way back.
func (l *load) comeBack() {
	if l.stage != steady || l.phase != 0 || l.away() {
		return
	}
	n := l.back
	switch {
	case n == 0:
		for n = 1; int(n) <= l.shape.nodes && (!l.sites[n][0].dead || !l.lost[n] || l.view.Has(n)); n++ {
		}
		if int(n) <= l.shape.nodes {
			l.rises(n)
		}
	case l.failed:
		l.endNode(n)
	case l.copied:
		ms := slices.Clone(l.view.Members)
		for i := range ms {
			if ms[i].Node == uint32(n) {
				ms[i].State = signal.MemberFollowing
			}
		}
		l.begins(ms)
	case l.created && l.copies == 0 && l.dist[n].done[1] == l.gci:
		for k := range l.shape.ldms {
			l.copies++
			kernel.Send[signal.CopyStartReq](l.sites[n][0].env, signal.MakeAddr(n, signal.BlockLDM, uint16(k)), distribution(n), signal.NumCopyStartReq).Ref = 0
		}
	}
}

// rises starts a dead node anew, with nothing.
func (l *load) rises(n uint8) {
	for _, k := range l.pairs {
		if k[0]>>8 == int(n) || k[1]>>8 == int(n) {
			l.queues[k] = nil
		}
	}
	for p := range l.rows {
		if p.replica.Node() == n {
			delete(l.rows, p)
		}
	}
	for _, s := range l.sites[n] {
		l.left.Add(s.env.Marks())
	}
	now := l.sites[l.alive()[0]][0].env.Now()
	l.sites[n] = l.newNode(n, false)
	for _, s := range l.sites[n] {
		s.env.SetNow(now)
	}
	l.lost[n], l.dist[n] = false, dist{}
	l.joined++
	l.comingBack = comingBack{returns: l.returns, joined: l.joined, left: l.left, back: n}
	l.begins(append(slices.Clone(l.view.Members), signal.Member{Node: uint32(n), DynamicID: 100 + l.joined,
		Group: uint32(int(n)-1) / uint32(l.shape.replicas), LDMs: uint32(l.shape.ldms), TCs: uint32(l.shape.tcs), State: signal.MemberRecovering}))
}

// toldNewcomer follows a round of a change of the view at the node that comes back.
func (l *load) toldNewcomer(n uint8, num uint16) {
	if n != l.back || num != signal.NumViewCommitReq {
		return
	}
	if !l.created {
		l.created = true
		l.createAt(n)
	}
	if l.next.Serving(n) {
		l.comingBack = comingBack{returns: l.returns, joined: l.joined, left: l.left}
	}
}

// onCopied hears that an ldm of the node that comes back has all its fragments, or cannot have them.
func (l *load) onCopied(c *signal.CopyStartConf) {
	n := c.From.Node()
	if n != l.back {
		return
	}
	if c.Code != 0 {
		l.failed = true
	}
	l.copies--
	l.copied = l.copies == 0
}
