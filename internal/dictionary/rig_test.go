package dictionary

import (
	"bytes"
	"fmt"
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/kernel/kerneltest"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
)

const ms = 1_000_000

// rig is a few data nodes with a dictionary each, fakes for distribution, coordinators and ldms, and clients.
type rig struct {
	t   *testing.T
	net *kerneltest.Net
	n   [256]*node
	ids []uint8
	cfg Config

	views   *kerneltest.Views
	spare   []uint8 // nodes that are configured, but not started with the others
	answers []answer
	failAt  signal.Addr // this ldm or coordinator refuses what it is asked to make
	failNow uint32      // with this code
	noPlace uint32      // distribution refuses with this code
}

// node is what the fakes of one data node know.
type node struct {
	b         *Block
	frags     map[[2]uint32]signal.Addr // table, fragment → ldm that holds it
	open      map[[2]uint32]uint32      // coordinator, table → version
	closed    map[uint32]int            // table → ldms that were told to close it
	hold      bool                      // coordinators keep TableCloseConf back
	held      []signal.TableConf
	phases    []uint32
	phaseCode uint32 // of the last one
	events    int
	failConf  int
	risen     bool // a joined node's promotion was asked for
}

// answer is what a client got.
type answer struct {
	client  signal.Addr
	num     uint16
	ref     uint32
	code    uint32
	table   uint32
	version uint32
	def     []byte
	chains  []signal.Addr
	buckets int
	body    []byte
	count   uint32
	more    uint32
	life    int // how often the link that it came by had come up
}

const ldms, tcs = 2, 2

func newRig(t *testing.T, seed uint64, nodes int) *rig {
	r := &rig{t: t, net: kerneltest.New(seed), cfg: Config{MaxTables: 8, MaxAttributes: 40, CloseWait: 1200}}
	r.views = kerneltest.NewViews(r.net, signal.BlockDictionary)
	for i := range nodes {
		r.ids = append(r.ids, uint8(i+1))
		r.add(uint8(i + 1))
	}
	r.net.After = func(n *kerneltest.Node) {
		if x := r.n[n.ID]; x != nil {
			x.b.Invariants()
		}
	}
	return r
}

// add makes a data node and links it to all that live.
func (r *rig) add(id uint8) {
	kn := r.net.Add(id, signal.PeerData)
	kn.LDMs, kn.TCs = ldms, tcs
	for _, b := range []uint8{signal.BlockMembership, signal.BlockDistribution, signal.BlockDictionary, signal.BlockManager, signal.BlockRuntime} {
		kn.Env.Place(b, 0, 0)
	}
	for i := range tcs {
		kn.Env.Place(signal.BlockTC, i, 0)
	}
	for i := range ldms {
		kn.Env.Place(signal.BlockLDM, i, 0)
	}
	x := &node{b: New(kn.Env, r.cfg), frags: map[[2]uint32]signal.Addr{}, open: map[[2]uint32]uint32{}, closed: map[uint32]int{}}
	r.n[id] = x
	kn.Handle = func(h *signal.Head) { r.handle(kn, x, h) }
	for o := uint8(1); o < 250; o++ {
		if k := r.net.Nodes[o]; o != id && k != nil && !k.Dead() {
			r.net.Link(o, id)
		}
	}
}

// begin starts all nodes with views.
func (r *rig) begin() *rig {
	var members []signal.Member
	for i, id := range r.ids {
		members = append(members, signal.Member{Node: uint32(id), DynamicID: uint32(i + 1), LDMs: ldms, TCs: tcs, State: signal.MemberLeading})
	}
	r.views.Start(members, [2]uint32{0, 1})
	for _, id := range r.ids {
		r.phase(id, 4)
	}
	r.net.Run(0)
	return r
}

