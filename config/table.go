package config

import (
	"sort"
	"strings"

	"github.com/cohortdb/cohort/internal/invariant"
)

// Section is a kind of section of a configuration file.
type Section uint8

const (
	SectionSystem   Section = iota // [SYSTEM]: the cluster as a whole
	SectionComputer                // [COMPUTER]: a name for a host, used by ExecuteOnComputer
	SectionMGMD                    // [NDB_MGMD]: a management server
	SectionNDBD                    // [NDBD]: a data node
	SectionAPI                     // [API] and [MYSQLD]: a client
	SectionTCP                     // [TCP]: the link of two nodes
	SectionSHM                     // [SHM]: a link through shared memory
	sectionCount
)

// sectionNames are the names that String prints, and the others under which a file may have the section.
var sectionNames = [sectionCount][]string{
	SectionSystem:   {"SYSTEM"},
	SectionComputer: {"COMPUTER"},
	SectionMGMD:     {"NDB_MGMD", "MGM", "MGMD"},
	SectionNDBD:     {"NDBD", "DB"},
	SectionAPI:      {"API", "MYSQLD"},
	SectionTCP:      {"TCP"},
	SectionSHM:      {"SHM"},
}

// String gives the section's name as NDB prints it.
func (s Section) String() string {
	if s >= sectionCount {
		return "?"
	}
	return sectionNames[s][0]
}

// Kind is the type of a parameter's values.
type Kind uint8

const (
	KindInt     Kind = iota // a number below 2^32; K, M and G stand for powers of 1024
	KindInt64               // a number that may be larger
	KindBool                // 1, Y, YES, TRUE, ON, or 0, N, NO, FALSE, OFF
	KindString              // any text on one line
	KindEnum                // one of Values
	KindBitmask             // a list of numbers and ranges: 0,2,4-7
)

var kindNames = [...]string{"int", "int64", "bool", "string", "enum", "bitmask"}

// String gives the name that NDB's list of parameters uses.
func (k Kind) String() string { return kindNames[k] }

// Unit says what a number counts.
type Unit uint8

const (
	NoUnit Unit = iota
	Bytes
	BytesPerSecond
	Milliseconds
	Microseconds
	Seconds
	Percent
	PercentOrBytes // percent up to 100, above that bytes
	Count
	Port
	NodeIDs
	NodeGroupNumber
	CPUs      // CPU numbers
	WordsLog2 // base-2 logarithm of a number of 4-byte words
)

var unitNames = [...]string{"", "bytes", "bytes/s", "ms", "µs", "s", "percent", "percent, or bytes above 100", "count", "port", "node id", "node group", "CPU", "log2 of 4-byte words"}

// String gives the unit's short name, empty for NoUnit.
func (u Unit) String() string { return unitNames[u] }

// Need says what must happen before a changed value works: a set of the bits below; none means nothing need be done.
type Need uint8

const (
	NeedNodeRestart   Need = 1 << iota // each node that it concerns must be restarted, one after the other
	NeedSystemRestart                  // all nodes must be stopped and started together
	NeedInitial                        // with --initial, which clears the node's files
)

// String names the restart in words.
func (n Need) String() string {
	switch {
	case n&NeedSystemRestart != 0 && n&NeedInitial != 0:
		return "initial system restart"
	case n&NeedSystemRestart != 0:
		return "system restart"
	case n&NeedInitial != 0:
		return "initial node restart"
	case n&NeedNodeRestart != 0:
		return "node restart"
	}
	return "nothing"
}

// Effect is what Cohort does with a parameter.
type Effect uint8

const (
	Used         Effect = iota // it does what Does says
	NoEffect                   // it is accepted, and a Warning says that it changes nothing, and why
	NotSupported               // a value that asks for what Cohort cannot do is an Error; one that does not is accepted
)

// String gives the effect in words.
func (e Effect) String() string {
	switch e {
	case NoEffect:
		return "accepted, no effect"
	case NotSupported:
		return "not supported"
	}
	return "used"
}

// Parameter is one row of the table. Texts of values are as a configuration file has them; empty means none.
type Parameter struct {
	Section   Section
	Name      string   // canonical spelling; a file may use any case
	Aliases   []string // other spellings, from older versions of NDB
	Kind      Kind
	Values    []string // what an enum, or a string with a fixed choice, may be
	Default   string   // value where nothing is set
	Mandatory bool     // NDB has no default; Cohort chooses a value (node ids, the cluster's name) or demands one
	Min, Max  string   // bounds of a number, inclusive
	Unit      Unit
	Needs     Need    // as NDB documents it; Diff asks NeedsNow
	Directory bool    // names a directory that must be writable
	Old       bool    // deprecated by NDB
	Same      bool    // all data nodes must have the same value
	Effect    Effect  // what Cohort does with it
	Does      string  // when used: what for
	Because   string  // otherwise: why not, as a clause after "because"
	Harmless  []int64 // when not supported: values that ask for nothing (else: only the default does)

	// Worked out from the texts when the table is put together.
	index    int // place in its section's table
	min, max int64
	def      value
}

