package mgmd_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/mgmd"
	"github.com/cohortdb/cohort/internal/mgm/mgmtest"
	"github.com/cohortdb/cohort/internal/signal"
)

func TestShutdownStopsDataNodesThenTheServer(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	one, two := start(s)
	stopped, err := s.Connect().StopAll(mgmtest.Context(t), true, true, mgmclient.StopOptions{})
	if err != nil || stopped != (mgmclient.Stopped{Count: 2, Disconnect: true}) {
		t.Fatalf("%+v, %v", stopped, err)
	}
	<-s.Ended
	if !errors.Is(s.Err, mgmd.ErrStopped) {
		t.Fatal(s.Err)
	}
	for _, n := range []*mgmtest.Node{one, two} {
		if n.StopFlags() != signal.StopAll || !n.Got("Nodes=[6 0 0 0 0 0 0 0]") {
			t.Errorf("node %d: flags %#x", n.ID, n.StopFlags())
		}
	}
}

func TestStoppingEveryNodeByNumberIsStoppingTheCluster(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	one, _ := start(s)
	stopped, err := s.Connect().Stop(mgmtest.Context(t), []int{1, 2}, mgmclient.StopOptions{Abort: true})
	if err != nil || stopped.Count != 2 || stopped.Disconnect {
		t.Fatalf("%+v, %v", stopped, err)
	}
	if one.StopFlags() != signal.StopAll|signal.StopAbort {
		t.Errorf("flags %#x", one.StopFlags())
	}
}

// Whether the rest can go on is for the node itself to say.
func TestOneNodeStopsOrSaysWhyNot(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	one, two := start(s)
	ctx, c := mgmtest.Context(t), s.Connect()
	one.OnStop = func(r *signal.StopReq) string {
		if r.Flags&signal.StopForce == 0 {
			return "node 1 would end the cluster: node group 0 has no other node"
		}
		return ""
	}
	stopped, err := c.Stop(ctx, []int{2}, mgmclient.StopOptions{Abort: true})
	if err != nil || stopped.Count != 1 || two.StopFlags() != signal.StopAbort {
		t.Fatalf("%+v, %v, flags %#x", stopped, err, two.StopFlags())
	}
	one.Report(func(r *signal.NodeStateRep) {
		r.View, r.Members, r.Serving = 4, signal.NodeSet{0b1110}, signal.NodeSet{0b1110}
	})
	mgmtest.Until(t, "the view is known", func() bool { st, err := c.ClusterState(ctx); return err == nil && st.View == 4 })
	if _, err := c.Stop(ctx, []int{1}, mgmclient.StopOptions{}); err == nil || !strings.Contains(err.Error(), "node 1 would end the cluster") {
		t.Fatal(err)
	}
	if one.StopFlags() != 0 {
		t.Errorf("the cluster has another member, so that this is not its end: flags %#x", one.StopFlags())
	}
	if _, err := c.Stop(ctx, []int{1}, mgmclient.StopOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
}

func TestTheLastNodeIsStoppedOnlyIfThatIsMeant(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	one := s.Link(1)
	one.State(signal.StateStarted, 0, 0, 1)
	ctx, c := mgmtest.Context(t), s.Connect()
	const why = "Node 1 is the last one that runs, and the cluster would stop with it; use ALL STOP or SHUTDOWN, or -f if that is meant"
	if _, err := c.Stop(ctx, []int{1}, mgmclient.StopOptions{}); err == nil || err.Error() != why {
		t.Fatal(err)
	}
	if _, err := c.Restart(ctx, []int{1}, mgmclient.StopOptions{}); err == nil || err.Error() != why {
		t.Fatal(err)
	}
	if _, err := c.Stop(ctx, []int{1}, mgmclient.StopOptions{Force: true}); err != nil || one.StopFlags() != signal.StopAll|signal.StopForce {
		t.Fatalf("%v, flags %#x", err, one.StopFlags())
	}
}

func TestOneNodeRestarts(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	_, two := start(s)
	restarted, err := s.Connect().Restart(mgmtest.Context(t), []int{2}, mgmclient.StopOptions{Initial: true})
	if err != nil || restarted.Count != 1 || two.StopFlags() != signal.StopRestart|signal.StopInitial {
		t.Fatalf("%+v, %v, flags %#x", restarted, err, two.StopFlags())
	}
}

func TestARefusalIsPassedOn(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	one, two := start(s)
	two.OnStop = func(*signal.StopReq) string { return "a table is being made" }
	stopped, err := s.Connect().StopAll(mgmtest.Context(t), true, true, mgmclient.StopOptions{})
	if err == nil || err.Error() != "Node 2 refused: a table is being made (error 2002)" || stopped.Disconnect {
		t.Fatalf("%+v, %v", stopped, err)
	}
	if !one.Got("StopReq") {
		t.Error("node 1 was not asked")
	}
	select {
	case <-s.Ended:
		t.Error("the server stopped although a node did not")
	default:
	}
}

func TestAllRestartAndStart(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	one, _ := start(s)
	ctx, c := mgmtest.Context(t), s.Connect()
	restarted, err := c.RestartAll(ctx, mgmclient.StopOptions{Initial: true, NoStart: true})
	if err != nil || restarted.Count != 2 {
		t.Fatalf("%+v, %v", restarted, err)
	}
	if want := signal.StopAll | signal.StopRestart | signal.StopInitial | signal.StopNoStart; one.StopFlags() != want {
		t.Errorf("flags %#x, want %#x", one.StopFlags(), want)
	}
	if _, err := c.RestartAll(ctx, mgmclient.StopOptions{}); err == nil || err.Error() != "No data node is connected" {
		t.Errorf("%v", err)
	}
	if err := c.Start(ctx, 1); err == nil || err.Error() != "Node 1 is not connected" {
		t.Errorf("%v", err)
	}
	again := s.Link(1)
	again.State(signal.StateNotStarted, 0, ^uint32(0), ^uint32(0))
	if n, err := c.StartAll(ctx); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	mgmtest.Until(t, "StartOrd", func() bool { return again.Got("StartOrd") })
	if err := c.Start(ctx, 1); err != nil {
		t.Error(err)
	}
}

func TestTheServerStopsByItsNumber(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	stopped, err := s.Connect().Stop(mgmtest.Context(t), []int{49}, mgmclient.StopOptions{})
	if err != nil || !stopped.Disconnect {
		t.Fatalf("%+v, %v", stopped, err)
	}
	<-s.Ended
}
