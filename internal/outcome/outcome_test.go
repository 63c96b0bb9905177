package outcome

import (
	"testing"

	"github.com/cohortdb/cohort/internal/signal"
)

func TestOutcomeIsKeptUntilHeard(t *testing.T) {
	o := New(2)
	a := signal.MakeAddr(51, signal.BlockClient, 3)
	if !o.Admit(a, 0) {
		t.Fatal("not admitted")
	}
	for seq := uint32(1); seq <= Window; seq++ {
		if !o.InWindow(a, seq) {
			t.Fatalf("%d is outside the window", seq)
		}
		o.Record(a, seq, [2]uint32{seq, 7})
	}
	if o.InWindow(a, Window+1) {
		t.Fatal("a full window takes more")
	}
	if g, ok := o.Find(a, 1); !ok || g != [2]uint32{1, 7} {
		t.Fatalf("outcome 1: %v %v", g, ok)
	}
	o.Ack(a, 10)
	if !o.InWindow(a, Window+10) || o.InWindow(a, Window+11) || o.InWindow(a, 10) {
		t.Fatal("the window did not move by the acknowledgement")
	}
	if o.Unheard(a) != Window-10 {
		t.Fatalf("unheard %d", o.Unheard(a))
	}
	if _, ok := o.Find(a, Window+1); ok {
		t.Fatal("found what was never recorded")
	}
}

func TestTableIsBoundedAndGivesBack(t *testing.T) {
	o := New(2)
	s := func(n uint8, i uint16) signal.Addr { return signal.MakeAddr(n, signal.BlockClient, i) }
	if !o.Admit(s(50, 1), 0) || !o.Admit(s(51, 1), 0) || o.Admit(s(51, 2), 0) {
		t.Fatal("the bound does not hold")
	}
	o.ForgetNode(51)
	if o.Sessions() != 1 || !o.Admit(s(52, 1), 5) {
		t.Fatal("nothing was given back")
	}
	o.Forget(s(50, 1))
	o.Forget(s(50, 1))
	o.Forget(s(52, 1))
	if o.Sessions() != 0 {
		t.Fatalf("%d sessions at rest", o.Sessions())
	}
	o.Record(s(52, 1), 6, [2]uint32{})
	if _, ok := o.Find(s(52, 1), 6); ok {
		t.Fatal("recorded for a session that ended")
	}
}

func TestRecordDoesNotAllocate(t *testing.T) {
	o := New(1)
	a := signal.MakeAddr(51, signal.BlockClient, 0)
	o.Admit(a, 0)
	seq := uint32(0)
	if n := testing.AllocsPerRun(1000, func() {
		seq++
		o.Admit(a, seq-1)
		o.Record(a, seq, [2]uint32{})
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestNextGivesWhatIsUnheard(t *testing.T) {
	o := New(4)
	s := func(n uint8, i uint16) signal.Addr { return signal.MakeAddr(n, signal.BlockClient, i) }
	o.Admit(s(50, 1), 0)
	o.Admit(s(51, 0), 7)
	o.Admit(s(51, 3), ^uint32(0)-1) // its numbers pass 0
	for seq := uint32(1); seq <= 3; seq++ {
		o.Record(s(50, 1), seq, [2]uint32{seq, 0})
	}
	o.Ack(s(50, 1), 1)
	o.Record(s(51, 0), 9, [2]uint32{9, 0})
	o.Record(s(51, 3), ^uint32(0), [2]uint32{4, 0})
	o.Record(s(51, 3), 1, [2]uint32{5, 0})
	want := []Outcome{{s(50, 1), 2, 1, [2]uint32{2, 0}}, {s(50, 1), 3, 1, [2]uint32{3, 0}}, {s(51, 0), 9, 7, [2]uint32{9, 0}},
		{s(51, 3), ^uint32(0), ^uint32(0) - 1, [2]uint32{4, 0}}, {s(51, 3), 1, ^uint32(0) - 1, [2]uint32{5, 0}}}
	var p Place
	for i, w := range want {
		if got, ok := o.Next(&p); !ok || got != w {
			t.Fatalf("outcome %d is %v %v, wanted %v", i, got, ok, w)
		}
	}
	if got, ok := o.Next(&p); ok {
		t.Fatal("one too many: ", got)
	}
}
