package coordinator_test

import (
	"slices"
	"testing"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/view"
)

// TestRandomFailures is TestRandomLoad while nodes are killed, two at once or one after the other too, and while primaries
// move between nodes that live. What is on its way from a node that dies arrives up to some point, for each receiver
// another. Besides what the random load expects:
//
//   - a transaction that writes rows of its own has written all of them or none, on every survivor, and all if and only if
//     the client was told that it committed, or is told so when it asks,
//   - every change of the view ends.
func TestRandomFailures(t *testing.T) {
	marks := runLoads(t, []shape{{2, 2, 1, 1, 1, 1}, {2, 2, 2, 2, 2, 1}, {4, 2, 2, 2, 1, 2}, {3, 3, 1, 1, 1, 2}, {3, 3, 2, 1, 2, 2}, {4, 4, 1, 1, 1, 3}, {6, 3, 1, 1, 1, 3}}, false)
	if *seeds != 0 || testing.Short() || t.Failed() {
		return
	}
	for m := kernel.MarkFreezeRollback; m <= kernel.MarkTakeoverMixed; m++ {
		if !marks.Has(m) {
			t.Errorf("no run came to the place %q", m)
		}
	}
}

type viewStage uint8

const (
	steady     viewStage = iota // no change of the view
	preparing                   // members get the prepare when they have heard all from the dead, and answer
	committing                  // the view is committed; takeover
)

// change of the view: the test is the membership of all nodes.
type change struct {
	stage   viewStage
	view    view.View // the newest that is committed
	next    view.View
	attempt uint32
	losing  bool                 // it loses members
	asked   [7]bool              // nodes that have the prepare
	owes    map[signal.Addr]bool // blocks that have not answered
	lost    [7]bool              // dead nodes that the client knows of
}

// fail lets a node die, or changes who is primary, now and then.
func (l *load) fail() {
	if l.returns && l.rng.IntN(2) == 0 {
		l.comeBack()
	}
	switch l.rng.IntN(25) {
	case 0:
		l.kill()
	case 1:
		if l.stage == steady && !l.away() && l.back == 0 {
			ms := slices.Clone(l.view.Members)
			m := &ms[l.rng.IntN(len(ms))]
			m.State = signal.MemberFollowing + uint32(l.rng.IntN(2))
			l.begins(ms)
		}
	}
}

// kill ends a node whose group has another one.
func (l *load) kill() {
	ns := l.alive()
	if l.shape.nodes-len(ns) >= l.shape.kills {
		return
	}
	n := ns[l.rng.IntN(len(ns))]
	group := func(n uint8) uint8 { return (n - 1) / uint8(l.shape.replicas) }
	peers := 0
	for _, m := range ns {
		if group(m) == group(n) && m != n && l.serves(m) {
			peers++
		}
	}
	if peers == 0 && l.serves(n) {
		return
	}
	back := l.back
	l.endNode(n)
	if back != 0 && back != n && group(back) == group(n) { // whoever it copies from may be gone
		l.endNode(back)
	}
}

// endNode ends a node.
func (l *load) endNode(n uint8) {
	if l.back == n {
		l.comingBack = comingBack{returns: l.returns, joined: l.joined, left: l.left}
	}
	for _, s := range l.sites[n] {
		s.dead = true
	}
	for _, k := range l.pairs { // what it had not sent is lost
		if q := l.queues[k]; k[0]>>8 == int(n) && len(q) > 0 {
			if k[1]>>8 == int(n) {
				l.queues[k] = nil
			} else {
				l.queues[k] = q[:l.rng.IntN(len(q)+1)]
			}
		}
	}
	l.owed[n], l.losing = false, true
	away := len(l.failing) > 0
	for _, a := range l.blocksOf(n) {
		delete(l.failing, a)
		delete(l.ups, a)
	}
	var ms []signal.Member
	of := &l.view
	if l.stage == preparing {
		of = &l.next
	}
	for _, m := range of.Members {
		if !l.sites[m.Node][0].dead {
			ms = append(ms, m)
		}
	}
	l.begins(ms)
	if away && len(l.failing) == 0 {
		l.clientIsBack()
	}
}

// begins a change of the view, or another attempt at it.
func (l *load) begins(ms []signal.Member) {
	l.attempt++
	l.next.Take(l.view.Number+1, ms[0].Node, ms)
	l.stage, l.asked, l.owes = preparing, [7]bool{}, map[signal.Addr]bool{}
}

