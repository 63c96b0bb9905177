// Package mgmtest is for tests of management: a server on the loopback address, and nodes that do on their links what
// a data node would, as the test says.
//
// It is imported by tests only. Everything ends with the test that started it. It never waits for a time: its waiting
// calls wait for a condition and fail the test when that does not come true in good time.
package mgmtest

import (
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/clusterlog"
	"github.com/cohortdb/cohort/internal/mgm/frames"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/mgmd"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/version"
)

// Patience is how long anything may take before a test fails.
const Patience = 20 * time.Second

// TwoNodes is a cluster of two data nodes, a management server and two API slots.
const TwoNodes = `[SYSTEM]
Name=test
[NDBD DEFAULT]
NoOfReplicas=2
Diskless=1
[NDB_MGMD]
NodeId=49
HostName=127.0.0.1
[NDBD]
NodeId=1
HostName=127.0.0.1
[NDBD]
NodeId=2
HostName=127.0.0.1
[API]
NodeId=51
[API]
NodeId=52
HostName=127.0.0.1
`

// Parse reads a config.ini that must be right.
func Parse(t testing.TB, ini string) *config.Config {
	t.Helper()
	c, _, err := config.Parse([]byte(ini), config.Options{FileName: "test.ini"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Server is a running management server.
type Server struct {
	*mgmd.Server
	Addr string // host:port
	Log  *Text  // the cluster log
	// Ended is closed when Serve has returned; Err is then why.
	Ended chan struct{}
	Err   error

	t    testing.TB
	stop context.CancelFunc
}

// Start starts a server of a configuration; change may change the options before.
func Start(t testing.TB, ini string, change ...func(*mgmd.Options)) *Server {
	t.Helper()
	c := Parse(t, ini)
	return StartOn(t, Listen(t), c, c.ManagementNodes()[0].ID, change...)
}

// Listen takes a port of the loopback address.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// Port is the port of a listener.
func Port(l net.Listener) string { return strconv.Itoa(l.Addr().(*net.TCPAddr).Port) }

// StartOn starts the server with a node id on a listener.
func StartOn(t testing.TB, l net.Listener, c *config.Config, id int, change ...func(*mgmd.Options)) *Server {
	t.Helper()
	s := &Server{Log: &Text{}, Ended: make(chan struct{}), Addr: l.Addr().String(), t: t}
	log, err := clusterlog.Open([]config.LogDestination{{Console: true}}, "", 0, s.Log, s.Log)
	if err != nil {
		t.Fatal(err)
	}
	o := mgmd.Options{Config: c, NodeID: id, Log: log, Limits: mgmd.DefaultLimits}
	for _, f := range change {
		f(&o)
	}
	if s.Server, err = mgmd.New(o); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() {
		s.Err = s.Serve(ctx, l)
		close(s.Ended)
	}()
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("cluster log of %d:\n%s", id, s.Log)
		}
	})
	return s
}

// Kill ends a server as its process would end: all connections close, and nobody is told anything.
func (s *Server) Kill() {
	s.stop()
	<-s.Ended
}

// TwoServers is TwoNodes with two management servers, 49 and 50, which listen where it says PORT49 and PORT50.
var TwoServers = strings.Replace(TwoNodes, "[NDB_MGMD]\nNodeId=49\nHostName=127.0.0.1\n", "[NDB_MGMD DEFAULT]\nHostName=127.0.0.1\nHeartbeatIntervalMgmdMgmd=100\n"+
	"[NDB_MGMD]\nNodeId=49\nPortNumber=PORT49\n[NDB_MGMD]\nNodeId=50\nPortNumber=PORT50\n", 1)

// Pair is two management servers of one cluster, node 49 and node 50.
type Pair struct {
	Servers   [2]*Server
	Listeners [2]net.Listener
	Ini       string // with the ports in it
}

// StartPair starts two servers of a configuration with PORT49 and PORT50 in it and waits until they have met.
func StartPair(t testing.TB, ini string, change ...func(*mgmd.Options)) *Pair {
	t.Helper()
	p := &Pair{Ini: ini}
	for i, word := range []string{"PORT49", "PORT50"} {
		p.Listeners[i] = Listen(t)
		p.Ini = strings.ReplaceAll(p.Ini, word, Port(p.Listeners[i]))
	}
	for i := range p.Servers {
		p.Servers[i] = StartOn(t, p.Listeners[i], Parse(t, p.Ini), 49+i, change...)
	}
	p.Met(t)
	return p
}

