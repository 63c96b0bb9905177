package datanode

import (
	"fmt"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/dictionary"
	"github.com/cohortdb/cohort/internal/distribution"
	"github.com/cohortdb/cohort/internal/manager"
	"github.com/cohortdb/cohort/internal/membership"
	"github.com/cohortdb/cohort/internal/signal"
)

const (
	millisecond = 1_000_000
	second      = 1000 * millisecond

	// never is the largest value of a time parameter in milliseconds, which stands for no limit.
	never = 4294967039

	// recordsMax bounds a pool of records; with it a node's records take some tens of GB.
	recordsMax = 1 << 26
)

// Config is everything about a data node that its configuration decides, in the units that blocks use.
type Config struct {
	Node uint8

	Membership   membership.Config   // without LDMs and TCs, which the layout decides
	Distribution distribution.Config // without LogParts, which the layout decides
	Dictionary   dictionary.Config
	Manager      manager.Config // without LDMs and TCs

	// MaxTransactions and MaxOperations are records of each coordinator. Each coordinator has them all, rather than a share,
	// since nobody can say in advance at which one transactions begin: a node never has less than was configured.
	MaxTransactions, MaxOperations int
	// MaxLocalOperations are records of each ldm.
	MaxLocalOperations int
	MaxWrites          int   // of one transaction
	Sessions           int   // of clients whose outcomes are kept at once, by each coordinator and ldm
	LockTimeout        int64 // nanoseconds
	InactiveTimeout    int64 // nanoseconds; 0 = none
	InactiveCheck      int64 // nanoseconds

	DataMemory int64 // bytes for rows and indexes
	LockMemory bool  // touch and lock it at start (LockPagesInMainMemory)
	CopyMemory int64 // bytes for copies of rows with pending changes

	Threads     config.ThreadLayout // what the configuration says about threads
	LogParts    int                 // NoOfFragmentLogParts
	LogPartsSet bool                // … was written, rather than a default
	SendMemory  int64               // bytes that may wait to be sent, over all links
}

