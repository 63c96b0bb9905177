package mutants

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var (
	only = flag.String("mutants", "few", "which mutants are built and run: few, all, or a name")
	few  = map[string]bool{}
)

const root = "../../.."

func all(t *testing.T) []*Mutant {
	t.Helper()
	paths, err := filepath.Glob("*.patch")
	if err != nil || len(paths) < 12 {
		t.Fatalf("%d mutants, %v", len(paths), err)
	}
	var list []*Mutant
	for _, p := range paths {
		m, err := Read(p)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
	}
	return list
}

// TestEveryMutantApplies says which patches are to be written anew.
func TestEveryMutantApplies(t *testing.T) {
	for _, m := range all(t) {
		if _, err := m.Overlay(root, t.TempDir()); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}

// TestMutantsAreCaught builds mutants and lets them run until a seed complains as it must.
func TestMutantsAreCaught(t *testing.T) {
	list := all(t)
	for i, m := range list {
		few[m.Name] = i%(len(list)/3) == 0
	}
	abs, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		if *only != "all" && *only != m.Name && !(*only == "few" && few[m.Name]) {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			dir := t.TempDir()
			overlay, err := m.Overlay(abs, dir)
			if err != nil {
				t.Fatal(err)
			}
			bin := filepath.Join(dir, "cohort")
			build := exec.Command("go", "build", "-overlay", overlay, "-o", bin, "./cmd/cohort")
			build.Dir = abs
			build.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Log(m.hunt(t, bin))
		})
	}
}

// hunt runs seeds until one fails, and demands the right complaint.
func (m *Mutant) hunt(t *testing.T, bin string) string {
	t.Helper()
	const step = 4
	for first := 1; first <= m.Seeds; first += step {
		args := append([]string{"sim", "--seeds", fmt.Sprintf("%d-%d", first, first+step-1)}, m.Args...)
		var out bytes.Buffer
		run := exec.Command(bin, args...)
		run.Stdout, run.Stderr = &out, &out
		err := run.Run()
		if err == nil {
			continue
		}
		var status *exec.ExitError
		if !errors.As(err, &status) || status.ExitCode() != 1 {
			t.Fatalf("%v\n%s", err, out.String())
		}
		var complaints []string
		for _, line := range strings.Split(out.String(), "\n") {
			if strings.HasPrefix(line, "seed ") && strings.Contains(line, " failed at ") {
				complaints = append(complaints, line)
			}
		}
		for _, c := range complaints {
			if len(m.Found) == 0 {
				return c
			}
			for _, f := range m.Found {
				if strings.Contains(c, f) {
					return c
				}
			}
		}
		t.Fatalf("caught, but by the wrong complaint:\n%s", strings.Join(complaints, "\n"))
	}
	t.Fatalf("%d seeds, and nobody noticed", m.Seeds)
	return ""
}
