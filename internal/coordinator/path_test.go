package coordinator_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/coordinator"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/ldm"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
	"github.com/cohortdb/cohort/internal/view"
)

// world is a few data nodes of one thread each and a client, joined by FIFO queues per pair of nodes that are
// served in random order.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	nodes   []*node // by number; 0 unused
	client  *kernel.Env
	queues  map[[2]uint8][][]byte
	pairs   [][2]uint8
	answers [][]byte
	gci     signal.GCI
	want    [256]int // epoch answers awaited, by node
	phase   int      // 0 idle, 1 preparing, 2 committing
	pending signal.GCI
	layout  *schema.Layout
	frags   int
	chains  [][]signal.Addr

	inOrder   bool               // serve the queues in the order of their first use, not at random
	holdEpoch bool               // stop an epoch change between its rounds
	held      map[[2]uint8]bool  // serve the queues of these pairs of nodes not at all
	trace     func(*signal.Head) // sees signals between nodes, and answers to the dictionary
	local     bool               // trace sees signals within a node too

	view     view.View
	next     view.View // being changed to
	attempt  uint32
	replicas int
	viewWant [256]int // by node: its blocks that have not answered the round of the change of the view
	round    uint16   // … NumViewPrepareConf or NumViewCommitConf, 0 = no change is under way
}

type node struct {
	env  *kernel.Env
	tc   *coordinator.Block
	ldm  *ldm.Block
	src  *store.LocalSource
	dead bool
}

const clientNode = 51

var distribution = func(n uint8) signal.Addr { return signal.MakeAddr(n, signal.BlockDistribution, 0) }

func newWorld(t *testing.T, seed uint64, nodes, replicas int, cfg func(*coordinator.Config, *ldm.Config), columns ...schema.Column) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), queues: map[[2]uint8][][]byte{}, held: map[[2]uint8]bool{}, nodes: make([]*node, nodes+1),
		replicas: replicas, attempt: 1}
	for n := 1; n <= nodes; n++ {
		e := kernel.NewEnv(uint8(n), 0, seed+uint64(n), 4096)
		for _, b := range []uint8{signal.BlockTC, signal.BlockLDM, signal.BlockDictionary, signal.BlockDistribution, signal.BlockMembership, signal.BlockManager} {
			e.Place(b, 0, 0)
		}
		for m := 1; m <= nodes; m++ {
			if m != n {
				e.Via(uint8(m), kernel.Dest(m))
				e.Buf(kernel.Dest(m)).Init(4096, 1<<24)
			}
		}
		e.Via(clientNode, clientNode)
		e.Buf(clientNode).Init(4096, 1<<24)
		r, src := store.NewLocalSource(4<<20, 256<<10, true)
		cr, csrc := store.NewLocalSource(1<<20, 256<<10, true)
		tc := coordinator.Config{MaxTransactions: 64, MaxOperations: 256, MaxTables: 8, Sessions: 8}
		lc := ldm.Config{Arena: store.NewArena(r, src), Copies: store.NewCopyPool(store.NewArena(cr, csrc)), MaxOperations: 512,
			MaxTables: 8, Sessions: 8, LockTimeout: 1e9}
		if cfg != nil {
			cfg(&tc, &lc)
		}
		w.nodes[n] = &node{env: e, tc: coordinator.New(e, tc), ldm: ldm.New(e, lc), src: src}
	}
	w.client = kernel.NewEnv(clientNode, 0, 1, 4096)
	for n := 1; n <= nodes; n++ {
		w.client.Via(uint8(n), kernel.Dest(n))
		w.client.Buf(kernel.Dest(n)).Init(4096, 1<<24)
	}
	w.view.Take(1, 1, members(nodes, replicas, 1, 1))
	w.createTable(columns, nodes, replicas)
	w.epoch()
	for w.step() {
	}
	return w
}

// members are nodes 1, 2, …, all leading.
func members(nodes, replicas, tcs, ldms int) (ms []signal.Member) {
	for i := range nodes {
		ms = append(ms, signal.Member{Node: uint32(i + 1), DynamicID: uint32(i + 1), Group: uint32(i / replicas), LDMs: uint32(ldms), TCs: uint32(tcs),
			State: signal.MemberLeading})
	}
	return ms
}

// putView sends a round of a change of the view to blocks of one node.
func putView(e *kernel.Env, to []signal.Addr, num uint16, v *view.View, attempt uint32) {
	for _, a := range to {
		r := (*signal.ViewReq)(e.Put(a, signal.MakeAddr(a.Node(), signal.BlockMembership, 0), num, signal.ViewReqSize(len(v.Members))))
		*r = signal.ViewReq{Head: r.Head, View: v.Number, Attempt: attempt, President: uint32(v.President), GCI: [2]uint32{0, 1}, Count: uint32(len(v.Members))}
		copy(r.Members(), v.Members)
	}
}

