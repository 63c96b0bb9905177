package host

import (
	"net"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// say sends the runtime a signal as membership does.
func (n *testNode) say(put func(env *kernel.Env, to, from signal.Addr)) {
	n.loops[n.cfg.Main].post(func(l *loop) {
		put(l.env, signal.MakeAddr(n.id, signal.BlockRuntime, 0), signal.MakeAddr(n.id, signal.BlockMembership, 0))
	})
}

func (n *testNode) ask(ref uint32) {
	n.say(func(env *kernel.Env, to, from signal.Addr) {
		kernel.Send[signal.HeardReq](env, to, from, signal.NumHeardReq).Ref = ref
	})
}

func (n *testNode) closeLink(node uint32) {
	n.say(func(env *kernel.Env, to, from signal.Addr) {
		kernel.Send[signal.LinkCloseOrd](env, to, from, signal.NumLinkCloseOrd).Node = node
	})
}

// newPeer opens every socket of a data node's link.
func newPeer(t *testing.T, n *testNode, node uint8) []*client {
	t.Helper()
	var all []*client
	for k := 0; k == 0 || k < int(all[0].conf.Sockets); k++ {
		c, err := net.Dial("tcp", n.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(testWait))
		p := &client{Conn: c, node: node, peer: n.id}
		m := greeting(node, n.id, k, signal.PeerData)
		m.LDMs, m.TCs = 1, 1
		if _, err = c.Write(frameOf(m)); err == nil {
			err = readFrame(c, frameOf(&p.conf), signal.NumHelloConf, n.id)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	get(t, n.ups2, "LinkUpRep of the data node")
	return all
}

// spin keeps a thread from doing anything else.
func spin(d time.Duration) {
	for begin := time.Now(); time.Since(begin) < d; {
	}
}

// chain makes count ChainConfs to an ldm.
func (c *client) chain(ldm, count int) []byte {
	var b []byte
	for range count {
		m := signal.ChainConf{Head: signal.Head{Len: uint16(unsafe.Sizeof(signal.ChainConf{}) / 4), Num: signal.NumChainConf,
			To: signal.MakeAddr(c.peer, signal.BlockLDM, uint16(ldm)), From: signal.MakeAddr(c.node, signal.BlockLDM, 0)}}
		b = append(b, frameOf(&m)...)
	}
	return b
}

// An answer comes behind everything for main that lay in the sockets of data nodes when the question came, although no thread had looked at them for a while.
func TestAQuestionIsAnsweredBehindWhatHadArrived(t *testing.T) {
	for threads := 1; threads <= 3; threads++ {
		const count = 3000
		n := newTestNode(t, 5, threads, nil)
		var executed, before atomic.Int32
		blocked, free := make(chan struct{}, threads), make(chan struct{})
		n.handle = func(env *kernel.Env, h *signal.Head) {
			if h.Num == signal.NumTickOrd {
				blocked <- struct{}{}
				<-free
				return
			}
			executed.Add(1)
		}
		n.onHeard = func() { before.Store(executed.Load()) }
		n.run(t)
		p := newPeer(t, n, 7)
		for i, l := range n.loops {
			l.post(func(l *loop) { l.env.Tick(signal.MakeAddr(n.id, signal.BlockLDM, uint16(i)), 0, 0, 0, 0) })
		}
		for range threads {
			get(t, blocked, "blocked thread")
		}
		for _, c := range p {
			if _, err := c.Write(c.chain(0, count)); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range n.peers[7].parts { // until it has arrived
			for unread(s.fd) < count*int(unsafe.Sizeof(signal.ChainConf{})) {
			}
		}
		n.ask(42)
		n.ask(43)
		close(free)
		for ref := uint32(42); ref <= 43; ref++ {
			c := get(t, n.heard, "answer")
			if c.Ref != ref || c.Age[7] == signal.NoRef || c.Age[6] != signal.NoRef || c.Age[5] != signal.NoRef {
				t.Fatalf("%+v", c)
			}
		}
		if before.Load() != int32(threads*count) {
			t.Fatalf("%d threads: answered after %d of %d signals", threads, before.Load(), threads*count)
		}
	}
}

func TestSilenceAndStallsAreMeasured(t *testing.T) {
	n := newTestNode(t, 5, 2, nil)
	var ran atomic.Int32
	n.handle = func(*kernel.Env, *signal.Head) {
		ran.Add(1)
		spin(30 * time.Millisecond)
	}
	n.run(t)
	p := newPeer(t, n, 7)
	age := func() signal.HeardConf {
		n.ask(1)
		return get(t, n.heard, "answer")
	}
	for age().Age[7] < 20 { // it says nothing
	}
	begin, stall := time.Now(), uint32(0)
	if _, err := p[1].Write(p[1].chain(1, 1)); err != nil {
		t.Fatal(err)
	}
	for ran.Load() == 0 || stall < 30 {
		stall = max(stall, age().Stall)
	}
	if c := age(); c.Age[7] > uint32(time.Since(begin)/time.Millisecond) {
		t.Fatalf("heard %d ms ago, and it spoke %v ago", c.Age[7], time.Since(begin))
	}
	p[0].Close()
	get(t, n.downs, "LinkDownRep")
	if c := age(); c.Age[7] != signal.NoRef {
		t.Fatalf("%d ms without a link", c.Age[7])
	}
}

func TestMembershipClosesALink(t *testing.T) {
	n := newTestNode(t, 5, 3, nil)
	n.keep.Store(true)
	n.handle = func(*kernel.Env, *signal.Head) {}
	n.run(t)
	p := newPeer(t, n, 7)
	done := make(chan error)
	go func() { // signals are under way all the time
		b := p[0].chain(2, 1000)
		for {
			if _, err := p[0].Write(b); err != nil {
				done <- err
				return
			}
		}
	}()
	n.closeLink(7)
	if d := get(t, n.downs, "LinkDownRep"); d.Node != 7 || d.Kind != uint32(signal.PeerData) || d.Code != DownByUs {
		t.Fatalf("%+v", d)
	}
	get(t, done, "end of the socket")
	taken := func(node uint8) {
		t.Helper()
		if code := greet(t, n, greeting(node, 5, 0, signal.PeerData)); code != signal.RefuseTaken {
			t.Fatalf("refused with %d", code)
		}
	}
	taken(7)
	n.closeLink(7)
	n.closeLink(8) // which never had a link
	for node := uint32(7); node <= 8; node++ {
		if d := get(t, n.downs, "LinkDownRep"); d.Node != node || d.Kind != uint32(signal.PeerData) {
			t.Fatalf("%+v", d)
		}
		taken(uint8(node))
		n.loops[0].post(func(l *loop) { n.freed(l.env, node) })
		n.ask(0)
		get(t, n.heard, "word that main has gone on")
		newPeer(t, n, uint8(node))
	}
	if n.early.Load() != 0 {
		t.Fatalf("%d signals came outside of the link's life", n.early.Load())
	}
}

// A thread that did not run for too long takes in nothing from clients, sends them nothing of what it executed since, and
// neither does any other thread, until membership trusts the node again.
func TestAfterAStallClientsWaitUntilTheNodeIsTrusted(t *testing.T) {
	for _, stalled := range []int{0, 1} {
		n := newTestNode(t, 5, 2, func(c *Config) { c.StallLimit = int64(300 * time.Millisecond) })
		begun, trusted := make(chan struct{}, 1), atomic.Bool{}
		n.handle = func(env *kernel.Env, h *signal.Head) {
			begun <- struct{}{}
			spin(400 * time.Millisecond)
			kernel.Send[signal.WriteConf](env, h.From, h.To, signal.NumWriteConf).Ref = 1000 // decided after the stall
		}
		n.run(t)
		cs := newClient(t, n, 51)
		c := cs[stalled]
		m := signal.CloseOrd{Head: signal.Head{Len: signal.HeadSize / 4, Num: signal.NumCloseOrd,
			To: signal.MakeAddr(5, signal.BlockLDM, uint16(stalled)), From: signal.MakeAddr(51, signal.BlockClient, uint16(stalled))}}
		if _, err := c.Write(unsafe.Slice((*byte)(unsafe.Pointer(&m)), signal.HeadSize)); err != nil {
			t.Fatal(err)
		}
		get(t, begun, "stall")
		answered := make(chan bool, 2)
		for k, o := range cs {
			go func() {
				b := make([]byte, 1)
				_, err := o.Read(b)
				answered <- err == nil && trusted.Load()
				if k != stalled {
					o.Close()
				}
			}()
		}
		if r := get(t, n.stalls, "StallRep"); r.Millis < 400 {
			t.Fatalf("%d ms", r.Millis)
		}
		for _, o := range cs {
			if _, err := o.Write(o.request(1-stalled, 0, 1)); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 { // rounds of every thread
			n.ask(1)
			get(t, n.heard, "answer")
		}
		if len(n.stalls) != 0 {
			t.Fatal("a second report of the same stall")
		}
		n.say(func(env *kernel.Env, to, from signal.Addr) {
			trusted.Store(true)
			kernel.Send[signal.TrustOrd](env, to, from, signal.NumTrustOrd)
		})
		for range cs {
			if !get(t, answered, "answer to a client") {
				t.Fatal("an answer came before the node was trusted")
			}
		}
	}
}

// A data node that takes nothing makes clients wait, and keeps its link; when it goes on they go on.
func TestABusyDataNodeHoldsClientsBack(t *testing.T) {
	n := newTestNode(t, 5, 1, func(c *Config) {
		c.Peers[7].SendSoft, c.Peers[7].SendHard, c.Peers[7].SendKernel = 256<<10, 1<<30, 64<<10
	})
	n.handle = func(env *kernel.Env, h *signal.Head) { // each request of a client costs the peer 64 signals
		for range 64 {
			m := kernel.Send[signal.PrepareConf](env, signal.MakeAddr(7, signal.BlockLDM, 0), h.To, signal.NumPrepareConf)
			m.TcRef, m.First, m.Tail = 0, 0, 0
		}
		kernel.Send[signal.WriteConf](env, h.From, h.To, signal.NumWriteConf).Ref = 0
	}
	n.run(t)
	p := newPeer(t, n, 7)[0]
	c := newClient(t, n, 51)[0]
	var sent, answered atomic.Int64
	const all = 200_000
	m := signal.CloseOrd{Head: signal.Head{Len: signal.HeadSize / 4, Num: signal.NumCloseOrd, To: signal.MakeAddr(5, signal.BlockLDM, 0), From: signal.MakeAddr(51, signal.BlockClient, 0)}}
	var b []byte
	for range 1000 {
		b = append(b, unsafe.Slice((*byte)(unsafe.Pointer(&m)), signal.HeadSize)...)
	}
	go func() {
		for sent.Load() < all {
			if _, err := c.Write(b); err != nil {
				return
			}
			sent.Add(1000)
		}
	}()
	ended := make(chan error, 1)
	go func() {
		a := make([]byte, unsafe.Sizeof(signal.WriteConf{}))
		for answered.Load() < all {
			if _, err := c.Read(a); err != nil {
				ended <- err
				return
			}
			answered.Add(1)
		}
		ended <- nil
	}()
	for n.overData.Load() == 0 {
	}
	for range 3 { // it stays that way, over many rounds
		n.ask(1)
		get(t, n.heard, "answer")
		if n.overData.Load() != 1 {
			t.Fatal("clients are let in although the data node takes nothing")
		}
	}
	if answered.Load() >= all {
		t.Fatal("nobody was held back")
	}
	go func() {
		buf := make([]byte, 1<<20)
		for {
			if _, err := p.Read(buf); err != nil {
				return
			}
		}
	}()
	if err := get(t, ended, "end of all requests"); err != nil {
		t.Fatal(err)
	}
	if len(n.downs) != 0 {
		t.Fatalf("a link was lost: %+v", <-n.downs)
	}
}

// However much clients send, and however long each signal takes, a timer waits for little more than a turn's
// work: half a millisecond, and the signals that are executed between two looks at the clock.
func TestATimerWaitsForLittleWork(t *testing.T) {
	const work = 20 * time.Microsecond // for each signal
	ldm := signal.MakeAddr(5, signal.BlockLDM, 0)
	for _, jobs := range []int{0, 30} { // that each signal causes
		n := newTestNode(t, 5, 1, nil)
		due, late, worst := int64(1<<62), 0, 0
		fired := make(chan struct{}, 1000)
		n.handle = func(env *kernel.Env, h *signal.Head) {
			begin := time.Since(n.start)
			if h.Num == signal.NumTickOrd {
				worst, late = max(worst, late), 0
				due = int64(begin) + 2_000_000
				env.Tick(ldm, due-env.Now(), 0, 0, 0)
				select {
				case fired <- struct{}{}:
				default:
				}
				return
			}
			if int64(begin) > due {
				late++
			}
			if h.From.Node() != 5 {
				for range jobs {
					kernel.Send[signal.CloseOrd](env, ldm, ldm, signal.NumCloseOrd)
				}
			}
			for time.Since(n.start)-begin < work {
			}
		}
		n.run(t)
		c := newClient(t, n, 51)[0]
		go c.flood(0)
		n.loops[0].post(func(l *loop) { l.env.Tick(ldm, 0, 0, 0, 0) })
		for range 100 {
			get(t, fired, "tick")
		}
		_ = c.Conn.(*net.TCPConn).SetLinger(0) // what it has sent is not to be waited for
		c.Close()
		get(t, n.downs, "LinkDownRep")
		result := make(chan int, 1)
		n.say(func(*kernel.Env, signal.Addr, signal.Addr) { result <- worst })
		most := get(t, result, "figure")
		t.Logf("%d jobs a signal: at most %d signals of %v before a timer that was due", jobs, most, work)
		if limit := int((2*turnTime+turnTime)/work) + jobsAtOnce; most > limit {
			t.Errorf("a timer waited for %d signals, want %d at most", most, limit)
		}
	}
}
