package config

import (
	"sort"
	"strings"
)

// build makes a Config of the sections that were read: defaults, host names, ids, groups, links, and the checks that
// need the whole. What is wrong goes to the report; the Config is of use only if that stays without errors.
func (d *draft) build(hostMap map[string]string) *Config {
	c := &Config{system: newValues(SectionSystem), tcp: newValues(SectionTCP)}
	overlay(c.system.v, d.defaults[SectionSystem].values)
	if s := d.first(SectionSystem); s != nil {
		overlay(c.system.v, s.values)
	}
	c.takeSystem()
	overlay(c.tcp.v, d.defaults[SectionTCP].values)

	computers := d.computers()
	for _, s := range d.sections {
		t, isNode := typeOf(s.kind)
		if !isNode || s.isDefault {
			continue
		}
		n := &Node{Type: t, NodeGroup: noGroupAtAll, values: newValues(s.kind), line: s.line}
		overlay(n.v, d.defaults[s.kind].values)
		overlay(n.v, s.values)
		d.noteHidden(s)
		d.placeNode(n, s, computers, hostMap)
		c.Nodes = append(c.Nodes, n)
	}
	d.number(c)
	if len(d.report.errors) > 0 {
		return nil // what follows would only repeat them in other words
	}
	d.formGroups(c)
	d.link(c, hostMap)
	if len(d.report.errors) > 0 {
		return nil
	}
	d.check(c)
	return c
}

// noteHidden warns where a node's own section keeps an override from reaching the node.
func (d *draft) noteHidden(s *section) {
	for i, v := range d.defaults[s.kind].values {
		if own := s.values[i]; v.line < 0 && own.set && !own.same(v) {
			p := &tables[s.kind][i]
			d.report.warn(int(own.line), s.label, p.Name, "stays "+clip(p.format(own))+" in place of "+clip(p.format(v))+
				": a node's own section wins over an override", "delete the line")
		}
	}
}

// first finds the first section of a kind that is not a DEFAULT section.
func (d *draft) first(kind Section) *section {
	for _, s := range d.sections {
		if s.kind == kind && !s.isDefault {
			return s
		}
	}
	return nil
}

// takeSystem moves the two parameters of [SYSTEM] that have fields of their own into these.
func (c *Config) takeSystem() {
	name, generation := c.system.at("Name"), c.system.at("ConfigGenerationNumber")
	c.Name, c.Generation = name.str, uint32(generation.num)
	*name, *generation = value{}, value{}
}

// computer is a [COMPUTER] section.
type computer struct {
	id, host string
	line     int
}

// computers reads the [COMPUTER] sections.
func (d *draft) computers() (all []computer) {
	for _, s := range d.sections {
		if s.kind != SectionComputer || s.isDefault {
			continue
		}
		overlaid := newSection(s.kind, false, s.line, s.label)
		overlay(overlaid.values, d.defaults[SectionComputer].values)
		overlay(overlaid.values, s.values)
		id, host := overlaid.get("Id"), overlaid.get("HostName")
		if id.str == "" || host.str == "" {
			d.report.fail(s.line, s.label, "", "needs an Id and a HostName", "write both, or delete the section")
			continue
		}
		for _, other := range all {
			if other.id == id.str {
				d.report.fail(int(id.line), s.label, "Id", "is "+clip(id.str)+", as in the section in line "+itoa(other.line), "give every computer an Id of its own")
			}
		}
		all = append(all, computer{id.str, host.str, s.line})
	}
	return all
}

// placeNode finds the host of a node: its HostName, or the computer that ExecuteOnComputer names, and then the name
// that the host map has for it.
func (d *draft) placeNode(n *Node, s *section, computers []computer, hostMap map[string]string) {
	host, on := n.at("HostName"), n.at("ExecuteOnComputer")
	if on.set {
		found := false
		for _, c := range computers {
			if c.id == on.str {
				// The more particular of the two wins: HostName in the node's own section over a computer.
				if !s.get("HostName").set {
					*host = value{set: true, line: on.line, str: c.host}
				}
				found = true
			}
		}
		if !found {
			d.report.fail(int(on.line), s.label, "ExecuteOnComputer", "is "+clip(on.str)+", the Id of no [COMPUTER]", "write HostName instead")
		}
		*on = value{}
	}
	d.mapHost(host, s.label, "HostName", hostMap)
	n.HostName = host.str
	if n.Type == DataNode && n.HostName == "" {
		d.report.fail(s.line, s.label, "HostName", "is empty, so that nobody could reach the data node", "write the name or address of its host")
	}
}

// mapHost replaces a host name and checks what comes out.
func (d *draft) mapHost(host *value, label, parameter string, hostMap map[string]string) {
	if to, ok := hostMap[host.str]; ok && host.str != "" {
		host.str, host.set = to, true
	}
	if host.str != "" && !isHostName(host.str) {
		d.report.fail(int(host.line), label, parameter, "is "+clip(host.str)+", which is no host name or address", "write a name such as node1.example.com, or an address")
	}
}

// isHostName accepts what may be a name or an IPv4 or IPv6 address, with a zone.
func isHostName(s string) bool {
	if len(s) > 253 {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := lower(s[i])
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c >= 0x80 || strings.IndexByte(".-_:%", c) >= 0) {
			return false
		}
	}
	return true
}

