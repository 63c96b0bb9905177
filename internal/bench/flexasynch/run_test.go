package flexasynch

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohortdb/cohort/ndb"
)

func TestFailedTransactionsAreRunAgain(t *testing.T) {
	for _, driver := range []string{"", "-new -d 2", "-local 3", "-c 3"} {
		f, tries := newFake(2), map[string]int{}
		f.failing = func(x *transaction) (int, bool) {
			key := fmt.Sprint(x.kind, x.owner, x.number)
			tries[key]++
			if x.number%5 == 0 && tries[key]%4 != 0 { // three times in vain
				return ndb.CodeOf(ndb.ErrTooManyOps), false
			}
			return 0, true
		}
		out := f.run(t, small+driver)
		if n := len(linesWith(out, "insert: 10 transactions failed with error 233: ")); n != 3 {
			t.Errorf("%s: %d tries\n%s", driver, n, out)
		}
		if !strings.Contains(out, "running these again, 3 of 3") {
			t.Error(out)
		}
	}
}

func TestWhatFailsForGoodIsToldByCodeAndFails(t *testing.T) {
	f := newFake(1)
	f.failing = func(x *transaction) (int, bool) {
		if x.kind == insert && x.number < 3 {
			return ndb.CodeOf(ndb.ErrDataMemoryFull), false
		}
		if x.kind == insert && x.number == 3 {
			return -1, false
		}
		return 0, true
	}
	o := f.program(t, context.Background(), strings.Fields(small+"-c 2")...)
	if o.status != exitFailed || o.stderr != "flexAsynch: operations failed: see above\n" {
		t.Errorf("status %d, %q", o.status, o.stderr)
	}
	for _, want := range []string{
		"insert: FAILED: 16 operations: 2 transactions failed with an error that is not the database's, 6 transactions failed with error 827: ",
		"read: FAILED: 16 operations: 8 transactions failed with error 626: ",
		"delete: FAILED: 16 operations: 8 transactions failed with error 626: ",
		"insert: 96 operations in ",
	} {
		if len(linesWith(o.stdout, want)) == 0 {
			t.Errorf("no line %q in\n%s", want, o.stdout)
		}
	}
	if len(linesWith(o.stdout, "insert average: ")) != 1 || len(f.tables) != 0 {
		t.Errorf("tables %v\n%s", f.tables, o.stdout)
	}
}

func TestAPhaseThatFailsWhollyEndsTheRun(t *testing.T) {
	f := newFake(1)
	f.failing = func(x *transaction) (int, bool) {
		if x.kind == update {
			return ndb.CodeOf(ndb.ErrNotReady), false
		}
		return 0, true
	}
	o := f.program(t, context.Background(), strings.Fields(small+"-l 0")...)
	if o.status != exitFailed || !strings.HasPrefix(o.stderr, "flexAsynch: update: every operation failed: 48 transactions failed with error 4009: ") {
		t.Errorf("status %d, %s", o.status, o.stderr)
	}
	if len(linesWith(o.stdout, "insert average: ")) != 1 || len(linesWith(o.stdout, "delete")) != 0 || len(f.tables) != 0 {
		t.Errorf("tables %v\n%s", f.tables, o.stdout)
	}
}

func TestAnUnknownOutcomeThatWasASuccessIsOne(t *testing.T) {
	f, lost := newFake(1), map[kind]bool{}
	f.failing = func(x *transaction) (int, bool) {
		if x.number == 7 && x.owner == 1 && !lost[x.kind] {
			lost[x.kind] = true
			return ndb.CodeOf(ndb.ErrNoAnswer), true
		}
		return 0, true
	}
	out := f.run(t, small)
	if len(lost) != int(kinds) || len(linesWith(out, "delete: 1 transactions failed with error 4012: ")) != 1 {
		t.Error(out)
	}
}

func TestWithoutAnUnknownOutcomeADuplicateIsAFailure(t *testing.T) {
	f := newFake(1)
	f.failing = func(x *transaction) (int, bool) {
		if x.kind == insert && x.number == 7 {
			return ndb.CodeOf(ndb.ErrDuplicate), false
		}
		return 0, true
	}
	if o := f.program(t, context.Background(), strings.Fields(small)...); o.status != exitFailed || len(linesWith(o.stdout, "insert: FAILED: 2 operations")) != 1 {
		t.Errorf("status %d\n%s", o.status, o.stdout)
	}
}

