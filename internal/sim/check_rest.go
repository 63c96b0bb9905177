package sim

// checkRest demands that nothing is under way in a cluster whose clients have all ended their transactions.
func checkRest(x *run) {
	for _, d := range x.cluster.nodes {
		for i, b := range d.node.TCs {
			if b.Transactions() != 0 || b.Operations() != 0 {
				x.net.failf("coordinator %d of node %d has %d transactions and %d operations at rest", i, d.proc.ID, b.Transactions(), b.Operations())
			}
		}
		for i, b := range d.node.LDMs {
			if b.Operations() != 0 || b.Copies() != 0 {
				x.net.failf("ldm %d of node %d has %d operations and %d bytes of copies at rest", i, d.proc.ID, b.Operations(), b.Copies())
			}
		}
	}
	for _, a := range x.apis {
		for _, s := range a.sessions {
			if s.s.Open() != 0 || s.s.Busy() != 0 || s.s.Counters.Malformed != 0 {
				x.net.failf("%v has %d transactions (%d busy) at rest, and has met %d malformed answers", s, s.s.Open(), s.s.Busy(), s.s.Counters.Malformed)
			}
		}
	}
	x.cluster.invariants()
}

// checkForgotten demands that nothing is left of sessions that were closed.
func checkForgotten(x *run) {
	checkRest(x)
	for _, d := range x.cluster.nodes {
		for i, b := range d.node.TCs {
			if b.Sessions() != 0 {
				x.net.failf("coordinator %d of node %d keeps outcomes of %d sessions that are closed", i, d.proc.ID, b.Sessions())
			}
		}
		for i, b := range d.node.LDMs {
			if b.Sessions() != 0 {
				x.net.failf("ldm %d of node %d keeps outcomes of %d sessions that are closed", i, d.proc.ID, b.Sessions())
			}
		}
	}
}

// checkEmpty demands that all pages are back when all tables are dropped.
func checkEmpty(x *run) {
	checkRest(x)
	for _, d := range x.cluster.nodes {
		if free := d.pages.Free(); free != d.chunks {
			x.net.failf("node %d has %d of %d chunks of data memory back, and there is no table", d.proc.ID, free, d.chunks)
		}
	}
}
