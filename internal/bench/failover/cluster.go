package failover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
)

const (
	mgmID     = 101
	startTime = 60 * time.Second // for the whole cluster to start, and for a node to come back
)

// cluster is the processes of a cluster: one management server and data nodes 1, 2, ….
type cluster struct {
	self string // this binary
	dir  string
	net  *network
	port int
	mgm  *process
	data []*process // by node id - 1
	ask  *mgmclient.Client
}

// process is a child, or was.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// starter starts children on a thread that lives as long as this process: they ask the kernel to be killed with the thread
// that started them, so that none is left behind whatever happens to this process.
var starter = sync.OnceValue(func() chan func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

func launch(log string, command []string) (*process, error) {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &process{done: make(chan struct{}), cmd: &exec.Cmd{Path: path, Args: command, Stdout: out, Stderr: out, SysProcAttr: withParent()}}
	result := make(chan error)
	starter() <- func() { result <- p.cmd.Start() }
	if err := <-result; err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *process) signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// end ends the process in order if it can, and waits.
func (p *process) end(patience time.Duration) {
	if p == nil || !p.running() {
		return
	}
	_ = p.signal(syscall.SIGCONT)
	_ = p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
		_ = p.signal(syscall.SIGKILL)
		<-p.done
	}
}

// newCluster writes the configuration and starts everything.
func newCluster(ctx context.Context, self, dir string, n *network, nodes int, set string) (*cluster, error) {
	c := &cluster{self: self, dir: dir, net: n, data: make([]*process, nodes)}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	var err error
	for range 5 { // a free port may be taken by somebody else before the server has it
		if err = c.startManagement(ctx, nodes, set); err == nil || ctx.Err() != nil {
			break
		}
	}
	for i := 1; i <= nodes && err == nil; i++ {
		err = c.startNode(i)
	}
	if err == nil {
		err = c.wait(ctx, "all data nodes are started", c.allStarted)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *cluster) startManagement(ctx context.Context, nodes int, set string) error {
	l, err := net.Listen("tcp", net.JoinHostPort(c.net.host(0), "0"))
	if err != nil {
		return err
	}
	c.port = l.Addr().(*net.TCPAddr).Port
	l.Close()
	file := filepath.Join(c.dir, "config.ini")
	if err := os.WriteFile(file, []byte(c.config(nodes, set)), 0o644); err != nil {
		return err
	}
	c.mgm, err = launch(c.log(mgmID), []string{c.self, "mgmd", "-f", file, "--configdir=" + c.dir, "--initial", "--nodaemon", fmt.Sprintf("--ndb-nodeid=%d", mgmID)})
	if err != nil {
		return err
	}
	c.ask, err = mgmclient.Connect(ctx, c.connectString(), mgmclient.Options{Name: "bench failover", Retries: 50, RetryDelay: 100 * time.Millisecond})
	if err != nil {
		c.mgm.end(time.Second)
		return fmt.Errorf("%w; its log is %s", err, c.log(mgmID))
	}
	return nil
}

func (c *cluster) config(nodes int, set string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "[ndbd default]\nNoOfReplicas=2\nDataMemory=256M\nDiskless=1\n%s", set)
	fmt.Fprintf(&s, "[ndb_mgmd]\nNodeId=%d\nHostName=%s\nPortNumber=%d\nDataDir=%s\n", mgmID, c.net.host(0), c.port, c.dir)
	for i := 1; i <= nodes; i++ {
		fmt.Fprintf(&s, "[ndbd]\nNodeId=%d\nHostName=%s\nDataDir=%s\n", i, c.net.host(i), c.dir)
	}
	s.WriteString("[api]\n[api]\n")
	return s.String()
}

func (c *cluster) connectString() string { return fmt.Sprintf("%s:%d", c.net.host(0), c.port) }

func (c *cluster) log(node int) string {
	return filepath.Join(c.dir, fmt.Sprintf("ndb_%d_out.log", node))
}

func (c *cluster) startNode(node int) (err error) {
	c.data[node-1], err = launch(c.log(node), c.net.inside(node, []string{c.self, "ndbd", "-c", c.connectString(), fmt.Sprintf("--ndb-nodeid=%d", node), "--nodaemon"}))
	return err
}

// wait asks again and again until something is true.
func (c *cluster) wait(ctx context.Context, what string, f func(context.Context) (bool, string)) error {
	for {
		ok, said := f(ctx)
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it does not come true that %s: %s (logs are in %s): %w", what, said, c.dir, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (c *cluster) allStarted(ctx context.Context) (bool, string) {
	s, err := c.ask.Status(ctx, config.DataNode)
	if err != nil {
		return false, err.Error()
	}
	for _, n := range s.Nodes {
		if n.Status != mgmclient.Started {
			return false, fmt.Sprintf("node %d is %s", n.ID, n.Status)
		}
	}
	return true, ""
}

// stopNode asks management to stop a node in order.
func (c *cluster) stopNode(ctx context.Context, node int) error {
	_, err := c.ask.Stop(ctx, []int{node}, mgmclient.StopOptions{})
	return err
}

// back starts a node again if it has ended, and waits until it is a full member.
func (c *cluster) back(ctx context.Context, node int, whole func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	began := time.Now()
	return c.wait(ctx, fmt.Sprintf("node %d is back", node), func(ctx context.Context) (bool, string) {
		p := c.data[node-1]
		if !p.running() {
			if err := c.startNode(node); err != nil {
				return false, err.Error()
			}
		}
		ok, said := c.allStarted(ctx)
		if ok && !whole() {
			ok, said = false, "its primaries have not come back"
		}
		return ok, fmt.Sprintf("%s, after %.1f s", said, time.Since(began).Seconds())
	})
}

// cpu is the CPU time that the data nodes have used.
func (c *cluster) cpu() (sum time.Duration, err error) {
	for _, p := range c.data {
		d, err := cpuOf(p.cmd.Process.Pid)
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

// close stops everything.
func (c *cluster) close() {
	if c.ask != nil {
		c.ask.Close()
	}
	var all sync.WaitGroup
	for _, p := range append(c.data, c.mgm) {
		all.Add(1)
		go func() {
			defer all.Done()
			p.end(5 * time.Second)
		}()
	}
	all.Wait()
}

var errInterrupted = errors.New("interrupted")
