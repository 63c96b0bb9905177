package dictionary

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/kernel/kerneltest"
	"github.com/cohortdb/cohort/internal/signal"
)

// owner makes and drops one table, one request after the other, through nodes of its choice.
type owner struct {
	name    string
	client  uint8
	at      uint8  // whom the request under way was sent to; 0 = none is
	life    int    // … in which of its lives
	ref     uint32 // of it
	create  bool
	exists  bool // as far as it was told
	unknown bool // the node was lost with the answer: anything may be
	told    int
}

// chaos is a rig with owners that is shaken.
type chaos struct {
	*rig
	owners []*owner
	lives  [256]int // of a node: how often it was started
	ref    uint32
	seen   int     // answers that were looked at
	closed []uint8 // nodes whose coordinators kept back that a table is closed
	coming []uint8 // nodes that were not asked for phase 4 yet
}

// ask lets an owner send its next request to a living node that takes requests.
func (c *chaos) ask(o *owner) {
	var can []uint8
	for _, id := range c.homes() {
		if n := c.net.Nodes[id]; n != nil && !n.Dead() && c.n[id].b.part == signal.PartFull {
			can = append(can, id)
		}
	}
	if o.at != 0 || o.unknown || len(can) == 0 {
		return
	}
	c.ref++
	o.at, o.ref, o.create = can[c.net.Rand(len(can))], c.ref, !o.exists
	o.life = c.lives[o.at]
	if o.create {
		c.rig.create(o.client, o.at, o.ref, definition(o.name, 2))
	} else {
		c.rig.named(o.client, o.at, signal.NumTableDropReq, o.ref, "db/"+o.name)
	}
}

// hear looks at new answers, and at who will never be answered. A node that could not hold a table ends.
func (c *chaos) hear() {
	for _, id := range c.living() {
		x := c.n[id]
		switch {
		case x.phaseCode != 0:
			c.net.Kill(id)
		case x.b.part == signal.PartFull && !x.risen && x.b.view.State(id) == signal.MemberRecovering:
			x.risen = true
			c.views.Promote(id, signal.MemberFollowing)
			c.views.Promote(id, signal.MemberLeading)
		}
	}
	for ; c.seen < len(c.answers); c.seen++ {
		a := c.answers[c.seen]
		for _, o := range c.owners {
			if o.at == 0 || o.ref != a.ref {
				continue
			}
			switch {
			case a.code == codeStarting || a.code == codeBusy || a.code == 827: // nothing has happened
			case a.code != 0:
				c.t.Fatalf("%s (create %v) through node %d: code %d", o.name, o.create, o.at, a.code)
			case o.create != (a.num == signal.NumTableCreateConf):
				c.t.Fatalf("%s (create %v): %+v", o.name, o.create, a)
			default:
				o.exists = o.create
			}
			o.at = 0
			o.told++
		}
	}
	for _, o := range c.owners {
		if o.at != 0 && (c.net.Nodes[o.at].Dead() || c.lives[o.at] != o.life) {
			o.at, o.unknown = 0, true
		}
	}
}

func (c *chaos) some(n int) {
	for range c.net.Rand(n) {
		c.net.Step(c.net.Now())
		if c.net.Rand(4) == 0 {
			c.ask(c.owners[c.net.Rand(len(c.owners))])
		}
		c.hear()
	}
}

func (c *chaos) living() []uint8 {
	var ids []uint8
	for _, id := range c.homes() {
		if n := c.net.Nodes[id]; n != nil && !n.Dead() {
			ids = append(ids, id)
		}
	}
	return ids
}

// join starts a node (again) and asks it for phase 4 as soon as it is a member.
func (c *chaos) join(id uint8) {
	c.lives[id]++
	c.add(id)
	c.views.Join(id, 0)
	c.coming = append(c.coming, id)
	c.views.Ended = func(uint32) {
		for i, id := range c.coming {
			if id != 0 && c.n[id].b.view.Has(id) {
				c.coming[i] = 0
				c.phase(id, 4)
			}
		}
	}
}

