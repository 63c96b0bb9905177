package up

import "strings"

// ini is a config.ini under construction: sections in their order.
type ini struct {
	comment  string
	sections []*section
}

// section is one of them; its lines are Name=Value.
type section struct {
	header string // without brackets, as written: "ndbd default"
	lines  []setting
}

// add opens a section with the given names and values.
func (f *ini) add(header string, namesAndValues ...string) *section {
	s := &section{header: header}
	for i := 0; i < len(namesAndValues); i += 2 {
		s.set(namesAndValues[i], namesAndValues[i+1])
	}
	f.sections = append(f.sections, s)
	return s
}

// get is the value of a name in a section, "" if it has none.
func (s *section) get(name string) string {
	for _, l := range s.lines {
		if strings.EqualFold(l.name, name) {
			return l.value
		}
	}
	return ""
}

// set gives a name its value; an earlier one is replaced.
func (s *section) set(name, value string) {
	for i := range s.lines {
		if strings.EqualFold(s.lines[i].name, name) {
			s.lines[i].value = value
			return
		}
	}
	s.lines = append(s.lines, setting{name, value})
}

// unset takes a name away.
func (s *section) unset(name string) {
	kept := s.lines[:0]
	for _, l := range s.lines {
		if !strings.EqualFold(l.name, name) {
			kept = append(kept, l)
		}
	}
	s.lines = kept
}

// of lists the sections with a header, letter case aside.
func (f *ini) of(header string) []*section {
	var found []*section
	for _, s := range f.sections {
		if strings.EqualFold(s.header, header) {
			found = append(found, s)
		}
	}
	return found
}

// spell gives every section with a header the values of names that only its DEFAULT section has, so that each can be
// read and changed alone.
func (f *ini) spell(header string, names ...string) {
	for _, d := range f.of(header + " default") {
		for _, name := range names {
			if value := d.get(name); value != "" {
				for _, s := range f.of(header) {
					if s.get(name) == "" {
						s.set(name, value)
					}
				}
				d.unset(name)
			}
		}
	}
}

// String is the file's text.
func (f *ini) String() string {
	var b strings.Builder
	if f.comment != "" {
		b.WriteString("# " + strings.ReplaceAll(f.comment, "\n", "\n# ") + "\n")
	}
	for _, s := range f.sections {
		b.WriteString("\n[" + s.header + "]\n")
		for _, l := range s.lines {
			b.WriteString(l.name + "=" + l.value + "\n")
		}
	}
	return b.String()
}

// readINI reads what config prints: sections, Name=Value lines, comments; no line that it could misread.
func readINI(text string) *ini {
	f := &ini{}
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
		case line[0] == '[':
			f.add(strings.Trim(line, "[]"))
		case len(f.sections) > 0:
			name, value, _ := strings.Cut(line, "=")
			f.sections[len(f.sections)-1].set(strings.TrimSpace(name), strings.TrimSpace(value))
		}
	}
	return f
}
