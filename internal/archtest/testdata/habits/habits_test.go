package habits

import (
	"testing"
	nap "time"
)

type decoder struct{}

func (decoder) Skip() {}

func TestHabits(t *testing.T) {
	nap.Sleep(nap.Second) // want: sleep
	if testing.Short() {
		t.Skip("takes a minute")
	} else {
		t.SkipNow() // want: skip
	}
	if !testing.Verbose() {
		t.Skipf("because %d", 1) // want: skip
	}
	var d decoder
	d.Skip()
	t.Run("inner", func(inner *testing.T) {
		inner.Skip() // want: skip
	})
	<-nap.After(nap.Millisecond)
}

func FuzzHabits(f *testing.F) {
	helper := func(tb testing.TB) { tb.SkipNow() } // want: skip
	helper(f)
}
