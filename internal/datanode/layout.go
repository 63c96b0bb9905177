package datanode

import (
	"fmt"
	"strings"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/kernel"
)

// Layout says what runs on each thread of a node. It is data: the blocks neither know nor care.
type Layout struct {
	Threads   int
	Main      int   // the thread of membership, distribution, dictionary and manager
	Receivers []int // threads that own sockets: socket k of a link belongs to Receivers[k]
	TCs, LDMs []int // by instance: its thread
	LogParts  int   // of the node: fragments are spread over them, and they over the ldms
	// Warnings say what of the configuration is not as it was written, one sentence each.
	Warnings []string
}

// Combined is a layout in which each of n threads receives, coordinates, holds data and sends, so that an operation need
// not change its thread.
func Combined(n int) Layout {
	l := Layout{Threads: n, LogParts: max(n, 4)}
	for i := range n {
		l.Receivers = append(l.Receivers, i)
		l.TCs = append(l.TCs, i)
		l.LDMs = append(l.LDMs, i)
	}
	return l
}

// LayoutFor makes the layout that the configuration asks for. A single-threaded node (ndbd) has one thread. Without a
// ThreadConfig there are no more threads than cpus, and each does everything, but that there are no more ldms than log
// parts.
func LayoutFor(cfg *Config, multiThreaded bool, cpus int) (Layout, error) {
	cpus = min(max(cpus, 1), kernel.MaxThreads)
	var l Layout
	switch t := cfg.Threads; {
	case !multiThreaded:
		l = Combined(1)
	case t.Source == config.ThreadsConfig:
		var err error
		if l, err = explicit(t); err != nil {
			return Layout{}, err
		}
	case t.Source == config.ThreadsAutomatic:
		n := cpus
		if t.CPUs > 0 {
			n = min(t.CPUs, cpus)
		}
		l = Combined(n)
		if t.CPUs > cpus {
			l.warn("NumCPUs is %d, and there are %d CPUs: as many threads are used", t.CPUs, cpus)
		}
	case t.Source == config.ThreadsMax:
		n := min(t.Counts.Total(), cpus)
		l = Combined(n)
		if t.Counts.Total() > n {
			l.warn("MaxNoOfExecutionThreads stands for %d threads, and there are %d CPUs: %d threads are used, each of which does everything",
				t.Counts.Total(), cpus, n)
		}
	default:
		l = Combined(cpus)
	}
	l.LogParts = cfg.LogParts
	if !cfg.LogPartsSet {
		l.LogParts = max(cfg.LogParts, len(l.LDMs))
	}
	if n := len(l.LDMs); n > l.LogParts {
		l.LDMs = l.LDMs[:l.LogParts]
		if cfg.Threads.Source == config.ThreadsConfig {
			return Layout{}, fmt.Errorf("ThreadConfig asks for %d ldm threads, and NoOfFragmentLogParts is %d: raise that, or lower the count of ldm", n, l.LogParts)
		}
		l.warn("NoOfFragmentLogParts is %d: %d of the %d threads hold data, the others receive and coordinate", l.LogParts, l.LogParts, l.Threads)
	}
	return l, nil
}

func (l *Layout) warn(format string, args ...any) {
	l.Warnings = append(l.Warnings, fmt.Sprintf(format, args...))
}

// explicit makes the threads that a ThreadConfig names. Coordinators and ldms that have no threads of their own share
// those that receive, as do the blocks of main.
func explicit(t config.ThreadLayout) (Layout, error) {
	var l Layout
	c := t.Counts
	add := func(n int) (list []int) {
		for range n {
			list = append(list, l.Threads)
			l.Threads++
		}
		return list
	}
	main := add(min(c.Main, 1))
	l.Receivers = add(max(c.Recv, 1))
	l.Main = l.Receivers[0]
	if len(main) > 0 {
		l.Main = main[0]
	}
	if l.TCs = add(c.TC); c.TC == 0 {
		l.TCs = append(l.TCs, l.Receivers...)
	}
	if l.LDMs = add(c.LDM); c.LDM == 0 {
		l.LDMs = append(l.LDMs, l.Receivers...)
	}
	if l.Threads > kernel.MaxThreads {
		return l, fmt.Errorf("ThreadConfig asks for %d threads, and a node can have %d: lower its counts", l.Threads, kernel.MaxThreads)
	}
	if t.Config == nil {
		return l, nil
	}
	l.Warnings = append(l.Warnings, t.Config.Warnings...)
	for _, s := range t.Config.Specs {
		switch {
		case s.Kind == config.ThreadSend && s.Count > 0:
			l.warn("ThreadConfig asks for send threads, and there are none: every thread sends what it has to send")
		case s.Kind == config.ThreadRep && s.Count > 0:
			l.warn("ThreadConfig asks for a rep thread, and there is none: event streams come later")
		}
	}
	return l, nil
}

// Roles says in words what a thread does.
func (l *Layout) Roles(thread int) string {
	var words []string
	note := func(list []int, word string) {
		for i, t := range list {
			if t == thread {
				words = append(words, fmt.Sprintf("%s %d", word, i))
			}
		}
	}
	if l.Main == thread {
		words = append(words, "main")
	}
	note(l.Receivers, "socket")
	note(l.TCs, "coordinator")
	note(l.LDMs, "ldm")
	return strings.Join(words, ", ")
}

// check says what is wrong with a layout, "" when nothing is.
func (l *Layout) check() string {
	if l.Threads < 1 || l.Threads > kernel.MaxThreads || l.Main < 0 || l.Main >= l.Threads {
		return "a layout has threads, one of them main"
	}
	if len(l.Receivers) == 0 || len(l.TCs) == 0 || len(l.LDMs) == 0 || l.LogParts < len(l.LDMs) {
		return "a layout has receivers, coordinators, ldms, and a log part for each ldm"
	}
	for _, list := range [][]int{l.Receivers, l.TCs, l.LDMs} {
		for _, t := range list {
			if t < 0 || t >= l.Threads {
				return "what runs on a thread runs on one that exists"
			}
		}
	}
	return ""
}
