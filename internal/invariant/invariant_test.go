package invariant

import (
	"errors"
	"testing"
)

func TestBrokenAssertionNamesItsReason(t *testing.T) {
	defer func() {
		err, _ := recover().(error)
		var v Violation
		if !errors.As(err, &v) || v.Reason != "ring 3: 9 of 8" {
			t.Fatalf("recovered %v", err)
		}
	}()
	That(true, "must not fire")
	Failf("ring %d: %d of %d", 3, 9, 8)
}

func TestThatCostsNoAllocation(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { That(true, "x") }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
