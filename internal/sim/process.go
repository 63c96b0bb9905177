package sim

import (
	"fmt"
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// Process is one run of a node's program: its threads, and what the simulator plays of its machine. A node that was
// killed and started again is another process with the same id.
//
// A process runs, is paused (as by SIGSTOP: nothing of it moves, and what is sent to it waits), or is dead.
type Process struct {
	ID      uint8
	Kind    signal.Peer
	Threads []*Thread
	net     *Network
	index   int // of the node, for wires
	life    int // which process of this id it is, from 1

	dead   bool
	paused bool
	since  int64    // when it was paused
	late   []func() // what the runtime had to do while it was paused

	// Its clock: what it shows at virtual time 0, and how much faster than virtual time it runs, in millionths.
	epoch, ppm int64

	ends [256]*end // links, by node
	// taken: links to a node are down, and the runtime has not been told yet that nothing of it is left.
	taken [256]bool
	heard [256]int64 // when a signal of a node was executed last, or links to it came up
	// wary: the process did not run for a while; it takes in nothing from clients until its membership says so.
	wary    bool
	waiting []waiter // for what is on its way from other processes
	// onLink is told that links are up or down; stalled that the process did not run for a while (ns). Set by whoever builds it.
	onLink  func(peer *Process, num uint16)
	stalled func(ns int64)
	// What a data node tells its peers when links come up.
	ldms, tcs uint32
}

// waiter waits until nothing is on its way from another process any more.
type waiter struct {
	from *Process
	then func()
}

// Thread is an event loop on virtual time.
type Thread struct {
	Proc  *Process
	Index int
	Env   *kernel.Env
	// Handle executes a signal; set by whoever builds the process.
	Handle func(p unsafe.Pointer)
	// Flush, if set, is called before what the thread has sent leaves it.
	Flush func()
	// Lazy, if set, is how long the thread keeps what it has to send, as a client does that combines requests.
	Lazy *Delay
	// Touch, if set, may look at signals that are about to be executed, as touch-ahead does.
	Touch func(w *[16]unsafe.Pointer, n int)

	number     int      // among the threads of all living processes
	out        []*route // by the number of the receiving thread
	in         []*route // from threads of other processes
	ready      []*route // routes whose first signal has arrived
	turnAt     int64    // when the next turn is due; 0 = none is planned
	busyUntil  int64
	lateUntil  int64 // until when a lazy thread keeps what it has to send; 0 = nothing is kept
	timerAt    int64 // when the wake-up for the earliest timer is due; 0 = none
	stall      int64 // longest time since the last HeardConf in which it did not run though it had to, ns
	work, wake Delay
}

// Self names the thread in messages.
func (t *Thread) String() string { return fmt.Sprintf("node %d thread %d", t.Proc.ID, t.Index) }

// maxProcesses bounds the nodes of a network, clients and management servers included.
const maxProcesses = 32

// addProcess starts a node's program with so many threads; the one before it under this id has ended.
func (n *Network) addProcess(id uint8, kind signal.Peer, threads int, r *Random) *Process {
	p := &Process{ID: id, Kind: kind, net: n, life: 1, index: n.nodes}
	if old := n.procs[id]; old != nil {
		p.life, p.index = old.life+1, old.index
		p.ppm = old.ppm
	} else {
		n.nodes++
		n.ids = append(n.ids, id)
	}
	p.epoch = 1 + r.Below(1000*second)
	for i := range threads {
		t := &Thread{Proc: p, Index: i, Env: kernel.NewEnv(id, i, r.Uint64(), 1<<14),
			number: n.number(), work: n.weather.own(n.build, n.weather.Work), wake: n.weather.own(n.build, n.weather.Wake)}
		soil(t.Env.Buf(kernel.ThreadDest(i)))
		p.Threads = append(p.Threads, t)
	}
	for i, t := range p.Threads {
		for j := range threads {
			if i != j {
				b := t.Env.Buf(kernel.ThreadDest(j))
				b.Init(1<<14, sendBytesMax)
				soil(b)
			}
		}
		t.Env.SetNow(p.clock(n.now))
	}
	n.procs[id] = p
	return p
}

// number is a free number of a thread.
func (n *Network) number() int {
	if k := len(n.spare); k > 0 {
		x := n.spare[k-1]
		n.spare = n.spare[:k-1]
		return x
	}
	n.threads++
	return n.threads - 1
}

// clock is what the process's clock shows at a virtual time.
func (p *Process) clock(now int64) int64 {
	return p.epoch + now + now/1_000_000*p.ppm + now%1_000_000*p.ppm/1_000_000
}

// when is the virtual time at which the process's clock shows a time to come, or a moment before.
func (p *Process) when(local int64) int64 {
	d := local - p.clock(p.net.now)
	if d <= 0 {
		return p.net.now
	}
	return p.net.now + d - d/1_000_000*p.ppm - d%1_000_000*p.ppm/1_000_000
}

// soil fills a fresh buffer's memory with poison, so that a field that nobody wrote shows.
func soil(b *kernel.Buf) {
	n := b.Len()
	p := b.Reserve(1 << 14)
	kill(unsafe.Slice((*byte)(p), 1<<14))
	b.Consume(n + 1<<14)
}

// place puts an instance of a block of a process on one of its threads.
func (p *Process) place(block uint8, instance, thread int) {
	for _, t := range p.Threads {
		t.Env.Place(block, instance, thread)
	}
}

// alive tells whether the process has not ended.
func (p *Process) alive() bool { return p != nil && !p.dead }

// do lets the process's runtime do something: at once, or as soon as it is not paused any more.
func (p *Process) do(f func()) {
	switch {
	case p.dead:
	case p.paused:
		p.late = append(p.late, f)
	default:
		f()
	}
}

// end ends a process: none of its threads runs any more. What it has sent may still arrive, up to a random signal of
// each pair of threads (lossy), or all of it; then its peers find its links closed. What was sent to it is lost.
func (n *Network) end(p *Process, lossy bool, r *Random) {
	if p.dead {
		return
	}
	if !lossy && !p.paused {
		for _, t := range p.Threads {
			t.Lazy = nil
			n.drain(t)
		}
	}
	for _, t := range p.Threads {
		n.marks.Add(t.Env.Marks())
	}
	for peer := range p.ends {
		if e := p.ends[peer]; e != nil {
			n.abandon(e, lossy, r)
		}
	}
	p.dead = true
	p.late, p.waiting = nil, nil
	for _, id := range n.ids {
		q := n.procs[id]
		if q == p || q.dead {
			continue
		}
		for _, t := range q.Threads {
			for _, own := range p.Threads {
				if own.number < len(t.out) {
					t.out[own.number] = nil
				}
			}
		}
	}
	for _, t := range p.Threads {
		n.spare = append(n.spare, t.number)
		t.ready, t.in = nil, nil
	}
}

// pause stops all threads of a process where they are.
func (n *Network) pause(p *Process) {
	if p.dead || p.paused {
		return
	}
	p.paused, p.since = true, n.now
}

// stallMillis is from how long a stop on a runtime tells its membership of it.
const stallMillis = 100

// resume lets a paused process go on: its membership learns first that it did not run.
func (n *Network) resume(p *Process) {
	if p.dead || !p.paused {
		return
	}
	p.paused = false
	stall := n.now - p.since
	for _, t := range p.Threads {
		t.stall = max(t.stall, stall)
	}
	if p.stalled != nil && stall >= stallMillis*millisecond {
		p.stalled(stall)
	}
	late := p.late
	p.late = nil
	for _, f := range late {
		p.do(f)
	}
	if p.dead {
		return
	}
	for _, t := range p.Threads {
		n.drain(t)
		if len(t.ready) > 0 {
			n.wakeUp(t)
		}
		n.plan(t)
	}
}

// distrust takes in nothing of clients from now on.
func (n *Network) distrust(p *Process) {
	p.wary = true
	for _, t := range p.Threads {
		for _, r := range t.in {
			if r.from.Proc.Kind == signal.PeerAPI {
				r.unready()
			}
		}
	}
}

// trust lets in what clients have sent meanwhile.
func (n *Network) trust(p *Process) {
	if !p.wary {
		return
	}
	p.wary = false
	for _, t := range p.Threads {
		for _, r := range t.in {
			if r.from.Proc.Kind == signal.PeerAPI {
				n.arrived(r)
			}
		}
	}
}

// sendBytesMax is the hard limit of every outgoing buffer. Since the simulator empties buffers after each batch of
// signals, one that is passed means a handler that sends without bound.
const sendBytesMax = 16 << 20
