package ldm_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/view"
)

// TestTraces runs the documents in testdata: a few ldms, whose clients, coordinators and membership are the script.
// `go test ./internal/ldm -run TestTraces -rewrite` writes what happens now.
func TestTraces(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no traces: ", err)
	}
	var marks kernel.Marks
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			s := &script{marks: &marks}
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				s.t = t
				switch d.Cmd {
				case "cluster":
					return s.cluster(d)
				case "do":
					s.out.Reset()
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
			s.addMarks()
		})
	}
	if t.Failed() {
		return
	}
	for m := kernel.MarkThawed; m <= kernel.MarkProbeTwice; m++ {
		if !marks.Has(m) {
			t.Errorf("no document comes to the place %q", m)
		}
	}
}

type script struct {
	t       *testing.T
	w       *world
	out     strings.Builder
	seqs    map[int]uint32
	ops     map[string]*tcOp // of coordinators, by name
	next    view.View        // prepared
	attempt uint32
	muted   bool
	marks   *kernel.Marks // that the blocks have reached
}

func (s *script) addMarks() {
	if s.w != nil {
		for _, x := range s.w.sites[1:] {
			s.marks.Add(x.env.Marks())
		}
	}
}

func (s *script) cluster(d *datadriven.TestData) string {
	nodes, replicas, fragments, operations, small, wide := 2, 2, 1, 64, 0, false
	d.MaybeScanArgs(s.t, "nodes", &nodes)
	d.MaybeScanArgs(s.t, "replicas", &replicas)
	d.MaybeScanArgs(s.t, "fragments", &fragments)
	d.MaybeScanArgs(s.t, "operations", &operations)
	d.MaybeScanArgs(s.t, "little-memory-at", &small)
	d.MaybeScanArgs(s.t, "wide", &wide)
	pages := func(n uint8) int {
		if int(n) == small {
			return 2
		}
		return 128
	}
	columns := oneWord
	if wide {
		columns = append(slices.Clone(oneWord), schema.Column{Name: "S", Type: schema.Varbinary, Length: 8000, Nullable: true})
	}
	s.addMarks()
	s.w = newWorld(s.t, 1, nodes, replicas, fragments, operations, pages, columns...)
	s.w.inOrder = true
	s.seqs, s.ops, s.attempt = map[int]uint32{}, map[string]*tcOp{}, 1
	s.w.seen = func(_ uint8, h *signal.Head) { s.sent(h) }
	s.w.heard = func(x *site, h *signal.Head) {
		if h.From.Node() == x.id {
			s.sent(h)
		}
		s.learn(h)
	}
	return fmt.Sprintf("%d nodes, homes %v\n", nodes, s.w.homes)
}

// learn keeps what a coordinator would.
func (s *script) learn(h *signal.Head) {
	for _, o := range s.ops {
		switch h.Num {
		case signal.NumPrepareConf:
			if c := signal.As[signal.PrepareConf](h); c.TcRef == o.ref && c.OpSeq == o.seq {
				o.first, o.last, o.tail = c.First, c.From, c.Tail
			}
		case signal.NumWaitRep:
			if c := signal.As[signal.WaitRep](h); c.TcRef == o.ref && c.Seq == o.seq {
				o.first = c.First
			}
		case signal.NumOpRep:
			if c := signal.As[signal.OpRep](h); c.TcRef == o.ref && c.OpSeq == o.seq {
				o.records[c.From.Node()] = c.OpRef
			}
		}
	}
}

func name(a signal.Addr) string {
	switch a.Node() {
	case clientNode:
		return fmt.Sprintf("c%d", a.Instance())
	case mgmNode:
		return "mgm"
	}
	return strings.TrimSuffix(a.String(), ".0")
}

// opName is the script's name of an operation of a coordinator.
func (s *script) opName(ref, seq uint32) string {
	for n, o := range s.ops {
		if o.ref == ref && o.seq == seq {
			return n
		}
	}
	return "?"
}

