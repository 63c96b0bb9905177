package sim

import (
	"fmt"
	"slices"
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

	procs   [256]*Process // by node: the newest process
	ids     []uint8       // of all nodes, in the order of their coming
	nodes   int
	wires   [maxProcesses][maxProcesses]wire // by index of process
	threads int                              // numbers in use, of all living processes
	spare   []int                            // numbers of threads that have ended
	marks   kernel.Marks                     // of processes that have ended

	travel *Random // delays of signals
	choice *Random // which route's turn it is
	build  *Random // what links and threads are like
	links  *Random // when links come and go

	stage     *stage
	ring      ring
	trace     func(at int64, h *signal.Head)
	failure   *Failure
	delivered uint64

	// after is called after each executed signal; checkers hang on it.
	after func(t *Thread, h *signal.Head)
	// tamper may look at and change each signal as it leaves, and says how often it is to travel (1, or 0 for lost, 2
	// for doubled). Only tests set it, to see that checkers find what they are there for.
	tamper func(from *Thread, h *signal.Head) int
	// sending is the thread whose buffers drain empties at the moment, for the callback.
	sending *Thread
	takeBuf func(d kernel.Dest, b *kernel.Buf)
}

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
	n := &Network{weather: w, travel: r.Sub("travel"), choice: r.Sub("choice"), build: r.Sub("build"), links: r.Sub("links"), stage: s}
	n.takeBuf = n.take
	return n, nil
}

func (n *Network) close() { n.stage.close() }

// Now is the virtual time in nanoseconds.
func (n *Network) Now() int64 { return n.now }

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
		if from.Proc != to.Proc {
			to.in = append(to.in, r)
		}
	}
	return r
}

// drain takes everything that the thread's blocks have put into its buffers, and lets it travel.
func (n *Network) drain(t *Thread) {
	if t.Proc.dead || t.Lazy != nil && t.Env.Dirty() && t.late(n) {
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
	if d < kernel.ThreadDest(0) && !n.sending.Proc.ends[d].usable() {
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
	at := max(n.now+r.delay.draw(n.travel), r.last)
	if p, q := from.Proc, r.to.Proc; p != q {
		w := n.wire(p, q)
		if at = max(at, q.ends[p.ID].opens); w.slow != (Delay{}) {
			at += w.slow.draw(n.travel)
		}
		if w.cut > 0 {
			at = never
		}
	}
	r.last = at
	r.bytes = append(r.bytes, unsafe.Slice((*byte)(unsafe.Pointer(h)), h.Bytes())...)
	r.at = append(r.at, at)
	if len(r.at)-r.atRead == 1 && at != never {
		n.push(happening{at: at, route: r})
	}
}

// empty tells whether nothing travels on the route.
func (r *route) empty() bool { return r.atRead == len(r.at) }

// arrived makes a route ready at its thread.
func (n *Network) arrived(r *route) {
	if p := r.to.Proc; r.ready || r.empty() || r.at[r.atRead] > n.now || p.dead || p.wary && r.from.Proc.Kind == signal.PeerAPI {
		return // what this was about has been executed by tell, or is not let in
	}
	r.ready = true
	r.to.ready = append(r.to.ready, r)
	n.wakeUp(r.to)
}

// wakeUp plans a turn of a thread that has something to do now.
func (n *Network) wakeUp(t *Thread) {
	if t.turnAt != 0 || t.Proc.paused || t.Proc.dead {
		return
	}
	t.turnAt = max(n.now+t.wake.draw(n.travel), t.busyUntil, 1)
	n.push(happening{at: t.turnAt, turn: t})
}

// plan makes sure that the thread wakes up for its earliest timer.
func (n *Network) plan(t *Thread) {
	due, ok := t.Env.NextTimer()
	if !ok {
		return
	}
	at := max(t.Proc.when(due), n.now, 1)
	if t.timerAt != 0 && t.timerAt <= at {
		return
	}
	t.timerAt = at
	n.push(happening{at: t.timerAt, timer: t})
}

// turn lets a thread execute a batch of what has arrived, in random order between its routes.
func (n *Network) turn(t *Thread) {
	t.turnAt = 0
	p := t.Proc
	if p.dead || p.paused {
		return
	}
	t.Env.SetNow(p.clock(n.now))
	t.Env.FireTimers()
	if t.Env.Jobs() {
		n.drain(t)
	}
	n.touch(t)
	at := n.now
	for k := 0; k < n.weather.Batch && len(t.ready) > 0 && n.failure == nil && !p.dead; k++ {
		i := 0
		if len(t.ready) > 1 {
			i = n.choice.Int(len(t.ready))
		}
		r := t.ready[i]
		n.execute(t, r)
		at += max(t.work.draw(n.travel), 1)
		if p.dead {
			return
		}
		if !r.ready || r.atRead < len(r.at) && r.at[r.atRead] <= n.now {
			continue
		}
		r.ready = false
		last := len(t.ready) - 1
		if i > last || t.ready[i] != r { // the handler has closed another link
			i = slices.Index(t.ready, r)
		}
		t.ready[i] = t.ready[last]
		t.ready = t.ready[:last]
		if r.atRead < len(r.at) && r.at[r.atRead] != never {
			n.push(happening{at: r.at[r.atRead], route: r})
		}
	}
	t.busyUntil = at
	t.stall = max(t.stall, at-n.now)
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
	if from := r.from.Proc; from != t.Proc {
		t.Proc.heard[from.ID] = n.now
		if len(t.Proc.waiting) > 0 && r.empty() {
			n.silenced(t.Proc)
		}
	}
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
	t.Env.SetNow(t.Proc.clock(n.now))
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
		n.timer(e.timer, e.at)
	default:
		e.call()
	}
	return n.failure == nil
}

// timer wakes a thread up whose earliest timer is due.
func (n *Network) timer(t *Thread, at int64) {
	if t.timerAt != at { // an earlier one was planned meanwhile, and has been
		return
	}
	t.timerAt = 0
	switch due, ok := t.Env.NextTimer(); {
	case t.Proc.dead || t.Proc.paused:
	case ok && due <= t.Proc.clock(n.now):
		n.wakeUp(t)
	default:
		n.plan(t)
	}
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