// FromConfig takes a node's part from the configuration of the cluster. What comes from the command line (the nodes not to
// wait for, and whether to wait for an order to start) is put into Membership afterwards.
func FromConfig(cfg *config.Config, nodeID int) (Config, error) {
	n := cfg.Node(nodeID)
	switch {
	case n == nil:
		return Config{}, fmt.Errorf("the configuration has no node %d: add an [NDBD] section with NodeId=%d", nodeID, nodeID)
	case n.Type != config.DataNode:
		return Config{}, fmt.Errorf("node %d is no data node: start the node with the id of an [NDBD] section", nodeID)
	case n.NodeGroup == config.NoNodeGroup:
		return Config{}, fmt.Errorf("node %d has no node group (NodeGroup=%d), and data nodes that join later are not supported yet: "+
			"give it a group, or delete its section", nodeID, config.NoNodeGroup)
	}
	millis := func(name string) int64 { return n.Int(name) * millisecond }
	c := Config{Node: uint8(nodeID), Threads: n.ThreadLayout(), LogParts: int(n.Int("NoOfFragmentLogParts")), LogPartsSet: n.IsSet("NoOfFragmentLogParts")}
	c.Membership = membership.Config{
		StartTimeout:   millis("StartFailureTimeout"),
		ReportInterval: n.Int("StartupStatusReportFrequency") * second,
		DrainTimeout:   millis("TransactionDeadlockDetectionTimeout"),

		Heartbeat:          millis("HeartbeatIntervalDbDb"),
		CheckTimeout:       millis("ConnectCheckIntervalDelay"),
		Arbitration:        int(n.Int("Arbitration")),
		ArbitrationTimeout: millis("ArbitrationTimeout"),
	}
	for _, o := range cfg.Nodes {
		if o.Type != config.DataNode && o.Int("ArbitrationRank") > 0 {
			c.Membership.Arbitrators = append(c.Membership.Arbitrators, membership.Arbitrator{ID: uint8(o.ID), Rank: uint8(o.Int("ArbitrationRank"))})
		}
	}
	groups := 0
	var nodes []distribution.Node
	for _, d := range cfg.DataNodes() {
		if d.NodeGroup != config.NoNodeGroup {
			nodes = append(nodes, distribution.Node{ID: uint8(d.ID), Group: uint16(d.NodeGroup)})
			c.Membership.Nodes = append(c.Membership.Nodes, membership.Node{ID: uint8(d.ID), Group: uint16(d.NodeGroup)})
			groups = max(groups, d.NodeGroup+1)
		}
	}
	c.Distribution = distribution.Config{
		Nodes:              nodes,
		PartitionsPerNode:  int(n.Int("PartitionsPerNode")),
		EpochInterval:      millis("TimeBetweenEpochs"),
		CheckpointInterval: millis("TimeBetweenGlobalCheckpoints"),
		EpochTimeout:       millis("TimeBetweenEpochsTimeout"),
		CheckpointTimeout:  millis("TimeBetweenGlobalCheckpointsTimeout"),
	}
	c.Dictionary = dictionary.Config{
		MaxTables:     int(n.Int("MaxNoOfTables")),
		MaxAttributes: int(n.Int("MaxNoOfAttributes")),
		CloseWait:     uint32(n.Int("TransactionDeadlockDetectionTimeout")),
	}
	c.Manager = manager.Config{Replicas: cfg.Replicas(), Groups: groups, MemoryReport: n.Int("MemReportFrequency") * second}
	c.LockTimeout = millis("TransactionDeadlockDetectionTimeout")
	c.InactiveCheck = millis("TimeBetweenInactiveTransactionAbortCheck")
	if t := n.Int("TransactionInactiveTimeout"); t < never {
		c.InactiveTimeout = t * millisecond
	}
	c.MaxWrites = int(n.Int("MaxDMLOperationsPerTransaction"))
	for _, r := range []struct {
		name string
		to   *int
	}{{"MaxNoOfConcurrentTransactions", &c.MaxTransactions}, {"MaxNoOfConcurrentOperations", &c.MaxOperations}} {
		if v := n.Int(r.name); v > recordsMax {
			return Config{}, fmt.Errorf("%s is %d, and a node can have %d records of a kind: lower it", r.name, v, recordsMax)
		}
		*r.to = int(n.Int(r.name))
	}
	c.MaxLocalOperations = c.MaxOperations + c.MaxOperations/10 + 64
	c.Sessions = min(max(64*len(cfg.APINodes()), 256), 4096)
	c.DataMemory = n.DataMemory()
	c.LockMemory = n.Int("LockPagesInMainMemory") > 0
	c.CopyMemory = copyMemory(c.MaxOperations, c.DataMemory)
	c.SendMemory = sendMemory(cfg, n)
	return c, nil
}

// copyMemory is 4 KiB for each operation record, which most rows fit into, but no more than there is data.
func copyMemory(operations int, data int64) int64 {
	const least = 16 << 20
	return max(min(int64(operations)*4096, data), least)
}

// sendMemory is what may wait for other nodes: the limit for all, or the sum of the links'.
func sendMemory(cfg *config.Config, n *config.Node) int64 {
	if t := n.Int("TotalSendBufferMemory"); t > 0 {
		return t
	}
	sum := int64(0)
	for _, o := range cfg.Nodes {
		if l := cfg.Link(n.ID, o.ID); l != nil {
			sum += l.Int("SendBufferMemory")
		}
	}
	return sum
}

// NoWait says which nodes the start does not wait for; they must be other data nodes.
func (c *Config) NoWait(nodes []int) error {
	var set signal.NodeSet
	for _, id := range nodes {
		known := false
		for _, n := range c.Membership.Nodes {
			known = known || int(n.ID) == id
		}
		if !known || id == int(c.Node) {
			return fmt.Errorf("node %d is no other data node: name data nodes that the start shall not wait for", id)
		}
		set.Add(uint8(id))
	}
	c.Membership.NoWait = set
	return nil
}
