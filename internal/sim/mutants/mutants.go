// Package mutants keeps faults that somebody might put into the protocols, and proves that the simulator finds them.
//
// A mutant is a patch in this directory, a unified diff of one or a few source files with a head:
//
//	# what is wrong then, in a sentence
//	seeds: 200             at most so many seeds are run
//	args: --faults all     of cohort sim
//	found: words           the complaint must contain the words of one of these lines; without such a line any will do
//
// It is never applied to the tree: the changed files are written elsewhere, and the binary is built with `go build
// -overlay`. A hunk is found by its lines, wherever they are now; one whose lines are gone, or are there twice, does not
// apply, and the test says so: then the mutant is to be written anew (see docs/simulation.md).
//
// The package never changes a source file. Read next: the patches.
package mutants

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Mutant is a patch and what is said about it.
type Mutant struct {
	Name  string
	What  string
	Seeds int
	Args  []string
	Found []string
	files []file
}

// file is what a patch changes in a file.
type file struct {
	path  string // from the root of the module
	hunks []hunk
}

type hunk struct{ old, new []string }

// Read reads a mutant.
func Read(path string) (*Mutant, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m := &Mutant{Name: strings.TrimSuffix(filepath.Base(path), ".patch"), Seeds: 200}
	if err := m.parse(string(b)); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

func (m *Mutant) parse(text string) error {
	var h *hunk
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case h == nil && word == "#":
			m.What = strings.TrimSpace(m.What + " " + rest)
		case h == nil && word == "seeds:":
			n, err := strconv.Atoi(rest)
			if err != nil {
				return fmt.Errorf("line %d: %w", i+1, err)
			}
			m.Seeds = n
		case h == nil && word == "args:":
			m.Args = strings.Fields(rest)
		case h == nil && word == "found:":
			m.Found = append(m.Found, rest)
		case word == "---" || word == "diff" || word == "index":
			h = nil
		case word == "+++":
			path, _, _ := strings.Cut(rest, "\t")
			m.files = append(m.files, file{path: strings.TrimPrefix(path, "b/")})
		case word == "@@":
			if len(m.files) == 0 {
				return fmt.Errorf("line %d: a hunk of no file", i+1)
			}
			f := &m.files[len(m.files)-1]
			f.hunks = append(f.hunks, hunk{})
			h = &f.hunks[len(f.hunks)-1]
		case h != nil && line == "":
			h.old, h.new = append(h.old, ""), append(h.new, "")
		case h != nil && line[0] == ' ':
			h.old, h.new = append(h.old, line[1:]), append(h.new, line[1:])
		case h != nil && line[0] == '-':
			h.old = append(h.old, line[1:])
		case h != nil && line[0] == '+':
			h.new = append(h.new, line[1:])
		case h == nil && line == "":
		default:
			return fmt.Errorf("line %d is no line of a patch: %q", i+1, line)
		}
	}
	if m.What == "" || len(m.files) == 0 {
		return fmt.Errorf("a mutant says what is wrong, and changes a file")
	}
	return nil
}

// apply makes the changed text of a file.
func (f *file) apply(text string) (string, error) {
	lines := strings.Split(text, "\n")
	for i := range f.hunks {
		h := &f.hunks[i]
		at, times := 0, 0
		for k := 0; k+len(h.old) <= len(lines); k++ {
			if equal(lines[k:k+len(h.old)], h.old) {
				at = k
				times++
			}
		}
		if times != 1 {
			return "", fmt.Errorf("hunk %d fits %d places of %s: write the mutant anew", i+1, times, f.path)
		}
		lines = append(lines[:at:at], append(append([]string(nil), h.new...), lines[at+len(h.old):]...)...)
	}
	return strings.Join(lines, "\n"), nil
}

func equal(a, b []string) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

// Overlay writes the changed files of the tree at root into dir, and an overlay file for go build, whose path it returns.
func (m *Mutant) Overlay(root, dir string) (string, error) {
	replace := map[string]string{}
	for i := range m.files {
		f := &m.files[i]
		path := filepath.Join(root, f.path)
		b, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		changed, err := f.apply(string(b))
		if err != nil {
			return "", err
		}
		to := filepath.Join(dir, fmt.Sprintf("%d.go", i))
		if err := os.WriteFile(to, []byte(changed), 0o600); err != nil {
			return "", err
		}
		replace[path] = to
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, b, 0o600)
}
