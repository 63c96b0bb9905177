package distribution

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/cockroachdb/datadriven"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/kernel/kerneltest"
	"github.com/cohortdb/cohort/internal/signal"
)

// begin starts nodes 1, 2, … with views, and waits for their first epoch.
func (r *rig) begin(nodes int) {
	r.t.Helper()
	var members []signal.Member
	var ids []uint8
	for i := range uint32(nodes) {
		members = append(members, signal.Member{Node: i + 1, DynamicID: i + 1, Group: i % 2, LDMs: 1, TCs: 1, State: signal.MemberLeading})
		ids = append(ids, uint8(i+1))
	}
	r.views.Start(members, [2]uint32{0, 1})
	for _, phase := range []uint32{3, 5} {
		r.run(ids, 1, phase)
		if !r.net.Until(1000*ms, func() bool { return r.confirmed(ids, int(phase)) }) {
			r.t.Fatalf("phase %d does not end; %v", phase, r.net)
		}
	}
}

// askPhase has the membership of the president ask a node for a phase.
func (r *rig) askPhase(id uint8, phase uint32) {
	p := (*signal.PhaseReq)(r.toBlock(id, signal.NumPhaseReq, uint32(unsafe.Sizeof(signal.PhaseReq{}))))
	p.President, p.Attempt, p.Phase = uint32(r.views.President()), 1, phase
}

// TestEpochsUnderFailures runs the documents in testdata: what the distributions of a few nodes say to each other while
// members are lost and join. `go test ./internal/distribution -run TestEpochsUnderFailures -rewrite` writes what happens
// now.
func TestEpochsUnderFailures(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{t: t}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.out.Reset()
			switch d.Cmd {
			case "cluster":
				nodes := 0
				d.ScanArgs(t, "nodes", &nodes)
				s.cluster(nodes)
				return s.state()
			case "do":
				for _, line := range strings.Split(d.Input, "\n") {
					s.do(strings.Fields(line))
				}
				if s.out.Len() == 0 {
					return "nothing\n"
				}
				return s.out.String()
			}
			t.Fatalf("unknown command %q", d.Cmd)
			return ""
		})
	})
}

type script struct {
	t    *testing.T
	r    *rig
	out  strings.Builder
	stop string // signal and node at which `until` ends
	hit  bool
}

func (s *script) cluster(nodes int) {
	cfg := config()
	cfg.EpochTimeout = 4000 * ms
	s.r = newRig(s.t, 1, nodes, 1, 1, cfg)
	s.r.net.InOrder = true
	s.r.begin(nodes)
	s.r.net.Run(10 * ms)
	s.r.net.Seen = func(n *kerneltest.Node, h *signal.Head) { s.saw(n, h) }
}

// saw prints what is delivered, as far as it is about epochs and views.
func (s *script) saw(n *kerneltest.Node, h *signal.Head) {
	name := func(a signal.Addr) string { return strings.TrimSuffix(a.String(), ".0") }
	if s.stop == fmt.Sprintf("%s %s", signal.Name(h.Num), name(h.To)) {
		s.hit = true
	}
	extra := ""
	switch h.Num {
	case signal.NumEpochPrepareReq, signal.NumEpochPrepareConf, signal.NumEpochCommitReq, signal.NumEpochCommitConf:
		if h.From.Node() == h.To.Node() {
			return
		}
		extra = " " + signal.JoinGCI(signal.As[signal.EpochReq](h).GCI).String()
	case signal.NumEpochStateReq:
		extra = fmt.Sprintf(" view=%d", signal.As[signal.EpochStateReq](h).View)
	case signal.NumEpochStateConf:
		c := signal.As[signal.EpochStateConf](h)
		extra = fmt.Sprintf(" view=%d in=%v prepared=%v busy=%d part=%d", c.View, signal.JoinGCI(c.GCI), signal.JoinGCI(c.Next), c.Busy, c.Part)
	case signal.NumEpochJoinReq, signal.NumCopyStartReq, signal.NumCopyStartConf:
	case signal.NumViewPrepareReq, signal.NumViewCommitReq:
		if h.To.Block() != signal.BlockDistribution {
			return
		}
		q := signal.As[signal.ViewReq](h)
		extra = fmt.Sprintf(" view=%d members=", q.View)
		for i, m := range q.Members() {
			extra += []string{"", ","}[min(i, 1)] + strconv.Itoa(int(m.Node))
		}
	case signal.NumTakeoverRep:
		if h.To.Block() != signal.BlockDistribution {
			return
		}
		extra = fmt.Sprintf(" view=%d", signal.As[signal.TakeoverRep](h).View)
	case signal.NumPhaseReq:
		extra = fmt.Sprintf(" %d", signal.As[signal.PhaseReq](h).Phase)
	case signal.NumPhaseConf:
		c := signal.As[signal.PhaseConf](h)
		extra = fmt.Sprintf(" %d code=%d", c.Phase, c.Code)
	case signal.NumLagRep:
		extra = fmt.Sprintf(" node=%d", signal.As[signal.LagRep](h).Node)
	case signal.NumEventRep:
		if r := signal.As[signal.EventRep](h); r.Event != uint32(event.GlobalCheckpointStarted) && r.Event != uint32(event.GlobalCheckpointCompleted) {
			e := event.Event{Type: event.Type(r.Event), Node: n.ID, Args: r.Args}
			fmt.Fprintf(&s.out, "# %s\n", e.String())
		}
		return
	default:
		return
	}
	fmt.Fprintf(&s.out, "%s %s -> %s%s\n", name(h.From), signal.Name(h.Num), name(h.To), extra)
}