// NeedsNow is what a change needs in this version of Cohort: nothing, where the parameter has no effect.
func (p *Parameter) NeedsNow() Need {
	if p.Effect == NoEffect {
		return 0
	}
	return p.Needs
}

// isNumber says that values of p are kept as numbers with a range.
func (p *Parameter) isNumber() bool { return p.Kind == KindInt || p.Kind == KindInt64 }

// Range gives the allowed values in words, for messages and lists.
func (p *Parameter) Range() string {
	switch {
	case len(p.Values) > 0:
		return strings.Join(p.Values, ", ")
	case p.Kind == KindBool:
		return "true, false"
	case p.Kind == KindBitmask:
		return "CPU numbers 0 to " + p.Max + ", as in 0,2,4-7"
	case p.isNumber():
		return p.Min + " to " + p.Max
	}
	return "text"
}

// tables has the parameters of each section in the order of their names without regard to case, for searching.
var tables = [sectionCount][]Parameter{
	SectionSystem:   prepare(SectionSystem, systemParameters),
	SectionComputer: prepare(SectionComputer, computerParameters),
	SectionMGMD:     prepare(SectionMGMD, managementParameters),
	SectionNDBD:     prepare(SectionNDBD, nodeParameters, operationParameters, storageParameters),
	SectionAPI:      prepare(SectionAPI, apiParameters),
	SectionTCP:      prepare(SectionTCP, tcpParameters),
	SectionSHM:      prepare(SectionSHM, shmParameters),
}

// spelling is one name under which a file may set a parameter.
type spelling struct {
	name  string // folded by fold
	index int    // of the parameter in tables
}

// spellings are all names of each section's parameters, in order.
var spellings = indexSpellings()

// prepare joins the parts of a section's table, sorts them and reads the texts of defaults and bounds.
func prepare(s Section, parts ...[]Parameter) []Parameter {
	var all []Parameter
	for _, part := range parts {
		all = append(all, part...)
	}
	sort.Slice(all, func(i, j int) bool { return fold(all[i].Name) < fold(all[j].Name) })
	for i := range all {
		p := &all[i]
		p.Section, p.index = s, i
		if p.isNumber() {
			p.min, p.max = mustNumber(p, p.Min), mustNumber(p, p.Max)
		}
		if p.Kind == KindBitmask {
			p.max = mustNumber(p, p.Max)
		}
		if p.Default != "" {
			v, problem := p.read(p.Default, false)
			if problem != "" {
				invariant.Failf("table: default of [%s] %s: %s", s, p.Name, problem)
			}
			v.set = false // a value that nobody set
			p.def = v
		}
	}
	return all
}

func mustNumber(p *Parameter, text string) int64 {
	n, ok := parseNumber(text)
	if !ok {
		invariant.Failf("table: bound %q of %s is not a number", text, p.Name)
	}
	return n
}

func indexSpellings() (all [sectionCount][]spelling) {
	for s := range all {
		for i := range tables[s] {
			p := &tables[s][i]
			all[s] = append(all[s], spelling{fold(p.Name), i})
			for _, a := range p.Aliases {
				all[s] = append(all[s], spelling{fold(a), i})
			}
		}
		list := all[s]
		sort.Slice(list, func(i, j int) bool { return list[i].name < list[j].name })
		for i := 1; i < len(list); i++ {
			invariant.That(list[i-1].name != list[i].name, "table: a name stands for one parameter of a section")
		}
	}
	return all
}

// fold makes names comparable: parameter names have no letters beyond ASCII.
func fold(name string) string { return strings.ToLower(name) }

// Lookup finds the parameter that a file means by name in section s: any case, old spellings too. Nil if none.
func Lookup(s Section, name string) *Parameter {
	if s >= sectionCount {
		return nil
	}
	list, key := spellings[s], fold(name)
	i := sort.Search(len(list), func(i int) bool { return list[i].name >= key })
	if i == len(list) || list[i].name != key {
		return nil
	}
	return &tables[s][list[i].index]
}

// lookup is the search of the accessors: no folding and no allocation for a name in its canonical spelling.
func lookup(s Section, name string) *Parameter {
	table := tables[s]
	lo, hi := 0, len(table)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if compareFold(table[mid].Name, name) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(table) || compareFold(table[lo].Name, name) != 0 {
		invariant.Failf("[%s] has no parameter %q", s, name)
	}
	return &table[lo]
}

// compareFold orders names as fold does, byte by byte.
func compareFold(a, b string) int {
	for i := 0; i < len(a) && i < len(b); i++ {
		if x, y := lower(a[i]), lower(b[i]); x != y {
			return int(x) - int(y)
		}
	}
	return len(a) - len(b)
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// Describe lists every parameter, section by section, in the order of names within one. The caller may keep it.
func Describe() []Parameter {
	var all []Parameter
	for s := range tables {
		all = append(all, tables[s]...)
	}
	return all
}
