package config

import (
	"math"
	"strings"
)

// check looks for what no single parameter shows. What NDB refuses is an error, what it warns of a warning.
func (d *draft) check(c *Config) {
	d.checkHosts(c)
	d.checkPorts(c)
	d.checkHeartbeatOrder(c)
	d.checkArbitration(c)
	d.checkServers(c)
	for _, n := range c.DataNodes() {
		d.checkPools(n)
		d.checkBackup(n)
		d.checkThreads(n)
		if v := n.at("Diskless"); v.num == 0 {
			is := "is"
			if !v.set {
				is = "is by default"
			}
			d.report.warn(int(v.line), "NDBD", "Diskless", is+" false, but "+becauseRecovery, "set Diskless=1 to say that you know")
		}
	}
	if len(c.APINodes()) == 0 {
		d.report.warn(0, "API", "", "is missing: no client can connect", "write an [API] section for each client")
	}
}

// failAt complains about a value of a node.
func (d *draft) failAt(n *Node, parameter, text, suggestion string) {
	d.report.fail(int(n.at(parameter).line), n.section.String(), parameter, text, suggestion)
}

func (d *draft) warnAt(n *Node, parameter, text, suggestion string) {
	d.report.warn(int(n.at(parameter).line), n.section.String(), parameter, text, suggestion)
}

// isLoopback says that a host name means the host it is used on.
func isLoopback(host string) bool {
	return strings.EqualFold(host, localhost) || host == "::1" || strings.HasPrefix(host, "127.")
}

// checkHosts refuses a mixture of localhost and other names, which means different hosts to different nodes, and
// warns where one host's failure takes more than it should.
func (d *draft) checkHosts(c *Config) {
	var local, remote *Node
	for _, n := range c.Nodes {
		switch {
		case n.HostName == "":
		case isLoopback(n.HostName):
			local = n
		case remote == nil:
			remote = n
		}
	}
	if local != nil && remote != nil {
		n, by := local, ""
		if !local.IsSet("HostName") {
			by = ", by default,"
		}
		d.report.fail(int(max(int32(n.line), n.at("HostName").line)), n.section.String(), "HostName", "is"+by+" "+clip(n.HostName)+" of node "+itoa(n.ID)+
			", and "+clip(remote.HostName)+" of node "+itoa(remote.ID)+": localhost means another host to every node", "give all nodes names or addresses that all hosts know")
		return
	}
	if local != nil || c.Replicas() < 2 {
		return // one host is all there is, or one node is all that has the data
	}
	noThird := d.checkThirdHost(c)
	for _, a := range c.Nodes {
		for _, b := range c.DataNodes() {
			if a == b || !strings.EqualFold(a.HostName, b.HostName) {
				continue
			}
			switch {
			case a.Type == DataNode && a.ID < b.ID && a.NodeGroup == b.NodeGroup && a.NodeGroup != NoNodeGroup:
				d.warnAt(b, "HostName", "is "+clip(b.HostName)+" of both nodes "+itoa(a.ID)+" and "+itoa(b.ID)+" of node group "+itoa(a.NodeGroup)+
					", so that the group is lost with this host", "put the nodes of a group on different hosts")
			case a.Type != DataNode && a.Int("ArbitrationRank") > 0 && !noThird:
				d.warnAt(a, "HostName", "is "+clip(a.HostName)+" of both the arbitrator, node "+itoa(a.ID)+", and data node "+itoa(b.ID)+
					", so that the cluster may stop with this host", "put the arbitrator on a host without data nodes")
			}
		}
	}
}

// checkThirdHost warns where the data nodes have two hosts and whoever could decide between these is on one of them: the
// cluster then stops with that host, and with the other one lives. It says whether it warned.
func (d *draft) checkThirdHost(c *Config) bool {
	hosts := map[string]bool{}
	for _, n := range c.DataNodes() {
		hosts[strings.ToLower(n.HostName)] = true
	}
	if len(hosts) != 2 || hosts[""] || c.DataNodes()[0].String("Arbitration") == "Disabled" {
		return false
	}
	var first *Node
	for _, n := range c.Nodes {
		if n.Type == DataNode || n.Int("ArbitrationRank") == 0 {
			continue
		}
		if !hosts[strings.ToLower(n.HostName)] {
			return false // or it may be on any host
		}
		if first == nil {
			first = n
		}
	}
	if first == nil {
		return false
	}
	d.warnAt(first, "HostName", "is "+clip(first.HostName)+" of both the arbitrator, node "+itoa(first.ID)+
		", and a data node, and there is no other that could be arbitrator on a third host: if this host is lost the cluster stops",
		"put a management server on a host without data nodes")
	return true
}

// checkServers refuses several management servers that cannot reach each other: they would give node ids away twice.
func (d *draft) checkServers(c *Config) {
	servers := c.ManagementNodes()
	if len(servers) < 2 {
		return
	}
	for _, n := range servers {
		if n.HostName == "" {
			d.report.fail(n.line, n.section.String(), "HostName", "is missing of node "+itoa(n.ID)+", so that the other management servers cannot reach it",
				"give every management server its HostName")
		}
		if n.Int("PortNumber") == 0 {
			d.failAt(n, "PortNumber", "is 0 of node "+itoa(n.ID)+", so that the other management servers cannot know its port", "give every management server a port")
		}
	}
}

