package mgm_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cohortdb/cohort/internal/mgm"
	"github.com/cohortdb/cohort/internal/mgm/mgmtest"
	"github.com/cohortdb/cohort/internal/version"
)

// program is one of the programs, as the binary calls it.
type program func(args ...string) (status int, stdout, stderr string)

func run(main func(name string, args []string, stdin *strings.Reader, stdout, stderr *mgmtest.Text) int, name string) program {
	return func(args ...string) (int, string, string) {
		stdout, stderr := &mgmtest.Text{}, &mgmtest.Text{}
		status := main(name, args, strings.NewReader(""), stdout, stderr)
		return status, stdout.String(), stderr.String()
	}
}

var (
	ndbMgm = run(func(n string, a []string, in *strings.Reader, out, errs *mgmtest.Text) int {
		return mgm.MainMgm(n, a, in, out, errs)
	}, "ndb_mgm")
	waiter = run(func(n string, a []string, in *strings.Reader, out, errs *mgmtest.Text) int {
		return mgm.MainWaiter(n, a, in, out, errs)
	}, "ndb_waiter")
	ndbMgmd = run(func(n string, a []string, in *strings.Reader, out, errs *mgmtest.Text) int {
		return mgm.MainMgmd(n, a, in, out, errs)
	}, "ndb_mgmd")
)

// server is ndb_mgmd under way.
type server struct {
	addr   string
	stdout *mgmtest.Text
	stderr *mgmtest.Text
	status chan int
}

func start(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{stdout: &mgmtest.Text{}, stderr: &mgmtest.Text{}, status: make(chan int, 1)}
	go func() { s.status <- mgm.MainMgmd("ndb_mgmd", args, nil, s.stdout, s.stderr) }()
	const says = "ndb_mgmd: listening on "
	mgmtest.Until(t, "the server listens", func() bool {
		select {
		case status := <-s.status:
			t.Fatalf("ended with %d: %s", status, s.stderr)
		default:
		}
		return strings.Contains(s.stdout.String(), says)
	})
	_, after, _ := strings.Cut(s.stdout.String(), says)
	s.addr, _, _ = strings.Cut(after, "\n")
	t.Cleanup(func() {
		if len(s.status) == 0 {
			ndbMgm("-c", s.addr, "-e", "shutdown")
		}
	})
	return s
}

// stop shuts a server down and checks that it ended well.
func (s *server) stop(t *testing.T) {
	t.Helper()
	status, out, errs := ndbMgm("-c", s.addr, "-e", "shutdown")
	if status != 0 || !strings.HasSuffix(out, "0 NDB Cluster node(s) have shutdown.\nDisconnecting to allow management server to shutdown.\n") {
		t.Fatalf("shutdown: %d, %s%s", status, out, errs)
	}
	if got := <-s.status; got != 0 {
		t.Fatalf("ndb_mgmd ended with %d: %s", got, s.stderr)
	}
	s.status <- 0
}

