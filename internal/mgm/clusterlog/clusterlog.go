// Package clusterlog writes the cluster log of a management server: one line per event, to the console, to files that
// are turned over, or to syslog.
//
// It owns the severity filter, the line format and the destinations. Which events reach it by category and level is
// decided before, by the server. It never stops the server: a destination that cannot be written is reported once on
// the fallback and tried again with the next line. Invariants: lines come out whole and in the order of Write; a log
// file never grows beyond its limit by more than one line; no more files exist than the limit says.
//
// What a LogDestination says is read by package config. Read next: destination.go, file.go (turning files over).
package clusterlog

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
)

// Source is what a line names as its origin.
const Source = "MgmtSrvr"

// Line is one entry.
type Line struct {
	Time     time.Time
	Severity event.Severity
	Text     string
}

// String is the line as files and the console have it, without the end of line.
func (l Line) String() string {
	return fmt.Sprintf("%s [%s] %-8s -- %s", l.Time.Format("2006-01-02 15:04:05"), Source, l.Severity, l.Text)
}

// sink is one destination.
type sink interface {
	io.Closer
	write(l Line) error
	describe() string
}

// Filter is the severity filter: the switch of the whole log, and for each severity by its number whether it passes.
type Filter struct {
	On     bool
	Passes [event.Alert + 1]bool
}

// Log is the cluster log. Several goroutines may use it.
type Log struct {
	mu       sync.Mutex
	sinks    []sink
	lost     []int     // per sink: lines lost since it last worked
	fallback io.Writer // where failures of destinations are reported
	now      func() time.Time
	filter   Filter
}

// Open opens every destination of management server node. Files without a folder lie in dir; fallback takes reports
// about destinations that fail later.
func Open(destinations []config.LogDestination, dir string, node int, console, fallback io.Writer) (*Log, error) {
	l := &Log{fallback: fallback, now: time.Now, filter: Filter{On: true}}
	for s := event.Note; s <= event.Alert; s++ {
		l.filter.Passes[s] = true
	}
	for _, d := range destinations {
		s, err := openOne(d, dir, node, console)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l.sinks = append(l.sinks, s)
		l.lost = append(l.lost, 0)
	}
	return l, nil
}

// Write adds a line unless the filter drops it.
func (l *Log) Write(severity event.Severity, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.filter.On || severity > event.Alert || !l.filter.Passes[severity] {
		return
	}
	line := Line{Time: l.now(), Severity: severity, Text: text}
	for i, s := range l.sinks {
		if err := s.write(line); err != nil {
			if l.lost[i]++; l.lost[i] == 1 {
				fmt.Fprintf(l.fallback, "ndb_mgmd: the cluster log cannot be written to %s: %v: make room or permit it; lines are lost until then\n",
					s.describe(), err)
			}
			continue
		}
		if l.lost[i] > 0 {
			fmt.Fprintf(l.fallback, "ndb_mgmd: the cluster log is written to %s again; %d lines were lost\n", s.describe(), l.lost[i])
			l.lost[i] = 0
		}
	}
}

// Filter is the state of the severity filter.
func (l *Log) Filter() Filter {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.filter
}

// Change is what SetFilter does to a severity.
type Change int

// The changes, with their numbers on the management protocol.
const (
	Toggle  Change = -1
	Disable Change = 0
	Enable  Change = 1
)

func (c Change) apply(b bool) bool {
	switch c {
	case Toggle:
		return !b
	case Enable:
		return true
	}
	return false
}

// AllSeverities is SetFilter's number for every severity at once; 0 is the switch of the whole log.
const AllSeverities = 7

// SetFilter changes the filter of a severity by its number and returns false for a number that has no meaning.
func (l *Log) SetFilter(severity int, change Change) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case severity == 0:
		l.filter.On = change.apply(l.filter.On)
	case severity == AllSeverities:
		for s := event.Debug; s <= event.Alert; s++ {
			l.filter.Passes[s] = change.apply(l.filter.Passes[s])
		}
	case severity >= int(event.Debug) && severity <= int(event.Alert):
		l.filter.Passes[severity] = change.apply(l.filter.Passes[severity])
	default:
		return false
	}
	return true
}

// Close closes every destination.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, s := range l.sinks {
		errs = append(errs, s.Close())
	}
	l.sinks, l.lost = nil, nil
	return errors.Join(errs...)
}
