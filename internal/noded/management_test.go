package noded

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/mgmtest"
)

// mute is a server that takes connections and says nothing.
func mute(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

func servers(t *testing.T, text string) config.ConnectString {
	c, err := config.ParseConnectString(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A port is asked of any server that answers; when none does the node goes by what it knew.
func TestAPortIsAskedOfAnyServer(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	ctx := mgmtest.Context(t)
	at := servers(t, mute(t)+","+s.Addr)
	m := &management{name: "ndbd", servers: from(at, 1), log: newLogger(new(text), "ndbd"), secret: [2]uint32{1, 2}}
	set, _, err := parse([]string{"-c", at.String(), "--ndb-nodeid=2"})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.enter(ctx, set); err != nil {
		t.Fatal(err)
	}
	defer m.close()
	if port, err := m.portOf(ctx, 1); err == nil || !strings.Contains(err.Error(), "not said yet") {
		t.Fatalf("%d, %v", port, err)
	}
	one := s.Connect()
	if _, err := one.GetNodeID(ctx, mgmclient.NodeIDRequest{Type: config.DataNode, NodeID: 1, Name: "ndbd"}); err != nil {
		t.Fatal(err)
	}
	if err := one.SetPort(ctx, 1, 4711); err != nil {
		t.Fatal(err)
	}
	m.client.Close()
	m.servers, m.turn = at, 0 // the one that says nothing comes first
	began := time.Now()
	if port, err := m.portOf(ctx, 1); err != nil || port != 4711 {
		t.Fatalf("%d, %v", port, err)
	}
	if d := time.Since(began); d < portTime {
		t.Fatalf("the silent server was not asked: it took %v", d)
	}
	m.client.Close()
	m.servers = servers(t, mute(t))
	for range 3 {
		if port, err := m.portOf(ctx, 1); err != nil || port != 4711 {
			t.Fatalf("no server: %d, %v", port, err)
		}
	}
}

// A server that hangs keeps no node from starting.
func TestAServerThatHangsIsPassedOver(t *testing.T) {
	s := cluster(t)
	for id := 1; id <= 2; id++ {
		start(t, mute(t)+","+s.Addr, id)
	}
	c := s.Connect()
	await(t, c, mgmclient.Started, mgmclient.Started)
	if _, err := c.StopAll(mgmtest.Context(t), true, false, mgmclient.StopOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestPausesBeforeRestartsGrow(t *testing.T) {
	last := time.Duration(0)
	for n := range 100 {
		p := pauseAfter(n)
		if n < 2 && p != 0 || n >= 2 && (p < last || p < firstPause || p > lastPause) {
			t.Fatalf("after %d runs: %v after %v", n, p, last)
		}
		last = p
	}
}
