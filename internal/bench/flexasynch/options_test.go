package flexasynch

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cohortdb/cohort/ndb"
)

// optionCases has one case or more for every option: what is written, and what it makes of the defaults.
var optionCases = []struct {
	args string
	set  func(s *settings)
}{
	{"", func(s *settings) {}},
	{"-t 1", func(s *settings) {}},
	{"-t 384", func(s *settings) { s.threads = 384 }},
	{"-p 1", func(s *settings) { s.parallel = 1 }},
	{"-p 1024", func(s *settings) { s.parallel = 1024 }},
	{"-o 1000", func(s *settings) { s.rounds = 1000 }},
	{"-l 0", func(s *settings) { s.loops = 0 }},
	{"-l 3", func(s *settings) { s.loops = 3 }},
	{"-c 1000", func(s *settings) { s.operations = 1000 }},
	{"-a 2", func(s *settings) { s.attributes = 2 }},
	{"-a 511", func(s *settings) { s.attributes = 511 }},
	{"-s 1000", func(s *settings) { s.words = 1000 }},
	{"-r 5", func(s *settings) { s.extraReads = 5 }},
	{"-con 64", func(s *settings) { s.connections = 64 }},
	{"-load_factor 40", func(s *settings) { s.loadFactor = 40 }},
	{"-load_factor 99", func(s *settings) { s.loadFactor = 99 }},
	{"-simple", func(s *settings) { s.simple = true }},
	{"-dirty", func(s *settings) { s.dirty = true }},
	{"-write", func(s *settings) { s.write = true }},
	{"-n", func(s *settings) { s.standard = true }},
	{"-table 7", func(s *settings) { s.table, s.standard = 7, true }},
	{"-no_table_create", func(s *settings) { s.noCreateTable = true }},
	{"-temp", func(s *settings) { s.noLogging = true }},
	{"-no_hint", func(s *settings) { s.noHint = true }},
	{"-adaptive", func(s *settings) { s.send = ndb.SendAdaptive }},
	{"-force", func(s *settings) { s.send = ndb.SendForce }},
	{"-non_adaptive", func(s *settings) { s.send = ndb.SendLazy }},
	{"-force -adaptive", func(s *settings) { s.send = ndb.SendAdaptive }},
	{"-local 1", func(s *settings) { s.local = ownNode }},
	{"-local 2", func(s *settings) { s.local = nodesInTurn }},
	{"-local 3", func(s *settings) { s.local = randomNode }},
	{"-ndbrecord", func(s *settings) { s.record = true }},
	{"-num_tables 128", func(s *settings) { s.tables = 128 }},
	{"-num_indexes 3", func(s *settings) { s.indexes = 3 }},
	{"-new", func(s *settings) { s.definers = true }},
	{"-new -d 2", func(s *settings) { s.definers, s.definerCount = true, 2 }},
	{"-new -immediate", func(s *settings) { s.definers, s.immediate = true, true }},
	{"-new -receive_cpus 0,2-3", func(s *settings) { s.definers, s.receiveCPUs = true, []int{0, 2, 3} }},
	{"-new -definer_cpus 1", func(s *settings) { s.definers, s.definerCPUs = true, []int{1} }},
	{"-new -executor_cpus 0-1", func(s *settings) { s.definers, s.executorCPUs = true, []int{0, 1} }},
	{"-insert", func(s *settings) { s.task, s.standard = onlyInsert, true }},
	{"-read", func(s *settings) { s.task, s.standard = onlyRead, true }},
	{"-update", func(s *settings) { s.task, s.standard = onlyUpdate, true }},
	{"-delete", func(s *settings) { s.task, s.standard = onlyDelete, true }},
	{"-create_table", func(s *settings) { s.task, s.standard = createTable, true }},
	{"-drop_table", func(s *settings) { s.task, s.standard = dropTable, true }},
	{"-warmup_time 1000", func(s *settings) { s.warmup = 1000 * time.Second }},
	{"-warmup_time 0", func(s *settings) { s.warmup = 0 }},
	{"-execution_time 1", func(s *settings) { s.execution = time.Second }},
	{"-cooldown_time 2", func(s *settings) { s.cooldown = 2 * time.Second }},
	{"-through-tc", func(s *settings) { s.throughTC = true }},
	{"--ndb-connectstring=host:1", func(s *settings) { s.connect = "host:1" }},
	{"-json f", func(s *settings) { s.jsonFile = "f" }},
	{"--json=f", func(s *settings) { s.jsonFile = "f" }},
	{"--node-pids 1,22", func(s *settings) { s.nodePIDs = []int{1, 22} }},
	{"-help", func(s *settings) { s.help = true }},
	{"-?", func(s *settings) { s.help = true }},
	// Other ways to write the same.
	{"--t=8 --load-factor 50 --no_hint", func(s *settings) { s.threads, s.loadFactor, s.noHint = 8, 50, true }},
	// The documents' commands.
	{"-ndbrecord -temp -t 8 -p 512 -r 5 -a 2", func(s *settings) {
		s.record, s.noLogging, s.threads, s.parallel, s.extraReads, s.attributes = true, true, 8, 512, 5, 2
	}},
	{"-ndbrecord -n -temp -a 2 -l 3 -con 8 -t 16 -p 100 -o 1000 -warmup_time 1000", func(s *settings) {
		s.record, s.standard, s.noLogging, s.attributes, s.loops, s.connections = true, true, true, 2, 3, 8
		s.threads, s.parallel, s.rounds, s.warmup = 16, 100, 1000, 1000*time.Second
	}},
}