// checkPorts refuses two nodes that would listen on one port of a host.
func (d *draft) checkPorts(c *Config) {
	port := func(n *Node) (string, int64) {
		switch n.Type {
		case ManagementNode:
			return "PortNumber", n.Int("PortNumber")
		case DataNode:
			return "ServerPort", n.Int("ServerPort")
		}
		return "", 0
	}
	for i, b := range c.Nodes {
		name, p := port(b)
		if p == 0 {
			continue
		}
		for _, a := range c.Nodes[:i] {
			if _, q := port(a); q == p && strings.EqualFold(a.HostName, b.HostName) {
				d.report.fail(int(max(b.at(name).line, int32(b.line))), b.section.String(), name, "is "+itoa(int(p))+" of both nodes "+itoa(a.ID)+" and "+itoa(b.ID)+" on host "+clip(b.HostName),
					"give each a port of its own")
				break
			}
		}
	}
}

// checkHeartbeatOrder wants all data nodes in the order, or none.
func (d *draft) checkHeartbeatOrder(c *Config) {
	data := c.DataNodes()
	for i, n := range data {
		v := n.at("HeartbeatOrder")
		if (v.num != 0) != (data[0].Int("HeartbeatOrder") != 0) {
			d.report.fail(int(max(v.line, data[0].at("HeartbeatOrder").line)), "NDBD", "HeartbeatOrder", "is set for some data nodes and not for node "+
				itoa(n.ID)+" or "+itoa(data[0].ID), "set it for all or for none")
			return
		}
		for _, m := range data[:i] {
			if v.num != 0 && m.Int("HeartbeatOrder") == v.num {
				d.failAt(n, "HeartbeatOrder", "is "+itoa(int(v.num))+" of both nodes "+itoa(m.ID)+" and "+itoa(n.ID), "give each data node a place of its own")
				return
			}
		}
	}
}

// checkArbitration warns where nobody could decide which half of a cluster lives on.
func (d *draft) checkArbitration(c *Config) {
	data := c.DataNodes()[0]
	if c.Replicas() < 2 || data.String("Arbitration") == "Disabled" {
		return
	}
	line := int32(0)
	for _, n := range c.Nodes {
		if n.Type != DataNode {
			v := n.at("ArbitrationRank")
			if v.num != 0 {
				return
			}
			line = max(line, v.line)
		}
	}
	d.report.warn(int(line), SectionMGMD.String(), "ArbitrationRank", "is 0 of every node, so that there is no arbitrator and a cluster cut in halves stops",
		"set it to 1 for a management server, or Arbitration=Disabled")
}

// checkPools checks the numbers of records that depend on each other.
func (d *draft) checkPools(n *Node) {
	if n.Int("TransactionMemory") != 0 {
		for _, name := range []string{"MaxNoOfConcurrentIndexOperations", "MaxNoOfFiredTriggers", "MaxNoOfLocalOperations", "MaxNoOfLocalScans"} {
			if n.IsSet(name) {
				d.failAt(n, name, "is set beside TransactionMemory, which takes its place", "delete one of the two")
			}
		}
	}
	if ops, trans := n.at("MaxNoOfConcurrentOperations"), n.at("MaxNoOfConcurrentTransactions"); ops.num < trans.num {
		d.report.fail(int(max(ops.line, trans.line)), n.section.String(), "MaxNoOfConcurrentTransactions", "is "+itoa(int(trans.num))+
			", above MaxNoOfConcurrentOperations, which is "+itoa(int(ops.num))+", though every transaction has an operation",
			"make MaxNoOfConcurrentOperations at least as large")
	}
	if sum := n.Int("MaxNoOfTables") + n.Int("MaxNoOfOrderedIndexes") + n.Int("MaxNoOfUniqueHashIndexes"); sum > math.MaxUint32-1 {
		d.failAt(n, "MaxNoOfTables", "makes, with MaxNoOfOrderedIndexes and MaxNoOfUniqueHashIndexes, "+itoa(int(sum))+" objects",
			"stay below "+itoa(math.MaxUint32)+" in all")
	}
}

// checkBackup checks the sizes of a backup's buffers against those of its writes.
func (d *draft) checkBackup(n *Node) {
	write := n.Int("BackupWriteSize")
	for _, rule := range [...]struct {
		name  string
		least int64
	}{{"BackupMaxWriteSize", write}, {"BackupDataBufferSize", write + 188<<10}, {"BackupLogBufferSize", write + 16<<10}} {
		if n.Int(rule.name) < rule.least {
			d.warnAt(n, rule.name, "is "+formatBytes(n.Int(rule.name))+", too little for a BackupWriteSize of "+formatBytes(write),
				"make it at least "+formatBytes(rule.least))
		}
	}
}

// checkThreads says which of several parameters about threads wins, and where more LDM threads are asked for than
// there are log parts to share out among them.
func (d *draft) checkThreads(n *Node) {
	automatic, threads, most := n.Bool("AutomaticThreadConfig"), n.String("ThreadConfig") != "", n.IsSet("MaxNoOfExecutionThreads")
	if automatic && threads {
		d.warnAt(n, "ThreadConfig", "has no effect, because AutomaticThreadConfig overrides it", "delete one of the two")
	}
	if most && (automatic || threads) {
		d.warnAt(n, "MaxNoOfExecutionThreads", "has no effect, because AutomaticThreadConfig or ThreadConfig overrides it", "delete one of them")
	}
	if n.IsSet("NumCPUs") && !automatic {
		d.warnAt(n, "NumCPUs", "has no effect, because AutomaticThreadConfig is not set", "set AutomaticThreadConfig=1, or delete the line")
	}
	name := "ThreadConfig"
	layout := n.ThreadLayout()
	if layout.Source == ThreadsMax {
		name = "MaxNoOfExecutionThreads"
	}
	if parts := int(n.Int("NoOfFragmentLogParts")); layout.Counts.LDM > parts {
		d.warnAt(n, name, "asks for "+itoa(layout.Counts.LDM)+" LDM threads, of which "+itoa(parts)+" get work: there are so many log parts",
			"raise NoOfFragmentLogParts")
	}
}
