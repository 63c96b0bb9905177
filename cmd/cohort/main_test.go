package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cohortdb/cohort/internal/version"
)

// call runs the binary's entry with the given argv and returns its exit status and both outputs.
func call(argv ...string) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	status = run(argv, strings.NewReader(""), &out, &err)
	return status, out.String(), err.String()
}

func TestHelpListsEveryToolUnderBothNames(t *testing.T) {
	status, out, _ := call("bin/cohort", "help")
	if status != 0 {
		t.Fatalf("status %d", status)
	}
	for _, tool := range tools {
		if !strings.Contains(out, "  "+tool.command+" ") || !strings.Contains(out, tool.link) || !strings.Contains(out, tool.help) {
			t.Errorf("help misses %s (%s)", tool.command, tool.link)
		}
	}
	if !strings.Contains(out, "Examples:") {
		t.Error("help has no examples")
	}
}

func TestHelpAboutHelpIsTheList(t *testing.T) {
	for _, word := range []string{"help", "version", "--help", "-?"} {
		if status, out, err := call("cohort", "help", word); status != 0 || err != "" || !strings.Contains(out, "Usage: cohort COMMAND") {
			t.Errorf("cohort help %s: status %d, %q %q", word, status, out, err)
		}
	}
}

func TestBenchNamesItsBenchmarks(t *testing.T) {
	for _, c := range []struct {
		args   string
		status int
		text   string
	}{
		{"bench --help", 0, "  matrix "},
		{"bench", exitUsage, "no benchmark is named"},
		{"bench nonsense", exitUsage, `there is no benchmark "nonsense"`},
		{"bench matrix --list", 0, "batched "},
		{"bench matrix --help", 0, "Usage: cohort bench matrix [options]"},
		{"bench failover --help", 0, "Usage: cohort bench failover [options]"},
		{"bench restart", 1, "cohort bench restart: not supported yet"},
	} {
		status, out, err := call(append([]string{"cohort"}, strings.Fields(c.args)...)...)
		if status != c.status || !strings.Contains(out+err, c.text) {
			t.Errorf("%s: status %d, %q %q", c.args, status, out, err)
		}
	}
}

func TestToolNamesAreUnique(t *testing.T) {
	seen := map[string]bool{"help": true, "version": true}
	for _, tool := range tools {
		names := []string{tool.command}
		if tool.link != "" && tool.link != tool.command {
			names = append(names, tool.link)
		}
		for _, name := range names {
			if seen[name] {
				t.Errorf("%s stands twice in the table", name)
			}
			seen[name] = true
		}
	}
}

func TestLinksAreThoseOfTheTable(t *testing.T) {
	_, out, _ := call("cohort", "help", "--links")
	for _, link := range strings.Fields(out) {
		if _, ok := byLink(link); !ok {
			t.Errorf("%s is no tool", link)
		}
	}
	if n := len(strings.Fields(out)); n == 0 {
		t.Error("no links")
	}
}

func TestAToolIsFoundByLinkByCommandAndByLinkNameAsCommand(t *testing.T) {
	for _, c := range []struct {
		argv []string
		says string
	}{
		{[]string{"/usr/local/bin/ndb_restore", "-n", "1"}, "ndb_restore: not supported yet: "},
		{[]string{"cohort", "restore"}, "cohort restore: not supported yet: "},
		{[]string{"./cohort", "ndb_restore"}, "cohort restore: not supported yet: "},
		{[]string{"cohort-0.1", "restore"}, "cohort restore: not supported yet: "},
	} {
		status, out, err := call(c.argv...)
		if status != 1 || out != "" || !strings.HasPrefix(err, c.says) {
			t.Errorf("%v: status %d, stdout %q, stderr %q", c.argv, status, out, err)
		}
	}
}

func TestUnknownCommandIsAUsageError(t *testing.T) {
	status, out, err := call("cohort", "restor")
	if status != exitUsage || out != "" || !strings.HasPrefix(err, `cohort: there is no command "restor": `) {
		t.Fatalf("status %d, stdout %q, stderr %q", status, out, err)
	}
	if !strings.Contains(err, "did you mean restore?") {
		t.Errorf("no suggestion: %q", err)
	}
	if _, _, err := call("cohort", "quxquux"); strings.Contains(err, "did you mean") {
		t.Errorf("a suggestion for nothing near: %q", err)
	}
	if _, _, err := call("cohort", "-f"); strings.Contains(err, "did you mean") {
		t.Errorf("a suggestion for an option: %q", err)
	}
	if status, _, _ := call("cohort"); status != exitUsage {
		t.Errorf("no command: status %d", status)
	}
}

func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "--version", "-V"} {
		if status, out, _ := call("cohort", arg); status != 0 || out != version.String()+"\n" {
			t.Errorf("%s: status %d, %q", arg, status, out)
		}
	}
}

func TestDistanceCountsEdits(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"up", "up", 0}, {"UP", "up", 0}, {"mgn", "mgm", 1}, {"flexasync", "flexAsynch", 1}, {"", "abc", 3}, {"kitten", "sitting", 3}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
