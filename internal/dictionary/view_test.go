package dictionary

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/kernel/kerneltest"
	"github.com/cohortdb/cohort/internal/signal"
)

// TestSchemaUnderFailures runs the documents in testdata: what the dictionaries of a few nodes and clients say to each
// other while members are lost and join. `go test ./internal/dictionary -run TestSchemaUnderFailures -rewrite` writes what
// happens now.
func TestSchemaUnderFailures(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{t: t}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.out.Reset()
			switch d.Cmd {
			case "cluster":
				nodes, spare := 0, 0
				d.ScanArgs(t, "nodes", &nodes)
				d.MaybeScanArgs(t, "spare", &spare)
				s.cluster(nodes, spare)
				return fmt.Sprintf("%d nodes, node 1 is president\n", nodes)
			case "do", "given": // a story may begin with what need not be told
				for _, line := range strings.Split(d.Input, "\n") {
					s.do(strings.Fields(line))
				}
				if d.Cmd == "given" {
					return "ok\n"
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
	all  bool // the first round of view changes is printed too
}

func (s *script) cluster(nodes, spare int) {
	s.r = newRig(s.t, 1, nodes)
	for i := range spare {
		s.r.spare = append(s.r.spare, uint8(nodes+i+1))
	}
	s.r.net.InOrder = true
	s.r.begin()
	s.r.net.Seen = func(n *kerneltest.Node, h *signal.Head) { s.saw(n, h) }
}

// saw prints what is delivered, as far as it is about tables and views.
func (s *script) saw(n *kerneltest.Node, h *signal.Head) {
	name := func(a signal.Addr) string {
		if a.Node() > 50 {
			return fmt.Sprintf("client %d", a.Node())
		}
		if a.Block() == signal.BlockDictionary {
			return fmt.Sprintf("node %d", a.Node())
		}
		return strings.TrimSuffix(a.String(), ".0")
	}
	if s.stop == fmt.Sprintf("%s %d", signal.Name(h.Num), h.To.Node()) {
		s.hit = true
	}
	extra := ""
	switch h.Num {
	case signal.NumSchemaPrepareReq, signal.NumSchemaCommitReq, signal.NumSchemaAbortReq:
		q := signal.As[signal.SchemaReq](h)
		extra = fmt.Sprintf(" ref=%d %s table=%d version=%d", q.Ref, [...]string{"", "create", "drop"}[q.Kind], q.Table, q.Version)
		if q.Alone == 1 {
			extra += " alone"
		}
		if q.Code != 0 {
			extra += fmt.Sprintf(" code=%d", q.Code)
		}
	case signal.NumSchemaPrepareConf, signal.NumSchemaCommitConf, signal.NumSchemaAbortConf:
		q := signal.As[signal.SchemaConf](h)
		extra = fmt.Sprintf(" ref=%d", q.Ref)
		if q.Code != 0 {
			extra += fmt.Sprintf(" code=%d", q.Code)
		}
	case signal.NumSchemaStateReq, signal.NumSchemaGoOrd:
		extra = fmt.Sprintf(" view=%d", signal.As[signal.SchemaStateReq](h).View)
	case signal.NumSchemaStateConf:
		q := signal.As[signal.SchemaStateConf](h)
		extra = fmt.Sprintf(" ref=%d %s %s", q.Ref, [...]string{"nothing", "create", "drop"}[q.Kind], [...]string{"", "prepared", "committed", "aborted"}[q.Step])
		if q.Code != 0 {
			extra += fmt.Sprintf(" code=%d", q.Code)
		}
		if q.Part != signal.PartFull {
			extra += ", takes no part"
		}
	case signal.NumSchemaJoinReq:
	case signal.NumSchemaJoinConf:
		q := signal.As[signal.SchemaJoinConf](h)
		extra = fmt.Sprintf(" code=%d", q.Code)
		for _, v := range q.Versions() {
			extra += fmt.Sprintf(" %d:version %d", v>>16, v&0xffff)
		}
	case signal.NumTableCreateReq:
		extra = fmt.Sprintf(" ref=%d", signal.As[signal.TableCreateReq](h).Ref)
	case signal.NumTableDropReq:
		q := signal.As[signal.TableNameReq](h)
		extra = fmt.Sprintf(" ref=%d %s", q.Ref, q.Name())
	case signal.NumTableCreateConf, signal.NumTableDropConf:
		q := signal.As[signal.TableDone](h)
		extra = fmt.Sprintf(" ref=%d table=%d version=%d", q.Ref, q.Table, q.Version)
	case signal.NumTableRef:
		q := signal.As[signal.TableRef](h)
		extra = fmt.Sprintf(" ref=%d code=%d", q.Ref, q.Code)
	case signal.NumTableInfoConf:
		q := signal.As[signal.TableInfoConf](h)
		extra = fmt.Sprintf(" table=%d version=%d first chain=%v", q.Table, q.Version, q.Chains()[:signal.MaxReplicas])
	case signal.NumViewCommitReq:
		if h.To.Block() != signal.BlockDictionary {
			return
		}
		q := signal.As[signal.ViewReq](h)
		extra = fmt.Sprintf(" view=%d members=", q.View)
		for i, m := range q.Members() {
			extra += []string{"", ","}[min(i, 1)] + strconv.Itoa(int(m.Node))
		}
	case signal.NumViewPrepareReq, signal.NumViewPrepareConf:
		if !s.all || h.From.Block() != signal.BlockDictionary && h.To.Block() != signal.BlockDictionary {
			return
		}
		extra = fmt.Sprintf(" view=%d", signal.As[signal.ViewConf](h).View)
	case signal.NumTakeoverRep:
		if h.To.Block() != signal.BlockDictionary {
			return
		}
		extra = fmt.Sprintf(" view=%d", signal.As[signal.TakeoverRep](h).View)
	case signal.NumPhaseReq:
		extra = fmt.Sprintf(" %d", signal.As[signal.PhaseReq](h).Phase)
	case signal.NumPhaseConf:
		c := signal.As[signal.PhaseConf](h)
		extra = fmt.Sprintf(" %d code=%d", c.Phase, c.Code)
	case signal.NumEventRep:
		r := signal.As[signal.EventRep](h)
		e := event.Event{Type: event.Type(r.Event), Node: n.ID, Args: r.Args, Text: string(r.Text())}
		fmt.Fprintf(&s.out, "# %s\n", e.String())
		return
	default:
		return
	}
	fmt.Fprintf(&s.out, "%s %s -> %s%s\n", name(h.From), signal.Name(h.Num), name(h.To), extra)
}

// tables prints what each living node has.
func (s *script) tables() {
	for id := uint8(1); id < 10; id++ {
		n := s.r.net.Nodes[id]
		if n == nil || n.Dead() {
			continue
		}
		x := s.r.n[id]
		fmt.Fprintf(&s.out, "node %d:", id)
		for i := range x.b.tables {
			if t := &x.b.tables[i]; t.state != free {
				frags := 0
				for k := range x.frags {
					if k[0] == uint32(i) {
						frags++
					}
				}
				fmt.Fprintf(&s.out, " %s (%d, version %d, %s, %d fragments)", t.name, i, t.version, [...]string{"", "preparing", "ready", "dropping"}[t.state], frags)
			}
		}
		s.out.WriteString("\n")
	}
}

func (s *script) do(words []string) {
	if len(words) == 0 {
		return
	}
	num := func(i int) uint8 {
		n, err := strconv.Atoi(words[i])
		if err != nil {
			s.t.Fatalf("%q has no number", words)
		}
		return uint8(n)
	}
	pair := func(w string) (a, b uint8) {
		if _, err := fmt.Sscanf(w, "%d->%d", &a, &b); err != nil {
			s.t.Fatalf("%q is no link", w)
		}
		return a, b
	}
	net := s.r.net
	switch words[0] {
	case "run": // deliver what can be
		net.Run(0)
	case "until": // deliver up to and including a signal to a node
		s.stop, s.hit = words[1]+" "+words[2], false
		if !net.Until(ms, func() bool { return s.hit }) {
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
		net.Kill(num(1))
	case "client":
		s.r.client(num(1))
	case "create": // client node ref name
		s.r.create(num(1), num(2), uint32(num(3)), definition(words[4], 2))
	case "drop":
		s.r.named(num(1), num(2), signal.NumTableDropReq, uint32(num(3)), "db/"+words[4])
	case "info":
		s.r.named(num(1), num(2), signal.NumTableInfoReq, uint32(num(3)), "db/"+words[4])
	case "hold": // coordinators of a node keep their answer to a close back
		s.r.n[num(1)].hold = true
	case "release":
		s.r.release(num(1))
	case "refuses": // an ldm of a node has no room
		s.r.failAt, s.r.failNow = signal.MakeAddr(num(1), signal.BlockLDM, 0), 827
	case "hold-takeover":
		s.r.views.Hold = true
	case "end-takeover":
		s.r.views.Release()
	case "join":
		s.r.add(num(1))
		s.r.views.Join(num(1), 0)
	case "follow":
		s.r.views.Promote(num(1), signal.MemberFollowing)
	case "lead":
		s.r.views.Promote(num(1), signal.MemberLeading)
	case "promote": // to following, then leading
		s.r.views.Promote(num(1), signal.MemberFollowing)
		s.r.views.Promote(num(1), signal.MemberLeading)
	case "phase":
		s.r.phase(num(2), uint32(num(1)))
	case "show-prepares":
		s.all = true
	case "tables":
		s.tables()
	default:
		s.t.Fatalf("unknown line %q", words)
	}
}
