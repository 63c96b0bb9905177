package distribution

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/kernel/kerneltest"
	"github.com/cohortdb/cohort/internal/signal"
)

const ms = 1_000_000

// rig is a few nodes with a distribution, fake coordinators and ldms, and a script in place of membership.
type rig struct {
	t     *testing.T
	net   *kerneltest.Net
	cfg   Config
	tcs   int
	ldms  int
	block [256]*Block
	parts [256][]*part // coordinators and ldms by node
	phase [256]int     // last phase confirmed
	lag   []signal.LagRep
	event []signal.EventRep
	alone bool         // an attempt to start was given up: each node ends its change by itself
	rep   []signal.GCI // newest epoch by EpochRep at node 1's manager
	views *kerneltest.Views
	seen  [256]signal.GCI // newest epoch by EpochRep at each node's manager
	fail  [256]uint32     // code with which the first ldm of a node ends its copy
	done  [256]uint32     // code with which the last phase was confirmed
	held  [][2]int        // node and part that keep an answer back
	asked bool            // the node that joins was asked for phase 5
}

// part stands for a coordinator or an ldm: it keeps the rules of an epoch change and complains when they are broken.
type part struct {
	self     signal.Addr
	gci      signal.GCI
	prepared signal.GCI
	hold     bool // keeps the answer to a commit back
	owed     *signal.EpochReq
}

func newRig(t *testing.T, seed uint64, nodes, tcs, ldms int, cfg Config) *rig {
	r := &rig{t: t, net: kerneltest.New(seed), cfg: cfg, tcs: tcs, ldms: ldms}
	r.views = kerneltest.NewViews(r.net, signal.BlockDistribution)
	for i := range nodes {
		r.add(uint8(i + 1))
	}
	r.net.After = func(n *kerneltest.Node) { r.block[n.ID].Invariants() }
	return r
}

// add makes a node and links it to all that live.
func (r *rig) add(id uint8) {
	n := r.net.Add(id, signal.PeerData)
	r.parts[id], r.seen[id], r.phase[id] = nil, 0, 0
	for _, b := range []uint8{signal.BlockMembership, signal.BlockDistribution, signal.BlockDictionary, signal.BlockManager, signal.BlockRuntime} {
		n.Env.Place(b, 0, 0)
	}
	for k := range r.tcs {
		n.Env.Place(signal.BlockTC, k, 0)
		r.parts[id] = append(r.parts[id], &part{self: signal.MakeAddr(id, signal.BlockTC, uint16(k))})
	}
	for k := range r.ldms {
		n.Env.Place(signal.BlockLDM, k, 0)
		r.parts[id] = append(r.parts[id], &part{self: signal.MakeAddr(id, signal.BlockLDM, uint16(k))})
	}
	r.block[id] = New(n.Env, r.cfg)
	n.Handle = func(h *signal.Head) { r.handle(n, h) }
	for o := uint8(1); o < 250; o++ {
		if x := r.net.Nodes[o]; o != id && x != nil && !x.Dead() {
			r.net.Link(o, id)
		}
	}
}

func (r *rig) handle(n *kerneltest.Node, h *signal.Head) {
	switch h.To.Block() {
	case signal.BlockDistribution:
		r.block[n.ID].Deliver(h)
	case signal.BlockTC, signal.BlockLDM:
		for _, p := range r.parts[n.ID] {
			if p.self == h.To {
				r.partHears(n, p, (*signal.EpochReq)(unsafe.Pointer(h)))
			}
		}
	case signal.BlockManager:
		switch h.Num {
		case signal.NumEpochRep:
			g := signal.JoinGCI(signal.As[signal.EpochRep](h).GCI)
			if g <= r.seen[n.ID] {
				r.t.Fatalf("node %d is in epoch %v after %v", n.ID, g, r.seen[n.ID])
			}
			r.seen[n.ID] = g
			if n.ID == 1 {
				r.rep = append(r.rep, signal.JoinGCI((*signal.EpochRep)(unsafe.Pointer(h)).GCI))
			}
		case signal.NumEventRep:
			r.event = append(r.event, *(*signal.EventRep)(unsafe.Pointer(h)))
		}
	case signal.BlockMembership:
		if r.views.Deliver(n, h) {
			return
		}
		switch h.Num {
		case signal.NumPhaseConf:
			c := signal.As[signal.PhaseConf](h)
			r.phase[n.ID], r.done[n.ID] = int(c.Phase), c.Code
		case signal.NumLagRep:
			r.lag = append(r.lag, *(*signal.LagRep)(unsafe.Pointer(h)))
		}
	}
}

