package client

// The connection: which data nodes serve, and everything about tables.
//
//	runtime --LinkUpRep--> conn --ApiRegReq--> manager --ApiRegConf--> conn     for each node
//	manager --NodeStateRep--> conn                                              then, and on each change
//	conn --TableInfoReq|TableCreateReq|TableDropReq|TableListReq--> dictionary --…Conf|TableRef--> conn
//
// A node that hangs closes no link. What the others say about it counts: one that took transactions and is no member of
// a newer view than its own gets nothing new any more, and is lost a moment later, whatever its links say (Node.Up is
// false); the runtime closes them (TakeOut). The moment is for what it has still answered.

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
)

// maxRequests bounds the requests about tables that are under way at once.
const maxRequests = 256

// request is a request about a table that is under way.
type request struct {
	num      uint16 // of the signal that was sent; 0 = free
	gen      uint32
	node     uint8
	deadline int64
	info     func(*Table, *ndberror.Error)
	done     func(*ndberror.Error)
	list     func([]TableEntry, *ndberror.Error)
	entries  []TableEntry
}

// TableEntry names a table of the cluster.
type TableEntry struct {
	ID, Version uint32
	Flags       uint32
	Name        string // database/table
}

// TableLogged in the Flags of a TableEntry: the table's rows are logged.
const TableLogged = 1

// Conn is the block of a connection.
type Conn struct {
	env      *kernel.Env
	self     signal.Addr
	software uint32
	view     *View
	requests []request
	turn     uint32
	said     [256]said // by node
	known    []*known  // by table id
	fetching int       // maps that are being asked for
	leaving  int       // nodes that were put out and are not lost yet
	out      []uint8   // nodes whose links the runtime is to close

	// Malformed counts answers that contradict themselves, Stale those to what was over.
	Malformed, Stale uint64
}

// outGrace is how long a node that was put out of the cluster may still say what it has to say, nanoseconds.
const outGrace = 20_000_000

// said is what a node has said of itself and the cluster since its links came up.
type said struct {
	started bool
	outAt   int64          // not 0: it was put out of the cluster, and is lost then
	view    uint32         // its committed view, 0 = none or not known
	members signal.NodeSet // of that
}

// NewConn makes the block of node id env.Node(). software is the program's version, for the data nodes.
func NewConn(env *kernel.Env, software uint32) *Conn {
	return &Conn{env: env, self: signal.MakeAddr(env.Node(), signal.BlockClient, 0), software: software, view: noView}
}

// View is the newest view. It changes only inside Deliver and SetDistance.
func (c *Conn) View() *View { return c.view }

// change makes a new view with one node changed.
func (c *Conn) change(id uint8, f func(*Node)) {
	v := *c.view
	f(&v.nodes[id])
	v.nodes[id].ID = id
	v.seal()
	c.view = &v
}

// SetDistance says how far a data node is: transactions without a place of their own go to the nearest.
func (c *Conn) SetDistance(id uint8, distance uint32) {
	c.change(id, func(n *Node) { n.Distance = distance })
}

// Deliver executes one signal that came for instance 0, or a LinkUpRep or LinkDownRep of the runtime.
func (c *Conn) Deliver(h *signal.Head) {
	switch h.Num {
	case signal.NumLinkUpRep:
		c.onLinkUp(signal.As[signal.LinkRep](h))
	case signal.NumLinkDownRep:
		c.onLinkDown(signal.As[signal.LinkRep](h))
	case signal.NumApiRegConf:
		c.onApiRegConf(signal.As[signal.ApiRegConf](h))
	case signal.NumNodeStateRep:
		c.onNodeStateRep(signal.As[signal.NodeStateRep](h))
	case signal.NumTableInfoConf:
		c.onTableInfoConf(signal.As[signal.TableInfoConf](h))
	case signal.NumTableCreateConf, signal.NumTableDropConf:
		c.onTableDone(signal.As[signal.TableDone](h))
	case signal.NumTableListConf:
		c.onTableListConf(signal.As[signal.TableListConf](h))
	case signal.NumTableRef:
		c.onTableRef(signal.As[signal.TableRef](h))
	default:
		c.Malformed++
	}
}

