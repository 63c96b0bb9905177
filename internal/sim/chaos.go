package sim

import (
	"fmt"

	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/signal"
)

// chaos does faults to a cluster: those of a schedule, or such as it draws from the seed while the run goes on, each of
// which the cluster must survive. What it has done it keeps as a schedule.
type chaos struct {
	x      *run
	random *Random
	on     bool
	done   []fault
	undo   []*remedy // of what lasts
	counts [faultKinds]int
	healed int64 // when everything was healed last
}

// remedy ends a fault that lasts.
type remedy struct {
	f    func()
	done bool
}

func (r *remedy) run() {
	if !r.done {
		r.done = true
		r.f()
	}
}

// ChaosOptions are what the seed decides about faults.
type ChaosOptions struct {
	Faults   faultSet // that may happen in this run
	Interval int64    // mean time between two, ns
	// Biased: after something interesting has begun a fault follows soon, one time in so many; 0 = never.
	Biased int
	// Early: faults happen while the cluster starts, too.
	Early bool
	// Down is the mean time for which a killed node stays down, Long that of what lasts, ns.
	Down, Long int64
	// Beyond: the cluster need not survive what happens.
	Beyond bool
	// Schedule, if not nil, is what happens instead of what is drawn.
	Schedule []fault
}

// drawChaos draws which of the faults that are wanted happen in a run, and how often.
func drawChaos(r *Random, wanted faultSet, time int64) ChaosOptions {
	o := ChaosOptions{Faults: wanted}
	for i := range faultSetNames {
		if f := faultSet(1) << i; f != faultsDelay && r.Chance(1, 3) {
			o.Faults &^= f
		}
	}
	if o.Faults&^(faultsDelay|faultsDrift|faultsRestart) == 0 { // one kind alone is always there
		o.Faults = wanted
	}
	o.Interval = time / int64(r.Between(5, 100))
	o.Biased = Pick(r, 0, 2, 5, 20)
	o.Early = r.Chance(1, 4)
	o.Down = Pick(r, 10*millisecond, 300*millisecond, second, 5*second)
	o.Long = Pick(r, 50*millisecond, 500*millisecond, 2*second, 8*second)
	return o
}

func newChaos(x *run, r *Random) *chaos { return &chaos{x: x, random: r} }

// start lets faults happen from now on, until stop.
func (c *chaos) start() {
	o := &c.x.o.Chaos
	if c.on {
		return
	}
	c.on = true
	if o.Schedule != nil {
		for _, f := range o.Schedule {
			c.x.net.at(f.at, func() {
				if c.on && (f.kind == faultHeal || c.possible(&f) && (o.Beyond || c.x.survivable(&f))) {
					c.apply(f)
				}
			})
		}
		return
	}
	if o.Faults&^(faultsDelay|faultsDrift) == 0 || o.Interval <= 0 {
		return
	}
	c.next()
	if o.Biased > 0 {
		c.x.watch.happened = func(moment) {
			if c.on && c.random.Chance(1, o.Biased*20) {
				c.x.net.at(c.x.net.now+c.random.Exponential(Pick(c.random, 100*microsecond, millisecond, 20*millisecond)), c.some)
			}
		}
	}
}

func (c *chaos) next() {
	c.x.net.at(c.x.net.now+c.random.Exponential(c.x.o.Chaos.Interval), func() {
		if c.on {
			c.some()
			c.next()
		}
	})
}

// some does a fault that the cluster must survive, if one is found.
func (c *chaos) some() {
	if !c.on {
		return
	}
	for range 8 {
		f, ok := c.draw()
		if ok && c.possible(&f) && (c.x.o.Chaos.Beyond || c.x.survivable(&f)) {
			c.apply(f)
			return
		}
	}
}

