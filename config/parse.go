package config

import (
	"sort"
	"strconv"
	"strings"
)

// Setting is a parameter and its value as text, from outside a file.
type Setting struct{ Name, Value string }

// Options say how Parse reads a file.
type Options struct {
	FileName string // named in warnings and errors; Parse opens nothing
	MyCnf    bool   // the [cluster_config] form of a my.cnf, not config.ini
	// HostMap replaces host names of the file, all of a name or nothing, before anything else looks at them.
	HostMap map[string]string
	// Overrides are set in every section that has the parameter, as if they stood last in its DEFAULT section: they
	// win over DEFAULT sections and lose to a node's own section.
	Overrides []Setting
}

// maxFileBytes is far above what 255 nodes with all their parameters take.
const maxFileBytes = 16 << 20

// Parse reads a configuration file. The way is the same for both forms: their parsers turn lines into sections of
// checked values, and build puts defaults under them, numbers the nodes, forms the groups and checks the whole.
// Errors of all lines come together, as Errors. Warnings come also beside errors.
func Parse(data []byte, opt Options) (*Config, []Warning, error) {
	r := &report{file: opt.FileName}
	d := newDraft(r)
	switch {
	case len(data) > maxFileBytes:
		r.fail(0, "", "", "the file is longer than "+strconv.Itoa(maxFileBytes)+" bytes", "this is no configuration file")
	case opt.MyCnf:
		d.readMyCnf(data)
	default:
		d.readINI(data)
	}
	d.layDefaults()
	for _, o := range opt.Overrides {
		d.setEverywhere(o.Name, o.Value, false, -1)
	}
	c := d.build(opt.HostMap)
	warnings, err := r.result()
	if err != nil {
		return nil, warnings, err
	}
	return c, warnings, nil
}

// section is one section of a file, or the gathered DEFAULT sections of a kind.
type section struct {
	kind      Section
	isDefault bool   // a DEFAULT section
	line      int    // of its header
	label     string // as the file calls it, for messages
	values    []value
}

func newSection(kind Section, isDefault bool, line int, label string) *section {
	return &section{kind, isDefault, line, label, make([]value, len(tables[kind]))}
}

// get finds a value by canonical name.
func (s *section) get(name string) *value { return &s.values[lookup(s.kind, name).index] }

// draft is a configuration while it is read.
type draft struct {
	report   *report
	sections []*section             // in the order of the file, DEFAULT sections among them
	defaults [sectionCount]*section // what DEFAULT sections, [cluster_config] and overrides gave together
}

func newDraft(r *report) *draft {
	d := &draft{report: r}
	for k := range d.defaults {
		d.defaults[k] = newSection(Section(k), true, 0, Section(k).String()+" DEFAULT")
	}
	return d
}

// maxSections bounds what a file can make us allocate: all nodes, a computer for each, and a link for each pair of a
// data node is far more than anybody writes.
const maxSections = 4096

func (d *draft) add(s *section) {
	if len(d.sections) == maxSections {
		d.report.fail(s.line, s.label, "", "is one section too many: a file may have "+strconv.Itoa(maxSections), "delete sections")
	}
	if len(d.sections) < maxSections {
		d.sections = append(d.sections, s)
	}
}

// layDefaults gathers the DEFAULT sections of each kind, a later one over an earlier one.
func (d *draft) layDefaults() {
	for _, s := range d.sections {
		if s.isDefault {
			overlay(d.defaults[s.kind].values, s.values)
		}
	}
}

// overlay puts the values that are set in from over those of to.
func overlay(to, from []value) {
	for i, v := range from {
		if v.set {
			to[i] = v
		}
	}
}

// set gives section s the value that a line of the file has for a parameter. twice says that it may set it again.
func (d *draft) set(s *section, name, text string, bare, twice bool, line int) {
	p := Lookup(s.kind, name)
	if p == nil {
		d.report.fail(line, s.label, name, "is not a parameter of this section", unknownParameter(name, s.kind))
		return
	}
	if s.isDefault && p.isOwn() {
		d.report.fail(line, s.label, p.Name, "cannot be a default", "set it in the section of each node or link")
		return
	}
	if v := &s.values[p.index]; v.set && !twice {
		d.report.fail(line, s.label, p.Name, "is set twice in this section, first in line "+strconv.Itoa(int(v.line)), "delete one of the lines")
		return
	}
	v, c := p.parse(text, bare)
	if c.text != "" {
		d.report.fail(line, s.label, p.Name, c.text, c.suggestion)
		return
	}
	v.line = int32(line)
	s.values[p.index] = v
	d.judge(s.label, p, v, line)
}

// judge tells the user about a value that does not do what it asks for.
func (d *draft) judge(label string, p *Parameter, v value, line int) {
	switch {
	case p.Effect == NoEffect:
		d.report.warn(line, label, p.Name, "has no effect, because "+p.Because, "")
	case p.Name == "ThreadConfig" && v.str != "":
		if t, c := parseThreadConfig(v.str); c.text == "" {
			for _, text := range t.Warnings {
				d.report.warn(line, label, p.Name, "is accepted, but "+text, "")
			}
		}
	case p.Effect == NotSupported && p.asksForMore(v):
		d.report.fail(line, label, p.Name, "is "+clip(p.format(v))+", which is not supported, because "+p.Because, "delete the line")
	}
}

// isOwn says that p tells one node, link or computer from the others, so that it cannot be a default.
func (p *Parameter) isOwn() bool {
	switch p.Name {
	case "NodeId", "NodeId1", "NodeId2", "Id":
		return true
	}
	return false
}

// setEverywhere gives the value to the defaults of every section that has the parameter: a line of
// [cluster_config] and an override work so. Sections that the value does nothing in are told of only where there
// is none in which it does something.
func (d *draft) setEverywhere(name, text string, bare bool, line int) {
	label := "cluster_config"
	if line < 0 {
		label = ""
	}
	var found []*Parameter
	for k := Section(0); k < sectionCount; k++ {
		if p := Lookup(k, name); p != nil && k != SectionComputer {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		advice := unknownParameter(name, SectionNDBD, SectionMGMD, SectionAPI, SectionTCP, SectionSystem)
		if line < 0 {
			advice = strings.Replace(advice, "delete the line", "leave it out", 1) // it stands in no file
		}
		d.report.fail(line, label, name, "is not a parameter of any section", advice)
		return
	}
	sort.SliceStable(found, func(i, j int) bool { return weight(found[i].Effect) < weight(found[j].Effect) })
	for i, p := range found {
		if p.isOwn() {
			d.report.fail(line, label, p.Name, "cannot be the same for all nodes", "set it for each node")
			return
		}
		v, c := p.parse(text, bare)
		if c.text != "" {
			d.report.fail(line, label, p.Name, c.text, c.suggestion)
			return
		}
		v.line = int32(line)
		d.defaults[p.Section].values[p.index] = v
		if i == 0 || p.Effect == NotSupported && found[0].Effect != NotSupported {
			d.judge(label, p, v, line)
		}
	}
}

// weight orders effects by what a user should hear of first when one value lands in several sections.
func weight(e Effect) int { return [...]int{Used: 0, NotSupported: 1, NoEffect: 2}[e] }
