package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/options"
)

const (
	exitFailed = options.StatusFailed
	exitUsage  = options.StatusUsage

	// How long nodes may take to stop in order, and then to obey SIGTERM, before they are killed.
	stopInOrder = 20 * time.Second
	stopAtOnce  = 10 * time.Second

	// A port that was free may be taken before the management server binds it: so often another one is tried.
	portAttempts = 5
)

// Main runs `cohort up` and returns its exit status. name is what it calls itself in messages.
func Main(name string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	o, set, err := parse(args)
	if status, done := set.Answer(err, name, stdout, stderr); done {
		if errors.Is(err, errSQLPort) {
			status = exitFailed
		}
		return status
	}
	interrupts := make(chan os.Signal, 4)
	signal.Notify(interrupts, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(interrupts)

	r := &runner{name: name, choices: o, stdin: stdin, stdout: stdout, stderr: stderr, interrupts: interrupts}
	status, err := r.run()
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return max(status, exitFailed)
	}
	return status
}

// runner is one run of `cohort up`.
type runner struct {
	*choices
	name           string
	stdin          io.Reader
	stdout, stderr io.Writer
	interrupts     chan os.Signal

	self     string // this binary
	lockFile *os.File
	plan     *plan
	mgm      management
	children []*child
}

// say prints a line about what is being done. It goes to standard error, so that standard output holds the ready
// line or the command's output and nothing else.
func (r *runner) say(format string, args ...any) {
	fmt.Fprintf(r.stderr, r.name+": "+format+"\n", args...)
}

// run is the whole course: folder, start, wait or command, stop.
func (r *runner) run() (status int, err error) {
	if r.self, err = os.Executable(); err != nil {
		return exitFailed, fmt.Errorf("this binary cannot be found: %w", err)
	}
	if err := r.openFolder(); err != nil {
		return exitFailed, err
	}
	defer func() {
		r.lockFile.Close()
		if r.ephemeral {
			os.RemoveAll(r.dir)
		}
	}()
	// Stop on every way out, before the folder goes.
	defer r.stop()

	if err := r.start(); err != nil {
		var interrupted *interruption
		if errors.As(err, &interrupted) {
			r.say("interrupted while starting")
			return interrupted.status(), nil
		}
		return exitFailed, err
	}
	ready := fmt.Sprintf("cohort: ready connectstring=%s", r.plan.connectString())
	if r.choices.run != "" {
		fmt.Fprintln(r.stderr, ready)
		return r.command()
	}
	fmt.Fprintln(r.stdout, ready)
	return r.wait()
}

// openFolder makes the folder and takes it for this run.
func (r *runner) openFolder() (err error) {
	if r.ephemeral {
		r.dir, err = os.MkdirTemp("", "cohort-up-")
	} else if r.dir, err = filepath.Abs(r.dir); err == nil {
		err = os.MkdirAll(r.dir, 0o755)
	}
	if err != nil {
		return fmt.Errorf("the folder cannot be made: %w: choose another one with --dir", err)
	}
	if strings.ContainsAny(r.dir, "\r\n#;") {
		return fmt.Errorf("the folder %q has characters that a configuration file cannot hold: choose another one with --dir", r.dir)
	}
	if r.lockFile, err = os.OpenFile(filepath.Join(r.dir, "cohort-up.lock"), os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return fmt.Errorf("the folder cannot be written: %w: choose another one with --dir", err)
	}
	if err := lock(r.lockFile); err != nil {
		r.lockFile.Close()
		return fmt.Errorf("another cohort up runs in %s: stop it, or choose another folder with --dir", r.dir)
	}
	return nil
}

// start writes the configuration, starts the processes and waits until all data nodes are started.
func (r *runner) start() error {
	began := time.Now()
	limit, cancel := context.WithTimeout(context.Background(), r.startTimeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		p, err := makePlan(r.choices, thisMachine())
		if err != nil {
			return err
		}
		r.plan = p
		if attempt == 1 {
			for _, warning := range p.warnings {
				r.say("%s", warning)
			}
			r.say("starting %s in %s", p.summary, r.dir)
		}
		if err := os.WriteFile(p.file, []byte(p.text), 0o644); err != nil {
			return fmt.Errorf("the configuration cannot be written: %w", err)
		}
		r.mgm = management{connectString: p.connectString()}
		err = r.startManagement(limit)
		if err == nil {
			break
		}
		if attempt == portAttempts || !p.portMayMove || !r.children[0].ended() || portFree(p.mgmPort) {
			return err
		}
		r.killAll() // somebody took the port between our look and the server's
	}
	if err := r.startData(); err != nil {
		return err
	}
	if err := r.await(limit, "all data nodes are started", r.allStarted); err != nil {
		return err
	}
	r.say("%s started after %.1f s", count(len(r.plan.data), "data node"), time.Since(began).Seconds())
	return nil
}

