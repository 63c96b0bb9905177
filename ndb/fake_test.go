package ndb

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
)

// fakeCluster is data nodes that speak the protocol over real sockets and keep rows in maps: enough to try the client
// against every kind of answer. All nodes share the rows.
type fakeCluster struct {
	t     testing.TB
	nodes []*fakeNode
	conf  *config.Config

	mu     sync.Mutex
	tables map[string]*fakeTable
	nextID uint32
	acks   map[signal.Addr]uint32 // last acknowledgement by session
	closes map[signal.Addr]int    // CloseOrd by session
	open   map[[2]uint32]*fakeTx
	gci    uint32
	// rowSize is the bytes of an image of the last table's rows whose variable columns are empty
	rowSize uint32
	counts  [signal.NumMax]int

	replicas int                               // of each fragment
	primary  func(frag int) int                // place in nodes of a fragment's primary; nil: they take turns
	outcome  func(r *signal.OutcomeReq) uint32 // what is known of a commit
	view     uint32                            // of the cluster
	members  signal.NodeSet                    // of it
	refusals atomic.Int32                      // links that were refused

	quiet atomic.Bool // answer without allocating: reads with a row of zeros, writes as if done
	// hook sees each request first; true: it was dealt with. Called with mu held.
	hook atomic.Pointer[func(p *fakeSocket, h *signal.Head) bool]
}

type fakeNode struct {
	c       *fakeCluster
	id      uint8
	ln      net.Listener // guarded by mu
	addr    *net.TCPAddr
	sockets int
	secret  atomic.Uint32
	mu      sync.Mutex
	live    map[net.Conn]bool // true: the one that a client's library speaks through
	state   atomic.Uint32
	refuse  atomic.Uint32 // reason to refuse links; 0 = none
	deaf    atomic.Bool   // it hangs: takes everything, answers nothing
	said    chan []byte   // frames that came for it and are no requests of a client's library
}

type fakeTable struct {
	def    *schema.Table
	layout *schema.Layout
	raw    []byte
	rows   map[string]fakeRow
}

type fakeRow struct{ fixed, vari []byte }

type fakeTx struct {
	writes []func()
	ref    uint32
}

type fakeSocket struct {
	n   *fakeNode
	nc  net.Conn
	out []byte
}

// newFake starts n nodes with as many sockets each.
func newFake(t testing.TB, n, sockets int) *fakeCluster {
	var text strings.Builder
	text.WriteString("[ndbd default]\nNoOfReplicas=1\n")
	for range n {
		text.WriteString("[ndbd]\nHostName=127.0.0.1\n")
	}
	text.WriteString("[ndb_mgmd]\nHostName=127.0.0.1\n[api]\n[api]\n[api]\nArbitrationRank=1\nArbitrationDelay=15\n")
	conf, _, err := config.Parse([]byte(text.String()), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return newFakeOf(t, conf, sockets)
}

// newFakeOf starts the data nodes of a configuration.
func newFakeOf(t testing.TB, conf *config.Config, sockets int) *fakeCluster {
	c := &fakeCluster{t: t, tables: map[string]*fakeTable{}, acks: map[signal.Addr]uint32{}, closes: map[signal.Addr]int{},
		open: map[[2]uint32]*fakeTx{}, gci: 1, conf: conf, replicas: 1}
	for _, n := range conf.DataNodes() {
		f := &fakeNode{c: c, id: uint8(n.ID), sockets: sockets, live: map[net.Conn]bool{},
			said: make(chan []byte, 100)}
		f.secret.Store(1)
		f.state.Store(signal.StateStarted)
		f.listen("127.0.0.1:0")
		c.nodes = append(c.nodes, f)
	}
	t.Cleanup(func() {
		for _, f := range c.nodes {
			f.kill()
		}
	})
	return c
}

func (f *fakeNode) listen(addr string) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		f.c.t.Fatal(err)
	}
	f.mu.Lock()
	f.ln = ln
	f.mu.Unlock()
	if f.addr == nil {
		f.addr = ln.Addr().(*net.TCPAddr)
	}
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.live[nc] = false
			f.mu.Unlock()
			go f.serve(nc)
		}
	}()
}

// kill closes all links and the port; back opens the port again, as a new run of the node.
func (f *fakeNode) kill() {
	f.mu.Lock()
	f.ln.Close()
	for nc := range f.live {
		nc.Close()
	}
	f.live = map[net.Conn]bool{}
	f.mu.Unlock()
}

func (f *fakeNode) back() {
	f.secret.Add(1)
	f.listen(f.addr.String())
}

// fakeManager is a manager that knows everything.
type fakeManager struct {
	c  *fakeCluster
	id int
}

func (m *fakeManager) nodeID() int            { return m.id }
func (m *fakeManager) config() *config.Config { return m.c.conf }
func (m *fakeManager) keep(context.Context)   {}
func (m *fakeManager) close()                 {}
func (m *fakeManager) port(_ context.Context, node int) (int, error) {
	for _, f := range m.c.nodes {
		if int(f.id) == node {
			return f.addr.Port, nil
		}
	}
	return 0, nil
}

// connect makes a connection that is ready: of the first API node, or of Options.NodeID.
func (c *fakeCluster) connect(o Options) *Conn {
	c.t.Helper()
	if o.NodeID == 0 {
		o.NodeID = c.conf.APINodes()[0].ID
	}
	conn, err := newConn(&fakeManager{c, o.NodeID}, 7, o)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := conn.WaitReady(ctx, 0); err != nil {
		c.t.Fatal(err)
	}
	return conn
}

// send sends a signal to a client's node over every link that there is to it from this node; one of them is enough, and
// more do no harm where it is used.
func send[T any](f *fakeNode, to, from signal.Addr, num uint16, set func(*T)) {
	p := &fakeSocket{n: f}
	set(put[T](p, to, from, num, nil))
	f.mu.Lock()
	defer f.mu.Unlock()
	for nc, ready := range f.live {
		if ready {
			_, _ = nc.Write(p.out)
			return
		}
	}
}

func (f *fakeNode) block(b uint8) signal.Addr { return signal.MakeAddr(f.id, b, 0) }

// tell makes a node tell a client how it is.
func (f *fakeNode) tell(c *Conn, change func(*signal.NodeStateRep)) {
	send(f, signal.MakeAddr(uint8(c.NodeID()), signal.BlockClient, 0), f.block(signal.BlockManager), signal.NumNodeStateRep,
		func(r *signal.NodeStateRep) {
			f.stateRep(r)
			change(r)
		})
}

func (f *fakeNode) stateRep(r *signal.NodeStateRep) {
	r.State, r.DynamicID, r.View, r.Members = f.state.Load(), uint32(f.id)+100*(f.secret.Load()-1), f.c.view, f.c.members
}

func (c *fakeCluster) setHook(f func(p *fakeSocket, h *signal.Head) bool) {
	if f == nil {
		c.hook.Store(nil)
		return
	}
	c.hook.Store(&f)
}

func (c *fakeCluster) count(num uint16) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[num]
}

