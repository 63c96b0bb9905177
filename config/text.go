package config

import "strings"

// Text prints c as a config.ini that Parse reads back to an equal Config: host names are those after the host map,
// every node has its id, and what all nodes of a kind have set alike stands in their DEFAULT section.
func (c *Config) Text() string {
	var b strings.Builder
	sys := newSection(SectionSystem, false, 0, "")
	copy(sys.values, c.system.v)
	if c.Name != "" {
		*sys.get("Name") = value{set: true, str: c.Name}
	}
	if c.Generation != 0 {
		*sys.get("ConfigGenerationNumber") = value{set: true, num: int64(c.Generation)}
	}
	writeSection(&b, "SYSTEM", SectionSystem, sys.values, nil, false)
	for _, t := range []NodeType{ManagementNode, DataNode, APINode} {
		nodes, s := c.ofType(t), t.section()
		if len(nodes) == 0 {
			continue
		}
		common := commonValues(s, nodes)
		writeSection(&b, s.String()+" DEFAULT", s, common, nil, false)
		for _, n := range nodes {
			writeSection(&b, s.String(), s, n.v, common, true)
		}
	}
	writeSection(&b, "TCP DEFAULT", SectionTCP, c.tcp.v, nil, false)
	for _, l := range c.links {
		writeSection(&b, "TCP", SectionTCP, l.v, c.tcp.v, true)
	}
	return b.String()
}

// commonValues are what all of several nodes have set alike; a single node keeps all in its own section.
func commonValues(s Section, nodes []*Node) []value {
	common := make([]value, len(tables[s]))
	if len(nodes) < 2 {
		return common
	}
	copy(common, nodes[0].v)
	for i := range common {
		for _, n := range nodes[1:] {
			if !n.v[i].same(common[i]) {
				common[i] = value{}
			}
		}
		if tables[s][i].isOwn() {
			common[i] = value{}
		}
	}
	return common
}

// writeSection prints the values that are set and not among the defaults; a section without any only if it must.
func writeSection(b *strings.Builder, header string, s Section, v, defaults []value, always bool) {
	begun := false
	begin := func() {
		if !begun {
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			b.WriteString("[" + header + "]\n")
			begun = true
		}
	}
	if always {
		begin()
	}
	line := func(i int) {
		if v[i].set && (defaults == nil || !defaults[i].same(v[i])) {
			begin()
			b.WriteString(tables[s][i].Name + "=" + quote(tables[s][i].format(v[i])) + "\n")
		}
	}
	for i := range v { // who it is about comes first
		if tables[s][i].isOwn() {
			line(i)
		}
	}
	for i := range v {
		if !tables[s][i].isOwn() {
			line(i)
		}
	}
}
