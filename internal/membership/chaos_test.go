package membership

import (
	"fmt"
	"testing"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// hold keeps everything between two nodes back, one way. Nothing is under way then: the end of a link that was cut a moment
// ago is heard on both sides.
func (r *rig) hold(from, to uint8) {
	if !r.net.Quiet(from, to) {
		return
	}
	r.net.Hold(from, to)
	r.apart[from].Add(to)
	r.apart[to].Add(from)
}

// join lets two nodes reach each other again.
func (r *rig) rejoin(a, b uint8) {
	r.net.Release(a, b)
	r.net.Release(b, a)
	r.apart[a].Remove(b)
	r.apart[b].Remove(a)
}

// chaos does something bad to the cluster, and says what.
func (r *rig) chaos(ids, mgms []uint8) string {
	pick := func() uint8 { return ids[r.net.Rand(len(ids))] }
	a := pick()
	others := append(append([]uint8{}, ids...), mgms...)
	b := others[r.net.Rand(len(others))]
	if b == a {
		b = mgms[0]
	}
	switch r.net.Rand(14) {
	case 0:
		if !r.net.Nodes[a].Dead() {
			r.net.Freeze(a, false)
			if r.net.Rand(2) == 0 {
				r.net.Crash(a)
				return fmt.Sprintf("crash %d", a)
			}
			r.net.Kill(a)
			return fmt.Sprintf("kill %d", a)
		}
	case 1:
		if !r.apart[a].Has(b) { // else neither side would hear of it
			r.net.Cut(a, b)
			return fmt.Sprintf("cut %d-%d", a, b)
		}
	case 2:
		r.hold(a, b)
		return fmt.Sprintf("hold %d>%d", a, b)
	case 3:
		r.hold(b, a)
		return fmt.Sprintf("hold %d>%d", b, a)
	case 4: // the network falls into two
		left := r.net.Rand(1 << len(others))
		s := "divide:"
		for i, x := range others {
			if left>>i&1 == 0 {
				s += fmt.Sprintf(" %d", x)
			}
			for j, y := range others {
				if left>>i&1 != left>>j&1 {
					r.hold(x, y)
				}
			}
		}
		return s
	case 5, 6, 7:
		for _, x := range others {
			for _, y := range others {
				if x < y {
					r.rejoin(x, y)
				}
			}
		}
		return "heal"
	case 8:
		if !r.net.Nodes[a].Dead() && r.n[a].frozen == 0 {
			r.freeze(a)
			return fmt.Sprintf("freeze %d", a)
		}
	case 9:
		if !r.net.Nodes[a].Dead() && r.n[a].frozen != 0 {
			r.thaw(a)
			return fmt.Sprintf("thaw %d", a)
		}
	case 10:
		m := mgms[r.net.Rand(len(mgms))]
		if !r.net.Nodes[m].Dead() {
			r.net.Kill(m)
			return fmt.Sprintf("kill %d", m)
		}
	case 11:
		x := r.n[a]
		if r.net.Rand(2) == 0 {
			x.holdPrepare = true
		} else {
			x.holdCommit = true
		}
		return fmt.Sprintf("hold blocks of %d", a)
	case 12:
		if !r.net.Nodes[a].Dead() && r.n[a].frozen == 0 {
			r.letGo(a)
			return fmt.Sprintf("let blocks of %d go", a)
		}
	case 13:
		if !r.net.Nodes[a].Dead() && r.n[a].frozen == 0 {
			flags := [...]uint32{signal.StopRestart, signal.StopRestart | signal.StopAbort}[r.net.Rand(2)]
			stopReq(r, a, flags, a)
			return fmt.Sprintf("stop %d", a)
		}
	}
	return ""
}

// runtimes do what they do all the time: start processes again, link nodes that can reach each other.
func (r *rig) runtimes(ids, mgms []uint8, always bool) {
	for _, id := range ids {
		if r.net.Nodes[id].Dead() && (always || r.net.Rand(10) == 0) {
			r.launch(id, nil)
		}
	}
	for _, m := range mgms {
		if r.net.Nodes[m].Dead() && (always || r.net.Rand(10) == 0) {
			r.addMgmAt(m)
		}
	}
	r.linkAll()
}

// TestChaos does bad things at random times to clusters of two to six nodes, several at once: every node that commits a
// view commits the same, one after the other; never do two parts live; and when all is well again all nodes are in one view.
func TestChaos(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 10
	}
	var marks kernel.Marks
	for seed := uint64(1); seed <= seeds; seed++ {
		chaosRun(t, seed, &marks)
	}
	for _, m := range []kernel.Mark{kernel.MarkDistrust, kernel.MarkStallOver, kernel.MarkSuspectReturned, kernel.MarkLeaderLost,
		kernel.MarkMemberLostInPrepare, kernel.MarkPartYields, kernel.MarkTwoLeaders, kernel.MarkArbitWon, kernel.MarkArbitLost, kernel.MarkArbitChanged} {
		if !marks.Has(m) && !testing.Short() {
			t.Errorf("never reached: %v", m)
		}
	}
}

