package sim

import "github.com/cohortdb/cohort/internal/signal"

// checkRows compares what was read back at the end with what the clients were told: every acknowledged change is
// there, and nothing else is.
func checkRows(x *run) {
	n, l := x.net, x.load
	for _, c := range l.model.cells {
		if n.failure != nil {
			return
		}
		switch v := c.final; {
		case c.rel.name == passingName:
		case len(c.vague) > 0: // checkDoubts has looked at it
		case c.class == classPrivate:
			if v != c.exact {
				n.failf("%v holds %+v at the end, but must hold %+v", c, v, c.exact)
			}
		case c.class == classChain:
			if !v.present || v.version != c.version {
				n.failf("%v is there: %v, version %d at the end, but version %d was acknowledged", c, v.present, v.version, c.version)
			}
			l.newest(c, v.tagB, v.hasB, c.gciB, true)
		case len(c.doubts) > 0: // how many inserts and deletes there were is not known
		default:
			if v.present != (c.inserts == 1) || c.inserts < 0 || c.inserts > 1 {
				n.failf("%v is there at the end: %v, but %d more inserts than deletes were acknowledged", c, v.present, c.inserts)
				return
			}
			if v.present {
				l.newest(c, v.tag, true, c.gci, false)
				l.newest(c, v.tagB, v.hasB, c.gciB, true)
			}
		}
	}
}

// newest demands that what is there at the end (of the first or the second part: a tag, or NULL) is of a change in the
// newest epoch that was acknowledged for it.
func (l *load) newest(c *cell, tag uint32, set bool, gci uint64, second bool) {
	if second && !c.rel.hasB() || len(c.doubts) > 0 {
		return
	}
	for i := range c.changes {
		h := &c.changes[i]
		switch {
		case h.gci != gci || h.delete:
		case second && h.touchesB() && h.hasB == set && (!set || h.tag == tag), !second && h.part != partB && h.tag == tag:
			return
		}
	}
	l.net.failf("%v holds tag %d at the end (second part: %v, set: %v), which is of no acknowledged change in its newest epoch %v",
		c, tag, second, set, signal.GCI(gci))
}
