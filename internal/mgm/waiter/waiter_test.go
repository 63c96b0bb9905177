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
