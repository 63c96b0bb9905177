package datanode

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/membership"
)

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, _, err := config.Parse([]byte(text), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const someCluster = `
[NDBD DEFAULT]
NoOfReplicas=2
DataMemory=20M
IndexMemory=2M
TimeBetweenEpochs=50
TimeBetweenGlobalCheckpoints=1000
TimeBetweenEpochsTimeout=4000
TransactionDeadlockDetectionTimeout=700
TransactionInactiveTimeout=5000
MaxNoOfConcurrentOperations=1000
MaxNoOfConcurrentTransactions=500
MaxDMLOperationsPerTransaction=64
MaxNoOfTables=20
PartitionsPerNode=3
StartupStatusReportFrequency=2
StartFailureTimeout=9000
MemReportFrequency=30
ConnectCheckIntervalDelay=300
Arbitration=WaitExternal
ArbitrationTimeout=1000
[NDB_MGMD]
[NDBD]
NodeId=1
[NDBD]
NodeId=2
[NDBD]
NodeId=3
NodeGroup=65536
[API]
ArbitrationRank=2
[API]
[TCP DEFAULT]
SendBufferMemory=3M
`

func TestLimitsComeFromTheConfiguration(t *testing.T) {
	c, err := FromConfig(parse(t, someCluster), 2)
	if err != nil {
		t.Fatal(err)
	}
	if c.Node != 2 || !slices.Equal(c.Membership.Nodes, []membership.Node{{ID: 1}, {ID: 2}}) {
		t.Fatalf("node %d of %v", c.Node, c.Membership.Nodes)
	}
	for _, x := range []struct {
		what      string
		got, want int64
	}{
		{"start timeout", c.Membership.StartTimeout, 9 * second}, {"report", c.Membership.ReportInterval, 2 * second},
		{"drain", c.Membership.DrainTimeout, 700 * millisecond},
		{"heartbeat", c.Membership.Heartbeat, 250 * millisecond}, {"check", c.Membership.CheckTimeout, 300 * millisecond},
		{"arbitration", int64(c.Membership.Arbitration), membership.ArbitrationWaitExternal}, {"arbitration timeout", c.Membership.ArbitrationTimeout, second},
		{"epoch", c.Distribution.EpochInterval, 50 * millisecond}, {"checkpoint", c.Distribution.CheckpointInterval, second},
		{"epoch timeout", c.Distribution.EpochTimeout, 4 * second}, {"checkpoint timeout", c.Distribution.CheckpointTimeout, 120 * second},
		{"partitions", int64(c.Distribution.PartitionsPerNode), 3},
		{"tables", int64(c.Dictionary.MaxTables), 20}, {"attributes", int64(c.Dictionary.MaxAttributes), 1000}, {"close", int64(c.Dictionary.CloseWait), 700},
		{"replicas", int64(c.Manager.Replicas), 2}, {"groups", int64(c.Manager.Groups), 1}, {"memory report", c.Manager.MemoryReport, 30 * second},
		{"transactions", int64(c.MaxTransactions), 500}, {"operations", int64(c.MaxOperations), 1000}, {"local", int64(c.MaxLocalOperations), 1164},
		{"writes", int64(c.MaxWrites), 64}, {"lock", c.LockTimeout, 700 * millisecond}, {"inactive", c.InactiveTimeout, 5 * second}, {"check", c.InactiveCheck, second},
		{"data", c.DataMemory, 22 << 20}, {"copies", c.CopyMemory, 16 << 20}, {"send", c.SendMemory, 5 * 3 << 20}, {"log parts", int64(c.LogParts), 4},
	} {
		if x.got != x.want {
			t.Errorf("%s: %d, want %d", x.what, x.got, x.want)
		}
	}
	if want := []membership.Arbitrator{{ID: 4, Rank: 1}, {ID: 5, Rank: 2}}; len(c.Membership.Arbitrators) != 2 || c.Membership.Arbitrators[0].Rank != 1 || c.Membership.Arbitrators[1].Rank != 2 {
		t.Errorf("arbitrators %v, want the like of %v", c.Membership.Arbitrators, want)
	}
	if err := c.NoWait([]int{1}); err != nil || !c.Membership.NoWait.Has(1) {
		t.Error(err)
	}
	for _, bad := range []int{2, 3, 49, 300} {
		if err := c.NoWait([]int{bad}); err == nil {
			t.Errorf("node %d need not be waited for", bad)
		}
	}
}

func TestDefaultsAreUsable(t *testing.T) {
	c, err := FromConfig(parse(t, "[NDBD]\nNoOfReplicas=1\n[NDB_MGMD]\n[API]\n"), 1)
	if err != nil || c.InactiveTimeout != 0 || c.MaxWrites != 2147483647 || c.MaxOperations != 32768 || c.CopyMemory != 98<<20 || c.Sessions != 256 {
		t.Fatalf("%+v %v", c, err)
	}
}

func TestWhatCannotBeUsedIsRefused(t *testing.T) {
	for _, x := range []struct {
		text string
		id   int
		want string
	}{
		{someCluster, 3, "no node group"},
		{someCluster, 49, "no data node"},
		{someCluster, 77, "no node 77"},
		{"[NDBD]\nNoOfReplicas=1\nMaxNoOfConcurrentOperations=4G\n[NDB_MGMD]\n", 1, "lower it"},
	} {
		text := strings.ReplaceAll(x.text, "=4G", "=4294967039")
		if _, err := FromConfig(parse(t, text), x.id); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("node %d: %v", x.id, err)
		}
	}
}

