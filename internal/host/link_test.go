package host

import (
	"bytes"
	"math/rand"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

func TestWhoMayLink(t *testing.T) {
	n := newTestNode(t, 1, 2, func(c *Config) { c.Peers[77].Kind = 0 }).run(t)
	for _, c := range []struct {
		code uint32
		f    func(*signal.Hello)
	}{
		{signal.RefuseVersion, func(m *signal.Hello) { m.Version++ }},
		{signal.RefuseVersion, func(m *signal.Hello) { m.Software += 3 << 8 }},
		{signal.RefuseCluster, func(m *signal.Hello) { m.Name[1]++ }},
		{signal.RefuseMeant, func(m *signal.Hello) { m.Peer = 2 }},
		{signal.RefuseNode, func(m *signal.Hello) { m.Node = 77 }},
		{signal.RefuseNode, func(m *signal.Hello) { m.Node = 0 }},
		{signal.RefuseNode, func(m *signal.Hello) { m.Node = 1 }},
		{signal.RefuseNode, func(m *signal.Hello) { m.Node = 1 << 20 }},
		{signal.RefuseNode, func(m *signal.Hello) { m.Kind = uint32(signal.PeerData) }},
		{signal.RefuseSocket, func(m *signal.Hello) { m.Socket = 2 }},
		{signal.RefuseSocket, func(m *signal.Hello) { m.Socket = 1 << 31 }},
	} {
		m := greeting(51, 1, 0, signal.PeerAPI)
		c.f(m)
		if code := greet(t, n, m); code != c.code {
			t.Errorf("%+v: refused with %d, want %d", m, code, c.code)
		}
	}
	newClient(t, n, 51)
	get(t, n.ups, "LinkUpRep")
	if code := greet(t, n, greeting(51, 1, 0, signal.PeerAPI)); code != signal.RefuseTaken {
		t.Errorf("a second process with a taken node id: %d", code)
	}
}

// greet says Hello and returns the code of the refusal, 0 if there was none.
func greet(t *testing.T, n *testNode, m *signal.Hello) uint32 {
	t.Helper()
	c, err := net.Dial("tcp", n.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(testWait))
	if _, err := c.Write(frameOf(m)); err != nil {
		t.Fatal(err)
	}
	var conf signal.HelloConf
	err = readFrame(c, frameOf(&conf), signal.NumHelloConf, n.id)
	if r, ok := err.(*refusal); ok {
		return r.code
	} else if err != nil {
		t.Fatal(err)
	}
	return 0
}

// A node id stays taken until the core says that nothing of it is left.
func TestATakenNodeIdIsRefusedUntilItIsFree(t *testing.T) {
	n := newTestNode(t, 1, 2, nil)
	n.keep.Store(true)
	n.run(t)
	cs := newClient(t, n, 51)
	get(t, n.ups, "LinkUpRep")
	cs[1].Close() // one socket is enough to lose the link
	get(t, n.downs, "LinkDownRep")
	if _, err := cs[0].Read(make([]byte, 1)); err == nil {
		t.Fatal("the other socket lives on")
	}
	if code := greet(t, n, greeting(51, 1, 0, signal.PeerAPI)); code != signal.RefuseTaken {
		t.Fatalf("refused with %d", code)
	}
	n.loops[0].post(func(l *loop) { n.freed(l.env, 51) })
	newClient(t, n, 51)
	get(t, n.ups, "second LinkUpRep")
}

func TestAHalfOpenedLinkGivesWayToTheNextProcess(t *testing.T) {
	n := newTestNode(t, 1, 2, nil).run(t)
	c, err := tryClient(n, 51, 0)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	m := greeting(51, 1, 0, signal.PeerAPI)
	m.Secret[0]++
	for greet(t, n, m) == signal.RefuseTaken { // until the kernel has heard of the close
	}
}

func TestABadFrameClosesItsLinkAndNothingElse(t *testing.T) {
	n := newTestNode(t, 1, 2, nil).run(t)
	good := newClient(t, n, 60)
	get(t, n.ups, "LinkUpRep")
	for i, bad := range [][]byte{
		bytes.Repeat([]byte{0xff}, 100),
		make([]byte, 12),
		{3, 0, 0xff, 0xee, 0, 0, 0, 0, 0, 0, 0, 0},
		frameOf(greeting(51, 1, 0, signal.PeerAPI)),
	} {
		cs := newClient(t, n, 51)
		get(t, n.ups, "LinkUpRep")
		if _, err := cs[0].Write(append(cs[0].request(0, 0, 5), bad...)); err != nil {
			t.Fatal(err)
		}
		if d := get(t, n.downs, "LinkDownRep"); d.Node != 51 || d.Code != DownBadFrame {
			t.Fatalf("%d: %+v", i, d)
		}
		for s := ""; !strings.Contains(s, "bad frame"); {
			s = get(t, n.logged, "reason in the log")
		}
		if e := get(t, n.events, "event"); e.Event != uint32(event.TransporterError) || e.Args[0] != 51 {
			t.Fatalf("%+v", e)
		}
	}
	wrong := good[0].request(2, 0, 1) // ldm 2 does not exist
	if _, err := good[1].Write(good[1].request(1, 0, 5)); err != nil {
		t.Fatal(err)
	}
	good[1].answers(t, 0, 5)
	if _, err := good[0].Write(wrong); err != nil {
		t.Fatal(err)
	}
	if d := get(t, n.downs, "LinkDownRep"); d.Node != 60 || d.Code != DownBadFrame {
		t.Fatalf("%+v", d)
	}
}

func TestWhatIsNoNodeIsTurnedAway(t *testing.T) {
	n := newTestNode(t, 1, 1, nil).run(t)
	for _, s := range []string{"GET / HTTP/1.0\r\n\r\n", strings.Repeat("x", 10000), string(make([]byte, 500))} {
		c, err := net.Dial("tcp", n.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(testWait))
		_, _ = c.Write([]byte(s))
		if k, err := c.Read(make([]byte, 100)); err == nil {
			t.Fatalf("%q was answered with %d bytes", s[:10], k)
		}
		c.Close()
		if s := get(t, n.logged, "reason in the log"); !strings.Contains(s, "does not begin with a Hello") {
			t.Fatal(s)
		}
	}
}

// A client that sends and does not read loses its link; another one goes on meanwhile.
func TestAClientThatDoesNotReadIsCut(t *testing.T) {
	n := newTestNode(t, 1, 2, nil).run(t)
	good := newClient(t, n, 60)
	get(t, n.ups, "LinkUpRep")
	bad := newClient(t, n, 51)
	get(t, n.ups, "LinkUpRep")
	var wg sync.WaitGroup
	wg.Add(1)
	go func() { // it sends into socket 0 for the ldm of socket 1, so that holding back one socket does not stop it
		defer wg.Done()
		b := bad[0].request(1, 0, 10000)
		for {
			if _, err := bad[0].Write(b); err != nil {
				return
			}
		}
	}()
	for i := 0; ; i++ {
		if _, err := good[i%2].Write(good[i%2].request(i%2, i, 100)); err != nil {
			t.Fatal(err)
		}
		good[i%2].answers(t, i, 100)
		select {
		case d := <-n.downs:
			if d.Node != 51 || d.Code != DownFull {
				t.Fatalf("%+v", d)
			}
			if e := get(t, n.events, "event"); e.Event != uint32(event.ClientCutOff) || e.Args[0] != 51 {
				t.Fatalf("%+v", e)
			}
			wg.Wait()
			return
		default:
		}
	}
}

func TestDataNodesLinkAndLinkAgain(t *testing.T) {
	var b *testNode
	a := newTestNode(t, 1, 3, nil)
	a.run(t)
	b = newTestNode(t, 2, 2, func(c *Config) { c.Peers[1].Dial = dialTo(a) })
	b.run(t)
	for range 3 {
		up := get(t, a.ups, "LinkUpRep at the listener")
		if up.Node != 2 || up.Kind != uint32(signal.PeerData) || up.LDMs != 2 {
			t.Fatalf("%+v", up)
		}
		if up = get(t, b.ups, "LinkUpRep at the dialler"); up.Node != 1 || up.LDMs != 3 {
			t.Fatalf("%+v", up)
		}
		a.down(a.peers[2], DownByUs, "a test")
		if d := get(t, a.downs, "LinkDownRep"); d.Node != 2 || d.Code != DownByUs {
			t.Fatalf("%+v", d)
		}
		if d := get(t, b.downs, "LinkDownRep"); d.Node != 1 || d.Code != DownByPeer {
			t.Fatalf("%+v", d)
		}
	}
}

// Every thread of two nodes sends numbered signals to every thread, in bursts of random size at random times. For each
// pair of threads they arrive complete and in order, whatever way they take.
func TestSignalsOfAPairOfThreadsKeepTheirOrder(t *testing.T) {
	const total = 4000
	threads := [3]int{0, 3, 2}
	var nodes [3]*testNode
	var received atomic.Int32
	all := (threads[1] + threads[2]) * (threads[1] + threads[2])
	done := make(chan struct{})
	for id := 1; id <= 2; id++ {
		nodes[id] = newTestNode(t, uint8(id), threads[id], func(c *Config) {
			if id == 2 {
				c.Peers[1].Dial = dialTo(nodes[1])
			}
		})
		type pair struct{ node, thread int }
		sent := make([]map[pair]uint32, threads[id])
		seen := make([]map[pair]uint32, threads[id])
		for i := range sent {
			sent[i], seen[i] = map[pair]uint32{}, map[pair]uint32{}
		}
		nodes[id].handle = func(env *kernel.Env, h *signal.Head) {
			i := int(h.To.Instance())
			if i != env.Thread() {
				invariant.Failf("%v came to thread %d", h.To, env.Thread())
			}
			if h.Num == signal.NumChainConf {
				from := pair{int(h.From.Node()), int(h.From.Instance())}
				c := signalAt[signal.ChainConf](h)
				if c.OpRef != seen[i][from] {
					invariant.Failf("%v: signal %d after %d from %v", h.To, c.OpRef, seen[i][from], h.From)
				}
				if seen[i][from]++; seen[i][from] == total && received.Add(1) == int32(all) {
					close(done)
				}
				return
			}
			busy := false
			for node := 1; node <= 2; node++ {
				for k := range threads[node] {
					to := pair{node, k}
					n := int(env.Rand() % 60)
					for ; n > 0 && sent[i][to] < total; n-- {
						m := kernel.Send[signal.ChainConf](env, signal.MakeAddr(uint8(node), signal.BlockLDM, uint16(k)), h.To, signal.NumChainConf)
						m.OpRef, m.GCI = sent[i][to], [2]uint32{}
						sent[i][to]++
					}
					busy = busy || sent[i][to] < total
				}
			}
			if busy {
				env.Tick(h.To, int64(env.Rand()%300_000), 0, 0, 0)
			}
		}
		nodes[id].run(t)
	}
	for id := 1; id <= 2; id++ {
		get(t, nodes[id].ups, "LinkUpRep")
	}
	for id := 1; id <= 2; id++ {
		for i, l := range nodes[id].loops {
			l.post(func(l *loop) { l.env.Tick(signal.MakeAddr(uint8(id), signal.BlockLDM, uint16(i)), 0, 0, 0, 0) })
		}
	}
	get(t, done, "end of all signals")
}

func TestTimersFireOnTimeUnderLoad(t *testing.T) {
	n := newTestNode(t, 1, 1, nil)
	ldm := signal.MakeAddr(1, signal.BlockLDM, 0)
	var worst atomic.Int64
	ticks := make(chan int64, 1000)
	n.handle = func(env *kernel.Env, h *signal.Head) {
		if late := int64(time.Since(n.start)) - int64(signalAt[signal.TickOrd](h).A)*1000; late > worst.Load() {
			worst.Store(late)
		}
		select {
		case ticks <- env.Now():
		default:
		}
		env.Tick(ldm, 2_000_000, 0, uint32((env.Now()+2_000_000)/1000), 0)
	}
	n.run(t)
	c := newClient(t, n, 51)[0]
	n.loops[0].post(func(l *loop) { l.env.Tick(ldm, 0, 0, uint32(l.now/1000), 0) })
	stop := make(chan struct{})
	go func() {
		b := c.request(0, 0, 20000)
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := c.Write(b); err != nil {
					return
				}
			}
		}
	}()
	go func() {
		b := make([]byte, 1<<20)
		for {
			if _, err := c.Read(b); err != nil {
				return
			}
		}
	}()
	last := int64(0)
	for range 100 {
		now := get(t, ticks, "tick")
		if now < last {
			t.Fatal("time goes back")
		}
		last = now
	}
	close(stop)
	t.Logf("latest tick %v late", time.Duration(worst.Load()))
}

