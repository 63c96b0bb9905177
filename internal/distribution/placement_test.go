package distribution

import (
	"testing"

	"github.com/cohortdb/cohort/internal/signal"
)

// clusterOf makes members: groups × replicas, with ldms ldms each, in a scrambled order of joining.
func clusterOf(groups, replicas, ldms int) []signal.Member {
	var m []signal.Member
	for i := range groups * replicas {
		m = append(m, signal.Member{State: signal.MemberLeading, Node: uint32(i + 1), Group: uint32(i / replicas), LDMs: uint32(ldms), TCs: 1})
	}
	for i := range m {
		j := (i*7 + 3) % len(m)
		m[i], m[j] = m[j], m[i]
	}
	for i := range m {
		m[i].DynamicID = uint32(i + 1)
	}
	return m
}

func spread(t *testing.T, what string, counts []int, slack int) {
	t.Helper()
	lo, hi := counts[0], counts[0]
	for _, c := range counts {
		lo, hi = min(lo, c), max(hi, c)
	}
	if hi-lo > slack {
		t.Errorf("%s: between %d and %d", what, lo, hi)
	}
}

// For every shape of cluster with the default number of fragments: primaries are spread evenly over nodes, primaries
// and replicas of each node over its ldms, buckets over fragments, and chains are whole.
func TestDefaultPlacementIsEven(t *testing.T) {
	const logParts = 12 // a multiple of every number of ldms below
	for groups := 1; groups <= 5; groups++ {
		for replicas := 1; replicas <= signal.MaxReplicas; replicas++ {
			for _, ldms := range []int{1, 2, 3, 4, 6} {
				for perNode := 1; perNode <= 8; perNode++ {
					for turn := range 5 {
						members := clusterOf(groups, replicas, ldms)
						n := defaultFragments(len(members), perNode)
						l := place(members, turn, n, logParts)
						primaries := make([]int, len(members))
						byLDM := make([][2][]int, len(members))
						for i := range byLDM {
							byLDM[i] = [2][]int{make([]int, ldms), make([]int, ldms)}
						}
						for f := range n {
							seen := map[uint8]bool{}
							var group uint32
							for i := range replicas {
								a := l.chains[f*signal.MaxReplicas+i]
								if a.Block() != signal.BlockLDM || int(a.Instance()) >= ldms || seen[a.Node()] {
									t.Fatalf("fragment %d replica %d at %v", f, i, a)
								}
								seen[a.Node()] = true
								g := uint32(int(a.Node()-1) / replicas)
								if i > 0 && g != group {
									t.Fatalf("fragment %d is in two groups", f)
								}
								group = g
								byLDM[a.Node()-1][1][a.Instance()]++
								if i == 0 {
									primaries[a.Node()-1]++
									byLDM[a.Node()-1][0][a.Instance()]++
								}
							}
							for i := replicas; i < signal.MaxReplicas; i++ {
								if l.chains[f*signal.MaxReplicas+i] != 0 {
									t.Fatalf("fragment %d has more than %d replicas", f, replicas)
								}
							}
						}
						spread(t, "primaries by node", primaries, 0)
						for i := range byLDM {
							spread(t, "primaries by ldm", byLDM[i][0], 1)
							spread(t, "replicas by ldm", byLDM[i][1], 1)
						}
						counts := make([]int, n)
						for _, f := range l.buckets {
							counts[f]++
						}
						spread(t, "buckets by fragment", counts, 1)
						if t.Failed() {
							t.Fatalf("groups %d replicas %d ldms %d perNode %d turn %d", groups, replicas, ldms, perNode, turn)
						}
					}
				}
			}
		}
	}
}

// Tables of one fragment do not all lie at the same node.
func TestSmallTablesAreSpread(t *testing.T) {
	members := clusterOf(2, 2, 2)
	primaries := make([]int, 4)
	for turn := range 40 {
		l := place(members, turn, 1, 4)
		primaries[l.chains[0].Node()-1]++
	}
	for i, n := range primaries {
		if n == 0 {
			t.Errorf("node %d is primary of no table: %v", i+1, primaries)
		}
	}
}

// Any number of fragments, and groups that lack a node, give whole chains of nodes that are there.
func TestOddShapes(t *testing.T) {
	members := clusterOf(3, 2, 3)
	for i := range members {
		if members[i].Node == 4 {
			members = append(members[:i], members[i+1:]...)
			break
		}
	}
	for _, n := range []int{1, 2, 3, 7, 100, maxFragments} {
		l := place(members, 1, n, 4)
		for f := range n {
			a := l.chains[f*signal.MaxReplicas]
			if a.Node() == 0 || a.Node() == 4 {
				t.Fatalf("of %d fragments, %d has its primary at %v", n, f, a)
			}
			if b := l.chains[f*signal.MaxReplicas+1]; b == 0 && a.Node() != 3 {
				t.Fatalf("of %d fragments, %d has one replica at %v", n, f, a)
			}
		}
		if int(l.buckets[Buckets-1]) >= n {
			t.Fatalf("bucket → fragment %d of %d", l.buckets[Buckets-1], n)
		}
	}
}

// The same members in another order of joining give the same placement.
func TestPlacementDoesNotDependOnTheOrderOfJoining(t *testing.T) {
	a := clusterOf(2, 3, 2)
	b := append([]signal.Member(nil), a...)
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	x, y := place(a, 3, 24, 4), place(b, 3, 24, 4)
	for i := range x.chains {
		if x.chains[i] != y.chains[i] {
			t.Fatalf("chains differ at %d", i)
		}
	}
}

func TestDefaultFragmentsStayWithinATable(t *testing.T) {
	for members := 1; members <= signal.MaxDataNode; members++ {
		n := defaultFragments(members, 332)
		if n < members || n > maxFragments || n%members != 0 {
			t.Fatalf("%d members: %d fragments", members, n)
		}
	}
}
