package flexasynch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// environmentPIDs names the data nodes' processes; cohort up --run sets it.
const environmentPIDs = "COHORT_DATA_NODE_PIDS"

// accounting reads CPU times of processes from the kernel's own books.
type accounting struct {
	proc string // where the kernel shows processes
	pids []int  // of the data nodes; none: not known
}

// newAccounting looks which processes there are; why says why they are not known.
func newAccounting(proc string, given []int, environment string) (a accounting, why string) {
	a.proc = proc
	pids := given
	if pids == nil && environment != "" {
		var err error
		if pids, err = parsePIDs(environment); err != nil {
			return a, fmt.Sprintf("%s: %v", environmentPIDs, err)
		}
	}
	if pids == nil {
		return a, "the data nodes' processes are not known: give --node-pids"
	}
	for _, pid := range pids {
		if _, err := a.threadsOf(pid); err != nil {
			return a, err.Error()
		}
	}
	a.pids = pids
	return a, ""
}

// nodes is the CPU time of all threads of the data nodes. schedstat counts nanoseconds where stat counts ticks.
func (a *accounting) nodes() time.Duration {
	var sum time.Duration
	for _, pid := range a.pids {
		d, err := a.threadsOf(pid)
		if err == nil {
			sum += d
		}
	}
	return sum
}

func (a *accounting) threadsOf(pid int) (time.Duration, error) {
	files, err := filepath.Glob(filepath.Join(a.proc, strconv.Itoa(pid), "task", "*", "schedstat"))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("the CPU time of process %d cannot be read: there is no such process here, or no schedstat", pid)
	}
	var sum time.Duration
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has just ended
		}
		first, _, _ := bytes.Cut(text, []byte(" "))
		ns, err := strconv.ParseInt(string(bytes.TrimSpace(first)), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("the CPU time of process %d cannot be read: %s: %v", pid, file, err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}
