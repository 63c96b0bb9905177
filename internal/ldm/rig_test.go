package ldm_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/ldm"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
	"github.com/cohortdb/cohort/internal/view"
)

const (
	clientNode = 51
	mgmNode    = 61
	tableID    = 3
)

// site is a data node: one thread with an ldm. Everything else there is the test's.
type site struct {
	id    uint8
	env   *kernel.Env
	ldm   *ldm.Block
	dead  bool
	pages int // of data memory
}

// world is a few ldms, joined by a queue for each ordered pair of nodes, and a test that plays everybody else. Signals
// within a node go by way of a queue too.
type world struct {
	t      testing.TB
	rng    *rand.Rand
	sites  []*site // by number; 0 unused
	client *kernel.Env
	queues map[[2]uint8][][]byte
	pairs  [][2]uint8
	held   map[[2]uint8]bool // pairs that are not served
	layout *schema.Layout
	def    []byte
	homes  [][]signal.Addr
	view   view.View // newest committed
	joined uint32    // nodes that have come since the start
	gci    signal.GCI

	operations int
	inOrder    bool                             // serve the queues in the order of their first use, not at random
	heard      func(s *site, h *signal.Head)    // what an ldm says to a block of its node or of another that the test plays
	answer     func(h *signal.Head)             // what clients and management hear
	seen       func(from uint8, h *signal.Head) // everything between nodes
}

func newWorld(t testing.TB, seed uint64, nodes, replicas, fragments, operations int, pages func(node uint8) int, columns ...schema.Column) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 7)), queues: map[[2]uint8][][]byte{}, held: map[[2]uint8]bool{}, sites: make([]*site, nodes+1), operations: operations}
	w.client = kernel.NewEnv(clientNode, 0, 1, 4096)
	w.define(columns, nodes, replicas, fragments)
	var ms []signal.Member
	for n := 1; n <= nodes; n++ {
		w.sites[n] = w.newSite(uint8(n), nodes, pages(uint8(n)))
		w.client.Via(uint8(n), kernel.Dest(n))
		w.client.Buf(kernel.Dest(n)).Init(4096, 1<<24)
		ms = append(ms, signal.Member{Node: uint32(n), DynamicID: uint32(n), Group: uint32((n - 1) / replicas), LDMs: 1, TCs: 1, State: signal.MemberLeading})
	}
	w.view.Take(1, 1, ms)
	for n := 1; n <= nodes; n++ {
		w.tellView(uint8(n), signal.NumViewCommitReq, &w.view, 1)
		w.createFragments(uint8(n))
	}
	w.drain()
	w.epoch()
	w.settle()
	return w
}

func (w *world) newSite(n uint8, nodes, pages int) *site {
	e := kernel.NewEnv(n, 0, uint64(n), 4096)
	for _, b := range []uint8{signal.BlockLDM, signal.BlockTC, signal.BlockDictionary, signal.BlockDistribution, signal.BlockMembership, signal.BlockManager} {
		e.Place(b, 0, 0)
	}
	for _, m := range append(w.numbers(nodes), clientNode, mgmNode) {
		if m != n {
			e.Via(m, kernel.Dest(m))
			e.Buf(kernel.Dest(m)).Init(4096, 1<<24)
		}
	}
	r, src := store.NewLocalSource(uint64(pages)*store.PageSize, store.PageSize, true)
	cr, csrc := store.NewLocalSource(1<<20, 256<<10, true)
	if w.sites[1] != nil {
		e.SetNow(w.sites[1].env.Now())
	}
	return &site{id: n, env: e, pages: pages, ldm: ldm.New(e, ldm.Config{Arena: store.NewArena(r, src), Copies: store.NewCopyPool(store.NewArena(cr, csrc)),
		MaxOperations: w.operations, MaxTables: 8, Sessions: 8, LockTimeout: 1e9})}
}

func (w *world) numbers(nodes int) (ns []uint8) {
	for n := 1; n <= nodes; n++ {
		ns = append(ns, uint8(n))
	}
	return ns
}

func (w *world) define(columns []schema.Column, nodes, replicas, fragments int) {
	def := &schema.Table{ID: tableID, Version: 1, Database: "d", Name: "t", Columns: columns, Fragments: uint32(fragments)}
	l, err := schema.Compile(def)
	if err != nil {
		w.t.Fatal(err)
	}
	w.layout = l
	if w.def, err = def.AppendBinary(nil); err != nil {
		w.t.Fatal(err)
	}
	groups := nodes / replicas
	for f := range fragments {
		var home []signal.Addr
		for r := range replicas {
			home = append(home, at(uint8(f%groups*replicas+(f/groups+r)%replicas+1), signal.BlockLDM))
		}
		w.homes = append(w.homes, home)
	}
}

