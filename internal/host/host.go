package host

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// drainTime bounds how long a stopping node tries to send what is left.
const drainTime = 500 * time.Millisecond

// Thread is one thread of the node to run.
type Thread struct {
	// Env has every block of the node placed.
	Env *kernel.Env
	// Deliver gives a signal to the block of this thread that it is addressed to.
	Deliver func(p unsafe.Pointer)
	// Touch prefetches what the first n signals of w will need. A hint; may be nil.
	Touch func(w *[Window]unsafe.Pointer, n int)
}

// Peer is what the host knows about another node.
type Peer struct {
	Kind signal.Peer // 0: there is no such node
	// Dial reaches the peer; nil for peers that dial this node. The host greets on the connection.
	Dial func(context.Context) (net.Conn, error)
	// SendSoft is how many bytes may wait for the peer before requests are held back, SendHard how many before its link is
	// cut; per socket.
	SendSoft, SendHard int
	// ReadBytes is how much one read takes at most; 0, or more than 64 KiB: 64 KiB.
	ReadBytes int
	// SendKernel and ReceiveKernel are sizes for the system's socket buffers; 0 leaves them to the system, which on the
	// loopback address was as fast as any fixed size. MaxSegment is the largest TCP segment; 0 leaves it to the system.
	SendKernel, ReceiveKernel, MaxSegment int
	// Silence is how long the peer's machine may leave the system's questions unanswered before its link is lost, in
	// milliseconds; 0: as long as the system likes. Membership looks after data nodes itself.
	Silence int
}

// Config is what a host runs.
type Config struct {
	Node    uint8
	Threads []Thread
	// Main is the thread of membership and manager.
	Main int
	// Receivers are the threads that own sockets, socket k of a link belonging to Receivers[k].
	Receivers []int
	LDMs, TCs int       // instances of this node, for the handshake
	Name      [2]uint32 // hash of the cluster's name
	// Secret tells this run of the node from others; it goes into every Hello. Zero: a random one.
	Secret [2]uint32
	Peers  [256]Peer
	// Listener takes links from peers; the host closes it.
	Listener net.Listener
	// SendTotal is how many bytes may wait to be sent in all; above it clients are held back. 0: no such limit.
	SendTotal int64
	// Patience is how long a client above its soft limit may take nothing before it is cut; 0: five seconds.
	Patience time.Duration
	// TraceDir is where the last signals of a broken thread are written, into one of at most TracesKept files; 0: none is.
	TraceDir   string
	TracesKept int
	// StallLimit is how long a thread may not run, in ns, before the node doubts that it is still in the cluster. 0: for ever.
	StallLimit int64
	// Log takes lines for an operator; any goroutine calls it.
	Log func(format string, args ...any)
	// Observe sees every NodeStateRep and EventRep of the node, on the main thread; nil: nobody does.
	Observe func(h *signal.Head)
	// LockThreads binds each loop to a thread of the operating system.
	LockThreads bool
}

// Exit is why Run returned.
type Exit struct {
	Code    uint32 // exit status (package exitcode)
	Restart uint32 // Stop flags of the ExitOrd; 0: stay down
	Text    string
	// Trace is the file with the last signals of a broken thread, or empty.
	Trace string
	// Bug: an assertion of this node broke.
	Bug bool
}

// Host runs one data node.
type Host struct {
	cfg    Config
	start  time.Time
	self   signal.Addr // the runtime as an address
	secret [2]uint32
	loops  []*loop
	peers  [256]*peer
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup // goroutines of handshakes

	// overData is how many sockets to data nodes are above their soft limit, pending how many bytes wait in sockets that did
	// not take all at once.
	overData atomic.Int32
	pending  atomic.Int64
	// stopping: the loops end. It is set under mu, so that nothing opens afterwards. abrupt: at once.
	stopping, abrupt atomic.Bool
	// doubts counts how often a thread found that it had not run; reported is how many of these membership has been told
	// (main's own), trusted how many it has answered. While there are more than that, nothing is taken in from clients.
	doubts, trusted atomic.Uint64
	reported        uint64
	inquest         inquest           // main's own
	refused         func(text string) // of Leave; main's own

	mu     sync.Mutex
	exit   Exit
	exited bool
	// guests are the connections that have not said yet who they are, oldest first; ousted counts those that had to make room
	// for others, and crowdedAt is when the log last had that.
	guests    []*guest
	ousted    int
	crowdedAt time.Time
}