func (r *rig) partHears(n *kerneltest.Node, p *part, q *signal.EpochReq) {
	if q.Num == signal.NumCopyStartReq {
		ref := signal.As[signal.CopyStartReq](&q.Head).Ref
		c := kernel.Send[signal.CopyStartConf](n.Env, q.From, p.self, signal.NumCopyStartConf)
		c.Ref, c.Rows, c.Bytes, c.Code = ref, [2]uint32{1000, 0}, [2]uint32{1 << 20, 0}, 0
		if p.self.Instance() == 0 {
			c.Code = r.fail[n.ID]
		}
		return
	}
	g := signal.JoinGCI(q.GCI)
	switch q.Num {
	case signal.NumEpochPrepareReq:
		if p.prepared != 0 || g <= p.gci || p.owed != nil {
			r.t.Fatalf("%v: prepare of %v after %v, prepared %v", p.self, g, p.gci, p.prepared)
		}
		p.prepared = g
		c := kernel.Send[signal.EpochConf](n.Env, q.From, p.self, signal.NumEpochPrepareConf)
		c.GCI = q.GCI
	case signal.NumEpochCommitReq:
		if p.prepared != g {
			r.t.Fatalf("%v: commit of %v, prepared %v", p.self, g, p.prepared)
		}
		// nobody may draw the new epoch while somebody could still draw the old one
		for id := 1; id < 256 && !r.alone; id++ {
			for _, o := range r.parts[id] {
				if o.prepared == 0 && o.gci < g && !r.net.Nodes[id].Dead() && r.block[id].local.part == signal.PartFull {
					r.t.Fatalf("%v commits %v while %v is in %v", p.self, g, o.self, o.gci)
				}
			}
		}
		p.gci, p.prepared = g, 0
		if p.hold {
			k := *q
			p.owed = &k
			return
		}
		c := kernel.Send[signal.EpochConf](n.Env, q.From, p.self, signal.NumEpochCommitConf)
		c.GCI = q.GCI
	}
}

// release lets a part answer what it kept back.
func (r *rig) release(id uint8, i int) {
	p := r.parts[id][i]
	p.hold = false
	if p.owed != nil {
		c := kernel.Send[signal.EpochConf](r.net.Nodes[id].Env, p.owed.From, p.self, signal.NumEpochCommitConf)
		c.GCI, p.owed = p.owed.GCI, nil
	}
}

func (r *rig) toBlock(id uint8, num uint16, size uint32) unsafe.Pointer {
	return r.net.Nodes[id].Env.Put(signal.MakeAddr(id, signal.BlockDistribution, 0), signal.MakeAddr(id, signal.BlockMembership, 0), num, size)
}

func (r *rig) members(ids []uint8, attempt uint32, first signal.GCI) {
	for _, id := range ids {
		m := (*signal.ViewReq)(r.toBlock(id, signal.NumViewCommitReq, signal.ViewReqSize(len(ids))))
		m.View, m.President, m.Attempt, m.GCI, m.Count = 1, uint32(ids[0]), attempt, first.Words(), uint32(len(ids))
		for i, o := range ids {
			m.Members()[i] = signal.Member{State: signal.MemberLeading, Node: uint32(o), DynamicID: uint32(i + 1), LDMs: 1, TCs: 1}
		}
	}
}

