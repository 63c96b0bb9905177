package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

var finalLines = regexp.MustCompile(`(?m)^insert average: \d+/s min: \d+/s max: \d+/s stddev: \d+%
update average: \d+/s min: \d+/s max: \d+/s stddev: \d+%
delete average: \d+/s min: \d+/s max: \d+/s stddev: \d+%
read average: \d+/s min: \d+/s max: \d+/s stddev: \d+%$`)

// phases checks that a run of flexAsynch had each phase so often, with so many operations.
func phases(t *testing.T, out string, operations, inserts, reads int) {
	t.Helper()
	for kind, want := range map[string]int{"insert": inserts, "read": reads, "update": inserts, "delete": inserts} {
		if got := strings.Count("\n"+out, fmt.Sprintf("\n%s: %d operations in ", kind, operations)); got != want {
			t.Errorf("%d phases of %d %s, want %d", got, operations, kind, want)
		}
	}
	if !finalLines.MatchString(out) {
		t.Error("the final lines are missing")
	}
	if t.Failed() {
		t.Log(out)
	}
}

func noTablesAreLeft(t *testing.T, c *Cluster) {
	t.Helper()
	if out := c.MustRun(t, "ndb_show_tables", "-d", "TEST_DB", "-p"); out != "" {
		t.Errorf("tables are left: %s", out)
	}
}

func TestFlexAsynchOptionsOnACluster(t *testing.T) {
	c := StartCluster(t, Options{DataNodes: 2, Replicas: 1, Args: []string{"--set", "Diskless=1"}})
	for _, o := range []struct {
		args                       string
		operations, inserts, reads int
	}{
		{"", 160, 1, 2},
		{"-t 3", 480, 1, 2},
		{"-p 40", 400, 1, 2},
		{"-o 3", 48, 1, 2},
		{"-l 3 -r 1", 160, 3, 12},
		{"-c 5", 800, 1, 2},
		{"-a 2", 160, 1, 2},
		{"-a 3 -s 40", 160, 1, 2},
		{"-con 3 -t 4", 640, 1, 2},
		{"-load_factor 70", 160, 1, 2},
		{"-simple -c 3", 480, 1, 2},
		{"-dirty -c 3", 480, 1, 2},
		{"-write", 160, 1, 2},
		{"-write -ndbrecord -c 2", 320, 1, 2},
		{"-n -num_tables 3 -c 2", 320, 1, 2},
		{"-table 7", 160, 1, 2},
		{"-temp", 160, 1, 2},
		{"-no_hint", 160, 1, 2},
		{"-no_hint -ndbrecord", 160, 1, 2},
		{"-force", 160, 1, 2},
		{"-non_adaptive -p 80", 800, 1, 2},
		{"-local 1 -c 2", 320, 1, 2},
		{"-local 2 -ndbrecord", 160, 1, 2},
		{"-local 3", 160, 1, 2},
		{"-ndbrecord", 160, 1, 2},
		{"-ndbrecord -c 4", 640, 1, 2},
		{"-ndbrecord -a 25 -s 40", 160, 1, 2},
		{"-through-tc -ndbrecord", 160, 1, 2},
		{"-new -t 3 -d 2", 480, 1, 2},
		{"-new -immediate -executor_cpus 0 -definer_cpus 0 -receive_cpus 0 -ndbrecord -t 2", 320, 1, 2},
		{"-warmup_time 1000 -execution_time 1000 -cooldown_time 1000", 160, 1, 2},
	} {
		t.Run(o.args, func(t *testing.T) {
			defaults := "-p 16 -o 10"
			if !strings.Contains(o.args, "-t ") {
				defaults += " -t 1"
			}
			args := strings.Fields(defaults + " " + o.args)
			phases(t, c.MustRun(t, "flexAsynch", args...), o.operations, o.inserts, o.reads)
		})
	}
	noTablesAreLeft(t, c)
}

func TestFlexAsynchPhaseByPhase(t *testing.T) {
	c := StartCluster(t, Options{DataNodes: 2, Replicas: 2, Args: []string{"--set", "Diskless=1"}})
	run := func(args string) string {
		t.Helper()
		return c.MustRun(t, "flexAsynch", strings.Fields("-t 2 -p 16 -o 10 -a 3 "+args)...)
	}
	run("-create_table -temp")
	if out := c.MustRun(t, "ndb_desc", "TAB0"); !strings.Contains(out, "DISTKEY") || !strings.Contains(out, "COL2") || strings.Contains(out, "COL3") {
		t.Error(out)
	}
	total := regexp.MustCompile(`(?m)^total transactions: (\d+)\nexecution time: (\d+) ms\ntransactions per second: (\d+)$`)
	for _, phase := range []string{"-insert", "-read", "-update", "-update -new", "-read -new -ndbrecord", "-read -ndbrecord", "-delete"} {
		m := total.FindStringSubmatch(run(phase + " -warmup_time 0 -execution_time 1 -cooldown_time 0"))
		if m == nil || m[1] == "0" || (phase == "-insert" || phase == "-delete") && m[1] != "320" {
			t.Errorf("%s: %v", phase, m)
		}
	}
	run("-no_table_create -n -write")
	status, _, stderr := c.Run(t, "flexAsynch", "-n", "-a", "3")
	if status != 1 || !strings.Contains(stderr, "error 721") || !strings.Contains(stderr, "-no_table_create") {
		t.Errorf("the table is there: status %d, %s", status, stderr)
	}
	status, _, stderr = c.Run(t, "flexAsynch", "-read", "-a", "4")
	if status != 1 || !strings.Contains(stderr, "it has 4 columns, not 5") {
		t.Errorf("other columns: status %d, %s", status, stderr)
	}
	run("-insert")
	status, stdout, _ := c.Run(t, "flexAsynch", strings.Fields("-t 2 -p 16 -o 10 -a 3 -insert")...)
	if status != 1 || !strings.Contains(stdout, "insert: FAILED: 320 operations: 320 transactions failed with error 630: ") {
		t.Errorf("rows are there: status %d, %s", status, stdout)
	}
	run("-drop_table")
	noTablesAreLeft(t, c)
	status, _, stderr = c.Run(t, "flexAsynch", "-update")
	if status != 1 || !strings.Contains(stderr, "error 723") {
		t.Errorf("no table: status %d, %s", status, stderr)
	}
}