func at(node, block uint8) signal.Addr { return signal.MakeAddr(node, block, 0) }

func (w *world) tellView(n uint8, num uint16, v *view.View, attempt uint32) {
	r := (*signal.ViewReq)(w.sites[n].env.Put(at(n, signal.BlockLDM), at(n, signal.BlockMembership), num, signal.ViewReqSize(len(v.Members))))
	r.View, r.Attempt, r.President, r.GCI, r.Count = v.Number, attempt, uint32(v.President), w.gci.Words(), uint32(len(v.Members))
	copy(r.Members(), v.Members)
}

// takeoverOver tells all ldms that nothing of lost members is left anywhere.
func (w *world) takeoverOver(v *view.View) {
	for _, s := range w.alive() {
		if v.Has(s.id) {
			kernel.Send[signal.TakeoverRep](s.env, at(s.id, signal.BlockLDM), at(s.id, signal.BlockDistribution), signal.NumTakeoverRep).View = v.Number
		}
	}
}

func (w *world) createFragments(n uint8) {
	for f, home := range w.homes {
		for _, p := range home {
			if p.Node() == n {
				w.createFragment(n, uint32(f))
			}
		}
	}
}

func (w *world) createFragment(n uint8, f uint32) {
	size := uint32(unsafe.Sizeof(signal.FragCreateReq{}))
	r := (*signal.FragCreateReq)(w.sites[n].env.Put(at(n, signal.BlockLDM), at(n, signal.BlockDictionary), signal.NumFragCreateReq, size+signal.Pad(uint32(len(w.def)))))
	r.Ref, r.Table, r.Version, r.Frag, r.Replicas, r.DefLen = f, tableID, 1, f, uint32(len(w.homes[f])), uint32(len(w.def))
	r.Chain = [signal.MaxReplicas]signal.Addr{}
	copy(r.Chain[:], w.homes[f])
	kernel.PutBytes(unsafe.Add(unsafe.Pointer(r), size), w.def)
}

// epoch changes the epoch at all ldms that live, at once.
func (w *world) epoch() {
	w.gci++
	for _, num := range []uint16{signal.NumEpochPrepareReq, signal.NumEpochCommitReq} {
		for _, s := range w.alive() {
			kernel.Send[signal.EpochReq](s.env, at(s.id, signal.BlockLDM), at(s.id, signal.BlockDistribution), num).GCI = w.gci.Words()
		}
	}
}

func (w *world) alive() (ss []*site) {
	for _, s := range w.sites[1:] {
		if !s.dead {
			ss = append(ss, s)
		}
	}
	return ss
}

// drain moves what blocks and the test have sent into the queues.
func (w *world) drain() {
	for _, s := range w.alive() {
		for s.env.Jobs() {
			s.env.RunJobs(func(p unsafe.Pointer) { w.put(s.id, (*signal.Head)(p)) }, 1)
		}
		s.env.TakeDirty(func(_ kernel.Dest, b *kernel.Buf) { w.putAll(s.id, b) })
	}
	w.client.TakeDirty(func(_ kernel.Dest, b *kernel.Buf) { w.putAll(clientNode, b) })
}

func (w *world) putAll(from uint8, b *kernel.Buf) {
	for in := b.Bytes(); len(in) > 0; {
		h := (*signal.Head)(unsafe.Pointer(&in[0]))
		w.put(from, h)
		in = in[h.Bytes():]
	}
	b.Consume(b.Len())
}

func (w *world) put(from uint8, h *signal.Head) {
	kind, fault := signal.PeerData, (*signal.Fault)(nil)
	if from == clientNode {
		kind = signal.PeerAPI
	}
	to := h.To.Node()
	switch {
	case to == from:
		fault = signal.CheckLayout(h)
	default:
		fault = signal.Check(h, kind, from, to)
	}
	if fault != nil {
		w.t.Fatal(fault)
	}
	k := [2]uint8{from, to}
	if _, known := w.queues[k]; !known {
		w.pairs = append(w.pairs, k)
	}
	w.queues[k] = append(w.queues[k], slices.Grow(slices.Clone(unsafe.Slice((*byte)(unsafe.Pointer(h)), h.Bytes())), 4))
}

