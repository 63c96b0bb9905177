package client

import (
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/signal"
)

// A row goes to the first of its fragment's chain that takes transactions, and so does a coordinator.
func TestTheFirstOfTheChainThatServes(t *testing.T) {
	g := newRig(t, even)
	r := g.keyAt(1)
	_, primary := g.tab.place(ptr(&r), 8)
	second := signal.MakeAddr(2, signal.BlockLDM, primary.Instance())
	read := func(want signal.Addr) {
		t.Helper()
		tx := g.begin()
		g.row.Read(tx, ptr(&r), signal.OpReadCommitted)
		tx.Commit()
		q := g.one(signal.NumReadReq)
		if q.To != want {
			t.Error(signal.Format(&q.Head))
		}
		g.readConf(q, 1, 2)
		g.over(tx, 0)
		tx.Release()
		tx = g.begin()
		g.row.Read(tx, ptr(&r), signal.OpReadShared)
		tx.Commit()
		q = g.one(signal.NumKeyReq)
		if q.To.Node() != want.Node() || q.To.Block() != signal.BlockTC {
			t.Error(signal.Format(&q.Head))
		}
		g.readConf(q, 1, 2)
		g.txConf(q.To, q.Tx, 1)
		g.over(tx, 0)
		tx.Release()
	}
	read(primary)
	g.node(1, func(n *Node) { n.Started = false }) // it stops
	read(second)
	g.node(1, func(n *Node) { n.Started = true })
	read(primary)
	g.remap(func(c []signal.Addr) { c[0], c[1] = c[1], c[0] })
	read(g.view.mapOf(g.tab).primary(g.tab.fragment(ptr(&r), 8)))
	g.nodeDown(2)
	read(primary)
	g.atRest()
}

// A transaction that has a coordinator goes on where that is, also when its node begins nothing new, and though no
// replica of a row is where new transactions may go.
func TestWhatIsUnderWayGoesOnAtANodeThatStops(t *testing.T) {
	g := newRig(t, even)
	r, two := g.keyAt(1), g.keyAt(2)
	tx := g.begin()
	g.row.Update(tx, ptr(&r))
	tx.Execute()
	tc := g.one(signal.NumKeyReq).To
	g.txConf(tc, tx.num, 0)
	g.over(tx, 0)
	g.node(1, func(n *Node) { n.Started = false })
	g.node(2, func(n *Node) { n.Started = false })
	op := g.row.Read(tx, ptr(&two), signal.OpReadShared)
	if !tx.Commit() || op.Err() != nil || op.node != 2 {
		t.Fatal(tx.Err(), op.Err(), op.node)
	}
	q := g.one(signal.NumKeyReq)
	if q.To != tc {
		t.Error(signal.Format(&q.Head))
	}
	g.readConf(q, 1, 2)
	g.txConf(tc, tx.num, 1)
	g.over(tx, 0)
	next := g.begin()
	if op := g.row.Update(next, ptr(&r)); op.Err() == nil || op.Err().Code != ndberror.ClusterNotReady {
		t.Error(op.Err())
	}
	g.atRest(tx, next)
}

