package membership

import (
	"slices"
	"testing"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

func TestAClientsIdIsFreeAgainWhenEverybodyForgotIt(t *testing.T) {
	r := newRig(t, 1, 1)
	r.up()
	x := r.n[1]
	api := r.net.Add(51, signal.PeerAPI)
	api.Handle = func(*signal.Head) {}
	r.net.Link(1, 51)
	r.net.Run(ms)
	x.holdFail = true
	r.net.Cut(1, 51)
	r.net.Run(ms)
	if len(x.fails) != 4 || x.fails[0].Node != 51 || x.fails[0].Kind != uint32(signal.PeerAPI) || len(x.freed) != 0 {
		t.Fatalf("blocks heard %v, freed %v", x.fails, x.freed)
	}
	was := x.b.Stale
	d := send[signal.LinkRep](r, 1, signal.NumLinkDownRep) // another of its sockets
	h := d.Head
	*d = signal.LinkRep{Head: h, Node: 51, Kind: uint32(signal.PeerAPI)}
	r.net.Run(ms)
	if len(x.fails) != 4 || x.b.Stale != was+1 {
		t.Fatalf("forgotten twice: %v", x.fails)
	}
	for i := range x.heldFail {
		if len(x.freed) != 0 {
			t.Fatal("free before everybody answered")
		}
		f := &x.heldFail[i]
		kernel.Send[signal.NodeFailConf](r.net.Nodes[1].Env, f.From, f.To, signal.NumNodeFailConf).Node = f.Node
		r.net.Run(ms)
	}
	if !slices.Equal(x.freed, []uint8{51}) {
		t.Fatalf("freed %v", x.freed)
	}
	x.holdFail = false
	r.net.Link(1, 51)
	r.net.Run(ms)
	r.net.Cut(1, 51)
	r.net.Run(ms)
	if !slices.Equal(x.freed, []uint8{51, 51}) || x.b.state != started || x.ups != 4 {
		t.Fatalf("freed %v, ldms heard %d times that it is up", x.freed, x.ups)
	}
}

func TestAManagementServersIdIsFreeAtOnce(t *testing.T) {
	r := newRig(t, 1, 1)
	r.up()
	r.addMgm(1)
	r.net.Run(ms)
	r.net.Kill(49)
	r.net.Run(ms)
	if !slices.Equal(r.n[1].freed, []uint8{49}) || len(r.n[1].fails) != 0 {
		t.Fatalf("freed %v, told %v", r.n[1].freed, r.n[1].fails)
	}
}

func stopReq(r *rig, id uint8, flags uint32, nodes ...uint8) {
	var set signal.NodeSet
	for _, n := range nodes {
		set.Add(n)
	}
	s := send[signal.StopReq](r, id, signal.NumStopReq)
	s.Ref, s.Flags, s.Nodes = 77, flags, set
}

func TestThePlannedStopOfTheCluster(t *testing.T) {
	for _, c := range []struct {
		name    string
		ask     uint8 // node that gets the request
		flags   uint32
		hold    uint8 // node whose coordinators never drain
		restart uint32
		within  int64
	}{
		{"at the president", 1, signal.StopAll, 0, 0, 0},
		{"at another node", 3, signal.StopAll, 0, 0, 0},
		{"with abort", 2, signal.StopAll | signal.StopAbort, 0, 0, 0},
		{"restart", 2, signal.StopAll | signal.StopRestart | signal.StopInitial, 0, signal.StopRestart | signal.StopInitial, 0},
		{"without start", 2, signal.StopAll | signal.StopRestart | signal.StopNoStart, 0, signal.StopRestart | signal.StopNoStart, 0},
		{"transactions that do not end", 1, signal.StopAll, 3, 0, 1200 * ms},
		{"transactions that do not end, with abort", 1, signal.StopAll | signal.StopAbort, 1, 0, tellTime},
	} {
		for seed := uint64(1); seed <= 20; seed++ {
			r := newRig(t, seed, 1, 2, 3, 4)
			ids := r.up()
			answers := r.addMgm(ids...)
			if c.hold != 0 {
				r.n[c.hold].holdDrain = true
			}
			at := r.net.Now()
			stopReq(r, c.ask, c.flags)
			if !r.net.Until(10_000*ms, r.exited(ids...)) {
				t.Fatalf("%s: does not stop; %v", c.name, r.net)
			}
			if took := r.net.Now() - at; took != c.within {
				t.Fatalf("%s: took %d ns", c.name, took)
			}
			for _, id := range ids {
				x := r.n[id]
				if x.exit.Code != exitcode.Done || x.exit.Restart != c.restart || x.drains != 4 {
					t.Fatalf("%s: node %d: %+v %s, %d drains", c.name, id, x.exit, x.reason, x.drains)
				}
				if x.saw(event.NDBStopStarted) != 1 || x.saw(event.NDBStopCompleted) != 1 || x.saw(event.NodeFailReport) != 0 {
					t.Fatalf("%s: node %d: events", c.name, id)
				}
			}
			r.net.Run(0)
			if len(*answers) != 1 || (*answers)[0].Num != signal.NumStopConf || signal.As[signal.StopConf]((*answers)[0]).Ref != 77 {
				t.Fatalf("%s: answers %v", c.name, *answers)
			}
		}
	}
}

// Every node is asked, as a management client does for ALL STOP.
func TestEveryNodeIsAskedToStop(t *testing.T) {
	for seed := uint64(1); seed <= 50; seed++ {
		r := newRig(t, seed, 1, 2)
		ids := r.up()
		answers := r.addMgm(ids...)
		for _, id := range ids {
			stopReq(r, id, signal.StopAll, ids...)
		}
		if !r.net.Until(10_000*ms, r.exited(ids...)) {
			t.Fatal("does not stop")
		}
		for _, id := range ids {
			if r.n[id].exit.Code != exitcode.Done {
				t.Fatalf("node %d: %+v %s", id, r.n[id].exit, r.n[id].reason)
			}
		}
		for _, a := range *answers {
			if a.Num != signal.NumStopConf {
				t.Fatal(signal.Format(a))
			}
		}
	}
}

func TestStopBeforeTheStart(t *testing.T) {
	r := newRig(t, 1, 1, 2)
	x := r.launch(1, nil)
	answers := r.addMgm(1)
	stopReq(r, 1, signal.StopRestart|signal.StopNoStart, 1)
	r.net.Run(ms)
	if x.exit == nil || x.exit.Code != exitcode.Done || x.exit.Restart != signal.StopRestart|signal.StopNoStart || len(*answers) != 1 {
		t.Fatalf("%+v", x.exit)
	}
}

// While the cluster drains, a member dies, or the president does, or a member stands still: the others end all the
// same, as they were asked to.
func TestFailuresDuringAPlannedStop(t *testing.T) {
	for _, c := range []struct {
		name   string
		victim uint8
		freeze bool
		within int64
	}{
		{"a member dies", 3, false, 1200 * ms},
		{"the president dies", 1, false, 1200 * ms},
		{"a member stands still", 3, true, 2200 * ms},
	} {
		for seed := uint64(1); seed <= 20; seed++ {
			r := newRig(t, seed, 1, 2, 3, 4)
			ids := r.up()
			r.n[2].holdDrain = true // so that there is time
			at := r.net.Now()
			if c.freeze {
				r.net.Nodes[c.victim].Handle = func(*signal.Head) {}
			}
			stopReq(r, 4, signal.StopAll)
			r.net.Run(500 * ms)
			if !c.freeze {
				r.net.Kill(c.victim)
			}
			others := slices.DeleteFunc(slices.Clone(ids), func(id uint8) bool { return id == c.victim })
			if !r.net.Until(10_000*ms, r.exited(others...)) {
				t.Fatalf("%s: the others go on", c.name)
			}
			if took := r.net.Now() - at; took > c.within {
				t.Fatalf("%s: took %d ns", c.name, took)
			}
			for _, id := range others {
				if x := r.n[id]; x.exit.Code != exitcode.Done {
					t.Fatalf("%s: node %d: %+v %s", c.name, id, x.exit, x.reason)
				}
			}
		}
	}
}

// A node is stopped by force at the moment at which the whole cluster is.
func TestAForcedStopMeetsAPlannedOne(t *testing.T) {
	for seed := uint64(1); seed <= 60; seed++ {
		r := newRig(t, seed, 1, 2, 3)
		ids := r.up()
		who := uint8(1 + seed%3)
		r.n[who].holdDrain = seed%2 == 0
		stopReq(r, who, signal.StopForce, who)
		for range r.net.Rand(30) {
			r.net.Step(r.net.Now())
		}
		stopReq(r, 1, signal.StopAll)
		if !r.net.Until(10_000*ms, r.exited(ids...)) {
			t.Fatalf("seed %d: does not stop; %v", seed, r.net)
		}
		if x := r.n[who]; x.exit.Code != exitcode.Done {
			t.Fatalf("seed %d: node %d: %+v %s", seed, who, x.exit, x.reason)
		}
	}
}

// Two halves that started without each other meet: never two living halves.
func TestTwoHalvesMeet(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		r := newRig(t, seed, 1, 2)
		for _, id := range []uint8{1, 2} {
			r.launch(id, func(c *Config) { c.NoWait.Add(1); c.NoWait.Add(2) })
		}
		if !r.net.Until(100*ms, r.started(1, 2)) {
			t.Fatal("a node that waits for nobody does not start")
		}
		r.linkAll()
		r.net.Run(1000 * ms)
		living := 0
		for _, id := range []uint8{1, 2} {
			if r.n[id].exit == nil {
				living++
			}
		}
		if living > 1 {
			t.Fatal("two halves live on")
		}
	}
}

// Late and doubled words about links and failures do no harm.
func TestWordsThatComeTooLate(t *testing.T) {
	r := newRig(t, 1, 1, 2)
	r.up()
	x := r.n[1]
	d := send[signal.LinkRep](r, 1, signal.NumLinkDownRep)
	h := d.Head
	*d = signal.LinkRep{Head: h, Node: 3, Kind: uint32(signal.PeerData)}
	send[signal.NodeFailConf](r, 1, signal.NumNodeFailConf).Node = 77
	k := send[signal.DrainConf](r, 1, signal.NumDrainConf)
	k.Ref = 5
	c := send[signal.StopStepConf](r, 1, signal.NumStopStepConf)
	c.Step = signal.StopDrain
	was := x.b.Stale
	r.net.Run(ms)
	if x.b.Stale != was+4 || x.b.state != started {
		t.Fatalf("%d of 4 were stale, state %d", x.b.Stale-was, x.b.state)
	}
}