// step delivers one signal; false when none can be.
func (w *world) step() bool {
	w.drain()
	var can [][2]uint8
	for _, k := range w.pairs {
		if len(w.queues[k]) > 0 && !w.held[k] {
			can = append(can, k)
		}
	}
	if len(can) == 0 {
		return false
	}
	k := can[0]
	if !w.inOrder {
		k = can[w.rng.IntN(len(can))]
	}
	b := w.queues[k][0]
	w.queues[k] = w.queues[k][1:]
	w.deliver(k[0], k[1], (*signal.Head)(unsafe.Pointer(&b[0])))
	for i := range b {
		b[i] = 0xDB
	}
	return true
}

func (w *world) deliver(from, to uint8, h *signal.Head) {
	if w.seen != nil && from != to {
		w.seen(from, h)
	}
	if to == clientNode || to == mgmNode {
		if w.answer != nil {
			w.answer(h)
		}
		return
	}
	s := w.sites[to]
	switch {
	case s.dead:
	case h.To.Block() == signal.BlockLDM:
		s.ldm.Deliver(h)
		s.ldm.Invariants()
	case w.heard != nil:
		w.heard(s, h)
	}
}

// settle delivers what can be, without letting time pass.
func (w *world) settle() {
	for i := 0; w.step(); i++ {
		if i > 2_000_000 {
			w.t.Fatal("it does not come to rest")
		}
	}
}

// pass lets time pass.
func (w *world) pass(ns int64) {
	for _, s := range w.alive() {
		s.env.SetNow(s.env.Now() + ns)
		s.env.FireTimers()
	}
}

// kill ends a node: what it has sent may arrive, or not.
func (w *world) kill(n uint8) {
	w.drain()
	w.sites[n].dead = true
	for _, k := range w.pairs {
		if k[1] == n {
			w.queues[k] = nil
		}
	}
}

// cut loses what a dead node has sent but for the first few signals.
func (w *world) cut(n uint8, keep func(queued int) int) {
	for _, k := range w.pairs {
		if k[0] == n {
			q := w.queues[k]
			w.queues[k] = q[:keep(len(q))]
		}
	}
}

// without is the view after v that lacks the dead nodes.
func (w *world) without(v *view.View) view.View {
	var ms []signal.Member
	for _, m := range v.Members {
		if !w.sites[m.Node].dead {
			ms = append(ms, m)
		}
	}
	var next view.View
	next.Take(v.Number+1, ms[0].Node, ms)
	return next
}

// with is the view after v in which a node has another state, or has come.
func (w *world) with(v *view.View, node uint8, state uint32) view.View {
	ms := slices.Clone(v.Members)
	for i := range ms {
		if ms[i].Node == uint32(node) {
			ms[i].State = state
			var next view.View
			next.Take(v.Number+1, uint32(v.President), ms)
			return next
		}
	}
	w.joined++
	ms = append(ms, signal.Member{Node: uint32(node), DynamicID: 100 + w.joined, Group: w.groupOf(node), LDMs: 1, TCs: 1, State: state})
	var next view.View
	next.Take(v.Number+1, uint32(v.President), ms)
	return next
}

func (w *world) groupOf(node uint8) uint32 { return uint32(int(node)-1) / uint32(len(w.homes[0])) }

// rows is what a replica holds, a line for each row; nil if the fragment is not there.
func (w *world) rows(n uint8, f uint32) []string {
	fr := w.sites[n].ldm.Fragment(tableID, f)
	if fr == nil {
		return nil
	}
	all := []string{}
	for id := store.NoRow; ; {
		r, next, ok := fr.NextRow(id)
		if !ok {
			return all
		}
		id = next
		k, kn := fr.Key(r)
		v, vn := fr.Var(r)
		fixed := unsafe.Slice((*byte)(fr.Fixed(r)), w.layout.FixedSize)
		if r.Lock != 0 || !fr.CheckSum(r) {
			w.t.Fatalf("fragment %d at node %d: row %d has lock %x at rest, sum right: %v", f, n, id, r.Lock, fr.CheckSum(r))
		}
		all = append(all, fmt.Sprint(id, r.GCI(), unsafe.Slice((*byte)(k), kn), fixed, unsafe.Slice((*byte)(v), vn)))
	}
}

