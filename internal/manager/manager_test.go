package manager

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/kernel/kerneltest"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/version"
)

const ms = 1_000_000

// rig is one data node's manager, with fakes around it, and other nodes that link to it.
type rig struct {
	t       *testing.T
	net     *kerneltest.Net
	b       *Block
	used    [2]signal.StatConf // what the two ldms answer
	stats   int                // StatReqs that workers heard
	runtime []uint16
	toMembs []signal.Head // what membership heard besides links
	at      map[uint8]*heard

	single     uint32 // that blocks were told
	holdSingle bool   // a coordinator does not answer
}

// heard is what a linked node got.
type heard struct {
	states  []signal.NodeStateRep
	events  []event.Event
	reports []signal.ReportConf
	lists   []signal.Addr // blocks that answered a ListReq
	regs    []signal.ApiRegConf
	singles []signal.SingleConf
}

func newRig(t *testing.T, cfg Config) *rig {
	r := &rig{t: t, net: kerneltest.New(1), at: map[uint8]*heard{}}
	n := r.net.Add(1, signal.PeerData)
	for _, b := range []uint8{signal.BlockMembership, signal.BlockManager, signal.BlockRuntime} {
		n.Env.Place(b, 0, 0)
	}
	for i := range 2 {
		n.Env.Place(signal.BlockTC, i, 0)
		n.Env.Place(signal.BlockLDM, i, 0)
	}
	for i := range r.used {
		r.used[i] = signal.StatConf{DataPages: 10, IndexPages: 5, DataTotal: 100, IndexTotal: 100, Operations: 2, Copies: 64}
	}
	cfg.LDMs, cfg.TCs, cfg.Replicas, cfg.Groups = 2, 2, 2, 1
	r.b = New(n.Env, cfg)
	n.Handle = func(h *signal.Head) {
		switch h.To.Block() {
		case signal.BlockManager:
			r.b.Deliver(h)
		case signal.BlockMembership:
			switch h.Num {
			case signal.NumLinkUpRep, signal.NumLinkDownRep:
				h.To = signal.MakeAddr(1, signal.BlockManager, 0)
				n.Env.Forward(h)
			default:
				r.toMembs = append(r.toMembs, *h)
			}
		case signal.BlockRuntime:
			r.runtime = append(r.runtime, h.Num)
		case signal.BlockTC, signal.BlockLDM:
			if h.Num == signal.NumListReq {
				c := kernel.Send[signal.ListConf](n.Env, h.From, h.To, signal.NumListConf)
				c.Ref, c.Kind, c.Blocks = signal.As[signal.ListReq](h).Ref, signal.As[signal.ListReq](h).Kind, 2
				return
			}
			if h.Num == signal.NumSingleOrd {
				o := signal.As[signal.SingleOrd](h)
				r.single = o.Node
				if !r.holdSingle || h.To != signal.MakeAddr(1, signal.BlockTC, 0) {
					c := kernel.Send[signal.SingleConf](n.Env, h.From, h.To, signal.NumSingleConf)
					c.Ref, c.Code = o.Ref, 0
				}
				return
			}
			r.stats++
			ref := signal.As[signal.StatReq](h).Ref
			c := kernel.Send[signal.StatConf](n.Env, h.From, h.To, signal.NumStatConf)
			head := c.Head
			if h.To.Block() == signal.BlockLDM {
				*c = r.used[h.To.Instance()]
			} else {
				*c = signal.StatConf{Transactions: 3}
			}
			c.Head, c.Ref = head, ref
		}
	}
	r.net.After = func(x *kerneltest.Node) {
		if x.ID == 1 {
			r.b.Invariants()
		}
	}
	return r
}

