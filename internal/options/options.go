// Package options reads a command line the way NDB's tools do.
//
// A long option is --name=value or --name value; '-' and '_' in names are the same; any unambiguous beginning of a name
// will do. A short one is -c value or -cvalue. A switch is --name, or --name=0 and --skip-name to turn it off. What is no
// option is left over as positional arguments; after -- everything is.
//
// The package owns the grammar, the help text and the messages about wrong options, and how a program answers them
// (Answer). It never ends the program. Invariant: every option is either taken or
// answered with an error; none is ignored.
package options

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cohortdb/cohort/internal/version"
)

// ErrHelp is Parse's answer to --help and -?; Answer prints the help.
var ErrHelp = errors.New("help was asked for")

// ErrVersion is Parse's answer to --version and -V; Answer prints the version.
var ErrVersion = errors.New("the version was asked for")

type option struct {
	long  string // with '-', without leading ones
	short string // one letter, or empty
	value string // word for the value in the help; empty for a switch
	help  string
	set   func(value string) error
}

// Set is the options of one program.
type Set struct {
	usage    string // behind the program's name in the first line of the help
	about    string // what the program does
	examples []string
	options  []option
}

// New starts a set. usage is what stands behind the program's name ("[options] [CONNECTSTRING]"), about what it does.
func New(usage, about string) *Set { return &Set{usage: usage, about: about} }

// Example adds a command line to the help.
func (s *Set) Example(line string) { s.examples = append(s.examples, line) }

// Func adds an option whose value is handed to set. name is "long" or "long,s" with a one-letter form; value is the word
// for the value in the help.
func (s *Set) Func(name, value, help string, set func(string) error) {
	long, short, _ := strings.Cut(name, ",")
	s.options = append(s.options, option{long: long, short: short, value: value, help: help, set: set})
}

// String adds an option with a text.
func (s *Set) String(target *string, name, value, help string) {
	s.Func(name, value, help, func(v string) error { *target = v; return nil })
}

// Int adds an option with a whole number within low and high.
func (s *Set) Int(target *int, name, value, help string, low, high int) {
	s.Func(name, value, help, func(v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < low || n > high {
			return fmt.Errorf("%q is not a number from %d to %d", v, low, high)
		}
		*target = n
		return nil
	})
}

// Bool adds a switch.
func (s *Set) Bool(target *bool, name, help string) {
	s.Func(name, "", help, func(v string) error {
		b, err := ParseBool(v)
		if err == nil {
			*target = b
		}
		return err
	})
}

// ParseBool reads the values that NDB's tools take for a switch.
func ParseBool(v string) (bool, error) {
	switch strings.ToLower(v) {
	case "1", "on", "true", "yes", "y":
		return true, nil
	case "0", "off", "false", "no", "n":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither 1 nor 0", v)
}

// Parse takes the options out of args and returns what is left.
func (s *Set) Parse(args []string) (rest []string, err error) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			return append(rest, args[i+1:]...), nil
		case arg == "-" || !strings.HasPrefix(arg, "-"):
			rest = append(rest, arg)
			continue
		}
		var taken bool
		if strings.HasPrefix(arg, "--") {
			taken, err = s.long(arg, args[i+1:])
		} else {
			taken, err = s.short(arg, args[i+1:])
		}
		if err != nil {
			return nil, err
		}
		if taken {
			i++
		}
	}
	return rest, nil
}

// long takes one --option; taken says that the next argument was its value.
func (s *Set) long(arg string, next []string) (taken bool, err error) {
	name, value, hasValue := strings.Cut(arg[2:], "=")
	word := strings.ReplaceAll(name, "_", "-")
	switch word {
	case "help", "usage":
		return false, ErrHelp
	case "version":
		return false, ErrVersion
	}
	o, err := s.find(word)
	if err != nil {
		if positive, found := strings.CutPrefix(word, "skip-"); found && !hasValue {
			if o, skipErr := s.find(positive); skipErr == nil && o.value == "" {
				return false, o.set("0")
			}
		}
		return false, err
	}
	return s.give(o, "--"+o.long, value, hasValue, next)
}