// An ldm that is not the primary refuses a direct operation: until there is a newer map the table's operations go
// through coordinators, and the runtime is told once.
func TestAMapThatIsContradicted(t *testing.T) {
	g := newRig(t, even)
	r := g.keyAt(1)
	direct := func(num uint16) *signal.KeyReq {
		t.Helper()
		tx := g.begin()
		g.row.Read(tx, ptr(&r), signal.OpReadCommitted)
		tx.Commit()
		return g.one(num)
	}
	a, b := direct(signal.NumReadReq), direct(signal.NumReadReq)
	g.keyRef(a, a.To, ndberror.Moving)
	tx := g.done[0]
	if g.over(tx, ndberror.Moving); !tx.Err().Retry {
		t.Error(tx.Err())
	}
	tx.Release()
	g.keyRef(b, b.To, ndberror.Moving)
	g.done[0].Release()
	g.done = nil
	var told []*Map
	g.s.TakeDoubts(func(m *Map) { told = append(told, m) })
	if len(told) != 1 || told[0] != g.tab.first || g.s.Doubts() || g.s.StaleTable != nil {
		t.Error(told)
	}
	for num, op := range map[uint16]uint8{signal.NumKeyReq: signal.OpReadCommitted} {
		q := direct(num)
		if q.To.Block() != signal.BlockTC || q.Op != op {
			t.Error(signal.Format(&q.Head))
		}
		g.readConf(q, 1, 2)
		g.txConf(q.To, q.Tx, 1)
		g.done[0].Release()
		g.done = nil
	}
	g.node(2, func(n *Node) { n.State = signal.StateStarted }) // another view with the same map changes nothing
	q := direct(signal.NumKeyReq)
	g.readConf(q, 1, 2)
	g.txConf(q.To, q.Tx, 1)
	g.done[0].Release()
	g.done = nil
	late := g.begin() // sent by the old map, and refused when there is a newer one: that is not in doubt
	g.s.doubted = nil
	g.row.Read(late, ptr(&r), signal.OpReadCommitted)
	late.Commit()
	q = g.one(signal.NumReadReq)
	g.s.doubted = []*Map{g.tab.first}
	g.remap(func(c []signal.Addr) { c[0], c[1] = c[1], c[0] })
	if len(g.s.doubted) != 0 {
		t.Error("a map that is not used any more is in doubt")
	}
	g.keyRef(q, q.To, ndberror.Moving)
	g.over(late, ndberror.Moving)
	if len(g.s.doubted) != 0 {
		t.Error("the newer map is in doubt")
	}
	late.Release()
	q = direct(signal.NumReadReq)
	if q.To.Node() != 2 {
		t.Error(signal.Format(&q.Head))
	}
	g.readConf(q, 1, 2)
	g.atRest(g.done[0])
}

// info answers a question about the table: with the map that it was made with, or a changed one.
func (g *connRig) info(q *signal.Head, change func(*signal.TableInfoConf)) {
	r := (*signal.TableNameReq)(unsafe.Pointer(q))
	b := tableInfo(g.t, testTable(g.t, 2).Def, 2)
	c := (*signal.TableInfoConf)(unsafe.Pointer(&b[0]))
	c.Ref, c.From, c.To = r.Ref, q.To, signal.MakeAddr(self, signal.BlockClient, 0)
	if change != nil {
		change(c)
	}
	g.c.Deliver(&c.Head)
}

// lookUp makes the table known.
func (g *connRig) lookUp(change func(*signal.TableInfoConf)) *Table {
	g.t.Helper()
	var got *Table
	g.c.TableInfo("d/t", 1000, func(t *Table, e *ndberror.Error) { got = t })
	g.info(g.one(signal.NumTableInfoReq), change)
	if got == nil {
		g.t.Fatal("no table")
	}
	return got
}

// swapped puts the second replica of each fragment first.
func swapped(r *signal.TableInfoConf) {
	c := r.Chains()
	for i := 0; i < len(c); i += signal.MaxReplicas {
		c[i], c[i+1] = c[i+1], c[i]
	}
}

func TestAContradictedMapIsAskedForUntilItIsAnother(t *testing.T) {
	g := newConnRig(t)
	g.up(1)
	tab := g.lookUp(nil)
	m := g.c.View().mapOf(tab)
	if again := g.lookUp(nil); again.first != m {
		t.Error("the same map, twice")
	}
	g.c.Refresh(m)
	g.c.Refresh(m)
	q := g.one(signal.NumTableInfoReq)
	g.info(q, nil) // no news
	if len(g.sent()) != 0 || g.c.View().mapOf(tab) != m {
		t.Error("asked without a pause, or a new map that is the old one")
	}
	at, ok := g.c.Due()
	if !ok || at != leastPause {
		t.Error(at, ok)
	}
	g.env.SetNow(at - 1)
	g.c.Tick()
	g.env.SetNow(at)
	if len(g.sent()) != 0 {
		t.Error("too early")
	}
	g.c.Tick()
	g.info(g.one(signal.NumTableInfoReq), swapped)
	now := g.c.View().mapOf(tab)
	if now == m || now.primary(0).Node() != 2 || m.primary(0).Node() != 1 || tab.Primary(0).Node() != 1 {
		t.Error(now.chains, m.chains)
	}
	if p := g.c.View().Primary(tab, 0); p.Node() != 1 { // node 2 is not up
		t.Error(p)
	}
	g.c.Refresh(m)
	if _, ok := g.c.Due(); ok || len(g.sent()) != 0 {
		t.Error("asked for a map that is not the newest any more")
	}
	g.c.Refresh(now)
	if at, ok = g.c.Due(); !ok || at <= g.env.Now() || len(g.sent()) != 0 {
		t.Error("asked again at once", at, ok)
	}

	// Whoever is asked says the same again and again: in the end it is believed, as a new map.
	n := 0
	for g.c.View().mapOf(tab) == now {
		at, ok := g.c.Due()
		if !ok || n > 2*maxSame {
			t.Fatal("it is never asked again")
		}
		g.env.SetNow(at)
		g.c.Tick()
		g.info(g.one(signal.NumTableInfoReq), swapped)
		n++
	}
	if _, ok := g.c.Due(); ok || n != maxSame || g.env.Now() > int64(maxSame)*mostPause {
		t.Error(n, g.env.Now())
	}
	if !g.c.View().mapOf(tab).same(now) {
		t.Error("it says something else")
	}
}

