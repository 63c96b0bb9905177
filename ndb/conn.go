package ndb

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/arbitrator"
	"github.com/cohortdb/cohort/internal/client"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/version"
)

// Options of Connect.
type Options struct {
	Name           string                           // of the program, for the cluster log; "" is the program's file name
	NodeID         int                              // node id to take; 0: any free one (a connect string may name one too)
	ConnectTimeout time.Duration                    // for finding a management server and the first data node; 0: 30 s
	WaitAll        bool                             // Connect waits until every configured data node is started, not just one
	WaitTimeout    time.Duration                    // longest wait for an answer of a data node; 0: 20 s. Beyond it an operation ends with 4012
	Logf           func(format string, args ...any) // told what happens to links; nil: nobody is
	OnReceiver     func()                           // called once, by the goroutine that reads the sockets for several sessions, before it begins: it may bind its thread to a CPU
}

// tick is how often what needs no answer is done: acknowledgements, timeouts, reading for sessions that do not.
const tick = 100 * time.Millisecond

// Conn is an API node of the cluster, with links to every data node.
type Conn struct {
	opts    Options
	id      uint8
	secret  uint64
	conf    *config.Config
	started time.Time // the Envs' time 0
	mgm     manager
	perNode int // sockets to a data node at most

	state atomic.Pointer[state] // what sessions read; replaced under mu

	mu        sync.Mutex // guards what follows
	core      *client.Conn
	arb       *arbitrator.Block // nil: this node is no arbitrator
	env       *kernel.Env
	alarm     *time.Timer   // for what the blocks want to do before the next tick …
	alarmAt   int64         // … and when; 0 = nothing
	watch     chan struct{} // closed and replaced when state changes
	firstTx   map[uint16]uint32
	lastGiven uint16
	tables    map[string]*tableEntry
	readers   int // reasons to have a receiver: open sessions beyond the first, requests that wait
	open      int // sessions
	lives     int // times that links came up

	poller
	lazy atomic.Bool // the background writer of lazy sends runs
	ctx  context.Context
	stop context.CancelFunc
	done sync.WaitGroup
	over chan struct{} // closed when nothing of the connection is left
}

// state is what sessions and readers of sockets need to know. It does not change once it is published.
type state struct {
	view     *client.View
	links    [maxLinks]*link // by buffer of an Env
	nodes    [256]nodeLinks
	sessions []*Session // by instance
	closed   bool
}

// nodeLinks are the links to a data node that is up.
type nodeLinks struct {
	base, n int
	life    int // tells these links from earlier ones
}

