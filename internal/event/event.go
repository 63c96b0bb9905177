// Package event is the one vocabulary in which a node says what happens to it.
//
// A block reports a typed event: a type, up to eight numbers and a short text. Everything that people or programs read
// about a node is made from such events: the cluster log, what a management client prints, the expectations of a
// simulator script. Blocks have no second way to log. Where NDB has an event, its name, number, category and level are
// kept, so that tools which filter by them go on working; types from 200 on are Cohort's own.
//
// The package owns the types and their texts. It never does I/O, keeps no state and reads no clock: a time is put
// before an event by whoever writes it down. Invariants: a type's number never changes its meaning; every type has a
// category, a level, a severity and a text (a test checks the table); formatting an event of an unknown type or with
// wild numbers gives a line, never a panic, because events arrive from other nodes.
//
// Read next: types.go (the table), levels.go (what a listener wants to hear), format.go.
package event

// Type says what happened.
type Type uint16

// ArgsMax is how many numbers an event carries at most.
const ArgsMax = 8

// TextMax is the longest text of an event, in bytes. A longer one is cut.
const TextMax = 255

// Event is one thing that happened at a node.
type Event struct {
	Type Type
	// Node is the node that reports.
	Node uint8
	// Args are the numbers in the order of Info.Args; unused ones are 0.
	Args [ArgsMax]uint32
	// Text is a short text for types that take one ({text} in their table entry), else empty.
	Text string
}

// New is an event of a node; it takes the numbers in the order of the type's entry.
func New(node uint8, t Type, args ...uint32) Event {
	e := Event{Type: t, Node: node}
	copy(e.Args[:], args)
	return e
}

// WithText gives the event a text, cut to TextMax.
func (e Event) WithText(text string) Event {
	if len(text) > TextMax {
		text = text[:TextMax]
	}
	e.Text = text
	return e
}

// Info is what the table knows about a type.
type Info struct {
	// Name is NDB's name of the event where it has one.
	Name string
	// Category and Level decide who hears of it: listeners choose a level per category.
	Category Category
	// Level is 0 (everybody hears it) to LevelMax (only those who ask for everything).
	Level uint8
	// Severity decides how it is marked in the cluster log and whether a severity filter drops it.
	Severity Severity
	// Args names the numbers, in order, separated by spaces.
	Args string
	// Form is the sentence; {name} stands for a number or for text, {name:v} for a version, {name:x} for a hexadecimal number.
	Form string
	// write replaces Form where a sentence is not enough.
	write func(dst []byte, e *Event) []byte
}

// Lookup gives the entry of a type, or false for a type this version does not know.
func Lookup(t Type) (Info, bool) {
	if int(t) >= len(table) || table[t].Name == "" {
		return Info{Name: "Unknown", Category: CategoryInfo, Level: 0, Severity: Warning}, false
	}
	return table[t], true
}

// Info is the entry of the event's type; for an unknown type one that lets it pass as a warning, since a node of a newer
// build may know more.
func (e *Event) Info() Info {
	info, _ := Lookup(e.Type)
	return info
}

// String is the name of a type.
func (t Type) String() string {
	info, _ := Lookup(t)
	return info.Name
}