func (f *fakeNode) serve(nc net.Conn) {
	defer nc.Close()
	p := &fakeSocket{n: f, nc: nc}
	buf := make([]byte, 4096)
	n := 0
	for {
		m, err := nc.Read(buf[n:])
		if err != nil {
			return
		}
		if f.deaf.Load() {
			continue
		}
		n += m
		in := buf[:n]
		f.c.mu.Lock()
		for {
			k, fault := signal.Whole(in)
			if fault != nil {
				f.c.t.Error(fault)
				f.c.mu.Unlock()
				return
			}
			if k == 0 {
				break
			}
			h := (*signal.Head)(unsafe.Pointer(&in[0]))
			if fault := signal.Check(h, signal.PeerAPI, h.From.Node(), f.id); fault != nil && h.Num != signal.NumHello {
				f.c.t.Error(fault)
				f.c.mu.Unlock()
				return
			}
			if h.Num < signal.NumMax {
				f.c.counts[h.Num]++
			}
			if f.c.quiet.Load() && p.handleQuietly(h) {
				in = in[k:]
				continue
			}
			if hook := f.c.hook.Load(); hook == nil || !(*hook)(p, h) {
				p.handle(h)
			}
			in = in[k:]
		}
		f.c.mu.Unlock()
		if len(p.out) > 0 {
			if _, err := nc.Write(p.out); err != nil {
				return
			}
			p.out = p.out[:0]
		}
		rest := len(in)
		if len(in) >= 4 {
			if need := int((*signal.Head)(unsafe.Pointer(&in[0])).Bytes()); need > len(buf) {
				buf = append(append([]byte(nil), in...), make([]byte, need)...)
				n = rest
				continue
			}
		}
		copy(buf, in)
		if n = rest; n == len(buf) || len(buf) < 64<<10 {
			buf = append(buf, make([]byte, len(buf))...)
		}
	}
}

// put appends a signal to what the socket will send.
func put[T any](p *fakeSocket, to, from signal.Addr, num uint16, tail []byte) *T {
	var z T
	size := int(unsafe.Sizeof(z))
	at := len(p.out)
	p.out = append(p.out, make([]byte, size+int(signal.Pad(uint32(len(tail)))))...)
	copy(p.out[at+size:], tail)
	h := (*signal.Head)(unsafe.Pointer(&p.out[at]))
	h.Len, h.Num, h.To, h.From = uint16((len(p.out)-at)/4), num, to, from
	return (*T)(unsafe.Pointer(h))
}

func cast[T any](h *signal.Head) *T { return (*T)(unsafe.Pointer(h)) }

