package kernel

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/signal"
)

var (
	addrA = signal.MakeAddr(1, signal.BlockTC, 0)
	addrB = signal.MakeAddr(1, signal.BlockLDM, 0)
)

func newEnv() *Env {
	e := NewEnv(1, 0, 42, 1<<12)
	e.Place(signal.BlockTC, 0, 0)
	e.Place(signal.BlockLDM, 0, 0)
	return e
}

func TestSignalsOfAThreadRunInOrder(t *testing.T) {
	e := newEnv()
	for i := uint32(0); i < 5; i++ {
		Send[signal.StepConf](e, addrA, addrB, signal.NumCommitConf).TcRef = i
	}
	var got []uint32
	e.RunJobs(func(p unsafe.Pointer) {
		s := (*signal.StepConf)(p)
		got = append(got, s.TcRef)
		if s.TcRef < 3 {
			Send[signal.StepConf](e, addrA, addrB, signal.NumCommitConf).TcRef = s.TcRef + 10
		}
	}, 1<<30)
	want := []uint32{0, 1, 2, 3, 4, 10, 11, 12}
	if len(got) != len(want) {
		t.Fatalf("%v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%v", got)
		}
	}
	if e.Jobs() {
		t.Fatal("something is left")
	}
}

func TestRunJobsStopsAtItsLimitAndGoesOn(t *testing.T) {
	e := newEnv()
	for i := uint32(0); i < 7; i++ {
		Send[signal.StepConf](e, addrA, addrB, signal.NumCommitConf).TcRef = i
	}
	next := uint32(0)
	f := func(p unsafe.Pointer) {
		if (*signal.StepConf)(p).TcRef != next {
			t.Fatalf("got %d, want %d", (*signal.StepConf)(p).TcRef, next)
		}
		next++
	}
	for _, want := range []int{3, 3, 1} {
		if n := e.RunJobs(f, 3); n != want {
			t.Fatalf("%d jobs, want %d", n, want)
		}
	}
	if next != 7 {
		t.Fatalf("stopped at %d", next)
	}
}

func TestTimersFireInOrder(t *testing.T) {
	e := newEnv()
	e.SetNow(1000)
	for i, d := range []int64{50, 10, 30, 10, 20, 0} {
		e.Tick(addrA, d, uint32(d), uint32(i), 0)
	}
	var got []uint32
	for {
		due, ok := e.NextTimer()
		if !ok {
			break
		}
		e.SetNow(due)
		e.FireTimers()
		e.RunJobs(func(p unsafe.Pointer) { got = append(got, (*signal.TickOrd)(p).A) }, 1<<30)
	}
	want := []uint32{5, 1, 3, 4, 2, 0}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}

func TestABufferBreaksAtItsHardLimitAndStaysUsable(t *testing.T) {
	e := newEnv()
	e.Via(9, 9)
	e.Buf(9).Init(64, 256)
	to := signal.MakeAddr(9, signal.BlockClient, 0)
	for range 100 {
		Send[signal.WriteConf](e, to, addrB, signal.NumWriteConf).Ref = 1
	}
	if !e.Buf(9).Broken {
		t.Fatal("not broken")
	}
	seen := 0
	e.TakeDirty(func(d Dest, b *Buf) {
		seen++
		if d != 9 || b.Len() > 256 {
			t.Fatalf("dest %d, %d bytes", d, b.Len())
		}
	})
	if seen != 1 {
		t.Fatalf("%d dirty", seen)
	}
	e.Buf(9).Close()
	Send[signal.WriteConf](e, to, addrB, signal.NumWriteConf).Ref = 1 // a closed link swallows
}

func TestPutDoesNotAllocate(t *testing.T) {
	e := newEnv()
	f := func(unsafe.Pointer) {}
	if n := testing.AllocsPerRun(1000, func() {
		Send[signal.StepConf](e, addrA, addrB, signal.NumCommitConf).TcRef = 1
		e.RunJobs(f, 10)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkHopLocal(b *testing.B) {
	e := newEnv()
	left := 0
	f := func(p unsafe.Pointer) {
		if left--; left > 0 {
			s := (*signal.StepConf)(p)
			Send[signal.StepConf](e, s.From, s.To, signal.NumCommitConf).TcRef = s.TcRef
		}
	}
	for n := b.N; n > 0; n -= 512 {
		left = min(n, 512)
		Send[signal.StepConf](e, addrA, addrB, signal.NumCommitConf).TcRef = 1
		e.RunJobs(f, 1<<30)
	}
}

func TestReportedEventsReachTheManager(t *testing.T) {
	e := newEnv()
	e.Place(signal.BlockManager, 0, 0)
	ev := event.New(1, event.Connected, 7).WithText("hello")
	e.Report(addrA, &ev)
	seen := 0
	e.RunJobs(func(p unsafe.Pointer) {
		r := (*signal.EventRep)(p)
		seen++
		if r.To != signal.MakeAddr(1, signal.BlockManager, 0) || r.From != addrA || r.Args[0] != 7 || string(r.Text()) != "hello" || r.Bytes()%4 != 0 {
			t.Fatalf("%s %q", signal.Format(&r.Head), r.Text())
		}
	}, 10)
	if seen != 1 {
		t.Fatalf("%d reports", seen)
	}
}

// An empty section at the end of a signal has an address in the buffer's own memory, however full that is.
func TestABufferHasRoomBehindItsLastByte(t *testing.T) {
	full := func(what string, b *Buf) {
		t.Helper()
		for b.cap > b.n {
			b.Reserve(4)
		}
		if got := b.Bytes(); len(got) != int(b.cap) || cap(got) <= len(got) {
			t.Errorf("%s: %d bytes of %d are filled", what, len(got), cap(got))
		}
	}
	var b Buf
	b.Init(64, 1<<10)
	full("a new one", &b)
	b.Reserve(100)
	full("one that grew", &b)
	b.Swap(make([]byte, 128))
	full("one that got other memory", &b)
	b.Close()
	b.Reserve(5000)
	full("a closed one", &b)
	b.Init(64, 1<<10)
	b.Reserve(2 << 10)
	full("a broken one", &b)
}

// Timers that are due are delivered ahead of signals that wait, in their order; those that they set wait for the next call.
func TestTimersRunAheadOfJobs(t *testing.T) {
	e := newEnv()
	e.SetNow(1000)
	Send[signal.StepConf](e, addrA, addrB, signal.NumCommitConf).TcRef = 1
	for _, d := range []int64{30, 10, 20, 40} {
		e.Tick(addrA, d, uint32(d), 0, 0)
	}
	e.SetNow(1030)
	var got []uint32
	run := func() {
		e.RunTimers(func(p unsafe.Pointer) {
			o := (*signal.TickOrd)(p)
			if got = append(got, o.Kind); o.To != addrA || o.From != addrA || o.Num != signal.NumTickOrd || o.Bytes() != uint32(unsafe.Sizeof(*o)) {
				t.Fatalf("%+v", o)
			}
			if o.Kind < 100 {
				e.Tick(addrA, 0, o.Kind+100, 0, 0)
			}
		})
	}
	run()
	run()
	want := []uint32{10, 20, 30, 110, 120, 130}
	if !slices.Equal(got, want) || !e.Jobs() {
		t.Fatalf("%v, want %v", got, want)
	}
}