// short takes one -o; a value may be glued to it.
func (s *Set) short(arg string, next []string) (taken bool, err error) {
	letter := arg[1:2]
	switch letter {
	case "?":
		return false, ErrHelp
	case "V":
		return false, ErrVersion
	}
	for i := range s.options {
		o := &s.options[i]
		if o.short != letter {
			continue
		}
		glued := arg[2:]
		if o.value == "" && glued != "" && glued[0] != '=' {
			// Several switches in one word: -av.
			if err := o.set("1"); err != nil {
				return false, fmt.Errorf("option -%s: %w", letter, err)
			}
			return s.short("-"+glued, next)
		}
		glued = strings.TrimPrefix(glued, "=")
		return s.give(o, "-"+letter, glued, len(arg) > 2, next)
	}
	if len(arg) > 2 {
		// NDB's tools take a long option behind one dash as well.
		return s.long("-"+arg, next)
	}
	return false, fmt.Errorf("there is no option %s: --help lists them", arg)
}

func (s *Set) give(o *option, name, value string, hasValue bool, next []string) (taken bool, err error) {
	switch {
	case hasValue:
	case o.value == "":
		value = "1"
	case len(next) == 0:
		return false, fmt.Errorf("option %s needs a value: %s=%s", name, name, o.value)
	default:
		value, taken = next[0], true
	}
	if err := o.set(value); err != nil {
		return false, fmt.Errorf("option %s: %w", name, err)
	}
	return taken, nil
}

// find looks a long name up: whole, or an unambiguous beginning.
func (s *Set) find(word string) (*option, error) {
	var found []*option
	for i := range s.options {
		o := &s.options[i]
		if o.long == word {
			return o, nil
		}
		if word != "" && strings.HasPrefix(o.long, word) {
			found = append(found, o)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, fmt.Errorf("there is no option --%s: --help lists them", word)
	}
	var names []string
	for _, o := range found {
		names = append(names, "--"+o.long)
	}
	return nil, fmt.Errorf("--%s may mean %s: write it out", word, strings.Join(names, ", "))
}

// NoArguments is for programs that take options only: an error if Parse has left anything over.
func NoArguments(rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("%q is no option: --help lists them", rest[0])
	}
	return nil
}

// Statuses with which every program ends that could not do its work.
const (
	StatusFailed = 1
	StatusUsage  = 2 // the command line could not be understood
)

// Answer deals with the error of Parse, or of a program's own check of its options: it prints the help, the version or
// the error under the program's name, and gives the status to end with. Without an error the program is not done.
func (s *Set) Answer(err error, program string, stdout, stderr io.Writer) (status int, done bool) {
	switch {
	case err == nil:
		return 0, false
	case errors.Is(err, ErrHelp):
		s.Help(stdout, program)
		return 0, true
	case errors.Is(err, ErrVersion):
		fmt.Fprintf(stdout, "%s %s\n", program, version.Text(version.Number))
		return 0, true
	}
	fmt.Fprintf(stderr, "%s: %v\n", program, err)
	return StatusUsage, true
}

// Help prints the usage, what the program does, its options and examples.
func (s *Set) Help(w io.Writer, program string) {
	fmt.Fprintf(w, "Usage: %s %s\n\n%s\n\nOptions:\n", program, s.usage, s.about)
	for _, o := range s.options {
		word := "      --" + o.long
		if o.short != "" {
			word = "  -" + o.short + ", --" + o.long
		}
		if o.value != "" {
			word += "=" + o.value
		}
		line(w, word, o.help)
	}
	line(w, "  -?, --help", "this text")
	line(w, "  -V, --version", "the version")
	if len(s.examples) > 0 {
		fmt.Fprint(w, "\nExamples:\n")
		for _, e := range s.examples {
			fmt.Fprintf(w, "  %s\n", e)
		}
	}
}

// line prints one option; the explanation begins in a column of its own, on the next line if the option is long.
func line(w io.Writer, word, help string) {
	const column = 34
	if len(word) > column-2 {
		fmt.Fprintln(w, word)
		word = ""
	}
	for i, part := range strings.Split(help, "\n") {
		if i > 0 {
			word = ""
		}
		fmt.Fprintf(w, "%-*s%s\n", column, word, part)
	}
}
