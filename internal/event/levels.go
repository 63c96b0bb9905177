package event

import "strings"

// Category groups events by what they are about.
type Category uint8

// The categories, in the order of their numbers on the management protocol.
const (
	CategoryStartup     Category = iota // a node starts
	CategoryShutdown                    // a node stops
	CategoryStatistics                  // counters, memory
	CategoryCheckpoint                  // global and local checkpoints
	CategoryNodeRestart                 // takeover, catch-up, arbitration
	CategoryConnection                  // links between nodes
	CategoryInfo                        // what fits nowhere else
	CategoryWarning                     // an old category, kept for its number; no event uses it
	CategoryError                       // faults and warnings
	CategoryCongestion                  // buffers that fill
	CategoryDebug                       // for developers
	CategoryBackup                      // backup and restore
	CategorySchema                      // tables made, changed, dropped
	NumCategories
)

// WireBase is what the management protocol adds to a category's number.
const WireBase = 250

// LevelMax is the highest level; a listener with it hears everything of a category.
const LevelMax = 15

var categoryNames = [NumCategories]string{"STARTUP", "SHUTDOWN", "STATISTICS", "CHECKPOINT", "NODERESTART", "CONNECTION", "INFO",
	"WARNING", "ERROR", "CONGESTION", "DEBUG", "BACKUP", "SCHEMA"}

// String is the category as people write it.
func (c Category) String() string {
	if c >= NumCategories {
		return "UNKNOWN"
	}
	return categoryNames[c]
}

// ParseCategory reads a category's name (in any case, STATISTIC and NODE_RESTART too) or its number on the wire.
func ParseCategory(word string) (Category, bool) {
	word = strings.ToUpper(strings.TrimSpace(word))
	switch word {
	case "STATISTIC":
		return CategoryStatistics, true
	case "NODE_RESTART":
		return CategoryNodeRestart, true
	}
	for c, name := range categoryNames {
		if name == word {
			return Category(c), true
		}
	}
	n, ok := parseUint(word)
	if !ok || n < WireBase || n >= WireBase+uint32(NumCategories) {
		return 0, false
	}
	return Category(n - WireBase), true
}

func parseUint(word string) (uint32, bool) {
	if word == "" || len(word) > 9 {
		return 0, false
	}
	n := uint32(0)
	for i := 0; i < len(word); i++ {
		if word[i] < '0' || word[i] > '9' {
			return 0, false
		}
		n = n*10 + uint32(word[i]-'0')
	}
	return n, true
}

// Severity says how bad it is.
type Severity uint8

// The severities with their numbers on the management protocol; there 0 is the whole log's switch.
const (
	Debug    Severity = 1 // for developers
	Note     Severity = 2 // the course of things; written INFO
	Warning  Severity = 3 // somebody should look at it some time
	Error    Severity = 4 // something failed that should not
	Critical Severity = 5 // a part of the cluster cannot go on
	Alert    Severity = 6 // a node or a link is gone: look now
)

var severityNames = [...]string{"", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", "ALERT"}

// String is the severity as the cluster log writes it.
func (s Severity) String() string {
	if s == 0 || int(s) >= len(severityNames) {
		return "UNKNOWN"
	}
	return severityNames[s]
}

// ParseSeverity reads a severity's name, in any case.
func ParseSeverity(word string) (Severity, bool) {
	word = strings.ToUpper(strings.TrimSpace(word))
	for s := 1; s < len(severityNames); s++ {
		if severityNames[s] == word {
			return Severity(s), true
		}
	}
	return 0, false
}

// Levels is what a listener wants to hear: a level per category.
type Levels [NumCategories]uint8

// DefaultLevels are the levels of the cluster log until somebody changes them.
func DefaultLevels() Levels {
	var l Levels
	for c := range l {
		l[c] = 7
	}
	l[CategoryConnection] = 8
	l[CategoryError] = LevelMax
	l[CategoryBackup] = LevelMax
	return l
}

// Admits reports whether a listener with these levels hears an event of that category and level.
func (l *Levels) Admits(c Category, level uint8) bool { return c < NumCategories && level <= l[c] }

// Raise makes l hear at least what other hears.
func (l *Levels) Raise(other *Levels) {
	for c := range l {
		l[c] = max(l[c], other[c])
	}
}