func write(t *testing.T, dir, text string) string {
	t.Helper()
	file := filepath.Join(dir, "config.ini")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// ini is TwoNodes with the server's files in dir and any free port.
func ini(dir string) string {
	text := strings.Replace(mgmtest.TwoNodes, "Name=test\n", "", 1)
	return strings.Replace(text, "[NDB_MGMD]\n", "[NDB_MGMD]\nPortNumber=0\nDataDir="+dir+"\n", 1)
}

// TestAnOperatorsLife starts, looks, changes, goes back and stops.
func TestAnOperatorsLife(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, ini(dir))
	s := start(t, "-f", file)
	status, out, errs := ndbMgm("--ndb-connectstring="+s.addr, "-e", "SHOW;")
	if status != 0 || errs != "" || !strings.Contains(out, "id=1 (not connected, accepting connect from 127.0.0.1)\n") || !strings.Contains(out, "id=49\t@127.0.0.1  (cohort-0.1.0)\n") {
		t.Fatalf("%d, %s%s", status, out, errs)
	}
	if status, out, _ = ndbMgm(s.addr, "-e", "foo"); status != 1 || !strings.HasSuffix(out, "Invalid command: foo\nType HELP for help.\n\n") {
		t.Fatalf("%d, %s", status, out)
	}
	t.Setenv("NDB_CONNECTSTRING", s.addr)
	if status, out, _ = ndbMgm("-e", "1 status"); status != 0 || !strings.HasSuffix(out, "Node 1: not connected\n") {
		t.Fatalf("%d, %s", status, out)
	}
	status, out, errs = waiter("--timeout=0")
	if status != 1 || !strings.Contains(errs, "ndb_waiter: timeout") {
		t.Fatalf("%d, %s%s", status, out, errs)
	}
	status, out, errs = waiter("-t", "20", "--no-contact", "1", "2")
	if status != 0 || out != "Node 1: NO_CONTACT\nNode 2: NO_CONTACT\n" || errs != "" {
		t.Fatalf("%d, %s%s", status, out, errs)
	}
	s.stop(t)
	log, err := os.ReadFile(filepath.Join(dir, "ndb_49_cluster.log"))
	if err != nil || !strings.Contains(string(log), "Management server 49 stops") || !strings.Contains(string(log), "Configuration 1 of cluster cohort-") {
		t.Fatalf("%s, %v", log, err)
	}

	// The file changes, and is not followed before somebody says so.
	write(t, dir, ini(dir)+"[API]\nNodeId=77\n")
	s = start(t, "-f", file)
	if !strings.Contains(s.stderr.String(), "ndb_mgmd: warning: the configuration file differs") {
		t.Errorf("%s", s.stderr)
	}
	if _, out, _ = ndbMgm(s.addr, "-e", "show"); strings.Contains(out, "id=77") {
		t.Errorf("%s", out)
	}
	s.stop(t)
	s = start(t, "-f", file, "--reload")
	if _, out, _ = ndbMgm(s.addr, "-e", "show"); !strings.Contains(out, "id=77") {
		t.Errorf("%s", out)
	}
	s.stop(t)
	// Without a file the folder tells who the server is.
	s = start(t, "--configdir="+dir, "-v")
	if !strings.Contains(s.stdout.String(), "Configuration 2 of cluster") {
		t.Errorf("%s", s.stdout)
	}
	s.stop(t)
	if err := os.Truncate(filepath.Join(dir, "ndb_49_config.bin.2"), 100); err != nil {
		t.Fatal(err)
	}
	status, _, errs = ndbMgmd("--configdir=" + dir)
	if status != 1 || !strings.HasPrefix(errs, "ndb_mgmd: the stored configuration "+filepath.Join(dir, "ndb_49_config.bin.2")+" cannot be used") {
		t.Fatalf("%d, %s", status, errs)
	}
	s = start(t, "-f", file, "--initial")
	s.stop(t)
	if files, err := filepath.Glob(filepath.Join(dir, "ndb_49_config.bin.*")); len(files) != 1 || err != nil {
		t.Errorf("%v, %v", files, err)
	}
}

func TestDocument004Starts(t *testing.T) {
	dir := t.TempDir()
	s := start(t, "-f", "../../config/testdata/document-004.cnf", "--mycnf", "--host-map", "n1=127.0.0.1,n2=127.0.0.1",
		"--set", "PortNumber=0", "--set", "DataDir="+dir, "--configdir", dir, "--nodaemon", "--ndb_nodeid=49")
	status, out, errs := ndbMgm(s.addr, "-e", "show")
	if status != 0 || !strings.Contains(out, "[ndbd(NDB)]\t1 node(s)\nid=1 (not connected, accepting connect from 127.0.0.1)\n") || !strings.Contains(out, "[mysqld(API)]\t4 node(s)\n") {
		t.Errorf("%d, %s%s", status, out, errs)
	}
	s.stop(t)
}

// freePorts are ports that were free a moment ago.
func freePorts(t *testing.T, n int) (ports []string) {
	t.Helper()
	for range n {
		l := mgmtest.Listen(t)
		ports = append(ports, mgmtest.Port(l))
		defer l.Close()
	}
	return ports
}