func TestWrongRowsFail(t *testing.T) {
	for name, spoil := range map[string]func(x *transaction, generation uint32) (uint32, bool){
		"of an earlier time": func(x *transaction, generation uint32) (uint32, bool) {
			if x.number == 5 && generation > 1 {
				return generation - 1, true
			}
			return generation, true
		},
		"torn": func(x *transaction, generation uint32) (uint32, bool) {
			return generation, x.number != 5 || generation == 1
		},
	} {
		f := newFake(1)
		f.spoil = spoil
		o := f.program(t, context.Background(), strings.Fields(small+"-r 1")...)
		if o.status != exitFailed || len(linesWith(o.stdout, "read: WRONG: 2 rows ")) != 2 {
			t.Errorf("%s: status %d\n%s", name, o.status, o.stdout)
		}
	}
}

func TestSinglePhaseReadsTakeAnyGenerationThatIsWhole(t *testing.T) {
	for name, c := range map[string]struct {
		generation uint32
		whole      bool
		wrong      bool
	}{"whole": {7, true, false}, "never written": {0, true, true}, "no generation": {generationMax, true, true}, "torn": {7, false, true}} {
		var wrong int64
		f := newFake(1)
		f.spoil = func(*transaction, uint32) (uint32, bool) { return c.generation, c.whole }
		f.tables["T"] = map[[2]uint32]uint32{{0, 0}: 1}
		th, err := newThread(laneOptions{parallel: 1, operations: 1}, &control{}, func(o laneOptions) (lane, error) {
			return f.newLane(context.Background(), 0, o, []string{"T"})
		})
		if err != nil {
			t.Fatal(err)
		}
		th.begin(0, false)
		s := defaults()
		s.parallel, s.rounds = 1, 1
		w := work{kind: read}
		th.run(w.source(s, newSequence(s, f.ids, 0, f)))
		if wrong = th.tally.wrong; (wrong == 1) != c.wrong || th.tally.ended[warming] != 1 {
			t.Errorf("%s: %+v", name, th.tally)
		}
	}
}

func TestAnInterruptEndsARunForEver(t *testing.T) {
	for _, driver := range []string{"", "-new -d 2", "-new -immediate"} {
		ctx, cancel := context.WithCancelCause(context.Background())
		f, n := newFake(2), 0
		f.each = func(string, *transaction) {
			if n++; n == 1000 {
				cancel(errInterrupted)
			}
		}
		o := f.program(t, ctx, strings.Fields(small+"-l 0 "+driver)...)
		if o.status != exitInterrupted || o.stderr != "flexAsynch: interrupted\n" || len(f.tables) != 0 {
			t.Errorf("%s: status %d, %q, tables %v", driver, o.status, o.stderr, f.tables)
		}
		if len(linesWith(o.stdout, "loop 4")) != 1 || len(linesWith(o.stdout, "insert average: ")) != 1 {
			t.Error(o.stdout)
		}
	}
}

func TestAConnectionThatIsRefusedEndsTheRun(t *testing.T) {
	f := newFake(1)
	f.noSlot = 3
	o := f.program(t, context.Background(), "-con", "4")
	if o.status != exitFailed || !strings.HasPrefix(o.stderr, "flexAsynch: no slot") || o.stdout != "" {
		t.Errorf("%+v", o)
	}
}

func TestFiguresAreWrittenAsJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.json")
	t.Setenv(environmentPIDs, fmt.Sprint(os.Getpid()))
	f := newFake(1)
	f.run(t, small+"-l 2 -r 1 --json "+file)
	var got report
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if got.Name != "flexasynch" || got.Command[0] != "flexAsynch" || got.Command[1] != "-t" || got.Machine.CPUs < 1 || got.Machine.MemoryMB < 1 || got.Machine.Go == "" {
		t.Errorf("%s", text)
	}
	want := []struct {
		phase      string
		operations int64
	}{{"insert", 96}, {"read", 384}, {"update", 96}, {"delete", 96}}
	for i, w := range want {
		row := got.Rows[i]
		if row.Phase != w.phase || row.Operations != w.operations || row.Failed != 0 || row.Mean < row.Min || row.Mean > row.Max || row.Mean <= 0 {
			t.Errorf("%+v", row)
		}
		if row.ClientCPU == nil || row.NodeCPU == nil {
			t.Errorf("%s: no CPU", w.phase)
		}
	}
	for _, name := range []string{"mean_per_s", "min_per_s", "max_per_s", "stddev_pct", "failed", "client_cpu_us_per_op", "node_cpu_us_per_op", "memory_mb"} {
		if !strings.Contains(string(text), `"`+name+`":`) {
			t.Errorf("no %s in\n%s", name, text)
		}
	}
}

