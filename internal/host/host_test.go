package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/version"
)

// What the tests run: a node whose ldms (one per thread) answer a client's AckOrd with a WriteConf and pass PrepareConf
// on as the test says, and whose membership and manager note the fate of links.
type testNode struct {
	*Host
	id     uint8
	envs   []*kernel.Env
	ln     net.Listener
	addr   string
	ups    chan signal.LinkRep
	ups2   chan signal.LinkRep // of data nodes
	downs  chan signal.LinkRep
	events chan signal.EventRep
	stalls chan signal.StallRep
	heard  chan signal.HeardConf
	done   chan Exit
	logged chan string
	// onHeard, when set, runs on main when a HeardConf comes.
	onHeard func()
	// handle, when set, gets the signals to ldms that are no AckOrd.
	handle func(env *kernel.Env, h *signal.Head)
	// early counts client signals that came before the client's link was up or after it was down.
	early  atomic.Int32
	linked [256]atomic.Bool
	// keep: node ids stay taken after their links go down.
	keep atomic.Bool
}

var clusterName = [2]uint32{1, 2}

const testWait = 20 * time.Second

func newTestNode(t testing.TB, id uint8, threads int, change func(*Config)) *testNode {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &testNode{id: id, ln: ln, addr: ln.Addr().String(), done: make(chan Exit, 1),
		ups: make(chan signal.LinkRep, 1000), ups2: make(chan signal.LinkRep, 1000), downs: make(chan signal.LinkRep, 1000), events: make(chan signal.EventRep, 1000),
		stalls: make(chan signal.StallRep, 1000), heard: make(chan signal.HeardConf, 1000), logged: make(chan string, 10000)}
	cfg := Config{Node: id, LDMs: threads, TCs: threads, Name: clusterName, Listener: ln, TraceDir: t.TempDir(), TracesKept: 2, Patience: 100 * time.Millisecond,
		Log: func(f string, a ...any) {
			select {
			case n.logged <- fmt.Sprintf(f, a...):
			default:
			}
		}}
	for i := range threads {
		e := kernel.NewEnv(id, i, uint64(i), 64<<10)
		e.Place(signal.BlockMembership, 0, 0)
		e.Place(signal.BlockManager, 0, 0)
		for k := range threads {
			e.Place(signal.BlockLDM, k, k)
		}
		n.envs = append(n.envs, e)
		cfg.Threads = append(cfg.Threads, Thread{Env: e, Deliver: func(p unsafe.Pointer) { n.deliver(e, p) }})
		cfg.Receivers = append(cfg.Receivers, i)
	}
	for i := range cfg.Peers {
		switch {
		case i == 0 || i == int(id):
		case i < 10:
			cfg.Peers[i] = Peer{Kind: signal.PeerData, SendSoft: 1 << 20, SendHard: 64 << 20}
		case i < 250:
			cfg.Peers[i] = Peer{Kind: signal.PeerAPI, SendSoft: 1 << 20, SendHard: 4 << 20, SendKernel: 64 << 10}
		default:
			cfg.Peers[i] = Peer{Kind: signal.PeerMgm, SendSoft: 1 << 20, SendHard: 4 << 20}
		}
	}
	if change != nil {
		change(&cfg)
	}
	if n.Host, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *testNode) run(t testing.TB) *testNode {
	go func() { n.done <- n.Run() }()
	t.Cleanup(func() {
		n.Stop(Exit{})
		select {
		case e := <-n.done:
			if e.Bug {
				t.Errorf("node %d broke: %s", n.id, e.Text)
			}
		case <-time.After(testWait):
			t.Errorf("node %d does not stop", n.id)
		}
	})
	return n
}

