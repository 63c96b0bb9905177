package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

func TestTablesAreListedDescribedAndDropped(t *testing.T) {
	c := StartCluster(t, Options{})
	c.MustRun(t, "flexAsynch", "-create_table", "-n", "-temp", "-a", "3", "-s", "2")
	if out := c.MustRun(t, "ndb_show_tables"); !regexp.MustCompile(`(?m)^\d+ +UserTable +Online +No +TEST_DB +def +TAB0$`).MatchString(out) {
		t.Errorf("ndb_show_tables:\n%s", out)
	}
	out := c.MustRun(t, "ndb_desc", "TAB0")
	for _, want := range []string{"-- TAB0 --\n", "Logged table: no\n", "\nDISTKEY Unsigned PRIMARY KEY DISTRIBUTION KEY ", "\nCOL0 Unsigned PRIMARY KEY AT", "\nCOL1 Unsigned [2] ", "\nCOL2 Unsigned [2] "} {
		if !strings.Contains(out, want) {
			t.Errorf("ndb_desc has no %q:\n%s", want, out)
		}
	}
	c.MustRun(t, "ndb_drop_table", "-d", "TEST_DB", "TAB0")
	if out := c.MustRun(t, "ndb_show_tables"); strings.Contains(out, "TAB0") {
		t.Errorf("it is still there:\n%s", out)
	}
	const gone = "TEST_DB/TAB0: error 723: there is no such table (schema error): "
	if status, _, stderr := c.Run(t, "ndb_drop_table", "TAB0"); status != 1 || !strings.HasPrefix(stderr, "ndb_drop_table: drop table "+gone) {
		t.Errorf("dropped twice: status %d, %q", status, stderr)
	}
	if status, _, stderr := c.Run(t, "ndb_desc", "TAB0"); status != 1 || !strings.HasPrefix(stderr, "ndb_desc: table "+gone) {
		t.Errorf("described when it is gone: status %d, %q", status, stderr)
	}
}

func TestRandomTextOnTheManagementPortEndsThatConnectionAlone(t *testing.T) {
	c := StartCluster(t, Options{DataNodes: 1})
	for _, text := range []string{"\x00\x01\x02\x03", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", strings.Repeat("a", 1<<20), "get nodeid\nnodeid: many\n\n", "\n\n\n\n"} {
		conn, err := net.Dial("tcp", c.ConnectString)
		if err != nil {
			t.Fatal(err)
		}
		conn.Write([]byte(text)) // the server may close before it has read all
		conn.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, conn)
		conn.Close()
	}
	c.MustRun(t, "ndb_waiter", "--timeout=30")
	c.MustRun(t, "flexAsynch", "-ndbrecord", "-temp", "-t", "1", "-p", "8", "-o", "10", "-a", "2")
}

func TestCohortUpGoesOnWithoutItsManagementServer(t *testing.T) {
	c := StartCluster(t, Options{})
	data := []int{c.PID(t, 1), c.PID(t, 2)}
	c.Kill(t, 49)
	Eventually(t, "cohort up's word", func() bool {
		return strings.Contains(c.Up.Stderr(), "management server 49 (process ") && strings.Contains(c.Up.Stderr(), "data nodes and clients go on without it")
	})
	for _, pid := range data {
		if !Alive(pid) {
			t.Errorf("data node process %d has ended", pid)
		}
	}
	// Nobody can be asked to stop the nodes, so they are told to by signals.
	if status := c.Stop(t); status != 0 {
		t.Errorf("exit status %d\n%s", status, c.Up.Stderr())
	}
	for _, pid := range data {
		if Alive(pid) {
			t.Errorf("data node process %d lives", pid)
		}
	}
}

func TestCohortUpGoesOnWithoutADataNodeAndSaysHowToBringItBack(t *testing.T) {
	c := StartCluster(t, Options{})
	back := regexp.MustCompile(`1 of 2 data nodes go on; to bring it back: (/.*) (-c .*)\n`)
	c.Kill(t, 2)
	Eventually(t, "cohort up's word", func() bool { return back.MatchString(c.Up.Stderr()) })
	if !strings.Contains(c.Up.Stderr(), "data node 2 (process ") || !strings.Contains(c.Up.Stderr(), "ended: signal: killed") {
		t.Errorf("%s", c.Up.Stderr())
	}
	c.MustRun(t, "flexAsynch", "-ndbrecord", "-temp", "-t", "1", "-p", "8", "-o", "10", "-a", "2")
	m := back.FindStringSubmatch(c.Up.Stderr())
	two := Start(t, filepath.Base(m[1]), strings.Fields(m[2])...)
	c.MustRun(t, "ndb_waiter", "--timeout=60")
	c.MustRun(t, "flexAsynch", "-ndbrecord", "-temp", "-t", "1", "-p", "8", "-o", "10", "-a", "2")
	one := c.PID(t, 1)
	c.Kill(t, 1)
	Eventually(t, "the end of node 1", func() bool { return !Alive(one) })
	c.MustRun(t, "flexAsynch", "-ndbrecord", "-temp", "-t", "1", "-p", "8", "-o", "10", "-a", "2")
	if c.Up.Ended() {
		t.Fatal("cohort up has ended, though the cluster serves")
	}
	two.Signal(t, syscall.SIGKILL)
	two.Wait(t)
	c.Up.Signal(t, syscall.SIGINT)
	c.Up.Wait(t)
}

