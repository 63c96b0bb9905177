package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestBenchFailover runs the benchmark in its shortest form: no update that was acknowledged is lost, and a program that
// retries sees no error.
func TestBenchFailover(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.json")
	args := []string{"bench", "failover", "--data-nodes", "2", "--kinds", "kill,cut", "--repeat", "1", "--rate", "400", "--rows", "1000", "--loopback", "--json", file}
	if status, out, said := Run(t, "cohort", args...); status != 0 {
		t.Fatalf("status %d\n%s\n%s", status, out, said)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Rows []struct {
			Kind, Note   string
			Errors       map[string]int
			Acknowledged int
			Lost         int
		}
	}
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, r := range f.Rows {
		rows[r.Kind] = true
		if r.Kind != "kill" {
			continue
		}
		if r.Lost != 0 || r.Acknowledged < 200 {
			t.Errorf("%s: %d of %d acknowledged updates are lost", r.Kind, r.Lost, r.Acknowledged)
		}
		for class, n := range r.Errors {
			t.Errorf("%s: a program would have seen %d errors of class %s", r.Kind, n, class)
		}
	}
	for _, kind := range []string{"kill", "cut", "deadlock", "idle"} {
		if !rows[kind] {
			t.Errorf("there is no row of kind %s", kind)
		}
	}
}
