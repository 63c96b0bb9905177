package exitcode

import "testing"

func TestEveryStatusHasAWordAndOthersHaveNone(t *testing.T) {
	for _, c := range []int{Done, Config, Refused, NodeLost, StartFailed, Lagging, Bug, Memory, Network, Management, StoppedByForce} {
		if Text(c) == "" {
			t.Errorf("status %d has no word", c)
		}
	}
	for _, c := range []int{-1, 1, 2, firstUnassigned, 1 << 20} {
		if Text(c) != "" {
			t.Errorf("status %d has the word %q", c, Text(c))
		}
	}
}