// Met waits until each of the two says that the other is connected.
func (p *Pair) Met(t testing.TB) {
	t.Helper()
	for i, s := range p.Servers {
		c := s.Connect()
		Until(t, "the servers have met", func() bool {
			status, err := c.Status(Context(t), config.ManagementNode)
			return err == nil && status.Node(50-i).Status == mgmclient.Connected
		})
		c.Close()
	}
}

// Again starts a server that was killed once more, with the configuration that its options (change) or the pair's say.
func (p *Pair) Again(t testing.TB, i int, c *config.Config, change ...func(*mgmd.Options)) *Server {
	t.Helper()
	l, err := net.Listen("tcp", p.Listeners[i].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	p.Servers[i] = StartOn(t, l, c, 49+i, change...)
	return p.Servers[i]
}

// Context ends with the patience of a test.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Connect opens a session.
func (s *Server) Connect() *mgmclient.Client {
	s.t.Helper()
	c, err := mgmclient.Connect(Context(s.t), s.Addr, mgmclient.Options{Name: "test"})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// Until waits for a condition.
func Until(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// Logged waits until the cluster log has a text.
func (s *Server) Logged(text string) {
	s.t.Helper()
	Until(s.t, "the cluster log has "+text, func() bool { return strings.Contains(s.Log.String(), text) })
}

// Text is a writer whose text can be read while it is written.
type Text struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write adds to the text.
func (w *Text) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

// String is the text so far.
func (w *Text) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// Node is a data node as far as management can see.
type Node struct {
	ID   uint8
	Conn net.Conn
	// OnStop answers a StopReq: an empty text agrees and ends the node, any other refuses.
	OnStop func(r *signal.StopReq) string
	// OnSingle answers a SingleReq by a code; one that agrees (0, also without a function) then reports its new state.
	OnSingle func(client uint32) uint32
	// Pages are what it reports: data used and total, index used and total.
	Pages [4]uint32
	// Transactions and Locks are what its two coordinators and its two ldms have open, Left how many more each has.
	Transactions [2][]signal.TransactionLine
	Locks        [2][]signal.LockLine
	Left         uint32

	t      testing.TB
	mgm    uint8
	closed chan struct{}
	mu     sync.Mutex
	got    []string // names of the signals that came, with what matters of them
	levels [16]uint8
	stop   uint32 // flags of the newest StopReq
	rep    signal.NodeStateRep
}

// Hello is the Hello of a node; tests change it to see it refused.
func (s *Server) Hello(id uint8, secret uint64) *signal.Hello {
	mgm, err := s.Connect().MgmdNodeID(Context(s.t))
	if err != nil {
		s.t.Fatal(err)
	}
	conf, err := s.Connect().GetConfig(Context(s.t), 0)
	if err != nil {
		s.t.Fatal(err)
	}
	h := &signal.Hello{Magic: signal.HelloMagic, Version: signal.WireVersion, Software: version.Number, Node: uint32(id), Kind: uint32(signal.PeerData),
		Peer: uint32(mgm), Name: signal.NameHash(conf.Name), Secret: [2]uint32{uint32(secret), uint32(secret >> 32)}}
	if n := conf.Node(int(id)); n != nil && n.Type == config.APINode {
		h.Kind = uint32(signal.PeerAPI)
	}
	return h
}

// Greet makes a session a link and sends a Hello; it gives the answer.
func Greet(t testing.TB, c *mgmclient.Client, hello *signal.Hello) (net.Conn, *frames.Reader, *signal.Head) {
	t.Helper()
	conn, err := c.ConvertToTransporter(Context(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	to, from := signal.MakeAddr(uint8(hello.Peer), signal.BlockMgm, 0), signal.MakeAddr(uint8(hello.Node), signal.BlockManager, 0)
	err = frames.Send(conn, frames.Make(signal.NumHello, to, from, "", func(h *signal.Hello) {
		head := h.Head
		*h = *hello
		h.Head = head
	}))
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Time{})
	r := frames.NewReader(conn, nil)
	h, err := r.Next()
	if err != nil {
		t.Fatalf("no answer to Hello: %v", err)
	}
	return conn, r, h
}

// Link takes a node id and opens the node's link.
func (s *Server) Link(id uint8) *Node {
	s.t.Helper()
	secret := uint64(id)<<32 | 77
	hello := s.Hello(id, secret)
	c := s.Connect()
	typ := config.DataNode
	if hello.Kind == uint32(signal.PeerAPI) {
		typ = config.APINode
	}
	if _, err := c.GetNodeID(Context(s.t), mgmclient.NodeIDRequest{Type: typ, NodeID: int(id), Secret: secret}); err != nil {
		s.t.Fatal(err)
	}
	conn, r, h := Greet(s.t, c, hello)
	if h.Num != signal.NumHelloConf {
		s.t.Fatalf("node %d: %s", id, signal.Format(h))
	}
	n := &Node{ID: id, Conn: conn, t: s.t, mgm: uint8(hello.Peer), closed: make(chan struct{}), OnStop: func(*signal.StopReq) string { return "" }}
	go n.run(r)
	s.t.Cleanup(n.Close)
	return n
}

// Close ends the node.
func (n *Node) Close() {
	n.Conn.Close()
	<-n.closed
}

func (n *Node) addresses() (to, from signal.Addr) {
	return signal.MakeAddr(n.mgm, signal.BlockMgm, 0), signal.MakeAddr(n.ID, signal.BlockManager, 0)
}

func (n *Node) run(r *frames.Reader) {
	defer close(n.closed)
	to, from := n.addresses()
	for {
		h, err := r.Next()
		if err != nil {
			return
		}
		if fault := signal.Check(h, signal.PeerMgm, n.mgm, n.ID); fault != nil {
			n.t.Errorf("node %d: the server sent a %v", n.ID, fault)
			return
		}
		n.note(h)
		switch h.Num {
		case signal.NumStopReq:
			q := frames.As[signal.StopReq](h)
			if text := n.OnStop(q); text != "" {
				frames.Send(n.Conn, frames.Make(signal.NumStopRef, to, from, text, func(f *signal.StopRef) {
					f.Ref, f.Code, f.TextLen = q.Ref, 2002, uint32(len(text))
				}))
				continue
			}
			frames.Send(n.Conn, frames.Make(signal.NumStopConf, to, from, "", func(c *signal.StopConf) { c.Ref = q.Ref }))
			n.Conn.Close()
			return
		case signal.NumReportReq:
			q := frames.As[signal.ReportReq](h)
			frames.Send(n.Conn, frames.Make(signal.NumReportConf, to, from, "", func(c *signal.ReportConf) {
				c.Ref, c.Kind = q.Ref, q.Kind
				c.DataPages, c.DataTotal, c.IndexPages, c.IndexTotal = n.Pages[0], n.Pages[1], n.Pages[2], n.Pages[3]
			}))
		case signal.NumSingleReq:
			n.onSingleReq(frames.As[signal.SingleReq](h))
		case signal.NumListReq:
			n.onListReq(frames.As[signal.ListReq](h))
		}
	}
}

func (n *Node) onSingleReq(q *signal.SingleReq) {
	to, from := n.addresses()
	code := uint32(0)
	if n.OnSingle != nil {
		code = n.OnSingle(q.Node)
	}
	frames.Send(n.Conn, frames.Make(signal.NumSingleConf, to, from, "", func(c *signal.SingleConf) { c.Ref, c.Code = q.Ref, code }))
	if code != 0 {
		return
	}
	client := q.Node
	n.Report(func(r *signal.NodeStateRep) {
		r.State, r.Single = signal.StateStarted, client
		if client != 0 {
			r.State = signal.StateSingleUser
		}
	})
}

func (n *Node) onListReq(q *signal.ListReq) {
	for i := range 2 {
		var text string
		var from signal.Addr
		count := 0
		if q.Kind == signal.ListTransactions {
			from, count, text = signal.MakeAddr(n.ID, signal.BlockTC, uint16(i)), len(n.Transactions[i]), bytesOf(n.Transactions[i])
		} else {
			from, count, text = signal.MakeAddr(n.ID, signal.BlockLDM, uint16(i)), len(n.Locks[i]), bytesOf(n.Locks[i])
		}
		to, _ := n.addresses()
		frames.Send(n.Conn, frames.Make(signal.NumListConf, to, from, text, func(c *signal.ListConf) {
			c.Ref, c.Kind, c.Blocks, c.Left, c.Count = q.Ref, q.Kind, 2, n.Left, uint32(count)
		}))
	}
}

// bytesOf is how lines lie in a signal.
func bytesOf[T any](lines []T) string {
	if len(lines) == 0 {
		return ""
	}
	return string(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(lines))), len(lines)*int(unsafe.Sizeof(lines[0]))))
}

func (n *Node) note(h *signal.Head) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.got = append(n.got, signal.Format(h))
	switch h.Num {
	case signal.NumEventSubscribeOrd:
		n.levels = frames.As[signal.EventSubscribeOrd](h).Levels
	case signal.NumStopReq:
		n.stop = frames.As[signal.StopReq](h).Flags
	}
}