// New makes a host. Nothing runs before Run.
func New(cfg Config) (*Host, error) {
	if cfg.SendTotal == 0 {
		cfg.SendTotal = 1 << 62
	}
	if cfg.StallLimit == 0 {
		cfg.StallLimit = 1 << 62
	}
	if cfg.Patience == 0 {
		cfg.Patience = 5 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = func(string, ...any) {}
	}
	if cfg.Node == 0 || len(cfg.Threads) == 0 || cfg.Main < 0 || cfg.Main >= len(cfg.Threads) || len(cfg.Receivers) == 0 {
		return nil, errors.New("host: a node has a number, threads, one of them main, and at least one that receives")
	}
	h := &Host{cfg: cfg, start: time.Now(), self: signal.MakeAddr(cfg.Node, signal.BlockRuntime, 0), secret: cfg.Secret}
	if h.secret == [2]uint32{} {
		h.secret = NewSecret()
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	for n := range cfg.Peers {
		if p := cfg.Peers[n]; p.Kind != 0 && n != int(cfg.Node) {
			if p.ReadBytes <= 0 || p.ReadBytes > readBytes {
				p.ReadBytes = readBytes
			}
			h.peers[n] = &peer{Peer: p, node: uint8(n), changed: make(chan struct{})}
		}
	}
	for i, t := range cfg.Threads {
		t.Env.Place(signal.BlockRuntime, 0, cfg.Main)
		h.loops = append(h.loops, newLoop(h, i, t))
	}
	for _, l := range h.loops {
		if err := l.poll.open(); err != nil {
			for _, o := range h.loops[:l.index] {
				o.poll.close()
			}
			return nil, err
		}
	}
	h.join()
	return h, nil
}

// NewSecret makes a number that no other run of a node has.
func NewSecret() [2]uint32 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return [2]uint32{binary.LittleEndian.Uint32(b[:]), binary.LittleEndian.Uint32(b[4:]) | 1}
}

// join makes a ring for each ordered pair of loops.
func (h *Host) join() {
	n := len(h.loops)
	for _, l := range h.loops {
		l.in, l.out, l.full = make([]*ring, n), make([]*ring, n), make([]bool, n)
	}
	for f, from := range h.loops {
		for t, to := range h.loops {
			if f == t {
				continue
			}
			from.env.Buf(kernel.ThreadDest(t)).Init(chunkBytes, threadBufBytes)
			r := new(ring)
			from.out[t], to.in[f] = r, r
		}
	}
}

// Run runs the node until it stops, and says why.
func (h *Host) Run() Exit {
	var loops sync.WaitGroup
	for _, l := range h.loops {
		loops.Add(1)
		go func() {
			defer loops.Done()
			l.run()
		}()
	}
	if h.cfg.Listener != nil {
		h.work.Add(1)
		go h.accept()
	}
	for _, p := range h.peers {
		if p != nil && p.Dial != nil {
			h.work.Add(1)
			go h.dial(p)
		}
	}
	loops.Wait()
	h.cancel()
	if h.cfg.Listener != nil {
		_ = h.cfg.Listener.Close()
	}
	h.work.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.peers {
		if p != nil {
			p.discard()
		}
	}
	return h.exit
}

// Stop ends the node: the loops send what is left and close their links. The first call wins.
func (h *Host) Stop(e Exit) {
	h.mu.Lock()
	if !h.exited {
		h.exited, h.exit = true, e
		h.stopping.Store(true)
	}
	h.mu.Unlock()
	for _, l := range h.loops {
		l.poll.wake()
	}
}