// Owners make and drop tables while nodes are killed at random moments and come back, coordinators take their time to close
// and ldms have no room now and then. Nobody who can be answered waits for ever or is told something that is not so; and
// in the end all dictionaries, coordinators and ldms know the same tables.
func TestRandomFailures(t *testing.T) {
	var marks kernel.Marks
	for seed := uint64(1); seed <= 500; seed++ {
		nodes := 2 + int(seed)%3
		c := &chaos{rig: newRig(t, seed, nodes)}
		c.cfg.MaxTables, c.cfg.MaxAttributes = 8, 40
		if nodes < signal.MaxReplicas && seed%2 == 0 {
			c.spare = []uint8{uint8(nodes + 1)}
		}
		c.net.After = func(n *kerneltest.Node) {
			if x := c.n[n.ID]; x != nil {
				x.b.Invariants()
			}
		}
		c.begin()
		for i := range 4 {
			o := &owner{name: fmt.Sprint("t", i), client: uint8(51 + i)}
			c.owners = append(c.owners, o)
			c.client(o.client)
		}
		for range 4 {
			c.some(150)
			living := c.living()
			victim := living[c.net.Rand(len(living))]
			if p := c.views.President(); c.net.Rand(3) > 0 && slices.Contains(living, p) {
				victim = p
			}
			if c.net.Rand(2) == 0 {
				slow := living[c.net.Rand(len(living))]
				c.n[slow].hold = true
				c.closed = append(c.closed, slow)
			}
			if c.net.Rand(3) == 0 {
				c.failAt, c.failNow = signal.MakeAddr(living[c.net.Rand(len(living))], signal.BlockLDM, uint16(c.net.Rand(ldms))), 827
			}
			joiner := uint8(0)
			for _, id := range c.homes() {
				if n := c.net.Nodes[id]; (n == nil || n.Dead()) && c.net.Rand(2) == 0 {
					joiner = id
				}
			}
			serving := 0
			for _, id := range living { // one node at a time joins, as in a node group; so a president always knows the tables
				if c.n[id].b.part == signal.PartFull && c.n[id].b.view.Has(id) {
					serving++
				}
			}
			switch {
			case joiner != 0 && c.views.Quiet() && serving == len(living):
				c.failAt = 0
				c.join(joiner)
			case serving > 1 || c.n[victim].b.part != signal.PartFull:
				if c.net.Rand(2) == 0 {
					other := living[c.net.Rand(len(living))]
					if other != victim {
						c.net.Stall(victim, other, true)
						c.some(30)
					}
				}
				c.net.Kill(victim)
				c.hear()
			}
			c.some(60)
			for _, id := range c.closed {
				if c.net.Rand(2) == 0 && !c.net.Nodes[id].Dead() {
					c.release(id)
				}
			}
		}
		c.failAt = 0
		for _, id := range c.closed {
			if !c.net.Nodes[id].Dead() {
				c.release(id)
			}
		}
		for range 2 {
			c.net.Run(0)
			c.hear() // may end a node
		}
		c.settleDown(seed, &marks)
	}
	for _, m := range []kernel.Mark{kernel.MarkCreateFinished, kernel.MarkCreateUndone, kernel.MarkDropFinished, kernel.MarkDropHeld, kernel.MarkViewWaitsForTable,
		kernel.MarkRequestAgain, kernel.MarkRequestKnown, kernel.MarkTablesTold, kernel.MarkTablesAgain} {
		if !marks.Has(m) {
			t.Errorf("never reached: %v", m)
		}
	}
}

// settleDown checks that all is well when nothing happens any more.
func (c *chaos) settleDown(seed uint64, marks *kernel.Marks) {
	t := c.t
	if !c.views.Quiet() {
		t.Fatalf("seed %d: the view does not come to rest; %v", seed, c.net)
	}
	for _, o := range c.owners {
		if o.at != 0 {
			t.Fatalf("seed %d: %s (create %v) waits for node %d for ever; %v", seed, o.name, o.create, o.at, c.net)
		}
	}
	first := c.n[c.views.President()].b
	for _, id := range c.living() {
		x := c.n[id]
		marks.Add(c.net.Nodes[id].Env.Marks())
		if !x.b.view.Has(id) {
			continue // it came too late to be taken in
		}
		if x.b.part != signal.PartFull || !x.b.settled || x.b.lead.state != idle {
			t.Fatalf("seed %d: node %d does not take part (%d), or the president is busy (%d)", seed, id, x.b.part, x.b.lead.state)
		}
		frags, open := 0, 0
		for i := range x.b.tables {
			a, b := &first.tables[i], &x.b.tables[i]
			if a.state != b.state || a.state != free && (a.name != b.name || a.version != b.version || !slices.Equal(a.homes, b.homes) || !slices.Equal(a.def, b.def)) {
				t.Fatalf("seed %d: table %d is %q (%d, version %d) at the president, %q (%d, version %d) at node %d", seed, i, a.name, a.state, a.version, b.name, b.state, b.version, id)
			}
			if b.state == free {
				continue
			}
			if b.state != ready {
				t.Fatalf("seed %d: table %d is in state %d at node %d", seed, i, b.state, id)
			}
			open += tcs
			for _, p := range b.homes {
				if p.Node() == id {
					frags++
				}
			}
		}
		if len(x.frags) != frags || len(x.open) != open {
			t.Fatalf("seed %d: node %d has %d fragments of %d, %d open tables of %d", seed, id, len(x.frags), frags, len(x.open), open)
		}
	}
	for _, o := range c.owners {
		if _, there := first.lookup([]byte("db/" + o.name)); !o.unknown && (there != nil) != o.exists {
			t.Fatalf("seed %d: %s exists: %v; its owner was told %v", seed, o.name, there != nil, o.exists)
		}
	}
}
