package ndb

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/mgmtest"
)

// detour stands between a client and a management server, which can be taken away and replaced.
type detour struct {
	ln    net.Listener
	mu    sync.Mutex
	to    string // "": nobody is there
	conns []net.Conn
}

func newDetour(t *testing.T) *detour {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &detour{ln: ln}
	t.Cleanup(func() {
		ln.Close()
		d.lead("")
	})
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			d.mu.Lock()
			to := d.to
			var s net.Conn
			if to != "" {
				s, _ = net.Dial("tcp", to)
			}
			if s == nil {
				c.Close()
			} else {
				d.conns = append(d.conns, c, s)
				go io.Copy(c, s)
				go io.Copy(s, c)
			}
			d.mu.Unlock()
		}
	}()
	return d
}

// lead cuts every session and leads to another server.
func (d *detour) lead(to string) {
	d.mu.Lock()
	d.to = to
	for _, c := range d.conns {
		c.Close()
	}
	d.conns = nil
	d.mu.Unlock()
}

func TestConnectAndTheManagementServersAbsence(t *testing.T) {
	ini := strings.Replace(mgmtest.TwoNodes, "NoOfReplicas=2", "NoOfReplicas=1", 1)
	first, second := mgmtest.Start(t, ini), mgmtest.Start(t, ini)
	d := newDetour(t)
	d.lead(first.Addr)
	f := newFakeOf(t, mgmtest.Parse(t, ini), 2)
	ctx := mgmtest.Context(t)
	publish := func(s *mgmtest.Server) {
		for _, n := range f.nodes {
			m := s.Connect()
			if _, err := m.GetNodeID(ctx, mgmclient.NodeIDRequest{Type: config.DataNode, NodeID: int(n.id), Secret: 5}); err != nil {
				t.Fatal(err)
			}
			if err := m.SetPort(ctx, int(n.id), n.addr.Port); err != nil {
				t.Fatal(err)
			}
		}
	}
	publish(first)

	c, err := Connect(ctx, "nodeid=52,"+d.ln.Addr().String(), Options{Name: "shop", WaitAll: true, Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.NodeID() != 52 || len(c.Nodes()) != 2 {
		t.Error(c.NodeID(), c.Nodes())
	}
	if _, err := Connect(ctx, d.ln.Addr().String(), Options{NodeID: 52, ConnectTimeout: 2 * time.Second}); err == nil || !strings.Contains(err.Error(), "52") {
		t.Error("a node id was given twice: ", err)
	}
	t.Setenv(mgmclient.Environment, d.ln.Addr().String())
	other, err := Connect(ctx, "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if other.NodeID() != 51 {
		t.Error(other.NodeID())
	}
	other.Close()

	// The management server goes. Rows are read and written, and a data node that comes back is found again.
	d.lead("")
	accounts := mustBind[account](t, mustTable(t, c, accountDef()))
	s := mustSession(t, c, SessionOptions{})
	defer s.Close()
	for i := range uint32(10) {
		if err := accounts.Put(ctx, s, &account{ID: i}); err != nil {
			t.Fatal(err)
		}
	}
	f.nodes[0].kill()
	eventually(t, "the loss is noticed", func() bool { return !c.Nodes()[0].Connected })
	f.nodes[0].back()
	if err := c.WaitReady(ctx, 2); err != nil {
		t.Fatal(err)
	}
	// Another server comes in its place; it hears who has the node id.
	publish(second)
	d.lead(second.Addr)
	mgmtest.Until(t, "the node id is held at the new server", func() bool {
		st, err := second.Connect().Status(ctx, config.APINode)
		return err == nil && st.Node(52).IsConnected() && !st.Node(51).IsConnected()
	})
	if err := accounts.Get(ctx, s, &account{ID: 3}); err != nil {
		t.Error(err)
	}
}

// Of two management servers either may die, then the other: a program that is connected works on, and finds a data node
// that has come back on another port as long as one of them is there.
func TestTwoManagementServersGoOneAfterTheOther(t *testing.T) {
	ini := strings.Replace(mgmtest.TwoServers, "NoOfReplicas=2", "NoOfReplicas=1", 1)
	p := mgmtest.StartPair(t, ini)
	f := newFakeOf(t, mgmtest.Parse(t, p.Ini), 2)
	ctx := mgmtest.Context(t)
	publish := func(s *mgmtest.Server, n *fakeNode) {
		m := s.Connect()
		if _, err := m.GetNodeID(ctx, mgmclient.NodeIDRequest{Type: config.DataNode, NodeID: int(n.id), Secret: 5, Running: s != p.Servers[0], Cluster: "test"}); err != nil {
			t.Fatal(err)
		}
		if err := m.SetPort(ctx, int(n.id), n.addr.Port); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range f.nodes {
		publish(p.Servers[0], n)
	}
	mgmtest.Until(t, "both servers know the ports", func() bool {
		for _, n := range f.nodes {
			if got, err := p.Servers[1].Connect().GetPort(ctx, 51, int(n.id)); err != nil || got != n.addr.Port {
				return false
			}
		}
		return true
	})
	c, err := Connect(ctx, "127.0.0.1:1,"+p.Servers[0].Addr+","+p.Servers[1].Addr, Options{NodeID: 51, WaitAll: true, Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	accounts := mustBind[account](t, mustTable(t, c, accountDef()))
	s := mustSession(t, c, SessionOptions{})
	defer s.Close()
	work := func() {
		t.Helper()
		for i := range uint32(10) {
			if err := accounts.Put(ctx, s, &account{ID: i}); err != nil {
				t.Fatal(err)
			}
		}
	}
	work()
	p.Servers[0].Kill()
	work()
	n := f.nodes[0]
	n.kill()
	eventually(t, "the loss is noticed", func() bool { return !c.Nodes()[0].Connected })
	n.addr = nil // it will have another port
	n.secret.Add(1)
	n.listen("127.0.0.1:0")
	publish(p.Servers[1], n)
	if err := c.WaitReady(ctx, 2); err != nil {
		t.Fatal(err)
	}
	work()
	p.Servers[1].Kill()
	work()
	n.kill()
	eventually(t, "the loss is noticed", func() bool { return !c.Nodes()[0].Connected })
	n.back()
	if err := c.WaitReady(ctx, 2); err != nil {
		t.Fatal(err)
	}
	work()
}

func TestConnectSaysWhyItCannot(t *testing.T) {
	ctx := context.Background()
	short := Options{ConnectTimeout: 50 * time.Millisecond}
	if _, err := Connect(ctx, "nodeid=0,x", short); err == nil || !strings.Contains(err.Error(), "nodeid") {
		t.Error(err)
	}
	d := newDetour(t)
	if _, err := Connect(ctx, d.ln.Addr().String(), short); err == nil || !strings.HasPrefix(err.Error(), "ndb: ") {
		t.Error(err)
	}
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	if _, err := Connect(ctx, s.Addr, Options{NodeID: 1, ConnectTimeout: time.Second}); err == nil {
		t.Error("the node id of a data node was given to a program")
	}
	if _, err := Connect(ctx, s.Addr, Options{ConnectTimeout: 300 * time.Millisecond}); err == nil || !strings.Contains(err.Error(), "0 of 1 data nodes are started") {
		t.Error(err)
	}
	st, err := s.Connect().Status(mgmtest.Context(t), config.APINode)
	if err != nil || st.Node(51).IsConnected() {
		t.Error("a node id is held by a program that gave up")
	}
}