// sent prints a signal that leaves its block.
func (s *script) sent(h *signal.Head) {
	if s.muted {
		return
	}
	extra := ""
	switch h.Num {
	case signal.NumWriteConf:
		c := signal.As[signal.WriteConf](h)
		extra = fmt.Sprintf(" tx=%d epoch=%v", c.Tx, signal.JoinGCI(c.GCI))
	case signal.NumKeyRef:
		c := signal.As[signal.KeyRef](h)
		extra = fmt.Sprintf(" tx=%d error=%d", c.Tx, c.Code)
	case signal.NumReadConf:
		c := signal.As[signal.ReadConf](h)
		extra = fmt.Sprintf(" tx=%d value=%d", c.Tx, *(*uint32)(c.Data()))
	case signal.NumPrepareReq:
		extra = " " + s.opName(signal.As[signal.PrepareReq](h).TcRef, signal.As[signal.PrepareReq](h).Seq)
	case signal.NumChainReq:
		c := signal.As[signal.PrepareReq](h)
		extra = fmt.Sprintf(" tx=%d", c.Tx)
		if c.Flags&signal.FlagAgain != 0 {
			extra += " again"
		}
	case signal.NumPrepareConf:
		extra = " " + s.opName(signal.As[signal.PrepareConf](h).TcRef, signal.As[signal.PrepareConf](h).OpSeq)
	case signal.NumPrepareRef:
		c := signal.As[signal.PrepareRef](h)
		extra = fmt.Sprintf(" %s error=%d", s.opName(c.TcRef, c.OpSeq), c.Code)
	case signal.NumWaitRep:
		extra = " " + s.opName(signal.As[signal.WaitRep](h).TcRef, signal.As[signal.WaitRep](h).Seq)
	case signal.NumChainConf:
		extra = fmt.Sprintf(" epoch=%v", signal.JoinGCI(signal.As[signal.ChainConf](h).GCI))
	case signal.NumChainRef:
		extra = fmt.Sprintf(" error=%d", signal.As[signal.ChainRef](h).Code)
	case signal.NumCommitReq, signal.NumCompleteReq, signal.NumAbortReq:
		extra = " " + s.opName(signal.As[signal.Step](h).TcRef, signal.As[signal.Step](h).OpSeq)
		if signal.As[signal.Step](h).Direct != 0 {
			extra += " direct"
		}
	case signal.NumCommitConf, signal.NumCompleteConf, signal.NumAbortConf:
		extra = " " + s.opName(signal.As[signal.StepConf](h).TcRef, signal.As[signal.StepConf](h).OpSeq)
		if signal.As[signal.StepConf](h).Direct != 0 {
			extra += " direct"
		}
	case signal.NumOpRep:
		c := signal.As[signal.OpRep](h)
		extra = fmt.Sprintf(" %s %s", s.opName(c.TcRef, c.OpSeq), []string{"", "waits", "prepared", "applied"}[c.State])
		if c.State == signal.OpApplied {
			extra += fmt.Sprintf(" epoch=%v seq=%d", signal.JoinGCI(c.GCI), c.Seq)
		}
		if c.Write == 0 {
			extra += " read"
		}
		if c.Marker != 0 {
			extra += " marker"
		}
	case signal.NumOutcomeConf:
		c := signal.As[signal.OutcomeConf](h)
		extra = fmt.Sprintf(" seq=%d %s", c.Seq, []string{"none", "committed", "elsewhere"}[c.Known])
		if c.Known == signal.OutcomeCommitted {
			extra += fmt.Sprintf(" epoch=%v", signal.JoinGCI(c.GCI))
		}
	case signal.NumCopyReq, signal.NumCopyAckOrd, signal.NumCopyRef, signal.NumCopyRowsOrd:
		extra = copyText(h)
	case signal.NumCopyStartConf:
		c := signal.As[signal.CopyStartConf](h)
		extra = fmt.Sprintf(" rows=%d error=%d", c.Rows[0], c.Code)
	case signal.NumFragCreateConf, signal.NumFragDropConf:
		c := signal.As[signal.FragConf](h)
		extra = fmt.Sprintf(" fragment=%d error=%d", c.Frag, c.Code)
	case signal.NumProbeOrd, signal.NumWaitProbeOrd:
		c := signal.As[signal.ProbeOrd](h)
		extra = fmt.Sprintf(" of tx=%d about %s", c.Tx, s.opName(c.TcRef, c.OpSeq))
	case signal.NumListConf:
		c := signal.As[signal.ListConf](h)
		extra = fmt.Sprintf(" left=%d", c.Left)
		for _, l := range c.Locks() {
			extra += fmt.Sprintf("\n  %s tx=%d row=%d mode=%d waits=%d for %dms behind %s tx=%d", name(l.Client), l.Tx, l.Row, l.Mode, l.Waits, l.Millis, name(l.Ahead), l.AheadTx)
		}
	case signal.NumEventRep:
		r := signal.As[signal.EventRep](h)
		e := event.New(uint8(r.Node), event.Type(r.Event)).WithText(string(r.Text()))
		e.Args = r.Args
		extra = " " + string(e.AppendText(nil))
	case signal.NumViewPrepareConf, signal.NumViewCommitConf:
		extra = fmt.Sprintf(" %d", signal.As[signal.ViewConf](h).View)
	case signal.NumEpochPrepareConf, signal.NumEpochCommitConf, signal.NumViewPrepareReq, signal.NumViewCommitReq, signal.NumOpEndRep:
		return
	}
	fmt.Fprintf(&s.out, "%s %s -> %s%s\n", name(h.From), signal.Name(h.Num), name(h.To), extra)
}

