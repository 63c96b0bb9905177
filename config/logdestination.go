package config

import "strings"

// LogDestination is one place that the cluster log goes to.
type LogDestination struct {
	Console  bool   // to standard output
	Syslog   bool   // to the system's logger; where neither is set, to a file
	Facility string // of the system's logger, one of syslogFacilities
	FileName string // relative to the management server's DataDir; empty: ndb_ID_cluster.log
	MaxSize  int64  // bytes after which a new file is begun
	MaxFiles int    // files that are kept
}

const (
	logMaxSize  = 1000000
	logMaxFiles = 6
)

// ParseLogDestination reads a LogDestination parameter: places between semicolons, as in
//
//	CONSOLE;FILE:filename=cluster.log,maxsize=1000000,maxfiles=6;SYSLOG:facility=local0
//
// An empty text gives the default, a file of up to 1000000 bytes of which 6 are kept. SYSLOG's default is user.
func ParseLogDestination(s string) ([]LogDestination, error) {
	all, c := parseLogDestination(s)
	if c.text != "" {
		return nil, &Error{Problem{Parameter: "LogDestination", Text: c.text, Suggestion: c.suggestion}}
	}
	return all, nil
}

func parseLogDestination(s string) ([]LogDestination, complaint) {
	if strings.TrimSpace(s) == "" {
		return []LogDestination{{MaxSize: logMaxSize, MaxFiles: logMaxFiles}}, complaint{}
	}
	var all []LogDestination
	for _, part := range strings.Split(s, ";") {
		kind, args, _ := strings.Cut(strings.TrimSpace(part), ":")
		switch strings.ToUpper(strings.TrimSpace(kind)) {
		case "CONSOLE":
			if strings.TrimSpace(args) != "" {
				return nil, complaint{"has " + clip(args) + " after CONSOLE", "write CONSOLE alone"}
			}
			all = append(all, LogDestination{Console: true})
		case "FILE":
			d, c := parseLogFile(args)
			if c.text != "" {
				return nil, c
			}
			all = append(all, d)
		case "SYSLOG":
			d, c := parseLogSyslog(args)
			if c.text != "" {
				return nil, c
			}
			all = append(all, d)
		default:
			return nil, complaint{"has the destination " + clip(part), "write CONSOLE, SYSLOG:facility=NAME or FILE:filename=NAME,maxsize=BYTES,maxfiles=N"}
		}
	}
	return all, complaint{}
}

// parseLogFile reads the arguments of FILE.
func parseLogFile(args string) (LogDestination, complaint) {
	d := LogDestination{MaxSize: logMaxSize, MaxFiles: logMaxFiles}
	for _, arg := range strings.Split(args, ",") {
		if strings.TrimSpace(arg) == "" {
			continue
		}
		key, text, _ := strings.Cut(arg, "=")
		text = strings.TrimSpace(text)
		n, isNumber := parseNumber(text)
		switch key = fold(strings.TrimSpace(key)); {
		case key == "filename" && text != "":
			d.FileName = text
		case key == "maxsize" && isNumber && n >= 4096:
			d.MaxSize = n
		case key == "maxfiles" && isNumber && n >= 1 && n <= 100000:
			d.MaxFiles = int(n)
		case key == "filename" || key == "maxsize" || key == "maxfiles":
			return d, complaint{"has " + key + "=" + clip(text), "write a file name, a maxsize of 4096 or more, and maxfiles of 1 to 100000"}
		default:
			return d, complaint{"has the argument " + clip(arg) + " for FILE", "write filename, maxsize and maxfiles"}
		}
	}
	return d, complaint{}
}

// syslogFacilities are the facilities of syslog(3).
var syslogFacilities = [...]string{"auth", "authpriv", "cron", "daemon", "ftp", "kern", "lpr", "mail", "news", "syslog", "user", "uucp",
	"local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"}

// parseLogSyslog reads the argument of SYSLOG.
func parseLogSyslog(args string) (LogDestination, complaint) {
	d := LogDestination{Syslog: true, Facility: "user"}
	if strings.TrimSpace(args) == "" {
		return d, complaint{}
	}
	key, text, _ := strings.Cut(args, "=")
	if fold(strings.TrimSpace(key)) != "facility" {
		return d, complaint{"has the argument " + clip(args) + " for SYSLOG", "write facility=NAME"}
	}
	for _, name := range syslogFacilities {
		if strings.EqualFold(strings.TrimSpace(text), name) {
			d.Facility = name
			return d, complaint{}
		}
	}
	return d, complaint{"has facility=" + clip(text), "write one of " + strings.Join(syslogFacilities[:], ", ")}
}
