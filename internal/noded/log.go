package noded

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
)

// logger writes lines with a time stamp, as NDB's programs do: "2026-11-30 16:55:29 [ndbd] INFO     -- text".
type logger struct {
	mu   sync.Mutex
	w    io.Writer
	name string
	// levels of the node's own events that are written.
	levels event.Levels
	buf    []byte
}

func newLogger(w io.Writer, name string) *logger {
	l := &logger{w: w, name: name}
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

func (l *logger) write(severity event.Severity, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = time.Now().AppendFormat(l.buf[:0], "2006-01-02 15:04:05")
	l.buf = fmt.Appendf(l.buf, " [%s] %-8s -- %s\n", l.name, severity, text)
	_, _ = l.w.Write(l.buf)
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
