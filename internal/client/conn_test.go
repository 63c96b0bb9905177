package client

import (
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
)

// connRig is a connection's block whose data nodes the test plays.
type connRig struct {
	t   *testing.T
	env *kernel.Env
	c   *Conn
}

func newConnRig(t *testing.T) *connRig {
	g := &connRig{t: t, env: kernel.NewEnv(self, 0, 1, 64)}
	for n := uint8(1); n <= 3; n++ {
		g.env.Buf(kernel.Dest(n)).Init(4096, 1<<20)
		g.env.Via(n, kernel.Dest(n))
	}
	g.c = NewConn(g.env, 77)
	return g
}

func (g *connRig) sent() (out []*signal.Head) {
	g.t.Helper()
	g.env.TakeDirty(func(_ kernel.Dest, b *kernel.Buf) {
		for raw := b.Bytes(); len(raw) > 0; {
			n, fault := signal.Whole(raw)
			if fault != nil || n == 0 {
				g.t.Fatal(fault)
			}
			c := make([]uint32, n/4+16)
			copy(unsafe.Slice((*byte)(unsafe.Pointer(&c[0])), n), raw)
			h := (*signal.Head)(unsafe.Pointer(&c[0]))
			if fault := signal.Check(h, signal.PeerAPI, self, h.To.Node()); fault != nil {
				g.t.Fatal(fault)
			}
			out = append(out, h)
			raw = raw[n:]
		}
		b.Truncate(0)
	})
	return out
}

func (g *connRig) one(num uint16) *signal.Head {
	g.t.Helper()
	all := g.sent()
	if len(all) != 1 || all[0].Num != num {
		g.t.Fatalf("%d signals where a %s is expected", len(all), signal.Name(num))
	}
	return all[0]
}

// tell delivers a signal from a block of a node; tail follows the struct.
func tell[T any](g *connRig, from signal.Addr, num uint16, tail []byte, set func(*T)) {
	size := unsafe.Sizeof(*new(T))
	b := make([]uint32, (size+uintptr(signal.Pad(uint32(len(tail)))))/4+1)
	p := (*T)(unsafe.Pointer(&b[0]))
	set(p)
	copy(unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(p), size)), len(tail)), tail)
	h := (*signal.Head)(unsafe.Pointer(p))
	h.Len, h.Num, h.From, h.To = uint16(len(b)-1), num, from, signal.MakeAddr(self, signal.BlockClient, 0)
	g.c.Deliver(h)
}

func manager(n uint8) signal.Addr    { return signal.MakeAddr(n, signal.BlockManager, 0) }
func dictionary(n uint8) signal.Addr { return signal.MakeAddr(n, signal.BlockDictionary, 0) }

func (g *connRig) link(num uint16, node uint8) {
	tell(g, manager(self), num, nil, func(r *signal.LinkRep) { r.Node, r.LDMs, r.TCs = uint32(node), 2, 2 })
}

// up brings a node up and started.
func (g *connRig) up(node uint8) {
	g.t.Helper()
	g.link(signal.NumLinkUpRep, node)
	q := g.one(signal.NumApiRegReq)
	ref := (*signal.ApiRegReq)(unsafe.Pointer(q)).Ref
	tell(g, manager(node), signal.NumApiRegConf, nil, func(r *signal.ApiRegConf) {
		r.Ref, r.State, r.LDMs, r.TCs = ref, signal.StateStarted, 3, 1
	})
	g.state(node, func(r *signal.NodeStateRep) {})
}

// state makes a node tell how it is: started, unless change says otherwise.
func (g *connRig) state(node uint8, change func(*signal.NodeStateRep)) {
	tell(g, manager(node), signal.NumNodeStateRep, nil, func(r *signal.NodeStateRep) {
		r.State, r.NodeGroup, r.DynamicID = signal.StateStarted, 0, uint32(node)
		change(r)
	})
}