// compare fails unless all replicas of members that have their data are equal; it returns the first column by key.
func (w *world) compare() map[uint32]uint32 {
	rows := map[uint32]uint32{}
	for f, home := range w.homes {
		first, from := []string(nil), uint8(0)
		for _, p := range home {
			if !w.view.Serving(p.Node()) {
				continue
			}
			all := w.rows(p.Node(), uint32(f))
			if from != 0 && !slices.Equal(first, all) {
				w.t.Fatalf("fragment %d: nodes %d and %d differ\n%v\n%v", f, from, p.Node(), first, all)
			}
			first, from = all, p.Node()
			fr := w.sites[p.Node()].ldm.Fragment(tableID, uint32(f))
			for id := store.NoRow; ; {
				r, next, ok := fr.NextRow(id)
				if !ok {
					break
				}
				id = next
				k, _ := fr.Key(r)
				rows[*(*uint32)(k)] = binary.LittleEndian.Uint32(unsafe.Slice((*byte)(fr.Fixed(r)), w.layout.FixedSize)[w.layout.NullWords*4:])
			}
		}
	}
	return rows
}

func (w *world) atRest() {
	for _, s := range w.alive() {
		if s.ldm.Operations() != 0 || s.ldm.Copies() != 0 {
			w.t.Fatalf("node %d at rest: %d operations, %d bytes of copies", s.id, s.ldm.Operations(), s.ldm.Copies())
		}
	}
}

func (w *world) frag(key uint32) uint32 { return key % uint32(len(w.homes)) }

func (w *world) primary(key uint32) signal.Addr { return w.view.Primary(w.homes[w.frag(key)]) }

// oneShot sends a write or committed read that is a transaction by itself.
func (w *world) oneShot(to signal.Addr, session uint16, tx, seq uint32, op, flags uint8, key uint32, data []byte) {
	num := uint16(signal.NumWriteReq)
	if signal.IsRead(op) {
		num = signal.NumReadReq
	}
	n := uint32(len(data))
	r := (*signal.KeyReq)(w.client.Put(to, signal.MakeAddr(clientNode, signal.BlockClient, session), num, signal.KeyReqSize+4+signal.Pad(n)))
	r.Ref, r.Tx, r.Seq, r.Ack, r.Table, r.Version, r.Frag, r.Op, r.Flags = 0, tx, seq, 0, tableID, 1, uint16(w.frag(key)), op, flags
	r.KeyLen, r.DataLen = 4, uint16(n)
	*(*uint32)(r.Key()) = key
	kernel.PutBytes(r.Data(), data)
}

// prepare sends an operation of a coordinator's transaction.
func (w *world) prepare(tc uint8, to signal.Addr, o *tcOp, data []byte) {
	n := uint32(len(data))
	r := (*signal.PrepareReq)(w.sites[tc].env.Put(to, at(tc, signal.BlockTC), signal.NumPrepareReq, signal.PrepareReqSize+4+signal.Pad(n)))
	*r = signal.PrepareReq{Head: r.Head, OpRef: o.ref, TcRef: o.ref, Tc: at(tc, signal.BlockTC), Client: o.client, Tx: o.tx, Seq: o.seq,
		Table: tableID, Version: 1, Frag: uint16(w.frag(o.key)), Op: o.op, Flags: o.flags, RowID: signal.NoRef, First: signal.NoRef, KeyLen: 4, DataLen: uint16(n)}
	*(*uint32)(r.Key()) = o.key
	kernel.PutBytes(r.Data(), data)
}

// tcOp is an operation as its coordinator knows it.
type tcOp struct {
	tc     uint8
	client signal.Addr
	tx     uint32
	ref    uint32 // record
	seq    uint32
	key    uint32
	op     uint8
	flags  uint8
	to     signal.Addr // primary
	first  uint32
	last   signal.Addr // tail
	tail   uint32
	// records are those that ldms have reported, by node.
	records map[uint8]uint32
}

// putStep sends a step of commit, complete or abort.
func (w *world) putStep(from uint8, num uint16, to signal.Addr, opRef uint32, o *tcOp, gci signal.GCI, seq, direct uint32) {
	s := kernel.Send[signal.Step](w.sites[from].env, to, at(from, signal.BlockTC), num)
	*s = signal.Step{Head: s.Head, OpRef: opRef, OpSeq: o.seq, TcRef: o.ref, Tc: at(o.tc, signal.BlockTC), GCI: gci.Words(), Seq: seq, RowID: signal.NoRef,
		Direct: direct, Table: tableID, Frag: uint16(w.frag(o.key))}
}

var oneWord = []schema.Column{{Name: "K", Type: schema.Unsigned, PrimaryKey: true}, {Name: "V", Type: schema.Unsigned}}

func word(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }
