package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cohortdb/cohort/internal/e2e"
)

// starter starts processes on a thread that lives as long as the tests do: a child asks the kernel to be killed with its
// parent, and what the kernel means by parent is the thread that started it.
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

// Process is one run of a node's process; a node that starts itself anew stays in it.
type Process struct {
	Node int
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// launch runs a tool of the binary on a node's host, with its output behind what is in the log.
func launch(t testing.TB, node int, log string, command []string, tool string, args ...string) *Process {
	t.Helper()
	command = append(append([]string(nil), command...), filepath.Join(e2e.Bin(t), tool))
	command = append(command, args...)
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p := &Process{Node: node, log: log, done: make(chan struct{})}
	p.cmd = exec.Command(command[0], command[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	result := make(chan error)
	starter() <- func() { result <- p.cmd.Start() }
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // its status is in ProcessState
		close(p.done)
	}()
	return p
}

// Ended tells whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// PID is its process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// State says how it ended.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// signal sends it a signal; it may have ended already.
func (p *Process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
}

// Memory is how much of it is resident, in bytes; 0 when it has ended.
func (p *Process) Memory() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(text), "\n") {
		var kb int64
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			if _, err := fmt.Sscanf(rest, "%d kB", &kb); err == nil {
				return kb << 10
			}
		}
	}
	return 0
}

// stopped tells whether every thread of it stands still.
func (p *Process) stopped() bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID()))
	for _, t := range threads {
		if text, err := os.ReadFile(t); err == nil && !bytes.Contains(text, []byte(") T ")) {
			return false
		}
	}
	return len(threads) > 0
}

// tail is the end of what it has printed.
func (p *Process) tail(bytesMost int) string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(bytes.ToValidUTF8(text[max(0, len(text)-bytesMost):], nil))
}
