package datanode

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/kernel/kerneltest"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
)

// cluster is a few whole data nodes of one thread each, with two coordinators and two ldms, and a client.
type cluster struct {
	t      *testing.T
	net    *kerneltest.Net
	conf   *config.Config
	nodes  [256]*Node
	events [256]map[event.Type]int
	states [256]uint32
	exits  [256]*signal.ExitOrd
	freed  [256]int

	layout  *schema.Layout
	table   uint16
	version uint16
	buckets []uint16
	chains  []signal.Addr
	answers []answer
}

// answer is what the client got.
type answer struct {
	num  uint16
	ref  uint32
	code uint32
	data []byte
	gci  signal.GCI
}

const clientNode = 51

func memory(bytes uint64) Memory {
	data, src := store.NewLocalSource(bytes, 1<<17, true)
	copies, csrc := store.NewLocalSource(4<<20, 1<<15, true)
	return Memory{Data: data, DataSource: src, Copies: copies, CopiesSource: csrc}
}

func newCluster(t *testing.T, seed uint64, nodes, replicas int) *cluster {
	c := &cluster{t: t, net: kerneltest.New(seed)}
	text := fmt.Sprintf("[NDBD DEFAULT]\nNoOfReplicas=%d\nDataMemory=8M\nMaxNoOfConcurrentOperations=256\nMaxNoOfConcurrentTransactions=64\n[NDB_MGMD]\n[API]\nNodeId=%d\n", replicas, clientNode)
	for i := range nodes {
		text += fmt.Sprintf("[NDBD]\nNodeId=%d\n", i+1)
	}
	conf := parse(t, text)
	c.net.After = func(n *kerneltest.Node) {
		if x := c.nodes[n.ID]; x != nil {
			x.Threads[0].Invariants()
		}
	}
	c.conf = conf
	for i := range nodes {
		c.boot(uint8(i + 1))
	}
	return c
}

// boot starts a node, and links it to all that live.
func (c *cluster) boot(id uint8) {
	cfg, err := FromConfig(c.conf, int(id))
	if err != nil {
		c.t.Fatal(err)
	}
	l := Layout{Threads: 1, Receivers: []int{0}, TCs: []int{0, 0}, LDMs: []int{0, 0}, LogParts: 4}
	kn := c.net.Add(id, signal.PeerData)
	kn.LDMs, kn.TCs = 2, 2
	c.events[id], c.states[id], c.exits[id] = map[event.Type]int{}, 0, nil
	n := New(cfg, l, memory(8<<20), []*kernel.Env{kn.Env})
	c.nodes[id] = n
	n.Threads[0].Runtime = func(h *signal.Head) { c.runtime(kn, h) }
	kn.Handle = func(h *signal.Head) { n.Threads[0].Deliver(unsafe.Pointer(h)) }
	for o := 1; o < 256; o++ {
		if x := c.net.Nodes[o]; o != int(id) && x != nil && !x.Dead() {
			c.net.Link(uint8(o), id)
		}
	}
}

func (c *cluster) runtime(kn *kerneltest.Node, h *signal.Head) {
	id := kn.ID
	switch h.Num {
	case signal.NumHeardReq:
		r := kernel.Send[signal.HeardConf](kn.Env, h.From, h.To, signal.NumHeardConf)
		r.Ref, r.Stall = signal.As[signal.HeardReq](h).Ref, 0
		for i := range r.Age {
			r.Age[i] = signal.NoRef
			if last, up := c.net.Heard(id, uint8(i)); up && i != 0 {
				r.Age[i] = uint32((c.net.Now() - last) / millisecond)
			}
		}
	case signal.NumLinkCloseOrd:
		c.net.Close(id, uint8(signal.As[signal.LinkCloseOrd](h).Node))
	case signal.NumEventRep:
		c.events[id][event.Type((*signal.EventRep)(unsafe.Pointer(h)).Event)]++
	case signal.NumNodeStateRep:
		c.states[id] = (*signal.NodeStateRep)(unsafe.Pointer(h)).State
	case signal.NumExitOrd:
		e := *(*signal.ExitOrd)(unsafe.Pointer(h))
		c.exits[id] = &e
		c.net.Kill(id)
	case signal.NumNodeFreeRep:
		c.freed[id]++
	default:
		c.t.Fatalf("the runtime hears %s", signal.Format(h))
	}
}

