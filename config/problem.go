package config

import (
	"fmt"
	"sort"
	"strings"
)

// Problem is one thing that is wrong, or worth knowing, about a configuration, and where.
type Problem struct {
	File       string // name that Options gave; empty for an override
	Line       int    // 0 where no line is to blame
	Section    string // as in [NDBD]; empty where none is to blame
	Parameter  string // canonical name, or as written where it is unknown; may be empty
	Text       string // what is wrong, with the value and the allowed range
	Suggestion string // what to do about it; may be empty for a Warning
}

// String puts it all on one line: FILE:LINE: [SECTION] PARAMETER TEXT: SUGGESTION.
func (p *Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		b.WriteString(": ")
	}
	if p.Section != "" {
		b.WriteString("[" + p.Section + "] ")
	}
	if p.Parameter != "" {
		b.WriteString(p.Parameter + " ")
	}
	b.WriteString(p.Text)
	if p.Suggestion != "" {
		b.WriteString(": " + p.Suggestion)
	}
	return b.String()
}

// Warning is a Problem that the cluster can live with.
type Warning struct{ Problem }

// String is the warning on one line.
func (w Warning) String() string { return w.Problem.String() }

// Error is a Problem that keeps a configuration from being used.
type Error struct{ Problem }

// Error is the problem on one line.
func (e *Error) Error() string { return e.Problem.String() }

// Errors are all errors of a file, in the order of its lines, at most maxErrors of them.
type Errors []*Error

// Error has one line per error.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find the first Error.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, err := range e {
		all[i] = err
	}
	return all
}

// Problems found in one file beyond these numbers are left out: the first ones are the ones to mend.
const (
	maxErrors   = 20
	maxWarnings = 500
)

// report collects the problems of one file.
type report struct {
	file     string
	errors   Errors
	warnings []Warning
}

func (r *report) full() bool { return len(r.errors) >= maxErrors }

func (r *report) fail(line int, section, parameter, text, suggestion string) {
	if r.full() {
		return
	}
	p := r.problem(line, section, parameter, text, suggestion)
	for _, e := range r.errors {
		if e.Problem == p { // a value of a DEFAULT section is looked at once for every node
			return
		}
	}
	r.errors = append(r.errors, &Error{p})
}

func (r *report) warn(line int, section, parameter, text, suggestion string) {
	if len(r.warnings) >= maxWarnings {
		return
	}
	p := r.problem(line, section, parameter, text, suggestion)
	for _, w := range r.warnings {
		if w.Problem == p {
			return
		}
	}
	r.warnings = append(r.warnings, Warning{p})
}

func (r *report) problem(line int, section, parameter, text, suggestion string) Problem {
	p := Problem{r.file, line, section, parameter, text, suggestion}
	if line < 0 { // an override has no place in the file
		p.File, p.Line = "", 0
	}
	return p
}

// result sorts what was found by line and gives the errors as one, or nil.
func (r *report) result() ([]Warning, error) {
	sort.SliceStable(r.warnings, func(i, j int) bool { return r.warnings[i].Line < r.warnings[j].Line })
	sort.SliceStable(r.errors, func(i, j int) bool { return r.errors[i].Line < r.errors[j].Line })
	if len(r.errors) == 0 {
		return r.warnings, nil
	}
	return r.warnings, r.errors
}