func TestNodesComeAndGo(t *testing.T) {
	g := newConnRig(t)
	old := g.c.View()
	g.link(signal.NumLinkUpRep, 2)
	q := g.one(signal.NumApiRegReq)
	if q.To != manager(2) || (*signal.ApiRegReq)(unsafe.Pointer(q)).Version != 77 {
		t.Error(signal.Format(q))
	}
	v := g.c.View()
	if n := v.Node(2); v == old || !n.Up || n.Started || len(v.Serving()) != 0 || n.Life != 1 {
		t.Errorf("%+v", n)
	}
	tell(g, manager(2), signal.NumApiRegConf, nil, func(r *signal.ApiRegConf) { r.Ref, r.State, r.LDMs, r.TCs = 1, signal.StateStarting, 3, 1 })
	if n := g.c.View().Node(2); n.Started || n.LDMs != 3 || n.TCs != 1 || v.Node(2).LDMs != 2 {
		t.Errorf("%+v, and before %+v", n, v.Node(2))
	}
	state := func(s uint32) {
		tell(g, manager(2), signal.NumNodeStateRep, nil, func(r *signal.NodeStateRep) { r.State, r.NodeGroup = s, 1 })
	}
	state(signal.StateStarted)
	if n := g.c.View().Node(2); !n.Started || n.Group != 1 || len(g.c.View().Serving()) != 1 {
		t.Errorf("%+v", n)
	}
	state(signal.StateStopping)
	if len(g.c.View().Serving()) != 0 {
		t.Error("a node that stops serves")
	}
	state(signal.StateSingleUser)
	if len(g.c.View().Serving()) != 1 {
		t.Error("a node in single user mode does not serve")
	}
	g.link(signal.NumLinkDownRep, 2)
	if n := g.c.View().Node(2); n.Up || n.Started {
		t.Errorf("%+v", n)
	}
	state(signal.StateStarted) // late
	if n := g.c.View().Node(2); n.Up || n.Started || g.c.Stale != 1 {
		t.Errorf("%+v", n)
	}
	g.up(2)
	if n := g.c.View().Node(2); n.Life != 2 || !n.Started {
		t.Errorf("%+v", n)
	}
	tell(g, manager(2), signal.NumApiRegConf, nil, func(r *signal.ApiRegConf) { r.Ref, r.State, r.LDMs, r.TCs = 1, signal.StateStarting, 3, 1 })
	tell(g, manager(2), signal.NumApiRegConf, nil, func(r *signal.ApiRegConf) { r.Ref, r.State = 2, signal.StateStarting })
	tell(g, manager(2), signal.NumReadConf, nil, func(r *signal.ReadConf) {})
	if !g.c.View().Node(2).Started || g.c.Malformed != 3 {
		t.Errorf("%d", g.c.Malformed)
	}
}

func TestTheNearestNodesAreAsked(t *testing.T) {
	g := newConnRig(t)
	for n := uint8(1); n <= 3; n++ {
		g.c.SetDistance(n, uint32(n/2)) // 1 is near, 2 and 3 are farther
		g.up(n)
	}
	ask := func() uint8 {
		g.c.ListTables(1000, func([]TableEntry, *ndberror.Error) {})
		return g.one(signal.NumTableListReq).To.Node()
	}
	if first, second := ask(), ask(); first != 1 || second != 1 {
		t.Error("a farther node was asked")
	}
	g.link(signal.NumLinkDownRep, 1)
	if a, b := ask(), ask(); a == b || a == 1 || b == 1 {
		t.Error("nodes equally far take turns: ", a, b)
	}
}

