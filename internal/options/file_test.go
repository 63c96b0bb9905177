package options

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAFileThatNeverEndsIsAnError(t *testing.T) {
	if _, err := ReadFile("/dev/zero"); err == nil || !strings.Contains(err.Error(), "/dev/zero is longer than") {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := ReadFile(name); err != nil || string(b) != "x" {
		t.Fatal(string(b), err)
	}
}