// Connect makes the program a node of the cluster: it asks a management server of the connect string
// ("[nodeid=N,]host[:port][,host[:port]]…"; "" is what NDB_CONNECTSTRING says, else localhost:1186) for a node id and
// the configuration, opens links to the data nodes, and returns when at least one of them (or all, see Options) is
// started.
func Connect(ctx context.Context, connectString string, o Options) (*Conn, error) {
	if o.Name == "" {
		o.Name = filepath.Base(os.Args[0])
	}
	if o.ConnectTimeout == 0 {
		o.ConnectTimeout = 30 * time.Second
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	ctx, cancel := context.WithTimeout(ctx, o.ConnectTimeout)
	defer cancel()
	secret := rand.Uint64() | 1
	m, err := newMgmd(ctx, connectString, o, secret)
	if err != nil {
		return nil, fmt.Errorf("ndb: %w", err)
	}
	c, err := newConn(m, secret, o)
	if err != nil {
		m.close()
		return nil, fmt.Errorf("ndb: %w", err)
	}
	n := 1
	if o.WaitAll {
		n = 0
	}
	if err := c.WaitReady(ctx, n); err != nil {
		c.Close()
		return nil, fmt.Errorf("ndb: node %d has no data node to work with: see the cluster log and ndb_mgm -e show: %w", c.NodeID(), err)
	}
	return c, nil
}

// newConn starts a connection whose node id and configuration are known.
func newConn(m manager, secret uint64, o Options) (*Conn, error) {
	if o.WaitTimeout == 0 {
		o.WaitTimeout = 20 * time.Second
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	c := &Conn{
		opts: o, id: uint8(m.nodeID()), secret: secret, conf: m.config(), started: time.Now(), mgm: m,
		watch: make(chan struct{}), firstTx: map[uint16]uint32{}, tables: map[string]*tableEntry{}, over: make(chan struct{}),
	}
	c.env = kernel.NewEnv(c.id, 0, secret, 4096)
	c.env.Place(signal.BlockClient, 0, 0)
	c.core = client.NewConn(c.env, version.Number)
	c.state.Store(&state{view: c.core.View()})
	if err := c.poller.init(); err != nil {
		return nil, err
	}
	c.alarm = time.AfterFunc(time.Hour, c.onAlarm)
	c.alarm.Stop()
	c.arbitrate()
	data := c.conf.DataNodes()
	c.perNode = min(maxLinks/max(len(data), 1), kernel.MaxThreads)
	ctx, stop := context.WithCancel(context.Background())
	c.ctx, c.stop = ctx, stop
	near := newNearness()
	for i, n := range data {
		host := n.HostName
		if l := c.conf.Link(int(c.id), n.ID); l != nil {
			host = l.HostName(n.ID)
		}
		c.mu.Lock()
		c.core.SetDistance(uint8(n.ID), near.distance(host))
		c.mu.Unlock()
		k := &keeper{c: c, node: uint8(n.ID), host: host, port: int(n.Int("ServerPort")), base: i * c.perNode}
		c.start(func() { k.run(ctx) })
	}
	c.start(func() { c.receive(ctx) })
	c.start(func() { c.tickEvery(ctx) })
	c.start(func() { m.keep(ctx) })
	return c, nil
}

func (c *Conn) start(f func()) {
	c.done.Add(1)
	go func() {
		defer c.done.Done()
		f()
	}()
}

// Close ends the sessions and the links, and waits until that is done. Transactions under way are rolled back. In a
// function that Poll calls it does not wait, for Poll cannot end before that function does.
func (c *Conn) Close() error {
	c.mu.Lock()
	first := !c.state.Load().closed
	if first {
		s := *c.state.Load()
		s.closed = true
		c.state.Store(&s)
		c.alarm.Stop()
		c.wakeAll()
	}
	c.mu.Unlock()
	if first {
		c.stop()
		for _, l := range c.state.Load().links {
			if l != nil {
				c.lost(l, errClosing)
			}
		}
		go func() {
			c.done.Wait()
			c.mgm.close()
			c.poller.close()
			close(c.over)
		}()
	}
	if !inFunction() {
		<-c.over
	}
	return nil
}

// callName is the function that calls the functions of transactions.
var callName = runtime.FuncForPC(reflect.ValueOf((*Session).call).Pointer()).Name()

// inFunction tells whether the caller is called by a function of a transaction. Nobody takes note of it where functions
// are called, since that happens for each transaction.
func inFunction() bool {
	var pcs [64]uintptr
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		if n == 0 {
			return false
		}
		for frames, more := runtime.CallersFrames(pcs[:n]), true; more; {
			var f runtime.Frame
			if f, more = frames.Next(); f.Function == callName {
				return true
			}
		}
		if n < len(pcs) {
			return false
		}
	}
}

// NodeID is the node id of the connection.
func (c *Conn) NodeID() int { return int(c.id) }

// Node describes a data node.
type Node struct {
	ID        int
	Host      string
	Group     int  // node group, -1: none or not known
	Connected bool // the links are up
	Started   bool // it takes transactions
}

// Nodes describes the data nodes, ascending by id.
func (c *Conn) Nodes() []Node {
	v := c.state.Load().view
	var out []Node
	for _, n := range c.conf.DataNodes() {
		x := v.Node(uint8(n.ID))
		group := n.NodeGroup
		if x.Up && x.Group != signal.NoRef {
			group = int(x.Group)
		}
		if group == config.NoNodeGroup {
			group = -1
		}
		out = append(out, Node{ID: n.ID, Host: n.HostName, Group: group, Connected: x.Up, Started: x.Up && x.Started})
	}
	return out
}

// WaitReady waits until n data nodes are started; n = 0 means all that are configured.
func (c *Conn) WaitReady(ctx context.Context, n int) error {
	if n <= 0 {
		n = len(c.conf.DataNodes())
	}
	release := c.wantReceiver()
	defer release()
	for {
		c.mu.Lock()
		st, watch := c.state.Load(), c.watch
		c.mu.Unlock()
		if st.closed {
			return ErrClosed
		}
		if len(st.view.Serving()) >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d data nodes are started: %w: %w", len(st.view.Serving()), n, ErrNotReady, context.Cause(ctx))
		case <-watch:
		}
	}
}

