package coordinator_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/coordinator"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/ldm"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
)

// shape is how many of each there are; threads, tcs (coordinators) and ldms for each node. kills: nodes that are killed at
// most.
type shape struct{ nodes, replicas, threads, tcs, ldms, kills int }

// site is a thread of a data node.
type site struct {
	node uint8
	env  *kernel.Env
	tcs  []*coordinator.Block // by instance; nil: elsewhere
	ldms []*ldm.Block
	dead bool
}

// place says where a row's changes were seen last.
type place struct {
	replica signal.Addr
	key     uint32
}

// seen is a row at a replica when it was looked at last.
type seen struct {
	id  store.RowID
	gci uint64
	in  bool
}

// load is a few data nodes of several threads each and a client, joined by queues: one for each ordered pair of threads.
// The part of the client is in random_test.go.
type load struct {
	t      *testing.T
	seed   uint64
	rng    *rand.Rand
	shape  shape
	sites  [][]*site // by node, thread
	client *kernel.Env
	queues map[[2]int][][]byte // from and to: node<<8 | thread; the client is clientNode<<8
	pairs  [][2]int
	layout *schema.Layout
	def    []byte // of the table
	chains [][]signal.Addr

	gci     signal.GCI
	phase   int                  // of an epoch change: 0 idle, 1 preparing, 2 committing
	owed    [7]bool              // by node: it has not answered the phase
	dist    [7]dist              // by node
	slow    int                  // place in pairs of a queue that is served only when all others are empty
	failing map[signal.Addr]bool // blocks whose NodeFailConf is awaited; the client is away meanwhile
	ups     map[signal.Addr]bool // ldms that have not heard that it is back

	change     // of the view, in failover_test.go
	comingBack // in comeback_test.go

	txs      map[[2]uint32]*clientTx // by session and number
	lastTx   uint32
	stamp    uint32
	fresh    uint32    // newest key that one transaction writes
	seqs     [5]uint32 // by session
	heard    [5]uint32 // acknowledged
	closed   [5]uint16 // sessions of each slot so far
	fate     map[uint32]*clientTx
	reads    []readValue
	counters map[uint32]uint32 // committed increments by key; unknown ones in maybe
	maybe    map[uint32]uint32
	rows     map[place]*seen
}

// dist is the distribution of a node: the epoch change that its blocks are in.
type dist struct {
	asked int           // blocks that have not answered
	done  [2]signal.GCI // newest epoch that all have prepared, committed
	began [2]signal.GCI // … that they were asked for
}

func newLoad(t *testing.T, seed uint64, s shape) *load {
	l := &load{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, uint64(s.nodes*1000+s.replicas*100+s.threads*10+s.ldms))), shape: s,
		sites: make([][]*site, s.nodes+1), queues: map[[2]int][][]byte{}, txs: map[[2]uint32]*clientTx{}, fate: map[uint32]*clientTx{},
		counters: map[uint32]uint32{}, maybe: map[uint32]uint32{}, rows: map[place]*seen{}, failing: map[signal.Addr]bool{}, ups: map[signal.Addr]bool{}, fresh: 1000}
	tight := l.rng.IntN(3) == 0 // records are short
	for n := 1; n <= s.nodes; n++ {
		l.sites[n] = l.newNode(uint8(n), tight)
	}
	l.client = kernel.NewEnv(clientNode, 0, 1, 4096)
	for n := 1; n <= s.nodes; n++ {
		l.client.Via(uint8(n), kernel.Dest(n))
		l.client.Buf(kernel.Dest(n)).Init(4096, 1<<24)
	}
	l.view.Take(1, 1, members(s.nodes, s.replicas, s.tcs, s.ldms))
	l.createTable()
	l.epoch()
	for l.step() {
	}
	return l
}

// away tells whether the client has no links.
func (l *load) away() bool { return len(l.failing)+len(l.ups) > 0 }

// alive are the nodes that have not been killed, lowest first.
func (l *load) alive() (ns []uint8) {
	for n := 1; n <= l.shape.nodes; n++ {
		if !l.sites[n][0].dead {
			ns = append(ns, uint8(n))
		}
	}
	return ns
}

// president is the one that leads changes of the epoch.
func (l *load) president() uint8 {
	for _, m := range l.view.Members {
		if !l.sites[m.Node][0].dead {
			return uint8(m.Node)
		}
	}
	return l.alive()[0]
}