func threads(t *testing.T, text string) config.ThreadLayout {
	t.Helper()
	return parse(t, "[NDBD]\nNoOfReplicas=1\n"+text+"\n[NDB_MGMD]\n").Node(1).ThreadLayout()
}

func seq(n int) (s []int) {
	for i := range n {
		s = append(s, i)
	}
	return s
}

func TestLayouts(t *testing.T) {
	for _, x := range []struct {
		name      string
		text      string
		single    bool
		cpus      int
		parts     int // NoOfFragmentLogParts, 0 = not set
		threads   int
		main      int
		receivers []int
		tcs, ldms []int
		logParts  int
		warnings  int
	}{
		{"ndbd", "MaxNoOfExecutionThreads=8", true, 8, 0, 1, 0, seq(1), seq(1), seq(1), 4, 0},
		{"nothing set", "", false, 3, 0, 3, 0, seq(3), seq(3), seq(3), 4, 0},
		{"nothing set, many CPUs", "", false, 16, 0, 16, 0, seq(16), seq(16), seq(16), 16, 0},
		{"log parts bound the ldms", "", false, 16, 6, 16, 0, seq(16), seq(16), seq(6), 6, 1},
		{"automatic", "AutomaticThreadConfig=1", false, 2, 0, 2, 0, seq(2), seq(2), seq(2), 4, 0},
		{"NumCPUs", "AutomaticThreadConfig=1\nNumCPUs=2", false, 8, 0, 2, 0, seq(2), seq(2), seq(2), 4, 0},
		{"more NumCPUs than CPUs", "AutomaticThreadConfig=1\nNumCPUs=9", false, 2, 0, 2, 0, seq(2), seq(2), seq(2), 4, 1},
		{"document 004", "MaxNoOfExecutionThreads=6", false, 2, 0, 2, 0, seq(2), seq(2), seq(2), 4, 1},
		{"max with room", "MaxNoOfExecutionThreads=2", false, 64, 0, 4, 0, seq(4), seq(4), seq(4), 4, 0},
		{"ThreadConfig", "ThreadConfig=main,ldm={count=3},recv={count=2},tc={count=1},send,rep", false, 2, 0, 7, 0, []int{1, 2}, []int{3}, []int{4, 5, 6}, 4, 2},
		{"ThreadConfig without main and tc", "ThreadConfig=main={count=0},ldm={count=2},recv={count=2}", false, 2, 0, 4, 0, seq(2), seq(2), []int{2, 3}, 4, 0},
		{"no CPUs known", "", false, 0, 0, 1, 0, seq(1), seq(1), seq(1), 4, 0},
	} {
		c := Config{Threads: threads(t, x.text), LogParts: 4}
		if x.parts != 0 {
			c.LogParts, c.LogPartsSet = x.parts, true
		}
		l, err := LayoutFor(&c, !x.single, x.cpus)
		if err != nil || l.Threads != x.threads || l.Main != x.main || !slices.Equal(l.Receivers, x.receivers) || !slices.Equal(l.TCs, x.tcs) ||
			!slices.Equal(l.LDMs, x.ldms) || l.LogParts != x.logParts || len(l.Warnings) != x.warnings || l.check() != "" {
			t.Errorf("%s: %+v %v %s", x.name, l, err, l.check())
		}
		for i := range l.Threads {
			if l.Roles(i) == "" {
				t.Errorf("%s: thread %d does nothing", x.name, i)
			}
		}
	}
	c := Config{Threads: threads(t, "ThreadConfig=ldm={count=8},recv"), LogParts: 4}
	c.LogPartsSet = true
	if _, err := LayoutFor(&c, true, 2); err == nil || !strings.Contains(err.Error(), "NoOfFragmentLogParts") {
		t.Errorf("8 ldms of 4 log parts: %v", err)
	}
	c = Config{Threads: threads(t, "ThreadConfig=ldm={count=127},recv={count=2}\nNoOfFragmentLogParts=332"), LogParts: 332}
	if _, err := LayoutFor(&c, true, 2); err == nil || !strings.Contains(err.Error(), "130 threads") {
		t.Errorf("130 threads: %v", err)
	}
}

func TestMemoryIsANamedSum(t *testing.T) {
	c, err := FromConfig(parse(t, someCluster), 1)
	if err != nil {
		t.Fatal(err)
	}
	l := Combined(2)
	items := MemorySum(&c, &l)
	s := Describe(items)
	for _, want := range []string{fmt.Sprintf("%12d KB  data memory: rows and indexes\n", 22<<10), "ldms (2): operations\n", "  sum\n"} {
		if !strings.Contains(s, want) {
			t.Errorf("no %q in\n%s", want, s)
		}
	}
	one := Combined(1)
	if Total(MemorySum(&c, &one)) >= Total(items) {
		t.Error("a thread more takes no memory")
	}
	if len(items) != len(MemorySum(&c, &l)) || strings.Count(s, "\n") != len(items)+1 {
		t.Error("items are not a line each")
	}
}
