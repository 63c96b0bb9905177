package sim

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/signal"
)

// mutant is a fault that a test puts into a run by changing signals on their way; a checker must find it.
type mutant struct {
	name string
	// make returns what tampers with a run's signals.
	make func() func(from *Thread, h *signal.Head) int
	// found are the beginnings of complaints, one of which must come.
	found []string
}

// some calls f for every n-th signal of a number, from the 100th on.
func some(num uint16, n int, f func(h *signal.Head) int) func() func(*Thread, *signal.Head) int {
	return func() func(*Thread, *signal.Head) int {
		k := 0
		return func(_ *Thread, h *signal.Head) int {
			if h.Num != num {
				return 1
			}
			if k++; k < 100 || k%n != 0 {
				return 1
			}
			return f(h)
		}
	}
}

func lost(*signal.Head) int    { return 0 }
func doubled(*signal.Head) int { return 2 }

// flip changes a bit of a fixed column on its way to a backup.
func flip(h *signal.Head) int {
	r := signal.As[signal.PrepareReq](h)
	if r.From.Block() == signal.BlockLDM && r.DataLen >= 12 {
		*(*byte)(unsafe.Add(r.Data(), 8)) ^= 1
	}
	return 1
}

// older makes an epoch one older.
func older(g *[2]uint32) int {
	if g[0] > 1 {
		g[0]--
	}
	return 1
}

var mutants = []mutant{
	{"a backup of a chain writes something else", some(signal.NumChainReq, 3, flip),
		[]string{"differs between"}},
	{"a backup of a transaction writes something else", some(signal.NumPrepareReq, 3, flip),
		[]string{"differs between"}},
	{"a replica commits in another epoch", some(signal.NumCommitReq, 5, func(h *signal.Head) int { return older(&signal.As[signal.Step](h).GCI) }),
		[]string{"differs between", "has epoch"}},
	{"a transaction commits in another epoch than its client is told", func() func(*Thread, *signal.Head) int {
		return func(_ *Thread, h *signal.Head) int {
			if h.Num == signal.NumTxConf && signal.As[signal.TxConf](h).Committed == 1 && h.To.Instance() == 1 {
				signal.As[signal.TxConf](h).GCI[1]++ // as if the epoch of all its clients were one global checkpoint ahead
			}
			return 1
		}
	}, []string{"has epoch", "was acknowledged before it was sent", "but its write was seen after"}},
	{"a client is told an older epoch", some(signal.NumTxConf, 3, func(h *signal.Head) int { return older(&signal.As[signal.TxConf](h).GCI) }),
		[]string{"has epoch", "but its write was seen after", "which is of no acknowledged change", "was acknowledged before it was sent",
			"found no row, but a change"}},
	{"an exclusive lock is a shared one", some(signal.NumKeyReq, 1, func(h *signal.Head) int {
		if r := signal.As[signal.KeyReq](h); r.Op == signal.OpReadExclusive {
			r.Op = signal.OpReadShared
		}
		return 1
	}), []string{"both held conflicting locks", "an update is lost"}},
	{"a shared lock is none", some(signal.NumKeyReq, 1, func(h *signal.Head) int {
		if r := signal.As[signal.KeyReq](h); r.Op == signal.OpReadShared {
			r.Op = signal.OpReadCommitted
		}
		return 1
	}), []string{"both held conflicting locks", "under one shared lock", "in all accounts", "under one transaction's locks", "which waited for it"}},
	{"a client is told a newer epoch", some(signal.NumWriteConf, 3, func(h *signal.Head) int {
		signal.As[signal.WriteConf](h).GCI[0]++
		return 1
	}), []string{"has epoch", "which is of no acknowledged change", "was acknowledged before it was sent", "found no row, but a change"}},
	{"a row is lost on the way to the client", some(signal.NumReadConf, 50, lost),
		[]string{"never answered"}},
	{"a commit is lost", some(signal.NumCommitReq, 50, lost),
		[]string{"never answered", "did not finish an epoch in time", "did not finish epoch"}},
	{"a complete is lost", some(signal.NumCompleteReq, 50, lost),
		[]string{"never answered", "at rest", "is locked", "not enough for", "dropping sim/passing failed", "before a rest"}},
	{"a chain's answer is lost", some(signal.NumChainConf, 50, lost),
		[]string{"never answered", "dropping sim/passing failed", "not enough for", "did not finish an epoch in time", "did not finish epoch", "Disconnected"}},
	{"a prepare comes twice", some(signal.NumPrepareReq, 50, doubled),
		[]string{"invariant broken", "at rest", "nobody else changes it", "panic"}},
	{"an acknowledgement comes from nowhere", some(signal.NumTxRef, 5, func(h *signal.Head) int {
		signal.As[signal.TxRef](h).Code = 4009
		return 1
	}), []string{"which nothing it did explains"}},
	{"a row changes on the way to the client", some(signal.NumReadConf, 7, func(h *signal.Head) int {
		*(*byte)(signal.As[signal.ReadConf](h).Data()) ^= 4
		return 1
	}), []string{"never written", "nobody else changes it", "with the tag of version", "in all accounts", "never written there"}},
	{"an update says yes and does nothing", some(signal.NumKeyReq, 1, func(h *signal.Head) int {
		if r := signal.As[signal.KeyReq](h); r.Op == signal.OpUpdate {
			r.Op, r.DataLen = signal.OpReadShared, 0
			r.Flags |= signal.FlagAll
			r.Len = uint16((signal.KeyReqSize + signal.Pad(uint32(r.KeyLen))) / 4)
		}
		return 1
	}), []string{"was acknowledged before it was sent", "nobody else changes it", "in all accounts"}},
	{"a session's end is not heard", func() func(*Thread, *signal.Head) int {
		return func(_ *Thread, h *signal.Head) int {
			if h.Num == signal.NumCloseOrd && h.To.Instance() == 0 {
				return 0
			}
			return 1
		}
	}, []string{"keeps outcomes of", "failed with error 4005"}},
}

func TestEveryMutantIsCaught(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			for seed := uint64(1); seed <= 20; seed++ {
				r := runSeed(t, seed, small, Config{tamper: m.make()})
				if r.Failure == nil {
					continue
				}
				for _, f := range m.found {
					if strings.Contains(r.Failure.Reason, f) {
						t.Logf("seed %d: %v", seed, r.Failure)
						return
					}
				}
				t.Fatalf("seed %d: caught, but by the wrong complaint: %v", seed, r.Failure)
			}
			t.Fatal("twenty seeds, and nobody noticed")
		})
	}
}
