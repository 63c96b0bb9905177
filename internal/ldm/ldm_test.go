package ldm_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
)

// change commits the next view at all members of it that live.
func (w *world) change(next func() []signal.Member) {
	w.view.Take(w.view.Number+1, uint32(w.view.President), next())
	for _, num := range []uint16{signal.NumViewPrepareReq, signal.NumViewCommitReq} {
		for _, s := range w.alive() {
			if w.view.Has(s.id) {
				w.tellView(s.id, num, &w.view, w.view.Number)
			}
		}
		w.settle()
	}
}

// returning is a cluster of two nodes whose second was lost and is about to copy; copyReq lets it ask, holds what comes, and
// returns the number of its question.
func returning(t *testing.T, fill int) (w *world, copyReq func() uint32) {
	columns := append(slices.Clone(oneWord), schema.Column{Name: "S", Type: schema.Varbinary, Length: 2000, Nullable: true})
	w = newWorld(t, 1, 2, 2, 1, 64, func(uint8) int { return 64 }, columns...)
	for k := range fill {
		b, err := w.layout.AppendWrite(nil, []uint32{0, 1}, [][]byte{word(uint32(k)), slices.Repeat([]byte{byte(k)}, k*7%300)})
		if err != nil {
			t.Fatal(err)
		}
		w.oneShot(w.primary(0), 1, 1, uint32(k+1), signal.OpInsert, 0, uint32(k), b)
		w.settle()
	}
	w.kill(2)
	w.change(func() []signal.Member { return slices.Clone(w.view.Members[:1]) })
	w.sites[2] = w.newSite(2, 2, 64)
	w.change(func() []signal.Member {
		return append(slices.Clone(w.view.Members), signal.Member{Node: 2, DynamicID: 3, LDMs: 1, TCs: 1, State: signal.MemberRecovering})
	})
	w.createFragments(2)
	w.settle()
	w.epoch()
	w.settle()
	return w, func() uint32 {
		ref := uint32(0)
		w.seen = func(_ uint8, h *signal.Head) {
			if h.Num == signal.NumCopyReq {
				ref = signal.As[signal.CopyReq](h).Ref
			}
		}
		w.held[[2]uint8{1, 2}] = true
		kernel.Send[signal.CopyStartReq](w.sites[2].env, at(2, signal.BlockLDM), at(2, signal.BlockDistribution), signal.NumCopyStartReq).Ref = 1
		w.settle()
		return ref
	}
}