func copyText(h *signal.Head) string {
	switch h.Num {
	case signal.NumCopyReq:
		return fmt.Sprintf(" fragment=%d", signal.As[signal.CopyReq](h).Frag)
	case signal.NumCopyRef:
		return fmt.Sprintf(" fragment=%d error=%d", signal.As[signal.CopyRef](h).Frag, signal.As[signal.CopyRef](h).Code)
	case signal.NumCopyAckOrd:
		c := signal.As[signal.CopyAckOrd](h)
		return fmt.Sprintf(" run=%d error=%d", c.Run, c.Code)
	}
	c := signal.As[signal.CopyRowsOrd](h)
	s := fmt.Sprintf(" run=%d entries=%d", c.Run, c.Count)
	if c.Last != 0 {
		s += " last"
	}
	return s
}

func (s *script) do(f []string) {
	if len(f) == 0 {
		return
	}
	arg := map[string]string{}
	for _, x := range f[1:] {
		k, v, _ := strings.Cut(x, "=")
		arg[k] = v
	}
	n := func(k string, def int) int {
		if v, ok := arg[k]; ok {
			i, err := strconv.Atoi(v)
			if err != nil {
				s.t.Fatal(err)
			}
			return i
		}
		return def
	}
	has := func(k string) bool { _, ok := arg[k]; return ok }
	w := s.w
	c, key := n("c", 1), uint32(n("key", 0))
	client := signal.MakeAddr(clientNode, signal.BlockClient, uint16(c))
	node := uint8(n("node", 1))
	defer func() {
		if !has("later") {
			w.drain()
		}
	}()
	switch f[0] {
	case "insert", "update", "write", "delete", "read":
		op, data, flags := opNames[f[0]], []byte(nil), uint8(signal.FlagAll)
		if !signal.IsRead(op) && op != signal.OpDelete {
			data, flags = s.section(uint32(n("val", 0)), n("long", 0))
		}
		to, q := w.primary(key), uint32(0)
		if has("at") {
			to = at(uint8(n("at", 0)), signal.BlockLDM)
		}
		if !signal.IsRead(op) {
			s.seqs[c]++
			q = s.seqs[c]
		}
		w.oneShot(to, uint16(c), uint32(n("tx", 1)), q, op, flags, key, data)
	case "fill":
		s.muted = true
		for k := range n("rows", 0) {
			data, flags := s.section(uint32(k), n("long", 0))
			s.seqs[9]++
			w.oneShot(w.primary(uint32(1000+k)), 9, 1, s.seqs[9], signal.OpInsert, flags, uint32(1000+k), data)
			w.settle()
		}
		s.muted = false
	case "prepare": // an operation of a coordinator
		tc := uint8(n("tc", 1))
		o := &tcOp{tc: tc, client: client, tx: uint32(n("tx", 1)), ref: uint32(len(s.ops)), seq: uint32(len(s.ops) + 100), key: key, op: opNames[arg["op"]],
			flags: signal.FlagAll, to: w.primary(key), first: signal.NoRef, records: map[uint8]uint32{}}
		var data []byte
		if !signal.IsRead(o.op) && o.op != signal.OpDelete {
			data, o.flags = s.section(uint32(n("val", 0)), n("long", 0))
		}
		if has("marker") {
			o.flags |= signal.FlagMarker
		}
		if has("at") {
			o.to = at(uint8(n("at", 0)), signal.BlockLDM)
		}
		s.ops[arg["as"]] = o
		w.prepare(tc, o.to, o, data)
	case "commit", "complete", "abort":
		s.step(f[0], s.ops[arg["of"]], n, has)
	case "run":
		if k := n("steps", 0); k > 0 {
			for range k {
				w.step()
			}
			return
		}
		w.settle()
	case "hold", "serve":
		a, b, _ := strings.Cut(f[1], ">")
		x, _ := strconv.Atoi(a)
		y, _ := strconv.Atoi(b)
		w.held[[2]uint8{uint8(x), uint8(y)}] = f[0] == "hold"
	case "wait":
		s.muted = has("quietly")
		for range n("times", 1) {
			w.pass(int64(n("ms", 0)) * 1e6)
			w.settle()
		}
		s.muted = false
	case "kill":
		w.kill(node)
		w.cut(node, func(int) int { return 0 })
	case "lose", "move", "join":
		s.attempt++
		switch f[0] {
		case "lose":
			s.next = w.without(&w.view)
		case "join":
			s.addMarks()
			w.sites[node] = w.newSite(node, len(w.sites)-1, n("pages", 128))
			s.next = w.with(&w.view, node, signal.MemberRecovering)
		default:
			s.next = w.with(&w.view, node, map[string]uint32{"following": signal.MemberFollowing, "leading": signal.MemberLeading, "recovering": signal.MemberRecovering}[arg["to"]])
		}
		if has("again") { // the states as they were
			s.next.Take(w.view.Number+1, uint32(w.view.President), w.view.Members)
		}
		for _, x := range w.alive() {
			if s.next.Has(x.id) {
				w.tellView(x.id, signal.NumViewPrepareReq, &s.next, s.attempt)
			}
		}
	case "view": // commits what is prepared, at one node or all
		for _, x := range w.alive() {
			if s.next.Has(x.id) && (!has("node") || x.id == node) {
				w.tellView(x.id, signal.NumViewCommitReq, &s.next, s.attempt)
			}
		}
		if w.view.Copy(&s.next); f[0] == "view" && has("fragments") {
			w.createFragments(node)
		}
	case "over":
		w.takeoverOver(&w.view)
	case "create":
		w.createFragment(node, uint32(n("fragment", 0)))
	case "copy":
		kernel.Send[signal.CopyStartReq](w.sites[node].env, at(node, signal.BlockLDM), at(node, signal.BlockDistribution), signal.NumCopyStartReq).Ref = 1
	case "epoch", "prepare-epoch", "commit-epoch":
		s.epoch(f[0])
	case "gate":
		kernel.Send[signal.GateOrd](w.sites[node].env, at(node, signal.BlockLDM), at(node, signal.BlockMembership), signal.NumGateOrd).Shut = uint32(n("shut", 0))
	case "outcome":
		to := w.primary(key)
		if has("at") {
			to = at(uint8(n("at", 0)), signal.BlockLDM)
		}
		r := kernel.Send[signal.OutcomeReq](w.client, to, client, signal.NumOutcomeReq)
		*r = signal.OutcomeReq{Head: r.Head, Tx: 1, Seq: uint32(n("seq", 0)), Node: uint32(n("of", 0)), DynamicID: uint32(n("of", 0)), Table: tableID, Frag: uint16(w.frag(key))}
	case "close-session":
		for _, x := range w.alive() {
			kernel.Send[signal.CloseOrd](w.client, at(x.id, signal.BlockLDM), client, signal.NumCloseOrd)
		}
	case "single":
		r := kernel.Send[signal.SingleOrd](w.sites[node].env, at(node, signal.BlockLDM), at(node, signal.BlockManager), signal.NumSingleOrd)
		r.Ref, r.Node = 1, uint32(n("only", 0))
	case "list":
		r := kernel.Send[signal.ListReq](w.sites[node].env, at(node, signal.BlockLDM), signal.MakeAddr(mgmNode, signal.BlockMgm, 0), signal.NumListReq)
		r.Ref, r.Kind, r.Most = 1, signal.ListLocks, uint32(n("most", 100))
	case "probe": // a coordinator passes a probe on to a waiting operation
		o, of := s.ops[arg["to"]], s.ops[arg["of"]]
		r := kernel.Send[signal.ProbeOrd](w.sites[o.tc].env, o.to, at(o.tc, signal.BlockTC), signal.NumWaitProbeOrd)
		*r = signal.ProbeOrd{Head: r.Head, Tc: at(of.tc, signal.BlockTC), Client: of.client, Tx: of.tx, TcRef: o.ref, OpSeq: o.seq, OpRef: o.first}
	case "drop":
		for _, x := range w.alive() {
			for fr, home := range w.homes {
				for _, p := range home {
					if p.Node() == x.id {
						r := kernel.Send[signal.FragDropReq](x.env, p, at(x.id, signal.BlockDictionary), signal.NumFragDropReq)
						r.Ref, r.Table, r.Frag = 0, tableID, uint32(fr)
					}
				}
			}
		}
	case "rows":
		fmt.Fprintf(&s.out, "rows %v\n", w.compare())
	case "count":
		fmt.Fprintf(&s.out, "%d rows\n", len(w.compare()))
	case "same": // all replicas that live, those that recover included
		for fr, home := range w.homes {
			for _, p := range home[1:] {
				if w.sites[p.Node()].dead {
					continue
				}
				if a, b := w.rows(home[0].Node(), uint32(fr)), w.rows(p.Node(), uint32(fr)); !slices.Equal(a, b) {
					s.t.Fatalf("fragment %d: nodes %d and %d differ\n%v\n%v", fr, home[0].Node(), p.Node(), a, b)
				}
			}
		}
		s.out.WriteString("all replicas are equal\n")
	case "rest":
		w.atRest()
		s.out.WriteString("at rest\n")
	default:
		s.t.Fatalf("unknown line %q", strings.Join(f, " "))
	}
}