// draw draws a fault, which may be none.
func (c *chaos) draw() (f fault, ok bool) {
	x, r, o := c.x, c.random, &c.x.o.Chaos
	f.at = x.net.now
	data := func() uint8 { return uint8(r.Between(1, x.o.DataNodes)) }
	any := func() uint8 { return x.net.ids[r.Int(len(x.net.ids))] }
	long := func() int64 { return millisecond + r.Exponential(o.Long) }
	var kinds []func()
	add := func(s faultSet, weight int, draw func()) {
		for range weight {
			if o.Faults.has(s) {
				kinds = append(kinds, draw)
			}
		}
	}
	down := func() int64 {
		if !o.Faults.has(faultsRestart) {
			return 0
		}
		return millisecond + r.Exponential(o.Down)
	}
	add(faultsKill, 4, func() {
		f.kind, f.a, f.dur = faultKill, []uint8{data()}, down()
		for r.Chance(1, 4) {
			if id := data(); !contains(f.a, id) {
				f.a = append(f.a, id)
			}
		}
	})
	add(faultsPause, 2, func() { f.kind, f.a, f.dur = faultPause, []uint8{data()}, long() })
	add(faultsCut, 1, func() { f.kind, f.a, f.b, f.dur = faultCut, []uint8{data()}, []uint8{any()}, long() })
	add(faultsCut, 1, func() { f.kind, f.a, f.b = faultReset, []uint8{data()}, []uint8{any()} })
	add(faultsCut, 1, func() {
		f.kind, f.dur = faultSplit, long()
		for _, id := range x.net.ids {
			switch r.Int(3) {
			case 0:
				f.a = append(f.a, id)
			case 1:
				f.b = append(f.b, id)
			default:
				if id <= signal.MaxDataNode {
					f.a = append(f.a, id)
				}
			}
		}
	})
	add(faultsOneWay, 2, func() {
		f.kind, f.a, f.b, f.dur = faultOneWay, []uint8{data()}, []uint8{any()}, long()
		if r.Chance(1, 2) {
			f.a, f.b = f.b, f.a
		}
	})
	add(faultsSlow, 1, func() {
		f.kind, f.a, f.b, f.dur = faultSlow, []uint8{any()}, []uint8{any()}, long()
		f.by = Pick(r, millisecond, 20*millisecond, 150*millisecond, 600*millisecond)
	})
	add(faultsArbitrator, 2, func() {
		f.kind, f.a, f.dur = Pick(r, faultKill, faultPause), []uint8{uint8(firstManager - r.Int(x.o.Managers))}, long()
	})
	add(faultsStop, 1, func() { f.kind, f.a, f.dur = faultStop, []uint8{data()}, down() })
	add(faultsStop, 1, func() { f.kind, f.a = faultRestart, []uint8{data()} })
	add(faultsClient, 1, func() {
		f.kind, f.a, f.dur = faultKill, []uint8{uint8(firstClient + r.Int(x.o.Clients))}, min(long(), 500*millisecond)
	})
	if len(kinds) == 0 {
		return f, false
	}
	kinds[r.Int(len(kinds))]()
	return f, true
}

// possible tells whether a fault means anything now.
func (c *chaos) possible(f *fault) bool {
	n := c.x.net
	if f.kind == faultHeal {
		return true
	}
	if len(f.a) == 0 || (f.kind == faultSplit || len(f.b) > 0) && (len(f.b) == 0 || f.a[0] == f.b[0]) {
		return false
	}
	for _, id := range f.a {
		p := n.procs[id]
		if p == nil {
			return false
		}
		if p.Kind == signal.PeerAPI && f.kind == faultKill {
			for _, a := range c.x.apis { // somebody has to work
				if a.down {
					return false
				}
			}
		}
		switch f.kind {
		case faultKill:
			if p.dead {
				return false
			}
		case faultPause, faultStop, faultRestart:
			if p.dead || p.paused {
				return false
			}
		case faultStart:
			if !p.dead {
				return false
			}
		case faultCut, faultOneWay, faultReset, faultSlow:
			q := n.procs[f.b[0]]
			if q == nil || p.Kind != signal.PeerData && q.Kind != signal.PeerData {
				return false
			}
		}
	}
	return true
}

// apply does a fault.
func (c *chaos) apply(f fault) {
	x := c.x
	n := x.net
	if n.failure != nil || !c.possible(&f) {
		return
	}
	x.cluster.disturbed = true
	x.load.model.disturbed = true
	f.at = n.now
	c.done = append(c.done, f)
	c.counts[f.kind]++
	r := c.random.Sub(fmt.Sprint(f)) // so that what is torn does not depend on faults before
	if x.note != nil {
		x.note(f.String())
	}
	both := func(do func(a, b uint8)) {
		for _, a := range f.a {
			for _, b := range f.b {
				if a != b {
					do(a, b)
				}
			}
		}
	}
	for _, id := range append(append([]uint8(nil), f.a...), f.b...) {
		if int(id) <= len(x.cluster.nodes) {
			x.cluster.nodes[id-1].hurt = n.now
		}
	}
	switch f.kind {
	case faultKill:
		for _, id := range f.a {
			c.kill(id, r)
		}
		if f.dur > 0 {
			c.lasts(f.dur, func() {
				for _, id := range f.a {
					c.comeBack(id)
				}
			})
		}
	case faultPause:
		for _, id := range f.a {
			p := n.procs[id]
			n.pause(p)
			c.lasts(f.dur, func() {
				c.suspect(id)
				n.resume(p)
			})
		}
	case faultCut, faultSplit:
		both(func(a, b uint8) { c.cut(a, b, f.dur); c.cut(b, a, f.dur) })
	case faultOneWay:
		both(func(a, b uint8) { c.cut(a, b, f.dur) })
	case faultReset:
		both(func(a, b uint8) {
			if n.procs[a].alive() {
				n.procs[a].do(func() { n.closeLink(n.procs[a], b, r) })
			}
		})
	case faultSlow:
		both(func(a, b uint8) {
			w := n.wire(n.procs[a], n.procs[b])
			w.slow = Delay{Floor: f.by / 2, Mean: f.by / 2}
			c.lasts(f.dur, func() {
				w.slow = Delay{}
				if f.by >= 200*millisecond {
					w.suspect = n.now + suspicion
				}
			})
		})
	case faultStop, faultRestart:
		for _, id := range f.a {
			c.stop(id, f.kind == faultRestart, f.dur)
		}
	case faultStart:
		for _, id := range f.a {
			c.comeBack(id)
		}
	case faultHeal:
		c.heal()
	}
}