func TestMapsAreAskedForWhenNodesComeBack(t *testing.T) {
	g := newConnRig(t)
	g.up(1)
	tab := g.lookUp(nil)
	g.link(signal.NumLinkUpRep, 2)
	g.one(signal.NumApiRegReq)
	g.state(2, func(r *signal.NodeStateRep) { r.State = signal.StateStarting })
	if len(g.sent()) != 0 {
		t.Error("it is not there yet")
	}
	g.state(2, func(r *signal.NodeStateRep) {})
	q := g.one(signal.NumTableInfoReq)
	g.link(signal.NumLinkDownRep, q.To.Node()) // who was asked is lost
	at, ok := g.c.Due()
	if !ok {
		t.Fatal("the question is forgotten")
	}
	g.env.SetNow(at)
	g.c.Tick()
	g.info(g.one(signal.NumTableInfoReq), nil)
	if _, ok := g.c.Due(); ok {
		t.Error("it is asked for once more")
	}
	// A new view of the cluster is a reason too, the same one is none.
	other := 3 - q.To.Node()
	for _, c := range []struct {
		view uint32
		want int
	}{{4, 0}, {4, 0}, {5, 1}, {5, 0}} {
		g.env.SetNow(g.env.Now() + mostPause)
		g.state(other, func(r *signal.NodeStateRep) {
			r.View = c.view
			r.Members.Add(other)
		})
		all := g.sent()
		if len(all) != c.want {
			t.Fatalf("view %d: %d questions", c.view, len(all))
		}
		if c.want == 1 {
			g.info(all[0], swapped)
		}
	}
	if g.c.View().mapOf(tab).primary(0).Node() != 2 {
		t.Error("the news got lost")
	}
	// The table is dropped: nobody asks any more, and what is known of it is forgotten.
	g.env.SetNow(g.env.Now() + mostPause)
	g.c.Refresh(g.c.View().mapOf(tab))
	r := (*signal.TableNameReq)(unsafe.Pointer(g.one(signal.NumTableInfoReq))).Ref
	tell(g, dictionary(other), signal.NumTableRef, nil, func(x *signal.TableRef) { x.Ref, x.Code = r, 723 })
	if _, ok := g.c.Due(); ok || g.c.View().mapOf(tab) != tab.first || g.c.fetching != 0 {
		t.Error("a table that is gone is asked for")
	}
}

// A table of the same name and another number is another table.
func TestATableThatWasMadeAnew(t *testing.T) {
	g := newConnRig(t)
	g.up(1)
	tab := g.lookUp(nil)
	g.c.Refresh(tab.first)
	q := g.one(signal.NumTableInfoReq)
	raw := *testTable(t, 2).Def
	raw.ID = 9
	b := tableInfo(t, &raw, 2)
	c := (*signal.TableInfoConf)(unsafe.Pointer(&b[0]))
	c.Ref, c.From, c.To = (*signal.TableNameReq)(unsafe.Pointer(q)).Ref, q.To, signal.MakeAddr(self, signal.BlockClient, 0)
	g.c.Deliver(&c.Head)
	if _, ok := g.c.Due(); ok || g.c.at(7) != nil || g.c.at(9) == nil {
		t.Error("the old one is still asked for")
	}
}