func (p *fakeSocket) handle(h *signal.Head) {
	c := p.n.c
	switch h.Num {
	case signal.NumHello:
		r := cast[signal.Hello](h)
		if code := p.n.refuse.Load(); code != 0 {
			text := "not ready"
			x := put[signal.HelloRef](p, h.From, h.To, signal.NumHelloRef, []byte(text))
			x.Code, x.TextLen = code, uint32(len(text))
			c.refusals.Add(1)
			return
		}
		x := put[signal.HelloConf](p, h.From, h.To, signal.NumHelloConf, nil)
		x.Version, x.Node, x.Sockets, x.LDMs, x.TCs = r.Version, uint32(p.n.id), uint32(p.n.sockets), 2, 2
		x.Secret[0] = p.n.secret.Load()
	case signal.NumApiRegReq:
		x := put[signal.ApiRegConf](p, h.From, h.To, signal.NumApiRegConf, nil)
		x.Ref, x.State, x.LDMs, x.TCs, x.Replicas = cast[signal.ApiRegReq](h).Ref, p.n.state.Load(), 2, 2, 1
		p.n.stateRep(put[signal.NodeStateRep](p, h.From, h.To, signal.NumNodeStateRep, nil))
		p.n.mu.Lock()
		if _, there := p.n.live[p.nc]; there {
			p.n.live[p.nc] = true
		}
		p.n.mu.Unlock()
	case signal.NumTableCreateReq:
		r := cast[signal.TableCreateReq](h)
		def, err := schema.DecodeTable(r.Def())
		if err != nil {
			c.t.Error(err)
			return
		}
		full := def.Database + "/" + def.Name
		if c.tables[full] != nil {
			x := put[signal.TableRef](p, h.From, h.To, signal.NumTableRef, nil)
			x.Ref, x.Code = r.Ref, 721
			return
		}
		c.nextID++
		def.ID, def.Version, def.Fragments = c.nextID, 1, uint32(2*len(c.nodes))
		raw, _ := def.AppendBinary(nil)
		layout, _ := schema.Compile(def)
		c.rowSize = layout.FixedSize + layout.VarHead
		c.tables[full] = &fakeTable{def: def, layout: layout, raw: raw, rows: map[string]fakeRow{}}
		x := put[signal.TableDone](p, h.From, h.To, signal.NumTableCreateConf, nil)
		x.Ref, x.Table, x.Version = r.Ref, def.ID, def.Version
	case signal.NumTableDropReq, signal.NumTableInfoReq:
		r := cast[signal.TableNameReq](h)
		t := c.tables[string(r.Name())]
		if t == nil {
			x := put[signal.TableRef](p, h.From, h.To, signal.NumTableRef, nil)
			x.Ref, x.Code = r.Ref, 723
			return
		}
		if h.Num == signal.NumTableDropReq {
			delete(c.tables, string(r.Name()))
			x := put[signal.TableDone](p, h.From, h.To, signal.NumTableDropConf, nil)
			x.Ref = r.Ref
			return
		}
		p.info(t, h, r.Ref)
	case signal.NumTableListReq:
		r := cast[signal.TableListReq](h)
		var body []byte
		count, more := uint32(0), uint32(0)
		for id := r.After; id <= c.nextID; id++ {
			for full, t := range c.tables {
				if t.def.ID != id {
					continue
				}
				if count == 1 { // one a time, to try the paging
					more = 1
					continue
				}
				e := [4]uint32{id, 1, 0, uint32(len(full))}
				body = append(body, unsafe.Slice((*byte)(unsafe.Pointer(&e)), 16)...)
				body = append(body, full...)
				for len(body)%4 != 0 {
					body = append(body, 0)
				}
				count++
			}
		}
		x := put[signal.TableListConf](p, h.From, h.To, signal.NumTableListConf, body)
		x.Ref, x.Count, x.More, x.BodyLen = r.Ref, count, more, uint32(len(body))
	case signal.NumReadReq, signal.NumWriteReq, signal.NumKeyReq:
		p.key(cast[signal.KeyReq](h))
	case signal.NumTxReq:
		r := cast[signal.TxReq](h)
		c.acks[h.From] = r.Ack
		p.end(h, r.Tx, r.Action)
	case signal.NumAckOrd:
		c.acks[h.From] = cast[signal.AckOrd](h).Ack
	case signal.NumCloseOrd:
		c.closes[h.From]++
	case signal.NumOutcomeReq:
		r := cast[signal.OutcomeReq](h)
		x := put[signal.OutcomeConf](p, h.From, h.To, signal.NumOutcomeConf, nil)
		x.Tx, x.Seq, x.Known, x.GCI = r.Tx, r.Seq, c.outcome(r), [2]uint32{c.gci, 9}
	case signal.NumArbitStartConf, signal.NumArbitChooseConf, signal.NumArbitChooseRef:
		p.n.said <- append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(h)), h.Bytes())...)
	default:
		c.t.Errorf("a data node got %s", signal.Format(h))
	}
}

// handleQuietly answers operations on rows without allocating; false: it is another kind of signal.
func (p *fakeSocket) handleQuietly(h *signal.Head) bool {
	switch h.Num {
	case signal.NumReadReq, signal.NumWriteReq, signal.NumKeyReq:
	case signal.NumAckOrd:
		return true
	default:
		return false
	}
	r := cast[signal.KeyReq](h)
	if signal.IsRead(r.Op) {
		x := putRoom[signal.ReadConf](p, r.From, signal.MakeAddr(p.n.id, signal.BlockLDM, 0), signal.NumReadConf, p.n.c.rowSize)
		x.Ref, x.Tx, x.DataLen = r.Ref, r.Tx, p.n.c.rowSize
	}
	switch {
	case r.Num == signal.NumWriteReq:
		x := putRoom[signal.WriteConf](p, r.From, r.To, signal.NumWriteConf, 0)
		x.Ref, x.Tx, x.GCI = r.Ref, r.Tx, [2]uint32{1, 1}
	case r.Flags&signal.FlagCommit != 0:
		x := putRoom[signal.TxConf](p, r.From, r.To, signal.NumTxConf, 0)
		x.Tx, x.Committed, x.GCI = r.Tx, 1, [2]uint32{1, 1}
	}
	return true
}

