package sim

import "github.com/cohortdb/cohort/internal/signal"

// checkAgree demands that all nodes know the same newest epoch, or one of them that before it, whose end they are just
// being told.
func checkAgree(x *run) {
	var newest, before signal.GCI
	for _, e := range x.epochs {
		if e >= newest {
			newest, before = e, newest
		} else {
			before = max(before, e)
		}
	}
	for _, d := range x.cluster.nodes {
		if d.epoch != newest && d.epoch != before {
			x.net.failf("node %d has finished epoch %v at rest, and others %v, before which was %v", d.proc.ID, d.epoch, newest, before)
			return
		}
	}
}