func (n *testNode) deliver(env *kernel.Env, p unsafe.Pointer) {
	h := (*signal.Head)(p)
	switch h.To.Block() {
	case signal.BlockMembership, signal.BlockManager:
		switch h.Num {
		case signal.NumLinkUpRep:
			r := (*signal.LinkRep)(p)
			n.linked[r.Node].Store(true)
			n.ups <- *r
			if r.Kind == uint32(signal.PeerData) {
				n.ups2 <- *r
			}
		case signal.NumLinkDownRep:
			r := (*signal.LinkRep)(p)
			n.linked[r.Node].Store(false)
			n.downs <- *r
			if !n.keep.Load() {
				n.freed(env, r.Node)
			}
		case signal.NumStallRep:
			n.stalls <- *(*signal.StallRep)(p)
		case signal.NumHeardConf:
			n.heard <- *(*signal.HeardConf)(p)
			if n.onHeard != nil {
				n.onHeard()
			}
		case signal.NumEventRep:
			n.events <- *(*signal.EventRep)(p)
		}
	case signal.BlockLDM:
		if from := h.From.Node(); from != n.id && !n.linked[from].Load() {
			n.early.Add(1)
		}
		if h.Num == signal.NumAckOrd {
			kernel.Send[signal.WriteConf](env, h.From, h.To, signal.NumWriteConf).Ref = (*signal.AckOrd)(p).Ack
			return
		}
		n.handle(env, h)
	}
}

// freed says that a node id may be used again.
func (n *testNode) freed(env *kernel.Env, node uint32) {
	self := signal.MakeAddr(n.id, signal.BlockMembership, 0)
	kernel.Send[signal.NodeFreeRep](env, signal.MakeAddr(n.id, signal.BlockRuntime, 0), self, signal.NumNodeFreeRep).Node = node
}

// dialTo is how a node reaches another one.
func dialTo(o *testNode) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", o.addr)
	}
}

// client is the other end of a client's socket.
type client struct {
	net.Conn
	node uint8
	peer uint8
	conf signal.HelloConf
}

func greeting(node, peer uint8, socket int, kind signal.Peer) *signal.Hello {
	return &signal.Hello{Head: signal.Head{Len: uint16(unsafe.Sizeof(signal.Hello{}) / 4), Num: signal.NumHello,
		To: signal.MakeAddr(peer, signal.BlockManager, 0), From: signal.MakeAddr(node, signal.BlockClient, 0)},
		Magic: signal.HelloMagic, Version: signal.WireVersion, Software: version.Number, Node: uint32(node), Kind: uint32(kind),
		Socket: uint32(socket), Peer: uint32(peer), Name: clusterName, Secret: [2]uint32{uint32(node), 7}}
}