func (r *rig) run(ids []uint8, attempt uint32, phase uint32) {
	for _, id := range ids {
		p := (*signal.PhaseReq)(r.toBlock(id, signal.NumPhaseReq, uint32(unsafe.Sizeof(signal.PhaseReq{}))))
		p.President, p.Attempt, p.Phase = uint32(ids[0]), attempt, phase
	}
}

func (r *rig) confirmed(ids []uint8, phase int) bool {
	for _, id := range ids {
		if r.phase[id] != phase {
			return false
		}
	}
	return true
}

func (r *rig) start(ids []uint8, attempt uint32, first signal.GCI) {
	r.t.Helper()
	r.members(ids, attempt, first)
	for _, phase := range []uint32{3, 5} {
		r.run(ids, attempt, phase)
		if !r.net.Until(1000*ms, func() bool { return r.confirmed(ids, int(phase)) }) {
			r.t.Fatalf("phase %d does not end; %v", phase, r.net)
		}
	}
}

func config() Config {
	return Config{Nodes: []Node{{1, 0}, {2, 0}}, PartitionsPerNode: 2, LogParts: 4, EpochInterval: 100 * ms, CheckpointInterval: 2000 * ms, CheckpointTimeout: 120_000 * ms}
}

func TestEpochsGoOnAtTheirPace(t *testing.T) {
	for seed := uint64(1); seed <= 10; seed++ {
		ids := []uint8{1, 2, 3}
		r := newRig(t, seed, 3, 2, 2, config())
		r.start(ids, 1, 1<<32)
		r.net.Run(4050 * ms)
		want := signal.GCI(0)
		for i, g := range r.rep {
			switch i % 20 { // 20 epochs of 100 ms in a global checkpoint of 2 s
			case 0:
				want = signal.GCI(1+i/20) << 32
			default:
				want++
			}
			if g != want {
				t.Fatalf("epoch %d is %v, want %v", i, g, want)
			}
		}
		if len(r.rep) != 41 {
			t.Fatalf("%d epochs in 4 s: the first, and 40", len(r.rep))
		}
		started, completed := 0, 0
		for _, e := range r.event {
			switch event.Type(e.Event) {
			case event.GlobalCheckpointStarted:
				started++
			case event.GlobalCheckpointCompleted:
				completed++
			}
		}
		if started != 3 || completed != 3 {
			t.Fatalf("%d global checkpoints started, %d completed", started, completed)
		}
	}
}

func TestWithoutEpochsEachChangeIsAGlobalCheckpoint(t *testing.T) {
	cfg := config()
	cfg.EpochInterval = 0
	r := newRig(t, 1, 2, 1, 1, cfg)
	r.start([]uint8{1, 2}, 1, 1<<32)
	r.net.Run(6050 * ms)
	if len(r.rep) != 4 || r.rep[3] != 4<<32 {
		t.Fatal(r.rep)
	}
}

// A part that keeps its answer back holds up the next change, not the one under way; afterwards the engine goes on at
// once, and not with a burst of the epochs that were missed.
func TestTheNextChangeWaitsForTheLastOnesEnd(t *testing.T) {
	r := newRig(t, 3, 2, 1, 1, config())
	r.start([]uint8{1, 2}, 1, 1<<32)
	r.parts[2][1].hold = true
	r.net.Run(950 * ms)
	if n := len(r.rep); n != 2 {
		t.Fatalf("%d epochs while node 2 does not finish", n)
	}
	if len(r.event) > 2 { // the first global checkpoint
		t.Fatalf("reported too early: %v", r.event)
	}
	r.net.Run(1000 * ms)
	lag := 0
	for _, e := range r.event {
		if event.Type(e.Event) == event.EpochLag {
			lag++
			if e.Args[0] != 1 || e.Args[1] != 1 || e.Args[3] != 2 {
				t.Fatalf("EpochLag %v", e.Args)
			}
		}
	}
	if lag != 1 {
		t.Fatalf("%d reports of lag", lag)
	}
	r.release(2, 1)
	r.net.Run(110 * ms)
	if n := len(r.rep); n != 4 {
		t.Fatalf("%d epochs after node 2 finished", n)
	}
	if len(r.lag) != 0 {
		t.Fatal("membership was told too early")
	}
}

