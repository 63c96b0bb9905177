package sim

import (
	"fmt"
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// Network is virtual time and everything that travels in it: processes with their threads, the signals between them,
// and what is to happen later. A signal's way:
//
//	a handler puts it into its Env → drain takes it out, draws its delay, appends it to its route → its arrival makes
//	the route ready at the receiving thread → a turn of that thread picks one of its ready routes at random and
//	executes the route's first signal
//
// A route is an ordered pair of threads; within it signals keep their order. A client's connection and each of its
// sessions count as threads.
type Network struct {
	now     int64 // virtual time, nanoseconds
	events  eventHeap
	seq     uint64
	digest  Digest
	weather Weather

	procs   [256]*Process
	threads int // of all processes

	travel *Random // delays of signals
	choice *Random // which route's turn it is
	build  *Random // what links and threads are like

	stage     *stage
	ring      ring
	trace     func(at int64, h *signal.Head)
	failure   *Failure
	delivered uint64
	inFlight  int

	// after is called after each executed signal; checkers hang on it.
	after func(t *Thread, h *signal.Head)
	// tamper may look at and change each signal as it leaves, and says how often it is to travel (1, or 0 for lost, 2
	// for doubled). Only tests set it, to see that checkers find what they are there for.
	tamper func(from *Thread, h *signal.Head) int
	// sending is the thread whose buffers drain empties at the moment, for the callback.
	sending *Thread
	takeBuf func(d kernel.Dest, b *kernel.Buf)
}

// Process is one node of the cluster: its kind, its threads.
type Process struct {
	ID      uint8
	Kind    signal.Peer
	Threads []*Thread
	net     *Network
	// heard is since when signals of a node are let in: not before its LinkUpRep was executed.
	heard [256]int64
	// linked: there are links to the node; what is sent to another is lost.
	linked [256]bool
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

	number     int      // among all threads of the network
	out        []*route // by the number of the receiving thread
	ready      []*route // routes whose first signal has arrived
	turnAt     int64    // when the next turn is due; 0 = none is planned
	busyUntil  int64
	lateUntil  int64 // until when a lazy thread keeps what it has to send; 0 = nothing is kept
	timerAt    int64 // when the wake-up for the earliest timer is due; 0 = none
	work, wake Delay
}

// Self names the thread in messages.
func (t *Thread) String() string { return fmt.Sprintf("node %d thread %d", t.Proc.ID, t.Index) }

// route carries the signals from one thread to another, in order.
type route struct {
	from   *Thread
	to     *Thread
	delay  Delay
	last   int64 // when the last signal arrives: a later one does not overtake it
	bytes  []byte
	read   int // where the first waiting signal starts
	at     []int64
	atRead int
	ready  bool
}

func newNetwork(r *Random, w Weather) (*Network, error) {
	s, err := newStage()
	if err != nil {
		return nil, err
	}
	n := &Network{weather: w, travel: r.Sub("travel"), choice: r.Sub("choice"), build: r.Sub("build"), stage: s}
	n.takeBuf = n.take
	return n, nil
}

func (n *Network) close() { n.stage.close() }

// Now is the virtual time in nanoseconds.
func (n *Network) Now() int64 { return n.now }

// addProcess makes a node with so many threads.
func (n *Network) addProcess(id uint8, kind signal.Peer, threads int, r *Random) *Process {
	p := &Process{ID: id, Kind: kind, net: n}
	for i := range threads {
		t := &Thread{Proc: p, Index: i, Env: kernel.NewEnv(id, i, r.Uint64(), 1<<14),
			number: n.threads, work: n.weather.own(n.build, n.weather.Work), wake: n.weather.own(n.build, n.weather.Wake)}
		n.threads++
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
		t.Env.SetNow(n.now)
	}
	n.procs[id] = p
	return p
}

// sendBytesMax is the hard limit of every outgoing buffer. Since the simulator empties buffers after each batch of
// signals, one that is passed means a handler that sends without bound.
const sendBytesMax = 16 << 20

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

// open makes process p able to send to node peer.
func (p *Process) open(peer uint8) {
	for _, t := range p.Threads {
		b := t.Env.Buf(kernel.Dest(peer))
		b.Init(1<<14, sendBytesMax)
		soil(b)
		t.Env.Via(peer, kernel.Dest(peer))
	}
	p.linked[peer] = true
}

// shut takes process p's buffers to node peer away.
func (p *Process) shut(peer uint8) {
	for _, t := range p.Threads {
		t.Env.Buf(kernel.Dest(peer)).Close()
	}
	p.linked[peer] = false
}

// tear loses what is on its way from one process to another: all of it, or, given r, all but the first few signals of
// each pair of threads, since a broken connection loses the end of what was sent.
func (n *Network) tear(from, to *Process, r *Random) {
	for _, f := range from.Threads {
		for _, t := range to.Threads {
			if t.number >= len(f.out) || f.out[t.number] == nil {
				continue
			}
			x := f.out[t.number]
			waiting := len(x.at) - x.atRead
			keep := 0
			if r != nil {
				keep = r.Int(waiting + 1)
			}
			if keep == 0 {
				x.unready()
			}
			end := x.read
			for range keep {
				end += int((*signal.Head)(unsafe.Pointer(&x.bytes[end])).Bytes())
			}
			kill(x.bytes[end:])
			x.bytes, x.at = x.bytes[:end], x.at[:x.atRead+keep]
			n.inFlight -= waiting - keep
		}
	}
}

// silent tells whether nothing is on its way from one process to another.
func silent(from, to *Process) bool {
	for _, f := range from.Threads {
		for _, t := range to.Threads {
			if t.number < len(f.out) && f.out[t.number] != nil && !f.out[t.number].empty() {
				return false
			}
		}
	}
	return true
}

// thread is where an address lives, nil if nowhere.
func (n *Network) thread(a signal.Addr) *Thread {
	p := n.procs[a.Node()]
	if p == nil || !p.Threads[0].Env.Has(a) {
		return nil
	}
	return p.Threads[p.Threads[0].Env.Dest(a)-kernel.ThreadDest(0)]
}

// late lets a lazy thread keep what it has to send for a while.
func (t *Thread) late(n *Network) bool {
	switch {
	case t.lateUntil > n.now:
		return true
	case t.lateUntil != 0: // its time has come
		t.lateUntil = 0
		return false
	}
	wait := t.Lazy.draw(n.travel)
	if wait == 0 {
		return false
	}
	t.lateUntil = n.now + wait
	n.at(t.lateUntil, func() { n.drain(t) })
	return true
}

// routeFor finds or makes the route of a signal.
func (n *Network) routeFor(from *Thread, h *signal.Head) *route {
	to := n.thread(h.To)
	if to == nil {
		n.failf("%v sends %s to %v, which does not exist", from, signal.Name(h.Num), h.To)
		return nil
	}
	if len(from.out) <= to.number {
		grown := make([]*route, n.threads)
		copy(grown, from.out)
		from.out = grown
	}
	r := from.out[to.number]
	if r == nil {
		r = &route{from: from, to: to}
		switch {
		case from.Proc != to.Proc:
			r.delay = n.weather.own(n.build, n.weather.Link)
		case from != to:
			r.delay = n.weather.own(n.build, n.weather.Inside)
		default:
			r.delay = n.weather.Self
		}
		from.out[to.number] = r
	}
	return r
}

// drain takes everything that the thread's blocks have put into its buffers, and lets it travel.
func (n *Network) drain(t *Thread) {
	if t.Lazy != nil && t.Env.Dirty() && t.late(n) {
		return
	}
	if t.Flush != nil {
		t.Flush()
	}
	n.sending = t
	if t.Env.Jobs() {
		self := kernel.ThreadDest(t.Index)
		b := t.Env.Buf(self)
		n.take(self, b)
		b.Dirty = false
	}
	t.Env.TakeDirty(n.takeBuf)
	n.plan(t)
}

func (n *Network) take(d kernel.Dest, b *kernel.Buf) {
	if d < kernel.ThreadDest(0) && !n.sending.Proc.linked[d] {
		b.Consume(b.Len()) // there is no link: what is sent there is lost
		return
	}
	if b.Broken {
		n.failf("%v has put more than %d bytes into the buffer to %d", n.sending, sendBytesMax, d)
		return
	}
	all := b.Bytes()
	for rest := all; len(rest) > 0; {
		h := (*signal.Head)(unsafe.Pointer(unsafe.SliceData(rest)))
		size := h.Bytes()
		if size < signal.HeadSize || int(size) > len(rest) {
			n.failf("%v has put a signal of %d bytes, %d are there: %s from %v to %v", n.sending, size, len(rest),
				signal.Name(h.Num), h.From, h.To)
			break
		}
		times := 1
		if n.tamper != nil {
			times = n.tamper(n.sending, h)
		}
		for range times {
			n.post(n.sending, h)
		}
		rest = rest[size:]
	}
	kill(all)
	b.Consume(len(all))
}

// post lets one signal travel.
func (n *Network) post(from *Thread, h *signal.Head) {
	if n.failure != nil {
		return
	}
	r := n.routeFor(from, h)
	if r == nil {
		return
	}
	at := max(n.now+r.delay.draw(n.travel), r.last, r.to.Proc.heard[from.Proc.ID])
	r.last = at
	r.bytes = append(r.bytes, unsafe.Slice((*byte)(unsafe.Pointer(h)), h.Bytes())...)
	r.at = append(r.at, at)
	n.inFlight++
	if len(r.at)-r.atRead == 1 {
		n.push(happening{at: at, route: r})
	}
}

// empty tells whether nothing travels on the route.
func (r *route) empty() bool { return r.atRead == len(r.at) }

// arrived makes a route ready at its thread.
func (n *Network) arrived(r *route) {
	if r.ready || r.empty() || r.at[r.atRead] > n.now {
		return // what this was about has been executed by tell
	}
	r.ready = true
	r.to.ready = append(r.to.ready, r)
	n.wakeUp(r.to)
}

// wakeUp plans a turn of a thread that has something to do now.
func (n *Network) wakeUp(t *Thread) {
	if t.turnAt != 0 {
		return
	}
	t.turnAt = max(n.now+t.wake.draw(n.travel), t.busyUntil, 1)
	n.push(happening{at: t.turnAt, turn: t})
}

// plan makes sure that the thread wakes up for its earliest timer.
func (n *Network) plan(t *Thread) {
	due, ok := t.Env.NextTimer()
	if !ok || (t.timerAt != 0 && t.timerAt <= due) {
		return
	}
	t.timerAt = max(due, n.now, 1)
	n.push(happening{at: t.timerAt, timer: t})
}

// turn lets a thread execute a batch of what has arrived, in random order between its routes.
func (n *Network) turn(t *Thread) {
	t.turnAt = 0
	t.Env.SetNow(n.now)
	t.Env.FireTimers()
	if t.Env.Jobs() {
		n.drain(t)
	}
	n.touch(t)
	at := n.now
	for k := 0; k < n.weather.Batch && len(t.ready) > 0 && n.failure == nil; k++ {
		i := 0
		if len(t.ready) > 1 {
			i = n.choice.Int(len(t.ready))
		}
		r := t.ready[i]
		n.execute(t, r)
		at += max(t.work.draw(n.travel), 1)
		if r.atRead < len(r.at) && r.at[r.atRead] <= n.now {
			continue
		}
		r.ready = false
		last := len(t.ready) - 1
		t.ready[i] = t.ready[last]
		t.ready = t.ready[:last]
		if r.atRead < len(r.at) {
			n.push(happening{at: r.at[r.atRead], route: r})
		}
	}
	t.busyUntil = at
	n.drain(t)
	if len(t.ready) > 0 {
		n.wakeUp(t)
	}
}

// touch shows a thread what waits for it, which must change nothing.
func (n *Network) touch(t *Thread) {
	if t.Touch == nil || n.tamper != nil || len(t.ready) == 0 {
		return
	}
	var w [16]unsafe.Pointer
	k := 0
	for _, r := range t.ready[:min(len(t.ready), len(w))] {
		w[k] = unsafe.Pointer(&r.bytes[r.read])
		k++
	}
	t.Touch(&w, k)
}

// execute delivers the first signal of a route.
func (n *Network) execute(t *Thread, r *route) {
	h := (*signal.Head)(unsafe.Pointer(&r.bytes[r.read]))
	size := int(h.Bytes())
	b := n.stage.put(r.bytes[r.read : r.read+size])
	kill(r.bytes[r.read : r.read+size])
	r.read += size
	r.atRead++
	if r.atRead == len(r.at) {
		r.bytes, r.read, r.at, r.atRead = r.bytes[:0], 0, r.at[:0], 0
	} else if r.read > 1<<16 && r.read > len(r.bytes)/2 {
		r.bytes = r.bytes[:copy(r.bytes, r.bytes[r.read:])]
		r.at = r.at[:copy(r.at, r.at[r.atRead:])]
		r.read, r.atRead = 0, 0
	}
	n.inFlight--
	n.delivered++
	h = (*signal.Head)(unsafe.Pointer(unsafe.SliceData(b)))
	n.digest = n.digest.add(n.now, h)
	n.ring.add(n.now, b)
	if n.trace != nil {
		n.trace(n.now, h)
	}
	if f := n.inspect(r.from.Proc, t.Proc, h); f != "" {
		n.failf("%s: %s", f, signal.Format(h))
		return
	}
	t.Env.Delivered++
	t.Handle(unsafe.Pointer(h))
	if n.after != nil {
		n.after(t, h)
	}
	kill(b)
}

// inspect examines a signal before it is executed: what comes from another node as at a socket, and every one for
// its layout and for fields that nobody wrote.
func (n *Network) inspect(from, to *Process, h *signal.Head) string {
	f := (*signal.Fault)(nil)
	if from != to {
		f = signal.Check(h, from.Kind, from.ID, to.ID)
	} else {
		f = signal.CheckLayout(h)
	}
	if f != nil {
		return f.Error()
	}
	fixed := unsafe.Slice((*uint32)(unsafe.Pointer(h)), signal.FixedSize(h.Num)/4)
	for i, w := range fixed {
		if w == poisoned {
			return fmt.Sprintf("word %d was never written", i)
		}
	}
	return ""
}

// at calls f at a moment of virtual time.
func (n *Network) at(when int64, f func()) { n.push(happening{at: max(when, n.now, 1), call: f}) }

// onThread runs f as thread t would run a handler: at its Env's present, and what it sends travels.
func (n *Network) onThread(t *Thread, f func()) {
	t.Env.SetNow(n.now)
	f()
	n.drain(t)
}

// tell gives the blocks of a thread a word of the runtime, at once, and lets them do what follows from it on the same
// thread, as a real runtime does before it lets anything else in.
func (n *Network) tell(t *Thread, f func()) {
	n.onThread(t, f)
	if t.number >= len(t.out) || t.out[t.number] == nil {
		return
	}
	r := t.out[t.number]
	for !r.empty() && n.failure == nil {
		n.execute(t, r)
		n.drain(t)
	}
	r.unready()
}

// unready takes a route that has become empty out of what its thread chooses from.
func (r *route) unready() {
	if !r.ready {
		return
	}
	r.ready = false
	t := r.to
	for i := range t.ready {
		if t.ready[i] == r {
			t.ready = append(t.ready[:i], t.ready[i+1:]...)
			return
		}
	}
}

// step lets the next thing happen; false when nothing is left or the run has failed.
func (n *Network) step() bool {
	if len(n.events) == 0 || n.failure != nil {
		return false
	}
	e := n.pop()
	n.now = max(n.now, e.at)
	switch {
	case e.route != nil:
		n.arrived(e.route)
	case e.turn != nil:
		n.turn(e.turn)
	case e.timer != nil:
		if e.timer.timerAt == e.at { // else an earlier one was planned meanwhile, and has been
			e.timer.timerAt = 0
			if due, ok := e.timer.Env.NextTimer(); ok && due <= n.now {
				n.wakeUp(e.timer)
			} else {
				n.plan(e.timer)
			}
		}
	default:
		e.call()
	}
	return n.failure == nil
}

// runUntil lets things happen until a moment of virtual time, or until done says so. It reports whether done did.
func (n *Network) runUntil(when int64, done func() bool) bool {
	for n.failure == nil {
		if done != nil && done() {
			return true
		}
		if len(n.events) == 0 || n.events[0].at > when {
			n.now = max(n.now, when)
			return false
		}
		n.step()
	}
	return false
}

// happening is something that happens at a moment: a route's first signal arrives, a thread has its turn or a timer, or a
// function is called.
type happening struct {
	at    int64
	seq   uint64
	route *route
	turn  *Thread
	timer *Thread
	call  func()
}

// eventHeap is a binary heap, earliest first; equal times in the order in which they were pushed.
type eventHeap []happening

func (e *happening) before(o *happening) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

func (n *Network) push(e happening) {
	n.seq++
	e.seq = n.seq
	h := append(n.events, e)
	for i := len(h) - 1; i > 0; {
		p := (i - 1) / 2
		if !h[i].before(&h[p]) {
			break
		}
		h[i], h[p] = h[p], h[i]
		i = p
	}
	n.events = h
}

func (n *Network) pop() happening {
	h := n.events
	top := h[0]
	last := len(h) - 1
	h[0] = h[last]
	h[last] = happening{}
	h = h[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			break
		}
		if c+1 < last && h[c+1].before(&h[c]) {
			c++
		}
		if !h[c].before(&h[i]) {
			break
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
	n.events = h
	return top
}
