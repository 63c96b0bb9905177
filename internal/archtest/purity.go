package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strconv"
	"strings"
)

// Reasons, by the kind of thing that the core may not contain.
const (
	whyGo     = "the core is run by whoever calls it, one signal at a time; a goroutine's schedule cannot be repeated from a seed"
	whyChan   = "blocks talk by signals, which the simulator can delay, reorder and replay; a channel hides its traffic from it"
	whyLock   = "what must be shared is owned by one thread and reached by signals; a lock says that two threads touch one thing"
	whyClock  = "the only time in the core is the one stamped on a delivery; timeouts are delayed signals"
	whyIO     = "disk, network and process are addresses that answer with signals; files and sockets belong to host, mgm and the commands"
	whyRandom = "randomness comes from the seeded source of Env, or a seed does not repeat the run"
	whyOrder  = "the order of a map differs from run to run; keep a slice beside it or sort first"
	whyPrint  = "what a node has to say are typed events, from which log, metrics and tests all feed"
	whyState  = "a simulated cluster has all its nodes in one process: a package variable that changes is shared by nodes that know each other only by signals"
	whyLink   = "it reaches past the rules of this test, to the runtime's own clock, scheduler or random source"
	whyList   = "the core uses only standard packages that were found free of I/O, clock, randomness and goroutines: if this one is, enter it in internal/archtest/purity.go"
)

// pureImports are the standard packages that the core may use.
var pureImports = map[string]bool{
	"bufio": true, "bytes": true, "cmp": true, "container/heap": true, "encoding": true, "encoding/base64": true,
	"encoding/binary": true, "encoding/hex": true, "errors": true, "fmt": true, "hash": true, "hash/crc32": true,
	"hash/crc64": true, "hash/fnv": true, "io": true, "iter": true, "maps": true, "math": true, "math/big": true,
	"math/bits": true, "slices": true, "sort": true, "strconv": true, "strings": true, "text/tabwriter": true,
	"time": true, "unicode": true, "unicode/utf8": true, "unsafe": true,
}

// bannedImports have a reason of their own; an entry that ends in a slash stands for all packages below it.
var bannedImports = []struct{ path, rule, reason string }{
	{"sync", "lock", whyLock}, {"sync/", "lock", whyLock},
	{"os", "I/O", whyIO}, {"os/", "I/O", whyIO}, {"net", "I/O", whyIO}, {"net/", "I/O", whyIO},
	{"syscall", "I/O", whyIO}, {"io/", "I/O", whyIO}, {"path/filepath", "I/O", whyIO}, {"embed", "I/O", whyIO},
	{"log", "print", whyPrint}, {"log/", "print", whyPrint}, {"expvar", "print", whyPrint},
	{"math/rand", "random", whyRandom}, {"math/rand/", "random", whyRandom}, {"crypto/rand", "random", whyRandom},
	{"hash/maphash", "random", whyRandom + " (its hashes are seeded anew in every process)"},
	{"context", "clock", whyClock + "; a context brings a clock, a lock and a channel"},
	{"runtime", "go", whyGo}, {"runtime/", "go", whyGo},
	{"reflect", "reflect", "reflection walks maps in random order and allocates; the core knows its types"},
	{"C", "I/O", "the binary is static and built without cgo"},
}

// bannedNames are functions and variables of allowed packages that the core may not use.
var bannedNames = map[string]struct{ rule, reason string }{
	"fmt.Print": {"print", whyPrint}, "fmt.Printf": {"print", whyPrint}, "fmt.Println": {"print", whyPrint},
	"fmt.Scan": {"I/O", whyIO}, "fmt.Scanf": {"I/O", whyIO}, "fmt.Scanln": {"I/O", whyIO},
	"maps.Keys": {"map order", whyOrder}, "maps.Values": {"map order", whyOrder}, "maps.All": {"map order", whyOrder},
	"maps.DeleteFunc": {"map order", whyOrder}, "maps.EqualFunc": {"map order", whyOrder},
	"iter.Pull": {"go", whyGo + "; a pulled iterator is a coroutine"}, "iter.Pull2": {"go", whyGo + "; a pulled iterator is a coroutine"},
	"builtin.print": {"print", whyPrint}, "builtin.println": {"print", whyPrint},
}

