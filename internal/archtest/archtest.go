// Package archtest checks the tree against the rules that keep it one design: who may import whom, what the
// deterministic core may not contain, and what every package and test owes its reader.
//
// It owns the table of layers (layers.go: a new package must be entered there), the rules of the core
// (purity.go) and the rules of style that a program can check (style.go). It reads sources only; it never
// runs what it checks. Every finding carries the reason of its rule, because whoever breaks one has usually
// not read the design. The rules are themselves tested against sources that break them (testdata).
//
// Types of imported packages come from the compiler's export data, which `go list -export` names: no
// package is checked from source twice, so the whole run takes about a second once the tree is built.
package archtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
)

// Module is the import path of the tree's root.
const Module = "github.com/cohortdb/cohort"

// Finding is one broken rule at one place.
type Finding struct {
	Where  string // file:line:column below the root, or a package
	Rule   string // short name of the rule, stable, used by the self-tests
	What   string // what was found
	Reason string // why the rule exists and what to do instead
}

func (f Finding) String() string {
	return fmt.Sprintf("%s: %s [%s]: %s", f.Where, f.What, f.Rule, f.Reason)
}

// Package is what `go list` knows about a package of the tree or of its dependencies.
type Package struct {
	ImportPath   string
	Name         string
	Dir          string
	Export       string // file with the compiler's export data
	Standard     bool   // part of the Go distribution
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
	// IgnoredGoFiles are left out on this platform by build constraints; the rules that need no types read them too.
	IgnoredGoFiles []string
	Imports        []string
	Module         *struct{ Path string }
}

// Path is the import path below the module, "" for the root itself.
func (p *Package) Path() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, Module), "/")
}

// Tree is the loaded source tree.
type Tree struct {
	Root     string
	Packages []*Package // packages of the module, sorted by import path
	all      map[string]*Package
	fset     *token.FileSet
	importer types.Importer
}

// Load reads the tree at root with everything it imports, and the packages named by extra besides.
func Load(root string, extra ...string) (*Tree, error) {
	args := append([]string{"list", "-export", "-deps",
		"-json=ImportPath,Name,Dir,Export,Standard,GoFiles,TestGoFiles,XTestGoFiles,IgnoredGoFiles,Imports,Module",
		"./..."}, extra...)
	list := exec.Command("go", args...)
	list.Dir = root
	var stderr strings.Builder
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.String())
	}
	t := &Tree{Root: root, all: map[string]*Package{}, fset: token.NewFileSet()}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		p := new(Package)
		if err := dec.Decode(p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list's output: %w", err)
		}
		t.all[p.ImportPath] = p
		if p.Module != nil && p.Module.Path == Module {
			t.Packages = append(t.Packages, p)
		}
	}
	sort.Slice(t.Packages, func(i, j int) bool { return t.Packages[i].ImportPath < t.Packages[j].ImportPath })
	t.importer = importer.ForCompiler(t.fset, "gc", func(path string) (io.ReadCloser, error) {
		p, ok := t.all[path]
		if !ok || p.Export == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(p.Export)
	})
	return t, nil
}

// parse reads files of one directory, comments included.
func (t *Tree) parse(dir string, names ...[]string) ([]*ast.File, error) {
	var files []*ast.File
	for _, list := range names {
		for _, name := range list {
			file, err := parser.ParseFile(t.fset, filepath.Join(dir, name), nil, parser.ParseComments)
			if err != nil {
				return nil, err
			}
			files = append(files, file)
		}
	}
	return files, nil
}

// check finds the types of a package's files.
func (t *Tree) check(path string, files []*ast.File) (*types.Info, error) {
	info := &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{},
		Uses:  map[*ast.Ident]types.Object{},
		Defs:  map[*ast.Ident]types.Object{},
	}
	conf := types.Config{Importer: t.importer, Sizes: types.SizesFor("gc", "amd64")}
	_, err := conf.Check(path, t.fset, files, info)
	return info, err
}

// where says where a node stands, with the path below the root.
func (t *Tree) where(pos token.Pos) string {
	p := t.fset.Position(pos)
	if below, err := filepath.Rel(t.Root, p.Filename); err == nil {
		p.Filename = below
	}
	return p.String()
}
