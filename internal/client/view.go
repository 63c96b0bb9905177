package client

import "github.com/cohortdb/cohort/internal/signal"

// Node is what is known of a data node.
type Node struct {
	ID       uint8
	Up       bool   // links are up
	Started  bool   // it takes transactions
	State    uint32 // signal.State…
	Group    uint32 // node group, signal.NoRef if not known
	LDMs     uint32
	TCs      uint32
	Software uint32
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
}

var noView = &View{}

// Node is what is known of a data node; the zero Node for one that is not configured.
func (v *View) Node(id uint8) *Node { return &v.nodes[id] }

// Serving are the nodes that take transactions.
func (v *View) Serving() []uint8 { return v.serving }

// seal computes what follows from the nodes.
func (v *View) seal() {
	v.serving, v.near = nil, nil
	best := ^uint32(0)
	for i := range v.nodes {
		n := &v.nodes[i]
		if !n.serves() {
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

// isStarted tells in which states a node takes transactions.
func isStarted(state uint32) bool {
	return state == signal.StateStarted || state == signal.StateSingleUser
}
