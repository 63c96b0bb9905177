package client

import "github.com/cohortdb/cohort/internal/signal"

// Node is what is known of a data node.
type Node struct {
	ID       uint8
	Up       bool   // links are up, and nobody has said that the node was put out of the cluster
	Started  bool   // new transactions may be begun there; those under way go on as long as it is up
	Coming   bool   // it is not up, though a member of the cluster: it comes back, and will take links in a moment
	State    uint32 // signal.State…
	Group    uint32 // node group, signal.NoRef if not known
	LDMs     uint32
	TCs      uint32
	Software uint32
	// DynamicID is its number in the order of joining, 0 while it is not known; it stays when the links go down.
	DynamicID uint32
	// Life counts the times that the links came up: two values mean that there was a failure between them.
	Life uint32
	// Distance from the client, smaller is nearer: the runtime's own measure.
	Distance uint32
}

// serves tells whether transactions may be sent there.
func (n *Node) serves() bool { return n.Up && n.Started && n.LDMs > 0 && n.TCs > 0 }

// View is what sessions need to know of the cluster. It does not change once it is handed out.
type View struct {
	nodes   [256]Node
	serving []uint8 // ids of nodes that take transactions, ascending
	near    []uint8 // those of them with the smallest distance
	partial bool    // a node does not serve, as far as is known here: rows that it sends all the same may not come
	maps    []*Map  // by table id; nil where the one that came with the table is the newest
}

var noView = &View{}

// Node is what is known of a data node; the zero Node for one that is not configured.
func (v *View) Node(id uint8) *Node { return &v.nodes[id] }

// mapOf is the newest map of a table.
func (v *View) mapOf(t *Table) *Map {
	if int(t.id) < len(v.maps) {
		if m := v.maps[t.id]; m != nil && m.version == t.version {
			return m
		}
	}
	return t.first
}

// mapAt is the newest map of the table with an id, nil if it is the one that came with the table.
func (v *View) mapAt(id uint16) *Map {
	if int(id) < len(v.maps) {
		return v.maps[id]
	}
	return nil
}

// Chain are the ldms that hold a fragment of a table, primary first.
func (v *View) Chain(t *Table, fragment int) []signal.Addr { return v.mapOf(t).chain(uint16(fragment)) }

// Primary is the ldm to which requests about a fragment go: the first of its chain whose node takes transactions; 0 if
// there is none.
func (v *View) Primary(t *Table, fragment int) signal.Addr {
	return v.placed(v.mapOf(t), uint16(fragment))
}

// placed is the first of a fragment's chain whose node takes transactions.
func (v *View) placed(m *Map, frag uint16) signal.Addr {
	for _, a := range m.chain(frag) {
		if v.nodes[a.Node()].serves() {
			return v.existing(a)
		}
	}
	return 0
}

// existing is an ldm of a map, or, where the node has come back with fewer than the map knows of, one that exists and
// says that the fragment is elsewhere: then there will be a newer map.
func (v *View) existing(a signal.Addr) signal.Addr {
	if n := v.nodes[a.Node()].LDMs; n > 0 && uint32(a.Instance()) >= n {
		return signal.MakeAddr(a.Node(), signal.BlockLDM, uint16(uint32(a.Instance())%n))
	}
	return a
}

// Serving are the nodes that take transactions.
func (v *View) Serving() []uint8 { return v.serving }

// seal computes what follows from the nodes.
func (v *View) seal() {
	v.serving, v.near, v.partial = nil, nil, false
	best := ^uint32(0)
	for i := range v.nodes {
		n := &v.nodes[i]
		if !n.serves() {
			v.partial = v.partial || n.ID != 0
			continue
		}
		v.serving = append(v.serving, uint8(i))
		if n.Distance < best {
			best, v.near = n.Distance, nil
		}
		if n.Distance == best {
			v.near = append(v.near, uint8(i))
		}
	}
}
