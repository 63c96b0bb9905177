package config

// Change is one difference between two configurations.
type Change struct {
	Section   string // as in [NDBD]
	Node      int    // id of the node that it concerns; 0: the cluster, or all links
	Peer      int    // other end of the link that it concerns; 0: no link
	Parameter string // canonical name
	Old, New  string // values as a file would have them, defaults included; empty: there is none
	Needs     Need   // what makes the new value work
}

// String puts the change on one line.
func (c Change) String() string {
	where := "[" + c.Section + "]"
	if c.Node != 0 {
		where += " " + itoa(c.Node)
	}
	if c.Peer != 0 {
		where += "-" + itoa(c.Peer)
	}
	return where + " " + c.Parameter + ": " + orNone(c.Old) + " -> " + orNone(c.New) + " (needs " + c.Needs.String() + ")"
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// Diff lists what has changed from old to new: what concerns the cluster, then node by node, then links. A node that
// came or went is one Change of its NodeId; a [TCP] section that came or went changes what it says otherwise than
// [TCP DEFAULT]. Setting a value to its default is no change. Generations are not compared.
func Diff(old, new *Config) []Change {
	var all []Change
	if old.Name != new.Name { // nodes of two names refuse each other, so that all must change at once
		all = append(all, Change{Section: "SYSTEM", Parameter: "Name", Old: old.Name, New: new.Name, Needs: NeedSystemRestart})
	}
	all = diffValues(all, Change{Section: "SYSTEM"}, &old.system, &new.system)
	for id := 1; id <= maxNodeID; id++ {
		all = diffNode(all, old.Node(id), new.Node(id))
	}
	all = diffValues(all, Change{Section: "TCP DEFAULT"}, &old.tcp, &new.tcp)
	return diffLinks(all, old, new)
}

func diffNode(all []Change, a, b *Node) []Change {
	if a != nil && b != nil && a.Type == b.Type {
		c := Change{Section: a.section.String(), Node: a.ID}
		all = diffValues(all, c, &a.values, &b.values)
		if a.NodeGroup != b.NodeGroup {
			c.Parameter, c.Old, c.New, c.Needs = "Nodegroup", itoa(a.NodeGroup), itoa(b.NodeGroup), NeedSystemRestart|NeedInitial
			if a.NodeGroup == NoNodeGroup { // it has no data that would have to move
				c.Needs = NeedNodeRestart
			}
			all = append(all, c)
		}
		return all
	}
	if a != nil { // a data node takes its fragments with it
		c := Change{Section: a.section.String(), Node: a.ID, Parameter: "NodeId", Old: itoa(a.ID), Needs: NeedNodeRestart}
		if a.Type == DataNode {
			c.Needs = NeedSystemRestart | NeedInitial
		}
		all = append(all, c)
	}
	if b != nil { // all others must learn of a new node
		all = append(all, Change{Section: b.section.String(), Node: b.ID, Parameter: "NodeId", New: itoa(b.ID), Needs: NeedNodeRestart})
	}
	return all
}

func diffLinks(all []Change, old, new *Config) []Change {
	i, j := 0, 0
	for i < len(old.links) || j < len(new.links) {
		var a, b *Link
		if i < len(old.links) {
			a = old.links[i]
		}
		if j < len(new.links) {
			b = new.links[j]
		}
		switch {
		case b == nil || a != nil && a.before(b.A, b.B):
			i++
			all = diffValues(all, Change{Section: "TCP", Node: a.A, Peer: a.B}, &a.values, &new.tcp)
		case a == nil || b.before(a.A, a.B):
			j++
			all = diffValues(all, Change{Section: "TCP", Node: b.A, Peer: b.B}, &old.tcp, &b.values)
		default:
			i, j = i+1, j+1
			all = diffValues(all, Change{Section: "TCP", Node: a.A, Peer: a.B}, &a.values, &b.values)
		}
	}
	return all
}

// diffValues compares what the values of a section mean, whether set or by default; what is about c's place is in c.
func diffValues(all []Change, c Change, a, b *values) []Change {
	for i := range a.v {
		p := &tables[a.section][i]
		c.Parameter, c.Needs = p.Name, p.NeedsNow()
		c.Old, c.New = a.text(i), b.text(i)
		// A node's group is compared as it came out, by diffNode, be it written or formed.
		if c.Old != c.New && !p.isOwn() && p.Name != "Nodegroup" {
			all = append(all, c)
		}
	}
	return all
}