// start tells all dictionaries who is in the cluster.
func (r *rig) start() *rig {
	for _, id := range r.ids {
		env := r.net.Nodes[id].Env
		m := (*signal.ViewReq)(env.Put(signal.MakeAddr(id, signal.BlockDictionary, 0), signal.MakeAddr(id, signal.BlockMembership, 0), signal.NumViewCommitReq, signal.ViewReqSize(len(r.ids))))
		m.View, m.President, m.Attempt, m.GCI, m.Count = 1, 1, 1, [2]uint32{0, 1}, uint32(len(r.ids))
		for i, o := range r.ids {
			m.Members()[i] = signal.Member{State: signal.MemberLeading, Node: uint32(o), DynamicID: uint32(i + 1), LDMs: ldms, TCs: tcs}
		}
		r.phase(id, 4)
	}
	r.net.Run(0)
	return r
}

// homes are all configured nodes.
func (r *rig) homes() []uint8 { return append(r.ids[:len(r.ids):len(r.ids)], r.spare...) }

func (r *rig) phase(id uint8, phase uint32) {
	p := kernel.Send[signal.PhaseReq](r.net.Nodes[id].Env, signal.MakeAddr(id, signal.BlockDictionary, 0), signal.MakeAddr(id, signal.BlockMembership, 0), signal.NumPhaseReq)
	p.President, p.Attempt, p.Phase = 1, 1, phase
}

func (r *rig) handle(n *kerneltest.Node, x *node, h *signal.Head) {
	switch h.To.Block() {
	case signal.BlockDictionary:
		x.b.Deliver(h)
	case signal.BlockDistribution:
		if h.Num == signal.NumTakeoverRep {
			return
		}
		q := signal.As[signal.PlaceReq](h)
		homes := r.homes()
		f := q.Fragments
		if f == 0 {
			f = uint32(2 * len(homes))
		}
		code := r.noPlace
		buckets := uint32(schema.DistributionBuckets)
		if code != 0 {
			f, buckets = 0, 0
		}
		c := (*signal.PlaceConf)(n.Env.Put(h.From, h.To, signal.NumPlaceConf, signal.PlaceConfSize(buckets, f)))
		c.Ref, c.Code, c.Fragments, c.Buckets = q.Ref, code, f, buckets
		for i := range c.Map() {
			c.Map()[i] = uint16(uint32(i) % f)
		}
		for i := range c.Chains() {
			c.Chains()[i] = 0
		}
		for i := range f { // every node has a replica of every fragment
			for k := range homes {
				c.Chains()[int(i)*signal.MaxReplicas+k] = signal.MakeAddr(homes[(int(i)+k)%len(homes)], signal.BlockLDM, uint16(i%ldms))
			}
		}
	case signal.BlockLDM:
		r.ldm(n, x, h)
	case signal.BlockTC:
		r.tc(n, x, h)
	case signal.BlockMembership:
		if r.views.Deliver(n, h) {
			return
		}
		switch h.Num {
		case signal.NumLinkDownRep:
			if q := signal.As[signal.LinkRep](h); signal.Peer(q.Kind) == signal.PeerAPI {
				f := kernel.Send[signal.NodeFailRep](n.Env, signal.MakeAddr(n.ID, signal.BlockDictionary, 0), h.To, signal.NumNodeFailRep)
				f.Node, f.Kind = q.Node, q.Kind
			}
		case signal.NumPhaseConf:
			x.phases = append(x.phases, signal.As[signal.PhaseConf](h).Phase)
			x.phaseCode = signal.As[signal.PhaseConf](h).Code
		case signal.NumNodeFailConf:
			x.failConf++
		}
	case signal.BlockManager:
		x.events++
	}
}

func (r *rig) code(a signal.Addr) uint32 {
	if a == r.failAt {
		return r.failNow
	}
	return 0
}

