package view

import (
	"testing"

	"github.com/cohortdb/cohort/internal/signal"
)

// members makes members 1, 2, … with the given groups and states, written as pairs.
func members(pairs ...uint32) []signal.Member {
	var out []signal.Member
	for i := 0; i < len(pairs); i += 2 {
		n := uint32(i/2 + 1)
		out = append(out, signal.Member{Node: n, DynamicID: n, Group: pairs[i], State: pairs[i+1], LDMs: 2, TCs: 1})
	}
	return out
}

const (
	rec = signal.MemberRecovering
	fol = signal.MemberFollowing
	led = signal.MemberLeading
)

func place(node uint8, part uint16) signal.Addr { return signal.MakeAddr(node, signal.BlockLDM, part) }

func TestChain(t *testing.T) {
	home := []signal.Addr{place(1, 5), place(2, 5), place(3, 5)}
	for _, c := range []struct {
		name    string
		members []signal.Member
		want    []uint8
	}{
		{"all lead", members(0, led, 0, led, 0, led), []uint8{1, 2, 3}},
		{"the preferred primary follows", members(0, fol, 0, led, 0, led), []uint8{2, 1, 3}},
		{"a later one follows", members(0, led, 0, led, 0, fol), []uint8{1, 3, 2}},
		{"one recovers", members(0, rec, 0, led, 0, led), []uint8{2, 3}},
		{"nobody leads", members(0, fol, 0, rec, 0, fol), []uint8{1, 3}},
		{"nobody has it", members(0, rec), nil},
	} {
		var v View
		v.Take(1, 1, c.members)
		var out [signal.MaxReplicas]signal.Addr
		n := v.Chain(home, &out)
		if n != len(c.want) {
			t.Errorf("%s: %d replicas, %d wanted", c.name, n, len(c.want))
			continue
		}
		for i, node := range c.want {
			if out[i] != signal.MakeAddr(node, signal.BlockLDM, 1) { // log part 5 of 2 ldms
				t.Errorf("%s: replica %d is %v, wanted at node %d", c.name, i, out[i], node)
			}
		}
		if p := v.Primary(home); n > 0 && p != out[0] {
			t.Errorf("%s: the primary is %v, the chain begins with %v", c.name, p, out[0])
		}
	}
}

func TestMoves(t *testing.T) {
	home := []signal.Addr{place(1, 0), place(2, 0)}
	var a, b View
	a.Take(1, 1, members(0, led, 0, led))
	b.Take(2, 1, members(0, fol, 0, led))
	if !a.Moves(&b, home) || !b.Moves(&a, home) {
		t.Error("a primary that follows gives its fragment away, and one that leads takes it back")
	}
	b.Take(2, 2, members(0, led, 0, led)[1:])
	if a.Moves(&b, home) {
		t.Error("a lost primary does not move anything")
	}
}

// TestWeighNeverBoth divides every small cluster in every way: two parts never live both, nor does one live while the
// other may win the arbitration.
func TestWeighNeverBoth(t *testing.T) {
	for n := 1; n <= 6; n++ {
		for groups := 1; groups <= n; groups++ {
			for states := range 1 << n {
				var m []signal.Member
				for i := range n {
					state := led
					if states>>i&1 != 0 {
						state = rec
					}
					m = append(m, signal.Member{Node: uint32(i + 1), Group: uint32(i % groups), State: state, LDMs: 1, TCs: 1})
				}
				var v View
				v.Take(1, 1, m)
				for split := range 1 << n {
					var part, rest signal.NodeSet
					for i := range n {
						if split>>i&1 != 0 {
							part.Add(uint8(i + 1))
						} else {
							rest.Add(uint8(i + 1))
						}
					}
					if set := v.ServingSet(); set.Empty() {
						continue
					}
					a, b := v.Weigh(&part), v.Weigh(&rest)
					if a == Lives && (b == Lives || b == Arbitrates) {
						t.Fatalf("%d nodes, %d groups, %b recovering: %v is %d, %v is %d", n, groups, states, part, a, rest, b)
					}
				}
			}
		}
	}
}

func TestFatal(t *testing.T) {
	var v View
	v.Take(1, 1, members(0, led, 0, led))
	if v.Fatal(true) || !v.Fatal(false) {
		t.Error("of two nodes one may be lost if there is an arbitrator")
	}
	v.Take(1, 1, members(0, led, 0, led, 1, led, 1, led))
	if v.Fatal(false) {
		t.Error("of four nodes one may be lost without an arbitrator")
	}
	v.Take(1, 1, members(0, led, 0, rec))
	if !v.Fatal(true) {
		t.Error("a node without a peer that has its data must not be lost")
	}
}