func (l *load) newNode(n uint8, tight bool) []*site {
	s := l.shape
	sites := make([]*site, s.threads)
	for i := range sites {
		e := kernel.NewEnv(n, i, l.seed+uint64(n), 4096)
		for m := 1; m <= s.nodes; m++ {
			if m != int(n) {
				e.Via(uint8(m), kernel.Dest(m))
				e.Buf(kernel.Dest(m)).Init(4096, 1<<24)
			}
		}
		for o := range s.threads {
			if o != i {
				e.Buf(kernel.ThreadDest(o)).Init(4096, 1<<24)
			}
		}
		e.Via(clientNode, clientNode)
		e.Buf(clientNode).Init(4096, 1<<24)
		e.Place(signal.BlockDictionary, 0, 0)
		e.Place(signal.BlockDistribution, 0, 0)
		e.Place(signal.BlockMembership, 0, 0)
		e.Place(signal.BlockManager, 0, 0)
		for k := range s.tcs {
			e.Place(signal.BlockTC, k, k%s.threads)
		}
		for k := range s.ldms {
			e.Place(signal.BlockLDM, k, (k+1)%s.threads)
		}
		sites[i] = &site{node: n, env: e, tcs: make([]*coordinator.Block, s.tcs), ldms: make([]*ldm.Block, s.ldms)}
	}
	// Some nodes have so little memory that inserts and longer values fail there.
	pages := 64
	if l.rng.IntN(3) == 0 {
		pages = s.ldms*2*3 + l.rng.IntN(8)
	}
	r, src := store.NewLocalSource(uint64(pages)*store.PageSize, store.PageSize, true)
	copies := 8 + l.rng.IntN(8)
	cr, csrc := store.NewLocalSource(uint64(copies*s.ldms)*store.PageSize, store.PageSize, true)
	few := func(least, most int) int {
		if tight {
			return least + l.rng.IntN(least)
		}
		return most
	}
	for k := range s.tcs {
		at := sites[k%s.threads]
		at.tcs[k] = coordinator.New(at.env, coordinator.Config{Instance: k, MaxTransactions: few(4, 64), MaxOperations: few(8, 256), MaxTables: 8,
			Sessions: few(3, 8), MaxWrites: 6})
	}
	for k := range s.ldms {
		at := sites[(k+1)%s.threads]
		at.ldms[k] = ldm.New(at.env, ldm.Config{Instance: k, Arena: store.NewArena(r, src), Copies: store.NewCopyPool(store.NewArena(cr, csrc)),
			MaxOperations: few(6, 256), MaxTables: 8, Sessions: few(3, 8), LockTimeout: 1e9})
	}
	return sites
}

func (l *load) createTable() {
	s := l.shape
	fragments := s.nodes * s.ldms
	def := &schema.Table{ID: 3, Version: 1, Database: "d", Name: "t", Fragments: uint32(fragments), Columns: []schema.Column{
		{Name: "K", Type: schema.Unsigned, PrimaryKey: true},
		{Name: "V", Type: schema.Unsigned},
		{Name: "N", Type: schema.Unsigned, Nullable: true},
		{Name: "S", Type: schema.Varbinary, Length: 4000, Nullable: true},
	}}
	layout, err := schema.Compile(def)
	if err != nil {
		l.t.Fatal(err)
	}
	l.layout = layout
	b, err := def.AppendBinary(nil)
	if err != nil {
		l.t.Fatal(err)
	}
	groups := s.nodes / s.replicas
	for f := range fragments {
		var c []signal.Addr
		for r := range s.replicas {
			c = append(c, signal.MakeAddr(uint8(f%groups*s.replicas+(f/groups+r)%s.replicas+1), signal.BlockLDM, uint16(f%s.ldms)))
		}
		l.chains = append(l.chains, c)
	}
	l.def = b
	for n := uint8(1); int(n) <= s.nodes; n++ {
		putView(l.sites[n][0].env, l.blocksOf(n), signal.NumViewCommitReq, &l.view, 1)
		l.createAt(n)
	}
}

