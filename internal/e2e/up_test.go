package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestTheFirstCommandLeavesATwoNodeCluster(t *testing.T) {
	c := StartCluster(t, Options{})
	show := c.MustRun(t, "ndb_mgm", "-e", "show")
	for _, want := range []string{
		`(?m)^\[ndbd\(NDB\)\]\t2 node\(s\)$`,
		`(?m)^id=1\t@127\.0\.0\.1  \(cohort-\S+, Nodegroup: 0, \*\)$`,
		`(?m)^id=2\t@127\.0\.0\.1  \(cohort-\S+, Nodegroup: 0\)$`,
		`(?m)^\[ndb_mgmd\(MGM\)\]\t1 node\(s\)$`,
		`(?m)^id=49\t@127\.0\.0\.1  \(cohort-`,
		`(?m)^\[mysqld\(API\)\]\t24 node\(s\)$`,
	} {
		if !regexp.MustCompile(want).MatchString(show) {
			t.Errorf("no %s in\n%s", want, show)
		}
	}
	if status := c.MustRun(t, "ndb_mgm", "-e", "all status"); strings.Count(status, ": started (") != 2 {
		t.Errorf("all status:\n%s", status)
	}
	c.MustRun(t, "ndb_waiter", "--timeout=30")
	if got := c.MustRun(t, "ndb_config", "--type=ndbd", "--query=id,DataMemory"); got != "1,64M 2,64M\n" {
		t.Errorf("ndb_config: %q", got)
	}

	pids := []int{c.PID(t, 49), c.PID(t, 1), c.PID(t, 2)}
	if status := c.Stop(t); status != 0 {
		t.Errorf("interrupted, it exits with %d\n%s", status, c.Up.Stderr())
	}
	for _, pid := range pids {
		if Alive(pid) {
			t.Errorf("process %d outlives its cluster", pid)
		}
	}
	if out := c.Up.Stdout(); strings.Count(out, "\n") != 1 {
		t.Errorf("standard output has more than the ready line: %q", out)
	}
}

func TestFourDataNodesFormTwoGroups(t *testing.T) {
	c := StartCluster(t, Options{DataNodes: 4, Replicas: 2})
	show := c.MustRun(t, "ndb_mgm", "-e", "show")
	for group, nodes := range map[int][]int{0: {1, 2}, 1: {3, 4}} {
		for _, id := range nodes {
			if !regexp.MustCompile(fmt.Sprintf(`(?m)^id=%d\t.*Nodegroup: %d(, \*)?\)$`, id, group)).MatchString(show) {
				t.Errorf("node %d is not in group %d:\n%s", id, group, show)
			}
		}
	}
	if strings.Count(show, ", *)") != 1 {
		t.Errorf("one president is wanted:\n%s", show)
	}
}

func TestACommandRunsAgainstAClusterOfItsOwn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "seen")
	status, stdout, stderr := Run(t, "cohort", "up", "--ephemeral", "--mgm-port", "0", "--data-nodes", "1", "--set", "DataMemory=32M", "--run",
		`ndb_mgm -e 'all status' && command -v flexAsynch && echo "at $NDB_CONNECTSTRING" && cat && ps -o args= -C cohort >/dev/null; echo "$NDB_CONNECTSTRING" >`+file+`; exit 7`)
	if status != 7 {
		t.Errorf("exit status %d, the command's is 7\n%s", status, stderr)
	}
	for _, want := range []string{"Node 1: started (", filepath.Join(Bin(t), "flexAsynch") + "\n", "\nat 127.0.0.1:"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in %s", want, stdout)
		}
	}
	if strings.Contains(stdout, "cohort: ready") || !strings.Contains(stderr, "cohort: ready connectstring=127.0.0.1:") {
		t.Errorf("standard output belongs to the command: %q, %q", stdout, stderr)
	}
	folder := regexp.MustCompile(`in (/\S+)`).FindStringSubmatch(stderr)
	if folder == nil {
		t.Fatalf("no folder in %q", stderr)
	}
	if _, err := os.Stat(folder[1]); !os.IsNotExist(err) {
		t.Errorf("the folder %s is left: %v", folder[1], err)
	}
	address, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", strings.TrimSpace(string(address))); err == nil {
		conn.Close()
		t.Errorf("somebody still listens on %s", address)
	}
}