func TestTablesAreLookedUp(t *testing.T) {
	g := newConnRig(t)
	def := testTable(t, 2).Def
	var got *Table
	var code, calls int
	answer := func(tab *Table, e *ndberror.Error) {
		got, code = tab, 0
		if e != nil {
			code = e.Code
		}
		calls++
	}
	g.c.TableInfo("d/t", 1000, answer)
	if calls != 1 || code != ndberror.ClusterNotReady {
		t.Fatal(calls, code)
	}
	g.up(1)
	ask := func() *signal.TableNameReq {
		g.c.TableInfo("d/t", 1000, answer)
		q := (*signal.TableNameReq)(unsafe.Pointer(g.one(signal.NumTableInfoReq)))
		if string(q.Name()) != "d/t" || q.To != dictionary(1) {
			t.Fatal(signal.Format(&q.Head))
		}
		return q
	}
	info := func(ref uint32, change func(*signal.TableInfoConf)) {
		b := tableInfo(t, def, 2)
		r := (*signal.TableInfoConf)(unsafe.Pointer(&b[0]))
		r.Ref, r.From, r.To = ref, dictionary(1), signal.MakeAddr(self, signal.BlockClient, 0)
		if change != nil {
			change(r)
		}
		g.c.Deliver(&r.Head)
	}
	info(ask().Ref, nil)
	if calls != 2 || code != 0 || got.Fragments() != 8 || got.ID() != 7 || got.Version() != 3 || len(got.Chain(5)) != 2 || got.Primary(5).Node() != 2 {
		t.Fatal(calls, code, got)
	}
	q := ask()
	tell(g, dictionary(1), signal.NumTableRef, nil, func(r *signal.TableRef) { r.Ref, r.Code = q.Ref, 723 })
	if calls != 3 || code != 723 {
		t.Error(calls, code)
	}
	info(q.Ref, nil) // once more
	if calls != 3 || g.c.Stale != 1 {
		t.Error("an answer was taken twice")
	}
	q = ask()
	tell(g, dictionary(1), signal.NumTableRef, nil, func(r *signal.TableRef) { r.Ref, r.Code = q.Ref, 0 })
	if calls != 4 || code != ndberror.BadAnswer {
		t.Error(calls, code)
	}
	for name, change := range map[string]func(*signal.TableInfoConf){
		"no fragment":            func(r *signal.TableInfoConf) { r.Fragments = 0 },
		"a fragment that is not": func(r *signal.TableInfoConf) { r.Map()[100] = 8 },
		"another map":            func(r *signal.TableInfoConf) { r.Buckets = 3839 },
		"another table":          func(r *signal.TableInfoConf) { r.Table = 8 },
		"a large number":         func(r *signal.TableInfoConf) { r.Table = 1 << 16 },
		"no definition":          func(r *signal.TableInfoConf) { r.Def()[0]++ },
		"no primary":             func(r *signal.TableInfoConf) { r.Chains()[4] = 0 },
		"another block":          func(r *signal.TableInfoConf) { r.Chains()[5] = signal.MakeAddr(1, signal.BlockTC, 0) },
	} {
		calls = 0
		info(ask().Ref, change)
		if calls != 1 || code != ndberror.BadAnswer || got != nil {
			t.Error(name, calls, code)
		}
	}
	calls = 0
	q = ask()
	tell(g, dictionary(1), signal.NumTableDropConf, nil, func(r *signal.TableDone) { r.Ref = q.Ref }) // not what was asked
	tell(g, dictionary(2), signal.NumTableRef, nil, func(r *signal.TableRef) { r.Ref, r.Code = q.Ref, 723 })
	if calls != 0 {
		t.Error("an answer to something else was taken")
	}
	g.env.SetNow(999)
	g.c.Tick()
	if calls != 0 {
		t.Error("given up too early")
	}
	g.env.SetNow(1000)
	g.c.Tick()
	if calls != 1 || code != ndberror.NoAnswer {
		t.Error(calls, code)
	}
	calls = 0
	ask()
	g.link(signal.NumLinkDownRep, 1)
	if calls != 1 || code != ndberror.NodeFailed || g.c.Requests() != 0 {
		t.Error(calls, code, g.c.Requests())
	}
}

