package membership

// Which members go on together when not all hear each other: the best set of members of which each hears each.
//
// Everybody who decides about the same view with the same knowledge comes to the same set, whoever he is; a node that is
// not in the set it found gives way (leader.yield). Members whose answer is not there are taken at the word of
// others: what they have last told them to hear.

import (
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/view"
)

// cliquesMax bounds the sets that are compared. It is reached only if many links between many nodes are broken in a
// pattern of their own; then a good set is taken, which need not be the best.
const cliquesMax = 4096

// graph is who hears whom.
type graph struct {
	view   *view.View
	rows   [signal.MaxDataNode + 1]signal.NodeSet // by node: whom it hears
	best   signal.NodeSet
	leaves int
}

// both tells whether two nodes hear each other.
func (g *graph) both(a, c uint8) bool { return a == c || g.rows[a].Has(c) && g.rows[c].Has(a) }

// strangers is the nodes of a set that a node does not hear, or that do not hear it.
func (g *graph) strangers(n uint8, set *signal.NodeSet) signal.NodeSet {
	var s signal.NodeSet
	for o := set.Next(0); o != 0; o = set.Next(o) {
		if !g.both(n, o) {
			s.Add(o)
		}
	}
	return s
}

// bestSet finds the best set among the given members.
func (g *graph) bestSet(among signal.NodeSet) signal.NodeSet {
	g.best, g.leaves = signal.NodeSet{}, 0
	g.divide(among)
	return g.best
}

// divide looks at all sets within one: of the node with the most strangers either it goes, or they do.
func (g *graph) divide(set signal.NodeSet) {
	worst, most := uint8(0), signal.NodeSet{}
	for n := set.Next(0); n != 0; n = set.Next(n) {
		if s := g.strangers(n, &set); s.Count() > most.Count() {
			worst, most = n, s
		}
	}
	if worst == 0 {
		g.leaves++
		if g.better(&set, &g.best) {
			g.best = set
		}
		return
	}
	g.divide(set.Minus(&most))
	if g.leaves < cliquesMax {
		set.Remove(worst)
		g.divide(set)
	}
}

// class is how good a set is by its right to go on.
func (g *graph) class(set *signal.NodeSet) int {
	switch g.view.Weigh(set) {
	case view.Lives:
		return 2
	case view.Arbitrates:
		return 1
	}
	return 0
}

// better tells whether a set is better than another: it may go on, it has more members with their data, more members, or
// those that have been there longer.
func (g *graph) better(a, c *signal.NodeSet) bool {
	if c.Empty() || a.Empty() {
		return c.Empty() && !a.Empty()
	}
	if x, y := g.class(a), g.class(c); x != y {
		return x > y
	}
	serving := g.view.ServingSet()
	away := func(s *signal.NodeSet) int { m := serving.Minus(s); return m.Count() }
	if x, y := away(a), away(c); x != y {
		return x < y
	}
	if x, y := a.Count(), c.Count(); x != y {
		return x > y
	}
	for _, m := range g.view.Members {
		if x, y := a.Has(uint8(m.Node)), c.Has(uint8(m.Node)); x != y {
			return x
		}
	}
	return false
}

// clique tells whether all of a set hear each other.
func (g *graph) clique(set *signal.NodeSet) bool {
	for n := set.Next(0); n != 0; n = set.Next(n) {
		if s := g.strangers(n, set); !s.Empty() {
			return false
		}
	}
	return true
}
