package sim

import (
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/view"
)

// Whether a cluster must survive what is about to be done to it. The rule is the failure model's: a part that hears each
// other goes on if view.Weigh lets it live, or arbitrate with an arbitrator that it can reach. Where the nodes' decision
// depends on who finds out first, each outcome must be good.

// suspicion is how long something that has passed may still make nodes give each other up, ns.
const suspicion = 4 * second

// hears tells whether two data nodes can be sure to stay together.
func (x *run) hears(a, b uint8) bool {
	n := x.net
	p, q := n.procs[a], n.procs[b]
	return linked(p, q) && n.sound(p, q) && n.sound(q, p)
}

// sound tells whether what one process sends is sure to reach another in time.
func (n *Network) sound(p, q *Process) bool {
	w := n.wire(p, q)
	return p.alive() && q.alive() && !p.paused && !q.paused && w.cut == 0 && w.slow.Floor < 200*millisecond && n.now >= w.suspect
}

// prospect is what is to become of a cluster.
type prospect uint8

const (
	safe      prospect = iota // a part lives by itself, whatever happens
	arbitrate                 // the arbitrator is needed
	doomed                    // nobody can be sure to live
)

// outlook is what becomes of the newest view's members, when ok tells who is sure to stay and hears who hears whom.
func (x *run) outlook(v *view.View, ok func(id uint8) bool, hears func(a, b uint8) bool) prospect {
	var ids []uint8
	for _, m := range v.Members {
		if ok(uint8(m.Node)) {
			ids = append(ids, uint8(m.Node))
		}
	}
	best := doomed
	for len(ids) > 0 {
		part := component(ids, hears)
		var rest []uint8
		for _, id := range ids {
			if !contains(part, id) {
				rest = append(rest, id)
			}
		}
		ids = rest
		best = min(best, x.outlookOf(v, part, hears))
	}
	return best
}

// component is all that the first of some nodes hears, directly or by way of others.
func component(ids []uint8, hears func(a, b uint8) bool) []uint8 {
	part := []uint8{ids[0]}
	for i := 0; i < len(part); i++ {
		for _, id := range ids {
			if !contains(part, id) && hears(part[i], id) {
				part = append(part, id)
			}
		}
	}
	return part
}

func contains(ids []uint8, id uint8) bool {
	for _, x := range ids {
		if x == id {
			return true
		}
	}
	return false
}

// outlookOf is the worst that the largest sets of nodes of a part that all hear each other may expect.
func (x *run) outlookOf(v *view.View, part []uint8, hears func(a, b uint8) bool) prospect {
	most, worst := 0, doomed
	for bits := 1; bits < 1<<len(part); bits++ {
		var ids []uint8
		var set signal.NodeSet
		all := true
		for i, id := range part {
			if bits>>i&1 != 0 {
				for _, o := range ids {
					all = all && hears(o, id)
				}
				ids = append(ids, id)
				set.Add(id)
			}
		}
		if !all || len(ids) < most {
			continue
		}
		if len(ids) > most {
			most, worst = len(ids), safe
		}
		switch v.Weigh(&set) {
		case view.Lives:
		case view.Arbitrates:
			worst = max(worst, arbitrate)
			if !x.arbitrable(v, ids) {
				worst = doomed
			}
		default:
			worst = doomed
		}
	}
	return worst
}

// arbitrable tells whether all of some nodes know a ticket of the view, and its arbitrator can be reached by each of them.
func (x *run) arbitrable(v *view.View, ids []uint8) bool {
	who := uint8(0)
	for _, id := range ids {
		w := x.watch.of(id)
		if w.ticketView != v.Number || w.arbitrator == 0 || who != 0 && who != w.arbitrator {
			return false
		}
		who = w.arbitrator
	}
	a := x.net.procs[who]
	for _, id := range ids {
		if a == nil || x.watch.of(id).ticketLife != a.life {
			return false
		}
		p := x.net.procs[id]
		if a == nil || !linked(p, a) || !x.net.sound(p, a) || !x.net.sound(a, p) {
			return false
		}
	}
	return true
}

// survivable tells whether the cluster must survive a fault, on top of all that has been done to it.
func (x *run) survivable(f *fault) bool {
	v := x.watch.newest()
	if v == nil { // it is about to start
		return f.kind == faultKill || f.kind == faultPause
	}
	stays := func(id uint8) bool {
		p := x.net.procs[id]
		return p.alive() && !p.paused && !x.watch.of(id).stopping && x.watch.of(id).view.Has(id)
	}
	if x.outlook(v, stays, x.hears) != safe {
		return false // one thing after the other
	}
	hit := func(id uint8) bool {
		switch f.kind {
		case faultKill, faultPause, faultStop, faultRestart:
			return contains(f.a, id)
		}
		return false
	}
	after := func(a, b uint8) bool {
		switch f.kind {
		case faultCut, faultOneWay, faultReset, faultSplit:
			if contains(f.a, a) && contains(f.b, b) || contains(f.a, b) && contains(f.b, a) {
				return false
			}
		case faultSlow:
			if f.by >= 200*millisecond && (contains(f.a, a) && contains(f.b, b) || contains(f.a, b) && contains(f.b, a)) {
				return false
			}
		}
		return x.hears(a, b)
	}
	arbitrator := func() bool { // it may not be hit together with nodes that will need it
		for _, id := range append(append([]uint8(nil), f.a...), f.b...) {
			if p := x.net.procs[id]; p != nil && p.Kind != signal.PeerData {
				return true
			}
		}
		return false
	}
	switch x.outlook(v, func(id uint8) bool { return stays(id) && !hit(id) }, after) {
	case safe:
		return true
	case arbitrate:
		return !arbitrator()
	}
	return false
}
