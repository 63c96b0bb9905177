package config

// formGroups puts every data node into a node group. One that names a group is in it; the others fill the groups
// that are not full yet, from the lowest number and the lowest ids up. Each group must have one node per replica.
func (d *draft) formGroups(c *Config) {
	data := c.DataNodes()
	if len(data) == 0 {
		d.report.fail(0, SectionNDBD.String(), "", "is missing: the cluster has no data node", "write an [NDBD] section for each data node")
	}
	if len(c.ManagementNodes()) == 0 {
		d.report.fail(0, SectionMGMD.String(), "", "is missing: the cluster has no management server", "write an [NDB_MGMD] section")
	}
	if !d.agree(data) || len(data) == 0 {
		return
	}
	replicas := c.Replicas()
	grouped := 0
	var size [maxDataNodes]int // of each group
	for _, n := range data {
		g := n.at("Nodegroup")
		switch {
		case !g.set:
			grouped++
		case g.num == NoNodeGroup:
			n.NodeGroup = NoNodeGroup
		case g.num >= maxDataNodes:
			d.report.fail(int(g.line), SectionNDBD.String(), "Nodegroup", "is "+itoa(int(g.num))+" of node "+itoa(n.ID)+
				", above the "+itoa(maxDataNodes)+" groups that there can be", "number groups from 0, or write 65536 for none yet")
			return
		default:
			grouped++
			n.NodeGroup = int(g.num)
			size[g.num]++
			if size[g.num] > replicas {
				d.report.fail(int(g.line), SectionNDBD.String(), "Nodegroup", "is "+itoa(int(g.num))+" of more than "+itoa(replicas)+
					" data nodes, node "+itoa(n.ID)+" being the last", "give a group as many nodes as NoOfReplicas says")
				return
			}
		}
	}
	if grouped == 0 {
		d.report.fail(data[0].line, SectionNDBD.String(), "Nodegroup", "is 65536 of every data node, so that none could hold data", "delete it for the nodes to start with")
		return
	}
	if grouped%replicas != 0 {
		v := data[0].at("NoOfReplicas")
		is := "is "
		if !v.set {
			is = "is by default "
		}
		d.report.fail(int(v.line), SectionNDBD.String(), "NoOfReplicas", is+itoa(replicas)+", by which the number of data nodes in groups, "+itoa(grouped)+", cannot be divided",
			"write NoOfReplicas="+itoa(divisor(grouped, replicas))+", or add data nodes")
		return
	}
	fill := 0
	for _, n := range data {
		if n.NodeGroup != noGroupAtAll {
			continue
		}
		for size[fill] == replicas {
			fill++
		}
		n.NodeGroup = fill
		size[fill]++
	}
	for g := 0; g < grouped/replicas; g++ {
		if size[g] != replicas {
			d.report.fail(data[0].line, SectionNDBD.String(), "Nodegroup", "leaves group "+itoa(g)+" with "+itoa(size[g])+" of "+itoa(replicas)+" nodes",
				"number groups from 0 without a gap and give each NoOfReplicas nodes")
			return
		}
	}
}

// divisor is the largest number of replicas up to most that n data nodes can be divided by.
func divisor(n, most int) int {
	for r := most; r > 1; r-- {
		if n%r == 0 {
			return r
		}
	}
	return 1
}

// agree checks the parameters that must be the same on all data nodes.
func (d *draft) agree(data []*Node) bool {
	ok := true
	for i := range tables[SectionNDBD] {
		p := &tables[SectionNDBD][i]
		if !p.Same {
			continue
		}
		for _, n := range data {
			if v := n.v[i]; v.num != data[0].v[i].num || v.str != data[0].v[i].str {
				d.report.fail(int(max(v.line, data[0].v[i].line)), SectionNDBD.String(), p.Name, "is "+p.format(v)+" of node "+itoa(n.ID)+" and "+
					p.format(data[0].v[i])+" of node "+itoa(data[0].ID), "set it once, in [NDBD DEFAULT]")
				ok = false
				break
			}
		}
	}
	return ok
}
