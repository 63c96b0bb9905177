package membership

// Who is heard.
//
//	membership --HeardReq--> runtime --HeardConf--> membership     every half heartbeat interval
//	membership --HeartbeatRep--> all other members                 every interval, and at once when something in it changes
//	runtime --StallRep--> membership --TrustOrd--> runtime         after a time in which the node did not run
//	membership --GateOrd--> each tc and ldm
//
// Any signal counts as a sign of life; heartbeats see to it that there is one. A member is silent after lostAfter
// intervals, less the time in which the own node did not run itself.
//
// A node distrusts itself earlier than others put it out. Each heartbeat has a Ping that the receiver answers at once: so a
// node knows when it has last been heard. It relies on a member to be there for distrustAfter intervals from the
// sending of the newest Ping that the member has answered; while it cannot rely on enough of them to be sure of living it
// draws no epoch, so that it commits nothing while another part may be going on without it. The same holds after a
// stall, until enough members have answered a Ping that was sent afterwards, in the same view.
//
// Heartbeats carry whom the sender hears, so that a link that works one way only is no link for either side.
//
// | signal       | not in a view  | starting              | joining, started, stopping   | draining |
// | HeardConf    | note the time  | note the time         | judge                        | note     |
// | HeartbeatRep | stale          | note (of a member)    | note, answer, maybe act      | stale    |
// | StallRep     | TrustOrd       | TrustOrd              | gates shut, Ping             | TrustOrd |

import (
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/view"
)

const (
	// lostAfter is the number of heartbeat intervals after which a silent member is lost.
	lostAfter = 4
	// distrustAfter is the number of intervals after which a node does not rely on a silent member to be there.
	distrustAfter = 3
	// pings is how many of the newest Pings are remembered.
	pings = 16
)

// beat is what a heartbeat says.
type beat struct {
	heard      bool // there was one
	view       uint32
	prepared   uint32
	hears      signal.NodeSet
	arbitView  uint32
	arbitTurn  uint32
	arbitrator uint8
	pong       uint32
}

// detector is what is known of who is heard. Times in milliseconds.
type detector struct {
	ref     uint32 // of the newest HeardReq
	asked   bool   // … which is not answered
	at      int64  // when the last answer came, nanoseconds
	halves  uint32 // ticks so far
	silent  signal.NodeSet
	credit  [signal.MaxDataNode + 1]uint32 // own stalls since it was heard
	missed  [signal.MaxDataNode + 1]uint8  // intervals that were reported
	ping    uint32                         // newest question; grows for ever
	pingAt  [pings]int64                   // by number modulo pings: when it was sent, nanoseconds
	stalled uint32                         // after a stall: the Ping that is not answered by enough; 0 = none
	shut    bool                           // gates
	since   uint32                         // tick at which they were shut or opened
	told    bool                           // that they are shut
}

// forget makes everybody heard again, for another view.
func (d *detector) forget() {
	d.silent = signal.NodeSet{}
	d.credit, d.missed = [signal.MaxDataNode + 1]uint32{}, [signal.MaxDataNode + 1]uint8{}
}

func (b *Block) onHearTick() {
	b.env.Tick(b.self, b.cfg.Heartbeat/2, tickHear, 0, 0)
	d := &b.hear
	d.halves++
	if !d.asked {
		d.ref++
		d.asked = true
		kernel.Send[signal.HeardReq](b.env, b.at(signal.BlockRuntime), b.self, signal.NumHeardReq).Ref = d.ref
	}
	if d.halves%2 == 0 {
		b.newPing()
		b.beat()
	}
	b.gates()
	switch b.lead.state {
	case leadYielding:
		b.ask(0)
	case leadArbitrating: // the arbitrator may be out of reach though there is a link to it
		b.showAgain()
	case leadChecking: // one that has just come may have been asked before it had the view
		for n := b.lead.waiting.Next(0); n != 0; n = b.lead.waiting.Next(n) {
			b.askOne(n, b.lead.attempt)
		}
	}
	b.tellDistrust()
	b.leaveAgain()
	b.elect()
	b.act()
}

// newPing begins another question to all members: do they hear us?
func (b *Block) newPing() {
	b.hear.ping++
	b.hear.pingAt[b.hear.ping%pings] = b.env.Now()
}

