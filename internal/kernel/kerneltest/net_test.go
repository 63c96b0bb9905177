package kerneltest

import (
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// Two nodes play ping-pong; the link keeps its order, LinkUpRep comes first and LinkDownRep last.
func TestLinksKeepTheirOrder(t *testing.T) {
	for seed := uint64(1); seed < 20; seed++ {
		net := New(seed)
		var got []uint32
		var up, down bool
		for _, id := range []uint8{1, 2} {
			n := net.Add(id, signal.PeerData)
			for _, b := range []uint8{signal.BlockMembership, signal.BlockDistribution} {
				n.Env.Place(b, 0, 0)
			}
			n.Handle = func(h *signal.Head) {
				switch {
				case n.ID != 2:
				case h.Num == signal.NumLinkUpRep:
					up = true
				case h.Num == signal.NumLinkDownRep:
					down = true
				default:
					if !up || down {
						t.Fatal("a signal outside the life of its link")
					}
					got = append(got, (*signal.EpochConf)(unsafe.Pointer(h)).GCI[0])
				}
			}
		}
		net.Link(1, 2)
		for i := range uint32(10) {
			c := kernel.Send[signal.EpochConf](net.Nodes[1].Env, signal.MakeAddr(2, signal.BlockDistribution, 0), signal.MakeAddr(1, signal.BlockDistribution, 0), signal.NumEpochCommitConf)
			c.GCI = [2]uint32{i, 0}
		}
		net.Step(0)
		net.Cut(1, 2)
		net.Run(1e9)
		if !down || len(got) != 10 {
			t.Fatalf("seed %d: down %v, got %v; %v", seed, down, got, net)
		}
		for i, g := range got {
			if g != uint32(i) {
				t.Fatalf("seed %d: %v", seed, got)
			}
		}
	}
}