func (c *Conn) onLinkUp(r *signal.LinkRep) {
	invariant.That(r.Node > 0 && r.Node < 256, "a data node has an id")
	id := uint8(r.Node)
	c.forget(id)
	c.change(id, func(n *Node) {
		n.Up, n.Started, n.Coming, n.State, n.Group, n.DynamicID = true, false, false, signal.StateStarting, signal.NoRef, 0
		n.LDMs, n.TCs, n.Software = r.LDMs, r.TCs, r.Software
		n.Life++
	})
	q := kernel.Send[signal.ApiRegReq](c.env, signal.MakeAddr(id, signal.BlockManager, 0), c.self, signal.NumApiRegReq)
	q.Ref, q.Version = c.view.nodes[id].Life, c.software
}

func (c *Conn) onLinkDown(r *signal.LinkRep) { c.down(uint8(r.Node)) }

// down: nothing will come from a node any more.
func (c *Conn) down(id uint8) {
	c.forget(id)
	if n := &c.view.nodes[id]; !n.Up && n.State == signal.StateNotStarted {
		return
	}
	c.change(id, func(n *Node) { n.Up, n.Started, n.State = false, false, signal.StateNotStarted })
	for i := range c.requests {
		q := &c.requests[i]
		if q.num != 0 && q.node == id {
			c.failed(q, q.lostCode())
		}
	}
}

// lostCode is the error of a request whose answer will not come.
func (q *request) lostCode() int {
	if q.num == signal.NumTableCreateReq || q.num == signal.NumTableDropReq {
		return ndberror.AnswerLost
	}
	return ndberror.NodeFailed
}

func (c *Conn) onApiRegConf(r *signal.ApiRegConf) {
	n := &c.view.nodes[r.From.Node()]
	if !n.Up || r.Ref != n.Life || r.LDMs == 0 || r.TCs == 0 || r.LDMs > 0xffff || r.TCs > 0xffff {
		c.Malformed++
		return
	}
	c.change(r.From.Node(), func(n *Node) { n.State, n.LDMs, n.TCs = r.State, r.LDMs, r.TCs })
}

// onNodeStateRep hears how a node is, and from it who is in the cluster.
func (c *Conn) onNodeStateRep(r *signal.NodeStateRep) {
	id := r.From.Node()
	if !c.view.nodes[id].Up {
		c.Stale++
		return
	}
	open := r.State == signal.StateStarted || r.State == signal.StateSingleUser
	if r.Single != 0 {
		open = open && r.Single == uint32(c.env.Node())
	}
	before := c.newest()
	x := &c.said[id]
	x.started, x.view, x.members = open, r.View, r.Members
	c.change(id, func(n *Node) { n.State, n.Group, n.DynamicID = r.State, r.NodeGroup, r.DynamicID })
	moved := before != 0 && c.newest() > before // the order of fragments' replicas may have changed
	for i := range c.view.nodes {
		x := uint8(i)
		n := &c.view.nodes[i]
		if !n.Up {
			if coming := n.ID != 0 && r.View != 0 && r.View == c.newest() && r.Members.Has(x); coming != n.Coming {
				c.change(x, func(n *Node) { n.Coming = coming })
			}
			continue
		}
		outside := c.outside(x)
		if outside && n.Started && c.said[x].outAt == 0 {
			c.said[x].outAt = c.env.Now() + outGrace
			c.leaving++
		}
		if start := c.said[x].started && !outside; start != n.Started {
			c.change(x, func(n *Node) { n.Started = start })
			moved = moved || start
		}
	}
	if moved {
		c.refreshAll()
	}
}

// forget drops what a node has said.
func (c *Conn) forget(id uint8) {
	if c.said[id].outAt != 0 {
		c.leaving--
	}
	c.said[id] = said{}
}

// loseNodes loses the nodes that were put out of the cluster and have had their time.
func (c *Conn) loseNodes() {
	for i := range c.said {
		if at := c.said[i].outAt; at != 0 && at <= c.env.Now() {
			c.out = append(c.out, uint8(i))
			c.down(uint8(i))
		}
	}
}

// newest is the number of the newest view that any node has told of.
func (c *Conn) newest() uint32 {
	newest := uint32(0)
	for i := range c.said {
		newest = max(newest, c.said[i].view)
	}
	return newest
}