// lasts ends a fault after a while, or when everything is healed.
func (c *chaos) lasts(dur int64, end func()) {
	r := &remedy{f: end}
	c.undo = append(c.undo, r)
	if dur > 0 {
		c.x.net.at(c.x.net.now+dur, r.run)
	}
}

func (c *chaos) cut(from, to uint8, dur int64) {
	n := c.x.net
	p, q := n.procs[from], n.procs[to]
	if p.Kind != signal.PeerData && q.Kind != signal.PeerData {
		return
	}
	n.cut(p, q)
	c.lasts(dur, func() {
		n.wire(p, q).suspect = n.now + suspicion
		n.heal(from, to)
	})
}

// suspect takes note that others may still give a node up.
func (c *chaos) suspect(id uint8) {
	n := c.x.net
	for _, o := range n.ids {
		n.wire(n.procs[id], n.procs[o]).suspect = n.now + suspicion
		n.wire(n.procs[o], n.procs[id]).suspect = n.now + suspicion
	}
}

// kill kills a node of whatever kind.
func (c *chaos) kill(id uint8, r *Random) {
	x := c.x
	p := x.net.procs[id]
	if p.Kind == signal.PeerAPI {
		x.load.killed(x.apis[id-firstClient], func() { x.net.end(p, true, r) })
		return
	}
	x.net.end(p, true, r)
}

// comeBack starts a node that is down.
func (c *chaos) comeBack(id uint8) {
	x := c.x
	if x.net.failure != nil || !x.net.procs[id].dead {
		return
	}
	switch x.net.procs[id].Kind {
	case signal.PeerData:
		x.cluster.restart(id)
	case signal.PeerMgm:
		x.cluster.restartManager(x.cluster.mgms[firstManager-id])
	default:
		for _, d := range x.cluster.nodes { // a management server gives its id away again when no data node knows it any more
			if d.proc.alive() && (d.proc.ends[id] != nil || d.proc.taken[id]) {
				x.net.at(x.net.now+10*millisecond, func() { c.comeBack(id) })
				return
			}
		}
		x.load.restarted(x.cluster, x.apis[id-firstClient])
	}
}

// stop asks a node to stop, or to restart.
func (c *chaos) stop(id uint8, restart bool, dur int64) {
	x := c.x
	flags := uint32(0)
	if restart {
		flags = signal.StopRestart
	}
	life := x.net.procs[id].life
	for _, m := range x.cluster.mgms {
		if m.stop(id, flags, func(code uint32, text string) {
			if p := x.net.procs[id]; code != 0 && p.life == life {
				x.watch.of(id).stopping = false
			}
		}) {
			x.watch.of(id).stopping, x.watch.of(id).asked = true, x.net.now
			break
		}
	}
	if dur > 0 {
		c.lasts(dur, func() { c.comeBack(id) })
	}
}

// ended acts on a data node that has ended by itself: if it shall come back it does, as its supervisor starts it again.
func (c *chaos) ended(d *dataNode, e exit) {
	x := c.x
	x.stats.Exits++
	if why := x.unexplained(d, e); why != "" {
		x.net.failf("node %d ends with status %d, %s: %s", d.proc.ID, e.code, why, e.text)
		return
	}
	if x.note != nil {
		x.note(fmt.Sprintf("node %d ends with status %d (%s), restart %d: %s", d.proc.ID, e.code, exitcode.Text(int(e.code)), e.restart, e.text))
	}
	late := x.watch.of(d.proc.ID).asked < c.healed // it was asked to stop before everything was healed
	if e.restart&signal.StopRestart != 0 || e.code != exitcode.Done || late {
		r := c.random.Sub(fmt.Sprint("back ", d.proc.ID, d.proc.life))
		c.lasts(millisecond+r.Exponential(50*millisecond), func() { c.comeBack(d.proc.ID) })
	}
}

// end lets no more faults happen, and heals.
func (c *chaos) end() {
	c.on = false
	c.x.watch.happened = nil
	c.heal()
}

// heal ends everything that may be ended, and starts all nodes that are down.
func (c *chaos) heal() {
	c.healed = c.x.net.now
	for i := 0; i < len(c.undo); i++ {
		c.undo[i].run()
	}
	c.undo = nil
	for _, id := range c.x.net.ids {
		c.comeBack(id)
	}
}
