package sim

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRegressions runs what once failed: each file in testdata/regressions is a command line, as the minimiser prints it,
// with a comment that says what was wrong. What follows --schedule is one argument, to the end of its line.
func TestRegressions(t *testing.T) {
	files, err := filepath.Glob("testdata/regressions/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no regressions: ", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var args []string
			for _, line := range strings.Split(string(text), "\n") {
				before, schedule, found := strings.Cut(line, "--schedule ")
				if strings.HasPrefix(line, "#") {
					continue
				}
				args = append(args, strings.Fields(before)...)
				if found {
					args = append(args, "--schedule", schedule)
				}
			}
			var out, stderr bytes.Buffer
			if status := Main(args, &out, &stderr); status != 0 {
				t.Fatalf("status %d\n%s\n%s", status, stderr.String(), out.String())
			}
		})
	}
}