// Got says whether a signal came whose printed form contains a text.
func (n *Node) Got(text string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, g := range n.got {
		if strings.Contains(g, text) {
			return true
		}
	}
	return false
}

// Levels are those that the server subscribed to last.
func (n *Node) Levels() [16]uint8 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.levels
}

// StopFlags are those of the newest StopReq.
func (n *Node) StopFlags() uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stop
}

// State reports the node's state; connected are the nodes to which it has links.
func (n *Node) State(state, phase, group, dynamicID uint32, connected ...uint8) {
	n.t.Helper()
	n.Report(func(r *signal.NodeStateRep) {
		r.State, r.StartPhase, r.NodeGroup, r.DynamicID, r.Connected = state, phase, group, dynamicID, signal.NodeSet{}
		for _, id := range connected {
			r.Connected[id/32] |= 1 << (id % 32)
		}
	})
}

// Report changes what the node last said of itself, and says that.
func (n *Node) Report(change func(r *signal.NodeStateRep)) {
	n.t.Helper()
	to, from := n.addresses()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rep.Software = version.Number
	change(&n.rep)
	n.send(frames.Make(signal.NumNodeStateRep, to, from, "", func(r *signal.NodeStateRep) {
		h := r.Head
		*r = n.rep
		r.Head = h
	}))
}