func TestABrokenAssertionEndsTheNodeWithATrace(t *testing.T) {
	n := newTestNode(t, 1, 3, nil)
	n.handle = func(*kernel.Env, *signal.Head) { invariant.Failf("the sky is above the ground") }
	go func() { n.done <- n.Run() }()
	cs := newClient(t, n, 51)
	if _, err := cs[1].Write(cs[1].request(1, 0, 2000)); err != nil {
		t.Fatal(err)
	}
	cs[1].answers(t, 0, 2000)
	n.loops[1].post(func(l *loop) { l.env.Tick(signal.MakeAddr(1, signal.BlockLDM, 1), 0, 0, 0, 0) })
	e := get(t, n.done, "end of the node")
	if !e.Bug || e.Code != exitcode.Bug || !strings.Contains(e.Text, "the sky is above the ground") {
		t.Fatalf("%+v", e)
	}
	b, err := os.ReadFile(e.Trace)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(b); strings.Count(s, "AckOrd 51:client.0 -> 1:ldm.1") != traceSignals-1 || !strings.Contains(s, "TickOrd") || !strings.Contains(s, "goroutine") {
		t.Fatalf("the trace is %d bytes:\n%.500s", len(s), s)
	}
	dir := filepath.Dir(e.Trace)
	if next := traceName(dir, 1, 2); filepath.Base(next) != "ndb_1_trace.log.2" {
		t.Fatal(next)
	}
	if next := traceName(dir, 1, 1); next != e.Trace {
		t.Fatal("the oldest trace is not replaced")
	}
}

