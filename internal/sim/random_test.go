package sim

import "testing"

func TestComponentsHaveStreamsOfTheirOwn(t *testing.T) {
	a, b := NewRandom(5), NewRandom(5)
	b.Uint64() // one more draw somewhere …
	x, y := a.Sub("network"), b.Sub("network")
	for range 100 { // … moves no other component
		if x.Uint64() != y.Uint64() {
			t.Fatal("the stream of a component depends on what others drew")
		}
	}
	if NewRandom(5).Sub("network").Uint64() == NewRandom(5).Sub("load").Uint64() ||
		NewRandom(5).Sub("network").Uint64() == NewRandom(6).Sub("network").Uint64() {
		t.Fatal("two streams are the same")
	}
}

func TestDrawsStayInTheirRangesAndReachTheirEnds(t *testing.T) {
	r := NewRandom(1)
	low, high, hits := 1<<30, 0, 0
	var sum, most int64
	for range 100_000 {
		k := r.Between(3, 7)
		low, high = min(low, k), max(high, k)
		if r.Chance(1, 4) {
			hits++
		}
		e := r.Exponential(1000)
		sum, most = sum+e, max(most, e)
	}
	if low != 3 || high != 7 {
		t.Errorf("Between(3, 7) drew from %d to %d", low, high)
	}
	if hits < 24_000 || hits > 26_000 {
		t.Errorf("a chance of 1 in 4 came %d times in 100000", hits)
	}
	if mean := sum / 100_000; mean < 800 || mean > 1200 || most > 8000 || most < 4000 {
		t.Errorf("Exponential(1000): mean %d, most %d", mean, most)
	}
	if r.Exponential(0) != 0 {
		t.Error("a mean of nothing gives something")
	}
}