func TestFlexAsynchSaysWhatIsWrong(t *testing.T) {
	c := StartCluster(t, Options{DataNodes: 1, Replicas: 1, Args: []string{"--set", "Diskless=1", "--api-nodes", "3"}})
	for args, want := range map[string]struct {
		status int
		reason string
	}{
		"-nonsense":                      {2, "Usage: flexAsynch"},
		"-t 0":                           {2, "from 1 to 384"},
		"-num_indexes 2":                 {1, "not supported yet"},
		"-con 4 -t 4":                    {1, "needs a free [api] or [mysqld] slot"},
		"--ndb-connectstring=here:there": {1, "here:there"},
		"-new -executor_cpus 1023":       {1, "cannot be bound to CPU 1023"},
	} {
		status, stdout, stderr := c.Run(t, "flexAsynch", strings.Fields(args)...)
		if status != want.status || stdout != "" || !strings.HasPrefix(stderr, "flexAsynch: ") || !strings.Contains(stderr, want.reason) {
			t.Errorf("%s: status %d, %s%s", args, status, stdout, stderr)
		}
	}
	noTablesAreLeft(t, c)
}

func TestFlexAsynchForEverUntilInterrupted(t *testing.T) {
	c := StartCluster(t, Options{DataNodes: 1, Replicas: 1, Args: []string{"--set", "Diskless=1"}})
	p := Start(t, "flexAsynch", strings.Fields("-l 0 -o 10 --ndb-connectstring="+c.ConnectString)...)
	p.WaitLine(t, "loop 4")
	p.Signal(t, syscall.SIGINT)
	if status := p.Wait(t); status != 130 || !finalLines.MatchString(p.Stdout()) || p.Stderr() != "flexAsynch: interrupted\n" {
		t.Errorf("status %d\n%s%s", status, p.Stdout(), p.Stderr())
	}
	noTablesAreLeft(t, c)
}

func TestFlexAsynchInOneCommandWithFigures(t *testing.T) {
	for _, cluster := range []string{"--data-nodes 1 --replicas 1", "--data-nodes 2 --replicas 2", "--data-nodes 4 --replicas 2"} {
		t.Run(cluster, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "figures.json")
			args := append(strings.Fields("up --ephemeral --mgm-port 0 --set Diskless=1 --set DataMemory=64M "+cluster), "--run",
				"flexAsynch -ndbrecord -n -temp -a 2 -l 2 -con 8 -t 16 -p 100 -o 2 -warmup_time 1000 --json "+file)
			status, stdout, stderr := Run(t, "cohort", args...)
			if status != 0 {
				t.Fatalf("status %d\n%s%s", status, stdout, stderr)
			}
			phases(t, stdout, 3200, 2, 4)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var figures struct {
				Rows []struct {
					Phase      string   `json:"phase"`
					Operations int      `json:"operations"`
					Failed     int      `json:"failed"`
					Client     *float64 `json:"client_cpu_us_per_op"`
					Node       *float64 `json:"node_cpu_us_per_op"`
				}
			}
			if err := json.Unmarshal(text, &figures); err != nil {
				t.Fatal(err)
			}
			operations := map[string]int{"insert": 6400, "read": 12800, "update": 6400, "delete": 6400}
			for _, row := range figures.Rows {
				if row.Operations != operations[row.Phase] || row.Failed != 0 || row.Client == nil || *row.Client <= 0 || row.Node == nil || *row.Node <= 0 {
					t.Errorf("%s", text)
				}
				delete(operations, row.Phase)
			}
			if len(operations) != 0 {
				t.Errorf("no figures of %v", operations)
			}
		})
	}
}

func TestFlexAsynchEndsWhenTheNodesAreLost(t *testing.T) {
	c := StartCluster(t, Options{DataNodes: 1, Replicas: 1, Args: []string{"--set", "Diskless=1"}})
	p := Start(t, "flexAsynch", strings.Fields("-l 0 -o 10 --ndb-connectstring="+c.ConnectString)...)
	p.WaitLine(t, "loop 2")
	c.Kill(t, 1)
	if status := p.Wait(t); status != 1 || !strings.Contains(p.Stdout(), "FAILED") || !strings.Contains(p.Stderr(), "flexAsynch: ") {
		t.Errorf("status %d\n%s%s", status, p.Stdout(), p.Stderr())
	}
}
