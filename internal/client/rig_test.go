package client

import (
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
)

// rig is a session with two data nodes played by the test: what it sends is collected, what it is to hear is said by
// the test. Nodes 1 and 2; sockets, ldms and coordinators as the layout says.
type rig struct {
	t    testing.TB
	env  *kernel.Env
	s    *Session
	view *View
	tab  *Table
	row  *Format // struct row
	wide *Format // more columns of it
	done []*Tx
	hook func(*Tx)
}

// row is what the table's rows look like in memory.
type row struct {
	a, b  uint32 // key; a is the distribution key
	value uint32
	other uint32
}

type layout struct{ sockets, ldms, tcs int }

var even = layout{2, 2, 2}

const self = 51

func testTable(t testing.TB, ldms int) *Table {
	def := &schema.Table{ID: 7, Version: 3, Database: "d", Name: "t", Fragments: 8, Columns: []schema.Column{
		{Name: "A", Type: schema.Unsigned, PrimaryKey: true, DistributionKey: true},
		{Name: "B", Type: schema.Unsigned, PrimaryKey: true},
		{Name: "V", Type: schema.Unsigned},
		{Name: "W", Type: schema.Unsigned},
	}}
	b := tableInfo(t, def, ldms)
	tab := newTable((*signal.TableInfoConf)(unsafe.Pointer(&b[0])))
	if tab == nil {
		t.Fatal("the table was refused")
	}
	return tab
}

// tableInfo makes a TableInfoConf: fragments go to nodes 1 and 2 in turn, and to their ldms in turn; the other node has
// the backup.
func tableInfo(t testing.TB, def *schema.Table, ldms int) []uint32 {
	raw, err := def.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	n := signal.TableOpenSize(uint32(len(raw)), schema.DistributionBuckets, def.Fragments)
	b := make([]uint32, n/4)
	r := (*signal.TableInfoConf)(unsafe.Pointer(&b[0]))
	r.Len, r.Num = uint16(n/4), signal.NumTableInfoConf
	r.Table, r.Version, r.Fragments, r.Buckets, r.DefLen = def.ID, def.Version, def.Fragments, schema.DistributionBuckets, uint32(len(raw))
	copy(r.Def(), raw)
	for i := range r.Map() {
		r.Map()[i] = uint16(uint32(i) % def.Fragments)
	}
	for i := range int(def.Fragments) {
		at := uint16(i / 2 % ldms)
		r.Chains()[i*signal.MaxReplicas] = signal.MakeAddr(uint8(1+i%2), signal.BlockLDM, at)
		r.Chains()[i*signal.MaxReplicas+1] = signal.MakeAddr(uint8(2-i%2), signal.BlockLDM, at)
	}
	return b
}

func newRig(t testing.TB, l layout, change ...func(*Config)) *rig {
	g := &rig{t: t, env: kernel.NewEnv(self, 0, 1, 64), tab: testTable(t, l.ldms)}
	cfg := Config{Instance: 9, MaxTransactions: 8, MaxOperations: 32, WaitTimeout: 1000}
	for _, f := range change {
		f(&cfg)
	}
	cfg.Done = func(tx *Tx) {
		if g.hook != nil {
			g.hook(tx)
			return
		}
		g.done = append(g.done, tx)
	}
	g.s = NewSession(g.env, cfg)
	v := &View{}
	for n := 1; n <= 2; n++ {
		for i := range l.sockets {
			g.env.Buf(kernel.Dest(n*10+i)).Init(4096, 1<<20)
		}
		g.env.Spread(uint8(n), kernel.Dest(n*10), l.sockets)
		v.nodes[n] = Node{ID: uint8(n), Up: true, Started: true, LDMs: uint32(l.ldms), TCs: uint32(l.tcs), Life: 1, DynamicID: uint32(n)}
	}
	v.seal()
	g.setView(v)
	g.row = mustFormat(t, g.tab, Binding{Column: 0, Off: 0, Size: 4}, Binding{Column: 1, Off: 4, Size: 4}, Binding{Column: 2, Off: 8, Size: 4},
		Binding{Column: 3, Off: 12, Size: 4})
	g.wide = mustFormat(t, g.tab, Binding{Column: 0, Off: 0, Size: 4}, Binding{Column: 1, Off: 4, Size: 4}, Binding{Column: 3, Off: 12, Size: 4})
	return g
}