func TestAnInterruptReachesTheCommand(t *testing.T) {
	p := Start(t, "cohort", "up", "--ephemeral", "--mgm-port", "0", "--data-nodes", "1", "--set", "DataMemory=32M", "--run",
		`trap 'echo caught; exit 9' INT; echo running; while :; do read -r _ </dev/null; done`)
	p.WaitLine(t, "running")
	p.Signal(t, syscall.SIGINT)
	if status := p.Wait(t); status != 9 || !strings.Contains(p.Stdout(), "caught") {
		t.Errorf("exit status %d, %q", status, p.Stdout())
	}
}

func TestNodesDieWithAKilledParent(t *testing.T) {
	c := StartCluster(t, Options{DataNodes: 1})
	pids := []int{c.PID(t, 49), c.PID(t, 1)}
	c.Up.Signal(t, syscall.SIGKILL)
	c.Up.Wait(t)
	for _, pid := range pids {
		Eventually(t, fmt.Sprintf("the end of process %d", pid), func() bool { return !Alive(pid) })
	}
}

func TestOneClusterAFolder(t *testing.T) {
	c := StartCluster(t, Options{DataNodes: 1})
	status, _, stderr := Run(t, "cohort", "up", "--dir", c.Dir, "--mgm-port", "0")
	if status != 1 || !strings.Contains(stderr, "another cohort up runs in "+c.Dir) {
		t.Errorf("status %d, %q", status, stderr)
	}
	if status := c.Stop(t); status != 0 {
		t.Errorf("exit status %d", status)
	}
	// The folder can be used again, and its configuration is written anew.
	if status, _, stderr := Run(t, "cohort", "up", "--dir", c.Dir, "--mgm-port", "0", "--data-nodes", "1", "--set", "DataMemory=32M", "--run", "ndb_config --type=ndbd --query=DataMemory"); status != 0 {
		t.Errorf("status %d, %q", status, stderr)
	}
}

func TestAPortThatIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	status, _, stderr := Run(t, "cohort", "up", "--ephemeral", "--mgm-port", port, "--run", "true")
	if status != 1 || !strings.Contains(stderr, "port "+port+" is taken: ") {
		t.Errorf("status %d, %q", status, stderr)
	}
}

func TestANodeThatCannotStartIsReportedWithItsLog(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	status, stdout, stderr := Run(t, "cohort", "up", "--ephemeral", "--mgm-port", "0", "--data-nodes", "1", "--set", "DataMemory=32M",
		"--set", fmt.Sprintf("ServerPort=%d", l.Addr().(*net.TCPAddr).Port), "--run", "echo never")
	if status != 1 || stdout != "" {
		t.Errorf("status %d, %q", status, stdout)
	}
	if !regexp.MustCompile(`cohort up: data node 1 \(process \d+\) ended: exit status 10 \(the network cannot be used\); the last lines of /\S+/ndb_1_out\.log:\n(    .*\n)*    ndbd: .*` +
		regexp.QuoteMeta(l.Addr().String())).MatchString(stderr) {
		t.Errorf("%s", stderr)
	}
}

func TestAUsersConfigurationRunsHere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cluster.cnf")
	text := "[cluster_config]\nDataMemory=64M\nNoOfReplicas=2\nndb_mgmd=n1\nndbd=n2,n3\nmysqld=n1,n1,n1,n1\nMaxNoOfExecutionThreads=4\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := Run(t, "cohort", "up", "--ephemeral", "--mgm-port", "0", "--config", file, "--run", "ndb_mgm -e show")
	if status != 0 || strings.Count(stdout, ", Nodegroup: 0") != 2 {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
}