func TestFiguresWithoutKnownNodesSaySo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.json")
	t.Setenv(environmentPIDs, "")
	f := newFake(1)
	f.failing = func(x *transaction) (int, bool) { return ndb.CodeOf(ndb.ErrTooManyOps), false }
	o := f.program(t, context.Background(), strings.Fields(small+"--json "+file)...)
	if o.status != exitFailed || !strings.HasPrefix(o.stderr, "flexAsynch: no CPU figures of the data nodes: ") {
		t.Errorf("%+v", o)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), `"node_cpu_us_per_op": null`) || !strings.Contains(string(text), `"failed": 48`) {
		t.Errorf("%v\n%s", err, text)
	}
	o = newFake(1).program(t, context.Background(), strings.Fields(small+"--json "+filepath.Join(file, "below"))...)
	if o.status != exitFailed || !strings.Contains(o.stderr, "the figures cannot be written") {
		t.Errorf("%+v", o)
	}
}

func TestTheLoopAllocatesNothing(t *testing.T) {
	s := defaults()
	s.rounds, s.attributes = 1<<20, 2
	f := newFake(1)
	var shared control
	shared.stage.Store(counting)
	th, err := newThread(s.laneOptions(), &shared, func(o laneOptions) (lane, error) { return &idleLane{o: o}, nil })
	if err != nil {
		t.Fatal(err)
	}
	th.begin(1, true)
	q := newSequence(s, f.ids, 0, f)
	w := work{kind: read, generation: 1}
	from := w.source(s, q)
	n := testing.AllocsPerRun(100, func() { th.run(&limited{from, 1000}) })
	if n > 1 { // the limit itself
		t.Errorf("%v allocations for 1000 transactions", n)
	}
	if th.tally.ended[counting] < 100_000 || th.tally.wrong != 0 {
		t.Errorf("%+v", th.tally)
	}
}

// limited ends a source early.
type limited struct {
	source
	left int
}

func (l *limited) next(t *transaction, mayWait bool) (ok, done bool) {
	ok, done = l.source.next(t, mayWait)
	l.left--
	return ok, done || l.left == 0
}

// BenchmarkThreadLoop is what the loop costs beside ndb.
func BenchmarkThreadLoop(b *testing.B) {
	s := defaults()
	s.rounds, s.parallel = 1<<24, 128
	f := newFake(1)
	var shared control
	shared.stage.Store(counting)
	th, err := newThread(s.laneOptions(), &shared, func(o laneOptions) (lane, error) { return &idleLane{o: o}, nil })
	if err != nil {
		b.Fatal(err)
	}
	th.begin(1, true)
	w := work{kind: insert, generation: 1}
	from := w.source(s, newSequence(s, f.ids, 0, f))
	b.ReportAllocs()
	b.ResetTimer()
	th.run(&limited{from, b.N})
}

func TestProgressIsShownOfLongPhasesOnly(t *testing.T) {
	if got, want := bar("read", 30, 120), "read [##########"+strings.Repeat(" ", 30)+"] 25 %"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := bar("read", 7, 0); got != "read ["+strings.Repeat(" ", 40)+"] 0 %" {
		t.Errorf("%q", got)
	}
	if null, err := os.Open(os.DevNull); err != nil || isTerminal(null) || isTerminal(&strings.Builder{}) {
		t.Error("neither is a terminal")
	}
	var done atomic.Int64
	waits, ticks := make(chan time.Duration), make(chan time.Time)
	after := func(d time.Duration) <-chan time.Time {
		waits <- d
		return ticks
	}
	var out strings.Builder
	begin := func() (end func()) {
		out.Reset()
		ended := make(chan func())
		go func() { ended <- watch(&out, "insert", &done, 10, after) }()
		if d := <-waits; d != progressAfter {
			t.Errorf("the first wait is %v", d)
		}
		return <-ended
	}
	begin()()
	if out.Len() != 0 {
		t.Errorf("a short phase shows %q", out.String())
	}
	end := begin()
	done.Store(5)
	ticks <- time.Time{}
	if d := <-waits; d != progressEvery {
		t.Errorf("a later wait is %v", d)
	}
	end()
	if got, want := out.String(), "\r"+bar("insert", 5, 10)+"\r\x1b[K"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