func (w *world) createTable(columns []schema.Column, nodes, replicas int) {
	def := &schema.Table{ID: 3, Version: 1, Database: "d", Name: "t", Columns: columns, Fragments: uint32(nodes)}
	l, err := schema.Compile(def)
	if err != nil {
		w.t.Fatal(err)
	}
	w.layout, w.frags = l, nodes
	b, err := def.AppendBinary(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	groups := nodes / replicas
	for f := range nodes {
		var c []signal.Addr
		for r := range replicas {
			c = append(c, signal.MakeAddr(uint8(f%groups*replicas+(f/groups+r)%replicas+1), signal.BlockLDM, 0))
		}
		w.chains = append(w.chains, c)
	}
	for n := 1; n <= nodes; n++ {
		e := w.nodes[n].env
		dict := signal.MakeAddr(uint8(n), signal.BlockDictionary, 0)
		putView(e, w.blocks(uint8(n)), signal.NumViewCommitReq, &w.view, w.attempt)
		for f, c := range w.chains {
			for _, a := range c {
				if a.Node() != uint8(n) {
					continue
				}
				r := (*signal.FragCreateReq)(e.Put(a, dict, signal.NumFragCreateReq, uint32(unsafe.Sizeof(signal.FragCreateReq{}))+signal.Pad(uint32(len(b)))))
				r.Ref, r.Table, r.Version, r.Frag, r.Replicas, r.DefLen = 0, 3, 1, uint32(f), uint32(replicas), uint32(len(b))
				r.Chain = [signal.MaxReplicas]signal.Addr{}
				copy(r.Chain[:], c)
				copy(r.Def(), b)
			}
		}
		r := (*signal.TableOpenReq)(e.Put(signal.MakeAddr(uint8(n), signal.BlockTC, 0), dict, signal.NumTableOpenReq,
			signal.TableOpenSize(uint32(len(b)), 0, uint32(nodes))))
		r.Ref, r.Table, r.Version, r.Fragments, r.Buckets, r.DefLen = 0, 3, 1, uint32(nodes), 0, uint32(len(b))
		for f, c := range w.chains {
			copy(r.Chains()[f*signal.MaxReplicas:], c)
		}
	}
}

// epoch begins an epoch change.
func (w *world) epoch() {
	if w.phase != 0 {
		return
	}
	w.pending = w.gci + 1
	w.phase = 1
	w.epochSend(signal.NumEpochPrepareReq)
}

func (w *world) commitEpoch() {
	w.phase = 2
	w.gci = w.pending
	w.epochSend(signal.NumEpochCommitReq)
}

func (w *world) epochSend(num uint16) {
	for n := 1; n < len(w.nodes); n++ {
		if w.nodes[n].dead {
			continue
		}
		for _, a := range w.blocks(uint8(n)) {
			kernel.Send[signal.EpochReq](w.nodes[n].env, a, distribution(uint8(n)), num).GCI = w.pending.Words()
			w.want[n]++
		}
	}
}

// epochGoesOn does what comes next when all have answered.
func (w *world) epochGoesOn() {
	if w.want != [256]int{} || w.round != 0 {
		return
	}
	switch {
	case w.phase == 1 && !w.holdEpoch:
		w.commitEpoch()
	case w.phase == 2:
		w.phase = 0
	}
}

// blocks are the coordinator and the ldm of a node.
func (w *world) blocks(n uint8) []signal.Addr {
	return []signal.Addr{signal.MakeAddr(n, signal.BlockTC, 0), signal.MakeAddr(n, signal.BlockLDM, 0)}
}

func (w *world) deliver(n uint8, p unsafe.Pointer) {
	h := (*signal.Head)(p)
	if n == clientNode {
		w.answers = append(w.answers, append([]byte(nil), unsafe.Slice((*byte)(p), h.Bytes())...))
		return
	}
	x := w.nodes[n]
	switch h.To.Block() {
	case signal.BlockTC:
		x.tc.Deliver(h)
	case signal.BlockLDM:
		x.ldm.Deliver(h)
	case signal.BlockDictionary:
		if w.trace != nil {
			w.trace(h)
		}
	case signal.BlockDistribution:
		w.want[n]--
		w.epochGoesOn()
	case signal.BlockMembership:
		if c := (*signal.ViewConf)(p); h.Num == w.round && c.View == w.next.Number && c.Attempt == w.attempt {
			w.viewWant[n]--
		}
		if w.trace != nil {
			w.trace(h)
		}
	case signal.BlockManager:
		if w.trace != nil {
			w.trace(h)
		}
	}
}

// flush moves what a node sent into the queues.
func (w *world) flush(n uint8, e *kernel.Env) {
	e.TakeDirty(func(d kernel.Dest, b *kernel.Buf) {
		k := [2]uint8{n, uint8(d)}
		for in := b.Bytes(); len(in) > 0; {
			l := (*signal.Head)(unsafe.Pointer(&in[0])).Bytes()
			kind := signal.PeerData
			if n == clientNode {
				kind = signal.PeerAPI
			}
			if f := signal.Check((*signal.Head)(unsafe.Pointer(&in[0])), kind, n, uint8(d)); f != nil {
				w.t.Fatal(f)
			}
			if _, known := w.queues[k]; !known {
				w.pairs = append(w.pairs, k)
			}
			w.queues[k] = append(w.queues[k], append(make([]byte, 0, l+4), in[:l]...))
			in = in[l:]
		}
		b.Consume(b.Len())
	})
}

// step delivers one signal from a random queue; false when all are empty.
func (w *world) step() bool {
	for busy := true; busy; {
		busy = false
		for n := 1; n < len(w.nodes); n++ {
			if w.nodes[n].dead {
				continue
			}
			e := w.nodes[n].env
			busy = e.RunJobs(func(p unsafe.Pointer) {
				if h := (*signal.Head)(p); w.local && w.trace != nil && h.To.Block() != signal.BlockMembership {
					w.trace(h)
				}
				w.deliver(uint8(n), p)
			}, 1<<30) > 0 || busy
			w.flush(uint8(n), e)
		}
	}
	w.flush(clientNode, w.client)
	var ks [][2]uint8
	for _, k := range w.pairs {
		if len(w.queues[k]) > 0 && !w.held[k] {
			ks = append(ks, k)
		}
	}
	if len(ks) == 0 {
		return false
	}
	k := ks[0]
	if !w.inOrder {
		k = ks[w.rng.IntN(len(ks))]
	}
	b := w.queues[k][0]
	if w.trace != nil {
		w.trace((*signal.Head)(unsafe.Pointer(&b[0])))
	}
	w.queues[k] = w.queues[k][1:]
	if k[1] == clientNode || !w.nodes[k[1]].dead {
		w.deliver(k[1], unsafe.Pointer(&b[0]))
	}
	for i := range b {
		b[i] = 0xDB
	}
	for _, x := range w.nodes[1:] {
		if !x.dead {
			x.tc.Invariants()
			x.ldm.Invariants()
		}
	}
	return true
}

// alive are the nodes that have not been killed.
func (w *world) alive() (ns []uint8) {
	for n := 1; n < len(w.nodes); n++ {
		if !w.nodes[n].dead {
			ns = append(ns, uint8(n))
		}
	}
	return ns
}

// kill ends a node. What is on its way from it still arrives, as far as the test does not drop it.
func (w *world) kill(n uint8) {
	for w.nodes[n].env.Jobs() { // what it has done is done
		w.nodes[n].env.RunJobs(func(p unsafe.Pointer) {}, 1<<30)
	}
	w.flush(n, w.nodes[n].env)
	w.nodes[n].dead = true
	w.want[n] = 0
}

// drop loses what is on its way from a node to another.
func (w *world) drop(from, to uint8) { w.queues[[2]uint8{from, to}] = nil }

// change begins a change of the view, to members who are alive, in the states that are given (0: as they are).
func (w *world) change(states map[uint8]uint32) {
	var ms []signal.Member
	for _, m := range w.view.Members {
		if w.nodes[m.Node].dead {
			continue
		}
		if s := states[uint8(m.Node)]; s != 0 {
			m.State = s
		}
		ms = append(ms, m)
	}
	w.attempt++
	w.next.Take(w.view.Number+1, ms[0].Node, ms)
	w.viewRound(signal.NumViewPrepareReq, signal.NumViewPrepareConf)
}

// commitView ends it.
func (w *world) commitView() {
	w.view.Copy(&w.next)
	w.viewRound(signal.NumViewCommitReq, signal.NumViewCommitConf)
}

func (w *world) viewRound(req, conf uint16) {
	w.round, w.viewWant = conf, [256]int{}
	for _, n := range w.alive() {
		putView(w.nodes[n].env, w.blocks(n), req, &w.next, w.attempt)
		w.viewWant[n] = 2
	}
}

// viewAnswered tells whether the round of the change is through; after a commit epochs go on.
func (w *world) viewAnswered() bool {
	for _, n := range w.alive() {
		if w.viewWant[n] != 0 {
			return false
		}
	}
	if w.round == signal.NumViewCommitConf {
		w.round = 0
		for _, n := range w.alive() {
			kernel.Send[signal.TakeoverRep](w.nodes[n].env, signal.MakeAddr(n, signal.BlockLDM, 0), distribution(n), signal.NumTakeoverRep).View = w.view.Number
		}
		w.epochGoesOn()
	}
	return true
}

func (w *world) run() {
	for i := 0; ; i++ {
		if !w.step() {
			// Nothing moves: let time pass for those who wait for a lock.
			due, ok := int64(0), false
			for _, n := range w.nodes[1:] {
				if d, o := n.env.NextTimer(); o && (!ok || d < due) {
					due, ok = d, true
				}
			}
			if !ok {
				return
			}
			for _, n := range w.nodes[1:] {
				n.env.SetNow(due)
				n.env.FireTimers()
			}
		}
		if i > 2_000_000 {
			w.t.Fatal("it does not come to rest")
		}
	}
}

// op sends one operation of session s. Keys are one uint32; the row is one uint32.
func (w *world) op(num uint16, s uint16, ref, tx, seq uint32, op, flags uint8, key, val uint32) {
	frag := key % uint32(w.frags)
	to := w.view.Primary(w.chains[frag])
	if num == signal.NumKeyReq {
		// All operations of a transaction go to one coordinator.
		to = signal.MakeAddr(uint8(tx%uint32(len(w.nodes)-1)+1), signal.BlockTC, 0)
	}
	dl := uint32(4)
	if signal.IsRead(op) || op == signal.OpDelete {
		dl = 0
	}
	r := (*signal.KeyReq)(w.client.Put(to, signal.MakeAddr(clientNode, signal.BlockClient, s), num, signal.KeyReqSize+4+dl))
	r.Ref, r.Tx, r.Seq, r.Ack, r.Table, r.Version, r.Frag, r.Op, r.Flags = ref, tx, seq, 0, 3, 1, uint16(frag), op, flags|signal.FlagAll
	r.KeyLen, r.DataLen = 4, uint16(dl)
	*(*uint32)(r.Key()) = key
	if dl > 0 {
		*(*uint32)(r.Data()) = val
	}
}

// compare fails unless all replicas of all fragments hold the same rows under the same ids with the same epochs.
func (w *world) compare() (rows map[uint32]uint32) {
	rows = map[uint32]uint32{}
	for f, c := range w.chains {
		var first []string
		for _, a := range c {
			if w.nodes[a.Node()].dead {
				continue
			}
			fr := w.nodes[a.Node()].ldm.Fragment(3, uint32(f))
			all := []string{"rows"}
			for id := store.NoRow; ; {
				r, next, ok := fr.NextRow(id)
				if !ok {
					break
				}
				id = next
				k, kn := fr.Key(r)
				v := unsafe.Slice((*byte)(fr.Fixed(r)), 4)
				if r.Lock != 0 || !fr.CheckSum(r) {
					w.t.Fatalf("fragment %d at %v: row %d lock %x at rest", f, a, id, r.Lock)
				}
				all = append(all, fmt.Sprint(id, r.GCI(), unsafe.Slice((*byte)(k), kn), v))
				rows[*(*uint32)(k)] = binary.LittleEndian.Uint32(v)
			}
			if first == nil {
				first = all
			} else if fmt.Sprint(first) != fmt.Sprint(all) {
				w.t.Fatalf("fragment %d: %v differs\n%v\n%v", f, a, first, all)
			}
		}
	}
	return rows
}

func (w *world) atRest() {
	for n, x := range w.nodes[1:] {
		if x.dead {
			continue
		}
		if x.tc.Transactions() != 0 || x.tc.Operations() != 0 || x.ldm.Operations() != 0 || x.ldm.Copies() != 0 {
			w.t.Fatalf("node %d at rest: %d transactions, %d+%d operations, %d bytes of copies", n+1, x.tc.Transactions(), x.tc.Operations(),
				x.ldm.Operations(), x.ldm.Copies())
		}
	}
}

var oneWord = []schema.Column{{Name: "K", Type: schema.Unsigned, PrimaryKey: true}, {Name: "V", Type: schema.Unsigned}}

// TestABackupThatRefusedAnInsertRefusesWhatFollowsIt runs transactions whose inserts find no memory at the backup, with
// further operations on the same rows behind them.
func TestABackupThatRefusedAnInsertRefusesWhatFollowsIt(t *testing.T) {
	made := 0
	w := newWorld(t, 1, 2, 2, func(_ *coordinator.Config, l *ldm.Config) {
		if made++; made == 2 { // less than a row takes
			r, src := store.NewLocalSource(store.PageSize, store.PageSize, true)
			l.Arena = store.NewArena(r, src)
		}
	}, oneWord...)
	key := uint32(0)
	for w.chains[key%uint32(w.frags)][0].Node() != 1 {
		key++
	}
	for i, ops := range [][]uint8{{signal.OpInsert, signal.OpDelete, signal.OpInsert}, {signal.OpWrite, signal.OpUpdate, signal.OpReadShared}} {
		tx := uint32(i + 1)
		for j, op := range ops {
			flags := uint8(0)
			if j == 0 {
				flags |= signal.FlagStart
			}
			if j == len(ops)-1 {
				flags |= signal.FlagExecute
			}
			w.op(signal.NumKeyReq, 1, uint32(j), tx, 0, op, flags, key, 7)
		}
		w.answers = nil
		w.run()
		r := (*signal.TxRef)(nil)
		for _, a := range w.answers {
			if h := (*signal.Head)(unsafe.Pointer(&a[0])); h.Num == signal.NumTxRef {
				r = (*signal.TxRef)(unsafe.Pointer(h))
			}
		}
		if r == nil || r.Tx != tx || r.Code != store.CodeNoMemory {
			t.Fatalf("operations %v: the transaction ended with %v", ops, r)
		}
		w.atRest()
		if rows := w.compare(); len(rows) != 0 {
			t.Fatalf("operations %v left rows: %v", ops, rows)
		}
	}
}

// TestAWaitRepOfAnEarlierTransaction has a broken client that gives a number and its references to a second transaction,
// while what the primary said of the first one's waiting is still on its way: the coordinator must not take it for the
// second one's.
func TestAWaitRepOfAnEarlierTransaction(t *testing.T) {
	w := newWorld(t, 1, 4, 2, nil, oneWord...)
	w.inOrder = true
	key := uint32(0)
	for w.chains[key%uint32(w.frags)][0].Node() != 1 {
		key++
	}
	settle := func() {
		for w.step() {
		}
	}
	end := func(tx uint32) {
		tc := signal.MakeAddr(uint8(tx%4+1), signal.BlockTC, 0)
		r := kernel.Send[signal.TxReq](w.client, tc, signal.MakeAddr(clientNode, signal.BlockClient, 1), signal.NumTxReq)
		r.Tx, r.Action, r.Seq, r.Ack = tx, signal.TxRollback, 0, 0
		settle()
	}
	const here, there = 4, 6 // transactions with their coordinator at the primary, and at node 3
	w.op(signal.NumWriteReq, 1, 0, 1, 1, signal.OpInsert, 0, key, 1)
	settle()
	w.op(signal.NumKeyReq, 1, 0, here, 0, signal.OpUpdate, signal.FlagStart|signal.FlagExecute, key, 2)
	settle()
	w.held[[2]uint8{1, 3}] = true
	w.op(signal.NumKeyReq, 1, 0, there, 0, signal.OpUpdate, signal.FlagStart|signal.FlagExecute, key, 3)
	settle()
	end(here)
	end(there)
	if w.nodes[3].tc.Transactions() != 0 {
		t.Fatal("the first transaction has not ended")
	}
	// Another takes the record that the first one had at the primary.
	w.op(signal.NumKeyReq, 1, 0, here+8, 0, signal.OpInsert, signal.FlagStart|signal.FlagExecute, key+4*uint32(w.frags), 2)
	settle()
	w.op(signal.NumKeyReq, 1, 0, there, 0, signal.OpUpdate, signal.FlagStart|signal.FlagExecute, key, 4)
	for w.nodes[3].tc.Transactions() == 0 {
		w.step()
	}
	for k := range w.queues { // what was said of the first comes before the second has reached the primary
		if w.held[k] {
			b := w.queues[k][0]
			w.queues[k] = w.queues[k][1:]
			w.deliver(3, unsafe.Pointer(&b[0]))
		}
	}
	w.held = map[[2]uint8]bool{}
	end(there)
	end(here + 8)
	w.atRest()
	if rows := w.compare(); rows[key] != 1 || len(rows) != 1 {
		t.Fatal(rows)
	}
}