// join links another node.
func (r *rig) join(id uint8, kind signal.Peer) *heard {
	x := &heard{}
	r.at[id] = x
	n := r.net.Add(id, kind)
	n.Handle = func(h *signal.Head) {
		switch h.Num {
		case signal.NumNodeStateRep:
			x.states = append(x.states, *signal.As[signal.NodeStateRep](h))
		case signal.NumEventRep:
			e := signal.As[signal.EventRep](h)
			x.events = append(x.events, event.Event{Type: event.Type(e.Event), Node: uint8(e.Node), Args: e.Args, Text: string(e.Text())})
		case signal.NumReportConf:
			x.reports = append(x.reports, *signal.As[signal.ReportConf](h))
		case signal.NumListConf:
			x.lists = append(x.lists, h.From)
		case signal.NumSingleConf:
			x.singles = append(x.singles, *signal.As[signal.SingleConf](h))
		case signal.NumApiRegConf:
			x.regs = append(x.regs, *signal.As[signal.ApiRegConf](h))
		}
	}
	r.net.Link(1, id)
	r.net.Run(ms)
	return x
}

func (r *rig) subscribe(id uint8, change func(*event.Levels)) {
	l := event.DefaultLevels()
	if change != nil {
		change(&l)
	}
	o := kernel.Send[signal.EventSubscribeOrd](r.net.Nodes[id].Env, signal.MakeAddr(1, signal.BlockManager, 0), signal.MakeAddr(id, signal.BlockMgm, 0), signal.NumEventSubscribeOrd)
	o.Levels = [16]uint8{}
	copy(o.Levels[:], l[:])
	r.net.Run(ms)
}

func (r *rig) event(t event.Type, args ...uint32) {
	e := event.New(1, t, args...)
	r.net.Nodes[1].Env.Report(signal.MakeAddr(1, signal.BlockMembership, 0), &e)
	r.net.Run(ms)
}

func (x *heard) count(t event.Type) (n int) {
	for i := range x.events {
		if x.events[i].Type == t {
			n++
		}
	}
	return n
}

func TestEventsGoToWhoeverWantsThem(t *testing.T) {
	r := newRig(t, Config{})
	a := r.join(49, signal.PeerMgm)
	b := r.join(50, signal.PeerMgm)
	silent := r.join(48, signal.PeerMgm)
	r.subscribe(49, nil)
	r.subscribe(50, func(l *event.Levels) { l[event.CategoryStartup] = 3 })
	r.event(event.StartPhaseCompleted, 4) // startup, level 4
	r.event(event.NDBStartCompleted, 1)   // level 1
	if a.count(event.StartPhaseCompleted) != 1 || a.count(event.NDBStartCompleted) != 1 || b.count(event.StartPhaseCompleted) != 0 || b.count(event.NDBStartCompleted) != 1 || len(silent.events) != 0 {
		t.Fatalf("%v and %v and %v", a.events, b.events, silent.events)
	}
	n := 0
	for _, num := range r.runtime {
		if num == signal.NumEventRep {
			n++
		}
	}
	if n != 5 { // three links and two events
		t.Fatalf("the runtime heard %d events", n)
	}
}

func TestTheFirstListenerHearsWhatNobodyHeard(t *testing.T) {
	r := newRig(t, Config{})
	for i := range uint32(backlogMax + 10) {
		r.event(event.NDBStartStarted, i)
	}
	x := r.join(49, signal.PeerMgm)
	r.subscribe(49, nil)
	if n := x.count(event.NDBStartStarted); n != backlogMax-1 || x.events[0].Args[0] != 11 {
		t.Fatalf("%d old events, the first is %v", n, x.events[0])
	}
	if x.count(event.Connected) != 1 {
		t.Fatal("the link itself is an event")
	}
	y := r.join(50, signal.PeerMgm)
	r.subscribe(50, nil)
	if y.count(event.NDBStartStarted) != 0 {
		t.Fatal("told twice")
	}
	r.net.Kill(49)
	r.net.Kill(50)
	r.net.Run(ms)
	r.event(event.NDBStopStarted)
	z := r.join(51, signal.PeerMgm)
	r.subscribe(51, nil)
	if z.count(event.NDBStopStarted) != 1 || z.count(event.Disconnected) != 1 { // the other's end was heard by 50
		t.Fatalf("%v", z.events)
	}
}

func TestStatesGoToClientsAndManagement(t *testing.T) {
	r := newRig(t, Config{})
	m := r.join(49, signal.PeerMgm)
	if len(m.states) != 1 || m.states[0].State != signal.StateNotStarted || m.states[0].Software != version.Number {
		t.Fatalf("%+v", m.states)
	}
	c := r.join(51, signal.PeerAPI)
	if set := signal.NodeSet(m.states[len(m.states)-1].Connected); !set.Has(51) || !set.Has(49) {
		t.Fatal("management does not hear who is linked")
	}
	reg := kernel.Send[signal.ApiRegReq](r.net.Nodes[51].Env, signal.MakeAddr(1, signal.BlockManager, 0), signal.MakeAddr(51, signal.BlockClient, 0), signal.NumApiRegReq)
	reg.Ref, reg.Version = 4, version.Number
	r.net.Run(ms)
	if len(c.regs) != 1 || c.regs[0].Ref != 4 || c.regs[0].LDMs != 2 || c.regs[0].Replicas != 2 || c.regs[0].State != signal.StateNotStarted {
		t.Fatalf("%+v", c.regs)
	}
	e := kernel.Send[signal.EpochRep](r.net.Nodes[1].Env, signal.MakeAddr(1, signal.BlockManager, 0), signal.MakeAddr(1, signal.BlockDistribution, 0), signal.NumEpochRep)
	e.GCI = [2]uint32{3, 7}
	s := kernel.Send[signal.NodeStateRep](r.net.Nodes[1].Env, signal.MakeAddr(1, signal.BlockManager, 0), signal.MakeAddr(1, signal.BlockMembership, 0), signal.NumNodeStateRep)
	h := s.Head
	*s = signal.NodeStateRep{Head: h, State: signal.StateStarted, President: 1, DynamicID: 1}
	r.net.Run(ms)
	for _, x := range []*heard{m, c} {
		last := x.states[len(x.states)-1]
		if last.State != signal.StateStarted || last.President != 1 || last.GCI != [2]uint32{3, 7} || last.Software != version.Number {
			t.Fatalf("%+v", last)
		}
	}
	if r.runtime[len(r.runtime)-1] != signal.NumNodeStateRep {
		t.Fatal("the runtime does not hear the state")
	}
	n := len(m.states)
	r.net.Cut(1, 51)
	r.net.Run(ms)
	if len(m.states) != n+1 {
		t.Fatal("management does not hear that a client is gone")
	}
	if set := signal.NodeSet(m.states[n].Connected); set.Has(51) {
		t.Fatal("a client that is gone is linked")
	}
}

func report(r *rig, id uint8, ref, kind uint32) {
	q := kernel.Send[signal.ReportReq](r.net.Nodes[id].Env, signal.MakeAddr(1, signal.BlockManager, 0), signal.MakeAddr(id, signal.BlockMgm, 0), signal.NumReportReq)
	q.Ref, q.Kind = ref, kind
}

func TestMemoryReports(t *testing.T) {
	r := newRig(t, Config{})
	x := r.join(49, signal.PeerMgm)
	report(r, 49, 1, signal.ReportMemory)
	report(r, 49, 2, signal.ReportBackup)
	report(r, 49, 3, signal.ReportMemory)
	r.net.Run(ms)
	got := map[uint32]signal.ReportConf{}
	for _, c := range x.reports {
		got[c.Ref] = c
	}
	if len(got) != 3 || len(x.reports) != 3 {
		t.Fatalf("%+v", x.reports)
	}
	for _, ref := range []uint32{1, 3} {
		if c := got[ref]; c.DataPages != 20 || c.IndexPages != 10 || c.DataTotal != 90 || c.IndexTotal != 80 {
			t.Fatalf("%+v", c)
		}
	}
	if r.stats != 4 {
		t.Fatalf("%d questions for one gathering", r.stats)
	}
	for i := range uint32(askersMax + 20) {
		report(r, 49, 100+i, signal.ReportMemory)
	}
	r.net.Run(ms)
	if len(x.reports) != 3+askersMax+20 {
		t.Fatalf("%d answers", len(x.reports))
	}
}

