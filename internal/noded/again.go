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

// failuresVariable hands the number of starts that failed in a row to the next run of the process.
const failuresVariable = "COHORT_FAILED_STARTS"

// cpus is how many processors the process may use.
func cpus() int { return runtime.GOMAXPROCS(0) }

// again starts the program anew in this process, so that whoever started it keeps its process id. It returns only if
// that fails.
func (p *process) again(flags uint32) error {
	return p.exec(restartArgs(p.settings, p.mgm.id, flags), 0)
}

// retry starts again after a failure (StopOnError=0), until too many starts in a row have failed; then it returns nil.
func (p *process) retry() error {
	failures := 0
	if !p.started {
		failures, _ = strconv.Atoi(os.Getenv(failuresVariable))
		failures++
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
	select {
	case s := <-p.interrupts:
		p.log.info("stops: %v", s)
		return nil
	case <-time.After(pause):
	}
	return p.exec(restartArgs(p.settings, p.mgm.id, signal.StopRestart), failures)
}

func (p *process) exec(args []string, failures int) error {
	self, err := os.Executable()
	if err != nil {
		return fail(exitcode.Config, "cannot start anew: %v", err)
	}
	front := os.Args[:max(1, len(os.Args)-len(p.args))] // the program's name, or "cohort ndbd"
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, failuresVariable+"=") })
	env = append(env, fmt.Sprintf("%s=%d", failuresVariable, failures))
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
