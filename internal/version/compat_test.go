package version

import "testing"

func TestTextIsWhatShowPrints(t *testing.T) {
	if got := Text(Number); got != "cohort-"+String() {
		t.Fatalf("Text(Number) = %q", got)
	}
	if got := Text(0); got != "unknown" {
		t.Fatalf("Text(0) = %q", got)
	}
}

func TestBuildsMixAndMinorsByOne(t *testing.T) {
	for _, c := range []struct {
		a, b uint32
		want bool
	}{
		{0x000100, 0x000107, true},
		{0x000100, 0x000200, true},
		{0x000200, 0x000100, true},
		{0x000100, 0x000300, false},
		{0x000100, 0x010100, false},
	} {
		if got := Compatible(c.a, c.b); got != c.want {
			t.Errorf("Compatible(%#x, %#x) = %v", c.a, c.b, got)
		}
	}
}