// rawHears is whom the own node hears, whether or not they hear it.
func (b *Block) rawHears() signal.NodeSet {
	s := b.links.Minus(&b.hear.silent)
	for n := s.Next(0); n != 0; n = s.Next(n) {
		if b.peers[n].lost {
			s.Remove(n)
		}
	}
	s.Add(b.node)
	return s
}

// mutual tells whether a member does not say that it does not hear us.
func (b *Block) mutual(n uint8) bool {
	p := &b.peers[n].beat
	return !p.heard || p.view != b.view.Number || p.hears.Has(b.node)
}

// heard tells whether a member and the own node hear each other.
func (b *Block) heard(n uint8) bool {
	return b.links.Has(n) && !b.peers[n].lost && !b.hear.silent.Has(n) && b.mutual(n)
}

// beat sends a heartbeat to all other members.
func (b *Block) beat() {
	if b.view.Number == 0 || b.state == draining {
		return
	}
	hears := b.rawHears()
	for _, m := range b.view.Members {
		if n := uint8(m.Node); b.links.Has(n) && n != b.node {
			b.beatTo(n, &hears)
		}
	}
}

func (b *Block) beatTo(n uint8, hears *signal.NodeSet) {
	r := kernel.Send[signal.HeartbeatRep](b.env, peerAt(n), b.self, signal.NumHeartbeatRep)
	r.View, r.Prepared, r.Hears = b.view.Number, b.mem.prepared(), *hears
	r.ArbitView, r.ArbitTurn, r.Arbitrator = b.arb.view, b.arb.turn, uint32(b.arb.cur.node)
	r.Ping, r.Pong = b.hear.ping, b.peers[n].ping
}

func (b *Block) onHeartbeatRep(r *signal.HeartbeatRep) {
	n := r.From.Node()
	if !b.view.Has(n) || b.state == draining {
		b.Stale++
		return
	}
	p := &b.peers[n]
	if p.lost {
		b.Stale++
		return
	}
	was := p.beat
	p.beat = beat{heard: true, view: r.View, prepared: r.Prepared, hears: r.Hears, arbitView: r.ArbitView, arbitTurn: r.ArbitTurn,
		arbitrator: uint8(r.Arbitrator), pong: r.Pong}
	if r.Ping != p.ping {
		p.ping, p.pinged = r.Ping, b.env.Now()
		hears := b.rawHears()
		b.beatTo(n, &hears)
	}
	if !b.active() {
		return
	}
	b.regain()
	was.pong = r.Pong
	changed := was != p.beat
	if changed || b.hear.shut {
		b.gates()
	}
	if !changed { // what else it may mean that the member is there is seen to at the next tick
		return
	}
	b.elect()
	if b.lead.state == leadYielding && was.hears != r.Hears {
		b.ask(0)
	}
	b.act()
}

// onHeardConf judges who is silent.
func (b *Block) onHeardConf(r *signal.HeardConf) {
	d := &b.hear
	if !d.asked || r.Ref != d.ref {
		b.Stale++
		return
	}
	d.asked = false
	elapsed := uint32((b.env.Now() - d.at) / millisecond)
	d.at = b.env.Now()
	if !b.active() {
		return
	}
	interval := uint32(b.cfg.Heartbeat / millisecond)
	silent := signal.NodeSet{}
	for _, m := range b.view.Members {
		n := uint8(m.Node)
		age := r.Age[n]
		if n == b.node || !b.links.Has(n) || b.peers[n].lost {
			continue
		}
		if age == signal.NoRef { // its link has just ended, or never carried anything
			if d.silent.Has(n) {
				silent.Add(n)
			}
			continue
		}
		if age <= elapsed {
			d.credit[n] = min(r.Stall, age)
		} else {
			d.credit[n] += r.Stall
		}
		age -= min(d.credit[n], age)
		age = min(age, uint32((b.env.Now()-b.peers[n].since)/millisecond)) // it relies on us from then on
		intervals := uint8(min(age/max(interval, 1), 100))
		switch {
		case intervals >= lostAfter:
			silent.Add(n)
			if !d.silent.Has(n) {
				b.report(event.DeadDueToHeartbeat, uint32(n))
			}
		case intervals >= 2 && intervals > d.missed[n]:
			b.report(event.MissedHeartbeat, uint32(n), uint32(intervals))
		}
		d.missed[n] = intervals
	}
	changed := silent != d.silent
	d.silent = silent
	if changed {
		b.heardChanged()
	}
}

