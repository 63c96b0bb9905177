package view

import "github.com/cohortdb/cohort/internal/signal"

// Verdict says whether a part of a cluster may go on without the rest.
type Verdict uint8

const (
	// Lives: it goes on, whatever the others do.
	Lives Verdict = iota
	// Arbitrates: it goes on if the arbitrator lets it.
	Arbitrates
	// DiesGroup: a node group has no member with its data in this part.
	DiesGroup
	// DiesMinority: the rest is larger, and may go on.
	DiesMinority
)

// Weigh decides what becomes of a part of the members of v when it is cut off from the rest. Only members that have
// their data count. The part needs one of each node group; then it goes on if it has all of some group (the rest lacks
// that group) or more than half of the members; with just half of them it needs the arbitrator.
//
// Two parts that do not overlap never both live, and never both arbitrate with one single-use ticket and live.
func (v *View) Weigh(part *signal.NodeSet) Verdict {
	mine, all := 0, 0
	whole := false // some group is all here
	for _, m := range v.Members {
		if m.State < signal.MemberFollowing {
			continue
		}
		all++
		if part.Has(uint8(m.Node)) {
			mine++
		}
		here, of := 0, 0
		for _, o := range v.Members {
			if o.Group == m.Group && o.State >= signal.MemberFollowing {
				of++
				if part.Has(uint8(o.Node)) {
					here++
				}
			}
		}
		if here == 0 {
			return DiesGroup
		}
		whole = whole || here == of
	}
	switch {
	case whole || 2*mine > all:
		return Lives
	case 2*mine == all:
		return Arbitrates
	}
	return DiesMinority
}

// Fatal tells whether the loss of one more member, the arbitrator's help given or not, would end the cluster.
func (v *View) Fatal(arbitrator bool) bool {
	for _, m := range v.Members {
		part := v.ServingSet()
		part.Remove(uint8(m.Node))
		if m.State < signal.MemberFollowing {
			continue
		}
		switch v.Weigh(&part) {
		case Lives:
		case Arbitrates:
			if !arbitrator {
				return true
			}
		default:
			return true
		}
	}
	return false
}