// A node that hangs closes no link. That the others go on without it shows in what they say.
func TestANodeThatIsPutOut(t *testing.T) {
	g := newConnRig(t)
	view := func(node uint8, number uint32, members ...uint8) {
		g.state(node, func(r *signal.NodeStateRep) {
			r.View = number
			for _, m := range members {
				r.Members.Add(m)
			}
		})
	}
	var out []uint8
	take := func() []uint8 {
		out = nil
		g.c.TakeOut(func(id uint8) { out = append(out, id) })
		return out
	}
	for n := uint8(1); n <= 3; n++ {
		g.up(n)
		view(n, 4, 1, 2, 3)
	}
	code := 0
	g.c.ListTables(1<<60, func(_ []TableEntry, e *ndberror.Error) { code = e.Code })
	asked := g.one(signal.NumTableListReq).To.Node()
	hears := asked%3 + 1
	if len(g.c.View().Serving()) != 3 || len(take()) != 0 {
		t.Fatal(g.c.View().Serving())
	}
	view(hears, 5, hears, hears%3+1)
	if n := g.c.View().Node(asked); !n.Up || n.Started || code != 0 || len(take()) != 0 {
		t.Errorf("%+v, %d", n, code)
	}
	at, ok := g.c.Due()
	if !ok || at != outGrace {
		t.Error(at, ok)
	}
	g.env.SetNow(at - 1)
	g.c.Tick()
	if n := g.c.View().Node(asked); !n.Up {
		t.Errorf("%+v", n)
	}
	g.env.SetNow(at)
	g.c.Tick()
	if n := g.c.View().Node(asked); n.Up || n.Started || n.DynamicID != uint32(asked) || code != ndberror.NodeFailed {
		t.Errorf("%+v, %d", n, code)
	}
	if x := take(); len(x) != 1 || x[0] != asked || len(take()) != 0 {
		t.Error(x)
	}
	g.link(signal.NumLinkDownRep, asked)
	g.link(signal.NumLinkUpRep, asked) // it wakes up, and does not know
	g.one(signal.NumApiRegReq)
	view(asked, 4, 1, 2, 3)
	if n := g.c.View().Node(asked); !n.Up || n.Started || len(take()) != 0 {
		t.Errorf("%+v", n)
	}
	g.link(signal.NumLinkDownRep, asked)
	if view(hears, 6, 1, 2, 3); !g.c.View().Node(asked).Coming {
		t.Error("nobody knows that it comes back")
	}
	g.link(signal.NumLinkUpRep, asked) // it was started anew, and is taken in
	g.one(signal.NumApiRegReq)
	g.state(asked, func(r *signal.NodeStateRep) { r.State = signal.StateStarting })
	view(asked, 7, 1, 2, 3)
	if n := g.c.View().Node(asked); !n.Started {
		t.Errorf("%+v", n)
	}
	if view(hears, 7, 1, 2, 3); len(g.c.View().Serving()) != 3 || len(take()) != 0 {
		t.Error(g.c.View().Serving())
	}
	// One that stops in order is out of the view a moment before it closes its links.
	g.state(asked, func(r *signal.NodeStateRep) { r.State = signal.StateStopping })
	view(hears, 8, hears, hears%3+1)
	if _, ok := g.c.Due(); ok || !g.c.View().Node(asked).Up {
		t.Error("it is not let go in peace")
	}
	g.link(signal.NumLinkDownRep, asked)
	if g.c.leaving != 0 || len(take()) != 0 {
		t.Error(g.c.leaving)
	}
}

// In single user mode the node is open for one client alone.
func TestSingleUserMode(t *testing.T) {
	g := newConnRig(t)
	g.up(1)
	for _, c := range []struct {
		state, single uint32
		open          bool
	}{{signal.StateSingleUser, self, true}, {signal.StateSingleUser, self + 1, false}, {signal.StateStarted, 0, true},
		{signal.StateStopping, 0, false}, {signal.StateRestarting, 0, false}} {
		g.state(1, func(r *signal.NodeStateRep) { r.State, r.Single = c.state, c.single })
		if n := g.c.View().Node(1); n.Started != c.open || !n.Up {
			t.Errorf("%+v: %+v", c, n)
		}
	}
}

// A node may come back with fewer ldms than the map knows of: nothing is sent to one that does not exist.
func TestANodeThatHasFewerLdmsThanTheMapSays(t *testing.T) {
	v := &View{}
	v.nodes[3] = Node{ID: 3, Up: true, Started: true, LDMs: 2, TCs: 1}
	for _, c := range []struct{ asked, want uint16 }{{0, 0}, {1, 1}, {2, 0}, {5, 1}} {
		if got := v.existing(signal.MakeAddr(3, signal.BlockLDM, c.asked)); got != signal.MakeAddr(3, signal.BlockLDM, c.want) {
			t.Errorf("ldm %d of two: %v", c.asked, got)
		}
	}
	if a := signal.MakeAddr(4, signal.BlockLDM, 7); v.existing(a) != a {
		t.Error("of a node that is not known nothing is known")
	}
}