// Leave asks the core to end the node in order: it gives away what it leads, and exits. refused is called, on main, if the
// cluster could not go on without it, or it is no time for that.
func (h *Host) Leave(refused func(text string)) {
	h.loops[h.cfg.Main].post(func(l *loop) {
		h.refused = refused
		r := kernel.Send[signal.StopReq](l.env, signal.MakeAddr(h.cfg.Node, signal.BlockManager, 0), h.self, signal.NumStopReq)
		r.Ref, r.Flags = 0, 0
		var nodes signal.NodeSet
		nodes.Add(h.cfg.Node)
		r.Nodes = nodes
	})
}

// bug ends the node after a panic in a loop.
func (h *Host) bug(l *loop, reason any, stack []byte) {
	e := Exit{Code: exitcode.Bug, Bug: true, Text: fmt.Sprint(reason)}
	if v, ok := reason.(invariant.Violation); ok {
		e.Text = v.Error()
	}
	e.Text = fmt.Sprintf("thread %d: %s", l.index, e.Text)
	h.abrupt.Store(true)
	h.Stop(e)
	for _, s := range l.list { // the others are to hear of the end at once, however slow the disk is
		closeSocket(s.fd)
	}
	trace := ""
	if h.cfg.TracesKept > 0 {
		name := traceName(h.cfg.TraceDir, h.cfg.Node, h.cfg.TracesKept)
		if err := writeTrace(name, h.cfg.Node, l.index, e.Text, stack, &l.trace); err == nil {
			trace = name
		} else {
			h.cfg.Log("the last signals could not be written: %v", err)
		}
	}
	if trace == "" {
		h.cfg.Log("%s\n%s", e.Text, stack)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.exit.Trace == "" {
		h.exit.Trace = trace
	}
}

// control takes what the core says to the runtime.
func (h *Host) control(head *signal.Head) {
	p := unsafe.Pointer(head)
	switch head.Num {
	case signal.NumExitOrd:
		r := (*signal.ExitOrd)(p)
		h.Stop(Exit{Code: r.Code, Restart: r.Restart, Text: r.Text()})
	case signal.NumNodeFreeRep:
		h.free(uint8((*signal.NodeFreeRep)(p).Node))
	case signal.NumLinkCloseOrd:
		h.closeLink(h.loops[h.cfg.Main], uint8((*signal.LinkCloseOrd)(p).Node))
	case signal.NumHeardReq:
		h.heardReq((*signal.HeardReq)(p).Ref)
	case signal.NumStopConf: // the ExitOrd will come
	case signal.NumStopRef:
		if h.refused != nil {
			h.refused((*signal.StopRef)(p).Text())
		}
	case signal.NumTrustOrd:
		h.trust()
	case signal.NumNodeStateRep, signal.NumEventRep:
		if h.cfg.Observe != nil {
			h.cfg.Observe(head)
		}
	default:
		invariant.Failf("the runtime was sent %s", signal.Format(head))
	}
}

// report tells the manager block of an event at the runtime.
func (h *Host) report(t event.Type, text string, args ...uint32) {
	if len(text) > event.TextMax {
		text = text[:event.TextMax]
	}
	h.loops[h.cfg.Main].post(func(l *loop) {
		to := signal.MakeAddr(h.cfg.Node, signal.BlockManager, 0)
		if !l.env.Has(to) {
			return
		}
		size := uint32(unsafe.Sizeof(signal.EventRep{}))
		p := l.env.Put(to, h.self, signal.NumEventRep, size+signal.Pad(uint32(len(text))))
		r := (*signal.EventRep)(p)
		head := r.Head
		*r = signal.EventRep{Head: head, Event: uint32(t), Node: uint32(h.cfg.Node), TextLen: uint32(len(text))}
		copy(r.Args[:], args)
		section := unsafe.Slice((*byte)(unsafe.Add(p, size)), signal.Pad(uint32(len(text))))
		clear(section)
		copy(section, text)
	})
}