// excused are imports that one package of the core may have all the same, each with its reason.
var excused = map[[2]string]string{
	{"internal/signal", "reflect"}: "printing a signal for a trace walks the fields of its struct, in their order, and no path but that",
}

// pureTimes are the only things of package time that do not look at a clock, or at the machine's time zone.
var pureTimes = map[string]bool{
	"Duration": true, "ParseDuration": true, "Nanosecond": true, "Microsecond": true, "Millisecond": true,
	"Second": true, "Minute": true, "Hour": true,
}

// Purity checks every package of the core and every pure support.
func (t *Tree) Purity() ([]Finding, error) {
	var found []Finding
	for _, p := range t.Packages {
		if where, ok := layers[p.Path()]; !ok || !isPure(where) {
			continue
		}
		f, err := t.purityOf(p.ImportPath, p.Dir, p.GoFiles, p.IgnoredGoFiles)
		if err != nil {
			return nil, err
		}
		found = append(found, f...)
	}
	return found, nil
}

// purityOf checks one package: with types what is built here, without what is built on other platforms.
func (t *Tree) purityOf(path, dir string, names, ignored []string) ([]Finding, error) {
	files, err := t.parse(dir, names)
	if err != nil {
		return nil, err
	}
	info, err := t.check(path, files)
	if err != nil {
		return nil, fmt.Errorf("types of %s: %w", path, err)
	}
	var nonTests []string
	for _, name := range ignored {
		if !strings.HasSuffix(name, "_test.go") {
			nonTests = append(nonTests, name)
		}
	}
	foreign, err := t.parse(dir, nonTests)
	if err != nil {
		return nil, err
	}
	c := &purity{tree: t, path: strings.TrimPrefix(path, Module+"/"), info: info}
	c.starters = c.startersOf(files)
	for _, file := range append(files, foreign...) {
		c.file(file)
	}
	return c.found, nil
}

// purity is one walk over the files of a package.
type purity struct {
	tree     *Tree
	path     string      // of the package, below the module
	info     *types.Info // knows nothing about files of other platforms: their types are nil
	found    []Finding
	starters map[types.Object]bool // functions that run only while the program starts
	starting bool                  // inside one of them, or func init: it may fill package variables
}

func (c *purity) complain(pos token.Pos, rule, what, reason string) {
	c.found = append(c.found, Finding{c.tree.where(pos), rule, what, reason})
}

func (c *purity) file(file *ast.File) {
	for _, spec := range file.Imports {
		c.importSpec(spec)
	}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if strings.HasPrefix(comment.Text, "//go:"+"linkname") {
				c.complain(comment.Pos(), "linkname", "a link name", whyLink)
			}
		}
	}
	for _, decl := range file.Decls {
		c.starting = c.startsUp(decl)
		ast.Inspect(decl, c.node)
	}
}

// startsUp reports whether a declaration is executed only while the program starts.
func (c *purity) startsUp(decl ast.Decl) bool {
	f, ok := decl.(*ast.FuncDecl)
	return !ok || (f.Recv == nil && f.Name.Name == "init") || c.starters[c.info.Defs[f.Name]]
}

// startersOf finds the functions that are called from nowhere but func init, package variables and one another.
func (c *purity) startersOf(files []*ast.File) map[types.Object]bool {
	c.starters = map[types.Object]bool{}
	for _, file := range files {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && !f.Name.IsExported() {
				c.starters[c.info.Defs[f.Name]] = true
			}
		}
	}
	for before := -1; before != len(c.starters); {
		before = len(c.starters)
		for _, file := range files {
			for _, decl := range file.Decls {
				if !c.startsUp(decl) {
					ast.Inspect(decl, func(n ast.Node) bool {
						if id, ok := n.(*ast.Ident); ok {
							delete(c.starters, c.info.Uses[id])
						}
						return true
					})
				}
			}
		}
	}
	return c.starters
}

func (c *purity) importSpec(spec *ast.ImportSpec) {
	path, err := strconv.Unquote(spec.Path.Value)
	if err != nil || strings.HasPrefix(path, Module+"/") {
		return // packages of the tree are judged by the table of layers
	}
	if excused[[2]string{c.path, path}] != "" {
		return
	}
	for _, ban := range bannedImports {
		if path == ban.path || (strings.HasSuffix(ban.path, "/") && strings.HasPrefix(path, ban.path)) {
			c.complain(spec.Pos(), ban.rule, "imports "+path, ban.reason)
			return
		}
	}
	if !pureImports[path] {
		c.complain(spec.Pos(), "import", "imports "+path, whyList)
	}
}

