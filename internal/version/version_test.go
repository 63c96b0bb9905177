package version

import "testing"

func TestPackedNumberAndDottedFormAgree(t *testing.T) {
	if got := Format(Number); got != String() {
		t.Fatalf("Format(Number) = %q, String() = %q", got, String())
	}
	if got := Format(524320); got != "8.0.32" {
		t.Fatalf("Format(524320) = %q, the protocol's example says 8.0.32", got)
	}
}
