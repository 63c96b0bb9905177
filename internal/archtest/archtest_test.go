package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// load reads the real tree, and what the sources of testdata import besides.
func load(t *testing.T) *Tree {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := Load(root, "context", "crypto/rand", "fmt", "iter", "log", "maps", "math/rand", "net", "os", "reflect",
		"runtime", "slices", "sync", "sync/atomic", "text/template", "time", "unsafe")
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.Packages) < 3 {
		t.Fatalf("only %d packages found below %s", len(tree.Packages), root)
	}
	return tree
}

func report(t *testing.T, found []Finding, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
}

func TestTree(t *testing.T) {
	tree := load(t)
	t.Run("imports follow the layers", func(t *testing.T) { report(t, tree.Layers(), nil) })
	t.Run("the core is deterministic", func(t *testing.T) {
		found, err := tree.Purity()
		report(t, found, err)
	})
	t.Run("packages introduce themselves", func(t *testing.T) {
		found, err := tree.Comments()
		report(t, found, err)
	})
	t.Run("tests neither sleep nor skip", func(t *testing.T) {
		found, err := tree.Tests()
		report(t, found, err)
	})
	t.Run("nothing is marked unfinished", func(t *testing.T) {
		found, err := Markers(tree.Root)
		report(t, found, err)
	})
	t.Run("links of documents lead somewhere", func(t *testing.T) {
		found, err := Links(tree.Root)
		report(t, found, err)
	})
	t.Run("the map has every package in its layer", func(t *testing.T) {
		found, err := tree.Map("ARCHITECTURE.md")
		report(t, found, err)
	})
	t.Run("sources that break the rules are caught", func(t *testing.T) { selfTests(t, tree) })
}

// selfTests shows that the checks find what they are for, and only that.
func selfTests(t *testing.T, tree *Tree) {
	t.Run("purity", func(t *testing.T) {
		dir, err := filepath.Abs("testdata/impure")
		if err != nil {
			t.Fatal(err)
		}
		found, err := tree.purityOf("impure", dir, []string{"statements.go", "world.go"}, []string{"other_platform.go"})
		if err != nil {
			t.Fatal(err)
		}
		compare(t, dir, tree.Root, found)
	})
	t.Run("habits of tests", func(t *testing.T) {
		dir, err := filepath.Abs("testdata/habits")
		if err != nil {
			t.Fatal(err)
		}
		files, err := tree.parse(dir, []string{"habits.txt"})
		if err != nil {
			t.Fatal(err)
		}
		compare(t, dir, tree.Root, tree.habits(files[0]))
	})
	t.Run("package comments", func(t *testing.T) {
		dir := t.TempDir()
		for source, good := range map[string]bool{
			"// Package p does things.\npackage p":    true,
			"// This package does things.\npackage p": false,
			"// Package pq does things.\npackage p":   false,
			"package p":                               false,
		} {
			if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(source), 0o644); err != nil {
				t.Fatal(err)
			}
			files, err := tree.parse(dir, []string{"p.go"})
			if err != nil {
				t.Fatal(err)
			}
			if found := commentOf(&Package{Name: "p", Dir: dir}, files); (len(found) == 0) != good {
				t.Errorf("%q: %v", source, found)
			}
		}
	})
	t.Run("markers and links", func(t *testing.T) {
		dir := t.TempDir()
		text := "a " + "TO" + "DO here\nmktemp XXXXXX\nsee [that](there.md) and [this](here.md#top), [web](https://example.org)\n"
		if err := os.WriteFile(filepath.Join(dir, "here.md"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		markers, err := Markers(dir)
		if err != nil || len(markers) != 1 || markers[0].Where != "here.md:1" {
			t.Errorf("markers: %v, %v", markers, err)
		}
		links, err := Links(dir)
		if err != nil || len(links) != 1 || !strings.Contains(links[0].What, "there.md") {
			t.Errorf("links: %v, %v", links, err)
		}
	})
	t.Run("map", func(t *testing.T) {
		text := "| layer | package | purpose |\n| --- | --- | --- |\n| 0 | `internal/signal` | a |\n| 3 | `internal/kernel` | b |\n" +
			"| – | `internal/pool` | c |\n| 2 | `internal/nowhere` | d |\n| 1 | `config` | e |\n| 1 | `config` | e |\n"
		var got []string
		for _, f := range compareMap("A.md", text, []string{"config", "internal/signal", "internal/kernel", "internal/pool", "internal/store"}) {
			got = append(got, f.What)
		}
		want := []string{"two rows for `config`", "`internal/kernel` is in layer 3, not 2", "no row for `internal/store`, of layer 1",
			"a row for `internal/nowhere`, which does not exist"}
		if !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	})
	t.Run("layers", func(t *testing.T) {
		for _, c := range []struct{ from, to, complaint string }{
			{"internal/kernel", "internal/signal", ""},
			{"internal/ldm", "internal/store", ""},
			{"internal/store", "internal/schema", ""},
			{"internal/ldm", "internal/invariant", ""},
			{"cmd/cohort", "internal/up", ""},
			{"internal/ldm", "internal/coordinator", "sideways in layer 3"},
			{"internal/schema", "internal/store", "sideways in layer 1"},
			{"internal/signal", "internal/kernel", "from layer 0 up to layer 2"},
			{"internal/host", "ndb", "from layer 5 up to layer 6"},
			{"internal/invariant", "internal/signal", "imports internal/signal"},
			{"internal/datanode", "internal/host", "imports internal/host"},
			{"internal/host", "internal/nowhere", "stands in no layer"},
		} {
			what, reason := judge(c.from, layers[c.from], c.to)
			if (what == "") != (c.complaint == "") || !strings.Contains(what, c.complaint) {
				t.Errorf("%s imports %s: %q, want %q", c.from, c.to, what, c.complaint)
			}
			if (what == "") != (reason == "") {
				t.Errorf("%s imports %s: complaint %q has reason %q", c.from, c.to, what, reason)
			}
		}
		unknown := &Package{ImportPath: Module + "/internal/nowhere"}
		if found := tree.layersOf(unknown); len(found) != 1 {
			t.Errorf("a package outside the table: %v", found)
		}
	})
}

var want = regexp.MustCompile(`want: ([a-zA-Z/ ]+?)( \*/.*)?$`)

// compare holds the findings against the want comments of the sources in dir: rules by file and line, both ways.
func compare(t *testing.T, dir, root string, found []Finding) {
	t.Helper()
	var wanted, got []string
	below, err := filepath.Rel(root, dir)
	if err != nil {
		t.Fatal(err)
	}
	err = walkTexts(dir, func(name, text string, line int) {
		if m := want.FindStringSubmatch(text); m != nil {
			rules := []string{m[1]}
			if m[1] == "channel clock" {
				rules = strings.Fields(m[1])
			}
			for _, rule := range rules {
				wanted = append(wanted, fmt.Sprintf("%s:%d %s", filepath.Join(below, name), line, rule))
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.What == "" || f.Reason == "" {
			t.Errorf("a finding without words: %+v", f)
		}
		place := f.Where[:strings.LastIndexByte(f.Where, ':')]
		got = append(got, place+" "+f.Rule)
	}
	slices.Sort(wanted)
	slices.Sort(got)
	got = slices.Compact(got)
	if len(wanted) == 0 {
		t.Fatal("no want comment found")
	}
	for _, w := range wanted {
		if !slices.Contains(got, w) {
			t.Errorf("not caught: %s", w)
		}
	}
	for _, g := range got {
		if !slices.Contains(wanted, g) {
			t.Errorf("caught without cause: %s", g)
		}
	}
}
