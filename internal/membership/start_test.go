package membership

import (
	"slices"
	"strings"
	"testing"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/signal"
)

// However links come up, all nodes start together, with one president, and no time passes.
func TestStartInAnyOrder(t *testing.T) {
	for _, ids := range [][]uint8{{1}, {1, 2}, {3, 4}, {1, 2, 3, 4}, {2, 5, 7, 40, 99, 144}} {
		for seed := uint64(1); seed <= 40; seed++ {
			r := newRig(t, seed, ids...)
			r.up()
			if r.net.Now() != 0 {
				t.Fatalf("%v: the start took %d ns of waiting", ids, r.net.Now())
			}
			for i, id := range ids {
				x := r.n[id]
				if x.b.view.President != ids[0] || x.b.dynamicID() != uint32(i+1) {
					t.Fatalf("node %d: president %d, dynamic id %d", id, x.b.view.President, x.b.dynamicID())
				}
				if !slices.Equal(x.phases, []uint32{3, 4, 5}) || x.dict != [2]uint32{uint32(len(ids)), uint32(ids[0])} {
					t.Fatalf("node %d: phases %v, the dictionary knows %v", id, x.phases, x.dict)
				}
				if !slices.Equal(x.states, []uint32{signal.StateStarting, signal.StateStarted}) {
					t.Fatalf("node %d: states %v", id, x.states)
				}
				if n := x.saw(event.StartPhaseCompleted); n != 9 {
					t.Fatalf("node %d: %d phases reported", id, n)
				}
				if x.saw(event.NDBStartStarted) != 1 || x.saw(event.NDBStartCompleted) != 1 || x.saw(event.PresidentElected) != 1 {
					t.Fatalf("node %d: its start is not reported", id)
				}
			}
		}
	}
}

// Two processes die, one after the other, at any moment of the start, and come again: everybody starts over and starts.
func TestTwoFailuresDuringTheStart(t *testing.T) {
	ids := []uint8{1, 2, 3, 4}
	for seed := uint64(1); seed <= 25; seed++ {
		for at := 0; at < 120; at += 11 {
			r := newRig(t, seed, ids...)
			for _, id := range ids {
				r.launch(id, nil)
			}
			r.linkAll()
			for range 2 {
				for range at {
					r.net.Step(r.net.Now())
				}
				victim := ids[r.net.Rand(4)]
				if slices.ContainsFunc(ids, func(id uint8) bool { return r.n[id].b.state >= started }) {
					break // too late: that is another test
				}
				r.net.Kill(victim)
				for range r.net.Rand(30) {
					r.net.Step(r.net.Now())
				}
				r.launch(victim, nil)
				// the runtime gives a link up only after the old one's end was delivered
				r.net.Run(0)
				r.linkAll()
			}
			if !r.heal(20_000*ms, ids...) {
				t.Fatalf("seed %d at %d: stuck:%s %v", seed, at, r.states(ids...), r.net)
			}
		}
	}
}

// A link between two nodes that are not president breaks during the start and comes again.
func TestALinkBetweenOthersBreaks(t *testing.T) {
	ids := []uint8{1, 2, 3}
	for seed := uint64(1); seed <= 200; seed++ {
		r := newRig(t, seed, ids...)
		for _, id := range ids {
			r.launch(id, nil)
		}
		r.linkAll()
		for range r.net.Rand(60) {
			r.net.Step(0)
		}
		if r.n[1].b.state >= started || r.n[2].b.state >= started || r.n[3].b.state >= started {
			continue
		}
		r.net.Cut(2, 3)
		r.net.Run(0)
		if !r.heal(20_000*ms, ids...) {
			t.Fatalf("seed %d: stuck:%s %v", seed, r.states(ids...), r.net)
		}
	}
}

