package noded

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/mgmtest"
)

// text collects what a node prints.
type text struct {
	mu sync.Mutex
	b  strings.Builder
}

func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// running is a data node in this process.
type running struct {
	out, err text
	status   chan int
}

func start(t *testing.T, addr string, id int, args ...string) *running {
	r := &running{status: make(chan int, 1)}
	go func() {
		r.status <- NDBMTD("ndbmtd", append([]string{"-c", addr, fmt.Sprintf("--ndb-nodeid=%d", id)}, args...), nil, &r.out, &r.err)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("node %d:\n%s%s", id, &r.out, &r.err)
		}
	})
	return r
}

func (r *running) wait(t *testing.T) int {
	t.Helper()
	select {
	case status := <-r.status:
		return status
	case <-time.After(mgmtest.Patience):
		t.Fatal("the node does not end")
	}
	return -1
}

// await waits until the data nodes are in the states, in the order of their ids.
func await(t *testing.T, c *mgmclient.Client, want ...mgmclient.Status) {
	t.Helper()
	ctx := mgmtest.Context(t)
	for {
		s, err := c.Status(ctx, config.DataNode)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for i, w := range want {
			if s.Nodes[i].Status == w {
				n++
			}
		}
		if n == len(want) {
			return
		}
	}
}

// cluster is TwoNodes with a folder of its own.
func cluster(t *testing.T) *mgmtest.Server {
	return mgmtest.Start(t, strings.Replace(mgmtest.TwoNodes, "Diskless=1\n", "DataMemory=32M\nDataDir="+t.TempDir()+"\n", 1))
}

func TestAClusterStartsAndStops(t *testing.T) {
	s := cluster(t)
	a, b := start(t, s.Addr, 1), start(t, s.Addr, 2)
	c := s.Connect()
	await(t, c, mgmclient.Started, mgmclient.Started)
	if _, err := c.StopAll(mgmtest.Context(t), true, false, mgmclient.StopOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*running{a, b} {
		if status := r.wait(t); status != exitcode.Done || r.err.String() != "" {
			t.Errorf("status %d, %s", status, &r.err)
		}
		for _, want := range []string{"node id ", "listens on 127.0.0.1:", ` KB  sum\n`, `Started \(`, `stopped: `} {
			if !regexp.MustCompile(want).MatchString(r.out.String()) {
				t.Errorf("%q is missing in\n%s", want, &r.out)
			}
		}
	}
}

func TestANodeThatWaitsForStart(t *testing.T) {
	s := cluster(t)
	a, b := start(t, s.Addr, 1, "--nostart"), start(t, s.Addr, 2, "-n")
	c := s.Connect()
	await(t, c, mgmclient.NotStarted, mgmclient.NotStarted)
	if n, err := c.StartAll(mgmtest.Context(t)); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	await(t, c, mgmclient.Started, mgmclient.Started)
	if _, err := c.StopAll(mgmtest.Context(t), true, false, mgmclient.StopOptions{}); err != nil {
		t.Fatal(err)
	}
	a.wait(t)
	b.wait(t)
}

func TestANodeStopsAloneAndComesBack(t *testing.T) {
	s := cluster(t)
	a, b := start(t, s.Addr, 1), start(t, s.Addr, 2)
	c := s.Connect()
	await(t, c, mgmclient.Started, mgmclient.Started)
	if _, err := c.Stop(mgmtest.Context(t), []int{2}, mgmclient.StopOptions{}); err != nil {
		t.Fatal(err)
	}
	if status := b.wait(t); status != exitcode.Done {
		t.Errorf("status %d", status)
	}
	b = start(t, s.Addr, 2)
	await(t, c, mgmclient.Started, mgmclient.Started)
	if _, err := c.StopAll(mgmtest.Context(t), true, false, mgmclient.StopOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*running{a, b} {
		if status := r.wait(t); status != exitcode.Done || r.err.String() != "" {
			t.Errorf("status %d, %s", status, &r.err)
		}
	}
	if !strings.Contains(a.out.String(), "nothing is written to disk yet") {
		t.Error("no warning about Diskless=0")
	}
}

func TestWhyANodeCannotStart(t *testing.T) {
	s := cluster(t)
	for _, c := range []struct {
		args   string
		id     int
		status int
		err    string
	}{
		{"", 3, exitcode.Management, "no node id"},
		{"--nowait-nodes=2", 2, exitcode.Config, "nowait"},
		{"--nowait-nodes=7", 2, exitcode.Config, "nowait"},
		{"--bind-address=192.0.2.1", 2, exitcode.Network, "cannot listen"},
	} {
		r := start(t, s.Addr, c.id, strings.Fields(c.args)...)
		if status := r.wait(t); status != c.status || !strings.Contains(r.err.String(), c.err) || strings.Count(r.err.String(), "\n") != 1 {
			t.Errorf("%d %s: status %d, %s", c.id, c.args, status, &r.err)
		}
	}
}
