package sim

import "github.com/cohortdb/cohort/internal/signal"

// checkOrder demands that the changes of a row that read it before stand in one order, without gaps, that their epochs
// follow that order, and that so do the epochs of those who only locked it: nobody's epoch is older than that of one
// whose lock it waited for.
func checkOrder(x *run) {
	n, l := x.net, x.load
	for _, c := range l.model.cells {
		if c.class != classChain || n.failure != nil {
			continue
		}
		byVersion := make([]*change, c.version+2)
		for i := range c.changes {
			h := &c.changes[i]
			if h.part == partB {
				continue
			}
			if o := byVersion[h.version]; o != nil {
				n.failf("%v: version %d was committed twice, by %v and by %v: an update is lost", c, h.version, o.t, h.t)
				return
			}
			byVersion[h.version] = h
		}
		for v := uint32(1); v <= c.version; v++ {
			if byVersion[v] == nil && c.claimed(v) {
				continue // one of several whose outcome is unknown has written it
			}
			if byVersion[v] == nil {
				n.failf("%v: version %d was committed without version %d", c, c.version, v)
				return
			}
			if before := byVersion[v-1]; before != nil && byVersion[v].gci != 0 && before.gci > byVersion[v].gci {
				n.failf("%v: version %d has epoch %v (%v), version %d after it has %v (%v)", c, v-1, signal.GCI(before.gci), before.t,
					v, signal.GCI(byVersion[v].gci), byVersion[v].t)
				return
			}
		}
		for _, g := range c.glances {
			if g.gci == 0 {
				continue // it wrote nothing and has no epoch
			}
			at, after := byVersion[g.version], byVersion[g.version+1]
			if at != nil && g.gci < at.gci {
				n.failf("%v: %v has epoch %v, but read version %d of epoch %v", c, g.t, signal.GCI(g.gci), g.version, signal.GCI(at.gci))
				return
			}
			if after != nil && after.gci != 0 && g.gci > after.gci {
				n.failf("%v: %v locked version %d and has epoch %v, but version %d, which waited for it, has epoch %v", c, g.t,
					g.version, signal.GCI(g.gci), g.version+1, signal.GCI(after.gci))
				return
			}
		}
	}
}

// claimed tells whether a transaction whose outcome is unknown wrote a version.
func (c *cell) claimed(version uint32) bool {
	for _, a := range c.doubts {
		if a.part != partB && a.v.version == version {
			return true
		}
	}
	return false
}