// heardAll tells whether nothing is on its way any more from a dead node to a node (the client: clientNode).
func (l *load) heardAll(from func(n uint8) bool, to uint8) bool {
	for _, k := range l.pairs {
		if n := uint8(k[0] >> 8); n != clientNode && from(n) && uint8(k[1]>>8) == to && len(l.queues[k]) > 0 {
			return false
		}
	}
	return true
}

// viewGoesOn does what comes next in a change of the view, or some of it, or nothing if that is not a must. It tells
// whether it did anything.
func (l *load) viewGoesOn(must bool) (did bool) {
	dead := func(n uint8) bool { return l.sites[n][0].dead }
	for n := uint8(1); int(n) <= l.shape.nodes; n++ {
		if dead(n) && !l.lost[n] && (must || l.rng.IntN(20) == 0) && l.heardAll(func(m uint8) bool { return m == n }, clientNode) {
			l.lost[n] = true
			l.nodeLost(n)
			did = true
		}
	}
	switch {
	case l.stage == preparing:
		for _, n := range l.alive() {
			if !l.asked[n] && (must || l.rng.IntN(10) == 0) && l.heardAll(dead, n) {
				l.asked[n] = true
				did = true
				l.tell(n, signal.NumViewPrepareReq)
			}
		}
		for _, n := range l.alive() {
			if !l.asked[n] {
				return did
			}
		}
		if len(l.owes) > 0 {
			return did
		}
		again := l.view.President != l.next.President
		l.view.Copy(&l.next)
		l.stage = committing
		switch {
		case l.phase == 0:
		case again: // the new president runs the change from the beginning, and who has been through it answers at once
			l.round(1, signal.NumEpochPrepareReq)
		default:
			l.epochGoesOn()
		}
		for _, n := range l.alive() {
			l.tell(n, signal.NumViewCommitReq)
		}
		for _, num := range l.numbers() {
			if x := l.txs[num]; !x.ended && x.asking >= 0 && dead(x.askedAt.Node()) {
				l.ask(x)
			}
		}
		return true
	case l.stage == committing && len(l.owes) == 0:
		l.stage, l.losing = steady, false
		l.blocks(func(a signal.Addr) {
			if a.Block() == signal.BlockLDM {
				kernel.Send[signal.TakeoverRep](l.sites[a.Node()][0].env, a, distribution(a.Node()), signal.NumTakeoverRep).View = l.view.Number
			}
		})
		if l.phase != 0 {
			l.epochGoesOn()
		}
		return true
	}
	return did
}

func (l *load) tell(n uint8, num uint16) {
	putView(l.sites[n][0].env, l.blocksOf(n), num, &l.next, l.attempt)
	l.toldNewcomer(n, num)
	for _, a := range l.blocksOf(n) {
		l.owes[a] = true
	}
}

func (l *load) onViewConf(h *signal.Head) {
	c := signal.As[signal.ViewConf](h)
	if c.View == l.next.Number && c.Attempt == l.attempt && (c.Num == signal.NumViewCommitConf) == (l.stage == committing) {
		delete(l.owes, h.From)
	}
}

// nodeLost is the client hearing that a node is gone. What it has asked of it, it asks elsewhere.
func (l *load) nodeLost(n uint8) {
	for _, num := range l.numbers() {
		x := l.txs[num]
		switch {
		case x.ended:
		case x.asking >= 0:
			if x.askedAt.Node() == n {
				l.ask(x)
			}
		case x.at.Node() != n:
		default:
			x.asking = 0
			l.ask(x)
		}
	}
}

// numbers are the transactions in the order of their beginning.
func (l *load) numbers() (nums [][2]uint32) {
	for k := range l.txs {
		nums = append(nums, k)
	}
	slices.SortFunc(nums, func(a, b [2]uint32) int { return int(a[1]) - int(b[1]) })
	return nums
}

// ask asks what became of a transaction's commit, after its present write.
func (l *load) ask(x *clientTx) {
	if x.seq == 0 || x.asking >= len(x.keys) {
		x.ended = true
		return
	}
	key := x.keys[x.asking]
	x.askedAt = l.primary(key)
	r := kernel.Send[signal.OutcomeReq](l.client, x.askedAt, signal.MakeAddr(clientNode, signal.BlockClient, x.session), signal.NumOutcomeReq)
	*r = signal.OutcomeReq{Head: r.Head, Tx: x.num, Seq: x.seq, Node: uint32(x.at.Node()), DynamicID: x.dynamicID, Table: 3, Frag: uint16(l.frag(key))}
}
