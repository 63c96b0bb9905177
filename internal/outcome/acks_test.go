package outcome

import (
	"testing"

	"github.com/cohortdb/cohort/internal/signal"
)

func TestAcksMoveTheWindow(t *testing.T) {
	a := NewAcks(2)
	s := func(n uint8, i uint16) signal.Addr { return signal.MakeAddr(n, signal.BlockClient, i) }
	if a.InWindow(s(51, 1), 1) || !a.Admit(s(51, 1), 0) || !a.InWindow(s(51, 1), 1) || !a.InWindow(s(51, 1), Window) || a.InWindow(s(51, 1), Window+1) {
		t.Fatal("a new session's window is not the first one")
	}
	a.Ack(s(51, 1), 7)
	a.Admit(s(51, 1), 3) // an older request
	if !a.InWindow(s(51, 1), Window+7) || a.InWindow(s(51, 1), 7) {
		t.Fatal("the window did not move to what was heard last")
	}
	a.Ack(s(52, 9), 7)
	if !a.Admit(s(52, 0), 0) || a.Admit(s(52, 9), 0) || a.Sessions() != 2 {
		t.Fatal("the bound does not hold")
	}
	a.Forget(s(52, 9))
	a.ForgetNode(51)
	if a.Sessions() != 1 || a.InWindow(s(51, 1), 8) || !a.Admit(s(53, 2), 0) {
		t.Fatal("nothing was given back")
	}
}
