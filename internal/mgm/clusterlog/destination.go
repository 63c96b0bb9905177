package clusterlog

import (
	"fmt"
	"io"
	"log/syslog"
	"path/filepath"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
)

// facilities are the numbers of syslog(3) for the names that a configuration may have.
var facilities = map[string]syslog.Priority{
	"auth": syslog.LOG_AUTH, "authpriv": syslog.LOG_AUTHPRIV, "cron": syslog.LOG_CRON, "daemon": syslog.LOG_DAEMON, "ftp": syslog.LOG_FTP,
	"kern": syslog.LOG_KERN, "lpr": syslog.LOG_LPR, "mail": syslog.LOG_MAIL, "news": syslog.LOG_NEWS, "syslog": syslog.LOG_SYSLOG,
	"user": syslog.LOG_USER, "uucp": syslog.LOG_UUCP, "local0": syslog.LOG_LOCAL0, "local1": syslog.LOG_LOCAL1, "local2": syslog.LOG_LOCAL2,
	"local3": syslog.LOG_LOCAL3, "local4": syslog.LOG_LOCAL4, "local5": syslog.LOG_LOCAL5, "local6": syslog.LOG_LOCAL6, "local7": syslog.LOG_LOCAL7,
}

// openOne opens a destination. A file without a name gets one in dir, and a relative name is meant there.
func openOne(d config.LogDestination, dir string, node int, console io.Writer) (sink, error) {
	switch {
	case d.Console:
		return &consoleSink{console}, nil
	case d.Syslog:
		w, err := syslog.New(facilities[d.Facility]|syslog.LOG_INFO, "ndb_mgmd")
		if err != nil {
			return nil, fmt.Errorf("no system logger answers for the cluster log's destination SYSLOG (%w): start one, or use FILE or CONSOLE in LogDestination", err)
		}
		return &syslogSink{w}, nil
	}
	path := d.FileName
	if path == "" {
		path = fmt.Sprintf("ndb_%d_cluster.log", node)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	return openFile(path, d.MaxSize, d.MaxFiles)
}

type consoleSink struct{ w io.Writer }

func (s *consoleSink) describe() string { return "the console" }
func (s *consoleSink) Close() error     { return nil }
func (s *consoleSink) write(l Line) error {
	_, err := io.WriteString(s.w, l.String()+"\n")
	return err
}

type syslogSink struct{ w *syslog.Writer }

func (s *syslogSink) describe() string { return "the system's logger" }
func (s *syslogSink) Close() error     { return s.w.Close() }

// write leaves time and severity to the system's logger, which has its own.
func (s *syslogSink) write(l Line) error {
	switch l.Severity {
	case event.Alert:
		return s.w.Alert(l.Text)
	case event.Critical:
		return s.w.Crit(l.Text)
	case event.Error:
		return s.w.Err(l.Text)
	case event.Warning:
		return s.w.Warning(l.Text)
	case event.Debug:
		return s.w.Debug(l.Text)
	}
	return s.w.Info(l.Text)
}
