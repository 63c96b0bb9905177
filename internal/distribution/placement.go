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
	chains  []signal.Addr // fragment → ldms, signal.MaxReplicas each, primary first, 0 = none
}

// group is a node group's members, in the order of their node numbers.
type group []signal.Member

// groupsOf sorts members into their groups, lowest group first. Groups without a member do not appear.
func groupsOf(members []signal.Member) []group {
	var order []uint32
	for _, m := range members {
		order = insertSorted(order, m.Group)
	}
	groups := make([]group, len(order))
	for i, g := range order {
		for _, m := range members {
			if m.Group == g {
				groups[i] = append(groups[i], m)
			}
		}
		for a := range groups[i] {
			for c := a; c > 0 && groups[i][c].Node < groups[i][c-1].Node; c-- {
				groups[i][c], groups[i][c-1] = groups[i][c-1], groups[i][c]
			}
		}
	}
	return groups
}

func insertSorted(s []uint32, v uint32) []uint32 {
	i := 0
	for i < len(s) && s[i] < v {
		i++
	}
	if i < len(s) && s[i] == v {
		return s
	}
	s = append(s, 0)
	copy(s[i+1:], s[i:])
	s[i] = v
	return s
}

// defaultFragments is the number of fragments of a table that does not say: perNode for each member, fewer where that
// were more than a table can have.
func defaultFragments(members, perNode int) int {
	return min(perNode, maxFragments/members) * members
}

// place spreads the fragments of a table over the members. Groups take turns; within a group the replicas take turns
// at being primary; and the log part, which decides the ldm at each node, is chosen so that both the primaries of a
// node and all its replicas are spread evenly over its ldms. turn, the table's id, shifts all three, so that tables
// of a few fragments do not all lie at the same place.
//
// Nothing here depends on the order in which nodes joined: the same members give the same placement.
func place(members []signal.Member, turn, fragments, logParts int) layout {
	invariant.That(len(members) > 0 && fragments > 0 && fragments <= maxFragments, "a table has fragments, and nodes to hold them")
	groups := groupsOf(members)
	l := layout{buckets: make([]uint16, Buckets), chains: make([]signal.Addr, fragments*signal.MaxReplicas)}
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
			m := g[(primary+i)%r]
			l.chains[f*signal.MaxReplicas+i] = signal.MakeAddr(uint8(m.Node), signal.BlockLDM, uint16(logPart%int(m.LDMs)))
		}
	}
	return l
}

// onPlaceReq answers the dictionary.
func (b *Block) onPlaceReq(r *signal.PlaceReq) {
	invariant.That(len(b.members) > 0, "tables are made after the start")
	n := int(r.Fragments)
	if n == 0 {
		n = defaultFragments(len(b.members), b.cfg.PartitionsPerNode)
	}
	if n > maxFragments {
		c := kernel.Send[signal.PlaceConf](b.env, r.From, b.self, signal.NumPlaceConf)
		c.Ref, c.Code, c.Fragments, c.Buckets = r.Ref, codeNoFragments, 0, 0
		return
	}
	l := place(b.members, int(r.Table), n, b.cfg.LogParts)
	c := (*signal.PlaceConf)(b.env.Put(r.From, b.self, signal.NumPlaceConf, signal.PlaceConfSize(Buckets, uint32(n))))
	c.Ref, c.Code, c.Fragments, c.Buckets = r.Ref, 0, uint32(n), Buckets
	clear(unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(c), unsafe.Sizeof(*c))), signal.Pad(2*Buckets)))
	copy(c.Map(), l.buckets)
	copy(c.Chains(), l.chains)
}
