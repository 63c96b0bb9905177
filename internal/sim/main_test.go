package sim

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cohortdb/cohort/internal/signal"
)

func call(args ...string) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	status = Main(args, &out, &err)
	return status, out.String(), err.String()
}

func TestTheCommandPrintsALineForEachSeed(t *testing.T) {
	args := []string{"--seeds", "3-5", "--nodes", "2", "--replicas", "2", "--virtual-time", "200ms", "--transactions", "300"}
	status, out, stderr := call(args...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if status != 0 || stderr != "" || len(lines) != 4 || lines[3] != "3 runs, 0 failed" {
		t.Fatalf("status %d, stderr %q, stdout %q", status, stderr, out)
	}
	for i, l := range lines[:3] {
		if !strings.HasPrefix(l, "seed "+string(rune('3'+i))+"  digest ") || !strings.Contains(l, "  ok  2 nodes, 2 replicas, ") {
			t.Errorf("line %q", l)
		}
	}
	if _, again, _ := call(args...); again != out {
		t.Errorf("the second time it prints\n%s\nafter\n%s", again, out)
	}
}

func TestTheTraceHoldsTheWholeRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace.txt")
	status, out, stderr := call("--seed", "2", "--virtual-time", "100ms", "--transactions", "100", "--trace", file)
	if status != 0 {
		t.Fatalf("status %d, %q", status, stderr)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	signals := strings.Count(string(b), " -> ")
	if !strings.Contains(out, " transactions committed, ") || signals < 1000 || !strings.HasSuffix(strings.TrimSpace(out), " signals") {
		t.Fatalf("%d signals, %q", signals, out)
	}
	for _, want := range []string{"seed 2: 4 data nodes, 2 replicas", "weather ", "StartReq ", "TableCreateReq ", "CommitReq ", "CloseOrd "} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the trace has no %q", want)
		}
	}
}

func TestAFailureShowsHowToRepeatIt(t *testing.T) {
	c := &command{first: 1, last: 1, wanted: small}
	r := runSeed(t, 1, small, Config{tamper: some(signal.NumReadConf, 7, lost)()})
	if r.Failure == nil {
		t.Fatal("nothing failed")
	}
	var out bytes.Buffer
	c.print(&out, &r)
	for _, want := range []string{"  FAILED  ", " -> ", "never answered",
		"repeat: cohort sim --seed 1 --nodes 4 --replicas 2 --virtual-time 3s --transactions 4000 --trace seed-1.txt"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report has no %q", want)
		}
	}
}

func TestWrongCommandLines(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--seed", "x"}, "write a number"},
		{[]string{"--seeds", "9-3"}, `"9-3" is no seed: write a number, or for several A-B with A not above B`},
		{[]string{"--seed", "x"}, `"x" is no seed: `},
		{[]string{"--nodes", "3"}, "must be a multiple"},
		{[]string{"--nodes", "17"}, "from 0 to 16"},
		{[]string{"--replicas", "5"}, "from 0 to 4"},
		{[]string{"--virtual-time", "60"}, "write it as 60s"},
		{[]string{"--faults", "delay,quake"}, `there is no fault "quake": choose among delay, kill, `},
		{[]string{"--schedule", "kill 2"}, `"kill 2" is no fault: write what, to whom and when`},
		{[]string{"--seeds", "1-2", "--trace", "x"}, "give one seed"},
		{[]string{"now"}, "is no option"},
		{[]string{"--what"}, "there is no option"},
	} {
		status, out, stderr := call(c.args...)
		if status != 2 || out != "" || !strings.HasPrefix(stderr, "cohort sim: ") || !strings.Contains(stderr, c.says) {
			t.Errorf("%v: status %d, stdout %q, stderr %q", c.args, status, out, stderr)
		}
	}
	if status, out, _ := call("--help"); status != 0 || !strings.Contains(out, "--virtual-time") || !strings.Contains(out, "Examples:") {
		t.Errorf("help: status %d, %q", status, out)
	}
	if status, _, stderr := call("--seed", "1", "--trace", filepath.Join(t.TempDir(), "no", "file")); status != 1 || !strings.Contains(stderr, "cannot be written") {
		t.Errorf("a trace that cannot be written: status %d, %q", status, stderr)
	}
	if status, _, stderr := call("--faults", "none", "--virtual-time", "10ms", "--transactions", "10"); status != 0 {
		t.Errorf("--faults none: status %d, %q", status, stderr)
	}
}
