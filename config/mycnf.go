package config

import (
	"sort"
	"strings"
)

// clusterGroup is the my.cnf group that describes a cluster; those of nodes are clusterGroup.TYPE.NUMBER.
const clusterGroup = "cluster_config"

// listTypes are the types of node that [cluster_config] lists by host, in the order in which their nodes stand in
// the configuration (and so get ids). API nodes of both names are of one section.
var listTypes = [...]struct {
	name string
	kind Section
}{{"ndb_mgmd", SectionMGMD}, {"ndbd", SectionNDBD}, {"mysqld", SectionAPI}, {"ndbapi", SectionAPI}}

// maxListed bounds a host list: there are no more node ids.
const maxListed = 255

// hostList is one list of hosts, such as ndbd=n1,n2; each entry is a node, an empty one a node without a host name.
type hostList struct {
	line  int // 0: there is no list
	hosts []string
}

// numbered is a group [cluster_config.TYPE.NUMBER]: what the NUMBERth node of its type does otherwise.
type numbered struct {
	listType, number int // place in listTypes; from 1
	section          *section
}

// myCnf is what the my.cnf form needs beside the draft while it is read.
type myCnf struct {
	*draft
	lists  [len(listTypes)]hostList
	groups []numbered
}

// readMyCnf reads the my.cnf form: the groups of the cluster, and nothing of other programs' groups. A parameter in
// [cluster_config] goes to every type of section that has it.
func (d *draft) readMyCnf(data []byte) {
	m := &myCnf{draft: d}
	var assign func(name, text string, bare bool, number int) // nil in groups of other programs
	seen := false
	forEachLine(data, func(number int, line string) bool {
		switch {
		case line == "" || isComment(line):
		case line[0] == '!':
			d.report.warn(number, "", "", "the line "+clip(line)+" is not followed: only this file is read", "write what it would bring in into this file")
		case line[0] == '[':
			if name, ok := d.header(line, number); ok {
				assign = m.open(name, number)
				seen = seen || assign != nil
			} else {
				assign = nil
			}
		case assign != nil:
			m.line(assign, line, number)
		}
		return !d.report.full()
	})
	if !seen && len(d.report.errors) == 0 {
		d.report.fail(0, "", "", "the file has no group ["+clusterGroup+"]", "write one, or read the file as config.ini")
	}
	m.spread()
}

// open gives the way in which the lines of a group are understood; nil if they are not ours.
func (m *myCnf) open(name string, number int) func(name, text string, bare bool, number int) {
	name = strings.ReplaceAll(fold(name), "-", "_")
	if name == clusterGroup {
		return m.cluster
	}
	parts := strings.Split(name, ".")
	if parts[0] != clusterGroup {
		return nil
	}
	for t, lt := range listTypes {
		if len(parts) < 2 || parts[1] != lt.name {
			continue
		}
		n, ok := 0, false
		if len(parts) == 3 {
			n, ok = parseDigits(parts[2], maxListed)
		}
		if !ok || n == 0 {
			m.report.fail(number, name, "", "names no node", "write the node's place in the list "+lt.name+"=, as in ["+clusterGroup+"."+lt.name+".1]")
			return nil
		}
		return m.node(t, n, number)
	}
	if len(parts) == 2 {
		if _, ok := parseDigits(parts[1], 1<<20); ok { // a group suffix: the configuration of another cluster
			m.report.warn(number, name, "", "is the group of another cluster, and is not read", "")
			return nil
		}
	}
	m.report.fail(number, name, "", "is no group of a cluster", "write ["+clusterGroup+"] or ["+clusterGroup+".TYPE.NUMBER] with a TYPE of ndb_mgmd, ndbd, mysqld or ndbapi")
	return nil
}

