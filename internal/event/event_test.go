package event

import (
	"strings"
	"testing"
)

func TestTableIsWhole(t *testing.T) {
	seen := 0
	Types(func(typ Type, info Info) {
		seen++
		if info.Category >= NumCategories || info.Level > LevelMax || info.Severity < Debug || info.Severity > Alert {
			t.Errorf("%s: category %d level %d severity %d", info.Name, info.Category, info.Level, info.Severity)
		}
		if (info.Form == "") == (info.write == nil) {
			t.Errorf("%s: needs either a form or a writer", info.Name)
		}
		names := strings.Fields(info.Args)
		if len(names) > ArgsMax {
			t.Errorf("%s has %d numbers", info.Name, len(names))
		}
		rest := info.Form
		for {
			_, after, found := strings.Cut(rest, "{")
			if !found {
				break
			}
			word, tail, closed := strings.Cut(after, "}")
			if !closed {
				t.Errorf("%s: %q has an open brace", info.Name, info.Form)
				break
			}
			rest = tail
			name, _, _ := strings.Cut(word, ":")
			if name != "text" && argIndex(info.Args, name) < 0 {
				t.Errorf("%s: {%s} is no number of it (%s)", info.Name, name, info.Args)
			}
		}
		wild := New(7, typ, ^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0)).WithText("a\nb\x00\xff")
		if line := wild.String(); strings.ContainsAny(line, "\n\x00{}") {
			t.Errorf("%s: %q", info.Name, line)
		}
	})
	if seen < 40 {
		t.Fatalf("only %d types", seen)
	}
}

func TestTexts(t *testing.T) {
	var waiting [8]uint32
	waiting[0] = 3
	SetNode(waiting[2:7], 2)
	SetNode(waiting[2:7], 144)
	for _, c := range []struct {
		e    Event
		want string
	}{
		{New(1, Disconnected, 2), "Node 1: Node 2 Disconnected"},
		{New(1, MemoryUsage, 0, 32768, 4, 3198, BlockDataMemory), "Node 1: Data usage is 0%(4 32K pages of total 3198)"},
		{New(1, MemoryUsage, 0, 32768, 2, 3196, BlockIndexMemory), "Node 1: Index usage is 0%(2 32K pages of total 3196)"},
		{New(1, MemoryUsage, 1, 32768, 80, 100, BlockDataMemory), "Node 1: Data usage increased to 80%(80 32K pages of total 100)"},
		{New(1, MemoryUsage, ^uint32(0), 32768, 0, 0, BlockDataMemory), "Node 1: Data usage decreased to 0%(0 32K pages of total 0)"},
		{New(1, StartPhaseCompleted, 4, StartKindInitial), "Node 1: Start phase 4 completed (initial start)"},
		{New(2, NDBStartCompleted, 0x000100), "Node 2: Started (cohort-0.1.0)"},
		{New(2, NDBStopForced, 0, 9, 2305, 4), "Node 2: Forced node shutdown completed. Occurred during startphase 4. Initiated by signal 9. Caused by error 2305."},
		{New(2, NDBStopForced).WithText("node 1 is lost"), "Node 2: Forced node shutdown completed. node 1 is lost."},
		{New(2, NDBStopCompleted, StopActionRestart), "Node 2: Node shutdown completed, restarting."},
		{New(1, BackupStatus), "Node 1: Backup not started"},
		{New(1, StartReport, waiting[:]...), "Node 1: Start waits 3 s for nodes 2,144"},
		{New(3, InfoEvent).WithText("two\nlines"), "Node 3: two lines"},
		{New(3, 999, 5).WithText("x"), "Node 3: event of unknown type 999 5 0 0 0 0 0 0 0 x"},
		{New(3, MemoryLayout, 1, 1024).WithText("DataMemory"), "Node 3: Memory: DataMemory 4194305 KB"},
	} {
		if got := c.e.String(); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

func TestFieldsAreTheParsableForm(t *testing.T) {
	e := New(1, MemoryUsage, 0, 32768, 4, 3198, BlockDataMemory)
	want := "type=50\ntime=0\nsource_nodeid=1\ngth=0\npage_size_bytes=32768\npages_used=4\npages_total=3198\nblock=249\n"
	if got := string(e.AppendFields(nil, 0)); got != want {
		t.Fatalf("got %q", got)
	}
}

func TestFieldsParseBack(t *testing.T) {
	Types(func(typ Type, info Info) {
		e := New(3, typ).WithText("why")
		for i := range strings.Fields(info.Args) {
			e.Args[i] = uint32(i) + 7
		}
		lines := strings.Split(strings.TrimSpace(string(e.AppendFields(nil, 99))), "\n")
		if back, seconds, err := ParseFields(lines); back != e || seconds != 99 || err != nil {
			t.Errorf("%s: %+v, %d, %v", info.Name, back, seconds, err)
		}
	})
	for _, bad := range [][]string{nil, {"type"}, {"type=x"}, {"node=1"}, {"type=99999"}, {"type=1", "node=-1"}} {
		if e, _, err := ParseFields(bad); err == nil {
			t.Errorf("%q parses as %+v", bad, e)
		}
	}
}

func TestCategoriesAndSeverities(t *testing.T) {
	for c := range NumCategories {
		if got, ok := ParseCategory(strings.ToLower(c.String())); !ok || got != c {
			t.Errorf("category %s parses as %v, %v", c, got, ok)
		}
	}
	if c, ok := ParseCategory("255"); !ok || c != CategoryConnection {
		t.Errorf("255 parses as %v, %v", c, ok)
	}
	for _, bad := range []string{"", "249", "263", "NOTHING", "99999999999"} {
		if c, ok := ParseCategory(bad); ok {
			t.Errorf("%q parses as %v", bad, c)
		}
	}
	for s := Debug; s <= Alert; s++ {
		if got, ok := ParseSeverity(s.String()); !ok || got != s {
			t.Errorf("severity %s parses as %v, %v", s, got, ok)
		}
	}
}

func TestLevels(t *testing.T) {
	l := DefaultLevels()
	if !l.Admits(CategoryConnection, 8) || l.Admits(CategoryCheckpoint, 9) || l.Admits(NumCategories, 0) {
		t.Fatalf("defaults %v", l)
	}
	var none Levels
	none[CategoryCheckpoint] = 10
	l.Raise(&none)
	if !l.Admits(CategoryCheckpoint, 10) || !l.Admits(CategoryConnection, 8) {
		t.Fatalf("raised %v", l)
	}
}
