package noded

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/signal"
)

// What the runs of a process hand on to the next one: how many starts in a row failed, and how many runs in a row the
// cluster ended before they were started. Either tells a run that the node has started it by itself.
const (
	failuresVariable = "COHORT_FAILED_STARTS"
	putOutVariable   = "COHORT_ENDED_RUNS"
)

// firstPause and lastPause bound how long a node waits that the cluster ends again and again: twice as long each time.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// cpus is how many processors the process may use.
func cpus() int { return runtime.GOMAXPROCS(0) }

// again starts the program anew in this process, so that whoever started it keeps its process id. It returns only if
// that fails, or a signal comes in the pause: then it returns nil.
func (p *process) again(flags uint32) error {
	ended := 0
	if !p.started {
		ended = count(putOutVariable) + 1
	}
	if pause := pauseAfter(ended); !p.rest(pause) {
		return nil
	}
	return p.exec(restartArgs(p.settings, p.mgm.id, flags), 0, ended)
}

// pauseAfter is how long to wait after so many runs in a row that the cluster ended before they were started.
func pauseAfter(ended int) time.Duration {
	if ended < 2 {
		return 0
	}
	return min(firstPause<<min(ended-2, 20), lastPause)
}

// rest waits; false when the process is told to stop meanwhile.
func (p *process) rest(pause time.Duration) bool {
	select {
	case s := <-p.interrupts:
		p.log.info("stops: %v", s)
		return false
	case <-time.After(pause):
		return true
	}
}

// count reads what a former run has handed on.
func count(variable string) int {
	n, _ := strconv.Atoi(os.Getenv(variable))
	return n
}

// itself tells whether the node has started this run by itself.
func itself() bool { return os.Getenv(failuresVariable) != "" }

// retry starts again after a failure (StopOnError=0), until too many starts in a row have failed; then it returns nil.
func (p *process) retry() error {
	failures := 0
	if !p.started {
		failures = count(failuresVariable) + 1
	}
	if most := int(p.conf.Int("MaxStartFailRetries")); failures > most {
		p.log.info("gives up after %d starts that failed (MaxStartFailRetries=%d)", failures, most)
		return nil
	}
	pause := time.Duration(0)
	if failures > 0 {
		pause = time.Duration(p.conf.Int("StartFailRetryDelay")) * time.Second
	}
	p.log.info("starts again, because StopOnError is 0")
	if !p.rest(pause) {
		return nil
	}
	return p.exec(restartArgs(p.settings, p.mgm.id, signal.StopRestart), failures, 0)
}

func (p *process) exec(args []string, failures, ended int) error {
	self, err := os.Executable()
	if err != nil {
		return fail(exitcode.Config, "cannot start anew: %v", err)
	}
	front := os.Args[:max(1, len(os.Args)-len(p.args))] // the program's name, or "cohort ndbd"
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, failuresVariable+"=") || strings.HasPrefix(v, putOutVariable+"=")
	})
	env = append(env, fmt.Sprintf("%s=%d", failuresVariable, failures), fmt.Sprintf("%s=%d", putOutVariable, ended))
	p.log.flush()
	err = syscall.Exec(self, append(slices.Clone(front), args...), env)
	return fail(exitcode.Config, "cannot start anew: %v", err)
}

// restartArgs are the arguments of the next run: the same servers, addresses and node id; whether it waits for START and
// what --nowait-nodes said were for the run before.
func restartArgs(s *settings, id int, flags uint32) []string {
	args := []string{"--ndb-nodeid=" + strconv.Itoa(id), fmt.Sprintf("--connect-retries=%d", s.retries),
		fmt.Sprintf("--connect-retry-delay=%d", s.retryDelay)}
	add := func(name, value string) {
		if value != "" {
			args = append(args, name+"="+value)
		}
	}
	add("--ndb-connectstring", s.connect)
	add("--bind-address", s.bind)
	add("--pprof", s.pprof)
	for _, o := range []struct {
		on   bool
		name string
	}{{s.verbose, "--verbose"}, {flags&signal.StopNoStart != 0, "--nostart"}, {flags&signal.StopInitial != 0, "--initial"}} {
		if o.on {
			args = append(args, o.name)
		}
	}
	return args
}
