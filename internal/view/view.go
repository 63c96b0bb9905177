// Package view is who is in the cluster, as all members have agreed on it, and what follows from that alone: which node
// is primary of a fragment, in which order its replicas take a write, and which part of a divided cluster may go on.
//
// A View is a value that a block keeps. Everything here is a pure function of views: two nodes that have committed the
// same view never disagree about any of it.
//
// Where a fragment belongs (its home) is decided when its table is created, and is never changed by failures: a list of
// places, one for each configured node of its node group, the preferred primary first. A place is an address whose
// instance is the fragment's log part; a View turns it into the ldm that has this log part now, since a node may come
// back with another number of ldms.
//
// Invariants: members are sorted by dynamic id, and the president is the first of them.
//
// Read next: survive.go; signal's view.go for how views change.
package view

import "github.com/cohortdb/cohort/internal/signal"

// View is who is in the cluster.
type View struct {
	Number    uint32
	President uint8
	Members   []signal.Member // lowest dynamic id first
	set       signal.NodeSet
	at        [signal.MaxDataNode + 1]uint8 // node → index in Members + 1
}

// Take makes v the view that a signal describes.
func (v *View) Take(number, president uint32, members []signal.Member) {
	v.Number, v.President = number, uint8(president)
	v.Members = append(v.Members[:0], members...)
	v.set, v.at = signal.NodeSet{}, [signal.MaxDataNode + 1]uint8{}
	for i, m := range v.Members {
		v.set.Add(uint8(m.Node))
		v.at[m.Node] = uint8(i + 1)
	}
}

// Clear makes v the view of nobody.
func (v *View) Clear() { v.Take(0, 0, nil) }

// Copy makes v the same as o, which stays independent.
func (v *View) Copy(o *View) { v.Take(o.Number, uint32(o.President), o.Members) }

// Set is the members.
func (v *View) Set() signal.NodeSet { return v.set }

// Has tells whether a node is a member.
func (v *View) Has(node uint8) bool { return v.set.Has(node) }

// Member is what is known of a node, nil if it is no member.
func (v *View) Member(node uint8) *signal.Member {
	if node > signal.MaxDataNode || v.at[node] == 0 {
		return nil
	}
	return &v.Members[v.at[node]-1]
}

// State is one of signal's Member constants, 0 for a node that is no member.
func (v *View) State(node uint8) uint32 {
	if m := v.Member(node); m != nil {
		return m.State
	}
	return 0
}

// Serving tells whether a node has all its data.
func (v *View) Serving(node uint8) bool { return v.State(node) >= signal.MemberFollowing }

// ServingSet is the members that have all their data.
func (v *View) ServingSet() signal.NodeSet {
	var s signal.NodeSet
	for _, m := range v.Members {
		if m.State >= signal.MemberFollowing {
			s.Add(uint8(m.Node))
		}
	}
	return s
}

// Lost is the members of v that next does not have.
func (v *View) Lost(next *View) signal.NodeSet { return v.set.Minus(&next.set) }

// Ldm is where a place of a home is now; 0 if its node is no member.
func (v *View) Ldm(place signal.Addr) signal.Addr {
	m := v.Member(place.Node())
	if place == 0 || m == nil {
		return 0
	}
	return signal.MakeAddr(place.Node(), signal.BlockLDM, uint16(uint32(place.Instance())%m.LDMs))
}

// Primary is the ldm with the primary of a fragment: that of the first leading member of its home, or if none leads of
// the first that follows; 0 if nobody has the fragment.
func (v *View) Primary(home []signal.Addr) signal.Addr {
	var following signal.Addr
	for _, p := range home {
		switch v.State(p.Node()) {
		case signal.MemberLeading:
			return v.Ldm(p)
		case signal.MemberFollowing:
			if following == 0 {
				following = v.Ldm(p)
			}
		}
	}
	return following
}

// Chain writes the ldms that take a write of a fragment, in the order in which they take it, to out, and returns how
// many they are: the primary, then those that follow, then the others that lead, each in the order of the home. The
// primary puts recovering members that it has taken in (CopyReq) behind itself.
func (v *View) Chain(home []signal.Addr, out *[signal.MaxReplicas]signal.Addr) int {
	*out = [signal.MaxReplicas]signal.Addr{}
	n := 0
	if out[0] = v.Primary(home); out[0] == 0 {
		return 0
	}
	n++
	for _, state := range [...]uint32{signal.MemberFollowing, signal.MemberLeading} {
		for _, p := range home {
			if v.State(p.Node()) == state && p.Node() != out[0].Node() {
				out[n] = v.Ldm(p)
				n++
			}
		}
	}
	return n
}

// Moves tells whether a fragment's primary is alive in both views and another one: whoever has operations on it has to
// bring them to an end between the prepare and the commit of next.
func (v *View) Moves(next *View, home []signal.Addr) bool {
	old := v.Primary(home)
	return old != 0 && next.Has(old.Node()) && next.Primary(home) != old
}
