package sim

import (
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
)

// Replicas are compared while the load runs, too: those of a fragment on which nothing is under way at any ldm that has
// it. Only nodes that serve, in a view that all of its members have committed, are looked at.

// quietEvery is the time between two looks, ns.
const quietEvery = 20 * millisecond

func (x *run) watchQuiet(r *Random) {
	x.net.at(x.net.now+quietEvery, func() {
		if x.load.phase == phaseLoad {
			x.lookQuiet(r)
			x.watchQuiet(r)
		}
	})
}

func (x *run) lookQuiet(r *Random) {
	v := x.watch.newest()
	if v == nil {
		return
	}
	for _, m := range v.Members {
		if p := x.net.procs[m.Node]; p.dead || x.watch.of(p.ID).view.Number != v.Number {
			return
		}
	}
	rel := x.load.tables[r.Int(len(x.load.tables))]
	f := x.load.opened[tableKey{x.apis[0], rel}]
	if f == nil {
		return
	}
	t := f[wholeRow].Table()
	frag := r.Int(t.Fragments())
	var first *store.Fragment
	var at signal.Addr
	for _, m := range v.Members {
		if m.State < signal.MemberFollowing {
			continue
		}
		for i, b := range x.cluster.nodes[m.Node-1].node.LDMs {
			g := b.Fragment(uint32(t.ID()), uint32(frag))
			if g == nil {
				continue
			}
			if b.Operations() != 0 {
				return
			}
			a := signal.MakeAddr(uint8(m.Node), signal.BlockLDM, uint16(i))
			if first == nil {
				first, at = g, a
				continue
			}
			if x.net.failure == nil {
				x.stats.Quiet++
				x.compareReplicas(rel, t, frag, first, g, at, a)
			}
		}
	}
}