// Event reports an event.
func (n *Node) Event(e event.Event) {
	n.t.Helper()
	to, from := n.addresses()
	n.send(frames.Make(signal.NumEventRep, to, from, e.Text, func(r *signal.EventRep) {
		r.Event, r.Node, r.Args, r.TextLen = uint32(e.Type), uint32(e.Node), e.Args, uint32(len(e.Text))
	}))
}

// Send sends a signal of the node's membership to a block of the server.
func Send[T any](n *Node, num uint16, block uint8, fill func(*T)) {
	n.t.Helper()
	n.send(frames.Make(num, signal.MakeAddr(n.mgm, block, 0), signal.MakeAddr(n.ID, signal.BlockMembership, 0), "", fill))
}

func (n *Node) send(b []byte) {
	n.t.Helper()
	if _, err := n.Conn.Write(b); err != nil {
		n.t.Fatal(err)
	}
}

// Speak is a bare connection on which a test says what it likes.
type Speak struct {
	net.Conn
	t testing.TB
}

// Dial opens a bare connection.
func (s *Server) Dial() *Speak {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	return &Speak{conn, s.t}
}

// Say writes text and reads until what came ends as a reply does.
func (sp *Speak) Say(text string) string {
	sp.t.Helper()
	if _, err := io.WriteString(sp, text); err != nil {
		sp.t.Fatal(err)
	}
	sp.SetReadDeadline(time.Now().Add(Patience))
	var got []byte
	buf := make([]byte, 4096)
	for !strings.HasSuffix(string(got), "\n\n") {
		n, err := sp.Read(buf)
		got = append(got, buf[:n]...)
		if err != nil {
			sp.t.Fatalf("after %q: %v", got, err)
		}
	}
	return string(got)
}

// Rest reads until the other side closes.
func (sp *Speak) Rest() string {
	sp.t.Helper()
	sp.SetReadDeadline(time.Now().Add(Patience))
	got, err := io.ReadAll(sp)
	if err != nil && !strings.Contains(err.Error(), "reset") {
		sp.t.Fatalf("after %q: %v", got, err)
	}
	return string(got)
}

// T is the test that the connection belongs to.
func (sp *Speak) T() testing.TB { return sp.t }