// outside tells whether a node has been put out of the cluster without knowing it: another one has committed a newer view
// without it.
func (c *Conn) outside(id uint8) bool {
	for i := range c.view.nodes {
		o := &c.said[i]
		if c.view.nodes[i].Up && o.view > c.said[id].view && !o.members.Has(id) {
			return true
		}
	}
	return false
}

// TakeOut calls f with each node that was put out of the cluster since the last call: the runtime closes its links.
func (c *Conn) TakeOut(f func(id uint8)) {
	for _, id := range c.out {
		f(id)
	}
	c.out = c.out[:0]
}

// TableInfo asks for a table by "database/table". done is called later, from Deliver or Tick, or at once when nobody
// can be asked.
func (c *Conn) TableInfo(name string, timeout int64, done func(*Table, *ndberror.Error)) {
	q, to := c.begin(signal.NumTableInfoReq, timeout)
	if q == nil {
		done(nil, to.err)
		return
	}
	q.info = done
	c.sendName(q, to.addr, name)
}

// DropTable drops a table by "database/table".
func (c *Conn) DropTable(name string, timeout int64, done func(*ndberror.Error)) {
	q, to := c.begin(signal.NumTableDropReq, timeout)
	if q == nil {
		done(to.err)
		return
	}
	q.done = done
	c.sendName(q, to.addr, name)
}

// CreateTable creates a table; its id, version and, if 0, fragments are chosen by the cluster.
func (c *Conn) CreateTable(def *schema.Table, timeout int64, done func(*ndberror.Error)) {
	b, err := def.AppendBinary(nil)
	if err != nil || len(b) > signal.MaxSize/2 {
		code := schema.CodeInvalidTable
		if e, ok := err.(*schema.Error); ok {
			code = int(e.Code)
		}
		done(ndberror.Get(code))
		return
	}
	q, to := c.begin(signal.NumTableCreateReq, timeout)
	if q == nil {
		done(to.err)
		return
	}
	q.done = done
	n := uint32(unsafe.Sizeof(signal.TableCreateReq{}))
	r := (*signal.TableCreateReq)(c.env.Put(to.addr, c.self, q.num, n+signal.Pad(uint32(len(b)))))
	r.Ref, r.DefLen = c.ref(q), uint32(len(b))
	copy(r.Def(), b)
}

// ListTables asks for the names of all tables.
func (c *Conn) ListTables(timeout int64, done func([]TableEntry, *ndberror.Error)) {
	q, to := c.begin(signal.NumTableListReq, timeout)
	if q == nil {
		done(nil, to.err)
		return
	}
	q.list = done
	r := kernel.Send[signal.TableListReq](c.env, to.addr, c.self, q.num)
	r.Ref, r.After = c.ref(q), 0
}

func (c *Conn) sendName(q *request, to signal.Addr, name string) {
	n := uint32(unsafe.Sizeof(signal.TableNameReq{}))
	r := (*signal.TableNameReq)(c.env.Put(to, c.self, q.num, n+signal.Pad(uint32(len(name)))))
	if k := signal.Pad(uint32(len(name))); k > 0 {
		zero(unsafe.Add(unsafe.Pointer(r), n+k-4), 4)
	}
	r.Ref, r.NameLen = c.ref(q), uint32(len(name))
	copy(r.Name(), name)
}

// target is whom a request goes to, or why it goes to nobody.
type target struct {
	addr signal.Addr
	err  *ndberror.Error
}

// begin takes a record for a request, which goes to one of the nearest nodes.
func (c *Conn) begin(num uint16, timeout int64) (*request, target) {
	if len(c.view.near) == 0 {
		return nil, target{err: ndberror.Get(ndberror.ClusterNotReady)}
	}
	c.turn++
	node := c.view.near[c.turn%uint32(len(c.view.near))]
	i := 0
	for i < len(c.requests) && c.requests[i].num != 0 {
		i++
	}
	if i == maxRequests {
		return nil, target{err: ndberror.Get(ndberror.TooManyOperations)}
	}
	if i == len(c.requests) {
		c.requests = append(c.requests, request{})
	}
	q := &c.requests[i]
	*q = request{num: num, gen: q.gen + 1, node: node, deadline: c.env.Now() + timeout}
	return q, target{addr: signal.MakeAddr(node, signal.BlockDictionary, 0)}
}