func (c *cluster) all(f func(id uint8) bool) func() bool {
	return func() bool {
		for id := range c.nodes {
			if c.nodes[id] != nil && !f(uint8(id)) {
				return false
			}
		}
		return true
	}
}

func (c *cluster) start() *cluster {
	c.t.Helper()
	if !c.net.Until(50*millisecond, c.all(func(id uint8) bool { return c.states[id] == signal.StateStarted })) {
		c.t.Fatalf("not started: %v, %v", c.states[:8], c.net)
	}
	if c.net.Now() != 0 {
		c.t.Fatalf("the start took %d ns of waiting", c.net.Now())
	}
	return c
}

// client makes a client that is linked to all nodes.
func (c *cluster) client() {
	n := c.net.Add(clientNode, signal.PeerAPI)
	n.Handle = func(h *signal.Head) {
		p := unsafe.Pointer(h)
		a := answer{num: h.Num}
		switch h.Num {
		case signal.NumTableCreateConf, signal.NumTableDropConf:
			d := (*signal.TableDone)(p)
			if a.ref = d.Ref; d.Ref == 1 {
				c.table, c.version = uint16(d.Table), uint16(d.Version)
			}
		case signal.NumTableRef:
			d := (*signal.TableRef)(p)
			a.ref, a.code = d.Ref, d.Code
		case signal.NumTableInfoConf:
			d := (*signal.TableInfoConf)(p)
			a.ref = d.Ref
			c.buckets, c.chains = append([]uint16(nil), d.Map()...), append([]signal.Addr(nil), d.Chains()...)
		case signal.NumWriteConf:
			d := (*signal.WriteConf)(p)
			a.ref, a.gci = d.Ref, signal.JoinGCI(d.GCI)
		case signal.NumReadConf:
			d := (*signal.ReadConf)(p)
			a.ref, a.data = d.Ref, bytes.Clone(unsafe.Slice((*byte)(d.Data()), d.DataLen))
		case signal.NumKeyRef:
			d := (*signal.KeyRef)(p)
			a.ref, a.code = d.Ref, d.Code
		case signal.NumTxConf:
			d := (*signal.TxConf)(p)
			a.ref, a.gci = d.Tx, signal.JoinGCI(d.GCI)
		case signal.NumTxRef:
			d := (*signal.TxRef)(p)
			a.ref, a.code = d.Tx, d.Code
		default:
			return
		}
		c.answers = append(c.answers, a)
	}
	for id := range c.nodes {
		if c.nodes[id] != nil {
			c.net.Link(uint8(id), clientNode)
		}
	}
}

func (c *cluster) put(to signal.Addr, num uint16, size uint32) unsafe.Pointer {
	return c.net.Nodes[clientNode].Env.Put(to, signal.MakeAddr(clientNode, signal.BlockClient, 1), num, size)
}

func (c *cluster) ask(f func()) answer {
	c.t.Helper()
	n := len(c.answers)
	f()
	if !c.net.Until(5*second, func() bool { return len(c.answers) > n }) {
		c.t.Fatalf("no answer; %v", c.net)
	}
	return c.answers[n]
}