// TestTwoServers is what an operator with two management servers does: start both, change something, lose one.
func TestTwoServers(t *testing.T) {
	dirs, ports := []string{t.TempDir(), t.TempDir()}, freePorts(t, 2)
	text := strings.Replace(mgmtest.TwoNodes, "[SYSTEM]\nName=test\n", "", 1)
	text = strings.Replace(text, "[NDB_MGMD]\nNodeId=49\nHostName=127.0.0.1\n", "[NDB_MGMD DEFAULT]\nHostName=127.0.0.1\nHeartbeatIntervalMgmdMgmd=100\n"+
		"[NDB_MGMD]\nNodeId=49\nDataDir="+dirs[0]+"\nPortNumber="+ports[0]+"\n[NDB_MGMD]\nNodeId=50\nDataDir="+dirs[1]+"\nPortNumber="+ports[1]+"\n", 1)
	changed := text + "[API]\nNodeId=77\n"
	file := write(t, t.TempDir(), text)
	status, _, errs := ndbMgmd("-f", file, "--config-cache=0")
	if status != 1 || !strings.Contains(errs, "management servers 49, 50 of the configuration are all this host: say with --ndb-nodeid") {
		t.Fatalf("%d, %s", status, errs)
	}
	one := start(t, "-f", file, "--ndb-nodeid=49")
	// The second one needs no file: the first has the configuration.
	two := start(t, "-c", one.addr, "--ndb-nodeid=50", "--configdir="+dirs[1], "-v")
	if !strings.Contains(two.stdout.String(), "Configuration 1 of cluster cohort-") || !strings.Contains(two.stdout.String(), "as management server 49 at "+one.addr+" has it") {
		t.Fatalf("%s", two.stdout)
	}
	met := func() {
		t.Helper()
		for _, addr := range []string{one.addr, two.addr} {
			mgmtest.Until(t, "both show both", func() bool {
				_, out, _ := ndbMgm(addr, "-e", "show")
				return strings.Contains(out, "id=49\t@127.0.0.1  (cohort-0.1.0)\nid=50\t@127.0.0.1  (cohort-0.1.0)\n")
			})
		}
	}
	met()
	// Stopped by its number, from the other one.
	stop := func(s *server) {
		t.Helper()
		if status, out, errs := ndbMgm(one.addr, "-e", "50 stop"); status != 0 || !strings.HasSuffix(out, "Node 50 has shutdown.\n") {
			t.Fatalf("%d, %s%s", status, out, errs)
		}
		if got := <-s.status; got != 0 {
			t.Fatalf("ended with %d: %s", got, s.stderr)
		}
		s.status <- 0
	}
	stop(two)
	// With a file that says something else it does not start, unless everybody is to follow.
	other := write(t, t.TempDir(), changed)
	status, _, errs = ndbMgmd("-f", other, "--ndb-nodeid=50", "--config-cache=0")
	if status != 1 || !strings.Contains(errs, "ndb_mgmd: configuration mismatch: the configuration file differs from configuration 1, with which management server 49 at") {
		t.Fatalf("%d, %s", status, errs)
	}
	status, _, errs = ndbMgmd("-f", file, "--ndb-nodeid=49", "--config-cache=0", "--bind-address=127.0.0.1:"+ports[1], "-c", one.addr)
	if status != 1 || !strings.Contains(errs, "management server 49 runs already at "+one.addr) {
		t.Fatalf("%d, %s", status, errs)
	}
	two = start(t, "-f", other, "--ndb-nodeid=50", "--reload")
	for _, s := range []*server{one, two} {
		if _, out, _ := ndbMgm(s.addr, "-e", "show"); !strings.Contains(out, "id=77") {
			t.Fatalf("%s", out)
		}
	}
	// It refuses to change anything alone, and starts all the same with what it has.
	met()
	if status, out, errs := ndbMgm(two.addr, "-e", "49 stop"); status != 0 {
		t.Fatalf("%d, %s%s", status, out, errs)
	}
	if got := <-one.status; got != 0 {
		t.Fatalf("ended with %d: %s", got, one.stderr)
	}
	one.status <- 0
	two.stop(t)
	status, _, errs = ndbMgmd("-f", file, "--ndb-nodeid=50", "--reload")
	if status != 1 || !strings.Contains(errs, "a change of the configuration needs all management servers, and node 49 does not answer") {
		t.Fatalf("%d, %s", status, errs)
	}
	two = start(t, "--configdir="+dirs[1])
	one = start(t, "--configdir="+dirs[0])
	met()
	// SHUTDOWN stops both.
	if status, out, errs := ndbMgm(one.addr, "-e", "shutdown"); status != 0 {
		t.Fatalf("%d, %s%s", status, out, errs)
	}
	for _, s := range []*server{one, two} {
		if got := <-s.status; got != 0 {
			t.Fatalf("ended with %d: %s", got, s.stderr)
		}
		s.status <- 0
	}
}

