package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/e2e"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
)

// firstServer is the node id of the first management server; clients have the ids from firstClient on.
const (
	firstServer = 49
	firstClient = 60
)

// Options describe a cluster.
type Options struct {
	DataNodes, Replicas int      // 0: two
	Servers             int      // management servers; 0: one
	Clients             int      // slots for clients; 0: eight
	Hosts               int      // hosts for clients, with the first slots' ids
	Network             Kind     //
	Settings            []string // further lines of [ndbd default]
	// Disk is the size of a file system of its own for each data node's directory, in bytes; 0: none.
	Disk int64
}

// Cluster is a running cluster.
type Cluster struct {
	t       testing.TB
	o       Options
	dir     string
	file    string // config.ini
	net     network
	data    []int // node ids
	servers []int

	mu     sync.Mutex
	runs   map[int]*Process // newest run of each node
	upset  []span           // when errors had a reason
	client *mgmclient.Client
}

// span is a time in which something is done to the cluster; an end of zero is not known yet.
type span struct {
	what     string
	from, to time.Time
}

// Start starts a cluster and waits until its data nodes are started.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	c := Prepare(t, o)
	for _, n := range c.data {
		c.Launch(n)
	}
	c.AwaitStarted()
	c.AwaitArbitrator()
	return c
}

// Prepare makes a cluster of which the management servers run.
func Prepare(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.DataNodes == 0 {
		o.DataNodes = 2
	}
	if o.Replicas == 0 {
		o.Replicas = 2
	}
	if o.Servers == 0 {
		o.Servers = 1
	}
	if o.Clients == 0 {
		o.Clients = 8
	}
	e2e.Bin(t) // it is built before time is taken
	c := &Cluster{t: t, o: o, dir: t.TempDir(), runs: map[int]*Process{}}
	for i := range o.DataNodes {
		c.data = append(c.data, 1+i)
	}
	for i := range o.Servers {
		c.servers = append(c.servers, firstServer+i)
	}
	hosts := slices.Concat(c.data, c.servers)
	for i := range o.Hosts {
		hosts = append(hosts, firstClient+i)
	}
	c.net = newNetwork(t, o.Network, hosts)
	var mounted []string
	t.Cleanup(func() {
		for _, dir := range mounted {
			if err := syscall.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		}
	})
	t.Cleanup(c.end) // before the network and the file systems go
	c.file = filepath.Join(c.dir, "config.ini")
	if err := os.WriteFile(c.file, []byte(c.text()), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, n := range slices.Concat(c.data, c.servers) {
		if err := os.Mkdir(c.Dir(n), 0o755); err != nil {
			t.Fatal(err)
		}
		if o.Disk > 0 && n < firstServer {
			c.mount(c.Dir(n))
			mounted = append(mounted, c.Dir(n))
		}
	}
	for _, n := range c.servers {
		c.Launch(n)
	}
	return c
}

// Dir is a node's directory.
func (c *Cluster) Dir(node int) string { return filepath.Join(c.dir, strconv.Itoa(node)) }

// mount makes a directory a small file system.
func (c *Cluster) mount(dir string) {
	c.t.Helper()
	if err := syscall.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%d", c.o.Disk)); err != nil {
		c.t.Fatalf("a small file system cannot be made here: %v: run this as root", err)
	}
}

// serverPort is where a management server listens.
func (c *Cluster) serverPort(n int) int {
	if p := c.net.port(n); p != 0 {
		return p
	}
	return config.DefaultPort
}

func (c *Cluster) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[ndbd default]\nNoOfReplicas=%d\nDiskless=1\n", c.o.Replicas)
	if !slices.ContainsFunc(c.o.Settings, func(s string) bool { return strings.HasPrefix(s, "DataMemory=") }) {
		b.WriteString("DataMemory=64M\n")
	}
	for _, s := range c.o.Settings {
		b.WriteString(s + "\n")
	}
	for _, n := range c.servers {
		fmt.Fprintf(&b, "[ndb_mgmd]\nNodeId=%d\nHostName=%s\nPortNumber=%d\nDataDir=%s\n", n, c.net.address(n), c.serverPort(n), c.Dir(n))
	}
	for _, n := range c.data {
		fmt.Fprintf(&b, "[ndbd]\nNodeId=%d\nHostName=%s\nDataDir=%s\n", n, c.net.address(n), c.Dir(n))
		if p := c.net.port(n); p != 0 {
			fmt.Fprintf(&b, "ServerPort=%d\n", p)
		}
	}
	for i := range c.o.Clients {
		fmt.Fprintf(&b, "[api]\nNodeId=%d\n", firstClient+i)
	}
	return b.String()
}

// ConnectString names all management servers.
func (c *Cluster) ConnectString() string {
	var all []string
	for _, n := range c.servers {
		all = append(all, net.JoinHostPort(c.net.address(n), strconv.Itoa(c.serverPort(n))))
	}
	return strings.Join(all, ",")
}

