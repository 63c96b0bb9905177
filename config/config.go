package config

import (
	"sort"
	"strconv"

	"github.com/cohortdb/cohort/internal/invariant"
)

// NodeType is what a node does in the cluster.
type NodeType int

const (
	DataNode       NodeType = iota // holds data
	APINode                        // a client: an SQL node or a program that uses the record API
	ManagementNode                 // serves the configuration and the management protocol
)

// String gives the word that NDB's management protocol and client use.
func (t NodeType) String() string {
	switch t {
	case DataNode:
		return "NDB"
	case APINode:
		return "API"
	case ManagementNode:
		return "MGM"
	}
	return "?"
}

// section is the section that describes nodes of this type.
func (t NodeType) section() Section {
	return [...]Section{DataNode: SectionNDBD, APINode: SectionAPI, ManagementNode: SectionMGMD}[t]
}

// typeOf is the inverse of section.
func typeOf(s Section) (NodeType, bool) {
	switch s {
	case SectionNDBD:
		return DataNode, true
	case SectionAPI:
		return APINode, true
	case SectionMGMD:
		return ManagementNode, true
	}
	return 0, false
}

const (
	maxDataNodeID   = 144 // data nodes have ids 1 to this
	maxNodeID       = 255 // all nodes have ids 1 to this
	firstOtherID    = 49  // ids of other nodes that are given none begin here
	maxDataNodes    = 144
	NoNodeGroup     = 65536 // value of NodeGroup: a data node that waits for CREATE NODEGROUP
	noGroupAtAll    = -1    // NodeGroup of a node without data
	maxReplicas     = 4
	localhost       = "localhost"
	defaultMgmdPort = 1186
)

// Config is the configuration of a cluster. It is not changed once it is in use, but that the management server
// counts Generation and gives a Name to a new one before it hands it out.
type Config struct {
	// Name is the cluster's name; links between clusters of different names are refused. Empty where the file has
	// none: the management server names a new cluster.
	Name string
	// Generation counts the versions of a cluster's configuration.
	Generation uint32
	// Nodes are all nodes in the order of their ids.
	Nodes []*Node

	system values  // [SYSTEM], but for Name and ConfigGenerationNumber
	tcp    values  // [TCP DEFAULT]
	links  []*Link // [TCP] sections, in the order of their ids
}

// Node is one node and all its parameters.
type Node struct {
	ID        int
	Type      NodeType
	HostName  string // after the host map; empty: any host (of an API or management node)
	NodeGroup int    // of a data node, NoNodeGroup if it has none yet; -1 of others
	values
	line int // of its section, for messages
}

// values are the parameters of one section: what was set, over the defaults.
type values struct {
	section Section
	v       []value // as tables[section]
}

// newValues gives the defaults of a section.
func newValues(s Section) values {
	v := values{s, make([]value, len(tables[s]))}
	for i := range tables[s] {
		v.v[i] = tables[s][i].def
	}
	return v
}

func (v *values) at(name string) *value { return &v.v[lookup(v.section, name).index] }

// Int gives a number, or an enum's place in its values; a parameter without value and default gives 0. The name is
// the canonical one, in any case; that the section has no such parameter is the caller's error and an assertion.
func (v *values) Int(name string) int64 {
	p := lookup(v.section, name)
	if p.Kind == KindString || p.Kind == KindBitmask {
		invariant.Failf("[%s] %s is a %s, not a number", v.section, name, p.Kind)
	}
	return v.v[p.index].num
}

// Bool gives a bool, or whether a number that may be 0 or 1 is 1.
func (v *values) Bool(name string) bool {
	p := lookup(v.section, name)
	if p.Kind != KindBool && !(p.isNumber() && p.max == 1) {
		invariant.Failf("[%s] %s is a %s, not a bool", v.section, name, p.Kind)
	}
	return v.v[p.index].num != 0
}

// String gives a string, or the text of any other value, empty where there is no value and no default.
func (v *values) String(name string) string {
	return v.text(lookup(v.section, name).index)
}

// text is String for a place in the section's table.
func (v *values) text(i int) string {
	p := &tables[v.section][i]
	if !v.v[i].set && p.Default == "" {
		return ""
	}
	return p.format(v.v[i])
}

// IsSet says that a file or an override gave the value, be it in a DEFAULT section.
func (v *values) IsSet(name string) bool { return v.at(name).set }

// Node finds a node by id, nil if there is none.
func (c *Config) Node(id int) *Node {
	i := sort.Search(len(c.Nodes), func(i int) bool { return c.Nodes[i].ID >= id })
	if i == len(c.Nodes) || c.Nodes[i].ID != id {
		return nil
	}
	return c.Nodes[i]
}

// DataNodes are the data nodes in the order of their ids.
func (c *Config) DataNodes() []*Node { return c.ofType(DataNode) }

// ManagementNodes are the management servers in the order of their ids.
func (c *Config) ManagementNodes() []*Node { return c.ofType(ManagementNode) }

// APINodes are the slots for clients in the order of their ids.
func (c *Config) APINodes() []*Node { return c.ofType(APINode) }

func (c *Config) ofType(t NodeType) (nodes []*Node) {
	for _, n := range c.Nodes {
		if n.Type == t {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// Replicas is the number of data nodes in a node group, which all data nodes agree on.
func (c *Config) Replicas() int {
	for _, n := range c.Nodes {
		if n.Type == DataNode {
			return int(n.Int("NoOfReplicas"))
		}
	}
	invariant.Failf("a configuration has a data node")
	return 0
}

// NodeGroups gives the ids of the data nodes of each group, by the group's number, in order. Data nodes without a
// group yet are in none.
func (c *Config) NodeGroups() [][]int {
	var groups [][]int
	for _, n := range c.Nodes {
		if n.Type != DataNode || n.NodeGroup == NoNodeGroup {
			continue
		}
		for len(groups) <= n.NodeGroup {
			groups = append(groups, nil)
		}
		groups[n.NodeGroup] = append(groups[n.NodeGroup], n.ID)
	}
	return groups
}

// DataMemory is the memory for rows and indexes of a data node in bytes: its DataMemory and IndexMemory.
func (n *Node) DataMemory() int64 {
	invariant.That(n.Type == DataNode, "DataMemory is asked of a data node")
	return n.Int("DataMemory") + n.Int("IndexMemory")
}

func itoa(n int) string { return strconv.Itoa(n) }