// startManagement starts the management servers and waits until one answers.
func (r *runner) startManagement(limit context.Context) error {
	for _, s := range r.plan.servers {
		c, err := launch(r.dir, r.self, "ndb_mgmd", fmt.Sprintf("management server %d", s.id), s.id, false,
			"-f", r.plan.file, "--configdir="+r.dir, "--initial", "--nodaemon", "--ndb-nodeid="+strconv.Itoa(s.id))
		if c != nil {
			r.children = append(r.children, c)
		}
		if err != nil {
			return err
		}
	}
	return r.await(limit, "the management server answers", func() (bool, string) {
		_, err := r.mgm.status()
		if err != nil {
			return false, err.Error()
		}
		return true, ""
	})
}

// startData starts the data nodes.
func (r *runner) startData() error {
	program := "ndbd"
	if r.plan.multiThreaded {
		program = "ndbmtd"
	}
	for _, d := range r.plan.data {
		c, err := launch(r.dir, r.self, program, fmt.Sprintf("data node %d", d), d, true,
			"-c", r.plan.connectString(), "--ndb-nodeid="+strconv.Itoa(d), "--nodaemon")
		if c != nil {
			r.children = append(r.children, c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// allStarted asks the management server for the state of the data nodes.
func (r *runner) allStarted() (bool, string) {
	status, err := r.mgm.status()
	if err != nil {
		return false, err.Error()
	}
	var behind []string
	for _, d := range r.plan.data {
		if n := status.Node(d); n == nil {
			behind = append(behind, fmt.Sprintf("data node %d is unknown to the management server", d))
		} else if n.Status != mgmclient.Started {
			behind = append(behind, fmt.Sprintf("data node %d is %s", d, n.Status))
		}
	}
	return len(behind) == 0, strings.Join(behind, ", ")
}

// interruption is the signal that ended a run before its time.
type interruption struct{ signal syscall.Signal }

func (i *interruption) Error() string { return i.signal.String() }
func (i *interruption) status() int   { return 128 + int(i.signal) }

// await asks again and again until the condition holds. It gives up when a child ends, at an interrupt, and at the limit.
func (r *runner) await(limit context.Context, what string, holds func() (bool, string)) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		for _, c := range r.children {
			if c.ended() {
				return errors.New(c.story())
			}
		}
		ok, missing := holds()
		if ok {
			return nil
		}
		select {
		case <-ticker.C:
		case s := <-r.interrupts:
			return &interruption{s.(syscall.Signal)}
		case <-limit.Done():
			where := "look into the logs in " + r.dir
			if r.ephemeral {
				where = "look at the ends of the logs below"
			}
			return fmt.Errorf("waited %v until %s, in vain: %s: %s, or wait longer with --start-timeout%s",
				r.startTimeout, what, missing, where, r.logTails())
		}
	}
}

// logTails are the ends of all logs, for a start that hangs: with --ephemeral they are gone afterwards.
func (r *runner) logTails() string {
	var b strings.Builder
	for _, c := range r.children {
		fmt.Fprintf(&b, "\n  %s, %s:", c.what, c.log)
		for _, line := range lastLines(c.log, 4) {
			b.WriteString("\n    " + line)
		}
	}
	return b.String()
}

// lookEvery is how often it is looked whether the cluster lives, once none of its data nodes is ours any more. The
// management server takes a moment to notice the end of the last one.
const lookEvery = 500 * time.Millisecond

// wait reports children that end, until an interrupt or until no data node is left.
func (r *runner) wait() (int, error) {
	ended := r.watch()
	var look <-chan time.Time
	for {
		select {
		case <-look:
			if !r.servedByOthers() {
				return exitFailed, errNoneLeft
			}
		case <-r.interrupts:
			r.say("stopping")
			return 0, nil
		case c := <-ended:
			if err := r.lost(c); errors.Is(err, errStopped) {
				r.say("%v", err)
				return 0, nil
			} else if err != nil && look == nil {
				ticker := time.NewTicker(lookEvery)
				defer ticker.Stop()
				look = ticker.C
			}
		}
	}
}

// watch sends each child as it ends.
func (r *runner) watch() <-chan *child {
	ended := make(chan *child, len(r.children))
	for _, c := range r.children {
		go func() {
			<-c.done
			ended <- c
		}()
	}
	return ended
}

// errNoneLeft: none of our data nodes runs; the cluster may be served by others.
var errNoneLeft = errors.New("no data node is left")

// errStopped is the end of a cluster that somebody else has stopped in order, with SHUTDOWN of ndb_mgm.
var errStopped = errors.New("the cluster was stopped")

// lost tells that a child has ended; it is an error when no data node is left.
func (r *runner) lost(c *child) error {
	alive, inOrder := 0, true
	for _, other := range r.children {
		if other.data && !other.ended() {
			alive++
		} else if other.data {
			inOrder = inOrder && other.inOrder()
		}
	}
	if c.inOrder() {
		r.say("%s (process %d) has stopped in order", c.what, c.cmd.Process.Pid)
	} else {
		r.say("%s", c.story())
	}
	if alive == 0 && inOrder {
		return errStopped
	}
	if alive == 0 {
		return errNoneLeft
	}
	again := fmt.Sprintf("to bring it back: %s", strings.Join(c.command, " "))
	if c.data {
		r.say("%d of %d data nodes go on; %s", alive, len(r.plan.data), again)
	} else {
		r.say("data nodes and clients go on without it; %s", again)
	}
	return nil
}

// servedByOthers tells whether the cluster is served by data nodes that somebody has started in place of ours.
func (r *runner) servedByOthers() bool {
	status, err := r.mgm.status()
	if err != nil {
		return false
	}
	for _, d := range r.plan.data {
		if n := status.Node(d); n != nil && n.Status == mgmclient.Started {
			return true
		}
	}
	return false
}

// killAll ends the children without any order and forgets them.
func (r *runner) killAll() {
	signalAll(r.children, syscall.SIGKILL)
	waitAll(r.children, stopAtOnce)
	r.children = nil
}

// command runs the command of --run and returns its exit status.
func (r *runner) command() (int, error) {
	sh := exec.Command("sh", "-c", r.choices.run)
	sh.Stdin, sh.Stdout, sh.Stderr = r.stdin, r.stdout, r.stderr
	sh.Env = append(os.Environ(), "NDB_CONNECTSTRING="+r.plan.connectString(), "COHORT_DATA_NODE_PIDS="+r.dataPIDs(),
		"PATH="+filepath.Dir(r.self)+string(os.PathListSeparator)+os.Getenv("PATH"))
	sh.SysProcAttr = withParent(false)
	if err := newStarter().start(sh); err != nil {
		return exitFailed, fmt.Errorf("the command cannot be run: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- sh.Wait() }()
	ended := r.watch()
	for {
		select {
		case s := <-r.interrupts:
			// From a terminal the command has had the signal too; a second one does no harm.
			sh.Process.Signal(s)
		case c := <-ended:
			if err := r.lost(c); err != nil {
				r.say("%v; the command goes on", err)
			}
		case err := <-done:
			return exitStatus(err)
		}
	}
}

// dataPIDs lists the data nodes' processes, so that a benchmark can tell what they cost.
func (r *runner) dataPIDs() string {
	var pids []string
	for _, c := range r.children {
		if c.data {
			pids = append(pids, strconv.Itoa(c.cmd.Process.Pid))
		}
	}
	return strings.Join(pids, ",")
}

// exitStatus is a shell's way to tell how a command ended: 128 and the signal's number where it was killed.
func exitStatus(err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case !errors.As(err, &exit):
		return exitFailed, fmt.Errorf("the command's end cannot be told: %w", err)
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return exit.ExitCode(), nil
}

// stop ends all children: by the management protocol where it answers, else by signals, data nodes first.
func (r *runner) stop() {
	defer r.mgm.close()
	var data, all []*child
	for _, c := range r.children {
		if !c.ended() {
			all = append(all, c)
			if c.data {
				data = append(data, c)
			}
		}
	}
	defer func() {
		for _, c := range r.children {
			os.Remove(c.pid)
		}
	}()
	if len(all) == 0 {
		return
	}
	if err := r.mgm.shutdown(stopInOrder); err == nil && r.patience(all, stopInOrder) {
		return
	}
	signalAll(data, syscall.SIGTERM)
	r.patience(data, stopAtOnce)
	signalAll(all, syscall.SIGTERM)
	if r.patience(all, stopAtOnce) {
		return
	}
	for _, c := range all {
		if !c.ended() {
			r.say("%s does not stop: killing process %d", c.what, c.cmd.Process.Pid)
		}
	}
	signalAll(all, syscall.SIGKILL)
	waitAll(all, stopAtOnce)
}

// patience waits until the children have ended; an interrupt, the user's second one, cuts it short.
func (r *runner) patience(children []*child, limit time.Duration) bool {
	timeout := time.After(limit)
	for _, c := range children {
		select {
		case <-c.done:
		case <-r.interrupts:
			return false
		case <-timeout:
			return false
		}
	}
	return true
}