// state prints how far each living node is.
func (s *script) state() string {
	var out strings.Builder
	for id := uint8(1); id < 10; id++ {
		n := s.r.net.Nodes[id]
		if n == nil || n.Dead() {
			continue
		}
		b := s.r.block[id]
		fmt.Fprintf(&out, "node %d: view %d, president %d, epoch %v", id, b.view.Number, b.view.President, b.local.gci)
		if b.local.next != b.local.gci {
			fmt.Fprintf(&out, ", prepared %v", b.local.next)
		}
		if b.local.state != resting {
			out.WriteString(", change under way")
		}
		if b.over.holds() {
			out.WriteString(", held")
		}
		out.WriteString("\n")
	}
	return out.String()
}

func (s *script) do(words []string) {
	if len(words) == 0 {
		return
	}
	num := func(w string) int {
		n, err := strconv.Atoi(w)
		if err != nil {
			s.t.Fatalf("%q is no number", w)
		}
		return n
	}
	pair := func(w string) (uint8, uint8) {
		a, b, _ := strings.Cut(w, "->")
		return uint8(num(a)), uint8(num(b))
	}
	part := func(w string) (uint8, int) {
		node, block, _ := strings.Cut(w, ":")
		return uint8(num(node)), map[string]int{"tc": 0, "ldm": 1}[block]
	}
	net := s.r.net
	switch words[0] {
	case "run": // deliver what can be, without letting time pass, or for some milliseconds
		d := int64(0)
		if len(words) > 1 {
			d = int64(num(words[1])) * ms
		}
		net.Run(d)
	case "until": // deliver up to and including a signal to a block
		s.stop, s.hit = words[1]+" "+words[2], false
		if !net.Until(10_000*ms, func() bool { return s.hit }) {
			s.t.Fatalf("%s does not come", s.stop)
		}
		s.stop = ""
	case "stall":
		a, b := pair(words[1])
		net.Stall(a, b, true)
	case "unstall":
		a, b := pair(words[1])
		net.Stall(a, b, false)
	case "kill":
		net.Kill(uint8(num(words[1])))
	case "hold": // a part keeps its answer to a commit back
		id, i := part(words[1])
		s.r.parts[id][i].hold = true
	case "release":
		id, i := part(words[1])
		s.r.release(id, i)
	case "hold-takeover":
		s.r.views.Hold = true
	case "end-takeover":
		s.r.views.Release()
	case "join":
		id := uint8(num(words[1]))
		s.r.add(id)
		s.r.views.Join(id, uint32(id-1)%2)
	case "phase":
		s.r.askPhase(uint8(num(words[2])), uint32(num(words[1])))
	case "copy-fails":
		s.r.fail[num(words[1])] = uint32(num(words[2]))
	case "state":
		s.out.WriteString(s.state())
	default:
		s.t.Fatalf("unknown line %q", words)
	}
}