func TestAStartWaitsAndSaysForWhom(t *testing.T) {
	r := newRig(t, 1, 1, 2, 3, 4)
	x := r.launch(1, nil)
	r.launch(2, nil)
	r.linkAll()
	r.net.Run(10_000 * ms)
	if x.b.state != waiting || x.saw(event.StartReport) != 3 {
		t.Fatalf("state %d, %d reports in 10 s", x.b.state, x.saw(event.StartReport))
	}
	for _, e := range x.events {
		if event.Type(e.Event) == event.StartReport {
			v := event.Event{Type: event.StartReport, Node: 1, Args: e.Args}
			if s := v.String(); !strings.HasSuffix(s, "for nodes 3,4") {
				t.Fatal(s)
			}
		}
	}
	r.launch(3, nil)
	r.launch(4, nil)
	r.linkAll()
	if !r.net.Until(100*ms, r.started(1, 2, 3, 4)) {
		t.Fatal("not started")
	}
}

func TestNoStartWaitsForItsOrder(t *testing.T) {
	r := newRig(t, 2, 1, 2)
	x := r.launch(1, func(c *Config) { c.NoStart = true })
	r.launch(2, nil)
	r.linkAll()
	r.net.Run(5000 * ms)
	if x.b.state != held || !slices.Equal(x.states, []uint32{signal.StateNotStarted}) || r.n[2].b.state != waiting {
		t.Fatalf("states %d %v and %d", x.b.state, x.states, r.n[2].b.state)
	}
	send[signal.StartOrd](r, 1, signal.NumStartOrd)
	if !r.net.Until(100*ms, r.started(1, 2)) {
		t.Fatal("not started")
	}
	send[signal.StartOrd](r, 1, signal.NumStartOrd)
	r.net.Run(0)
	if x.b.state != started || x.b.Stale == 0 {
		t.Fatal("a second order to start")
	}
}

// Nodes that need not be waited for take part when they are there, and the cluster starts without them when not; who
// comes a moment too late is taken in.
func TestNoWaitNodes(t *testing.T) {
	ids := []uint8{1, 2, 3, 4}
	took := 0
	for seed := uint64(1); seed <= 100; seed++ {
		r := newRig(t, seed, ids...)
		for _, id := range ids {
			r.launch(id, func(c *Config) { c.NoWait.Add(1); c.NoWait.Add(4) })
		}
		r.linkAll()
		if !r.net.Until(5000*ms, r.started(ids...)) {
			t.Fatalf("seed %d: stuck:%s %v", seed, r.states(ids...), r.net)
		}
		if len(r.n[2].seen) == 1 {
			took++
		}
	}
	if took == 0 || took == 100 {
		t.Fatalf("%d of 100 starts had all nodes", took)
	}
}

func TestAGroupWithoutNodesDoesNotStart(t *testing.T) {
	r := newRig(t, 1, 1, 2, 3, 4)
	for _, id := range []uint8{1, 2} {
		r.launch(id, func(c *Config) { c.NoWait.Add(3); c.NoWait.Add(4) })
	}
	r.linkAll()
	r.net.Run(1000 * ms)
	if r.n[1].b.state != waiting {
		t.Fatal("a cluster without a whole node group started")
	}
}

func TestAStartThatTakesTooLongEnds(t *testing.T) {
	r := newRig(t, 1, 1, 2)
	x := r.launch(1, func(c *Config) { c.StartTimeout = 20_000 * ms })
	r.net.Run(19_000 * ms)
	if x.exit != nil {
		t.Fatal("too early")
	}
	r.net.Run(2000 * ms)
	if x.exit == nil || x.exit.Code != exitcode.StartFailed || !strings.Contains(x.reason, "missing: node 2:") {
		t.Fatalf("%+v %s", x.exit, x.reason)
	}
}

func TestAnotherConfigurationIsRefused(t *testing.T) {
	r := newRig(t, 1, 1, 2)
	r.launch(1, nil)
	x := r.launch(2, func(c *Config) { c.Nodes = []Node{{1, 0}, {2, 7}} })
	r.linkAll()
	r.net.Run(100 * ms)
	if x.exit == nil || x.exit.Code != exitcode.Refused || !strings.Contains(x.reason, "same configuration") {
		t.Fatalf("%+v %s", x.exit, x.reason)
	}
}

func TestListOf(t *testing.T) {
	var s signal.NodeSet
	for _, n := range []uint8{1, 9, 10, 99, 100, 255} {
		s.Add(n)
	}
	if got := listOf(&s); got != "1,9,10,99,100,255" {
		t.Fatal(got)
	}
}
