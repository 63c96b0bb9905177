package up

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cohortdb/cohort/config"
)

// planFor makes a plan for a command line, in a folder of its own, on a machine of two CPUs and 8 GiB.
func planFor(t *testing.T, args ...string) (*plan, *config.Config, error) {
	t.Helper()
	o, _, err := parse(append(args, "--dir", t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	p, err := makePlan(o, machine{cpus: 2, memory: 8 << 30})
	if err != nil {
		return nil, nil, err
	}
	c, warnings, err := config.Parse([]byte(p.text), config.Options{})
	if err != nil {
		t.Fatalf("%v\n%s", err, p.text)
	}
	if o.config == "" && len(warnings) > 0 {
		t.Fatalf("a made configuration is warned of: %v\n%s", warnings, p.text)
	}
	return p, c, nil
}

func TestTheMadeConfigurationIsWhatWasAskedFor(t *testing.T) {
	p, c, err := planFor(t, "--data-nodes", "4", "--replicas", "2", "--api-nodes", "20", "--mgm-port", "0",
		"--set", "datamemory=300M", "--set", "TransactionDeadlockDetectionTimeout=2000", "--set", "SendBufferMemory=4M", "--set", "Name=shop")
	if err != nil {
		t.Fatal(err)
	}
	groups := c.NodeGroups()
	if len(groups) != 2 || !slices.Equal(groups[0], []int{1, 2}) || !slices.Equal(groups[1], []int{3, 4}) {
		t.Errorf("groups %v", groups)
	}
	if n := len(c.APINodes()); n != 20 {
		t.Errorf("%d API nodes", n)
	}
	if n := c.Node(3); n.Int("DataMemory") != 300<<20 || n.HostName != loopback || n.String("DataDir") == "" {
		t.Errorf("node 3: %s", p.text)
	}
	if got := c.Link(1, 2).Int("SendBufferMemory"); got != 4<<20 {
		t.Errorf("SendBufferMemory %d", got)
	}
	if c.Name != "shop" {
		t.Errorf("name %q", c.Name)
	}
	mgm := c.ManagementNodes()
	if len(mgm) != 1 || mgm[0].ID != firstMgmID || mgm[0].Int("PortNumber") != int64(p.mgmPort) || p.mgmPort == 0 {
		t.Errorf("management: %s", p.text)
	}
	if !slices.Equal(p.data, []int{1, 2, 3, 4}) || p.servers[0].id != firstMgmID || p.multiThreaded {
		t.Errorf("%+v", p)
	}
	if got := p.connectString(); got != loopback+":"+strconv.Itoa(p.mgmPort) {
		t.Errorf("connect string %s", got)
	}
	if p.summary != "1 management server and 4 data nodes (ndbd), 2 replicas of each row, DataMemory 300M each" {
		t.Errorf("%s", p.summary)
	}
}

// A thread layout that is asked for is the one that runs, by the program that has threads.
func TestAThreadLayoutThatIsSetIsUsed(t *testing.T) {
	for _, set := range []string{"threadconfig=main,ldm={count=2},tc={count=2},recv={count=2},rep", "MaxNoOfExecutionThreads=4"} {
		for _, more := range [][]string{nil, {"--multi-threaded"}} {
			p, c, err := planFor(t, append(more, "--mgm-port", "0", "--set", set)...)
			if err != nil {
				t.Fatal(err)
			}
			if !p.multiThreaded || c.Node(1).ThreadLayout().Source == config.ThreadsAutomatic {
				t.Errorf("%s: %s", set, p.text)
			}
		}
	}
	p, c, err := planFor(t, "--mgm-port", "0", "--set", "AutomaticThreadConfig=1")
	if err != nil {
		t.Fatal(err)
	}
	if l := c.Node(1).ThreadLayout(); !p.multiThreaded || l.Source != config.ThreadsAutomatic || l.CPUs == 0 {
		t.Errorf("%s", p.text)
	}
}

func TestTheBenchmarkCommandsOfUsersFit(t *testing.T) {
	_, c, err := planFor(t, "--mgm-port", "0")
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range []struct{ threads, inFlight, rounds, connections int }{
		{16, 100, 1000, 8}, {8, 400, 1000, 8}, {12, 200, 1000, 8}, {12, 400, 1000, 8}, {8, 512, 500, 1},
	} {
		n := c.DataNodes()[0]
		if rows := int64(run.threads * run.inFlight * run.rounds); rows*48 > n.DataMemory() {
			t.Errorf("%+v: %d rows do not fit %d bytes", run, rows, n.DataMemory())
		}
		if at := int64(run.threads * run.inFlight); at > n.Int("MaxNoOfConcurrentTransactions") || at > n.Int("MaxNoOfConcurrentOperations") {
			t.Errorf("%+v: too many transactions at once", run)
		}
		if run.connections > len(c.APINodes()) || len(c.APINodes()) < 20 {
			t.Errorf("%d slots for clients", len(c.APINodes()))
		}
	}
}

func TestManyDataNodesPushTheManagementServerUp(t *testing.T) {
	p, c, err := planFor(t, "--data-nodes", "144", "--replicas", "4", "--api-nodes", "100", "--mgm-port", "0")
	if err != nil {
		t.Fatal(err)
	}
	if p.servers[0].id != 145 || len(c.Nodes) != 144+1+100 {
		t.Fatalf("management server %d, %d nodes", p.servers[0].id, len(c.Nodes))
	}
}

func TestSeveralManagementServers(t *testing.T) {
	p, c, err := planFor(t, "--mgm-servers", "3", "--mgm-port", "0")
	if err != nil {
		t.Fatal(err)
	}
	mgm := c.ManagementNodes()
	ports := map[int64]bool{}
	for i, n := range mgm {
		ports[n.Int("PortNumber")] = true
		if p.servers[i] != (server{n.ID, int(n.Int("PortNumber"))}) || n.ID != firstMgmID+i {
			t.Errorf("node %d at %d: %+v", n.ID, n.Int("PortNumber"), p.servers)
		}
	}
	if len(mgm) != 3 || len(ports) != 3 || strings.Count(p.connectString(), ",") != 2 || c.APINodes()[0].ID != firstMgmID+3 {
		t.Errorf("%s, %s", p.connectString(), p.text)
	}
}

func TestThreadsAreSharedOutOnALargeMachine(t *testing.T) {
	o, _, err := parse([]string{"--dir", t.TempDir(), "--mgm-port", "0"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := makePlan(o, machine{cpus: 16, memory: 64 << 30})
	if err != nil {
		t.Fatal(err)
	}
	if !p.multiThreaded || !strings.Contains(p.text, "\nNumCPUs=5\n") || !strings.Contains(p.summary, "(ndbmtd)") {
		t.Fatalf("%+v", p)
	}
}

func TestABusyPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	busy := l.Addr().(*net.TCPAddr).Port
	// One that was asked for is an error,
	if _, _, err := planFor(t, "--mgm-port", strconv.Itoa(busy)); err == nil || !strings.Contains(err.Error(), "is taken") {
		t.Errorf("%v", err)
	}
	// the default gives way to a free one.
	p := &plan{}
	if err := p.choosePort(&choices{mgmPort: busy}); err != nil || p.mgmPort == busy || p.mgmPort == 0 || !p.portMayMove || len(p.warnings) != 1 {
		t.Errorf("%+v, %v", p, err)
	}
	// A free one that was asked for is kept, whatever happens.
	free, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	p = &plan{}
	if err := p.choosePort(&choices{mgmPort: free, mgmPortGiven: true}); err != nil || p.mgmPort != free || p.portMayMove {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestASettingWithoutEffectIsTold(t *testing.T) {
	o, _, err := parse([]string{"--dir", t.TempDir(), "--mgm-port", "0", "--set", "TimeBetweenWatchDogCheck=2000"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := makePlan(o, machine{})
	if err != nil || len(p.warnings) != 1 || !strings.Contains(p.warnings[0], "TimeBetweenWatchDogCheck") {
		t.Fatalf("%v, %+v", err, p)
	}
}

func TestSettingsThatCannotBe(t *testing.T) {
	for set, says := range map[string]string{
		"Nonsense=1":        "there is no such parameter",
		"DataMemory=plenty": "DataMemory",
		"PortNumber=1":      "use --mgm-port",
		"NoOfReplicas=1":    "use --replicas",
		"hostname=x":        "run on this machine",
		"DataDir=/x":        "use --dir",
		"NodeId=3":          "given out by cohort up",
	} {
		if _, _, err := planFor(t, "--set", set); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", set, err)
		}
	}
}

func TestAUsersConfigurationMovesToThisMachine(t *testing.T) {
	write := func(name, text string) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	t.Run("my.cnf", func(t *testing.T) {
		file := write("my.cnf", "[cluster_config]\nDataMemory=2000M\nNoOfReplicas=1\nndb_mgmd=n1\nndbd=n2\nmysqld=n1,n1\nMaxNoOfExecutionThreads=6\n")
		p, c, err := planFor(t, "--config", file, "--mgm-port", "0", "--set", "DataMemory=30M")
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range c.Nodes {
			if n.HostName != loopback {
				t.Errorf("node %d is on %q", n.ID, n.HostName)
			}
		}
		if !p.multiThreaded || len(p.data) != 1 || p.servers[0].id != c.ManagementNodes()[0].ID || c.DataNodes()[0].Int("DataMemory") != 30<<20 {
			t.Errorf("%+v\n%s", p, p.text)
		}
		if mgm := c.ManagementNodes()[0]; mgm.Int("PortNumber") != int64(p.mgmPort) {
			t.Errorf("port %d, want %d", mgm.Int("PortNumber"), p.mgmPort)
		}
		if p.summary != "1 management server and 1 data node (ndbmtd) of "+file {
			t.Error(p.summary)
		}
	})
	t.Run("config.ini", func(t *testing.T) {
		file := write("config.ini", `[computer]
Id=1
HostName=a.example
[ndb_mgmd]
HostName=m1.example
[ndb_mgmd]
HostName=m2.example
[ndbd default]
NoOfReplicas=2
ServerPort=2202
DataDir=/var/lib/cluster
[ndbd]
ExecuteOnComputer=1
NodeId=3
[ndbd]
HostName=b.example
NodeId=4
DataMemory=50M
[api]
`)
		p, c, err := planFor(t, "--config", file, "--mgm-port", "0", "--set", "DataMemory=30M")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(p.data, []int{3, 4}) || p.multiThreaded {
			t.Errorf("%+v", p)
		}
		if mgm := c.ManagementNodes(); len(mgm) != 2 || len(p.servers) != 2 || p.servers[0].id != mgm[0].ID || p.servers[1].id != mgm[1].ID ||
			mgm[1].Int("PortNumber") != int64(p.servers[1].port) || p.servers[0].port == p.servers[1].port {
			t.Errorf("both management servers are started: %+v", p)
		}
		for _, n := range c.DataNodes() {
			if n.HostName != loopback || n.Int("DataMemory") != 30<<20 || n.String("DataDir") == "/var/lib/cluster" {
				t.Errorf("node %d: %s", n.ID, p.text)
			}
		}
		if c.Node(3).Int("ServerPort") == c.Node(4).Int("ServerPort") && c.Node(3).IsSet("ServerPort") {
			t.Errorf("both nodes listen on one port: %s", p.text)
		}
		if n := c.APINodes()[0]; n.HostName != "" {
			t.Errorf("a client may come from anywhere, not only from %q", n.HostName)
		}
	})
	t.Run("a faulty one", func(t *testing.T) {
		file := write("config.ini", "[ndbd]\nDataMemory=plenty\n")
		if _, _, err := planFor(t, "--config", file); err == nil || !strings.Contains(err.Error(), file+":2: ") {
			t.Errorf("%v", err)
		}
		if _, _, err := planFor(t, "--config", file+"x"); err == nil || !strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("%v", err)
		}
	})
}
