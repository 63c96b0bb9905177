// Package epoch is the gate through which commit points draw their epoch: a participant's half of the epoch protocol.
//
// Between the prepare of an epoch change and its commit nobody draws, so that a later holder of a lock never gets an
// older epoch than an earlier one, whichever participants the two have. What has drawn, or may yet commit in the
// epoch that it entered in, counts in one of two generations; a change is confirmed when the generation before it is
// empty, and the president begins no further change before that.
//
// A Gate belongs to one block (a coordinator or an ldm), which keeps the list of what waits for the gate to open, and
// sends the answers. Besides the change of the epoch there are two reasons for which nobody draws: a change of the view
// that lost members (Suspend), and a node that does not know whether it is still in the cluster (Distrust). They are
// independent of each other, so after the end of any of them the caller asks whether the gate is Open before it lets go
// what waits.
//
// It allocates nothing. Invariants: one change at a time; epochs grow; who leaves has entered.
//
// Read next: distribution, the other half.
package epoch

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/signal"
)

// reasons is a set of reasons for which nobody draws.
type reasons uint8

const (
	// changing: a change of the epoch is under way.
	changing reasons = 1 << iota
	// suspended: a change of the view that lost members is prepared.
	suspended
	// distrusted: the node may have been put out of the cluster.
	distrusted
)

// Gate is a participant's state.
type Gate struct {
	// GCI is the epoch that is drawn while the gate is open, low word first.
	GCI [2]uint32

	shut   reasons // why nobody draws; 0 = the gate is open
	parity uint8
	inside [2]uint32   // by generation
	owed   bool        // the confirmation of a change
	asker  signal.Addr // to whom
}

// Open tells whether an epoch may be drawn now.
func (g *Gate) Open() bool { return g.shut == 0 }

// Suspend shuts the gate from the prepare (on) to the commit of a view that lost members.
func (g *Gate) Suspend(on bool) { g.set(suspended, on) }

// Distrust shuts the gate while the node does not know whether it is still in the cluster.
func (g *Gate) Distrust(on bool) { g.set(distrusted, on) }

func (g *Gate) set(r reasons, on bool) {
	g.shut &^= r
	if on {
		g.shut |= r
	}
}

// Enter counts one more in the present generation, and returns which that is, for Leave.
func (g *Gate) Enter() (parity uint8) {
	g.inside[g.parity]++
	return g.parity
}

// Leave says that one that entered is complete here; a change may be due now.
func (g *Gate) Leave(parity uint8) {
	invariant.That(g.inside[parity] > 0, "who leaves an epoch has entered it")
	g.inside[parity]--
}

// Inside is how many are in each generation.
func (g *Gate) Inside() [2]uint32 { return g.inside }

// Prepare shuts the gate; the caller answers.
func (g *Gate) Prepare(r *signal.EpochReq) {
	invariant.That(g.shut&changing == 0 && !g.owed, "one epoch change at a time")
	invariant.That(signal.JoinGCI(r.GCI) > signal.JoinGCI(g.GCI), "epochs grow")
	g.shut |= changing
}

// Commit begins the new epoch, in which the gate is open unless there is another reason to be shut. The caller lets go on
// what waited for it if it is, and then asks whether the change is due.
func (g *Gate) Commit(r *signal.EpochReq) {
	invariant.That(g.shut&changing != 0, "an epoch change is prepared before it is committed")
	g.GCI, g.shut = r.GCI, g.shut&^changing
	g.parity ^= 1
	invariant.That(g.inside[g.parity] == 0, "the generation before the last one is empty")
	g.owed, g.asker = true, r.From
}

// Due tells, once, that the change is to be confirmed, and to whom: nothing of the old epoch is left.
func (g *Gate) Due() (asker signal.Addr, due bool) {
	if !g.owed || g.inside[g.parity^1] != 0 {
		return 0, false
	}
	g.owed = false
	return g.asker, true
}
