package up

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cohortdb/cohort/internal/exitcode"
)

// starter starts children on a thread that lives as long as this process. A child asks the kernel to be killed
// with its parent, and what the kernel means by parent is the thread that started it.
type starter struct{ work chan func() }

var newStarter = sync.OnceValue(func() *starter {
	s := &starter{make(chan func())}
	go func() {
		runtime.LockOSThread()
		for f := range s.work {
			f()
		}
	}()
	return s
})

func (s *starter) start(cmd *exec.Cmd) error {
	result := make(chan error)
	s.work <- func() { result <- cmd.Start() }
	return <-result
}

// child is a node's process.
type child struct {
	what string // "management server 49", "data node 1"
	id   int
	data bool // a data node
	log  string
	pid  string // file that holds its process id
	cmd  *exec.Cmd
	// command starts it again by hand.
	command []string
	done    chan struct{} // closed when it has ended
	err     error         // how it ended; valid once done is closed
}

// launch starts this binary under another name as node id, with its output in dir.
func launch(dir, self, program, what string, id int, data bool, args ...string) (*child, error) {
	c := &child{
		what: what, id: id, data: data,
		log:  filepath.Join(dir, fmt.Sprintf("ndb_%d_out.log", id)),
		pid:  filepath.Join(dir, fmt.Sprintf("ndb_%d.pid", id)),
		done: make(chan struct{}),
		// Its configuration is kept in the folder by now.
		command: append([]string{filepath.Join(filepath.Dir(self), program)}, slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "--initial" })...),
	}
	out, err := os.Create(c.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	c.cmd = &exec.Cmd{Path: self, Args: append([]string{program}, args...), Stdout: out, Stderr: out, SysProcAttr: withParent(true)}
	if err := newStarter().start(c.cmd); err != nil {
		return nil, fmt.Errorf("%s cannot be started: %w", what, err)
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	return c, os.WriteFile(c.pid, []byte(strconv.Itoa(c.cmd.Process.Pid)+"\n"), 0o644)
}

// ended reports whether the process is gone.
func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// inOrder reports whether the process has ended because it was asked to.
func (c *child) inOrder() bool { return c.ended() && c.err == nil }

// status says how an ended child ended.
func (c *child) status() string {
	var exit *exec.ExitError
	switch {
	case c.err == nil:
		return "exit status 0"
	case errors.As(c.err, &exit):
		if text := exitcode.Text(exit.ExitCode()); c.data && text != "" {
			return fmt.Sprintf("%s (%s)", exit.ProcessState, text)
		}
		return exit.ProcessState.String()
	}
	return c.err.Error()
}

// story tells how an ended child ended, with the last lines of its log.
func (c *child) story() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s (process %d) ended: %s", c.what, c.cmd.Process.Pid, c.status())
	lines := lastLines(c.log, 12)
	if len(lines) == 0 {
		fmt.Fprintf(&s, "; its log %s is empty", c.log)
		return s.String()
	}
	fmt.Fprintf(&s, "; the last lines of %s:", c.log)
	for _, line := range lines {
		s.WriteString("\n    " + line)
	}
	return s.String()
}

// lastLines are the last n lines of a file; none if it cannot be read.
func lastLines(path string, n int) []string {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > 64<<10 {
		file.Seek(-(64 << 10), 2)
	}
	var lines []string
	for scan := bufio.NewScanner(file); scan.Scan(); {
		lines = append(lines, scan.Text())
	}
	return lines[max(0, len(lines)-n):]
}

// waitAll waits until all children have ended, at most for a time; it reports whether they have.
func waitAll(children []*child, limit time.Duration) bool {
	timeout := time.After(limit)
	for _, c := range children {
		select {
		case <-c.done:
		case <-timeout:
			return false
		}
	}
	return true
}

// signalAll sends a signal to the children that live.
func signalAll(children []*child, signal syscall.Signal) {
	for _, c := range children {
		if !c.ended() {
			c.cmd.Process.Signal(signal) // one that ended meanwhile needs none
		}
	}
}