// tryClient opens one socket of a client's link.
func tryClient(n *testNode, node uint8, socket int) (*client, error) {
	c, err := net.Dial("tcp", n.addr)
	if err != nil {
		return nil, err
	}
	k := &client{Conn: c, node: node, peer: n.id}
	_ = c.SetDeadline(time.Now().Add(testWait))
	if _, err = c.Write(frameOf(greeting(node, n.id, socket, signal.PeerAPI))); err == nil {
		err = readFrame(c, frameOf(&k.conf), signal.NumHelloConf, n.id)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return k, nil
}

// newClient opens every socket of a client's link, as soon as nothing of the node's last link is left.
func newClient(t testing.TB, n *testNode, node uint8) []*client {
	t.Helper()
	var all []*client
	for k := 0; k == 0 || k < int(all[0].conf.Sockets); {
		c, err := tryClient(n, node, k)
		var r *refusal
		if errors.As(err, &r) && r.code == signal.RefuseTaken {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		all = append(all, c)
		k++
	}
	return all
}

// request makes count AckOrds to an ldm, numbered from first.
func (c *client) request(ldm, first, count int) []byte {
	b := make([]byte, 0, 16*count)
	for i := range count {
		m := signal.AckOrd{Head: signal.Head{Len: 4, Num: signal.NumAckOrd, To: signal.MakeAddr(c.peer, signal.BlockLDM, uint16(ldm)),
			From: signal.MakeAddr(c.node, signal.BlockClient, 0)}, Ack: uint32(first + i)}
		b = append(b, frameOf(&m)...)
	}
	return b
}

// answers reads count WriteConfs that are numbered from first.
func (c *client) answers(t testing.TB, first, count int) {
	t.Helper()
	var m signal.WriteConf
	size := int(unsafe.Sizeof(m))
	b := make([]byte, count*size)
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	for i := range count {
		copy(frameOf(&m), b[i*size:])
		if m.Num != signal.NumWriteConf || int(m.Ref) != first+i {
			t.Fatalf("answer %d is %s", first+i, signal.Format(&m.Head))
		}
	}
}

func get[T any](t testing.TB, c chan T, what string) T {
	t.Helper()
	select {
	case x := <-c:
		return x
	case <-time.After(testWait):
		t.Fatalf("no %s", what)
	}
	panic("not reached")
}

func TestEchoOverSockets(t *testing.T) {
	for threads := 1; threads <= 3; threads++ {
		n := newTestNode(t, 1, threads, nil).run(t)
		cs := newClient(t, n, 51)
		if len(cs) != threads {
			t.Fatalf("%d sockets for %d threads", len(cs), threads)
		}
		if up := get(t, n.ups, "LinkUpRep"); up.Node != 51 || up.Kind != uint32(signal.PeerAPI) || up.Software != version.Number {
			t.Fatalf("%+v", up)
		}
		for k, c := range cs { // straight to the ldm of the socket's own thread, in one write
			if _, err := c.Write(c.request(k, 100, 3000)); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range cs {
			c.answers(t, 100, 3000)
		}
		// In pieces that end anywhere.
		b := cs[0].request(0, 0, 50)
		for i := 0; i < len(b); i += 7 {
			if _, err := cs[0].Write(b[i:min(i+7, len(b))]); err != nil {
				t.Fatal(err)
			}
		}
		cs[0].answers(t, 0, 50)
		for _, c := range cs {
			c.Close()
		}
		if d := get(t, n.downs, "LinkDownRep"); d.Node != 51 || d.Code != DownByPeer {
			t.Fatalf("%+v", d)
		}
		if n.early.Load() != 0 {
			t.Fatalf("%d signals came outside of the link's life", n.early.Load())
		}
	}
}

// A signal for an ldm of another thread is handed over, and its answer leaves by that thread's socket.
func TestSignalsReachOtherThreads(t *testing.T) {
	n := newTestNode(t, 1, 3, nil).run(t)
	cs := newClient(t, n, 51)
	for round := range 20 {
		for k := range cs {
			if _, err := cs[(k+1)%3].Write(cs[k].request(k, round*500, 500)); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range cs {
			c.answers(t, round*500, 500)
		}
	}
}

// Each answer must come although the loops have fallen asleep in between.
func TestSleepingLoopsAreWoken(t *testing.T) {
	n := newTestNode(t, 1, 2, nil).run(t)
	cs := newClient(t, n, 51)
	for i := range 200 {
		k := i % 2
		if _, err := cs[1-k].Write(cs[k].request(k, i, 1)); err != nil {
			t.Fatal(err)
		}
		cs[k].answers(t, i, 1)
	}
}

// signalAt is a signal by its head.
func signalAt[T any](h *signal.Head) *T { return (*T)(unsafe.Pointer(h)) }

// Threads without sockets reach peers by way of those that have some.
func TestThreadsWithoutSockets(t *testing.T) {
	n := newTestNode(t, 1, 4, func(c *Config) { c.Main, c.Receivers = 0, []int{2, 1} }).run(t)
	cs := newClient(t, n, 51)
	if len(cs) != 2 {
		t.Fatalf("%d sockets for 2 receiving threads", len(cs))
	}
	for _, c := range []struct{ ldm, out int }{{2, 0}, {1, 1}, {0, 0}, {3, 1}} { // a thread's number modulo the sockets decides
		for in := range 2 {
			if _, err := cs[in].Write(cs[in].request(c.ldm, in, 1000)); err != nil {
				t.Fatal(err)
			}
			cs[c.out].answers(t, in, 1000)
		}
	}
	for _, c := range cs {
		c.Close()
	}
	get(t, n.downs, "LinkDownRep")
	newClient(t, n, 51)
}
