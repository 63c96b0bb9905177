package config

import "sort"

// Link has the parameters of the TCP connections between two nodes: those of their [TCP] section, over those of
// [TCP DEFAULT], over the table's defaults.
type Link struct {
	A, B int // node ids, A below B
	values
	hostA, hostB string // HostName1 and HostName2 as they belong to A and B, else the nodes' host names
	bindAny      bool   // a node of the link asks to listen on all addresses
	line         int    // of its section
}

// Link gives the parameters of the link of nodes a and b, in either order. Nil if one of them does not exist or
// both are the same.
func (c *Config) Link(a, b int) *Link {
	if a > b {
		a, b = b, a
	}
	nodeA, nodeB := c.Node(a), c.Node(b)
	if nodeA == nil || nodeB == nil || a == b {
		return nil
	}
	l := &Link{A: a, B: b, values: c.tcp, hostA: nodeA.HostName, hostB: nodeB.HostName}
	i := sort.Search(len(c.links), func(i int) bool { return !c.links[i].before(a, b) })
	if i < len(c.links) && c.links[i].A == a && c.links[i].B == b {
		l.values = c.links[i].values
		if h := l.String("HostName1"); h != "" {
			l.hostA = h
		}
		if h := l.String("HostName2"); h != "" {
			l.hostB = h
		}
	}
	for _, n := range []*Node{nodeA, nodeB} {
		l.bindAny = l.bindAny || n.Type == DataNode && n.Bool("TcpBind_INADDR_ANY")
	}
	l.bindAny = l.bindAny || l.Bool("TcpBind_INADDR_ANY")
	return l
}

// before orders links by their ids.
func (l *Link) before(a, b int) bool { return l.A < a || l.A == a && l.B < b }

// HostName is the host name or address at which node id, one of the two, is reached on this link.
func (l *Link) HostName(id int) string {
	if id == l.A {
		return l.hostA
	}
	return l.hostB
}

// BindAny says that the listening end listens on all addresses of its host (TcpBind_INADDR_ANY of the link or of a
// data node at its ends).
func (l *Link) BindAny() bool { return l.bindAny }