// createAt makes the table at a node.
func (l *load) createAt(n uint8) {
	b, e := l.def, l.sites[n][0].env
	dict := signal.MakeAddr(n, signal.BlockDictionary, 0)
	for f, c := range l.chains {
		for _, a := range c {
			if a.Node() != n {
				continue
			}
			r := (*signal.FragCreateReq)(e.Put(a, dict, signal.NumFragCreateReq, uint32(unsafe.Sizeof(signal.FragCreateReq{}))+signal.Pad(uint32(len(b)))))
			r.Ref, r.Table, r.Version, r.Frag, r.Replicas, r.DefLen = 0, 3, 1, uint32(f), uint32(len(c)), uint32(len(b))
			r.Chain = [signal.MaxReplicas]signal.Addr{}
			copy(r.Chain[:], c)
			copy(r.Def(), b)
		}
	}
	for k := range l.shape.tcs {
		r := (*signal.TableOpenReq)(e.Put(signal.MakeAddr(n, signal.BlockTC, uint16(k)), dict, signal.NumTableOpenReq,
			signal.TableOpenSize(uint32(len(b)), 0, uint32(len(l.chains)))))
		r.Ref, r.Table, r.Version, r.Fragments, r.Buckets, r.DefLen = 0, 3, 1, uint32(len(l.chains)), 0, uint32(len(b))
		clear(r.Chains())
		copy(r.Def(), b)
		for f, c := range l.chains {
			copy(r.Chains()[f*signal.MaxReplicas:], c)
		}
	}
}

// blocks calls f for every coordinator and ldm.
func (l *load) blocks(f func(a signal.Addr)) {
	for _, n := range l.alive() {
		for _, a := range l.blocksOf(n) {
			f(a)
		}
	}
}

func (l *load) blocksOf(n uint8) (all []signal.Addr) {
	for k := range l.shape.tcs {
		all = append(all, signal.MakeAddr(n, signal.BlockTC, uint16(k)))
	}
	for k := range l.shape.ldms {
		all = append(all, signal.MakeAddr(n, signal.BlockLDM, uint16(k)))
	}
	return all
}

func (l *load) epoch() {
	if l.phase == 0 && !l.losing {
		l.gci++
		l.round(1, signal.NumEpochPrepareReq)
	}
}

// round begins a round of an epoch change, led by the president.
func (l *load) round(phase int, num uint16) {
	l.phase = phase
	president := l.president()
	for _, n := range l.alive() {
		l.owed[n] = true
		kernel.Send[signal.EpochReq](l.sites[president][0].env, distribution(n), distribution(president), num).GCI = l.gci.Words()
	}
}

// onEpoch is the distribution of a node: it asks its own blocks, and answers the president when they have answered. A new
// president asks again for what its blocks may have done already.
func (l *load) onEpoch(s *site, h *signal.Head) {
	d := &l.dist[s.node]
	which := 0
	if h.Num == signal.NumEpochCommitReq || h.Num == signal.NumEpochCommitConf {
		which = 1
	}
	gci := signal.JoinGCI((*signal.EpochConf)(unsafe.Pointer(h)).GCI)
	answer := func() {
		num := []uint16{signal.NumEpochPrepareConf, signal.NumEpochCommitConf}[which]
		kernel.Send[signal.EpochConf](s.env, distribution(l.president()), distribution(s.node), num).GCI = gci.Words()
	}
	switch {
	case h.Num == signal.NumEpochPrepareReq || h.Num == signal.NumEpochCommitReq:
		switch {
		case d.done[which] >= gci:
			answer()
		case d.began[which] < gci:
			d.began[which] = gci
			for _, a := range l.blocksOf(s.node) {
				d.asked++
				kernel.Send[signal.EpochReq](s.env, a, distribution(s.node), h.Num).GCI = gci.Words()
			}
		}
	case h.From.Block() != signal.BlockDistribution:
		if d.asked--; d.asked == 0 {
			d.done[which] = gci
			answer()
		}
	case gci == l.gci && which == l.phase-1:
		l.owed[h.From.Node()] = false
		l.epochGoesOn()
	}
}

// epochGoesOn does what comes next when all have answered. In a change of the view that loses members no change of the
// epoch goes on before the commit, and none ends before the end of the takeover.
func (l *load) epochGoesOn() {
	for _, n := range l.alive() {
		if l.owed[n] {
			return
		}
	}
	switch {
	case l.losing && l.stage == preparing:
	case l.phase == 1:
		l.round(2, signal.NumEpochCommitReq)
	case l.phase == 2 && !l.losing:
		l.phase = 0
	}
}

// siteOf is where a signal for a data node goes.
func (l *load) siteOf(a signal.Addr) *site {
	switch k := int(a.Instance()); a.Block() {
	case signal.BlockTC:
		return l.sites[a.Node()][k%l.shape.threads]
	case signal.BlockLDM:
		return l.sites[a.Node()][(k+1)%l.shape.threads]
	}
	return l.sites[a.Node()][0]
}