func chaosRun(t *testing.T, seed uint64, marks *kernel.Marks) {
	shapes := [][]uint8{{1, 2}, {1, 2, 3, 4}, {1, 2, 3}, {1, 2, 3, 4, 5, 6}, {1, 2, 3, 4}}
	ids := shapes[seed%uint64(len(shapes))]
	mgms := []uint8{49, 50}
	r := newRig(t, seed, ids...)
	if len(ids) == 3 || len(ids) == 6 && seed%2 == 0 {
		for i := range r.cfg.Nodes {
			r.cfg.Nodes[i].Group = uint16(i / 3)
		}
	}
	r.cfg.Arbitrators = []Arbitrator{{49, 1}, {50, 1}}
	history := ""
	defer func() {
		if t.Failed() || recover() != nil {
			t.Logf("seed %d: %s", seed, history)
		}
	}()
	r.up()
	for _, m := range mgms {
		r.addMgmAt(m)
	}
	r.linkAll()
	r.net.Run(500 * ms)
	collect := func() {
		for _, id := range ids {
			marks.Add(r.net.Nodes[id].Env.Marks())
		}
	}
	note := func(what string) {
		if what != "" {
			history += fmt.Sprintf("\n  at %d ms %s", r.net.Now()/ms, what)
		}
	}
	for range 60 {
		for range r.net.Rand(3) {
			note(r.chaos(ids, mgms))
			for range r.net.Rand(20) {
				r.net.Step(r.net.Now())
			}
		}
		for range 1 + r.net.Rand(12) {
			r.net.Run(20 * ms)
			r.safe(ids...)
			collect()
			r.runtimes(ids, mgms, false)
		}
	}
	note("everything heals")
	for _, id := range ids {
		for _, o := range append(append([]uint8{}, ids...), mgms...) {
			r.rejoin(id, o)
		}
		if !r.net.Nodes[id].Dead() {
			if r.n[id].frozen != 0 {
				r.thaw(id)
			}
			r.letGo(id)
		}
	}
	until, since := r.net.Now()+60_000*ms, r.net.Now()
	for r.net.Now() < since+2000*ms { // it stays so
		r.net.Run(20 * ms)
		if !r.agree(ids...) || !r.arbitrated(ids...) {
			since = r.net.Now()
		}
		if r.net.Now() > until {
			t.Fatalf("seed %d: no agreement:%s%s", seed, r.states(ids...), history)
		}
		r.safe(ids...)
		collect()
		r.runtimes(ids, mgms, true)
	}
}

// arbitrated tells whether all nodes hold the same ticket.
func (r *rig) arbitrated(ids ...uint8) bool {
	for _, id := range ids {
		if b := r.n[id].b; b.arb.cur.node == 0 || b.arb.cur != r.n[ids[0]].b.arb.cur || b.arb.cur.view != b.view.Number {
			return false
		}
	}
	return true
}

// TestTwoLossesAtAnyMoment kills a node, or takes one in, and then crashes another one at each moment of what follows.
// Whatever that meets, the rest goes on if it may, and all come back.
func TestTwoLossesAtAnyMoment(t *testing.T) {
	var marks kernel.Marks
	for _, first := range []uint8{1, 4, 0} { // the president, another; 0: node 4 joins
		for _, second := range []uint8{1, 2, 3} {
			if first == second {
				continue
			}
			for at := 0; at < 260; at += 6 {
				r := newRig(t, uint64(at)+1, 1, 2, 3, 4)
				r.cfg.Arbitrators = []Arbitrator{{49, 1}}
				ids := []uint8{1, 2, 3, 4}
				r.addMgmAt(49)
				r.up()
				r.linkAll()
				r.net.Run(300 * ms)
				if first == 0 {
					r.net.Kill(4)
					r.net.Run(0)
					r.launch(4, nil)
					r.linkAll()
				} else {
					r.net.Kill(first)
				}
				for range at {
					r.net.Step(r.net.Now())
				}
				r.net.Crash(second)
				r.net.Run(20 * ms)
				r.safe(ids...)
				alive := 0
				for _, id := range ids {
					if !r.net.Nodes[id].Dead() && r.n[id].b.state == started {
						alive++
					}
					marks.Add(r.net.Nodes[id].Env.Marks())
				}
				// Groups are 1,2 and 3,4: with one of each left, and the arbitrator, the cluster goes on.
				if lives := (first == 1) != (second <= 2); lives && alive < 2 {
					t.Fatalf("%d, then %d after %d steps: %d nodes are left:%s", first, second, at, alive, r.states(ids...))
				}
				if !r.heal(20_000*ms, ids...) {
					t.Fatalf("%d, then %d after %d steps: no agreement:%s", first, second, at, r.states(ids...))
				}
				r.safe(ids...)
			}
		}
	}
	for _, m := range []kernel.Mark{kernel.MarkLeaderLost, kernel.MarkUncertainView, kernel.MarkMemberLostInPrepare, kernel.MarkLossInTakeover} {
		if !marks.Has(m) {
			t.Errorf("never reached: %v", m)
		}
	}
}
