// Package e2e starts real clusters for tests: the binary, built once, as processes on the loopback address.
//
// It owns the built binary, the processes and their folders, and takes all of them away when a test ends, also
// when it fails; then it prints the ends of the logs. It knows the cluster only as a user does: by commands,
// files, signals and exit statuses. It never uses a fixed port, and never waits for a time: only for conditions.
//
// A package that uses it has
//
//	func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }
//
// and in a test
//
//	c := e2e.StartCluster(t, e2e.Options{DataNodes: 2, Replicas: 2})
//	out := c.MustRun(t, "ndb_mgm", "-e", "show")
package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience is how long a condition may take on a busy machine before a test gives up.
const Patience = 60 * time.Second

var bin struct {
	once sync.Once
	dir  string
	err  error
}

// Main runs a package's tests and removes the binary that they built.
func Main(m *testing.M) int {
	status := m.Run()
	if bin.dir != "" {
		os.RemoveAll(bin.dir)
	}
	return status
}

// Bin is the folder of the binary and its links; the first caller builds them.
func Bin(t testing.TB) string {
	t.Helper()
	bin.once.Do(func() { bin.err = build() })
	if bin.err != nil {
		t.Fatal(bin.err)
	}
	return bin.dir
}

func build() (err error) {
	_, here, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(here), "..", "..")
	if bin.dir, err = os.MkdirTemp("", "cohort-e2e-"); err != nil {
		return err
	}
	binary := filepath.Join(bin.dir, "cohort")
	command := exec.Command("go", "build", "-o", binary, "./cmd/cohort")
	command.Dir = root
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	links, err := exec.Command(binary, "help", "--links").Output()
	if err != nil {
		return fmt.Errorf("cohort help --links: %w", err)
	}
	for _, link := range strings.Fields(string(links)) {
		if err := os.Symlink("cohort", filepath.Join(bin.dir, link)); err != nil {
			return err
		}
	}
	return nil
}

// Options describe a cluster.
type Options struct {
	DataNodes int      // 0: two
	Replicas  int      // 0: as cohort up chooses
	Args      []string // more arguments of cohort up
}

// Cluster is a running cluster.
type Cluster struct {
	ConnectString string
	Dir           string   // with config.ini, logs and process ids
	Up            *Process // cohort up itself
}

// StartCluster starts a cluster with cohort up and waits until it is ready. It is stopped when the test ends.
func StartCluster(t testing.TB, o Options) *Cluster {
	t.Helper()
	c := &Cluster{Dir: t.TempDir()}
	args := []string{"up", "--dir", c.Dir, "--mgm-port", "0", "--set", "DataMemory=64M"}
	if o.DataNodes > 0 {
		args = append(args, "--data-nodes", strconv.Itoa(o.DataNodes))
	}
	if o.Replicas > 0 {
		args = append(args, "--replicas", strconv.Itoa(o.Replicas))
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.printLogs(t)
		}
	})
	c.Up = Start(t, "cohort", append(args, o.Args...)...)
	const ready = "cohort: ready connectstring="
	line := c.Up.WaitLine(t, ready)
	c.ConnectString, _, _ = strings.Cut(strings.TrimPrefix(line, ready), " ")
	return c
}

// Stop interrupts cohort up, waits for its end and returns its exit status.
func (c *Cluster) Stop(t testing.TB) int {
	t.Helper()
	c.Up.Signal(t, syscall.SIGINT)
	return c.Up.Wait(t)
}

// PID is the process id of a node.
func (c *Cluster) PID(t testing.TB, node int) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Dir, fmt.Sprintf("ndb_%d.pid", node)))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// Kill kills a node's process.
func (c *Cluster) Kill(t testing.TB, node int) {
	t.Helper()
	if err := syscall.Kill(c.PID(t, node), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// Alive reports whether a process runs; a zombie does not.
func Alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z ")) && !bytes.Contains(stat, []byte(") X "))
}

// Log is what a node has printed so far.
func (c *Cluster) Log(t testing.TB, node int) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Dir, fmt.Sprintf("ndb_%d_out.log", node)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Run runs a tool against the cluster to its end.
func (c *Cluster) Run(t testing.TB, name string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return run(t, []string{"NDB_CONNECTSTRING=" + c.ConnectString}, name, args...)
}

