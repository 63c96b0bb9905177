package noded

import (
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/signal"
)

func TestOptions(t *testing.T) {
	t.Setenv("NDB_CONNECTSTRING", "nodeid=9,elsewhere:7")
	s, _, err := parse([]string{"-c", "h:1", "--ndb-nodeid=3", "--initial", "-n", "--nodaemon", "--nowait-nodes=1,2", "-v", "--pprof=127.0.0.1:0", "--connect-retries=-1"})
	if err != nil || s.servers.Servers[0].String() != "h:1" || s.nodeID != 3 || !s.noStart || !s.noWait.Has(1) || !s.noWait.Has(2) || s.noWait.Count() != 2 ||
		!s.verbose || s.patience() >= 0 {
		t.Fatalf("%+v %v", s, err)
	}
	if s, _, err = parse(nil); err != nil || s.servers.Servers[0].String() != "elsewhere:7" || s.nodeID != 9 || s.patience().Seconds() != 60 {
		t.Fatalf("%+v %v", s, err)
	}
	for args, want := range map[string]string{
		"--ndb-nodeid=145":       "1 to 144",
		"--nowait-nodes=0":       "not a data node",
		"--daemon":               "not supported",
		"--pprof=0.0.0.0:99":     "loopback",
		"stray":                  "no argument",
		"-c nodeid=0,x":          "nodeid",
		"--connect-retries=many": "not a number",
	} {
		if _, _, err := parse(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestARestartKeepsWhatMatters(t *testing.T) {
	s, _, err := parse([]string{"-c", "h:1", "--nostart", "--initial", "--bind-address=127.0.0.1", "--nowait-nodes=2"})
	if err != nil {
		t.Fatal(err)
	}
	for flags, want := range map[uint32][2]bool{ // nostart, initial
		signal.StopRestart:                                           {false, false},
		signal.StopRestart | signal.StopNoStart:                      {true, false},
		signal.StopRestart | signal.StopInitial | signal.StopNoStart: {true, true},
	} {
		args := restartArgs(s, 4, flags)
		n, _, err := parse(args)
		if err != nil || n.nodeID != 4 || n.servers.String() != s.servers.String() || n.bind != s.bind || n.noStart != want[0] || !n.noWait.Empty() ||
			n.retries != s.retries || slices.Contains(args, "--initial") != want[1] {
			t.Errorf("%q: %+v %v", args, n, err)
		}
	}
}

func TestHelpVersionAndMistakes(t *testing.T) {
	for _, c := range []struct {
		args   string
		status int
		out    string
		err    string
	}{
		{"--help", 0, `(?s)^Usage: ndbd \[options\].*Examples:\n`, `^$`},
		{"--version", 0, `^\S+ cohort-\d+\.\d+\.\d+\n$`, `^$`},
		{"--nonsense", exitUsage, `^$`, `^ndbd: there is no option --nonsense: --help lists them\n$`},
		{"-c 127.0.0.1:1 --connect-retries=0", exitcode.Management, ` starts\n`, `^ndbd: no management server answers at 127\.0\.0\.1:1 .*\n$`},
	} {
		var stdout, stderr strings.Builder
		status := NDBD("ndbd", strings.Fields(c.args), nil, &stdout, &stderr)
		if status != c.status || !regexp.MustCompile(c.out).MatchString(stdout.String()) || !regexp.MustCompile(c.err).MatchString(stderr.String()) {
			t.Errorf("%s: status %d\n%s\n%s", c.args, status, &stdout, &stderr)
		}
	}
}

func TestEventsAreLoggedByLevelAndSeverity(t *testing.T) {
	var w strings.Builder
	l := newLogger(&w, "ndbd")
	for _, c := range []struct {
		e      event.Event
		logged bool
	}{
		{event.New(1, event.NDBStartStarted, 0x100), true},
		{event.New(1, event.NDBStopCompleted), true},
		{event.New(1, event.GlobalCheckpointStarted, 7), false},
		{event.New(1, event.Disconnected, 2), true},
		{event.New(1, event.Connected, 2), false},
		{event.New(1, event.WarningEvent).WithText("look"), true},
	} {
		w.Reset()
		l.event(&c.e)
		l.flush()
		if (w.Len() > 0) != c.logged {
			t.Errorf("%v: %q", c.e, &w)
		}
	}
	l.flush()
	if !regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[ndbd\] WARNING  -- Node 1: look\n$`).MatchString(w.String()) {
		t.Error(w.String())
	}
}

// Memory that the machine does not have is not locked, which would bring it down; without locking it is a warning.
func TestMoreMemoryThanTheMachineHas(t *testing.T) {
	var w strings.Builder
	p := &process{log: newLogger(&w, "ndbd")}
	p.config.DataMemory, p.config.CopyMemory = 7<<30, 2<<30
	for machine, want := range map[int64]string{0: "", 9 << 30: "", 8 << 30: "may take 9216 MB, and this machine has 8192 MB"} {
		w.Reset()
		err := p.fits(machine)
		p.log.flush()
		if err != nil || !strings.Contains(w.String(), want) || want == "" && w.Len() > 0 {
			t.Errorf("%d: %v\n%s", machine, err, &w)
		}
	}
	p.config.LockMemory = true
	var f *failure
	if err := p.fits(8 << 30); !errors.As(err, &f) || f.code != exitcode.Memory || !strings.Contains(f.text, "LockPagesInMainMemory=0") {
		t.Errorf("%v", err)
	}
	if err := p.fits(9 << 30); err != nil {
		t.Error(err)
	}
}

// A reader who has stopped reading stops nobody: lines are lost then, and counted.
func TestALogThatIsNotReadStopsNobody(t *testing.T) {
	r, w := io.Pipe()
	l := newLogger(w, "ndbd")
	for i := range 2 * linesMost {
		l.info("line %d", i)
	}
	go func() {
		l.flush()
		w.Close()
	}()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Count(string(text), "\n")
	m := regexp.MustCompile(`WARNING  -- (\d+) lines are missing here`).FindStringSubmatch(string(text))
	if m == nil {
		t.Fatalf("%d lines of %d, and no word about the others", lines, 2*linesMost)
	}
	if lost, _ := strconv.Atoi(m[1]); lost+lines-1 != 2*linesMost {
		t.Errorf("%d lines and %d lost, of %d", lines-1, lost, 2*linesMost)
	}
}
