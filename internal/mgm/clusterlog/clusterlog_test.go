package clusterlog

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
)

var evening = time.Date(2026, 11, 30, 16, 55, 29, 0, time.Local)

func open(t *testing.T, text, dir string, console *strings.Builder) *Log {
	t.Helper()
	d, err := config.ParseLogDestination(text)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(d, dir, 49, console, console)
	if err != nil {
		t.Fatal(err)
	}
	l.now = func() time.Time { return evening }
	t.Cleanup(func() { l.Close() })
	return l
}

func TestALineIsAsNDBWritesIt(t *testing.T) {
	var console strings.Builder
	l := open(t, "CONSOLE", "", &console)
	l.Write(event.Alert, event.New(1, event.Disconnected, 2).String())
	l.Write(event.Note, "Node 1: Started")
	l.Write(event.Critical, "x")
	want := "2026-11-30 16:55:29 [MgmtSrvr] ALERT    -- Node 1: Node 2 Disconnected\n" +
		"2026-11-30 16:55:29 [MgmtSrvr] INFO     -- Node 1: Started\n" +
		"2026-11-30 16:55:29 [MgmtSrvr] CRITICAL -- x\n"
	if console.String() != want {
		t.Fatalf("got\n%swant\n%s", &console, want)
	}
}

func TestFilter(t *testing.T) {
	var console strings.Builder
	l := open(t, "CONSOLE", "", &console)
	said := func(s event.Severity) bool {
		console.Reset()
		l.Write(s, "x")
		return console.Len() > 0
	}
	if said(event.Debug) || !said(event.Note) {
		t.Fatal("at first everything but DEBUG passes")
	}
	l.SetFilter(int(event.Debug), Toggle)
	l.SetFilter(int(event.Note), Disable)
	if !said(event.Debug) || said(event.Note) {
		t.Fatal("a severity can be switched by itself")
	}
	l.SetFilter(0, Disable)
	if said(event.Alert) {
		t.Fatal("off is off")
	}
	l.SetFilter(0, Enable)
	l.SetFilter(AllSeverities, Enable)
	if f := l.Filter(); !said(event.Note) || !f.On || !f.Passes[event.Note] {
		t.Fatal("on again")
	}
	if l.SetFilter(8, Enable) || l.SetFilter(-1, Enable) || said(9) {
		t.Fatal("no such severity")
	}
}

func TestFilesAreTurnedOverAndTheOldestGo(t *testing.T) {
	dir := t.TempDir()
	var console strings.Builder
	l := open(t, "FILE:filename=c.log,maxfiles=3", dir, &console)
	l.sinks[0].(*fileSink).maxBytes = 200
	const lines = 40
	for i := range lines {
		l.Write(event.Note, "line "+string(rune('A'+i)))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
		if info, _ := e.Info(); info.Size() > 200 {
			t.Errorf("%s has %d bytes", e.Name(), info.Size())
		}
	}
	if len(names) != 3 || !slices.Contains(names, "c.log") {
		t.Fatalf("files %v", names)
	}
	// What is left are the newest lines, without a gap.
	s := l.sinks[0].(*fileSink)
	numbers, err := s.archived()
	if err != nil || len(numbers) != 2 {
		t.Fatalf("%v, %v", numbers, err)
	}
	var all string
	for _, name := range []string{s.archive(numbers[0]), s.archive(numbers[1]), s.path} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all += string(text)
	}
	kept := strings.Count(all, "\n")
	for i := lines - kept; i < lines; i++ {
		if !strings.Contains(all, "line "+string(rune('A'+i))+"\n") {
			t.Errorf("line %d is missing", i)
		}
	}
	if kept < 6 || console.Len() > 0 {
		t.Fatalf("%d lines kept; console %q", kept, &console)
	}
	// A server that starts anew goes on with the same files and numbers.
	l2 := open(t, "FILE:filename=c.log,maxfiles=3", dir, &console)
	l2.sinks[0].(*fileSink).maxBytes = 200
	for range 8 {
		l2.Write(event.Note, "later")
	}
	again, err := s.archived()
	if err != nil || len(again) != 2 || again[1] <= numbers[1] {
		t.Fatalf("numbers %v after %v", again, numbers)
	}
}

func TestLogGoesOnWhenItsFolderIsBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	var console strings.Builder
	l := open(t, "FILE:filename=c.log", dir, &console)
	l.sinks[0].(*fileSink).maxBytes = 60
	l.Write(event.Note, "one")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	l.Write(event.Note, "two") // must turn over, and cannot
	l.Write(event.Note, "three")
	if n := strings.Count(console.String(), "cannot be written"); n != 1 {
		t.Fatalf("reported %d times: %s", n, &console)
	}
	if err := os.Mkdir(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	l.Write(event.Note, "four")
	l.Write(event.Note, "five")
	if !strings.Contains(console.String(), "2 lines were lost") {
		t.Fatalf("console: %s", &console)
	}
	text, err := os.ReadFile(filepath.Join(dir, "c.log"))
	if err != nil || !strings.Contains(string(text), "five") {
		t.Fatalf("%q, %v", text, err)
	}
}

func TestDestinations(t *testing.T) {
	dir := t.TempDir()
	var console strings.Builder
	l := open(t, "CONSOLE;FILE", dir, &console)
	l.Write(event.Note, "both")
	text, err := os.ReadFile(filepath.Join(dir, "ndb_49_cluster.log"))
	if err != nil || string(text) != console.String() || console.Len() == 0 {
		t.Fatalf("%q, %v, console %q", text, err, &console)
	}
	_, err = Open([]config.LogDestination{{FileName: "/nowhere/at/all/c.log"}}, dir, 49, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "/nowhere/at/all/c.log") || !strings.Contains(err.Error(), "LogDestination") {
		t.Errorf("a file that cannot be made: %v", err)
	}
}

// Every facility that a configuration may name has a number, and where no system logger listens the error says what
// to do instead.
func TestSyslog(t *testing.T) {
	for name := range facilities {
		d, err := config.ParseLogDestination("SYSLOG:facility=" + name)
		if err != nil || facilities[d[0].Facility]>>3 != facilities[name]>>3 {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	if _, err := config.ParseLogDestination("SYSLOG:facility=tape"); err == nil {
		t.Error("a facility that does not exist")
	}
	l, err := Open([]config.LogDestination{{Syslog: true, Facility: "local0"}}, "", 49, nil, nil)
	if err != nil {
		if !strings.Contains(err.Error(), "use FILE or CONSOLE") {
			t.Error(err)
		}
		return
	}
	l.Write(event.Debug, "dropped by the filter")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
