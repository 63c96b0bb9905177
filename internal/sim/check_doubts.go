package sim

import "github.com/cohortdb/cohort/internal/signal"

// checkDoubts decides, from what is there at the end, what became of each transaction whose client could not know: it must
// be there whole or not at all, and if somebody has seen it, it must be there.
func checkDoubts(x *run) {
	for _, t := range x.load.model.doubts {
		if x.net.failure != nil {
			return
		}
		x.decide(t)
	}
}

// finding is what one row says about a transaction.
type finding struct {
	committed bool
	by        *cell
}

func (x *run) decide(t *txn) {
	var found []finding
	for _, a := range t.actions {
		if c := a.cell; a.code == 0 && !signal.IsRead(a.op) && c.class == classChain && a.part != partB {
			if is, sure := c.has(a); sure {
				found = append(found, finding{is, c})
			}
		}
	}
	for _, p := range t.pend {
		switch old := p.cell.vague[0].v; {
		case old == p.v:
		case p.cell.final == p.v:
			found = append(found, finding{true, p.cell})
		case p.cell.final == old:
			found = append(found, finding{false, p.cell})
		default:
			x.net.failf("%v holds %+v at the end, and must hold %+v or %+v: the outcome of %v is unknown", p.cell, p.cell.final, old, p.v, t)
			return
		}
	}
	for _, f := range found {
		if f.committed != found[0].committed {
			x.net.failf("%v is there in part: committed in %v: %v, committed in %v: %v", t, found[0].by, found[0].committed, f.by, f.committed)
			return
		}
	}
	if len(found) == 0 {
		return // it left nothing by which one could tell
	}
	if !found[0].committed {
		t.state = txnAborted
		if t.certain {
			x.net.failf("%v is not there, but its client was told that it is committed: %v", t, found[0].by)
			return
		}
		if t.seen != nil {
			x.net.failf("%v was rolled back, but %v has read what it wrote", t, t.seen)
		}
		return
	}
	t.state = txnCommitted
	for _, a := range t.actions {
		if a.code == 0 && !signal.IsRead(a.op) && a.cell.class == classChain && a.part != partB {
			a.cell.changes = append(a.cell.changes, change{version: a.v.version, tag: a.v.tag, t: t, part: a.part, hasB: a.v.hasB})
			a.cell.version = max(a.cell.version, a.v.version)
		}
	}
}

// has tells whether a chained row has been through the version that an action wrote. sure: that can be told.
func (c *cell) has(a *action) (is, sure bool) {
	v := a.v.version
	switch {
	case !c.final.present || c.final.version < v:
		return false, true
	case c.final.version == v:
		return c.final.tag == a.v.tag, true
	}
	for _, h := range c.changes {
		if h.part != partB && h.version == v {
			return h.tag == a.v.tag, true
		}
	}
	for _, d := range c.doubts {
		if d != a && d.t != a.t && d.part != partB && d.v.version == v {
			return false, false // one of the two
		}
	}
	return true, true
}