func TestTablesAreCreatedAndDropped(t *testing.T) {
	g := newConnRig(t)
	g.up(1)
	var codes []int
	done := func(e *ndberror.Error) {
		if e == nil {
			codes = append(codes, 0)
			return
		}
		codes = append(codes, e.Code)
	}
	def := *testTable(t, 2).Def
	g.c.CreateTable(&def, 1000, done)
	q := (*signal.TableCreateReq)(unsafe.Pointer(g.one(signal.NumTableCreateReq)))
	if back, err := schema.DecodeTable(q.Def()); err != nil || back.Name != "t" {
		t.Fatal(err)
	}
	tell(g, dictionary(1), signal.NumTableCreateConf, nil, func(r *signal.TableDone) { r.Ref = q.Ref })
	g.c.DropTable("d/t", 1000, done)
	d := (*signal.TableNameReq)(unsafe.Pointer(g.one(signal.NumTableDropReq)))
	tell(g, dictionary(1), signal.NumTableCreateConf, nil, func(r *signal.TableDone) { r.Ref = d.Ref }) // not what was asked
	tell(g, dictionary(1), signal.NumTableDropConf, nil, func(r *signal.TableDone) { r.Ref = d.Ref })
	bad := def
	bad.Name = ""
	g.c.CreateTable(&bad, 1000, done)
	g.c.CreateTable(&def, 1000, done)
	g.link(signal.NumLinkDownRep, 1) // nobody knows whether it is there now
	want := []int{0, 0, 705, ndberror.AnswerLost}
	if len(codes) != len(want) {
		t.Fatal(codes)
	}
	for i := range want {
		if codes[i] != want[i] {
			t.Error(codes)
		}
	}
}

func TestListsComeInPieces(t *testing.T) {
	g := newConnRig(t)
	g.up(1)
	var got []TableEntry
	calls, code := 0, 0
	list := func() uint32 {
		calls, code = 0, 0
		g.c.ListTables(1000, func(all []TableEntry, e *ndberror.Error) {
			got = all
			if calls++; e != nil {
				code = e.Code
			}
		})
		return (*signal.TableListReq)(unsafe.Pointer(g.one(signal.NumTableListReq))).Ref
	}
	entry := func(id uint32, name string) []byte {
		e := [4]uint32{id, 1, TableLogged, uint32(len(name))}
		b := append(append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&e)), 16)...), name...)
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
		return b
	}
	say := func(ref, count, more uint32, body []byte) {
		tell(g, dictionary(1), signal.NumTableListConf, body, func(r *signal.TableListConf) {
			r.Ref, r.Count, r.More, r.BodyLen = ref, count, more, uint32(len(body))
		})
	}
	ref := list()
	say(ref, 2, 1, append(entry(3, "d/one"), entry(9, "d/two")...))
	next := (*signal.TableListReq)(unsafe.Pointer(g.one(signal.NumTableListReq)))
	if next.After != 10 || next.Ref != ref || calls != 0 {
		t.Fatal(next.After, calls)
	}
	say(ref, 1, 0, entry(12, "d/three"))
	if calls != 1 || code != 0 || len(got) != 3 || got[1].Name != "d/two" || got[2].ID != 12 || got[0].Flags != TableLogged {
		t.Fatal(calls, code, got)
	}
	for name, body := range map[string][]byte{"short": entry(1, "x")[:16], "empty": nil, "long": append(entry(1, "x")[:12], 255, 255, 0, 0, 1, 2, 3, 4)} {
		say(list(), 1, 0, body)
		if calls != 1 || code != ndberror.BadAnswer {
			t.Error(name, calls, code)
		}
	}
	say(list(), 0, 1, nil) // more, but nothing: it would never end
	if calls != 1 || code != 0 {
		t.Error(calls, code)
	}
	list()
	g.link(signal.NumLinkDownRep, 1)
	if calls != 1 || code != ndberror.NodeFailed {
		t.Error(calls, code)
	}
}

func TestRequestsAboutTablesAreBounded(t *testing.T) {
	g := newConnRig(t)
	g.up(1)
	refused := 0
	for range maxRequests + 5 {
		g.c.ListTables(1000, func(_ []TableEntry, e *ndberror.Error) {
			if e != nil && e.Code == ndberror.TooManyOperations {
				refused++
			}
		})
	}
	if refused != 5 || g.c.Requests() != maxRequests {
		t.Error(refused, g.c.Requests())
	}
	g.sent()
}