// now is the Envs' time.
func (c *Conn) now() int64 { return int64(time.Since(c.started)) }

// publish makes a changed state known. The caller holds mu.
func (c *Conn) publish(change func(*state)) {
	s := *c.state.Load()
	s.view = c.core.View()
	if change != nil {
		change(&s)
	}
	c.state.Store(&s)
	close(c.watch)
	c.watch = make(chan struct{})
	c.wakeAll()
}

// wakeAll makes every session that waits look at the state again.
func (c *Conn) wakeAll() {
	for _, s := range c.state.Load().sessions {
		if s != nil {
			s.inbox.wakeUp()
		}
	}
	c.kick()
}

// toCore gives the connection's block a signal.
func (c *Conn) toCore(h *signal.Head) {
	c.mu.Lock()
	c.env.SetNow(c.now())
	if h.To.Block() == signal.BlockArbitrator {
		c.arb.Deliver(h)
	} else {
		c.core.Deliver(h)
	}
	c.settle()
	c.mu.Unlock()
}

// settle does what must follow every call of the connection's blocks. The caller holds mu.
func (c *Conn) settle() {
	st := c.state.Load()
	c.core.TakeOut(func(id uint8) {
		for i := range st.nodes[id].n {
			if l := st.links[st.nodes[id].base+i]; l != nil {
				c.lost(l, errOut)
			}
		}
	})
	if c.core.View() != st.view {
		c.publish(nil)
	}
	c.flushCore()
	c.setAlarm()
}

// setAlarm makes sure that onAlarm is called when the blocks want to do something. The caller holds mu.
func (c *Conn) setAlarm() {
	at, ok := c.env.NextTimer()
	if due, soon := c.core.Due(); soon && (!ok || due < at) {
		at, ok = due, true
	}
	if !ok || c.alarmAt != 0 && c.alarmAt <= at || c.state.Load().closed {
		return
	}
	c.alarmAt = max(at, 1)
	c.alarm.Reset(time.Duration(max(at-c.now(), 0)))
}

func (c *Conn) onAlarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alarmAt = 0
	if c.state.Load().closed {
		return
	}
	c.tickCore()
}

// tickCore gives the blocks the time. The caller holds mu.
func (c *Conn) tickCore() {
	c.env.SetNow(c.now())
	c.env.FireTimers()
	c.env.RunJobs(func(p unsafe.Pointer) { c.arb.Deliver((*signal.Head)(p)) }, 1<<20) // nobody else has timers
	c.core.Tick()
	c.settle()
}

// refresh asks for newer maps in place of those that data nodes have contradicted.
func (c *Conn) refresh(maps []*client.Map) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Load().closed {
		return
	}
	c.env.SetNow(c.now())
	for _, m := range maps {
		c.core.Refresh(m)
	}
	c.settle()
}