// Nodes are killed at random moments, others join, coordinators and ldms are slow: epochs never go back anywhere, nothing
// of a change ends before the end of a takeover, and in the end all are in the same epoch, which changes at its pace.
func TestRandomFailures(t *testing.T) {
	var marks kernel.Marks
	for seed := uint64(1); seed <= 400; seed++ {
		nodes := 2 + int(seed)%4
		r := newRig(t, seed, nodes, 1, 2, config())
		var ended [256]signal.GCI
		r.net.After = func(n *kerneltest.Node) {
			b := r.block[n.ID]
			b.Invariants()
			if b.lead.run != 0 && b.lead.gci != ended[n.ID] {
				if b.over.holds() && b.lead.gci > ended[n.ID] && b.lead.state == resting && ended[n.ID] != 0 {
					t.Fatalf("seed %d: node %d ends the change to %v during a takeover", seed, n.ID, b.lead.gci)
				}
				ended[n.ID] = b.lead.gci
			}
		}
		r.begin(nodes)
		alive := nodes
		joiner := uint8(0)
		for round := range 3 {
			for range r.net.Rand(120) {
				r.net.Step(r.net.Now() + 100*ms)
			}
			if held := uint8(r.net.Rand(nodes) + 1); r.net.Rand(2) == 0 && !r.net.Nodes[held].Dead() {
				i := r.net.Rand(3)
				r.parts[held][i].hold = true
				r.net.Run(int64(r.net.Rand(200)) * ms)
				for range r.net.Rand(60) {
					r.net.Step(r.net.Now() + 10*ms)
				}
				r.held = append(r.held, [2]int{int(held), i})
			}
			switch {
			case round == 1 && joiner == 0 && r.net.Rand(2) == 0:
				joiner = uint8(nodes + 1)
				r.add(joiner)
				r.views.Join(joiner, 0)
				r.askPhaseWhenIn(joiner)
			case alive > 1:
				id := r.pick(nodes)
				if p := r.views.President(); r.net.Rand(2) == 0 && p != 0 && !r.net.Nodes[p].Dead() { // the president, while an epoch changes
					id = p
					r.net.Until(200*ms, func() bool { return r.block[p].lead.state != resting })
					for range r.net.Rand(40) {
						r.net.Step(r.net.Now())
					}
					if r.net.Rand(2) == 0 {
						r.net.Stall(p, r.pick(nodes), true)
						r.net.Run(0)
					}
				}
				r.net.Kill(id)
				alive--
			}
			for range r.net.Rand(40) {
				r.net.Step(r.net.Now())
			}
		}
		for _, h := range r.held {
			if !r.net.Nodes[h[0]].Dead() {
				r.release(uint8(h[0]), h[1])
			}
		}
		if !r.net.Until(5000*ms, r.views.Quiet) {
			t.Fatalf("seed %d: the view does not come to rest; %v", seed, r.net)
		}
		if joiner != 0 && !r.net.Until(1000*ms, func() bool { return r.phase[joiner] == 5 }) {
			t.Fatalf("seed %d: node %d does not take part; %v", seed, joiner, r.net)
		}
		president := r.views.President()
		r.net.Run(50 * ms)
		from := r.block[president].local.gci
		r.net.Run(1000 * ms)
		for id := 1; id <= nodes+1; id++ {
			n := r.net.Nodes[id]
			if n == nil || n.Dead() {
				continue
			}
			marks.Add(n.Env.Marks())
			b := r.block[id]
			if b.local.gci < from+9 && b.local.gci>>32 == from>>32 || b.local.gci != r.block[president].local.gci || b.local.state != resting {
				t.Fatalf("seed %d: node %d is in epoch %v (state %d), the president in %v, a second ago %v", seed, id, b.local.gci, b.local.state, r.block[president].local.gci, from)
			}
		}
	}
	for _, m := range []kernel.Mark{kernel.MarkEpochRunAgain, kernel.MarkEpochPulled, kernel.MarkEpochHeld, kernel.MarkEpochJoined} {
		if !marks.Has(m) {
			t.Errorf("never reached: %v", m)
		}
	}
}

// pick is a random node that lives.
func (r *rig) pick(nodes int) uint8 {
	for {
		if id := uint8(r.net.Rand(nodes) + 1); !r.net.Nodes[id].Dead() {
			return id
		}
	}
}

// askPhaseWhenIn asks a node for phase 5 as soon as it is a member.
func (r *rig) askPhaseWhenIn(id uint8) {
	r.views.Ended = func(uint32) {
		if r.block[id].view.Has(id) && !r.asked {
			r.asked = true
			r.askPhase(id, 5)
		}
	}
}