func TestCommandLinesThatAreWrong(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, ini(dir))
	elsewhere := write(t, t.TempDir(), strings.ReplaceAll(ini(dir), "HostName=127.0.0.1", "HostName=192.0.2.1"))
	unused := t.TempDir()
	for _, c := range []struct {
		run    program
		args   []string
		status int
		want   string
	}{
		{ndbMgmd, []string{"-f"}, 2, "option -f needs a value"},
		{ndbMgmd, []string{"file"}, 2, `"file" is no option`},
		{ndbMgmd, []string{"--daemon", "-f", file}, 2, "stays in the foreground"},
		{ndbMgmd, []string{"--host-map=x", "-f", file}, 2, "NAME=ADDRESS"},
		{ndbMgmd, []string{"-f", file, "--initial", "--reload"}, 1, "exclude each other"},
		{ndbMgmd, []string{"--initial"}, 1, "name one with -f FILE"},
		{ndbMgmd, []string{"--configdir=" + t.TempDir()}, 1, "no configuration is stored in"},
		{ndbMgmd, []string{"-c", "127.0.0.1:1", "--configdir=" + t.TempDir()}, 1, "no file was named with -f, and no management server answers at 127.0.0.1:1"},
		{ndbMgmd, []string{"-f", "/nowhere/config.ini"}, 1, "cannot be read"},
		{ndbMgmd, []string{"-f", elsewhere, "--config-cache=0"}, 1, "no management server of the configuration (node 49 at 192.0.2.1) is this host"},
		{ndbMgmd, []string{"-f", file, "--ndb-nodeid=7", "--config-cache=0"}, 1, "node 7 is no management server"},
		{ndbMgmd, []string{"-f", file, "--ndb-nodeid=7", "--configdir=" + unused}, 1, "node 7 is no management server in " + file},
		{ndbMgmd, []string{"-f", file, "--set=Nonsense=1"}, 1, "Nonsense is not a parameter of any section: leave it out"},
		{ndbMgmd, []string{"-f", file, "--config-cache=0", "--bind-address=192.0.2.1:7"}, 1, "192.0.2.1 is no address of this machine"},
		{ndbMgm, []string{"a", "b", "c"}, 2, "is no option"},
		{ndbMgm, []string{"-c", "h:x"}, 2, "connect string"},
		{ndbMgm, []string{"--connect-retries=0", "-c", "127.0.0.1:1", "-e", "show"}, 1, "ndb_mgm: no management server answers at 127.0.0.1:1"},
		{waiter, []string{"--not-started", "--no-contact"}, 2, "exclude each other"},
		{waiter, []string{"-w", "1", "--nowait-nodes=2"}, 2, "exclude each other"},
		{waiter, []string{"-w", "x"}, 2, "not a node id"},
	} {
		status, _, errs := c.run(c.args...)
		if status != c.status || !strings.Contains(errs, c.want) || errs == "" {
			t.Errorf("%q: status %d, %q", c.args, status, errs)
		}
	}
	if left, _ := os.ReadDir(unused); len(left) > 0 {
		t.Errorf("a server that did not start has left %v", left)
	}
	for _, p := range []program{ndbMgmd, ndbMgm, waiter} {
		if status, out, errs := p("--help"); status != 0 || !strings.Contains(out, "Examples:") || errs != "" {
			t.Errorf("--help: %d, %s%s", status, out, errs)
		}
		if status, out, _ := p("-V"); status != 0 || !strings.HasSuffix(out, " "+version.Text(version.Number)+"\n") {
			t.Errorf("-V: %d, %s", status, out)
		}
	}
	status, out, _ := ndbMgmd("-f", file, "--print-full-config")
	if status != 0 || !strings.Contains(out, "[NDBD]\n") || !strings.Contains(out, "NoOfReplicas=2\n") || !strings.Contains(out, "TimeBetweenEpochs=") {
		t.Errorf("%d, %s", status, out)
	}
}