func (r *rig) ldm(n *kerneltest.Node, x *node, h *signal.Head) {
	switch h.Num {
	case signal.NumFragCreateReq:
		q := signal.As[signal.FragCreateReq](h)
		def, err := schema.DecodeTable(q.Def())
		x.closed[q.Table] = 0
		k := [2]uint32{q.Table, q.Frag}
		if err != nil || def.ID != q.Table || def.Version != q.Version || x.frags[k] != 0 || q.Replicas != uint32(len(r.homes())) {
			r.t.Fatalf("%s: %v, held by %v", signal.Format(h), err, x.frags[k])
		}
		code := r.code(h.To)
		if code == 0 {
			x.frags[k] = h.To
		}
		c := kernel.Send[signal.FragConf](n.Env, h.From, h.To, signal.NumFragCreateConf)
		c.Ref, c.Table, c.Frag, c.Code = q.Ref, q.Table, q.Frag, code
	case signal.NumTableCloseReq:
		r.closeAtLDM(n, x, h)
	case signal.NumFragDropReq:
		q := signal.As[signal.FragDropReq](h)
		k := [2]uint32{q.Table, q.Frag}
		if x.frags[k] != h.To {
			r.t.Fatalf("%v gives up fragment %v, which %v has", h.To, k, x.frags[k])
		}
		for _, id := range r.ids {
			if r.net.Nodes[id].Dead() || !r.views.Quiet() || r.n[id].b.part != signal.PartFull {
				continue // it takes no more writes; or its operations end before the takeover does, which the dictionary awaits
			}
			if x.b.local.tx.kind == signal.SchemaDrop && x.b.forget == keeps && r.n[id].closed[q.Table] < ldms && r.n[id].holds(q.Table) {
				r.t.Fatalf("a fragment of table %d goes while an ldm of node %d still takes writes", q.Table, id)
			}
			for tc := range uint32(tcs) {
				if _, open := r.n[id].open[[2]uint32{tc, q.Table}]; open && x.b.local.tx.kind == signal.SchemaDrop && x.b.forget == keeps {
					r.t.Fatalf("a fragment of table %d goes while coordinator %d of node %d uses it", q.Table, tc, id)
				}
			}
		}
		delete(x.frags, k)
		c := kernel.Send[signal.FragConf](n.Env, h.From, h.To, signal.NumFragDropConf)
		c.Ref, c.Table, c.Frag, c.Code = q.Ref, q.Table, q.Frag, 0
	}
}

// holds tells whether a node has a fragment of a table.
func (x *node) holds(table uint32) bool {
	for k := range x.frags {
		if k[0] == table {
			return true
		}
	}
	return false
}

func (r *rig) closeAtLDM(n *kerneltest.Node, x *node, h *signal.Head) {
	q := signal.As[signal.TableCloseReq](h)
	x.closed[q.Table]++
	p := kernel.Send[signal.TableConf](n.Env, h.From, h.To, signal.NumTableCloseConf)
	p.Ref, p.Table, p.Code = q.Ref, q.Table, 0
}

func (r *rig) tc(n *kerneltest.Node, x *node, h *signal.Head) {
	c := signal.TableConf{}
	num := signal.NumTableOpenConf
	switch h.Num {
	case signal.NumTableOpenReq:
		q := signal.As[signal.TableOpenReq](h)
		k := [2]uint32{uint32(h.To.Instance()), q.Table}
		if x.open[k] != 0 || len(q.Map()) != schema.DistributionBuckets {
			r.t.Fatalf("coordinator opens table %v twice", k)
		}
		c.Ref, c.Table, c.Code = q.Ref, q.Table, r.code(h.To)
		if c.Code == 0 {
			x.open[k] = q.Version
		}
	case signal.NumTableCloseReq:
		q := signal.As[signal.TableCloseReq](h)
		delete(x.open, [2]uint32{uint32(h.To.Instance()), q.Table})
		c.Ref, c.Table, c.Code = q.Ref, q.Table, 0
		num = signal.NumTableCloseConf
		if q.WaitMillis != 1200 {
			r.t.Fatalf("a close waits %d ms", q.WaitMillis)
		}
		if x.hold {
			c.To, c.From = h.From, h.To
			x.held = append(x.held, c)
			return
		}
	}
	p := kernel.Send[signal.TableConf](n.Env, h.From, h.To, num)
	p.Ref, p.Table, p.Code = c.Ref, c.Table, c.Code
}

// release lets the coordinators of a node answer what they kept back.
func (r *rig) release(id uint8) {
	x := r.n[id]
	x.hold = false
	for _, c := range x.held {
		p := kernel.Send[signal.TableConf](r.net.Nodes[id].Env, c.To, c.From, signal.NumTableCloseConf)
		p.Ref, p.Table, p.Code = c.Ref, c.Table, c.Code
	}
	x.held = nil
}

