package config

import (
	"strings"
	"testing"
)

func TestThreadConfig(t *testing.T) {
	for _, tc := range []struct {
		text   string
		counts ThreadCounts
		notes  int
	}{
		{"ldm={count=2,cpubind=1,2},main,rep,recv={count=1},send,tc={count=3},io", ThreadCounts{1, 2, 3, 1, 1, 1}, 2},
		{"main={cpubind=0},ldm={cpubind=1-4,thread_prio=3}, ldm={count=1}", ThreadCounts{1, 5, 0, 1, 0, 1}, 2},
		{"MAIN = { count = 0 } , LDM={ Count=1 , CpuSet = 1 , 3-4 , realtime=1 },rep={count=0}", ThreadCounts{0, 1, 0, 1, 0, 0}, 1},
		{"recv={count=2,spintime=50,nosend=1},query={count=4},recover,watchdog={cpubind=7},idxbld={cpuset=1}", ThreadCounts{1, 1, 0, 2, 0, 1}, 5},
		{"ldm={}", ThreadCounts{1, 1, 0, 1, 0, 1}, 0},
	} {
		c, err := ParseThreadConfig(tc.text)
		if err != nil {
			t.Errorf("%s: %v", tc.text, err)
			continue
		}
		if c.Counts() != tc.counts || len(c.Warnings) != tc.notes {
			t.Errorf("%s: %+v, %q", tc.text, c.Counts(), c.Warnings)
		}
	}
	c, err := ParseThreadConfig("ldm={count=2,cpubind_exclusive=1,5,thread_prio=0,spintime=9},tc={cpuset=2-4}")
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Specs[0]; len(s.CPUBind) != 2 || s.CPUBind[1] != 5 || !s.Exclusive || !s.HasPriority || s.SpinTime != 9 || s.Count != 2 {
		t.Errorf("%+v", s)
	}
	if s := c.Specs[1]; len(s.CPUSet) != 3 || s.Count != 1 || s.Kind != ThreadTC {
		t.Errorf("%+v", s)
	}
}

func TestThreadConfigErrorsSayWhatIsRight(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "is empty",
		"ldn":                             "did you mean ldm?",
		"ldm,":                            "without a thread type",
		"ldm={count=2":                    "has no braces",
		"ldm=2":                           "has no braces",
		"ldm={count=2}main":               "write a comma",
		"ldm={count=x}":                   "write a number of 0 to 332",
		"ldm={cuont=2}":                   "did you mean count?",
		"ldm={count=2,cpubind=1}":         "2 ldm threads bound to 1 CPUs",
		"ldm={cpubind=4-1}":               "no CPU number or range",
		"ldm={cpubind=0-65535}":           "lists more than",
		"main={count=2}":                  "write a number of 0 to 1",
		"main,main":                       "asks for 2 main threads, and there may be 0 to 1",
		"recv={count=0}":                  "asks for 0 recv threads, and there may be 1 to 64",
		"ldm={count=200},ldm={count=200}": "asks for 400 ldm",
		"tc={thread_prio=11}":             "write a number of 0 to 10",
		"tc={realtime=2}":                 "write a number of 0 to 1",
		"}":                               "without a thread type",
	} {
		if _, err := ParseThreadConfig(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestExecutionThreads(t *testing.T) {
	for n, want := range map[int]ThreadCounts{
		0: {1, 1, 0, 1, 0, 1}, 2: {1, 1, 0, 1, 0, 1}, 3: {1, 1, 0, 1, 0, 1}, 4: {1, 2, 0, 1, 0, 1}, 6: {1, 2, 0, 1, 0, 1},
		7: {1, 4, 0, 1, 0, 1}, 8: {1, 4, 0, 1, 0, 1}, 9: {1, 4, 2, 1, 0, 1}, 16: {1, 8, 3, 2, 1, 1}, 72: {1, 32, 20, 10, 8, 1}, 100: {1, 32, 20, 10, 8, 1},
	} {
		if got := ExecutionThreads(n); got != want {
			t.Errorf("%d: %+v, want %+v", n, got, want)
		}
	}
	// From 9 on the value is the number of threads, the main and replication thread among them.
	for n := 9; n <= 72; n++ {
		if got := ExecutionThreads(n).Total(); got != n {
			t.Errorf("%d stands for %d threads", n, got)
		}
	}
}

func TestThreadLayoutFollowsTheOverridingParameter(t *testing.T) {
	for set, want := range map[string]ThreadLayout{
		"": {},
		"AutomaticThreadConfig=1\nNumCPUs=3\nThreadConfig=ldm": {Source: ThreadsAutomatic, CPUs: 3},
		"MaxNoOfExecutionThreads=6":                            {Source: ThreadsMax, Counts: ThreadCounts{1, 2, 0, 1, 0, 1}},
		"MaxNoOfExecutionThreads=6\nThreadConfig=tc={count=2}": {Source: ThreadsConfig, Counts: ThreadCounts{1, 1, 2, 1, 0, 1}},
	} {
		c, _ := mustParse(t, "[MGM]\n[DB]\nNoOfReplicas=1\n"+set, Options{})
		got := c.Node(1).ThreadLayout()
		if (got.Config != nil) != (want.Source == ThreadsConfig) {
			t.Errorf("%q: config %v", set, got.Config)
		}
		if got.Config = nil; got != want {
			t.Errorf("%q: %+v, want %+v", set, got, want)
		}
	}
}
