package sim

import (
	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/signal"
)

// unexplained tells what is wrong with a data node's ending by itself, "" if something explains it: it was asked to stop,
// or it and the others had reason to give each other up, or it was not in the cluster yet.
func (x *run) unexplained(d *dataNode, e exit) string {
	switch {
	case e.code == exitcode.Bug || e.code == exitcode.Memory || e.code == exitcode.Config:
		return "which is never right"
	case !x.cluster.disturbed:
		return "and nothing was done to the cluster"
	case x.watch.of(d.proc.ID).stopping:
		return ""
	}
	v := x.watch.newest()
	if v == nil || !v.Serving(d.proc.ID) || x.net.now < d.hurt+suspicion {
		return ""
	}
	for _, m := range v.Members {
		o := uint8(m.Node)
		if m.State < signal.MemberFollowing || o == d.proc.ID {
			continue
		}
		// Its links are closed by now. What counts is whether the ways are, and whether the others live.
		if n := x.net; !n.sound(n.procs[o], d.ghost()) || !n.sound(d.ghost(), n.procs[o]) || n.now < x.cluster.nodes[o-1].hurt+suspicion {
			return ""
		}
	}
	return "and nothing was done to it or the nodes that it was with"
}

// ghost is a process in the place of one that has just ended.
func (d *dataNode) ghost() *Process { return &Process{ID: d.proc.ID, index: d.proc.index} }
