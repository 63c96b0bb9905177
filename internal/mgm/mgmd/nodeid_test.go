package mgmd_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/mgmtest"
	"github.com/cohortdb/cohort/internal/signal"
)

// take asks for an id and gives it, or the text of the refusal.
func take(t *testing.T, c *mgmclient.Client, r mgmclient.NodeIDRequest) (int, string) {
	t.Helper()
	id, err := c.GetNodeID(mgmtest.Context(t), r)
	var refusal *mgmclient.Refusal
	if err != nil && !errors.As(err, &refusal) {
		t.Fatal(err)
	}
	if err != nil {
		return 0, err.Error()
	}
	return id, ""
}

const data, api = config.DataNode, config.APINode

func TestIdsAreGivenInOrderAndTheOneOfTheHostFirst(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	for _, want := range []int{1, 2} {
		if id, why := take(t, s.Connect(), mgmclient.NodeIDRequest{Type: data}); id != want {
			t.Fatalf("want %d, got %d %s", want, id, why)
		}
	}
	if id, why := take(t, s.Connect(), mgmclient.NodeIDRequest{Type: data}); why != "No free node id found for ndbd(NDB)." {
		t.Fatalf("%d, %q", id, why)
	}
	// 51 is for any host, 52 for this one.
	for _, want := range []int{52, 51} {
		if id, why := take(t, s.Connect(), mgmclient.NodeIDRequest{Type: api}); id != want {
			t.Fatalf("want %d, got %d %s", want, id, why)
		}
	}
	if _, why := take(t, s.Connect(), mgmclient.NodeIDRequest{Type: api}); why != "No free node id found for mysqld(API)." {
		t.Fatalf("%q", why)
	}
}

const elsewhere = `[SYSTEM]
Name=test
[NDBD DEFAULT]
NoOfReplicas=1
Diskless=1
[NDB_MGMD]
NodeId=49
[NDBD]
NodeId=1
HostName=192.0.2.7
[API]
NodeId=51
HostName=no-such-host.invalid
[API]
NodeId=52
Dedicated=1
`

func TestHostsAndDedicatedIds(t *testing.T) {
	s := mgmtest.Start(t, elsewhere)
	_, why := take(t, s.Connect(), mgmclient.NodeIDRequest{Type: data, NodeID: 1})
	if why != "Connection done from wrong host ip 127.0.0.1. Id 1 is for host 192.0.2.7." {
		t.Errorf("%q", why)
	}
	if id, why := take(t, s.Connect(), mgmclient.NodeIDRequest{Type: data}); !strings.Contains(why, "wrong host ip 127.0.0.1") {
		t.Errorf("%d, %q", id, why)
	}
	// Id 52 is dedicated, so nobody gets it without asking for it.
	if id, why := take(t, s.Connect(), mgmclient.NodeIDRequest{Type: api}); !strings.Contains(why, "wrong host ip 127.0.0.1") {
		t.Errorf("%d, %q", id, why)
	}
	if id, why := take(t, s.Connect(), mgmclient.NodeIDRequest{Type: api, NodeID: 52}); id != 52 {
		t.Errorf("%d, %q", id, why)
	}
	s.Logged("Allocate nodeid for 127.0.0.1 failed. Returned error: 'Connection done from wrong host ip")
}

func TestAnIdIsFreeWhenItsSessionEnds(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	c := s.Connect()
	take(t, c, mgmclient.NodeIDRequest{Type: data, NodeID: 1})
	other := s.Connect()
	if _, why := take(t, other, mgmclient.NodeIDRequest{Type: data, NodeID: 1}); why != "Id 1 already allocated by another node." {
		t.Fatalf("%q", why)
	}
	c.Close()
	// Who says that it can wait gets the id as soon as it is free.
	if id, why := take(t, other, mgmclient.NodeIDRequest{Type: data, NodeID: 1, Wait: mgmtest.Patience}); id != 1 {
		t.Fatalf("%q", why)
	}
	s.Logged("Nodeid 1 allocated for ndbd(NDB) at 127.0.0.1")
	s.Logged("Nodeid 1 freed: its session ended")
}

func TestAWaitEndsWithARefusal(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	take(t, s.Connect(), mgmclient.NodeIDRequest{Type: data, NodeID: 1})
	if _, why := take(t, s.Connect(), mgmclient.NodeIDRequest{Type: data, NodeID: 1, Wait: 20 * time.Millisecond}); why != "Id 1 already allocated by another node." {
		t.Fatalf("%q", why)
	}
}

func TestASessionHoldsOneId(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	c := s.Connect()
	take(t, c, mgmclient.NodeIDRequest{Type: data, NodeID: 1})
	take(t, c, mgmclient.NodeIDRequest{Type: data, NodeID: 2})
	if id, why := take(t, s.Connect(), mgmclient.NodeIDRequest{Type: data}); id != 1 {
		t.Fatalf("%d, %q", id, why)
	}
}

func TestTheSameRunTakesItsIdAgain(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	first, again, c := s.Connect(), s.Connect(), s.Connect()
	take(t, first, mgmclient.NodeIDRequest{Type: api, NodeID: 51, Secret: 5})
	if _, why := take(t, c, mgmclient.NodeIDRequest{Type: api, NodeID: 51, Secret: 6}); why == "" {
		t.Fatal("another run got the id")
	}
	if id, why := take(t, again, mgmclient.NodeIDRequest{Type: api, NodeID: 51, Secret: 5}); id != 51 {
		t.Fatalf("%q", why)
	}
	first.Close()
	// The end of the older session takes nothing away from the newer one.
	if _, why := take(t, c, mgmclient.NodeIDRequest{Type: api, NodeID: 51, Secret: 6, Wait: 20 * time.Millisecond}); why == "" {
		t.Fatal("the id went with the older session")
	}
}