// The last data node takes the cluster with it.
func TestCohortUpEndsWithItsLastDataNode(t *testing.T) {
	c := StartCluster(t, Options{DataNodes: 1})
	c.Kill(t, 1)
	if status := c.Up.Wait(t); status != 1 {
		t.Errorf("exit status %d", status)
	}
	if !strings.Contains(c.Up.Stderr(), "no data node is left") {
		t.Errorf("%s", c.Up.Stderr())
	}
}

// Whoever stops the cluster by the management client has asked for it: nothing failed.
func TestCohortUpEndsWellAfterShutdown(t *testing.T) {
	c := StartCluster(t, Options{})
	c.MustRun(t, "ndb_mgm", "-e", "shutdown")
	if status := c.Up.Wait(t); status != 0 {
		t.Errorf("exit status %d", status)
	}
	for _, want := range []string{"data node 1 (process ", ") has stopped in order", "cohort up: the cluster was stopped"} {
		if !strings.Contains(c.Up.Stderr(), want) {
			t.Errorf("no %q in %s", want, c.Up.Stderr())
		}
	}
}

func TestAClusterByHand(t *testing.T) {
	dir := t.TempDir()
	port := FreePort(t)
	file := filepath.Join(dir, "config.ini")
	text := fmt.Sprintf(`[ndb_mgmd]
HostName=127.0.0.1
PortNumber=%d
DataDir=%s
[ndbd default]
NoOfReplicas=2
DataMemory=64M
Diskless=1
DataDir=%s
[ndbd]
HostName=127.0.0.1
[ndbd]
HostName=127.0.0.1
[mysqld]
[mysqld]
`, port, dir, dir)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("127.0.0.1:%d", port)
	mgmd := Start(t, "ndb_mgmd", "-f", file, "--configdir="+dir, "--initial", "--nodaemon")
	first := Start(t, "ndbd", "-c", at, "--nodaemon")
	second := Start(t, "ndbmtd", "-c", at, "--nodaemon")
	if status, out, err := Run(t, "ndb_waiter", "-c", at, "--timeout=60"); status != 0 {
		t.Fatalf("ndb_waiter: %d\n%s%s", status, out, err)
	}
	if status, out, err := Run(t, "ndb_mgm", "-c", at, "-e", "shutdown"); status != 0 || !strings.Contains(out, "2 NDB Cluster node(s) have shutdown.") {
		t.Errorf("shutdown: %d\n%s%s", status, out, err)
	}
	for _, p := range []*Process{mgmd, first, second} {
		if status := p.Wait(t); status != 0 {
			t.Errorf("%s: exit status %d\n%s%s", p.command, status, p.Stdout(), p.Stderr())
		}
	}
}

func TestTheClusterOfDocument004(t *testing.T) {
	dir := t.TempDir()
	at := fmt.Sprintf("127.0.0.1:%d", FreePort(t))
	_, port, _ := net.SplitHostPort(at)
	mgmd := Start(t, "ndb_mgmd", "-f", "../../config/testdata/document-004.cnf", "--mycnf", "--host-map", "n1=127.0.0.1,n2=127.0.0.1",
		"--configdir="+dir, "--set", "PortNumber="+port, "--set", "DataDir="+dir)
	node := Start(t, "ndbmtd", "-c", at)
	if status, out, err := Run(t, "ndb_waiter", "-c", at, "--timeout=60"); status != 0 {
		t.Fatalf("ndb_waiter: %d\n%s%s", status, out, err)
	}
	// Its benchmark, with fewer rounds.
	status, out, stderr := Run(t, "flexAsynch", "--ndb-connectstring="+at, "-ndbrecord", "-temp", "-t", "8", "-p", "512", "-r", "5", "-a", "2", "-o", "10")
	if status != 0 || !finalLines.MatchString(out) {
		t.Errorf("flexAsynch: %d\n%s%s", status, out, stderr)
	}
	if status, out, err := Run(t, "ndb_mgm", "-c", at, "-e", "shutdown"); status != 0 {
		t.Errorf("shutdown: %d\n%s%s", status, out, err)
	}
	for _, p := range []*Process{mgmd, node} {
		if status := p.Wait(t); status != 0 {
			t.Errorf("%s: exit status %d\n%s%s", p.command, status, p.Stdout(), p.Stderr())
		}
	}
}