// client makes a client node with links to all data nodes.
func (r *rig) client(id uint8) {
	n := r.net.Add(id, signal.PeerAPI)
	ups := map[uint8]int{}
	n.Handle = func(h *signal.Head) {
		a := answer{client: h.To, num: h.Num, life: ups[h.From.Node()]}
		switch h.Num {
		case signal.NumLinkUpRep:
			ups[uint8(signal.As[signal.LinkRep](h).Node)]++
			return
		case signal.NumTableCreateConf, signal.NumTableDropConf:
			d := signal.As[signal.TableDone](h)
			a.ref, a.table, a.version = d.Ref, d.Table, d.Version
		case signal.NumTableRef:
			d := signal.As[signal.TableRef](h)
			a.ref, a.code = d.Ref, d.Code
		case signal.NumTableInfoConf:
			d := signal.As[signal.TableInfoConf](h)
			a.ref, a.table, a.version = d.Ref, d.Table, d.Version
			a.def, a.buckets, a.chains = bytes.Clone(d.Def()), len(d.Map()), append([]signal.Addr(nil), d.Chains()...)
		case signal.NumTableListConf:
			d := signal.As[signal.TableListConf](h)
			a.ref, a.count, a.more, a.body = d.Ref, d.Count, d.More, bytes.Clone(d.Body())
		default:
			return
		}
		r.answers = append(r.answers, a)
	}
	for _, o := range r.ids {
		r.net.Link(id, o)
	}
}

func definition(name string, columns int) []byte {
	t := schema.Table{Database: "db", Name: name, Logging: true}
	for i := range columns {
		t.Columns = append(t.Columns, schema.Column{Name: fmt.Sprint("c", i), Type: schema.Unsigned, PrimaryKey: i == 0})
	}
	b, err := t.AppendBinary(nil)
	if err != nil {
		panic(err)
	}
	return b
}

func (r *rig) create(client, at uint8, ref uint32, def []byte) {
	q := (*signal.TableCreateReq)(r.net.Nodes[client].Env.Put(signal.MakeAddr(at, signal.BlockDictionary, 0), signal.MakeAddr(client, signal.BlockClient, 3), signal.NumTableCreateReq,
		uint32(unsafe.Sizeof(signal.TableCreateReq{}))+signal.Pad(uint32(len(def)))))
	q.Ref, q.DefLen = ref, uint32(len(def))
	kernel.PutBytes(unsafe.Add(unsafe.Pointer(q), unsafe.Sizeof(*q)), def)
}

func (r *rig) named(client, at uint8, num uint16, ref uint32, name string) {
	q := (*signal.TableNameReq)(r.net.Nodes[client].Env.Put(signal.MakeAddr(at, signal.BlockDictionary, 0), signal.MakeAddr(client, signal.BlockClient, 3), num,
		uint32(unsafe.Sizeof(signal.TableNameReq{}))+signal.Pad(uint32(len(name)))))
	q.Ref, q.NameLen = ref, uint32(len(name))
	kernel.PutBytes(unsafe.Add(unsafe.Pointer(q), unsafe.Sizeof(*q)), name)
}

// ask waits for the next answer after what f sends.
func (r *rig) ask(f func()) answer {
	r.t.Helper()
	n := len(r.answers)
	f()
	if !r.net.Until(100*ms, func() bool { return len(r.answers) > n }) {
		r.t.Fatalf("no answer; %v", r.net)
	}
	return r.answers[n]
}

// empty checks that nothing of any table is left anywhere.
func (r *rig) empty() {
	r.t.Helper()
	r.net.Run(0)
	for _, id := range r.ids {
		x := r.n[id]
		if r.net.Nodes[id].Dead() {
			continue
		}
		if len(x.frags) != 0 || len(x.open) != 0 || len(x.b.names) != 0 || x.b.attributes != 0 {
			r.t.Fatalf("node %d has fragments %v, open tables %v, names %v", id, x.frags, x.open, x.b.names)
		}
	}
}
