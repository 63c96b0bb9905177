package noded

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
)

const (
	// linesMost is how many lines may wait to be written; further ones are lost, and counted.
	linesMost = 1024
	// flushTime bounds how long the end of the process waits for lines that nobody takes.
	flushTime = 2 * time.Second
)

// logger writes lines with a time stamp, as NDB's programs do: "2026-11-30 16:55:29 [ndbd] INFO     -- text". A goroutine
// of its own writes them: whoever logs never waits for a disk, or for a reader who has stopped reading.
type logger struct {
	name string
	// levels of the node's own events that are written.
	levels event.Levels
	lines  chan []byte
	lost   atomic.Int64
	wants  chan chan struct{} // of those who wait until everything is written
}

func newLogger(w io.Writer, name string) *logger {
	l := &logger{name: name, lines: make(chan []byte, linesMost), wants: make(chan chan struct{})}
	go l.run(w)
	l.levels[event.CategoryStartup] = 1
	return l
}

// configure takes the LogLevel parameters of the node. What says how the node starts and ends, and every warning and
// error, is written in any case.
func (l *logger) configure(n *config.Node, everything bool) {
	if everything {
		for c := range l.levels {
			l.levels[c] = event.LevelMax
		}
		return
	}
	for _, c := range []struct {
		category  event.Category
		parameter string
	}{
		{event.CategoryStartup, "LogLevelStartup"}, {event.CategoryShutdown, "LogLevelShutdown"},
		{event.CategoryStatistics, "LogLevelStatistic"}, {event.CategoryCheckpoint, "LogLevelCheckpoint"},
		{event.CategoryNodeRestart, "LogLevelNodeRestart"}, {event.CategoryConnection, "LogLevelConnection"},
		{event.CategoryError, "LogLevelError"}, {event.CategoryCongestion, "LogLevelCongestion"}, {event.CategoryInfo, "LogLevelInfo"},
	} {
		l.levels[c.category] = uint8(n.Int(c.parameter))
	}
}

// run writes what comes. What cannot be written is lost: a full disk is no reason to end.
func (l *logger) run(w io.Writer) {
	put := func(line []byte) {
		_, _ = w.Write(line)
		if n := l.lost.Swap(0); n > 0 {
			_, _ = w.Write(l.line(event.Warning, fmt.Sprintf("%d lines are missing here: they could not be written as fast as they came", n)))
		}
	}
	for {
		select {
		case line := <-l.lines:
			put(line)
		case done := <-l.wants:
			for len(l.lines) > 0 {
				put(<-l.lines)
			}
			close(done)
		}
	}
}

// flush waits until everything that was logged before is written, or until it has taken too long.
func (l *logger) flush() {
	late := time.After(flushTime)
	done := make(chan struct{})
	select {
	case l.wants <- done:
	case <-late:
		return
	}
	select {
	case <-done:
	case <-late:
	}
}

func (l *logger) line(severity event.Severity, text string) []byte {
	b := time.Now().AppendFormat(nil, "2006-01-02 15:04:05")
	return fmt.Appendf(b, " [%s] %-8s -- %s\n", l.name, severity, text)
}

func (l *logger) write(severity event.Severity, text string) {
	select {
	case l.lines <- l.line(severity, text):
	default:
		l.lost.Add(1)
	}
}

func (l *logger) info(format string, args ...any) {
	l.write(event.Note, fmt.Sprintf(format, args...))
}
func (l *logger) warning(format string, args ...any) {
	l.write(event.Warning, fmt.Sprintf(format, args...))
}

// event writes an event of this node, if its level or its severity says so.
func (l *logger) event(e *event.Event) {
	info := e.Info()
	if l.levels.Admits(info.Category, info.Level) || info.Severity >= event.Warning ||
		info.Level <= 1 && (info.Category == event.CategoryStartup || info.Category == event.CategoryShutdown) {
		l.write(info.Severity, e.String())
	}
}