func TestANodeSendsWhatIsLeftBeforeItStops(t *testing.T) {
	n := newTestNode(t, 1, 2, nil)
	go func() { n.done <- n.Run() }()
	cs := newClient(t, n, 51)
	get(t, n.ups, "LinkUpRep")
	const count = 20000 // more than the socket's buffer holds
	n.handle = func(env *kernel.Env, h *signal.Head) {
		for i := range uint32(count) {
			kernel.Send[signal.WriteConf](env, signal.MakeAddr(51, signal.BlockClient, 0), h.To, signal.NumWriteConf).Ref = i
		}
		const text = "asked to"
		size := uint32(unsafe.Sizeof(signal.ExitOrd{}))
		e := (*signal.ExitOrd)(env.Put(signal.MakeAddr(1, signal.BlockRuntime, 0), h.To, signal.NumExitOrd, size+signal.Pad(uint32(len(text)))))
		e.Code, e.Restart, e.TextLen = 5, signal.StopRestart, uint32(len(text))
		copy(unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(e), size)), len(text)), text)
	}
	n.loops[1].post(func(l *loop) { l.env.Tick(signal.MakeAddr(1, signal.BlockLDM, 1), 0, 0, 0, 0) })
	cs[1].answers(t, 0, count)
	if e := get(t, n.done, "end of the node"); e.Code != 5 || e.Restart != signal.StopRestart || e.Text != "asked to" || e.Bug {
		t.Fatalf("%+v", e)
	}
	if _, err := tryClient(n, 52, 0); err == nil {
		t.Fatal("it still takes links")
	}
}

// FuzzLink feeds bytes as a client's link would, in pieces of any size, after the handshake: the link is closed or
// the frames are executed; the node goes on.
func FuzzLink(f *testing.F) {
	c := &client{node: 51, peer: 1}
	f.Add(c.request(0, 0, 40), int64(1))
	f.Add(bytes.Repeat([]byte{0xff}, 64), int64(2))
	f.Add(append(c.request(0, 0, 3), make([]byte, 20)...), int64(3))
	n := newTestNode(f, 1, 1, nil)
	n.handle = func(*kernel.Env, *signal.Head) {}
	l := n.loops[0]
	f.Fuzz(func(t *testing.T, in []byte, seed int64) {
		r := rand.New(rand.NewSource(seed))
		s := &socket{fd: 1 << 20, node: 51, kind: signal.PeerAPI, peer: n.peers[51]}
		executed := 0
		l.deliver = func(p unsafe.Pointer) { executed++ }
		whole := 0
		for o := 0; o < len(in); {
			k := o + 1 + r.Intn(len(in)-o)
			b := l.buf[:copy(l.buf, s.carry)]
			b = append(b, in[o:k]...)
			o = k
			l.left = turnSignals
			used, fault := l.execute(b, s)
			if int(used) > len(b) {
				t.Fatalf("%d of %d bytes used", used, len(b))
			}
			if fault != nil {
				return
			}
			whole += int(used)
			s.carry = append(s.carry[:0], b[used:]...)
		}
		if whole+len(s.carry) != len(in) {
			t.Fatalf("%d bytes executed in %d signals, %d left, of %d", whole, executed, len(s.carry), len(in))
		}
	})
}