func (c *purity) node(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		c.complain(n.Pos(), "go", "a go statement", whyGo)
	case *ast.ChanType:
		c.complain(n.Pos(), "channel", "a channel type", whyChan)
	case *ast.SendStmt:
		c.complain(n.Pos(), "channel", "a send on a channel", whyChan)
	case *ast.SelectStmt:
		c.complain(n.Pos(), "select", "a select statement", whyChan)
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			c.complain(n.Pos(), "channel", "a receive from a channel", whyChan)
		}
	case *ast.RangeStmt:
		c.rangeStmt(n)
	case *ast.Ident:
		c.name(n)
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			for _, target := range n.Lhs {
				c.written(target)
			}
		}
	case *ast.IncDecStmt:
		c.written(n.X)
	}
	return true
}

func (c *purity) rangeStmt(n *ast.RangeStmt) {
	if n.Tok == token.ASSIGN {
		for _, target := range []ast.Expr{n.Key, n.Value} {
			if target != nil {
				c.written(target)
			}
		}
	}
	switch ranged := c.info.TypeOf(n.X); {
	case ranged == nil:
	case hasKind[*types.Map](ranged):
		c.complain(n.Pos(), "map order", "a range over a map", whyOrder)
	case hasKind[*types.Chan](ranged):
		c.complain(n.Pos(), "channel", "a range over a channel", whyChan)
	}
}

// name judges the use of something from another package, or of a builtin.
func (c *purity) name(id *ast.Ident) {
	object := c.info.Uses[id]
	if object == nil {
		return
	}
	if _, builtin := object.(*types.Builtin); builtin {
		if ban, ok := bannedNames["builtin."+id.Name]; ok {
			c.complain(id.Pos(), ban.rule, id.Name, ban.reason)
		}
		return
	}
	if f, ok := object.(*types.Func); ok && (f.FullName() == "(reflect.Value).MapRange" || f.FullName() == "(reflect.Value).MapKeys") {
		c.complain(id.Pos(), "map order", f.FullName(), whyOrder)
	}
	if object.Pkg() == nil || object.Parent() != object.Pkg().Scope() {
		return
	}
	name := object.Pkg().Path() + "." + object.Name()
	if ban, ok := bannedNames[name]; ok {
		c.complain(id.Pos(), ban.rule, name, ban.reason)
	}
	if object.Pkg().Path() == "time" && !pureTimes[object.Name()] {
		c.complain(id.Pos(), "clock", name, whyClock)
	}
}

// written judges an assignment: its target may not lie in a package variable, except at start.
func (c *purity) written(target ast.Expr) {
	for !c.starting {
		switch e := target.(type) {
		case *ast.ParenExpr:
			target = e.X
		case *ast.IndexExpr:
			target = e.X
		case *ast.SelectorExpr:
			target = e.X
		case *ast.StarExpr:
			target = e.X
		case *ast.Ident:
			v, ok := c.info.Uses[e].(*types.Var)
			if ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() {
				c.complain(e.Pos(), "package state", "package variable "+e.Name+" is changed", whyState)
			}
			return
		default:
			return
		}
	}
}

// hasKind reports whether a type, or a type that its type parameter admits, is of kind K.
func hasKind[K types.Type](t types.Type) bool {
	if _, ok := t.Underlying().(K); ok {
		return true
	}
	parameter, ok := types.Unalias(t).(*types.TypeParam)
	if !ok {
		return false
	}
	constraint, ok := parameter.Constraint().Underlying().(*types.Interface)
	if !ok {
		return false
	}
	for i := range constraint.NumEmbeddeds() {
		switch e := types.Unalias(constraint.EmbeddedType(i)).(type) {
		case *types.Union:
			for j := range e.Len() {
				if hasKind[K](e.Term(j).Type()) {
					return true
				}
			}
		default:
			if hasKind[K](e) {
				return true
			}
		}
	}
	return false
}
