package distribution

import (
	"testing"

	"github.com/cohortdb/cohort/internal/signal"
)

// clusterOf makes nodes: groups × replicas, in a scrambled order.
func clusterOf(groups, replicas int) []Node {
	var m []Node
	for i := range groups * replicas {
		m = append(m, Node{ID: uint8(i + 1), Group: uint16(i / replicas)})
	}
	for i := range m {
		j := (i*7 + 3) % len(m)
		m[i], m[j] = m[j], m[i]
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
						nodes := clusterOf(groups, replicas)
						n := defaultFragments(len(nodes), perNode)
						l := place(groupsOf(nodes), turn, n, logParts)
						primaries := make([]int, len(nodes))
						byLDM := make([][2][]int, len(nodes))
						for i := range byLDM {
							byLDM[i] = [2][]int{make([]int, ldms), make([]int, ldms)}
						}
						for f := range n {
							seen := map[uint8]bool{}
							var group uint32
							for i := range replicas {
								a := l.homes[f*signal.MaxReplicas+i]
								if a.Block() != signal.BlockLDM || int(a.Instance()) >= logParts || seen[a.Node()] {
									t.Fatalf("fragment %d replica %d at %v", f, i, a)
								}
								seen[a.Node()] = true
								g := uint32(int(a.Node()-1) / replicas)
								if i > 0 && g != group {
									t.Fatalf("fragment %d is in two groups", f)
								}
								group = g
								byLDM[a.Node()-1][1][int(a.Instance())%ldms]++
								if i == 0 {
									primaries[a.Node()-1]++
									byLDM[a.Node()-1][0][int(a.Instance())%ldms]++
								}
							}
							for i := replicas; i < signal.MaxReplicas; i++ {
								if l.homes[f*signal.MaxReplicas+i] != 0 {
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
	primaries := make([]int, 4)
	for turn := range 40 {
		l := place(groupsOf(clusterOf(2, 2)), turn, 1, 4)
		primaries[l.homes[0].Node()-1]++
	}
	for i, n := range primaries {
		if n == 0 {
			t.Errorf("node %d is primary of no table: %v", i+1, primaries)
		}
	}
}

// What a lost node was primary of falls to the others of its group in equal shares.
func TestALostNodesPrimariesAreSharedOut(t *testing.T) {
	for replicas := 2; replicas <= signal.MaxReplicas; replicas++ {
		for perNode := 1; perNode <= 12; perNode++ {
			nodes := clusterOf(2, replicas)
			n := defaultFragments(len(nodes), perNode)
			l := place(groupsOf(nodes), 1, n, 12)
			for _, lost := range nodes {
				heirs := make([]int, len(nodes))
				for f := range n {
					if home := l.homes[f*signal.MaxReplicas:]; home[0].Node() == lost.ID {
						heirs[home[1].Node()-1]++
					}
				}
				for i, k := range heirs {
					peer := (i/replicas) == int(lost.ID-1)/replicas && i != int(lost.ID-1)
					if !peer && k != 0 || peer && (k < perNode/(replicas-1) || k > (perNode+replicas-2)/(replicas-1)) {
						t.Fatalf("%d replicas, %d fragments per node: node %d inherits %d of node %d's primaries", replicas, perNode, i+1, k, lost.ID)
					}
				}
			}
		}
	}
}

// Any number of fragments, and groups of different size, give whole homes of nodes that are configured.
func TestOddShapes(t *testing.T) {
	nodes := clusterOf(3, 2)
	for i := range nodes {
		if nodes[i].ID == 4 {
			nodes = append(nodes[:i], nodes[i+1:]...)
			break
		}
	}
	for _, n := range []int{1, 2, 3, 7, 100, maxFragments} {
		l := place(groupsOf(nodes), 1, n, 4)
		for f := range n {
			a := l.homes[f*signal.MaxReplicas]
			if a.Node() == 0 || a.Node() == 4 {
				t.Fatalf("of %d fragments, %d has its primary at %v", n, f, a)
			}
			if b := l.homes[f*signal.MaxReplicas+1]; b == 0 && a.Node() != 3 {
				t.Fatalf("of %d fragments, %d has one replica at %v", n, f, a)
			}
		}
		if int(l.buckets[Buckets-1]) >= n {
			t.Fatalf("bucket → fragment %d of %d", l.buckets[Buckets-1], n)
		}
	}
}

func TestDefaultFragmentsStayWithinATable(t *testing.T) {
	for nodes := 1; nodes <= signal.MaxDataNode; nodes++ {
		n := defaultFragments(nodes, 332)
		if n < nodes || n > maxFragments || n%nodes != 0 {
			t.Fatalf("%d nodes: %d fragments", nodes, n)
		}
	}
}