// arbitrate makes the node an arbitrator if the configuration says that it may be one. A receiver reads for it, since it
// must hear and answer at once whatever the program does.
func (c *Conn) arbitrate() {
	n := c.conf.Node(int(c.id))
	if n == nil || n.Int("ArbitrationRank") <= 0 {
		return
	}
	c.env.Place(signal.BlockArbitrator, 0, 0)
	c.arb = arbitrator.New(c.env, arbitrator.Config{Delay: n.Int("ArbitrationDelay") * int64(time.Millisecond),
		Tell: func(text string) { c.opts.Logf("ndb: node %d: %s", c.id, text) }})
	c.wantReceiver()
}

// flushCore sends what the connection's block has said. The caller holds mu.
func (c *Conn) flushCore() {
	st := c.state.Load()
	c.env.TakeDirty(func(d kernel.Dest, b *kernel.Buf) { c.flushBuf(st, d, b) })
}

// flushBuf hands what is in a buffer to its link.
func (c *Conn) flushBuf(st *state, d kernel.Dest, b *kernel.Buf) {
	if b.Len() == 0 || int(d) >= maxLinks {
		return
	}
	if l := st.links[d]; l != nil {
		c.send(l, b.Bytes(), false)
	}
	b.Truncate(0)
}

// setLinks gives an Env the buffers of the links that are up, and takes those away that are not.
func setLinks(env *kernel.Env, old, st *state) {
	for n := range st.nodes {
		a, b := old.nodes[n], st.nodes[n]
		if a == b {
			continue
		}
		for i := range a.n {
			env.Buf(kernel.Dest(a.base + i)).Close()
		}
		if b.n == 0 {
			continue
		}
		for i := range b.n {
			env.Buf(kernel.Dest(b.base+i)).Init(sessionBuffer, maxBuffer)
		}
		env.Spread(uint8(n), kernel.Dest(b.base), b.n)
	}
}

// up makes the links to a data node known: they are all there.
func (c *Conn) up(node uint8, base int, links []*link, r *signal.HelloConf) {
	c.mu.Lock()
	old := c.state.Load()
	if old.closed {
		c.mu.Unlock()
		for _, l := range links {
			c.lost(l, errClosing)
		}
		return
	}
	rep := signal.LinkRep{Node: uint32(node), Kind: uint32(signal.PeerData), Software: r.Software, LDMs: r.LDMs, TCs: r.TCs}
	rep.Num = signal.NumLinkUpRep
	next := *old
	c.lives++
	next.nodes[node] = nodeLinks{base, len(links), c.lives}
	for i, l := range links {
		next.links[base+i] = l
	}
	setLinks(c.env, old, &next) // before the block answers the news with a request
	c.env.SetNow(c.now())
	c.core.Deliver(&rep.Head)
	c.publish(func(s *state) { s.nodes, s.links = next.nodes, next.links })
	c.settle()
	c.mu.Unlock()
	for _, l := range links {
		c.add(l)
	}
}

// down makes it known that the links to a data node are gone.
func (c *Conn) down(node uint8) {
	c.mu.Lock()
	old := c.state.Load()
	if old.nodes[node].n > 0 {
		rep := signal.LinkRep{Node: uint32(node), Kind: uint32(signal.PeerData)}
		rep.Num = signal.NumLinkDownRep
		next := *old
		for i := range next.nodes[node].n {
			next.links[next.nodes[node].base+i] = nil
		}
		next.nodes[node] = nodeLinks{}
		setLinks(c.env, old, &next)
		c.env.SetNow(c.now())
		c.core.Deliver(&rep.Head)
		c.publish(func(s *state) { s.nodes, s.links = next.nodes, next.links })
		c.settle()
	}
	c.mu.Unlock()
}

// tickEvery does what time demands.
func (c *Conn) tickEvery(ctx context.Context) {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		c.mu.Lock()
		c.tickCore()
		sessions := c.state.Load().sessions
		c.mu.Unlock()
		for _, s := range sessions {
			if s != nil {
				s.background()
			}
		}
		c.readForAll()
	}
}