func TestEveryOptionIsRead(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range optionCases {
		got, err := parse(strings.Fields(c.args))
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		want := defaults()
		c.set(want)
		if want.definerCount == 0 && !want.help {
			want.definerCount = 1
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", c.args, got, want)
		}
		for _, word := range strings.Fields(c.args) {
			name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
			if o := findOption(name); o != nil {
				seen[o.name] = true
			}
		}
	}
	for _, g := range optionGroups {
		for _, o := range g.options {
			if !seen[o.name] {
				t.Errorf("option -%s has no case", o.name)
			}
		}
	}
}

func TestWrongOptionsPrintUsageAndFail(t *testing.T) {
	for args, reason := range map[string]string{
		"-nonsense":                   `there is no option "-nonsense"`,
		"word":                        `there is no option "word"`,
		"t 8":                         `there is no option "t"`,
		"-t":                          "option -t needs a value",
		"-t 0":                        "from 1 to 384",
		"-t 385":                      "from 1 to 384",
		"-t x":                        "is not a number",
		"-t 1.5":                      "is not a number",
		"-p 0":                        "from 1 to 1024",
		"-p 1025":                     "from 1 to 1024",
		"-o 0":                        "option -o",
		"-l -1":                       "option -l",
		"-c 0":                        "from 1 to 1000",
		"-c 1001":                     "from 1 to 1000",
		"-a 1":                        "from 2 to 511",
		"-a 512":                      "from 2 to 511",
		"-s 0":                        "from 1 to 1000",
		"-s 1001":                     "from 1 to 1000",
		"-r -1":                       "option -r",
		"-con 0":                      "from 1 to 64",
		"-con 65":                     "from 1 to 64",
		"-load_factor 39":             "from 40 to 99",
		"-load_factor 100":            "from 40 to 99",
		"-table -1":                   "option -table",
		"-local 0":                    "is not 1, 2 or 3",
		"-local 4":                    "is not 1, 2 or 3",
		"-num_tables 0":               "from 1 to 128",
		"-num_tables 129":             "from 1 to 128",
		"-num_indexes -1":             "option -num_indexes",
		"-warmup_time -1":             "number of seconds",
		"-execution_time 0":           "number of seconds",
		"-cooldown_time x":            "number of seconds",
		"-simple=1":                   "takes no value",
		"-insert -delete":             "only one of",
		"-d 2":                        "add -new",
		"-immediate":                  "add -new",
		"-receive_cpus 0":             "add -new",
		"-definer_cpus 0":             "add -new",
		"-executor_cpus 0":            "add -new",
		"-new -d 0":                   "from 1 to 384",
		"-new -executor_cpus 2-1":     "is not a list of CPUs",
		"-new -executor_cpus 0,,1":    "is not a list of CPUs",
		"-new -executor_cpus 5000":    "is not a list of CPUs",
		"--node-pids 0":               "is not a list of process ids",
		"--node-pids a":               "is not a list of process ids",
		"-o 16777216 -p 1024":         "rows for each thread",
		"-o 100000 -p 1000 -c 1000":   "rows for each thread",
		"--ndb-connectstring":         "needs a value",
		"-ndbrecord -temp -t 8 -p 5g": "is not a number",
	} {
		f := newFake(1)
		o := f.program(t, context.Background(), strings.Fields(args)...)
		if o.status != exitUsage || o.stdout != "" || f.s != nil {
			t.Errorf("%s: status %d, %q", args, o.status, o.stdout)
		}
		if !strings.HasPrefix(o.stderr, "flexAsynch: ") || !strings.Contains(o.stderr, reason) || !strings.Contains(o.stderr, "Usage: flexAsynch") {
			t.Errorf("%s: %s", args, o.stderr)
		}
	}
}

func TestHelpNamesEveryOption(t *testing.T) {
	o := newFake(1).program(t, context.Background(), "--help")
	if o.status != 0 || o.stderr != "" || !strings.Contains(o.stdout, "Examples:") {
		t.Fatalf("status %d, %q", o.status, o.stderr)
	}
	for _, g := range optionGroups {
		for _, option := range g.options {
			if !strings.Contains(o.stdout, fmt.Sprintf("-%s ", option.name)) {
				t.Errorf("no word of -%s", option.name)
			}
		}
	}
}