// putRoom is put with n zero bytes behind the signal; it allocates only until the buffer is large enough.
func putRoom[T any](p *fakeSocket, to, from signal.Addr, num uint16, n uint32) *T {
	size := int(unsafe.Sizeof(*new(T))) + int(n)
	at := len(p.out)
	if cap(p.out) < at+size {
		p.out = append(make([]byte, 0, 2*(at+size)), p.out...)
	}
	p.out = p.out[:at+size]
	clear(p.out[at:])
	h := (*signal.Head)(unsafe.Pointer(&p.out[at]))
	h.Len, h.Num, h.To, h.From = uint16(size/4), num, to, from
	return (*T)(unsafe.Pointer(h))
}

func (p *fakeSocket) info(t *fakeTable, h *signal.Head, ref uint32) {
	c := p.n.c
	n := signal.TableOpenSize(uint32(len(t.raw)), schema.DistributionBuckets, t.def.Fragments)
	tail := make([]byte, n-uint32(unsafe.Sizeof(signal.TableOpenReq{})))
	x := put[signal.TableOpenReq](p, h.From, h.To, signal.NumTableInfoConf, tail)
	x.Ref, x.Table, x.Version, x.Fragments, x.Buckets, x.DefLen = ref, t.def.ID, t.def.Version, t.def.Fragments, schema.DistributionBuckets, uint32(len(t.raw))
	copy(x.Def(), t.raw)
	for i := range x.Map() {
		x.Map()[i] = uint16(uint32(i) % t.def.Fragments)
	}
	for i := range int(t.def.Fragments) {
		first := i % len(c.nodes)
		if c.primary != nil {
			first = c.primary(i)
		}
		for k := range c.replicas {
			x.Chains()[i*signal.MaxReplicas+k] = signal.MakeAddr(c.nodes[(first+k)%len(c.nodes)].id, signal.BlockLDM, uint16(i/len(c.nodes)))
		}
	}
}

func (p *fakeSocket) keyRef(r *signal.KeyReq, code uint32) {
	x := put[signal.KeyRef](p, r.From, r.To, signal.NumKeyRef, nil)
	x.Ref, x.Tx, x.Code = r.Ref, r.Tx, code
}

func (p *fakeSocket) key(r *signal.KeyReq) {
	c := p.n.c
	c.acks[r.From] = r.Ack
	var t *fakeTable
	for _, x := range c.tables {
		if x.def.ID == uint32(r.Table) && x.def.Version == uint32(r.Version) {
			t = x
		}
	}
	direct := r.Num != signal.NumKeyReq
	id := [2]uint32{uint32(r.From), r.Tx}
	var tx *fakeTx
	if !direct {
		if r.Flags&signal.FlagStart != 0 {
			c.open[id] = &fakeTx{ref: signal.NoRef}
		}
		if tx = c.open[id]; tx == nil {
			return // aborted
		}
	}
	code, write := uint32(0), func() {}
	if t == nil {
		code = 241
	} else {
		code, write = p.execute(t, r)
	}
	switch {
	case code != 0 && direct, code != 0 && r.Flags&signal.FlagIgnoreError != 0:
		p.keyRef(r, code)
	case code != 0:
		x := put[signal.TxRef](p, r.From, r.To, signal.NumTxRef, nil)
		x.Tx, x.Code, x.Ref = r.Tx, code, r.Ref
		delete(c.open, id)
		return
	case direct && !signal.IsRead(r.Op):
		write()
		c.gci++
		x := put[signal.WriteConf](p, r.From, r.To, signal.NumWriteConf, nil)
		x.Ref, x.Tx, x.GCI = r.Ref, r.Tx, [2]uint32{c.gci, 9}
	case !direct:
		tx.writes = append(tx.writes, write)
	}
	if r.Flags&signal.FlagExecute != 0 {
		action := signal.TxExecute
		if r.Flags&signal.FlagCommit != 0 {
			action = signal.TxCommit
		}
		p.end(&r.Head, r.Tx, action)
	}
}

