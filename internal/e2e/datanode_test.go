package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
)

// servers is a cluster whose processes a test starts and ends one by one.
type servers struct {
	t       *testing.T
	dir     string
	file    string
	connect string
	mgmd    *Process
	data    map[int]*Process
}

// newServers starts the management server of a cluster of data nodes with a replica each.
func newServers(t *testing.T, nodes int, more string) *servers {
	t.Helper()
	s := &servers{t: t, dir: t.TempDir(), data: map[int]*Process{}}
	s.connect = fmt.Sprintf("127.0.0.1:%d", FreePort(t))
	_, port, _ := net.SplitHostPort(s.connect)
	text := fmt.Sprintf("[ndbd default]\nNoOfReplicas=%d\nDataMemory=32M\nDiskless=1\nDataDir=%s\n%s\n[ndb_mgmd]\nNodeId=49\nHostName=127.0.0.1\nPortNumber=%s\nDataDir=%s\n[api]\n[api]\n",
		nodes, s.dir, more, port, s.dir)
	for i := range nodes {
		text += fmt.Sprintf("[ndbd]\nNodeId=%d\nHostName=127.0.0.1\n", i+1)
	}
	s.file = filepath.Join(s.dir, "config.ini")
	if err := os.WriteFile(s.file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s.startMgmd("--initial")
	return s
}

func (s *servers) startMgmd(args ...string) {
	s.t.Helper()
	s.mgmd = Start(s.t, "ndb_mgmd", append([]string{"-f", s.file, "--configdir=" + s.dir, "--nodaemon", "--ndb-nodeid=49"}, args...)...)
}

func (s *servers) start(program string, node int, args ...string) *Process {
	s.t.Helper()
	s.data[node] = Start(s.t, program, append([]string{"-c", s.connect, fmt.Sprintf("--ndb-nodeid=%d", node)}, args...)...)
	return s.data[node]
}

// client is a session with the management server.
func (s *servers) client() (*mgmclient.Client, context.Context) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	c, err := mgmclient.Connect(ctx, s.connect, mgmclient.Options{Name: "test", Retries: -1, RetryDelay: 20 * time.Millisecond})
	if err != nil {
		cancel()
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		c.Close()
		cancel()
	})
	return c, ctx
}

// await waits until all data nodes are in a state.
func (s *servers) await(want mgmclient.Status) {
	s.t.Helper()
	c, ctx := s.client()
	defer c.Close()
	var last *mgmclient.ClusterStatus
	Eventually(s.t, "all nodes are "+string(want), func() bool {
		var err error
		if last, err = c.Status(ctx, config.DataNode); err != nil {
			s.t.Fatal(err)
		}
		for _, n := range last.Nodes {
			if n.Status != want {
				return false
			}
		}
		return true
	})
}

// works runs a small load against the cluster.
func (s *servers) works() {
	s.t.Helper()
	p := start(s.t, []string{"NDB_CONNECTSTRING=" + s.connect}, "flexAsynch", "-ndbrecord", "-temp", "-t", "2", "-p", "16", "-o", "5", "-a", "2", "-l", "1")
	if status := p.Wait(s.t); status != 0 {
		s.t.Fatalf("flexAsynch: status %d\n%s%s", status, p.Stdout(), p.Stderr())
	}
}

// A restart by management happens in the same process, with or without waiting for START.
func TestRestartInPlace(t *testing.T) {
	s := newServers(t, 2, "")
	s.start("ndbd", 1)
	s.start("ndbmtd", 2)
	s.await(mgmclient.Started)
	s.works()
	c, ctx := s.client()
	if n, err := c.RestartAll(ctx, mgmclient.StopOptions{NoStart: true}); err != nil || n.Count != 2 {
		t.Fatal(n, err)
	}
	s.await(mgmclient.NotStarted)
	if n, err := c.StartAll(ctx); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	s.await(mgmclient.Started)
	if n, err := c.RestartAll(ctx, mgmclient.StopOptions{}); err != nil || n.Count != 2 {
		t.Fatal(n, err)
	}
	Eventually(t, "the third start of both", func() bool {
		return strings.Count(s.data[1].Stdout(), ": Started (") == 3 && strings.Count(s.data[2].Stdout(), ": Started (") == 3
	})
	s.await(mgmclient.Started)
	s.works()
	if _, err := c.StopAll(ctx, true, false, mgmclient.StopOptions{}); err != nil {
		t.Fatal(err)
	}
	for node, p := range s.data {
		if status := p.Wait(t); status != exitcode.Done || p.Stderr() != "" {
			t.Errorf("node %d: status %d\n%s", node, status, p.Stderr())
		}
	}
}