// Launch starts a node's process.
func (c *Cluster) Launch(node int, args ...string) {
	c.t.Helper()
	bind := c.net.private(node)
	tool := "ndbmtd"
	if node >= firstServer {
		tool = "ndb_mgmd"
		args = append([]string{"-f", c.file, "--configdir=" + c.Dir(node), "--ndb-nodeid=" + strconv.Itoa(node), "--nodaemon"}, args...)
		if bind != "" {
			args = append(args, fmt.Sprintf("--bind-address=%s:%d", bind, c.serverPort(node)))
		}
	} else {
		connect := c.ConnectString()
		if bind != "" {
			connect = "bind-address=" + bind + "," + connect
			args = append(args, "--bind-address="+bind)
		}
		args = append([]string{"-c", connect, "--ndb-nodeid=" + strconv.Itoa(node)}, args...)
	}
	p := launch(c.t, node, filepath.Join(c.Dir(node), fmt.Sprintf("ndb_%d_out.log", node)), c.net.command(node), tool, args...)
	c.mu.Lock()
	c.runs[node] = p
	c.mu.Unlock()
}

// Run is the newest run of a node.
func (c *Cluster) Run(node int) *Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs[node]
}

// Kill kills a node's process, which is gone when it returns.
func (c *Cluster) Kill(node int) {
	c.t.Helper()
	p := c.Run(node)
	p.signal(c.t, syscall.SIGKILL)
	<-p.done
}

// Pause stops a node's process as SIGSTOP does; all of it stands still when it returns.
func (c *Cluster) Pause(node int) {
	c.t.Helper()
	p := c.Run(node)
	p.signal(c.t, syscall.SIGSTOP)
	e2e.Eventually(c.t, fmt.Sprintf("node %d stands still", node), p.stopped)
}

// Resume lets it go on.
func (c *Cluster) Resume(node int) { c.t.Helper(); c.Run(node).signal(c.t, syscall.SIGCONT) }

// PauseFor makes a node's process stand still for a while: the time is the failure.
func (c *Cluster) PauseFor(node int, d time.Duration) {
	c.t.Helper()
	c.Pause(node)
	<-time.After(d)
	c.Resume(node)
}

// AwaitAll waits until all data nodes are members and started, whether or not one was put out meanwhile.
func (c *Cluster) AwaitAll() {
	c.t.Helper()
	e2e.Eventually(c.t, "all data nodes are members and started", func() bool {
		s := c.State()
		return s != nil && s.Members == len(c.data) && c.Started()
	})
}

// Block cuts what one node sends to another, or lets it through again.
func (c *Cluster) Block(from, to int, on bool) {
	c.t.Helper()
	if err := c.net.block(from, to, on); err != nil {
		c.t.Fatal(err)
	}
}

// Cut cuts everything between two sets of nodes, or heals it.
func (c *Cluster) Cut(some, others []int, on bool) {
	c.t.Helper()
	for _, a := range some {
		for _, b := range others {
			c.Block(a, b, on)
			c.Block(b, a, on)
		}
	}
}

// Unplug cuts a node from everybody, clients too, or joins it again.
func (c *Cluster) Unplug(node int, on bool) {
	c.t.Helper()
	if err := c.net.unplug(node, on); err != nil {
		c.t.Fatal(err)
	}
}

// Delay keeps what one node sends to another for a while.
func (c *Cluster) Delay(from, to int, d time.Duration) {
	c.t.Helper()
	if err := c.net.delay(from, to, d); err != nil {
		c.t.Fatal(err)
	}
}

// Upset says that something is done to the cluster from now on that may cause errors; what it returns says that it is over.
func (c *Cluster) Upset(format string, args ...any) (over func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := len(c.upset)
	c.upset = append(c.upset, span{what: fmt.Sprintf(format, args...), from: time.Now()})
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.upset[i].to = time.Now()
	}
}

// aftermath is how long after the end of an upset its errors may still show.
const aftermath = 2 * time.Second

// reason is what was done to the cluster at a time, "" if nothing was.
func (c *Cluster) reason(at time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.upset {
		if at.After(s.from) && (s.to.IsZero() || at.Before(s.to.Add(aftermath))) {
			return s.what
		}
	}
	return ""
}

// starved tells whether a node has said that this machine did not let it run shortly before a time: then it may have been
// put out although nobody did anything to it. On a machine with more to do than it can that happens.
func (c *Cluster) starved(at time.Time) bool {
	for _, n := range c.data {
		text, err := os.ReadFile(c.Run(n).log)
		if err != nil {
			continue
		}
		for _, line := range strings.Split(string(text), "\n") {
			if !strings.Contains(line, "did not run for ") || len(line) < len(time.DateTime) {
				continue
			}
			said, err := time.ParseInLocation(time.DateTime, line[:len(time.DateTime)], time.Local)
			if err == nil && said.After(at.Add(-10*time.Second)) && said.Before(at.Add(time.Second)) {
				return true
			}
		}
	}
	return false
}