func mustFormat(t testing.TB, tab *Table, b ...Binding) *Format {
	t.Helper()
	f, err := NewFormat(tab, b)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (g *rig) setView(v *View) {
	g.view = v
	g.s.SetView(v)
}

// nodeDown makes a node fail.
func (g *rig) nodeDown(n uint8) {
	for i := range 4 {
		if b := g.env.Buf(kernel.Dest(int(n)*10 + i)); b.Open() {
			b.Close()
		}
	}
	g.node(n, func(x *Node) { x.Up, x.Started = false, false })
}

// nodeUp brings a node back, with new links.
func (g *rig) nodeUp(n uint8, dynamicID uint32) {
	for i := range 2 {
		g.env.Buf(kernel.Dest(int(n)*10+i)).Init(4096, 1<<20)
	}
	g.node(n, func(x *Node) {
		x.Up, x.Started, x.DynamicID = true, true, dynamicID
		x.Life++
	})
}

// node changes what is known of a node.
func (g *rig) node(n uint8, change func(*Node)) {
	v := *g.view
	change(&v.nodes[n])
	v.seal()
	g.setView(&v)
}

// remap publishes a map in which every chain is changed.
func (g *rig) remap(change func(chain []signal.Addr)) *Map {
	m := *g.view.mapOf(g.tab)
	m.chains = append([]signal.Addr(nil), m.chains...)
	for i := 0; i < len(m.chains); i += signal.MaxReplicas {
		change(m.chains[i : i+signal.MaxReplicas])
	}
	v := *g.view
	v.maps = append(append([]*Map(nil), v.maps...), make([]*Map, 8)...)
	v.maps[g.tab.id] = &m
	g.setView(&v)
	return &m
}

// outcome answers a question.
func (g *rig) outcome(q *signal.OutcomeReq, known uint32) {
	say(g, q.To, signal.NumOutcomeConf, func(c *signal.OutcomeConf) {
		c.Tx, c.Seq, c.Known = q.Tx, q.Seq, known
		if known == signal.OutcomeCommitted {
			c.GCI = [2]uint32{5, 6}
		}
	})
}

// question takes the only signal that was sent, which is one.
func (g *rig) question() *signal.OutcomeReq {
	g.t.Helper()
	return (*signal.OutcomeReq)(unsafe.Pointer(g.one(signal.NumOutcomeReq)))
}

func (g *rig) begin(o ...TxOptions) *Tx {
	g.t.Helper()
	tx := g.s.Begin(append(o, TxOptions{})[0])
	if tx == nil {
		g.t.Fatal("no transaction record")
	}
	return tx
}

// sent takes everything that was sent since the last call; each signal is checked as a data node would.
func (g *rig) sent() (out []*signal.Head) {
	g.t.Helper()
	g.s.Settle()
	g.env.TakeDirty(func(_ kernel.Dest, b *kernel.Buf) {
		raw := b.Bytes()
		for len(raw) > 0 {
			n, fault := signal.Whole(raw)
			if fault != nil || n == 0 {
				g.t.Fatalf("a broken buffer: %v", fault)
			}
			c := make([]uint32, n/4+16) // tests look at every signal as if it were a KeyReq
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

// one takes the only signal that was sent.
func (g *rig) one(num uint16) *signal.KeyReq {
	g.t.Helper()
	all := g.sent()
	if len(all) != 1 || all[0].Num != num {
		for _, h := range all {
			g.t.Log(signal.Format(h))
		}
		g.t.Fatalf("%d signals where one %s is expected", len(all), signal.Name(num))
	}
	return (*signal.KeyReq)(unsafe.Pointer(all[0]))
}

func key(h *signal.Head) *signal.KeyReq { return (*signal.KeyReq)(unsafe.Pointer(h)) }
func txReq(r *signal.KeyReq) *signal.TxReq {
	return (*signal.TxReq)(unsafe.Pointer(r))
}

func say[T any](g *rig, from signal.Addr, num uint16, set func(*T)) {
	b := make([]uint32, (unsafe.Sizeof(*new(T))+3)/4)
	p := (*T)(unsafe.Pointer(&b[0]))
	set(p)
	h := (*signal.Head)(unsafe.Pointer(p))
	h.Len, h.Num, h.From, h.To = uint16(len(b)), num, from, g.s.Addr()
	g.s.Deliver(h)
}

func (g *rig) readConf(r *signal.KeyReq, words ...uint32) {
	b := make([]uint32, signal.ReadConfSize/4+uint32(len(words)))
	p := (*signal.ReadConf)(unsafe.Pointer(&b[0]))
	p.Len, p.Num, p.From, p.To = uint16(len(b)), signal.NumReadConf, signal.MakeAddr(1, signal.BlockLDM, 0), r.From
	p.Ref, p.Tx, p.DataLen = r.Ref, r.Tx, uint32(4*len(words))
	copy(b[signal.ReadConfSize/4:], words)
	g.s.Deliver(&p.Head)
}

func (g *rig) writeConf(r *signal.KeyReq) {
	say(g, r.To, signal.NumWriteConf, func(c *signal.WriteConf) { c.Ref, c.Tx, c.GCI = r.Ref, r.Tx, [2]uint32{5, 6} })
}

func (g *rig) keyRef(r *signal.KeyReq, from signal.Addr, code uint32) {
	say(g, from, signal.NumKeyRef, func(c *signal.KeyRef) { c.Ref, c.Tx, c.Code = r.Ref, r.Tx, code })
}

func (g *rig) txConf(tc signal.Addr, tx, committed uint32) {
	say(g, tc, signal.NumTxConf, func(c *signal.TxConf) {
		c.Tx, c.Committed, c.GCI = tx, committed, [2]uint32{5 * committed, 6 * committed}
	})
}

func (g *rig) txRef(tc signal.Addr, tx, code, ref uint32) {
	say(g, tc, signal.NumTxRef, func(c *signal.TxRef) { c.Tx, c.Code, c.Ref = tx, code, ref })
}

// over checks that exactly this transaction was reported, and takes note.
func (g *rig) over(tx *Tx, code int) {
	g.t.Helper()
	if len(g.done) != 1 || g.done[0] != tx {
		g.t.Fatalf("%d transactions are over", len(g.done))
	}
	g.done = nil
	got := 0
	if tx.Err() != nil {
		got = tx.Err().Code
	}
	if got != code {
		g.t.Fatalf("it ended with %d (%v), not %d", got, tx.Err(), code)
	}
}

func (g *rig) nothingOver() {
	g.t.Helper()
	if len(g.done) != 0 {
		g.t.Fatal("something is over")
	}
}

// atRest releases what is given and checks that every record is back.
func (g *rig) atRest(txs ...*Tx) {
	g.t.Helper()
	for _, tx := range txs {
		tx.Release()
	}
	ops := 0
	for o := g.s.freeOp; o != nil; o = o.next {
		ops++
	}
	if g.s.Open() != 0 || g.s.Busy() != 0 || ops != len(g.s.ops) {
		g.t.Fatalf("%d transactions are open, %d busy, %d of %d operation records free", g.s.Open(), g.s.Busy(), ops, len(g.s.ops))
	}
}

// place is where a key belongs by the map that came with the table.
func (t *Table) place(key unsafe.Pointer, n uint32) (frag uint16, primary signal.Addr) {
	frag = t.fragment(key, n)
	return frag, t.first.primary(frag)
}

func ptr(r *row) unsafe.Pointer { return unsafe.Pointer(r) }
