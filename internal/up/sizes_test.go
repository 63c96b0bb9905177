package up

import (
	"os"
	"path/filepath"
	"testing"
)

func TestDataNodesShareHalfOfTheMemory(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		memory uint64
		nodes  int
		want   string
	}{
		{8 * gib, 2, "2000M"},
		{32 * gib, 1, "2000M"},
		{4 * gib, 2, "1024M"},
		{4 * gib, 4, "512M"},
		{7 * gib / 2, 4, "448M"},
		{256 * mib, 4, "64M"},
		{0, 2, "2000M"}, // unknown
	} {
		if got := megabytes(machine{cpus: 2, memory: c.memory}.choose(c.nodes).dataMemory); got != c.want {
			t.Errorf("%d nodes in %d MiB: DataMemory %s, want %s", c.nodes, c.memory/mib, got, c.want)
		}
	}
}

func TestANodeWithMoreThanTwoCPUsHasThreads(t *testing.T) {
	for _, c := range []struct {
		cpus, nodes int
		threads     bool
		loops       int
	}{
		{1, 1, false, 2}, {2, 1, false, 2}, {2, 2, false, 2}, {4, 2, false, 2}, {3, 1, true, 2}, {8, 2, true, 2}, {16, 2, true, 5}, {16, 1, true, 8},
	} {
		s := machine{cpus: c.cpus}.choose(c.nodes)
		if s.multiThreaded != c.threads || s.cpus != c.loops {
			t.Errorf("%d CPUs, %d nodes: threads %v on %d CPUs, want %v on %d", c.cpus, c.nodes, s.multiThreaded, s.cpus, c.threads, c.loops)
		}
	}
}

func TestThisMachineIsKnown(t *testing.T) {
	if m := thisMachine(); m.cpus < 1 || m.memory < 16*mib {
		t.Fatalf("%+v", m)
	}
}

func TestTheSmallestLimitOfTheControlGroupsCounts(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	self := filepath.Join(root, "self")
	write("self", "0::/a/b\n")
	if got := groupLimit(self, root); got != 0 {
		t.Fatalf("no limit: %d", got)
	}
	write("a/b/memory.max", "max\n")
	write("a/memory.max", "1073741824\n")
	write("memory.max", "2147483648\n")
	if got := groupLimit(self, root); got != 1<<30 {
		t.Fatalf("unified: %d", got)
	}
	write("self", "9:memory:/x\n3:cpu,cpuacct:/a\n")
	write("memory/memory.limit_in_bytes", "536870912\n")
	write("memory/x/memory.limit_in_bytes", "9223372036854771712\n")
	if got := groupLimit(self, root); got != 1<<29 {
		t.Fatalf("by controllers: %d", got)
	}
	if got := groupLimit(filepath.Join(root, "absent"), root); got != 0 {
		t.Fatalf("no control groups: %d", got)
	}
}