// Management calls f with a session with some management server that answers, until it gives no error.
func (c *Cluster) Management(what string, f func(context.Context, *mgmclient.Client) error) {
	c.t.Helper()
	if err := c.manage(e2e.Patience, f); err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
}

func (c *Cluster) manage(patience time.Duration, f func(context.Context, *mgmclient.Client) error) (err error) {
	for deadline := time.Now().Add(patience); ; {
		err = c.ask(f)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		<-time.After(50 * time.Millisecond)
	}
}

// ask tries once.
func (c *Cluster) ask(f func(context.Context, *mgmclient.Client) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c.mu.Lock()
	client := c.client
	c.client = nil
	c.mu.Unlock()
	if client == nil || !client.Alive() {
		var err error
		if client, err = mgmclient.Connect(ctx, c.ConnectString(), mgmclient.Options{Name: "test", Timeout: time.Second}); err != nil {
			return err
		}
	}
	err := f(ctx, client)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil || err != nil {
		client.Close()
	} else {
		c.client = client
	}
	return err
}

// Status is the state of the data nodes, nil when no management server tells it just now.
func (c *Cluster) Status() map[int]mgmclient.Status {
	var s *mgmclient.ClusterStatus
	if c.ask(func(ctx context.Context, m *mgmclient.Client) (err error) {
		s, err = m.Status(ctx, config.DataNode)
		return err
	}) != nil {
		return nil
	}
	all := map[int]mgmclient.Status{}
	for _, n := range s.Nodes {
		all[n.ID] = n.Status
	}
	return all
}

// Started tells whether nodes (all if none is named) are started.
func (c *Cluster) Started(nodes ...int) bool {
	if len(nodes) == 0 {
		nodes = c.data
	}
	s := c.Status()
	for _, n := range nodes {
		if s[n] != mgmclient.Started {
			return false
		}
	}
	return true
}

// AwaitStarted waits until nodes (all if none is named) are started. None may end meanwhile.
func (c *Cluster) AwaitStarted(nodes ...int) {
	c.t.Helper()
	if len(nodes) == 0 {
		nodes = c.data
	}
	e2e.Eventually(c.t, fmt.Sprintf("nodes %v are started", nodes), func() bool {
		for _, n := range nodes {
			c.mustRun(n)
		}
		if slices.IndexFunc(c.servers, func(n int) bool { return !c.Run(n).Ended() }) < 0 {
			c.mustRun(c.servers[0])
		}
		return c.Started(nodes...)
	})
}

// mustRun fails the test if a node's process has ended.
func (c *Cluster) mustRun(node int) {
	c.t.Helper()
	if p := c.Run(node); p.Ended() {
		c.t.Fatalf("node %d ended: %v\n%s", node, p.State(), p.tail(2000))
	}
}

// AwaitOut waits until the others have put one node out.
func (c *Cluster) AwaitOut(node int) {
	c.t.Helper()
	e2e.Eventually(c.t, fmt.Sprintf("node %d is put out", node), func() bool {
		s := c.State()
		return s != nil && s.Members == len(c.data)-1
	})
}

// State is the cluster as a whole, nil when no management server tells it just now.
func (c *Cluster) State() *mgmclient.ClusterState {
	var s *mgmclient.ClusterState
	if c.ask(func(ctx context.Context, m *mgmclient.Client) (err error) {
		s, err = m.ClusterState(ctx)
		return err
	}) != nil {
		return nil
	}
	return s
}

// AwaitArbitrator waits until there is an arbitrator whose process runs.
func (c *Cluster) AwaitArbitrator() {
	c.t.Helper()
	e2e.Eventually(c.t, "an arbitrator", func() bool {
		s := c.State()
		if s == nil {
			return false
		}
		p := c.Run(s.Arbitrator)
		return p != nil && !p.Ended()
	})
}

// end ends all processes, and shows their logs if the test has failed.
func (c *Cluster) end() {
	if c.client != nil {
		c.client.Close()
	}
	for _, p := range c.runs {
		p.signal(c.t, syscall.SIGKILL)
		<-p.done
	}
	if !c.t.Failed() {
		return
	}
	for _, n := range slices.Concat(c.data, c.servers) {
		if p := c.runs[n]; p != nil {
			c.t.Logf("node %d (%v):\n%s", n, p.State(), p.tail(6000))
		}
	}
	for _, n := range c.servers {
		if text, err := os.ReadFile(filepath.Join(c.Dir(n), fmt.Sprintf("ndb_%d_cluster.log", n))); err == nil {
			c.t.Logf("cluster log of server %d:\n%s", n, text[max(0, len(text)-20000):])
		}
	}
}
