package distribution

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/rowhash"
	"github.com/cohortdb/cohort/internal/signal"
)

// Buckets is how many buckets a table's keys fall into. A bucket is what moves when a table is spread anew; it is much
// finer than a fragment so that any number of fragments gets nearly the same share.
const Buckets = rowhash.DistributionBuckets

// maxFragments bounds the fragments of a table: each has a bucket, and a whole TableOpenReq is one signal.
const maxFragments = Buckets

// codeNoFragments is NDB's "invalid number of fragments".
const codeNoFragments = 1224

// layout is a table's placement.
type layout struct {
	buckets []uint16      // bucket → fragment
	homes   []signal.Addr // fragment → places, signal.MaxReplicas each, preferred primary first, 0 = none
}

// group is a node group's configured nodes, in the order of their numbers.
type group []uint8

// groupsOf sorts nodes into their groups, lowest group first. Groups without a node do not appear.
func groupsOf(nodes []Node) []group {
	sorted := append([]Node(nil), nodes...)
	before := func(a, b Node) bool { return a.Group < b.Group || a.Group == b.Group && a.ID < b.ID }
	for i := range sorted {
		for k := i; k > 0 && before(sorted[k], sorted[k-1]); k-- {
			sorted[k], sorted[k-1] = sorted[k-1], sorted[k]
		}
	}
	var groups []group
	for i, n := range sorted {
		if i == 0 || sorted[i-1].Group != n.Group {
			groups = append(groups, nil)
		}
		g := &groups[len(groups)-1]
		*g = append(*g, n.ID)
	}
	return groups
}

// defaultFragments is the number of fragments of a table that does not say: perNode for each node, fewer where that
// were more than a table can have.
func defaultFragments(nodes, perNode int) int {
	return min(perNode, maxFragments/nodes) * nodes
}

// place spreads the fragments of a table over all configured nodes, whether they are there now or not. Groups take
// turns; within a group the nodes take turns at being the preferred primary; those that come next in the home, and
// thus take over when it is lost, take turns too; and the log part, which decides the ldm at each node, is chosen so
// that both the primaries of a node and all its replicas are spread evenly over its ldms. turn, the table's id, shifts
// all of this, so that tables of a few fragments do not all lie at the same place.
func place(groups []group, turn, fragments, logParts int) layout {
	invariant.That(len(groups) > 0 && fragments > 0 && fragments <= maxFragments, "a table has fragments, and nodes to hold them")
	l := layout{buckets: make([]uint16, Buckets), homes: make([]signal.Addr, fragments*signal.MaxReplicas)}
	for i := range l.buckets {
		l.buckets[i] = uint16(i % fragments)
	}
	for f := range fragments {
		g := groups[(f+turn)%len(groups)]
		k := f / len(groups) // counts the fragments of the group
		r := len(g)
		invariant.That(r <= signal.MaxReplicas, "a group has at most MaxReplicas nodes")
		share := (fragments + len(groups)*r - 1) / (len(groups) * r) // primaries of a node, rounded up
		primary := (k + turn/len(groups)) % r
		// The primaries of one node are consecutive log parts, and so are all fragments of the group.
		logPart := (k/r + primary*share + turn*share) % logParts
		for i := range r {
			at := primary
			if i > 0 {
				at = (primary + 1 + (i-1+k/r)%(r-1)) % r
			}
			l.homes[f*signal.MaxReplicas+i] = signal.MakeAddr(g[at], signal.BlockLDM, uint16(logPart))
		}
	}
	return l
}

// onPlaceReq answers the dictionary.
func (b *Block) onPlaceReq(r *signal.PlaceReq) {
	invariant.That(len(b.view.Members) > 0, "tables are made after the start")
	n := int(r.Fragments)
	if n == 0 {
		n = defaultFragments(len(b.cfg.Nodes), b.cfg.PartitionsPerNode)
	}
	if n > maxFragments {
		c := kernel.Send[signal.PlaceConf](b.env, r.From, b.self, signal.NumPlaceConf)
		c.Ref, c.Code, c.Fragments, c.Buckets = r.Ref, codeNoFragments, 0, 0
		return
	}
	l := place(b.groups, int(r.Table), n, b.cfg.LogParts)
	c := (*signal.PlaceConf)(b.env.Put(r.From, b.self, signal.NumPlaceConf, signal.PlaceConfSize(Buckets, uint32(n))))
	c.Ref, c.Code, c.Fragments, c.Buckets = r.Ref, 0, uint32(n), Buckets
	clear(unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(c), unsafe.Sizeof(*c))), signal.Pad(2*Buckets)))
	copy(c.Map(), l.buckets)
	copy(c.Chains(), l.homes)
}
