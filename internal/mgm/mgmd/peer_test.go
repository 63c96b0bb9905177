package mgmd_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/mgmd"
	"github.com/cohortdb/cohort/internal/mgm/mgmtest"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/version"
)

// word waits until a server says of a node what is wanted.
func word(t *testing.T, s *mgmtest.Server, id int, want mgmclient.Status) mgmclient.NodeStatus {
	t.Helper()
	c := s.Connect()
	defer c.Close()
	var n mgmclient.NodeStatus
	mgmtest.Until(t, fmt.Sprintf("node %d is %s", id, want), func() bool {
		status, err := c.Status(mgmtest.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		n = *status.Node(id)
		return n.Status == want
	})
	return n
}

func TestTwoServersShowEachOther(t *testing.T) {
	p := mgmtest.StartPair(t, mgmtest.TwoServers)
	for i, s := range p.Servers {
		for _, id := range []int{49, 50} {
			if n := word(t, s, id, mgmclient.Connected); n.Version != version.Number || n.Address != "127.0.0.1" {
				t.Errorf("server %d says of %d: %+v", 49+i, id, n)
			}
		}
		s.Logged(fmt.Sprintf("Node %d: Node %d Connected", 49+i, 50-i))
	}
	p.Servers[1].Kill()
	word(t, p.Servers[0], 50, mgmclient.NoContact)
	p.Servers[0].Logged("ALERT    -- Node 49: Node 50 Disconnected")
	p.Again(t, 1, mgmtest.Parse(t, p.Ini))
	p.Met(t)
}

// An id that one server has given away the other does not give away, whoever holds it by what.
func TestAnIdIsHeldAtBothServers(t *testing.T) {
	p := mgmtest.StartPair(t, mgmtest.TwoServers)
	one, two := p.Servers[0], p.Servers[1]
	c := one.Connect()
	take(t, c, mgmclient.NodeIDRequest{Type: data, NodeID: 1})
	if _, why := take(t, two.Connect(), mgmclient.NodeIDRequest{Type: data, NodeID: 1}); why != "Id 1 already allocated by another node." {
		t.Fatalf("%q", why)
	}
	if id, why := take(t, two.Connect(), mgmclient.NodeIDRequest{Type: data}); id != 2 {
		t.Fatalf("%d, %q", id, why)
	}
	if _, why := take(t, one.Connect(), mgmclient.NodeIDRequest{Type: data}); why != "No free node id found for ndbd(NDB)." {
		t.Fatalf("%q", why)
	}
	// Who waits at the other server gets it when it is free.
	c.Close()
	if id, why := take(t, two.Connect(), mgmclient.NodeIDRequest{Type: data, NodeID: 1, Wait: mgmtest.Patience}); id != 1 {
		t.Fatalf("%q", why)
	}
	api1 := one.Connect()
	take(t, api1, mgmclient.NodeIDRequest{Type: api, NodeID: 51, Secret: 5})
	word(t, two, 51, mgmclient.Connected)
	// The same run may hold it at both.
	api2 := two.Connect()
	if id, why := take(t, api2, mgmclient.NodeIDRequest{Type: api, NodeID: 51, Secret: 5, Running: true}); id != 51 {
		t.Fatalf("%q", why)
	}
	api1.Close()
	mgmtest.Until(t, "it is held at 50 only", func() bool {
		return strings.Contains(two.Dial().Say("list sessions\n\n"), "nodeid: 51") && !strings.Contains(one.Dial().Say("list sessions\n\n"), "nodeid: 51")
	})
	if _, why := take(t, one.Connect(), mgmclient.NodeIDRequest{Type: api, NodeID: 51}); why == "" {
		t.Fatal("given away although it is held at the other server")
	}
	api2.Close()
	word(t, one, 51, mgmclient.NoContact)
	word(t, two, 51, mgmclient.NoContact)
}

// Both servers are asked for any id by many at once: nobody gets the same.
func TestNoIdIsGivenTwice(t *testing.T) {
	ini := mgmtest.TwoServers
	for id := 53; id < 73; id++ {
		ini += fmt.Sprintf("[API]\nNodeId=%d\n", id)
	}
	p := mgmtest.StartPair(t, ini)
	for round := range 3 {
		var mu sync.Mutex
		var all sync.WaitGroup
		given := map[int]int{}
		var clients []*mgmclient.Client
		for i := range 22 {
			c := p.Servers[i%2].Connect()
			clients = append(clients, c)
			all.Go(func() {
				id, err := c.GetNodeID(mgmtest.Context(t), mgmclient.NodeIDRequest{Type: api, Wait: mgmtest.Patience})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				given[id]++
			})
		}
		all.Wait()
		if len(given) != 22 {
			t.Fatalf("round %d: %v", round, given)
		}
		for _, c := range clients {
			c.Close()
		}
	}
}

// A data node that got its id from one server has links to both, and both know its port and its state; one that comes
// later learns all.
func TestDataNodesBelongToBothServers(t *testing.T) {
	p := mgmtest.StartPair(t, mgmtest.TwoServers)
	first, second := p.Servers[0], p.Servers[1]
	n1 := first.Link(1)
	if err := first.Connect().SetPort(mgmtest.Context(t), 1, 4711); err != nil {
		t.Fatal(err)
	}
	port := func(s *mgmtest.Server, want int) {
		t.Helper()
		mgmtest.Until(t, "the port is known", func() bool {
			got, err := s.Connect().GetPort(mgmtest.Context(t), 1, 2)
			return err == nil && got == want
		})
	}
	port(second, 4711)
	n1.State(signal.StateStarted, 0, 0, 1)
	n1b := second.Link(1) // the same run
	n1b.State(signal.StateStarted, 0, 0, 1)
	word(t, first, 1, mgmclient.Started)
	word(t, second, 1, mgmclient.Started)
	n1b.Event(event.New(1, event.WarningEvent).WithText("something"))
	n1.Event(event.New(1, event.WarningEvent).WithText("something"))
	first.Logged("Node 1: something")
	second.Logged("Node 1: something")

	first.Kill()
	if _, why := take(t, second.Connect(), mgmclient.NodeIDRequest{Type: data, NodeID: 1}); why == "" {
		t.Fatal("a node that has a link was forgotten")
	}
	first = p.Again(t, 0, mgmtest.Parse(t, p.Ini))
	p.Met(t)
	port(first, 4711)
	if _, why := take(t, first.Connect(), mgmclient.NodeIDRequest{Type: data, NodeID: 1}); why != "Id 1 already allocated by another node." {
		t.Fatalf("%q", why)
	}
	n1b.Close()
	if id, why := take(t, first.Connect(), mgmclient.NodeIDRequest{Type: data, NodeID: 1, Wait: mgmtest.Patience}); id != 1 {
		t.Fatalf("%q", why)
	}
}

// What a server held is free when it has been gone for a while and nobody has come over.
func TestALostServersIdsAreFreeAfterAWhile(t *testing.T) {
	p := mgmtest.StartPair(t, mgmtest.TwoServers, limits(func(l *mgmd.Limits) { l.Lease = 300 * time.Millisecond }))
	take(t, p.Servers[0].Connect(), mgmclient.NodeIDRequest{Type: api, NodeID: 51, Secret: 5})
	p.Servers[0].Kill()
	// The run itself may take it up at once.
	c := p.Servers[1].Connect()
	if id, why := take(t, c, mgmclient.NodeIDRequest{Type: api, NodeID: 51, Secret: 5, Running: true}); id != 51 {
		t.Fatalf("%q", why)
	}
	c.Close()
	if id, why := take(t, p.Servers[1].Connect(), mgmclient.NodeIDRequest{Type: api, NodeID: 51, Secret: 6, Wait: mgmtest.Patience}); id != 51 {
		t.Fatalf("%q", why)
	}
}

func TestServersStopEachOther(t *testing.T) {
	p := mgmtest.StartPair(t, mgmtest.TwoServers)
	stopped, err := p.Servers[0].Connect().Stop(mgmtest.Context(t), []int{50}, mgmclient.StopOptions{})
	if err != nil || stopped.Disconnect {
		t.Fatalf("%+v, %v", stopped, err)
	}
	if status, err := p.Servers[0].Connect().Status(mgmtest.Context(t)); err != nil || status.Node(50).Status != mgmclient.NoContact {
		t.Fatalf("the answer came before the end: %+v, %v", status, err)
	}
	<-p.Servers[1].Ended
	if _, err := p.Servers[0].Connect().Stop(mgmtest.Context(t), []int{50}, mgmclient.StopOptions{}); err == nil || err.Error() != "Management server 50 is not connected" {
		t.Fatal(err)
	}
	p.Again(t, 1, mgmtest.Parse(t, p.Ini))
	p.Met(t)
	// SHUTDOWN ends both.
	if _, err := p.Servers[1].Connect().StopAll(mgmtest.Context(t), true, true, mgmclient.StopOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, s := range p.Servers {
		<-s.Ended
	}
}

func TestWhoIsNoManagementServerIsToldSo(t *testing.T) {
	p := mgmtest.StartPair(t, mgmtest.TwoServers)
	for say, want := range map[string]string{
		"mgmd sync\n\n": "Only another management server may say that",
		"mgmd hold\nnode: 1\nsecret: 1\nversion: 256\n\n":                                    "Only another management server may say that",
		"mgmd commit\ngeneration: 1\n\n":                                                     "Only another management server may say that",
		"mgmd end\nreason: x\n\n":                                                            "Only another management server may say that",
		"mgmd hello\nnode: 50\nversion: 256\ncluster: other\ngeneration: 1\ndigest: 0\n\n":   "This is cluster test, not other",
		"mgmd hello\nnode: 49\nversion: 256\ncluster: test\ngeneration: 1\ndigest: 0\n\n":    "Management server 49 runs already",
		"mgmd hello\nnode: 51\nversion: 256\ncluster: test\ngeneration: 0\ndigest: 0\n\n":    "Node 51 is no management server in configuration 0",
		"mgmd hello\nnode: 50\nversion: 524320\ncluster: test\ngeneration: 1\ndigest: 0\n\n": "Incompatible versions",
	} {
		if got := p.Servers[0].Dial().Say(say); !strings.Contains(got, want) {
			t.Errorf("%q was answered %q", say, got)
		}
	}
}