// section is the data of a write: the value, and as many bytes as long says.
func (s *script) section(val uint32, long int) (data []byte, flags uint8) {
	if s.w.layout.VarCount == 0 {
		return word(val), signal.FlagAll
	}
	columns, values := []uint32{0}, [][]byte{word(val)}
	if long > 0 {
		columns, values = []uint32{0, 1}, append(values, slices.Repeat([]byte{byte(val)}, long))
	}
	b, err := s.w.layout.AppendWrite(nil, columns, values)
	if err != nil {
		s.t.Fatal(err)
	}
	return b, 0
}

func (s *script) step(what string, o *tcOp, n func(string, int) int, has func(string) bool) {
	nums := map[string]uint16{"commit": signal.NumCommitReq, "complete": signal.NumCompleteReq, "abort": signal.NumAbortReq}
	to, ref, direct := o.last, o.tail, uint32(0)
	if what == "abort" || signal.IsRead(o.op) {
		to, ref = o.to, o.first
	}
	if has("direct") {
		direct = 2 * s.w.view.Number
		to = at(uint8(n("direct", 0)), signal.BlockLDM)
		if r, known := o.records[to.Node()]; known {
			ref = r
		}
	}
	s.w.putStep(uint8(n("tc", int(o.tc))), nums[what], to, ref, o, signal.GCI(n("epoch", int(s.w.gci))), uint32(n("seq", 0)), direct)
}

func (s *script) epoch(what string) {
	w := s.w
	nums := []uint16{signal.NumEpochPrepareReq, signal.NumEpochCommitReq}
	switch what {
	case "prepare-epoch":
		nums = nums[:1]
		w.gci++
	case "commit-epoch":
		nums = nums[1:]
	default:
		w.gci++
	}
	for _, num := range nums {
		for _, x := range w.alive() {
			kernel.Send[signal.EpochReq](x.env, at(x.id, signal.BlockLDM), at(x.id, signal.BlockDistribution), num).GCI = w.gci.Words()
		}
	}
}

var opNames = map[string]uint8{"read": signal.OpReadCommitted, "shared": signal.OpReadShared, "exclusive": signal.OpReadExclusive,
	"insert": signal.OpInsert, "update": signal.OpUpdate, "write": signal.OpWrite, "delete": signal.OpDelete}