func siteKey(s *site) int { return int(s.node)<<8 | s.env.Thread() }

// drain moves what a thread or the client has sent into the queues.
func (l *load) drain(from int, kind signal.Peer, e *kernel.Env) {
	e.TakeDirty(func(d kernel.Dest, b *kernel.Buf) {
		for in := b.Bytes(); len(in) > 0; {
			h := (*signal.Head)(unsafe.Pointer(&in[0]))
			n := h.Bytes()
			to, fault := clientNode<<8, (*signal.Fault)(nil)
			if h.To.Node() == e.Node() {
				fault = signal.CheckLayout(h)
			} else {
				fault = signal.Check(h, kind, e.Node(), h.To.Node())
			}
			if fault != nil {
				l.t.Fatalf("seed %d: %v", l.seed, fault)
			}
			if h.To.Node() != clientNode {
				to = siteKey(l.siteOf(h.To))
			}
			if k := [2]int{from, to}; !l.away() || from != clientNode<<8 && to != clientNode<<8 { // else there is no link
				if _, known := l.queues[k]; !known {
					l.pairs = append(l.pairs, k)
				}
				l.queues[k] = append(l.queues[k], append(make([]byte, 0, n+4), in[:n]...))
			}
			in = in[n:]
		}
		b.Consume(b.Len())
	})
}

// step delivers one signal; false when there is none.
func (l *load) step() bool {
	l.viewGoesOn(false)
	for _, n := range l.alive() {
		for _, s := range l.sites[n] {
			l.jobs(s)
		}
	}
	l.drain(clientNode<<8, signal.PeerAPI, l.client)
	if l.rng.IntN(60) == 0 {
		l.slow = l.rng.IntN(2*len(l.pairs) + 1)
	}
	var ks [][2]int
	for i, k := range l.pairs {
		if len(l.queues[k]) > 0 && i != l.slow {
			ks = append(ks, k)
		}
	}
	if len(ks) == 0 {
		if l.slow >= len(l.pairs) || len(l.queues[l.pairs[l.slow]]) == 0 {
			return l.viewGoesOn(true)
		}
		ks = append(ks, l.pairs[l.slow])
	}
	k := ks[l.rng.IntN(len(ks))]
	b := l.queues[k][0]
	l.queues[k] = l.queues[k][1:]
	if k[1] == clientNode<<8 {
		l.answer((*signal.Head)(unsafe.Pointer(&b[0])))
		return true
	}
	s := l.sites[k[1]>>8][k[1]&0xff]
	if s.dead {
		return true
	}
	l.deliver(s, unsafe.Pointer(&b[0]))
	for i := range b {
		b[i] = 0xDB
	}
	l.jobs(s)
	return true
}

// jobs runs what a thread's blocks have sent to each other.
func (l *load) jobs(s *site) {
	for s.env.Jobs() {
		s.env.RunJobs(func(p unsafe.Pointer) { l.deliver(s, p) }, 1)
	}
	l.drain(siteKey(s), signal.PeerData, s.env)
}

func (l *load) deliver(s *site, p unsafe.Pointer) {
	h := (*signal.Head)(p)
	switch h.To.Block() {
	case signal.BlockTC:
		b := s.tcs[h.To.Instance()]
		b.Deliver(h)
		b.Invariants()
	case signal.BlockLDM:
		if h.Num == signal.NumNodeUpRep {
			delete(l.ups, h.To)
		}
		b := s.ldms[h.To.Instance()]
		b.Deliver(h)
		b.Invariants()
		l.look(h.To, b)
	case signal.BlockDictionary:
		if h.Num == signal.NumNodeFailConf {
			if delete(l.failing, h.From); len(l.failing) == 0 {
				l.clientIsBack()
			}
		}
	case signal.BlockDistribution:
		if h.Num == signal.NumCopyStartConf {
			l.onCopied(signal.As[signal.CopyStartConf](h))
			return
		}
		l.onEpoch(s, h)
	case signal.BlockMembership:
		l.onViewConf(h)
	}
}