func TestMembershipHearsWhoLagsForTooLong(t *testing.T) {
	cfg := config()
	cfg.EpochTimeout = 4000 * ms
	r := newRig(t, 3, 3, 1, 1, cfg)
	r.start([]uint8{1, 2, 3}, 1, 1<<32)
	r.parts[3][0].hold = true
	r.net.Run(3900 * ms)
	if len(r.lag) != 0 {
		t.Fatal("too early")
	}
	r.net.Run(10_000 * ms)
	if len(r.lag) != 1 || r.lag[0].Node != 3 || r.lag[0].Millis < 4000 || r.lag[0].Millis > 4200 {
		t.Fatalf("%+v", r.lag)
	}
}

// The start is given up at every possible moment of the first change, then begins anew with the nodes that are left:
// whoever had prepared hears a commit first, epochs grow, and late signals of the first attempt do no harm.
func TestAStartThatBeginsAgain(t *testing.T) {
	for seed := uint64(1); seed <= 30; seed++ {
		for steps := 0; steps < 80; steps += 3 {
			t.Run(fmt.Sprintf("seed %d steps %d", seed, steps), func(t *testing.T) {
				r := newRig(t, seed, 3, 1, 2, config())
				r.members([]uint8{1, 2, 3}, 1, 1<<32)
				r.run([]uint8{1, 2, 3}, 1, 3)
				r.net.Until(1000*ms, func() bool { return r.confirmed([]uint8{1, 2, 3}, 3) })
				r.run([]uint8{1, 2, 3}, 1, 5)
				for range steps {
					if !r.net.Step(r.net.Now()) {
						break
					}
				}
				r.net.Kill(3)
				r.parts[3], r.alone = nil, true
				r.run([]uint8{1, 2}, 1, 0)
				if !r.net.Until(1000*ms, func() bool { return r.confirmed([]uint8{1, 2}, 0) }) {
					t.Fatal("the attempt is not forgotten")
				}
				r.alone = false
				r.start([]uint8{1, 2}, 2, 2<<32)
				r.net.Run(500 * ms)
				if g := r.block[2].local.gci; g < 2<<32+4 {
					t.Fatalf("epochs do not go on: %v", g)
				}
			})
		}
	}
}

func TestPlaceAnswersTheDictionary(t *testing.T) {
	r := newRig(t, 1, 2, 1, 1, config())
	r.start([]uint8{1, 2}, 1, 1<<32)
	var got []signal.PlaceConf
	var buckets [][]uint16
	inner := r.net.Nodes[1].Handle
	r.net.Nodes[1].Handle = func(h *signal.Head) {
		if h.Num == signal.NumPlaceConf {
			c := (*signal.PlaceConf)(unsafe.Pointer(h))
			got = append(got, *c)
			buckets = append(buckets, append([]uint16(nil), c.Map()...))
			return
		}
		inner(h)
	}
	for i, n := range []uint32{0, 7, maxFragments, maxFragments + 1} {
		q := kernel.Send[signal.PlaceReq](r.net.Nodes[1].Env, signal.MakeAddr(1, signal.BlockDistribution, 0), signal.MakeAddr(1, signal.BlockDictionary, 0), signal.NumPlaceReq)
		q.Ref, q.Table, q.Fragments = uint32(i), 3, n
	}
	r.net.Until(50*ms, func() bool { return len(got) == 4 })
	for i, want := range []uint32{4, 7, maxFragments, 0} {
		c := got[i]
		if c.Ref != uint32(i) || c.Fragments != want || (c.Code == codeNoFragments) != (i == 3) || (i < 3) != (len(buckets[i]) == Buckets) {
			t.Errorf("answer %d: %+v, %d buckets", i, c, len(buckets[i]))
		}
	}
}
