package epoch

import (
	"testing"

	"github.com/cohortdb/cohort/internal/signal"
)

var asker = signal.MakeAddr(1, signal.BlockDistribution, 0)

func request(n uint32) *signal.EpochReq {
	return &signal.EpochReq{Head: signal.Head{From: asker}, GCI: [2]uint32{n, 1}}
}

func TestAChangeIsDueWhenTheOldEpochIsEmpty(t *testing.T) {
	g := &Gate{}
	due := func() bool { _, due := g.Due(); return due }
	old := g.Enter()
	g.Prepare(request(1))
	if g.Open() || due() {
		t.Fatal("the gate is open during a change, or the change is due before its commit")
	}
	g.Commit(request(1))
	young := g.Enter()
	if !g.Open() || young == old || g.GCI != [2]uint32{1, 1} || due() {
		t.Fatal("the gate is not open in the new epoch, or the change is due too early")
	}
	g.Leave(old)
	if to, due := g.Due(); !due || to != asker {
		t.Fatal(to, due)
	}
	g.Leave(young)
	if due() || g.Inside() != [2]uint32{} {
		t.Fatal("a change is due once")
	}
}

func TestWhatCannotBeIsABug(t *testing.T) {
	for name, f := range map[string]func(g *Gate){
		"two changes at once":         func(g *Gate) { g.Prepare(request(1)); g.Prepare(request(2)) },
		"an epoch that does not grow": func(g *Gate) { g.Prepare(request(1)); g.Commit(request(1)); g.Due(); g.Prepare(request(1)) },
		"a commit without a prepare":  func(g *Gate) { g.Commit(request(1)) },
		"leaving without entering":    func(g *Gate) { g.Leave(0) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Fatal("no invariant broke")
				}
			}()
			f(&Gate{})
		})
	}
}

// The gate is open only when there is no reason at all to be shut, and a change of the epoch runs through the others.
func TestReasonsToBeShutAreIndependent(t *testing.T) {
	g := &Gate{}
	g.Suspend(true)
	g.Prepare(request(1))
	g.Distrust(true)
	g.Commit(request(1))
	if g.Open() || g.GCI != [2]uint32{1, 1} {
		t.Fatal("a change of the epoch opens the gate though the view is about to change, or is not made")
	}
	if _, due := g.Due(); !due {
		t.Fatal("nothing of the old epoch is left, but the change is not due")
	}
	g.Suspend(false)
	if g.Open() {
		t.Fatal("the gate is open though the node distrusts itself")
	}
	g.Prepare(request(2))
	g.Distrust(false)
	if g.Open() {
		t.Fatal("the gate is open during a change of the epoch")
	}
	g.Commit(request(2))
	if !g.Open() {
		t.Fatal("the gate is shut for no reason")
	}
}