func TestMemoryThresholdsAreReportedOnce(t *testing.T) {
	r := newRig(t, Config{})
	x := r.join(49, signal.PeerMgm)
	r.subscribe(49, nil)
	var lines []string
	for _, pages := range []uint32{30, 35, 36, 40, 44, 45, 45, 39, 10} { // of 45 each that the two can have besides 5 of index
		r.used[0].DataPages, r.used[1].DataPages = pages, pages
		x.events = nil
		r.net.Run(1000 * ms)
		for i := range x.events {
			if x.events[i].Type == event.MemoryUsage && x.events[i].Args[4] == event.BlockDataMemory {
				lines = append(lines, fmt.Sprint(pages, ":", string(x.events[i].AppendText(nil))))
			}
		}
	}
	want := []string{
		"36:Data usage increased to 80%(72 32K pages of total 90)",
		"44:Data usage increased to 97%(88 32K pages of total 90)",
		"45:Data usage increased to 100%(90 32K pages of total 90)",
		"39:Data usage decreased to 86%(78 32K pages of total 90)",
		"10:Data usage decreased to 22%(20 32K pages of total 90)",
	}
	if strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Fatalf("%s", strings.Join(lines, "\n"))
	}
}

func TestMemoryIsReportedEverySoOften(t *testing.T) {
	r := newRig(t, Config{MemoryReport: 10_000 * ms})
	x := r.join(49, signal.PeerMgm)
	r.subscribe(49, nil)
	r.net.Run(30_500 * ms)
	if n := x.count(event.MemoryUsage); n != 6 { // data and index, three times
		t.Fatalf("%d reports", n)
	}
}

func TestDump(t *testing.T) {
	r := newRig(t, Config{})
	x := r.join(49, signal.PeerMgm)
	r.subscribe(49, nil)
	for _, c := range []struct {
		args []uint32
		want string
	}{
		{[]uint32{1000}, "Data usage is 22%(20 32K pages of total 90)"},
		{[]uint32{1001}, "In use: 6 transactions, 4 operations, 128 bytes of copies, outcomes of 0 sessions"},
		{[]uint32{1002, 5}, "State 0, start phase 0, president 0, dynamic id 0, epoch 0/0, 1 links, cohort-" + version.String()},
		{[]uint32{7099}, "DUMP 7099 is not supported: use 1000 (memory), 1001 (records in use) or 1002 (state of the node)"},
		{nil, "DUMP 0 is not supported: use 1000 (memory), 1001 (records in use) or 1002 (state of the node)"},
	} {
		x.events = nil
		d := (*signal.DumpOrd)(r.net.Nodes[49].Env.Put(signal.MakeAddr(1, signal.BlockManager, 0), signal.MakeAddr(49, signal.BlockMgm, 0), signal.NumDumpOrd, uint32(unsafe.Sizeof(signal.DumpOrd{}))))
		d.Args, d.N = [16]uint32{}, uint32(len(c.args))
		copy(d.Args[:], c.args)
		r.net.Run(ms)
		if len(x.events) == 0 || string(x.events[0].AppendText(nil)) != c.want {
			t.Errorf("DUMP %v: %v", c.args, x.events)
		}
	}
}

func TestOrdersGoToMembershipInTheAskersName(t *testing.T) {
	r := newRig(t, Config{})
	r.join(49, signal.PeerMgm)
	env := r.net.Nodes[49].Env
	s := kernel.Send[signal.StopReq](env, signal.MakeAddr(1, signal.BlockManager, 0), signal.MakeAddr(49, signal.BlockMgm, 0), signal.NumStopReq)
	s.Ref, s.Flags, s.Nodes = 1, signal.StopAll, [8]uint32{2}
	kernel.Send[signal.StartOrd](env, signal.MakeAddr(1, signal.BlockManager, 0), signal.MakeAddr(49, signal.BlockMgm, 0), signal.NumStartOrd)
	r.net.Run(ms)
	if len(r.toMembs) != 2 || r.toMembs[0].Num != signal.NumStopReq || r.toMembs[1].Num != signal.NumStartOrd || r.toMembs[0].From != signal.MakeAddr(49, signal.BlockMgm, 0) {
		t.Fatalf("%v", r.toMembs)
	}
}