// node continues or begins the group of the nth node of a type.
func (m *myCnf) node(t, n, number int) func(name, text string, bare bool, number int) {
	var s *section
	for _, g := range m.groups {
		if g.listType == t && g.number == n {
			s = g.section
		}
	}
	if s == nil {
		s = newSection(listTypes[t].kind, false, number, clusterGroup+"."+listTypes[t].name+"."+itoa(n))
		m.groups = append(m.groups, numbered{t, n, s})
	}
	return func(name, text string, bare bool, number int) {
		// An option file may set an option again; the last line counts.
		m.set(s, name, text, bare, true, number)
	}
}

// cluster understands a line of [cluster_config]: a host list, or a parameter for all that have it.
func (m *myCnf) cluster(name, text string, bare bool, number int) {
	for t, lt := range listTypes {
		if fold(name) != lt.name {
			continue
		}
		if n := strings.Count(text, ",") + 1; n > maxListed {
			m.report.fail(number, clusterGroup, lt.name, "lists "+itoa(n)+" nodes", "a cluster has at most "+itoa(maxListed)+" nodes")
			return
		}
		hosts := strings.Split(text, ",")
		for i := range hosts {
			hosts[i] = strings.TrimSpace(hosts[i])
		}
		m.lists[t] = hostList{number, hosts}
		return
	}
	m.setEverywhere(name, text, bare, number)
}

// line reads NAME=VALUE, or NAME alone, as option files have them: - and _ are the same in names, a value may stand
// in quotation marks, and a backslash begins an escape sequence.
func (m *myCnf) line(assign func(name, text string, bare bool, number int), line string, number int) {
	name, text, found := strings.Cut(line, "=")
	if !found {
		name = uncomment(line)
	}
	name = strings.ReplaceAll(strings.TrimSpace(name), "-", "_")
	if name == "" {
		m.report.fail(number, clusterGroup, "", "the line "+clip(line)+" has no name", "write NAME=VALUE")
		return
	}
	assign(name, optionValue(strings.TrimSpace(text)), !found, number)
}

// optionValue takes a value of an option file apart: quotation marks of either sort around it, a comment after a
// blank and #, and the escape sequences \b \t \n \r \s and \\.
func optionValue(text string) string {
	var b strings.Builder
	quoted := byte(0)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text):
			i++
			if at := strings.IndexByte("btnrs\\\"'", text[i]); at >= 0 {
				b.WriteByte("\b\t\n\r \\\"'"[at])
			} else {
				b.WriteByte('\\')
				b.WriteByte(text[i])
			}
		case quoted == 0 && i == 0 && (c == '"' || c == '\''):
			quoted = c
		case quoted != 0 && c == quoted:
			return b.String()
		case quoted == 0 && c == '#' && (i == 0 || text[i-1] == ' ' || text[i-1] == '\t'):
			return strings.TrimSpace(b.String())
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// spread turns the host lists and the numbered groups into sections, type by type.
func (m *myCnf) spread() {
	sort.SliceStable(m.groups, func(i, j int) bool {
		a, b := m.groups[i], m.groups[j]
		return a.listType < b.listType || a.listType == b.listType && a.number < b.number
	})
	for t, lt := range listTypes {
		list := m.lists[t]
		for i, host := range list.hosts {
			s := newSection(lt.kind, false, list.line, clusterGroup+"."+lt.name+"."+itoa(i+1))
			if host != "" {
				m.set(s, "HostName", host, false, true, list.line)
			}
			m.add(s)
		}
		first := len(m.sections) - len(list.hosts)
		for _, g := range m.groups {
			switch {
			case g.listType != t:
			case list.line == 0: // without a list the groups are the nodes
				m.add(g.section)
			case g.number > len(list.hosts):
				m.report.fail(g.section.line, g.section.label, "", "is beyond the list "+lt.name+"= of line "+itoa(list.line)+
					", the length of which is "+itoa(len(list.hosts)), "add a host to the list (an empty one between commas will do)")
			case first+g.number-1 < len(m.sections):
				node := m.sections[first+g.number-1]
				overlay(node.values, g.section.values)
				node.line = g.section.line
			}
		}
	}
}