// ref names a request: its place and, so that a late answer finds nobody, how often the place was used.
func (c *Conn) ref(q *request) uint32 {
	for i := range c.requests {
		if q == &c.requests[i] {
			return q.gen*maxRequests + uint32(i)
		}
	}
	invariant.Failf("a request that has no place")
	return 0
}

// answered finds the request that an answer is about, and checks that it is an answer to that.
func (c *Conn) answered(ref uint32, from signal.Addr, num uint16) *request {
	if i := ref % maxRequests; i < uint32(len(c.requests)) {
		q := &c.requests[i]
		if q.num != 0 && q.gen*maxRequests == ref-i && from.Node() == q.node {
			if num == 0 || num == q.num {
				return q
			}
			c.Malformed++
			return nil
		}
	}
	c.Stale++
	return nil
}

// free gives a request's record back and returns what it was.
func (q *request) free() request {
	r := *q
	*q = request{gen: q.gen}
	return r
}

func (c *Conn) failed(q *request, code int) {
	r, e := q.free(), ndberror.Get(code)
	switch {
	case r.info != nil:
		r.info(nil, e)
	case r.list != nil:
		r.list(nil, e)
	default:
		r.done(e)
	}
}

func (c *Conn) onTableInfoConf(r *signal.TableInfoConf) {
	q := c.answered(r.Ref, r.From, signal.NumTableInfoReq)
	if q == nil {
		return
	}
	t := newTable(r)
	if t == nil {
		c.Malformed++
		c.failed(q, ndberror.BadAnswer)
		return
	}
	c.learn(t)
	q.free().info(t, nil)
}

func (c *Conn) onTableDone(r *signal.TableDone) {
	num := signal.NumTableCreateReq
	if r.Num == signal.NumTableDropConf {
		num = signal.NumTableDropReq
	}
	if q := c.answered(r.Ref, r.From, uint16(num)); q != nil {
		q.free().done(nil)
	}
}

func (c *Conn) onTableRef(r *signal.TableRef) {
	q := c.answered(r.Ref, r.From, 0)
	if q == nil {
		return
	}
	code := int(r.Code)
	if code == 0 {
		c.Malformed++
		code = ndberror.BadAnswer
	}
	c.failed(q, code)
}

func (c *Conn) onTableListConf(r *signal.TableListConf) {
	q := c.answered(r.Ref, r.From, signal.NumTableListReq)
	if q == nil {
		return
	}
	last := uint32(0)
	body := r.Body()
	for range r.Count {
		if len(body) < 16 {
			c.Malformed++
			c.failed(q, ndberror.BadAnswer)
			return
		}
		h := (*[4]uint32)(unsafe.Pointer(unsafe.SliceData(body)))
		n := h[3]
		if n > 2*signal.MaxName+1 || uint32(len(body)) < 16+signal.Pad(n) {
			c.Malformed++
			c.failed(q, ndberror.BadAnswer)
			return
		}
		q.entries = append(q.entries, TableEntry{ID: h[0], Version: h[1], Flags: h[2], Name: string(body[16 : 16+n])})
		last = h[0]
		body = body[16+signal.Pad(n):]
	}
	if r.More == 0 || r.Count == 0 {
		x := q.free()
		x.list(x.entries, nil)
		return
	}
	p := kernel.Send[signal.TableListReq](c.env, signal.MakeAddr(q.node, signal.BlockDictionary, 0), c.self, signal.NumTableListReq)
	p.Ref, p.After = c.ref(q), last+1
}

// Tick ends requests that were not answered in time, and asks for maps. The Env's Now has been set.
func (c *Conn) Tick() {
	if c.leaving > 0 {
		c.loseNodes()
	}
	c.fetchMaps()
	for i := range c.requests {
		q := &c.requests[i]
		if q.num != 0 && q.deadline <= c.env.Now() {
			c.failed(q, ndberror.NoAnswer)
		}
	}
}

// Requests is how many requests are under way.
func (c *Conn) Requests() int {
	n := 0
	for i := range c.requests {
		if c.requests[i].num != 0 {
			n++
		}
	}
	return n
}
