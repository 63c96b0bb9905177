package config

import (
	"bytes"
	"strings"
)

// readINI reads the config.ini form. Each line is empty, a comment, a [SECTION], or NAME=VALUE or NAME: VALUE.
func (d *draft) readINI(data []byte) {
	var current *section // nil before the first header and in a section whose header could not be read
	started := false
	forEachLine(data, func(number int, line string) bool {
		switch {
		case line == "" || isComment(line):
		case line[0] == '[':
			started = true
			current = d.openINI(line, number)
		case !started:
			d.report.fail(number, "", "", "the line "+clip(line)+" stands before the first section", "write a [SECTION] above it")
			started = true // said once
		case current != nil:
			d.assignINI(current, line, number)
		}
		return !d.report.full()
	})
}

// openINI reads a header, [NAME] or [NAME DEFAULT], and begins that section. Nil if it cannot.
func (d *draft) openINI(line string, number int) *section {
	name, ok := d.header(line, number)
	if !ok {
		return nil
	}
	words := strings.Fields(name)
	isDefault := len(words) == 2 && fold(words[1]) == "default"
	if len(words) == 0 || len(words) > 1 && !isDefault {
		d.report.fail(number, "", "", "the section header "+clip("["+name+"]")+" is not understood", "write [NAME] or [NAME DEFAULT]")
		return nil
	}
	kind, ok := sectionNamed(words[0])
	if !ok {
		d.report.fail(number, "", "", "there is no section "+clip("["+name+"]"),
			didYouMean(words[0], allSectionNames(), "write one of "+strings.Join(allSectionNames(), ", ")))
		return nil
	}
	s := newSection(kind, isDefault, number, strings.ToUpper(strings.Join(words, " ")))
	if kind == SectionSystem {
		if isDefault {
			d.report.fail(number, s.label, "", "cannot be: there is one [SYSTEM] without defaults", "write [SYSTEM]")
			return nil
		}
		if first := d.first(SectionSystem); first != nil {
			d.report.fail(number, s.label, "", "stands twice, first in line "+itoa(first.line), "write one [SYSTEM] section")
			return nil
		}
	}
	d.add(s)
	return s
}

// header takes the name out of a line that begins with a bracket.
func (d *draft) header(line string, number int) (string, bool) {
	end := strings.IndexByte(line, ']')
	if end < 0 {
		d.report.fail(number, "", "", "the section header "+clip(line)+" has no closing bracket", "write ] at its end")
		return "", false
	}
	if rest := strings.TrimSpace(line[end+1:]); rest != "" && !isComment(rest) {
		d.report.fail(number, "", "", "the section header "+clip(line[:end+1])+" is followed by "+clip(rest), "begin a new line after it")
		return "", false
	}
	return strings.TrimSpace(line[1:end]), true
}

// assignINI reads NAME=VALUE. What follows a # or ; that stands after a blank is a comment.
func (d *draft) assignINI(s *section, line string, number int) {
	name, text, found := line, "", false
	if i := strings.IndexAny(line, "=:"); i >= 0 {
		name, text, found = strings.TrimSpace(line[:i]), strings.TrimSpace(line[i+1:]), true
	} else {
		name = uncomment(line)
	}
	if name == "" {
		d.report.fail(number, s.label, "", "the line "+clip(line)+" has no parameter name", "write NAME=VALUE")
		return
	}
	text, ok := unquote(text)
	if !ok {
		d.report.fail(number, s.label, name, "has a value with a quotation mark that is not closed", `write "VALUE" and nothing but a comment after it`)
		return
	}
	if !found {
		d.set(s, name, "", true, false, number)
		return
	}
	d.set(s, name, text, false, false, number)
}

// unquote takes the value out of what follows the separator: everything up to a comment, or what stands between
// quotation marks, where a backslash makes the next character an ordinary one.
func unquote(text string) (string, bool) {
	if text == "" || text[0] != '"' {
		return uncomment(text), true
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			b.WriteByte(text[i])
		case c == '"':
			rest := strings.TrimSpace(text[i+1:])
			return b.String(), rest == "" || isComment(rest)
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}

// quote writes a value so that unquote reads it back.
func quote(text string) string {
	if text != "" && !strings.ContainsAny(text, "#;\"") && strings.TrimSpace(text) == text {
		return text
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// uncomment cuts a comment off: a # or ; at the beginning or after a blank.
func uncomment(text string) string {
	for i := 0; i < len(text); i++ {
		if (text[i] == '#' || text[i] == ';') && (i == 0 || text[i-1] == ' ' || text[i-1] == '\t') {
			return strings.TrimSpace(text[:i])
		}
	}
	return text
}

func isComment(line string) bool { return line[0] == '#' || line[0] == ';' }

// forEachLine calls f with every line of data, trimmed, and its number, until f says no.
func forEachLine(data []byte, f func(number int, line string) bool) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	for number := 1; len(data) > 0; number++ {
		line := data
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			line, data = data[:i], data[i+1:]
		} else {
			data = nil
		}
		if !f(number, string(bytes.TrimSpace(line))) {
			return
		}
	}
}

// sectionNamed finds a section by any of its names.
func sectionNamed(name string) (Section, bool) {
	for s, names := range sectionNames {
		for _, n := range names {
			if strings.EqualFold(n, name) {
				return Section(s), true
			}
		}
	}
	return 0, false
}

func allSectionNames() (all []string) {
	for _, names := range sectionNames {
		all = append(all, names...)
	}
	return all
}