// createTable makes a table of an integer key and an integer value, and learns where its fragments are.
func (c *cluster) createTable(at uint8) {
	c.t.Helper()
	def := schema.Table{Database: "db", Name: "t", Columns: []schema.Column{{Name: "k", Type: schema.Bigunsigned, PrimaryKey: true}, {Name: "v", Type: schema.Unsigned}}}
	b, err := def.AppendBinary(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if c.layout, err = schema.Compile(&def); err != nil {
		c.t.Fatal(err)
	}
	a := c.ask(func() {
		q := (*signal.TableCreateReq)(c.put(signal.MakeAddr(at, signal.BlockDictionary, 0), signal.NumTableCreateReq, uint32(unsafe.Sizeof(signal.TableCreateReq{}))+uint32(len(b))))
		q.Ref, q.DefLen = 1, uint32(len(b))
		copy(q.Def(), b)
	})
	if a.num != signal.NumTableCreateConf {
		c.t.Fatalf("%+v", a)
	}
	if a := c.ask(func() { c.named(at, signal.NumTableInfoReq) }); a.num != signal.NumTableInfoConf {
		c.t.Fatalf("%+v", a)
	}
}

func (c *cluster) named(at uint8, num uint16) {
	const name = "db/t"
	q := (*signal.TableNameReq)(c.put(signal.MakeAddr(at, signal.BlockDictionary, 0), num, uint32(unsafe.Sizeof(signal.TableNameReq{}))+4))
	q.Ref, q.NameLen = 1, 4
	copy(q.Name(), name)
}

// key sends an operation on a row: one-shot to the primary's ldm, or as a transaction of its own to a coordinator there.
func (c *cluster) key(num uint16, op, flags uint8, key uint64, value uint32, seq uint32) {
	k := make([]byte, 8)
	for i := range k {
		k[i] = byte(key >> (8 * i))
	}
	frag := c.buckets[schema.DistributionBucket(c.layout.DistributionHash(unsafe.Pointer(&k[0]), 8))]
	to := c.chains[int(frag)*signal.MaxReplicas]
	if num == signal.NumKeyReq {
		to = signal.MakeAddr(to.Node(), signal.BlockTC, uint16(key%2))
	}
	data := uint32(0)
	if !signal.IsRead(op) && op != signal.OpDelete {
		data = 4
	}
	r := (*signal.KeyReq)(c.put(to, num, signal.KeyReqSize+8+data))
	h := r.Head
	*r = signal.KeyReq{Head: h, Ref: uint32(key), Tx: uint32(key) + 1000*seq, Seq: seq, Table: c.table, Version: c.version, Frag: frag, Op: op, Flags: flags, KeyLen: 8, DataLen: uint16(data)}
	copy(unsafe.Slice((*byte)(r.Key()), 8), k)
	if data > 0 {
		*(*uint32)(r.Data()) = value
	}
}

func TestAWholeCluster(t *testing.T) {
	for _, shape := range [][2]int{{1, 1}, {2, 1}, {2, 2}, {4, 2}, {3, 3}, {4, 4}} {
		for seed := uint64(1); seed <= 5; seed++ {
			c := newCluster(t, seed, shape[0], shape[1]).start()
			for id := 1; id <= shape[0]; id++ {
				if n := c.events[id]; n[event.ThreadLayout] != 1 || n[event.MemoryLayout] != 11 || n[event.StartPhaseCompleted] != 9 {
					t.Fatalf("node %d reports %v", id, n)
				}
			}
			c.client()
			c.createTable(uint8(1 + int(seed)%shape[0]))
			seq := uint32(0)
			var newest signal.GCI
			for i := range uint64(40) {
				seq++
				num, flags := signal.NumWriteReq, signal.FlagAll
				if i%2 == 1 {
					num, flags = signal.NumKeyReq, signal.FlagAll|signal.FlagStart|signal.FlagExecute|signal.FlagCommit
				}
				a := c.ask(func() { c.key(num, signal.OpInsert, flags, i, uint32(i)*3, seq) })
				if a.num != signal.NumWriteConf && a.num != signal.NumTxConf || a.gci < newest {
					t.Fatalf("%v seed %d: insert %d: %s %+v", shape, seed, i, signal.Name(a.num), a)
				}
				newest = a.gci
				if i%10 == 0 {
					c.net.Run(150 * millisecond)
				}
			}
			if newest < 1<<32+3 {
				t.Fatalf("epochs do not go on: %v", newest)
			}
			for i := range uint64(41) {
				a := c.ask(func() { c.key(signal.NumReadReq, signal.OpReadCommitted, signal.FlagAll, i, 0, 0) })
				if i == 40 {
					if a.num != signal.NumKeyRef || a.code != 626 {
						t.Fatalf("%+v", a)
					}
					continue
				}
				if a.num != signal.NumReadConf || len(a.data) < 4 || *(*uint32)(unsafe.Pointer(&a.data[0])) != uint32(i)*3 {
					t.Fatalf("row %d: %+v", i, a)
				}
			}
			if a := c.ask(func() { c.named(1, signal.NumTableDropReq) }); a.num != signal.NumTableDropConf {
				t.Fatalf("%+v", a)
			}
			for id := 1; id <= shape[0]; id++ {
				for _, l := range c.nodes[id].LDMs {
					if l.Operations() != 0 || l.Copies() != 0 || l.Fragment(0, 0) != nil {
						t.Fatalf("node %d keeps something of a dropped table", id)
					}
				}
			}
			c.net.Kill(clientNode)
			c.net.Run(10 * millisecond)
			for id := 1; id <= shape[0]; id++ {
				if c.freed[id] != 1 {
					t.Fatalf("node %d frees the client's id %d times", id, c.freed[id])
				}
			}
			stop := kernel.Send[signal.StopReq](c.net.Nodes[1].Env, signal.MakeAddr(1, signal.BlockManager, 0), signal.MakeAddr(49, signal.BlockMgm, 0), signal.NumStopReq)
			stop.Ref, stop.Flags, stop.Nodes = 1, signal.StopAll, [8]uint32{}
			at := c.net.Now()
			if !c.net.Until(5*second, c.all(func(id uint8) bool { return c.exits[id] != nil })) || c.net.Now() != at {
				t.Fatalf("does not stop, or waits: %v", c.net)
			}
			for id := 1; id <= shape[0]; id++ {
				if c.exits[id].Code != exitcode.Done {
					t.Fatalf("node %d ends with %d", id, c.exits[id].Code)
				}
			}
		}
	}
}

// Touching ahead reads nothing that is not there, whatever the signals hold.
func TestTouchIsHarmless(t *testing.T) {
	c := newCluster(t, 1, 1, 1).start()
	c.client()
	c.createTable(1)
	th := c.nodes[1].Threads[0]
	var w [16]unsafe.Pointer
	keep := make([][]uint32, len(w))
	for i := range w {
		keep[i] = make([]uint32, 64)
		r := (*signal.KeyReq)(unsafe.Pointer(&keep[i][0]))
		r.Len, r.Num, r.To = 32, signal.NumReadReq, signal.MakeAddr(1, signal.BlockLDM, uint16(i))
		r.Table, r.Frag, r.KeyLen = uint16(i%3), uint16(i), uint16(i)
		if i%5 == 4 {
			r.Num, r.To = signal.NumStopReq, signal.MakeAddr(1, signal.BlockManager, 0)
		}
		w[i] = unsafe.Pointer(r)
	}
	for n := range len(w) + 1 {
		th.Touch(&w, n)
	}
	if n := testing.AllocsPerRun(100, func() { th.Touch(&w, 16) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestASignalOnTheWrongThreadIsABug(t *testing.T) {
	cfg, err := FromConfig(parse(t, "[NDBD]\nNoOfReplicas=1\nDataMemory=2M\n[NDB_MGMD]\n"), 1)
	if err != nil {
		t.Fatal(err)
	}
	l := Combined(2)
	n := New(cfg, l, memory(2<<20), NewEnvs(1, &l, 7))
	for _, to := range []signal.Addr{signal.MakeAddr(1, signal.BlockLDM, 0), signal.MakeAddr(1, signal.BlockTC, 0), signal.MakeAddr(1, signal.BlockManager, 0)} {
		func() {
			defer func() {
				if _, ok := recover().(invariant.Violation); !ok {
					t.Errorf("%v on thread 1", to)
				}
			}()
			n.Threads[1].Deliver(unsafe.Pointer(&signal.Head{Len: 3, Num: signal.NumTickOrd, To: to}))
		}()
	}
	if n.Threads[1].Env.Dest(signal.MakeAddr(1, signal.BlockLDM, 0)) != kernel.ThreadDest(0) {
		t.Error("blocks are not placed in every Env")
	}
}

// What a node takes from the Go heap stays within its named sum.
func TestTheSumHolds(t *testing.T) {
	cfg, err := FromConfig(parse(t, "[NDBD]\nNoOfReplicas=1\nDataMemory=2M\nMaxNoOfConcurrentOperations=100000\nMaxNoOfConcurrentTransactions=50000\n[NDB_MGMD]\n[API]\n"), 1)
	if err != nil {
		t.Fatal(err)
	}
	l := Combined(2)
	m := memory(2 << 20)
	envs := NewEnvs(1, &l, 7)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	n := New(cfg, l, m, envs)
	runtime.GC()
	runtime.ReadMemStats(&after)
	took, sum := int64(after.HeapAlloc-before.HeapAlloc), int64(0)
	for _, i := range MemorySum(&cfg, &l)[2:5] { // records: what is taken at once
		sum += i.Bytes
	}
	if took > sum+8<<20 || took < sum*8/10 {
		t.Errorf("%d KB of records took %d KB", sum>>10, took>>10)
	}
	runtime.KeepAlive(n)
}