func TestALinkHoldsTheId(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	n := s.Link(1)
	s.Logged("Node 49: Node 1 Connected")
	c := s.Connect()
	if _, why := take(t, c, mgmclient.NodeIDRequest{Type: data, NodeID: 1}); why != "Id 1 already allocated by another node." {
		t.Fatalf("%q", why)
	}
	n.Close()
	if id, why := take(t, c, mgmclient.NodeIDRequest{Type: data, NodeID: 1, Wait: mgmtest.Patience}); id != 1 {
		t.Fatalf("%q", why)
	}
	s.Logged("ALERT    -- Node 49: Node 1 Disconnected")
}

// An API node needs no link to the server; its session counts, and so does the word of a data node that has a link to it.
func TestAnAPINodeIsHeldByWhoeverKnowsIt(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	n := s.Link(1)
	c := s.Connect()
	take(t, c, mgmclient.NodeIDRequest{Type: api, NodeID: 51, Secret: 9})
	look := s.Connect()
	connected := func() bool {
		status, err := look.Status(mgmtest.Context(t), api)
		if err != nil {
			t.Fatal(err)
		}
		return status.Node(51).Status == mgmclient.Connected
	}
	if !connected() {
		t.Fatal("an API node with a session is connected")
	}
	n.State(signal.StateStarted, 0, 0, 1, 51)
	started(s, 1)
	c.Close()
	speak := s.Dial()
	mgmtest.Until(t, "its session is gone", func() bool { return !strings.Contains(speak.Say("list sessions\n\n"), "nodeid: 51\n") })
	other := s.Connect()
	if _, why := take(t, other, mgmclient.NodeIDRequest{Type: api, NodeID: 51}); why != "Id 51 already allocated by another node." || !connected() {
		t.Fatalf("%q", why)
	}
	// The node itself comes back and says that it runs.
	if id, why := take(t, other, mgmclient.NodeIDRequest{Type: api, NodeID: 51, Secret: 9, Running: true}); id != 51 {
		t.Fatalf("%q", why)
	}
	other.Close()
	n.State(signal.StateStarted, 0, 0, 1)
	mgmtest.Until(t, "nobody knows it any more", func() bool { return !connected() })
	s.Logged("Nodeid 51 freed")
}

func TestHellosAreJudged(t *testing.T) {
	s, far := mgmtest.Start(t, mgmtest.TwoNodes), mgmtest.Start(t, elsewhere)
	running := s.Link(2)
	for _, c := range []struct {
		want   string
		code   uint32
		server *mgmtest.Server
		id     uint8
		f      func(h *signal.Hello)
	}{
		{"frames 99", signal.RefuseVersion, s, 2, func(h *signal.Hello) { h.Version = 99 }},
		{"the node cohort-8.0.32", signal.RefuseVersion, s, 2, func(h *signal.Hello) { h.Software = 0x080020 }},
		{"This is cluster test", signal.RefuseCluster, s, 2, func(h *signal.Hello) { h.Name = signal.NameHash("other") }},
		{"not node 50", signal.RefuseMeant, s, 2, func(h *signal.Hello) { h.Peer = 50 }},
		{"No such node 3", signal.RefuseNode, s, 3, func(h *signal.Hello) {}},
		{"No such node 2", signal.RefuseNode, s, 2, func(h *signal.Hello) { h.Kind = uint32(signal.PeerAPI) }},
		{"one link", signal.RefuseSocket, s, 2, func(h *signal.Hello) { h.Socket = 1 }},
		{"Id 2 already allocated", signal.RefuseTaken, s, 2, func(h *signal.Hello) { h.Secret = [2]uint32{1, 2} }},
		{"wrong host ip 127.0.0.1", signal.RefuseNode, far, 1, func(h *signal.Hello) {}},
	} {
		hello := c.server.Hello(c.id, 0)
		c.f(hello)
		_, r, h := mgmtest.Greet(t, c.server.Connect(), hello)
		if h.Num != signal.NumHelloRef {
			t.Errorf("%q: %s", c.want, signal.Format(h))
			continue
		}
		if fault := signal.Check(h, signal.PeerMgm, h.From.Node(), c.id); fault != nil {
			t.Errorf("%q: %v", c.want, fault)
		}
		if ref := refOf(h); ref.Code != c.code || !strings.Contains(ref.Text(), c.want) {
			t.Errorf("want %d %q, got %d %q", c.code, c.want, ref.Code, ref.Text())
		}
		if _, err := r.Next(); err == nil {
			t.Errorf("%q: the link goes on", c.want)
		}
	}
	running.State(signal.StateStarted, 0, 0, 1)
	started(s, 2)
}

// A node that runs already opens a link to a server that was started anew without asking for an id first; the same run
// replaces a link that the server has not yet missed.
func TestARunningNodeComesBack(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	first, _, h := mgmtest.Greet(t, s.Connect(), s.Hello(1, 33))
	if h.Num != signal.NumHelloConf {
		t.Fatal(signal.Format(h))
	}
	_, _, h = mgmtest.Greet(t, s.Connect(), s.Hello(1, 33))
	if h.Num != signal.NumHelloConf {
		t.Fatal(signal.Format(h))
	}
	first.Close()
	status, err := s.Connect().Status(mgmtest.Context(t), data)
	if err != nil || status.Node(1).Status != mgmclient.NotStarted || status.Node(1).ConnectCount != 2 {
		t.Fatalf("%+v, %v", status, err)
	}
}
