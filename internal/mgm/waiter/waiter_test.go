package waiter_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/mgmtest"
	"github.com/cohortdb/cohort/internal/mgm/waiter"
	"github.com/cohortdb/cohort/internal/signal"
)

// wait runs a Wait and gives what it printed and its error once it has ended.
func wait(t *testing.T, addr string, limit time.Duration, change func(*waiter.Options)) (*mgmtest.Text, chan error) {
	t.Helper()
	target, err := config.ParseConnectString(addr)
	if err != nil {
		t.Fatal(err)
	}
	out := &mgmtest.Text{}
	o := waiter.Options{Target: target, State: mgmclient.Started, Out: out, Pause: time.Millisecond}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- waiter.Wait(ctx, o) }()
	return out, done
}

func TestWaitsForAllDataNodes(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	one := s.Link(1)
	one.State(signal.StateStarted, 0, 0, 1)
	out, done := wait(t, s.Addr, mgmtest.Patience, nil)
	mgmtest.Until(t, "it waits", func() bool { return strings.Contains(out.String(), "Waiting for cluster enter state STARTED\n") })
	two := s.Link(2)
	two.State(signal.StateStarting, 1, 0, 0)
	mgmtest.Until(t, "it sees node 2", func() bool { return strings.Contains(out.String(), "Node 2: STARTING\n") })
	two.State(signal.StateStarted, 0, 0, 2)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "Node 1: STARTED\n") || !strings.Contains(text, "Node 2: NO_CONTACT\n") || !strings.HasSuffix(text, "Node 2: STARTED\n") {
		t.Errorf("%s", text)
	}
}

func TestATimeoutSaysWhatIsMissing(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	out, done := wait(t, s.Addr, 100*time.Millisecond, nil)
	err := <-done
	if err == nil || !strings.HasPrefix(err.Error(), "timeout while waiting for state STARTED (node 1: NO_CONTACT, node 2: NO_CONTACT)") {
		t.Fatal(err)
	}
	if out.String() != "Node 1: NO_CONTACT\nNode 2: NO_CONTACT\nWaiting for cluster enter state STARTED\n" {
		t.Errorf("%q", out)
	}
	if _, done := wait(t, "127.0.0.1:1", 50*time.Millisecond, nil); !strings.Contains((<-done).Error(), "no management server answers at 127.0.0.1:1") {
		t.Error("without a server")
	}
}

func TestListsAndStates(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	one := s.Link(1)
	one.State(signal.StateNotStarted, 0, 0, 0)
	for name, c := range map[string]struct {
		change func(*waiter.Options)
		want   string
	}{
		"not started":  {func(o *waiter.Options) { o.State, o.Wait = mgmclient.NotStarted, []int{1} }, ""},
		"no contact":   {func(o *waiter.Options) { o.State, o.Not = mgmclient.NoContact, []int{1} }, ""},
		"unknown node": {func(o *waiter.Options) { o.Wait = []int{3} }, "there is no data node 3"},
		"none left":    {func(o *waiter.Options) { o.Not = []int{1, 2} }, "no data node is left"},
	} {
		_, done := wait(t, s.Addr, mgmtest.Patience, c.change)
		err := <-done
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Nodes that come and go, and a server that is lost: it is the state of one moment that counts, whoever tells it.
func TestWaitsThroughFailures(t *testing.T) {
	p := mgmtest.StartPair(t, mgmtest.TwoServers)
	link := func(s *mgmtest.Server, state uint32, ids ...uint8) (nodes []*mgmtest.Node) {
		for _, id := range ids {
			n := s.Link(id)
			n.State(state, 0, 0, uint32(id))
			nodes = append(nodes, n)
		}
		return nodes
	}
	first := link(p.Servers[0], signal.StateStarted, 1)
	out, done := wait(t, p.Servers[0].Addr+","+p.Servers[1].Addr, mgmtest.Patience, nil)
	mgmtest.Until(t, "it sees node 1", func() bool { return strings.Contains(out.String(), "Node 1: STARTED\n") })
	first[0].Close()
	mgmtest.Until(t, "it sees the end of node 1", func() bool { return strings.Count(out.String(), "Node 1: NO_CONTACT\n") == 1 })
	p.Servers[0].Kill()
	link(p.Servers[1], signal.StateStarted, 1, 2)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.HasSuffix(text, "STARTED\n") || strings.Count(text, "Waiting for") != 1 {
		t.Errorf("%s", text)
	}
}

func TestWaitsForSingleUserMode(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	one, two := s.Link(1), s.Link(2)
	one.State(signal.StateStarted, 0, 0, 1)
	two.State(signal.StateStarted, 0, 0, 2)
	c := s.Connect()
	mgmtest.Until(t, "both have started", func() bool {
		status, err := c.Status(mgmtest.Context(t), config.DataNode)
		return err == nil && status.Node(1).Status == mgmclient.Started && status.Node(2).Status == mgmclient.Started
	})
	out, done := wait(t, s.Addr, mgmtest.Patience, func(o *waiter.Options) { o.State = mgmclient.SingleUser })
	mgmtest.Until(t, "it waits", func() bool {
		return strings.Contains(out.String(), "Waiting for cluster enter state SINGLE USER MODE\n")
	})
	if err := c.EnterSingleUser(mgmtest.Context(t), 51); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// A node that fails while it is waited for is named in the end.
	two.Close()
	_, done = wait(t, s.Addr, 100*time.Millisecond, func(o *waiter.Options) { o.State = mgmclient.SingleUser })
	if err := <-done; err == nil || !strings.Contains(err.Error(), "timeout while waiting for state SINGLE USER MODE (node 2: NO_CONTACT)") {
		t.Fatal(err)
	}
}