// MustRun is Run for a tool that must succeed; it returns its standard output.
func (c *Cluster) MustRun(t testing.TB, name string, args ...string) string {
	t.Helper()
	status, stdout, stderr := c.Run(t, name, args...)
	if status != 0 {
		t.Fatalf("%s %s: exit status %d\n%s%s", name, strings.Join(args, " "), status, stdout, stderr)
	}
	return stdout
}

// Run runs a tool of the binary to its end, without a connect string.
func Run(t testing.TB, name string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return run(t, nil, name, args...)
}

func run(t testing.TB, env []string, name string, args ...string) (int, string, string) {
	t.Helper()
	p := start(t, env, name, args...)
	status := p.Wait(t)
	return status, p.Stdout(), p.Stderr()
}

func (c *Cluster) printLogs(t testing.TB) {
	logs, _ := filepath.Glob(filepath.Join(c.Dir, "ndb_*.log"))
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Log(err)
			continue
		}
		t.Logf("%s:\n%s", filepath.Base(log), text[max(0, len(text)-4000):])
	}
}

// Eventually waits until a condition holds.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.After(Patience); !holds(); {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("waited %v in vain for %s", Patience, what)
		}
	}
}

// FreePort is a port of the loopback address that nobody listens on now.
func FreePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// Process is a tool of the binary that runs.
type Process struct {
	command string
	cmd     *exec.Cmd
	done    chan struct{} // closed when it has ended and all its output is here

	mu             sync.Mutex
	stdout, stderr bytes.Buffer
	lines          []string // of standard output
}

// Start starts a tool by its link's name ("cohort" itself too). It is killed when the test ends, if it still runs.
func Start(t testing.TB, name string, args ...string) *Process {
	t.Helper()
	return start(t, nil, name, args...)
}

func start(t testing.TB, env []string, name string, args ...string) *Process {
	t.Helper()
	p := &Process{command: name + " " + strings.Join(args, " "), done: make(chan struct{})}
	p.cmd = exec.Command(filepath.Join(Bin(t), name), args...)
	p.cmd.Env = append(environment(), env...)
	p.cmd.Stderr = writerFunc(func(b []byte) (int, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.stderr.Write(b)
	})
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.collect(out)
	t.Cleanup(func() { p.end(t) })
	return p
}

// environment is ours without what would tell a tool of another cluster.
func environment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "NDB_CONNECTSTRING=") {
			env = append(env, v)
		}
	}
	return env
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// collect gathers standard output until the process ends.
func (p *Process) collect(out io.Reader) {
	for in := bufio.NewReader(out); ; {
		line, err := in.ReadString('\n')
		p.mu.Lock()
		p.stdout.WriteString(line)
		if line != "" {
			p.lines = append(p.lines, strings.TrimSuffix(line, "\n"))
		}
		p.mu.Unlock()
		if err != nil {
			break
		}
	}
	p.cmd.Wait() // its status is in cmd.ProcessState
	close(p.done)
}

// end makes sure that the process is gone: asked to stop first, since cohort up has children to stop.
func (p *Process) end(t testing.TB) {
	if !p.Ended() {
		p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(Patience):
			t.Errorf("%s does not stop", p.command)
			p.cmd.Process.Kill()
			<-p.done
		}
	}
	if t.Failed() {
		t.Logf("%s: %s\n%s%s", p.command, p.cmd.ProcessState, p.Stdout(), p.Stderr())
	}
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stdout is what it has printed so far.
func (p *Process) Stdout() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stdout.String()
}

// Stderr is what it has said on standard error so far.
func (p *Process) Stderr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// Signal sends a signal.
func (p *Process) Signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
}

// Wait waits for the end and returns the exit status, -1 where a signal ended it.
func (p *Process) Wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(2 * Patience):
		t.Fatalf("%s does not end:\n%s%s", p.command, p.Stdout(), p.Stderr())
		return -1
	}
}

// WaitLine waits for a line of standard output that begins with a text. It fails when the process ends before.
func (p *Process) WaitLine(t testing.TB, prefix string) (found string) {
	t.Helper()
	look := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, line := range p.lines {
			if strings.HasPrefix(line, prefix) {
				found = line
				return true
			}
		}
		return false
	}
	Eventually(t, fmt.Sprintf("%q of %s", prefix, p.command), func() bool {
		ended := p.Ended()
		if look() {
			return true
		}
		if ended {
			t.Fatalf("%s ended (%s) without a line %q", p.command, p.cmd.ProcessState, prefix)
		}
		return false
	})
	return found
}