// look sees to it that the epochs of a row do not go back at a replica.
func (l *load) look(at signal.Addr, b *ldm.Block) {
	for _, key := range l.keys() {
		f := l.frag(key)
		rows := (*store.Fragment)(nil)
		for _, a := range l.chains[f] {
			if a == at {
				rows = b.Fragment(3, f)
			}
		}
		if rows == nil {
			continue
		}
		x := l.rows[place{at, key}]
		if x == nil {
			x = &seen{}
			l.rows[place{at, key}] = x
		}
		image := binary.LittleEndian.AppendUint32(nil, key)
		r, id := rows.Find(schema.Hash(unsafe.Pointer(&image[0]), 4), unsafe.Pointer(&image[0]), 4)
		gci := x.gci
		switch {
		case r != nil && r.Lock&store.LockInsert == 0:
			gci = r.GCI()
			x.id, x.in = id, true
		case x.in: // it was deleted
			if y, ok := rows.CheckedRow(x.id); ok {
				gci = y.GCI()
			} else {
				gci = rows.SlotGCI(x.id)
			}
			x.in = false
		}
		if gci < x.gci {
			l.t.Fatalf("seed %d: row %d at %v goes back from epoch %d to %d", l.seed, key, at, x.gci, gci)
		}
		x.gci = gci
	}
}

func (l *load) keys() (ks []uint32) {
	for k := range uint32(rowKeys) {
		ks = append(ks, k)
	}
	for k := range uint32(nCounters) {
		ks = append(ks, counters0+k)
	}
	return ks
}

func (l *load) frag(key uint32) uint32 { return key % uint32(len(l.chains)) }

func (l *load) primary(key uint32) signal.Addr { return l.view.Primary(l.chains[l.frag(key)]) }

func (l *load) pass(ns int64) {
	for _, n := range l.alive() {
		for _, s := range l.sites[n] {
			s.env.SetNow(s.env.Now() + ns)
			s.env.FireTimers()
		}
	}
}

// rest runs until nothing moves.
func (l *load) rest() {
	for i := 0; ; i++ {
		if l.step() {
			if i > 1_000_000 {
				l.t.Fatalf("seed %d: it does not come to rest", l.seed)
			}
			continue
		}
		least, ok := int64(0), false
		for _, n := range l.alive() {
			for _, s := range l.sites[n] {
				if d, o := s.env.NextTimer(); o && (!ok || d-s.env.Now() < least) {
					least, ok = d-s.env.Now(), true
				}
			}
		}
		if !ok {
			return
		}
		l.pass(max(least, 1))
	}
}

func (l *load) atRest() {
	for _, n := range l.alive() {
		for _, s := range l.sites[n] {
			for _, b := range s.tcs {
				if b != nil && b.Transactions()+b.Operations() != 0 {
					l.t.Fatalf("seed %d: a coordinator of node %d has %d transactions, %d operations at rest", l.seed, n, b.Transactions(), b.Operations())
				}
			}
			for _, b := range s.ldms {
				if b != nil && (b.Operations() != 0 || b.Copies() != 0) {
					l.t.Fatalf("seed %d: an ldm of node %d has %d operations, %d bytes of copies at rest", l.seed, n, b.Operations(), b.Copies())
				}
			}
		}
	}
}

// compare fails unless all replicas hold the same rows under the same ids with the same epochs; it returns V by key.
func (l *load) compare() map[uint32]uint32 {
	rows := map[uint32]uint32{}
	for f, c := range l.chains {
		var first []string
		for _, a := range c {
			if !l.serves(a.Node()) {
				continue
			}
			fr := l.siteOf(a).ldms[a.Instance()].Fragment(3, uint32(f))
			all := []string{"rows"}
			for id := store.NoRow; ; {
				r, next, ok := fr.NextRow(id)
				if !ok {
					break
				}
				id = next
				k, kn := fr.Key(r)
				v, vn := fr.Var(r)
				fixed := unsafe.Slice((*byte)(fr.Fixed(r)), l.layout.FixedSize)
				if r.Lock != 0 || !fr.CheckSum(r) {
					l.t.Fatalf("seed %d: fragment %d at %v: row %d has lock %x at rest, sum right: %v", l.seed, f, a, id, r.Lock, fr.CheckSum(r))
				}
				all = append(all, fmt.Sprint(id, r.GCI(), unsafe.Slice((*byte)(k), kn), fixed, unsafe.Slice((*byte)(v), vn)))
				rows[*(*uint32)(k)] = binary.LittleEndian.Uint32(fixed[4:])
			}
			if first == nil {
				first = all
			} else if fmt.Sprint(first) != fmt.Sprint(all) {
				l.t.Fatalf("seed %d: fragment %d: %v differs\n%v\n%v", l.seed, f, a, first, all)
			}
		}
	}
	return rows
}

func stack() string { return string(debug.Stack()) }