func (p *fakeSocket) end(h *signal.Head, num, action uint32) {
	c := p.n.c
	id := [2]uint32{uint32(h.From), num}
	tx := c.open[id]
	if action == signal.TxRollback {
		delete(c.open, id)
		x := put[signal.TxRef](p, h.From, h.To, signal.NumTxRef, nil)
		x.Tx, x.Code, x.Ref = num, 0, signal.NoRef
		return
	}
	if tx == nil {
		return
	}
	x := put[signal.TxConf](p, h.From, h.To, signal.NumTxConf, nil)
	x.Tx = num
	if action == signal.TxCommit {
		for _, f := range tx.writes {
			f()
		}
		delete(c.open, id)
		c.gci++
		x.Committed, x.GCI = 1, [2]uint32{c.gci, 9}
	}
}

// execute checks an operation, sends the row of a read, and returns what a write does when it commits.
func (p *fakeSocket) execute(t *fakeTable, r *signal.KeyReq) (uint32, func()) {
	l := t.layout
	if code := l.CheckKey(r.Key(), uint32(r.KeyLen)); code != 0 {
		return code, nil
	}
	key := string(unsafe.Slice((*byte)(r.Key()), r.KeyLen))
	row, found := t.rows[key]
	all := r.Flags&signal.FlagAll != 0
	none := func() {}
	switch {
	case signal.IsRead(r.Op):
		if !found {
			return 626, nil
		}
		mask := r.Data()
		n := uint32(len(row.fixed) + len(row.vari))
		if all {
			mask = nil
		} else {
			if code := l.CheckMask(mask, uint32(r.DataLen)); code != 0 {
				return code, nil
			}
			n = l.ProjectSize(mask, pointer(row.vari), uint32(len(row.vari)))
		}
		x := put[signal.ReadConf](p, r.From, signal.MakeAddr(p.n.id, signal.BlockLDM, 0), signal.NumReadConf, make([]byte, n))
		x.Ref, x.Tx, x.DataLen = r.Ref, r.Tx, n
		l.Project(mask, pointer(row.fixed), pointer(row.vari), uint32(len(row.vari)), x.Data())
		return 0, none
	case r.Op == signal.OpInsert && found:
		return 630, nil
	case (r.Op == signal.OpUpdate || r.Op == signal.OpDelete) && !found:
		return 626, nil
	case r.Op == signal.OpDelete:
		return 0, func() { delete(t.rows, key) }
	}
	data := append([]byte(nil), unsafe.Slice((*byte)(r.Data()), r.DataLen)...)
	data = append(data, 0, 0, 0, 0)
	w, code := l.CheckWrite(pointer(data), uint32(r.DataLen), all)
	if code == 0 && !found {
		code = l.CheckInsert(w.Mask)
	}
	if code != 0 {
		return code, nil
	}
	return 0, func() {
		old := t.rows[key]
		fixed, vari := make([]byte, l.FixedSize+4), make([]byte, l.VarMax+8)
		var oldFixed unsafe.Pointer
		if old.fixed != nil {
			oldFixed = pointer(old.fixed)
		}
		n := l.Apply(w, oldFixed, pointer(old.vari), uint32(len(old.vari)), pointer(fixed), pointer(vari))
		t.rows[key] = fakeRow{fixed[:l.FixedSize], vari[:n]}
	}
}

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