// Data nodes need no management server once they run, and link to one that comes back.
func TestNodesGoOnWithoutTheManagementServer(t *testing.T) {
	s := newServers(t, 2, "")
	s.start("ndbd", 1)
	s.start("ndbd", 2)
	s.await(mgmclient.Started)
	for range 2 {
		s.mgmd.Signal(t, syscall.SIGKILL)
		s.mgmd.Wait(t)
		s.startMgmd()
		s.await(mgmclient.Started)
		s.works()
	}
	for node, p := range s.data {
		if p.Ended() || strings.Count(p.Stdout(), ": Started (") != 1 {
			t.Errorf("node %d did not go on:\n%s%s", node, p.Stdout(), p.Stderr())
		}
	}
}

// With StopOnError=0 a node that fails starts again, in the same process, as often as its configuration allows.
func TestStopOnErrorOff(t *testing.T) {
	s := newServers(t, 2, "StopOnError=0\nStartFailureTimeout=200\nMaxStartFailRetries=2")
	one := s.start("ndbd", 1)
	if status := one.Wait(t); status != exitcode.StartFailed {
		t.Errorf("status %d: %s", status, one.Stderr())
	}
	if n := strings.Count(one.Stdout(), "starts again, because StopOnError is 0"); n != 2 {
		t.Errorf("it started again %d times", n)
	}
	if !strings.Contains(one.Stdout(), "gives up after 3 starts that failed (MaxStartFailRetries=2)") {
		t.Error("it does not say why it gives up")
	}
}

// Without it the node ends, and its status says why.
func TestAnErrorIsTheExitStatus(t *testing.T) {
	s := newServers(t, 2, "StartFailureTimeout=200")
	one := s.start("ndbmtd", 1)
	if status := one.Wait(t); status != exitcode.StartFailed || !strings.HasPrefix(one.Stderr(), "ndbmtd: node 1 stopped: ") {
		t.Errorf("status %d, %s", status, one.Stderr())
	}
}

// SIGTERM makes a node leave in order, if the cluster can go on without it.
func TestANodeLeavesWhenTheSystemAsksIt(t *testing.T) {
	s := newServers(t, 2, "")
	s.start("ndbmtd", 1)
	s.start("ndbmtd", 2)
	s.await(mgmclient.Started)
	s.data[2].Signal(t, syscall.SIGTERM)
	if status := s.data[2].Wait(t); status != exitcode.Done || strings.Contains(s.data[2].Stdout(), "at once") {
		t.Errorf("status %d\n%s", status, s.data[2].Stdout())
	}
	s.works()
	s.data[1].Signal(t, syscall.SIGTERM)
	if status := s.data[1].Wait(t); status != exitcode.Done {
		t.Errorf("status %d\n%s", status, s.data[1].Stdout())
	}
}

// A node waits for a management server that is not there yet, and says so.
func TestANodeWaitsForItsManagementServer(t *testing.T) {
	s := newServers(t, 1, "")
	s.mgmd.Signal(t, syscall.SIGKILL)
	s.mgmd.Wait(t)
	p := s.start("ndbd", 1)
	Eventually(t, "the node says what it waits for", func() bool { return strings.Contains(p.Stdout(), "waiting for a management server") })
	s.startMgmd()
	s.await(mgmclient.Started)
	s.works()
}

// An empty node starts within a second and takes little memory.
func TestAnEmptyNodeIsSmallAndQuick(t *testing.T) {
	s := newServers(t, 1, "")
	c, _ := s.client() // the server is up
	c.Close()
	began := time.Now()
	p := s.start("ndbd", 1)
	s.await(mgmclient.Started)
	t.Logf("started after %v", time.Since(began))
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	var kb int
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			if _, err := fmt.Sscanf(rest, "%d kB", &kb); err != nil {
				t.Fatal(err)
			}
		}
	}
	if kb == 0 || kb > 150<<10 {
		t.Errorf("%d KB are resident", kb)
	}
	t.Logf("%d KB resident", kb)
}