// TestBadRuns gives a node that copies runs with bytes that no primary sends: it says that it cannot, or takes them, and
// lives.
func TestBadRuns(t *testing.T) {
	w, copyReq := returning(t, 20)
	ref := copyReq()
	var run []byte
	for _, b := range w.queues[[2]uint8{1, 2}] {
		if h := (*signal.Head)(unsafe.Pointer(&b[0])); h.Num == signal.NumCopyRowsOrd && run == nil {
			run = slices.Clone(b)
		}
	}
	if run == nil {
		t.Fatal("no run came")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	codes := map[uint32]int{}
	for i := range 1000 {
		if i%10 == 0 { // a replica that has given up takes nothing any more
			w, copyReq = returning(t, 0)
			ref = copyReq()
		}
		bad := slices.Grow(slices.Clone(run), 8)
		s := (*signal.CopyRowsOrd)(unsafe.Pointer(&bad[0]))
		s.Ref, s.Last = ref, 0
		body := s.Body()
		switch rng.IntN(4) {
		case 0:
			s.Count = rng.Uint32N(40)
		case 1:
			s.BodyLen = uint32(rng.IntN(len(body)/4)) * 4
			s.Len = uint16((uint32(unsafe.Sizeof(*s)) + s.BodyLen) / 4)
		default:
			for range 1 + rng.IntN(3) {
				body[rng.IntN(len(body))] = byte(rng.IntN(256))
			}
		}
		s.To = at(2, signal.BlockLDM)
		w.sites[2].ldm.Deliver(&s.Head)
		w.sites[2].ldm.Invariants()
		w.drain()
		q := w.queues[[2]uint8{2, 1}]
		for _, b := range q {
			if h := (*signal.Head)(unsafe.Pointer(&b[0])); h.Num == signal.NumCopyAckOrd {
				codes[signal.As[signal.CopyAckOrd](h).Code]++
			}
		}
		w.queues[[2]uint8{2, 1}] = nil
	}
	if codes[4005] < 20 || codes[0] == 0 {
		t.Fatalf("answers by code: %v", codes)
	}
}

// TestACorruptRowIsNotCopied: the new replica hears why there is no copy.
func TestACorruptRowIsNotCopied(t *testing.T) {
	w, copyReq := returning(t, 5)
	rows := w.sites[1].ldm.Fragment(tableID, 0)
	r, _, _ := rows.NextRow(store.NoRow)
	*(*byte)(rows.Fixed(r)) ^= 2
	code := uint32(0)
	w.heard = func(_ *site, h *signal.Head) {
		if h.Num == signal.NumCopyStartConf {
			code = signal.As[signal.CopyStartConf](h).Code
		}
	}
	copyReq()
	clear(w.held)
	w.settle()
	if code != store.CodeCorrupt {
		t.Fatalf("the copy ends with %d", code)
	}
}

// TestFlagsOfClients: what only data nodes say to each other is nothing in a client's mouth.
func TestFlagsOfClients(t *testing.T) {
	w := newWorld(t, 1, 2, 2, 1, 64, func(uint8) int { return 64 }, oneWord...)
	w.seen = func(from uint8, h *signal.Head) {
		if h.Num == signal.NumChainReq {
			if f := signal.As[signal.PrepareReq](h).Flags; f&^(signal.FlagAll|signal.FlagNoWait) != 0 {
				t.Fatalf("node %d passes flags %#x on", from, f)
			}
		}
	}
	for i := range uint32(8) {
		w.oneShot(w.primary(i), 1, i+1, i+1, signal.OpInsert, signal.FlagAll|1<<i, i, word(i))
	}
	w.settle()
	if n := len(w.compare()); n != 8 {
		t.Fatalf("%d rows", n)
	}
}

// TestProbesOfAHotRow: what a hundred transactions that wait for one row cost is a hundred times what one costs.
func TestProbesOfAHotRow(t *testing.T) {
	perSecond := func(waiters int) int {
		w := newWorld(t, 1, 1, 1, 1, 256, func(uint8) int { return 64 }, oneWord...)
		w.oneShot(w.primary(0), 1, 1, 1, signal.OpInsert, signal.FlagAll, 0, word(0))
		w.settle()
		for i := range waiters + 1 {
			o := &tcOp{tc: 1, client: signal.MakeAddr(clientNode, signal.BlockClient, 1), tx: uint32(1000 + i), ref: uint32(i), seq: uint32(i + 1), op: signal.OpUpdate,
				flags: signal.FlagAll, to: w.primary(0)}
			w.prepare(1, o.to, o, word(1))
			w.settle()
		}
		for range 300 { // past the short pauses
			w.pass(1e6)
			w.settle()
		}
		probes := 0
		w.heard = func(_ *site, h *signal.Head) {
			if h.Num == signal.NumProbeOrd {
				probes++
			}
		}
		for range 500 {
			w.pass(1e6)
			w.settle()
		}
		return 2 * probes
	}
	one, hundred := perSecond(1), perSecond(100)
	if one < 8 || one > 12 {
		t.Errorf("one waiter sends %d probes a second", one)
	}
	if most := 100 * one * 8; hundred > most || hundred < 100*8 {
		t.Errorf("a hundred waiters send %d probes a second, one sends %d", hundred, one)
	}
	t.Logf("probes a second: %d of one waiter, %d of a hundred", one, hundred)
}
