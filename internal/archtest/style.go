package archtest

import (
	"bufio"
	"fmt"
	"go/ast"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Comments checks that every package says in its package comment what it is.
func (t *Tree) Comments() ([]Finding, error) {
	var found []Finding
	for _, p := range t.Packages {
		files, err := t.parse(p.Dir, p.GoFiles, p.TestGoFiles)
		if err != nil {
			return nil, err
		}
		found = append(found, commentOf(p, files)...)
	}
	return found, nil
}

func commentOf(p *Package, files []*ast.File) []Finding {
	opening := "Package " + p.Name + " "
	if p.Name == "main" {
		opening = "Command " + filepath.Base(p.Dir) + " "
	}
	for _, file := range files {
		if file.Doc != nil && strings.HasPrefix(file.Doc.Text(), opening) {
			return nil
		}
	}
	return []Finding{{p.Path(), "package comment", fmt.Sprintf("no package comment opens with %q", opening),
		"a reader starts at the package comment: purpose, what it owns, what it never does, invariants, what to read next"}}
}

// Tests checks the habits of test files: no sleeping for a time, no skipping except of long tests.
func (t *Tree) Tests() ([]Finding, error) {
	var found []Finding
	for _, p := range t.Packages {
		files, err := t.parse(p.Dir, p.TestGoFiles, p.XTestGoFiles)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			found = append(found, t.habits(file)...)
		}
	}
	return found, nil
}

func (t *Tree) habits(file *ast.File) []Finding {
	var found []Finding
	timeName := importedAs(file, "time")
	testers := testerNames(file)
	var path []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			path = path[:len(path)-1]
			return true
		}
		path = append(path, n)
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		receiver, ok := selector.X.(*ast.Ident)
		if !ok {
			return true
		}
		switch name := selector.Sel.Name; {
		case receiver.Name == timeName && name == "Sleep":
			found = append(found, Finding{t.where(n.Pos()), "sleep", "a test sleeps",
				"a test that waits for a time is slow on a fast machine and wrong on a slow one: wait for the condition"})
		case testers[receiver.Name] && (name == "Skip" || name == "Skipf" || name == "SkipNow") && !underShort(path):
			found = append(found, Finding{t.where(n.Pos()), "skip", "a test skips itself",
				"a skipped test hides a fault; only a long test may skip itself, inside if testing.Short()"})
		}
		return true
	})
	return found
}

// importedAs is the name of an imported package in a file, "" if it is not imported.
func importedAs(file *ast.File, path string) string {
	for _, spec := range file.Imports {
		if got, err := strconv.Unquote(spec.Path.Value); err != nil || got != path {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return filepath.Base(path)
	}
	return ""
}

// testerNames are the names of all parameters of a file whose type is testing.T, B, F or TB.
func testerNames(file *ast.File) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok {
			return true
		}
		kind := field.Type
		if star, ok := kind.(*ast.StarExpr); ok {
			kind = star.X
		}
		if selector, ok := kind.(*ast.SelectorExpr); ok && isName(selector.X, "testing") {
			switch selector.Sel.Name {
			case "T", "B", "F", "TB":
				for _, name := range field.Names {
					names[name.Name] = true
				}
			}
		}
		return true
	})
	return names
}

// underShort reports whether the innermost node stands in the body of an if whose condition asks testing.Short().
func underShort(path []ast.Node) bool {
	for i, n := range path {
		branch, ok := n.(*ast.IfStmt)
		if !ok || i+1 == len(path) || path[i+1] != branch.Body {
			continue
		}
		asks := false
		ast.Inspect(branch.Cond, func(n ast.Node) bool {
			if selector, ok := n.(*ast.SelectorExpr); ok && isName(selector.X, "testing") && selector.Sel.Name == "Short" {
				asks = true
			}
			return true
		})
		if asks {
			return true
		}
	}
	return false
}

func isName(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

// unfinished are the words that mark unfinished work; put together here so that this file has none.
var unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)

// textFile tells the files that people wrote from the rest.
var textFile = regexp.MustCompile(`(\.(go|s|md|sh|cnf|ini|txt|yml|yaml|conf)|/Makefile|/\.ci/run)$`)

// Markers looks for words that mark unfinished work in every text file below root.
func Markers(root string) ([]Finding, error) {
	var found []Finding
	err := walkTexts(root, func(below, text string, line int) {
		if word := unfinished.FindString(text); word != "" {
			found = append(found, Finding{fmt.Sprintf("%s:%d", below, line), "marker", "the word " + word,
				"finish the work, or say in words what is not supported and answer with that error"})
		}
	})
	return found, err
}

var markdownLink = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)

// Links checks that what documents point to inside the tree exists.
func Links(root string) ([]Finding, error) {
	var found []Finding
	err := walkTexts(root, func(below, text string, line int) {
		if filepath.Ext(below) != ".md" || strings.HasPrefix(text, "    ") { // code: an index and a call look like a link
			return
		}
		for _, link := range markdownLink.FindAllStringSubmatch(text, -1) {
			if strings.Contains(link[1], "://") || strings.HasPrefix(link[1], "mailto:") {
				continue
			}
			target := filepath.Join(root, filepath.Dir(below), link[1])
			if _, err := os.Stat(target); err != nil {
				found = append(found, Finding{fmt.Sprintf("%s:%d", below, line), "link", "a link to " + link[1] + ", which does not exist",
					"documents are read in place of the code: they must be true"})
			}
		}
	})
	return found, err
}

// walkTexts calls visit for every line of every text file below root, build results and test data of editors aside.
func walkTexts(root string, visit func(below, text string, line int)) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			switch below {
			case ".git", "bin", "out", "cohort-data":
				return filepath.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() || !textFile.MatchString("/"+filepath.ToSlash(below)) {
			return nil
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 1<<20)
		for n := 1; lines.Scan(); n++ {
			visit(below, lines.Text(), n)
		}
		return lines.Err()
	})
}

// mapRow is a row of the architecture document's table: layer, package, purpose.
var mapRow = regexp.MustCompile("(?m)^\\| (\\S+) \\| `([^`]+)` \\| .+ \\|$")

// Map checks that the architecture document's table has every package in its layer, and nothing else.
func (t *Tree) Map(document string) ([]Finding, error) {
	text, err := os.ReadFile(filepath.Join(t.Root, document))
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, p := range t.Packages {
		paths = append(paths, p.Path())
	}
	return compareMap(document, string(text), paths), nil
}

func compareMap(document, text string, packages []string) []Finding {
	var found []Finding
	complain := func(what string) {
		found = append(found, Finding{document, "map", what,
			"the document is the map of the house: its table has every package, in its layer, with its purpose"})
	}
	rows := map[string]string{}
	for _, row := range mapRow.FindAllStringSubmatch(text, -1) {
		if rows[row[2]] != "" {
			complain("two rows for `" + row[2] + "`")
		}
		rows[row[2]] = row[1]
	}
	for _, path := range packages {
		where, ok := layers[path]
		if !ok {
			continue // the check of layers complains
		}
		layer := strconv.Itoa(where.layer)
		if where.layer == support || where.layer == layerOfChecks {
			layer = "–"
		}
		switch rows[path] {
		case layer:
		case "":
			complain("no row for `" + path + "`, of layer " + layer)
		default:
			complain("`" + path + "` is in layer " + rows[path] + ", not " + layer)
		}
		delete(rows, path)
	}
	for _, path := range slices.Sorted(maps.Keys(rows)) {
		complain("a row for `" + path + "`, which does not exist")
	}
	return found
}
