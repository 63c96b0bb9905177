package options

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cohortdb/cohort/internal/version"
)

type program struct {
	connect, file string
	id            int
	initial, abc  bool
	set           *Set
}

func sample() *program {
	p := &program{id: -1}
	p.set = New("[options] [NAME]", "Does things.")
	p.set.String(&p.connect, "ndb-connectstring,c", "STRING", "where the servers are")
	p.set.String(&p.file, "config-file,f", "FILE", "what to read\nand when")
	p.set.Int(&p.id, "ndb-nodeid", "N", "own id", 1, 255)
	p.set.Bool(&p.initial, "initial", "begin anew")
	p.set.Bool(&p.abc, "abc,a", "a switch with a short form")
	p.set.Example("prog -c localhost")
	return p
}

func TestForms(t *testing.T) {
	for _, c := range []struct {
		args []string
		want program
		rest []string
	}{
		{[]string{"--ndb-connectstring=h:1", "-f", "x.ini", "--ndb_nodeid", "7", "--initial"}, program{connect: "h:1", file: "x.ini", id: 7, initial: true}, nil},
		{[]string{"-ch:1", "-fx", "--ndb-n=3", "--initial=0", "one", "two"}, program{connect: "h:1", file: "x", id: 3}, []string{"one", "two"}},
		{[]string{"--initial", "--skip-initial", "--", "--abc"}, program{id: -1}, []string{"--abc"}},
		{[]string{"-a", "-", "-initial"}, program{id: -1, initial: true, abc: true}, []string{"-"}},
		{[]string{"-afx"}, program{id: -1, abc: true, file: "x"}, nil},
		{[]string{"--ndb-connectstring="}, program{id: -1}, nil},
	} {
		p := sample()
		rest, err := p.set.Parse(c.args)
		p.set = nil
		if err != nil || *p != c.want || !slices.Equal(rest, c.rest) {
			t.Errorf("%q: %+v, rest %q, %v", c.args, *p, rest, err)
		}
	}
}

func TestWrongOptionsSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--nothing"}, "no option --nothing: --help"},
		{[]string{"-x"}, "no option -x"},
		{[]string{"--"}, ""},
		{[]string{"--ndb"}, "may mean --ndb-connectstring, --ndb-nodeid"},
		{[]string{"--ndb-nodeid"}, "needs a value: --ndb-nodeid=N"},
		{[]string{"--ndb-nodeid=256"}, "not a number from 1 to 255"},
		{[]string{"-c"}, "needs a value"},
		{[]string{"--initial=maybe"}, "neither 1 nor 0"},
		{[]string{"--skip-ndb-nodeid"}, "no option --skip-ndb-nodeid"},
	} {
		_, err := sample().set.Parse(c.args)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
	}
	for args, want := range map[string]error{"--help": ErrHelp, "-?": ErrHelp, "--version": ErrVersion, "-V": ErrVersion} {
		if _, err := sample().set.Parse([]string{args}); !errors.Is(err, want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestHelp(t *testing.T) {
	var w strings.Builder
	sample().set.Help(&w, "prog")
	for _, want := range []string{"Usage: prog [options] [NAME]\n\nDoes things.\n", "  -c, --ndb-connectstring=STRING  where the servers are\n",
		"  -f, --config-file=FILE          what to read\n                                  and when\n", "  prog -c localhost\n"} {
		if !strings.Contains(w.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &w)
		}
	}
}

func TestAnswer(t *testing.T) {
	s := New("[options]", "Does things.")
	for _, c := range []struct {
		err            error
		status         int
		done           bool
		stdout, stderr string
	}{
		{nil, 0, false, "", ""},
		{ErrHelp, 0, true, "Usage: tool [options]\n", ""},
		{ErrVersion, 0, true, "tool cohort-" + version.String() + "\n", ""},
		{errors.New("no such thing: try another"), StatusUsage, true, "", "tool: no such thing: try another\n"},
		{NoArguments([]string{"loose"}), StatusUsage, true, "", "tool: \"loose\" is no option: --help lists them\n"},
		{NoArguments(nil), 0, false, "", ""},
	} {
		var stdout, stderr strings.Builder
		status, done := s.Answer(c.err, "tool", &stdout, &stderr)
		if status != c.status || done != c.done || !strings.HasPrefix(stdout.String(), c.stdout) || stderr.String() != c.stderr {
			t.Errorf("%v: %d, %v, %q, %q", c.err, status, done, stdout.String(), stderr.String())
		}
	}
}