// number gives every node its id: the one in the file, else the lowest that is free. Data nodes take theirs first,
// from 1; then management servers and API nodes, from 49, so that data nodes can be added without moving others.
func (d *draft) number(c *Config) {
	var taken [maxNodeID + 1]*Node
	for _, n := range c.Nodes {
		id := n.at("NodeId")
		if !id.set {
			continue
		}
		n.ID = int(id.num)
		if other := taken[n.ID]; other != nil {
			d.report.fail(int(id.line), n.section.String(), "NodeId", "is "+itoa(n.ID)+", as that of the "+other.Type.String()+" node in line "+itoa(other.line),
				"give every node an id of its own")
			continue
		}
		taken[n.ID] = n
	}
	for _, t := range []NodeType{DataNode, ManagementNode, APINode} {
		for _, n := range c.Nodes {
			id := n.at("NodeId")
			if n.Type != t || id.set {
				continue
			}
			n.ID = freeID(&taken, t)
			if n.ID == 0 {
				d.report.fail(n.line, n.section.String(), "", "is one node too many: no id is free for it", "a cluster has at most "+
					itoa(maxDataNodeID)+" data nodes and "+itoa(maxNodeID)+" nodes in all")
				return
			}
			taken[n.ID] = n
			*id = value{set: true, line: int32(n.line), num: int64(n.ID)}
		}
	}
	sort.SliceStable(c.Nodes, func(i, j int) bool { return c.Nodes[i].ID < c.Nodes[j].ID })
}

// freeID gives the lowest free id for a node of type t, 0 if there is none.
func freeID(taken *[maxNodeID + 1]*Node, t NodeType) int {
	if t != DataNode {
		for id := firstOtherID; id <= maxNodeID; id++ {
			if taken[id] == nil {
				return id
			}
		}
	}
	limit := maxDataNodeID
	if t != DataNode {
		limit = firstOtherID - 1
	}
	for id := 1; id <= limit; id++ {
		if taken[id] == nil {
			return id
		}
	}
	return 0
}

// link takes over the [TCP] sections and checks those of [SHM], which have no effect.
func (d *draft) link(c *Config, hostMap map[string]string) {
	for _, s := range d.sections {
		if s.isDefault || s.kind != SectionTCP && s.kind != SectionSHM {
			continue
		}
		l := &Link{values: newValues(s.kind), line: s.line}
		overlay(l.v, d.defaults[s.kind].values)
		overlay(l.v, s.values)
		if !d.endsOf(l, c, s) {
			continue
		}
		d.mapHost(l.at("HostName1"), s.label, "HostName1", hostMap)
		d.mapHost(l.at("HostName2"), s.label, "HostName2", hostMap)
		if s.kind == SectionTCP { // every parameter of [SHM] has had its warning
			c.links = append(c.links, l)
		}
	}
	sort.SliceStable(c.links, func(i, j int) bool { return c.links[i].before(c.links[j].A, c.links[j].B) })
	for i := 1; i < len(c.links); i++ {
		if a, b := c.links[i-1], c.links[i]; a.A == b.A && a.B == b.B {
			d.report.fail(b.line, SectionTCP.String(), "", "is about nodes "+itoa(b.A)+" and "+itoa(b.B)+", as the one in line "+itoa(a.line), "write one section for a link")
		}
	}
	for _, name := range []string{"HostName1", "HostName2"} {
		if v := c.tcp.at(name); v.set {
			d.report.fail(int(v.line), "TCP DEFAULT", name, "cannot be a default: nodes have addresses of their own", "set it in a [TCP] section")
		}
	}
}

// endsOf reads the two node ids of a link and puts them in order, with their host names.
func (d *draft) endsOf(l *Link, c *Config, s *section) bool {
	ends := [2]*value{l.at("NodeId1"), l.at("NodeId2")}
	var ids [2]int
	for i, v := range ends {
		name := "NodeId" + itoa(i+1)
		id, ok := parseDigits(v.str, maxNodeID)
		switch {
		case !v.set:
			d.report.fail(s.line, s.label, name, "is missing", "write the node ids of both ends, NodeId1 and NodeId2")
			return false
		case !ok || c.Node(id) == nil:
			d.report.fail(int(v.line), s.label, name, "is "+clip(v.str)+", the id of no node", "write the id of a node of this file")
			return false
		}
		ids[i], v.str = id, itoa(id)
	}
	if ids[0] == ids[1] || c.Node(ids[0]).Type != DataNode && c.Node(ids[1]).Type != DataNode {
		d.report.fail(s.line, s.label, "", "joins nodes "+itoa(ids[0])+" and "+itoa(ids[1])+", which have no link", "a link has a data node at one end at least")
		return false
	}
	if ids[0] > ids[1] {
		ids[0], ids[1] = ids[1], ids[0]
		*ends[0], *ends[1] = *ends[1], *ends[0]
		h1, h2 := l.at("HostName1"), l.at("HostName2")
		*h1, *h2 = *h2, *h1
	}
	l.A, l.B = ids[0], ids[1]
	return true
}