// heardChanged tells the others that the own node hears other nodes than before, and acts on it.
func (b *Block) heardChanged() {
	if !b.active() {
		return
	}
	b.tellState()
	b.beat()
	b.gates()
	b.elect()
	b.act()
}

// trusted is the members that the own node relies on to be there.
func (b *Block) trusted() signal.NodeSet {
	s := signal.NodeSet{}
	for _, m := range b.view.Members {
		if n := uint8(m.Node); n == b.node || b.relies(n) {
			s.Add(n)
		}
	}
	return s
}

// relies tells whether the own node relies on a member to be there.
func (b *Block) relies(n uint8) bool {
	return b.heard(n) && b.env.Now()-b.heardBy(n) <= distrustAfter*b.cfg.Heartbeat
}

// reliedOn is for how long, in nanoseconds, a member may still rely on the own node if it hears nothing any more. It looks
// at its watch every half interval, and may be a little late.
func (b *Block) reliedOn(n uint8) int64 {
	p := &b.peers[n]
	return max(max(p.since, p.pinged)+distrustAfter*b.cfg.Heartbeat+b.cfg.Heartbeat*5/8-b.env.Now(), 0)
}

// heardBy is a time after which a member has heard the own node for sure.
func (b *Block) heardBy(n uint8) int64 {
	p := &b.peers[n]
	if pong := p.beat.pong; pong != 0 && b.hear.ping-pong < pings {
		return max(p.since, b.hear.pingAt[pong%pings])
	}
	return p.since
}

// gates shuts the gates for epochs when the own node cannot be sure that it lives, or has agreed to go, and opens them when
// it can.
func (b *Block) gates() {
	if !b.active() {
		return
	}
	set := b.trusted()
	shut := b.hear.stalled != 0 || b.agreedToLeave() || b.view.Weigh(&set) != view.Lives
	if shut == b.hear.shut {
		return
	}
	b.hear.shut, b.hear.since = shut, b.hear.halves
	b.tellGates()
	if shut {
		b.env.Mark(kernel.MarkDistrust)
	} else if b.hear.told {
		b.hear.told = false
		b.reportText(event.NodeDistrust, "The node hears enough other data nodes again", 0)
	}
}

// tellDistrust says that the gates are shut, if they stay so for longer than a change of the view takes.
func (b *Block) tellDistrust() {
	if d := &b.hear; d.shut && !d.told && d.halves > d.since+1 {
		d.told = true
		b.reportText(event.NodeDistrust, "The node does not hear enough other data nodes to be sure that it is still in the cluster, and commits nothing until it does", 1)
	}
}

func (b *Block) tellGates() {
	shut := uint32(0)
	if b.hear.shut {
		shut = 1
	}
	b.workers(func(a signal.Addr) {
		kernel.Send[signal.GateOrd](b.env, a, b.self, signal.NumGateOrd).Shut = shut
	})
}

// openGates opens them for a node that is in no view any more.
func (b *Block) openGates() {
	b.hear.stalled, b.hear.told = 0, false
	if b.hear.shut {
		b.hear.shut = false
		b.tellGates()
	}
}

// onStallRep hears that the own node did not run for a while: others may have gone on without it.
func (b *Block) onStallRep(*signal.StallRep) {
	if !b.active() {
		b.trust()
		return
	}
	b.newPing()
	b.hear.stalled = b.hear.ping
	b.gates()
	b.beat()
	b.regain()
}

// regain ends the time after a stall when enough members have answered in the same view.
func (b *Block) regain() {
	if b.hear.stalled == 0 {
		return
	}
	set := signal.NodeSet{}
	set.Add(b.node)
	for _, m := range b.view.Members {
		n := uint8(m.Node)
		if p := &b.peers[n].beat; n != b.node && b.heard(n) && p.heard && p.pong >= b.hear.stalled && p.view == b.view.Number {
			set.Add(n)
		}
	}
	if b.view.Weigh(&set) != view.Lives {
		return
	}
	b.env.Mark(kernel.MarkStallOver)
	b.hear.stalled = 0
	b.trust()
	b.gates()
}

func (b *Block) trust() {
	kernel.Send[signal.TrustOrd](b.env, b.at(signal.BlockRuntime), b.self, signal.NumTrustOrd)
}
