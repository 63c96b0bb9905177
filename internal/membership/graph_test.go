package membership

import (
	"testing"

	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/view"
)

// graphFor has nodes 1..n in groups of two, all hearing each other but for the given pairs.
func graphFor(n uint8, broken ...[2]uint8) (*graph, signal.NodeSet) {
	g, v := &graph{}, &view.View{}
	var members []signal.Member
	var all signal.NodeSet
	for i := uint8(1); i <= n; i++ {
		members = append(members, signal.Member{Node: uint32(i), DynamicID: uint32(i), Group: uint32(i-1) / 2, LDMs: 1, TCs: 1, State: signal.MemberLeading})
		all.Add(i)
	}
	for i := uint8(1); i <= n; i++ {
		g.rows[i] = all
	}
	for _, b := range broken { // one way is enough
		g.rows[b[0]].Remove(b[1])
	}
	v.Take(1, 1, members)
	g.view = v
	return g, all
}

func TestTheBestSet(t *testing.T) {
	for _, c := range []struct {
		what   string
		n      uint8
		broken [][2]uint8
		want   string
	}{
		{"nothing is broken", 4, nil, "1,2,3,4"},
		{"one link, one way: who has been there longer stays", 4, [][2]uint8{{3, 2}}, "1,2,4"},
		{"the president's link is no better than others", 4, [][2]uint8{{1, 2}, {1, 3}}, "2,3,4"},
		{"a set that may go on before a larger one that may not", 6, [][2]uint8{{5, 1}, {5, 3}, {6, 1}, {6, 2}, {6, 3}, {6, 4}, {6, 5}}, "2,4,5"},
		{"two halves: the one that holds the president", 4, [][2]uint8{{1, 2}, {1, 4}, {3, 2}, {3, 4}}, "1,3"},
		{"a chain", 4, [][2]uint8{{1, 3}, {1, 4}, {2, 4}}, "2,3"},
	} {
		g, all := graphFor(c.n, c.broken...)
		best := g.bestSet(all)
		if got := listOf(&best); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
		if !g.clique(&best) {
			t.Errorf("%s: not all hear each other", c.what)
		}
	}
}

// All links between two halves of the largest cluster are broken, and some within them: the search ends soon.
func TestTheBestSetOfTheLargestCluster(t *testing.T) {
	var broken [][2]uint8
	for a := uint8(1); a <= 144; a++ {
		for b := a + 1; b <= 144; b++ {
			if a%2 != b%2 || a%16 == 3 && b%16 == 7 {
				broken = append(broken, [2]uint8{a, b})
			}
		}
	}
	g, all := graphFor(144, broken...)
	best := g.bestSet(all)
	if !g.clique(&best) || best.Count() < 60 || g.leaves > 2*cliquesMax {
		t.Fatalf("%d nodes after %d sets", best.Count(), g.leaves)
	}
}
