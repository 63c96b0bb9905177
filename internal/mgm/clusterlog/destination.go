package clusterlog

import (
	"fmt"
	"io"
	"log/syslog"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cohortdb/cohort/internal/event"
)

// Kind is where a destination leads.
type Kind int

// The kinds.
const (
	KindConsole Kind = iota // standard output
	KindFile                // files that are turned over
	KindSyslog              // the machine's log
)

// Destination is one place that the log goes to.
type Destination struct {
	Kind Kind
	// Path, MaxBytes and MaxFiles are for KindFile: the file being written, the size at which it is turned over, and how many
	// files, that one included, may exist (0: no limit).
	Path     string
	MaxBytes int64
	MaxFiles int
	// Facility is for KindSyslog.
	Facility syslog.Priority
}

// Limits of a log file where LogDestination does not say.
const (
	DefaultMaxBytes = 1_000_000
	DefaultMaxFiles = 6
)

// Parse reads a LogDestination: CONSOLE, SYSLOG[:facility=NAME] and FILE[:filename=NAME,maxsize=BYTES,maxfiles=N],
// separated by semicolons; an empty one means a file. Relative names are put under dir; file is the file's default name.
func Parse(text, dir, file string) ([]Destination, error) {
	if strings.TrimSpace(text) == "" {
		text = "FILE"
	}
	var all []Destination
	for part := range strings.SplitSeq(text, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		d, err := parseOne(part, dir, file)
		if err != nil {
			return nil, fmt.Errorf("LogDestination %q: %w", part, err)
		}
		all = append(all, d)
	}
	return all, nil
}

func parseOne(part, dir, file string) (Destination, error) {
	kind, rest, _ := strings.Cut(part, ":")
	params := map[string]string{}
	for p := range strings.SplitSeq(rest, ",") {
		if p = strings.TrimSpace(p); p == "" {
			continue
		}
		name, value, found := strings.Cut(p, "=")
		if !found {
			return Destination{}, fmt.Errorf("%q is not NAME=VALUE", p)
		}
		params[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
	}
	take := func(name string) string {
		v := params[name]
		delete(params, name)
		return v
	}
	var d Destination
	var err error
	switch strings.ToUpper(strings.TrimSpace(kind)) {
	case "CONSOLE":
		d.Kind = KindConsole
	case "FILE":
		d, err = parseFile(take, dir, file)
	case "SYSLOG":
		d, err = parseSyslog(take)
	default:
		return d, fmt.Errorf("there is no %q: use CONSOLE, FILE or SYSLOG", kind)
	}
	if err != nil {
		return d, err
	}
	for name := range params {
		return d, fmt.Errorf("%s takes no parameter %q", strings.ToUpper(kind), name)
	}
	return d, nil
}

func parseFile(take func(string) string, dir, file string) (Destination, error) {
	d := Destination{Kind: KindFile, Path: take("filename"), MaxBytes: DefaultMaxBytes, MaxFiles: DefaultMaxFiles}
	if d.Path == "" {
		d.Path = file
	}
	if !filepath.IsAbs(d.Path) {
		d.Path = filepath.Join(dir, d.Path)
	}
	if text := take("maxsize"); text != "" {
		n, err := size(text)
		if err != nil || n < 1 {
			return d, fmt.Errorf("maxsize=%s: use a number of bytes, K, M and G allowed", text)
		}
		d.MaxBytes = n
	}
	if text := take("maxfiles"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return d, fmt.Errorf("maxfiles=%s: use a number, 0 for no limit", text)
		}
		d.MaxFiles = n
	}
	return d, nil
}

func size(text string) (int64, error) {
	shift := 0
	switch {
	case strings.HasSuffix(text, "K"), strings.HasSuffix(text, "k"):
		shift = 10
	case strings.HasSuffix(text, "M"), strings.HasSuffix(text, "m"):
		shift = 20
	case strings.HasSuffix(text, "G"), strings.HasSuffix(text, "g"):
		shift = 30
	}
	if shift > 0 {
		text = text[:len(text)-1]
	}
	n, err := strconv.ParseInt(text, 10, 32)
	return n << shift, err
}

var facilities = map[string]syslog.Priority{
	"auth": syslog.LOG_AUTH, "authpriv": syslog.LOG_AUTHPRIV, "cron": syslog.LOG_CRON, "daemon": syslog.LOG_DAEMON, "ftp": syslog.LOG_FTP,
	"kern": syslog.LOG_KERN, "lpr": syslog.LOG_LPR, "mail": syslog.LOG_MAIL, "news": syslog.LOG_NEWS, "syslog": syslog.LOG_SYSLOG,
	"user": syslog.LOG_USER, "uucp": syslog.LOG_UUCP, "local0": syslog.LOG_LOCAL0, "local1": syslog.LOG_LOCAL1, "local2": syslog.LOG_LOCAL2,
	"local3": syslog.LOG_LOCAL3, "local4": syslog.LOG_LOCAL4, "local5": syslog.LOG_LOCAL5, "local6": syslog.LOG_LOCAL6, "local7": syslog.LOG_LOCAL7,
}

func parseSyslog(take func(string) string) (Destination, error) {
	d := Destination{Kind: KindSyslog, Facility: syslog.LOG_USER}
	if name := take("facility"); name != "" {
		f, ok := facilities[strings.ToLower(name)]
		if !ok {
			return d, fmt.Errorf("there is no facility %q: use user, daemon, local0 …", name)
		}
		d.Facility = f
	}
	return d, nil
}

func (d Destination) open(console io.Writer) (sink, error) {
	switch d.Kind {
	case KindFile:
		return openFile(d.Path, d.MaxBytes, d.MaxFiles)
	case KindSyslog:
		w, err := syslog.New(d.Facility|syslog.LOG_INFO, "ndb_mgmd")
		if err != nil {
			return nil, fmt.Errorf("the cluster log's destination SYSLOG has no listener on this machine (%w): start one, or use FILE or CONSOLE in LogDestination", err)
		}
		return &syslogSink{w}, nil
	}
	return &consoleSink{console}, nil
}

type consoleSink struct{ w io.Writer }

func (s *consoleSink) describe() string { return "the console" }
func (s *consoleSink) Close() error     { return nil }
func (s *consoleSink) write(l Line) error {
	_, err := io.WriteString(s.w, l.String()+"\n")
	return err
}

type syslogSink struct{ w *syslog.Writer }

func (s *syslogSink) describe() string { return "syslog" }
func (s *syslogSink) Close() error     { return s.w.Close() }

// write leaves time and severity to syslog, which has its own.
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