// Clients come, send to every thread by every socket, and vanish in the middle; two data nodes lose their link again and
// again. No signal may be executed before its link's LinkUpRep or after its LinkDownRep, on any thread.
func TestLinksThatComeAndGoUnderLoad(t *testing.T) {
	a := newTestNode(t, 1, 3, nil)
	b := newTestNode(t, 2, 2, func(c *Config) { c.Peers[1].Dial = dialTo(a) })
	for _, n := range []*testNode{a, b} {
		other := uint8(3 - n.id)
		n.handle = func(env *kernel.Env, h *signal.Head) {
			if h.Num != signal.NumTickOrd {
				return
			}
			for range env.Rand() % 100 {
				to := signal.MakeAddr(other, signal.BlockLDM, uint16(env.Rand()%2))
				m := kernel.Send[signal.PrepareConf](env, to, h.To, signal.NumPrepareConf)
				m.TcRef, m.First, m.Tail = 0, 0, 0
			}
			env.Tick(h.To, int64(env.Rand()%100_000), 0, 0, 0)
		}
		n.run(t)
		for i, l := range n.loops {
			l.post(func(l *loop) { l.env.Tick(signal.MakeAddr(n.id, signal.BlockLDM, uint16(i)), 0, 0, 0, 0) })
		}
	}
	var clients sync.WaitGroup
	for id := 51; id < 54; id++ {
		clients.Add(1)
		go func() {
			defer clients.Done()
			r := rand.New(rand.NewSource(int64(id)))
			for round := 0; round < 15; {
				var cs []*client
				for k := range 3 {
					c, err := tryClient(a, uint8(id), k)
					if err != nil {
						break // its last life is not cleared away yet
					}
					cs = append(cs, c)
				}
				if len(cs) == 3 {
					round++
					for range 1 + r.Intn(10) {
						_, _ = cs[r.Intn(3)].Write(cs[0].request(r.Intn(3), 0, 1+r.Intn(500)))
					}
				}
				for _, c := range cs {
					c.Close()
				}
			}
		}()
	}
	for range 15 {
		get(t, a.ups2, "LinkUpRep of the data node")
		a.down(a.peers[2], DownByUs, "a test")
	}
	clients.Wait()
	if a.early.Load()+b.early.Load() != 0 {
		t.Fatalf("%d and %d signals came outside of their link's life", a.early.Load(), b.early.Load())
	}
	newClient(t, a, 60)[0].answersAfter(t)
}

// answersAfter checks that the node answers.
func (c *client) answersAfter(t *testing.T) {
	t.Helper()
	if _, err := c.Write(c.request(0, 0, 10)); err != nil {
		t.Fatal(err)
	}
	c.answers(t, 0, 10)
}
