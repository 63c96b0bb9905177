package flexasynch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohortdb/cohort/ndb"
)

const small = "-t 2 -p 8 -o 3 " // 48 transactions a phase

// effects has a case or more for every option that changes what is done: a command, and what to look at afterwards.
var effects = []struct {
	args string
	look func(t *testing.T, f *fakeCluster, c *counter, out string)
}{
	{small, func(t *testing.T, f *fakeCluster, c *counter, out string) {
		want := [kinds]int{insert: 48, update: 48, remove: 48, read: 96}
		if c.operations != want {
			t.Errorf("operations %v, want %v", c.operations, want)
		}
		for k := range kinds {
			if n, least, most := c.distinct(k); n != 48 || least != most {
				t.Errorf("%v: %d keys, used %d to %d times", k, n, least, most)
			}
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		for i, k := range []kind{insert, update, remove, read} {
			if line := lines[len(lines)-5+i]; !strings.HasPrefix(line, k.String()+" average: ") {
				t.Errorf("final line %d: %s", i, line)
			}
		}
		if len(linesWith(out, "insert: 48 operations in ")) != 1 || len(linesWith(out, "read: 48 operations in ")) != 2 {
			t.Errorf("phases:\n%s", out)
		}
		def := f.created[0]
		if len(f.tables) != 0 || len(def.Columns) != 26 || def.NoLogging || def.Database != "TEST_DB" || !strings.HasPrefix(def.Name, "TAB0_") {
			t.Errorf("table %+v", def)
		}
		key := []ndb.Column{{Name: "DISTKEY", Type: ndb.TypeUint32, Key: true, Dist: true}, {Name: "COL0", Type: ndb.TypeUint32, Key: true},
			{Name: "COL1", Type: ndb.TypeUint32, Length: 1}}
		if !reflect.DeepEqual(def.Columns[:3], key) {
			t.Errorf("columns %+v", def.Columns[:3])
		}
		o := f.lanes[0].o
		if o.readMode != ndb.Shared || o.record || o.write || o.separate || o.reads != (ndb.TxOptions{}) || o.writes != (ndb.TxOptions{}) || o.send != ndb.SendAdaptive {
			t.Errorf("%+v", o)
		}
	}},
	{"-t 5 -p 2 -o 1", func(t *testing.T, f *fakeCluster, c *counter, _ string) {
		if len(f.lanes) != 5 || c.operations[insert] != 10 {
			t.Errorf("%d lanes, %v", len(f.lanes), c.operations)
		}
	}},
	{"-p 16 -o 2", func(t *testing.T, f *fakeCluster, c *counter, _ string) {
		if f.lanes[0].most != 16 || f.lanes[0].o.parallel != 16 || c.operations[insert] != 32 {
			t.Errorf("%d in flight, %v", f.lanes[0].most, c.operations)
		}
	}},
	{"-p 4 -o 7", func(t *testing.T, _ *fakeCluster, c *counter, _ string) {
		if c.operations[update] != 28 {
			t.Errorf("%v", c.operations)
		}
	}},
	{small + "-l 3", func(t *testing.T, _ *fakeCluster, c *counter, out string) {
		if c.operations[remove] != 3*48 || len(linesWith(out, "loop ")) != 3 || len(linesWith(out, "delete: 48 operations in ")) != 3 {
			t.Errorf("%v\n%s", c.operations, out)
		}
	}},
	{small + "-c 5", func(t *testing.T, f *fakeCluster, c *counter, out string) {
		if c.operations[insert] != 240 || f.lanes[0].o.operations != 5 || len(linesWith(out, "insert: 240 operations")) != 1 {
			t.Errorf("%v\n%s", c.operations, out)
		}
		if n, least, most := c.distinct(read); n != 240 || least != 2 || most != 2 {
			t.Errorf("%d keys, used %d to %d times", n, least, most)
		}
	}},
	{small + "-a 2 -s 40", func(t *testing.T, f *fakeCluster, _ *counter, out string) {
		if columns := f.created[0].Columns; len(columns) != 3 || columns[2].Name != "COL1" || columns[2].Length != 40 {
			t.Errorf("%+v", columns)
		}
		if o := f.lanes[0].o; o.attributes != 2 || o.words != 40 {
			t.Errorf("%+v", o)
		}
		if len(linesWith(out, "48 transactions and 48 operations in each phase; rows of 8 bytes key and 160 bytes values")) != 1 {
			t.Error(out)
		}
	}},
	{small + "-r 2", func(t *testing.T, _ *fakeCluster, c *counter, out string) {
		if c.operations[read] != 6*48 || len(linesWith(out, "read: ")) != 6 {
			t.Errorf("%v\n%s", c.operations, out)
		}
	}},
	{"-t 5 -p 1 -o 1 -con 3", func(t *testing.T, f *fakeCluster, _ *counter, _ string) {
		var got []int
		for _, l := range f.lanes {
			got = append(got, l.connection)
		}
		if !reflect.DeepEqual(got, []int{0, 1, 2, 0, 1}) {
			t.Error(got)
		}
	}},
	{small + "-load_factor 60", func(t *testing.T, _ *fakeCluster, c *counter, _ string) {
		if c.operations[insert] != 48 {
			t.Error(c.operations)
		}
	}},
	{small + "-simple -c 2", func(t *testing.T, f *fakeCluster, _ *counter, _ string) {
		if o := f.lanes[0].o; o.readMode != ndb.Shared || !o.separate {
			t.Errorf("%+v", o)
		}
	}},
	{small + "-dirty", func(t *testing.T, f *fakeCluster, _ *counter, _ string) {
		if o := f.lanes[0].o; o.readMode != ndb.Committed || o.separate {
			t.Errorf("%+v", o)
		}
	}},
	{small + "-ndbrecord", func(t *testing.T, f *fakeCluster, _ *counter, _ string) {
		if o := f.lanes[0].o; o.readMode != ndb.Committed || !o.record {
			t.Errorf("%+v", o)
		}
	}},
	{small + "-write", func(t *testing.T, f *fakeCluster, _ *counter, _ string) {
		if !f.lanes[0].o.write {
			t.Errorf("%+v", f.lanes[0].o)
		}
	}},
	{small + "-n", func(t *testing.T, f *fakeCluster, _ *counter, _ string) {
		if f.created[0].Name != "TAB0" || f.dropped[0] != "TAB0" {
			t.Errorf("%v %v", f.created, f.dropped)
		}
	}},
	{small + "-table 9", func(t *testing.T, f *fakeCluster, _ *counter, _ string) {
		if f.created[0].Name != "TAB9" {
			t.Error(f.created[0].Name)
		}
	}},
	{small + "-temp", func(t *testing.T, f *fakeCluster, _ *counter, _ string) {
		if !f.created[0].NoLogging {
			t.Errorf("%+v", f.created)
		}
	}},
	{small + "-no_hint", func(t *testing.T, f *fakeCluster, _ *counter, _ string) {
		if o := f.lanes[1].o; !o.reads.RoundRobin || !o.writes.RoundRobin {
			t.Errorf("%+v", o)
		}
	}},
	{small + "-through-tc", func(t *testing.T, f *fakeCluster, _ *counter, _ string) {
		if o := f.lanes[1].o; o.reads.Coordinate || !o.writes.Coordinate {
			t.Errorf("%+v", o)
		}
	}},
	{small + "-force", func(t *testing.T, f *fakeCluster, _ *counter, _ string) {
		if f.lanes[0].o.send != ndb.SendForce {
			t.Errorf("%+v", f.lanes[0].o)
		}
	}},
	{small + "-non_adaptive", func(t *testing.T, f *fakeCluster, _ *counter, _ string) {
		if f.lanes[0].o.send != ndb.SendLazy {
			t.Errorf("%+v", f.lanes[0].o)
		}
	}},
	{small + "-force -adaptive", func(t *testing.T, f *fakeCluster, _ *counter, _ string) {
		if f.lanes[0].o.send != ndb.SendAdaptive {
			t.Errorf("%+v", f.lanes[0].o)
		}
	}},
	{small + "-n -num_tables 3", func(t *testing.T, f *fakeCluster, c *counter, _ string) {
		if !reflect.DeepEqual(f.dropped, []string{"TAB0", "TAB1", "TAB2"}) {
			t.Error(f.dropped)
		}
		for i := range 3 {
			n := 0
			for key := range c.keys {
				if strings.HasPrefix(key, fmt.Sprintf("insert TAB%d ", i)) {
					n++
				}
			}
			if n != 16 {
				t.Errorf("TAB%d: %d rows", i, n)
			}
		}
	}},
	{small + "-num_indexes 0", func(t *testing.T, _ *fakeCluster, c *counter, _ string) {
		if c.operations[insert] != 48 {
			t.Error(c.operations)
		}
	}},
	{small + "-new -d 2", func(t *testing.T, f *fakeCluster, c *counter, _ string) {
		want := [kinds]int{insert: 48, update: 48, remove: 48, read: 96}
		if c.operations != want {
			t.Errorf("operations %v, want %v", c.operations, want)
		}
		if n, least, most := c.distinct(insert); n != 48 || least != 1 || most != 1 {
			t.Errorf("%d keys, used %d to %d times", n, least, most)
		}
		if len(f.lanes) != 2 {
			t.Errorf("%d executors", len(f.lanes))
		}
	}},
	{small + "-new -immediate -c 2 -num_tables 2 -local 3 -l 2", func(t *testing.T, _ *fakeCluster, c *counter, _ string) {
		if n, least, most := c.distinct(insert); n != 96 || least != 2 || most != 2 {
			t.Errorf("%d keys, used %d to %d times", n, least, most)
		}
	}},
	{"-t 3 -p 8 -o 3 -new -executor_cpus 0 -definer_cpus 0 -receive_cpus 0", func(t *testing.T, f *fakeCluster, c *counter, _ string) {
		if c.operations[insert] != 72 || !reflect.DeepEqual(f.s.receiveCPUs, []int{0}) {
			t.Errorf("%v %+v", c.operations, f.s)
		}
	}},
}

func TestEveryOptionHasItsEffect(t *testing.T) {
	for _, e := range effects {
		t.Run(strings.TrimSpace(strings.TrimPrefix(e.args, small)), func(t *testing.T) {
			f, c := newFake(2), &counter{}
			f.each = c.each
			out := f.run(t, e.args)
			e.look(t, f, c, out)
			if !f.closed {
				t.Error("the cluster was left open")
			}
		})
	}
}

func TestLocalChoosesRowsByNode(t *testing.T) {
	for mode, want := range map[int]func(owner, number uint32) int{
		1: func(owner, _ uint32) int { return int(owner) % 3 },
		2: func(_, number uint32) int { return int(number) % 3 },
		3: nil,
	} {
		f, c := newFake(3), &counter{}
		seen := map[int]int{}
		f.each = func(table string, x *transaction) {
			c.each(table, x)
			first := f.node(x.table, x.keys[0], x.owner)
			seen[first]++
			for _, key := range x.keys {
				if node := f.node(x.table, key, x.owner); node != first {
					t.Errorf("-local %d: rows of one transaction on nodes %d and %d", mode, first, node)
				}
			}
			if want != nil && f.ids[want(x.owner, x.number)] != first {
				t.Errorf("-local %d: transaction %d of thread %d on node %d", mode, x.number, x.owner, first)
			}
		}
		f.run(t, fmt.Sprintf("-t 4 -p 8 -o 5 -c 2 -local %d", mode))
		if n, least, most := c.distinct(read); n != 320 || least != 2 || most != 2 {
			t.Errorf("-local %d: %d keys, used %d to %d times", mode, n, least, most)
		}
		if len(seen) != 3 {
			t.Errorf("-local %d: nodes %v", mode, seen)
		}
	}
}

func TestBatchesOfTheSecondDriverGoToTheirNodes(t *testing.T) {
	for executors, nodesOf := range map[int]func(i int) []int{
		4: func(i int) []int { return []int{i%3 + 1} },          // more executors than nodes
		2: func(i int) []int { return [][]int{{1, 3}, {2}}[i] }, // fewer
	} {
		f := newFake(3)
		ran := map[*fakeLane]map[int]int{}
		f.ran = func(l *fakeLane, x *transaction) {
			if ran[l] == nil {
				ran[l] = map[int]int{}
			}
			ran[l][f.node(0, x.keys[0], x.owner)]++
		}
		f.run(t, fmt.Sprintf("-t %d -p 16 -o 8 -new -d 3", executors))
		total := 0
		for i, l := range f.lanes {
			for node, n := range ran[l] {
				total += n
				if !slices.Contains(nodesOf(i), node) {
					t.Errorf("executor %d of %d ran %d transactions of node %d", i, executors, n, node)
				}
			}
		}
		if total != executors*16*8*5 {
			t.Errorf("%d transactions", total)
		}
	}
}

func TestAnExecutorRunsItsBatchNodeByNode(t *testing.T) {
	q := newQueue(1, 1, 8, 2)
	b := q.empty()
	for i, node := range []int{3, 1, 2, 1, 3} {
		b.put(&transaction{number: uint32(i), keys: []uint32{uint32(10 * i), uint32(10*i + 1)}}, node)
	}
	q.hand(b)
	q.finished()
	from, x := &taker{queue: q}, transaction{keys: make([]uint32, 2)}
	var numbers []uint32
	for {
		ok, done := from.next(&x, true)
		if !ok {
			if !done {
				t.Fatal("neither a transaction nor the end")
			}
			break
		}
		numbers = append(numbers, x.number)
		if x.keys[0] != 10*x.number || x.keys[1] != 10*x.number+1 {
			t.Errorf("transaction %d has keys %v", x.number, x.keys)
		}
	}
	if want := []uint32{1, 3, 2, 0, 4}; !slices.Equal(numbers, want) {
		t.Errorf("%v, want %v", numbers, want)
	}
}

func TestOnlyImmediateHandsOverWhatIsNotFull(t *testing.T) {
	for _, immediate := range []string{"", " -immediate"} {
		// An executor waits from the first moment on.
		f := newFake(1)
		s, err := parse(strings.Fields("-t 1 -p 8 -o 1 -new" + immediate))
		if err != nil {
			t.Fatal(err)
		}
		q := newQueue(1, 8, s.parallel, 1) // room for a batch of each transaction: none comes back
		d := &definers{s: s, nodes: f.ids, groups: 1, placers: []placer{f}, stage: new(atomic.Int32)}
		took := make(chan int)
		go func() {
			b, _ := q.take(nil, true)
			took <- len(b.items)
		}()
		for q.waiting.Load() == 0 {
			runtime.Gosched()
		}
		d.sequences = []*sequence{newSequence(s, f.ids, 0, f)}
		if err := d.define(0, &work{kind: insert}, []*queue{q}); err != nil {
			t.Fatal(err)
		}
		if n := <-took; immediate == "" && n != 8 || immediate != "" && n == 8 {
			t.Errorf("%q: a batch of %d of 8", immediate, n)
		}
	}
}

func TestSinglePhaseRunsUseTheStandardTable(t *testing.T) {
	f := newFake(2)
	f.run(t, "-create_table -a 3 -temp -num_tables 2")
	if f.tables["TAB0"] == nil || f.tables["TAB1"] == nil || !f.created[0].NoLogging || len(f.created[0].Columns) != 4 {
		t.Fatalf("%+v", f.created)
	}
	rows := func() int { return len(f.tables["TAB0"]) + len(f.tables["TAB1"]) }
	out := f.run(t, small+"-insert -a 3 -num_tables 2")
	if rows() != 48 || len(linesWith(out, "total transactions: 48")) != 1 || len(linesWith(out, "execution time: ")) != 1 || len(linesWith(out, "transactions per second: ")) != 1 {
		t.Fatalf("%d rows\n%s", rows(), out)
	}
	f.run(t, small+"-delete -a 3 -num_tables 2")
	if rows() != 0 {
		t.Fatalf("%d rows", rows())
	}
	f.run(t, "-drop_table -num_tables 2")
	if len(f.tables) != 0 {
		t.Fatal(f.tables)
	}
}

func TestAnExistingTableIsUsedAndLeft(t *testing.T) {
	f := newFake(1)
	f.run(t, "-create_table -table 4")
	f.run(t, small+"-no_table_create -table 4")
	if f.tables["TAB4"] == nil || len(f.created) != 1 {
		t.Fatal("the table was not left alone")
	}
	for command, reason := range map[string]string{
		small + "-table 4":             "use it with -no_table_create",
		small + "-no_table_create -n":  "no such table",
		"-create_table -table 4":       "use it with -no_table_create",
		"-drop_table -n":               "no such table",
		small + "-read -n":             "no such table",
		small + "-num_indexes 1":       "not supported yet",
		small + "-n -num_tables 5":     "use it with -no_table_create", // TAB4 is there
		small + "-con 2 -no_such_slot": "there is no option",
	} {
		o := f.program(t, context.Background(), strings.Fields(command)...)
		if o.status == 0 || !strings.HasPrefix(o.stderr, "flexAsynch: ") || !strings.Contains(o.stderr, reason) {
			t.Errorf("%s: status %d, %s", command, o.status, o.stderr)
		}
	}
	if len(f.tables) != 1 {
		t.Errorf("tables are left: %v", f.tables)
	}
}

// timedRun runs a single phase whose times are conditions: each stage ends when so many transactions have ended in it.
func timedRun(t *testing.T, f *fakeCluster, args string, stageEnd int) (*run, string) {
	t.Helper()
	s, err := parse(strings.Fields(args))
	if err != nil {
		t.Fatal(err)
	}
	var waited []time.Duration
	n, goal := 0, 0 // under the fake's lock
	reached := make(chan struct{}, 1)
	f.each = func(string, *transaction) {
		if n++; n == goal {
			reached <- struct{}{}
		}
	}
	var out strings.Builder
	r := &run{s: s, out: &out, note: t.Logf,
		connect: func(context.Context, *settings, func(string, ...any)) (cluster, error) { return f, nil },
		wait: func(ctx context.Context, d time.Duration) {
			waited = append(waited, d)
			f.mu.Lock()
			goal = n + stageEnd
			f.mu.Unlock()
			select {
			case <-reached:
			case <-ctx.Done():
			}
		}}
	if err := r.do(context.Background()); err != nil {
		t.Fatalf("%s: %v\n%s", args, err, out.String())
	}
	if want := []time.Duration{s.warmup, s.execution, s.cooldown}; !reflect.DeepEqual(waited, want) {
		t.Errorf("waited %v, want %v", waited, want)
	}
	return r, out.String()
}

func TestReadAndUpdateRunForATime(t *testing.T) {
	for _, driver := range []string{"", " -new"} {
		for _, k := range []kind{update, read} {
			f := newFake(2)
			f.run(t, "-create_table")
			f.run(t, small+"-insert")
			r, out := timedRun(t, f, small+"-"+k.String()+" -warmup_time 3 -execution_time 7 -cooldown_time 2"+driver, 200)
			res := r.all[k]
			if res.operations == 0 || res.failed != 0 || res.wrong != 0 || len(f.tables["TAB0"]) != 48 {
				t.Errorf("%+v\n%s", res, out)
			}
			if len(linesWith(out, fmt.Sprintf("total transactions: %d", res.operations))) != 1 {
				t.Error(out)
			}
		}
	}
}

func TestCPUListsBindThreadsOrSayWhyNot(t *testing.T) {
	if runtime.GOOS != "linux" {
		if err := bind(0); err == nil {
			t.Error("no error")
		}
		return
	}
	o := newFake(1).program(t, context.Background(), strings.Fields(small+"-new -executor_cpus 1023")...)
	if o.status != exitFailed || !strings.Contains(o.stderr, "cannot be bound to CPU 1023") || !strings.Contains(o.stderr, "name CPUs that this process may use") {
		t.Errorf("status %d, %s", o.status, o.stderr)
	}
	where := make(chan string)
	go func() {
		if err := bind(0); err != nil {
			where <- err.Error()
			return
		}
		text, err := os.ReadFile("/proc/thread-self/status")
		if err != nil {
			where <- err.Error()
			return
		}
		where <- strings.Join(linesWith(string(text), "Cpus_allowed_list:"), "")
	}()
	if got := <-where; strings.TrimSpace(strings.TrimPrefix(got, "Cpus_allowed_list:")) != "0" {
		t.Error(got)
	}
}

func TestCPUTimeOfNodesIsTheSumOfTheirThreads(t *testing.T) {
	proc := t.TempDir()
	for file, text := range map[string]string{
		"101/task/101/schedstat": "1000000 5 6\n",
		"101/task/102/schedstat": "2000000 5 6\n",
		"205/task/205/schedstat": "4000000 7 8\n",
		"300/task/300/schedstat": "nonsense\n",
	} {
		file = filepath.Join(proc, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		given       []int
		environment string
		want        time.Duration
		why         string
	}{
		{nil, "101,205", 7 * time.Millisecond, ""},
		{[]int{205}, "101", 4 * time.Millisecond, ""},
		{nil, "", 0, "give --node-pids"},
		{nil, "x", 0, "COHORT_DATA_NODE_PIDS"},
		{nil, "101,999", 0, "no such process"},
		{[]int{300}, "", 0, "nonsense"},
	} {
		a, why := newAccounting(proc, c.given, c.environment)
		if !strings.Contains(why, c.why) || (why == "") != (c.why == "") {
			t.Errorf("%v %q: %q, want %q", c.given, c.environment, why, c.why)
		}
		if got := a.nodes(); got != c.want {
			t.Errorf("%v %q: %v, want %v", c.given, c.environment, got, c.want)
		}
	}
}