func TestListsComeFromTheBlocksThemselves(t *testing.T) {
	r := newRig(t, Config{})
	x := r.join(49, signal.PeerMgm)
	for _, c := range []struct {
		kind  uint32
		block uint8
	}{{signal.ListTransactions, signal.BlockTC}, {signal.ListLocks, signal.BlockLDM}} {
		x.lists = nil
		q := kernel.Send[signal.ListReq](r.net.Nodes[49].Env, signal.MakeAddr(1, signal.BlockManager, 0), signal.MakeAddr(49, signal.BlockMgm, 0), signal.NumListReq)
		q.Ref, q.Kind, q.Most = 7, c.kind, 10
		r.net.Run(ms)
		if len(x.lists) != 2 || x.lists[0] != signal.MakeAddr(1, c.block, 0) || x.lists[1] != signal.MakeAddr(1, c.block, 1) {
			t.Fatalf("kind %d: answers of %v", c.kind, x.lists)
		}
	}
}

// How much a node holds shows how far it has come with copying: management hears of it while it grows, not of every page.
func TestManagementHearsHowMuchThereIs(t *testing.T) {
	r := newRig(t, Config{})
	m := r.join(49, signal.PeerMgm)
	r.net.Run(3 * second)
	n := len(m.states)
	r.used[0].DataPages += 10
	r.net.Run(3 * second)
	if len(m.states) != n {
		t.Fatal("told of a few pages")
	}
	r.used[1].DataPages += 2 * pagesOfNote
	r.net.Run(3 * second)
	if len(m.states) != n+1 || m.states[n].Pages != 2*15+10+2*pagesOfNote {
		t.Fatalf("%d more states, the last with %d pages", len(m.states)-n, m.states[len(m.states)-1].Pages)
	}
}

// Single user mode holds when nothing of others is left anywhere; a wish that another one overtakes is refused.
func TestSingleUserMode(t *testing.T) {
	r := newRig(t, Config{})
	x := r.join(49, signal.PeerMgm)
	ask := func(ref, node uint32) {
		q := kernel.Send[signal.SingleReq](r.net.Nodes[49].Env, signal.MakeAddr(1, signal.BlockManager, 0), signal.MakeAddr(49, signal.BlockMgm, 0), signal.NumSingleReq)
		q.Ref, q.Node = ref, node
		r.net.Run(ms)
	}
	view := func(node uint32) {
		o := kernel.Send[signal.SingleOrd](r.net.Nodes[1].Env, signal.MakeAddr(1, signal.BlockManager, 0), signal.MakeAddr(1, signal.BlockMembership, 0), signal.NumSingleOrd)
		o.Ref, o.Node = 0, node
		r.net.Run(ms)
	}
	state := func(s uint32) {
		rep := kernel.Send[signal.NodeStateRep](r.net.Nodes[1].Env, signal.MakeAddr(1, signal.BlockManager, 0), signal.MakeAddr(1, signal.BlockMembership, 0), signal.NumNodeStateRep)
		*rep = signal.NodeStateRep{Head: rep.Head, State: s}
		r.net.Run(ms)
	}
	answered := func(want ...signal.SingleConf) {
		t.Helper()
		if len(x.singles) != len(want) {
			t.Fatalf("%d answers", len(x.singles))
		}
		for i, w := range want {
			if x.singles[i].Ref != w.Ref || x.singles[i].Code != w.Code {
				t.Fatalf("answer %d: %+v", i, x.singles[i])
			}
		}
		x.singles = nil
	}
	ask(1, 51)
	answered(signal.SingleConf{Ref: 1, Code: codeNotYet})
	state(signal.StateStarted)
	ask(2, 51)
	answered()
	if got := r.toMembs[len(r.toMembs)-1]; got.Num != signal.NumSingleOrd {
		t.Fatalf("membership hears %s", signal.Format(&got))
	}
	r.holdSingle = true
	view(51)
	ask(3, 52)
	answered()
	r.holdSingle = false
	view(52)
	answered(signal.SingleConf{Ref: 2, Code: codeOther}, signal.SingleConf{Ref: 3})
	if r.single != 52 {
		t.Fatalf("blocks let %d in", r.single)
	}
	state(signal.StateStopping)
	ask(4, 0)
	answered(signal.SingleConf{Ref: 4, Code: codeStopping})
	state(signal.StateSingleUser)
	ask(5, 0)
	r.net.Kill(49)
	r.net.Run(ms)
	view(0)
	if len(r.b.single.askers) != 0 {
		t.Fatal("a management server that is gone is still waited for")
	}
}
