package sim

import "github.com/cohortdb/cohort/internal/signal"

// Workloads with a constraint over several rows, which mostly lie in different node groups, and the one whose history
// is checked for linearizability.

// Ids of the rows of these workloads begin here.
const (
	ringBase   = 20_000
	twinsBase  = 30_000
	atomicBase = 40_000
)

// addConstrained makes the rows.
func (l *load) addConstrained() {
	registers, mixed := l.tables[tableRegister], l.tables[tableMixed]
	for i := range l.o.Ring {
		l.ring = append(l.ring, l.model.cell(registers, ringBase+uint64(i), classChain))
	}
	for i := range 2 * l.o.Twins {
		l.twins = append(l.twins, l.model.cell(mixed, twinsBase+uint64(3*i), classChain))
	}
	for i := range l.o.Atomic {
		l.atomic = append(l.atomic, l.model.cell(registers, atomicBase+uint64(i), classAtomic))
	}
}

// planRing changes the order of a ring: each row of it names the next one, and a transaction takes one out and puts it
// back one place further on. Whatever happens, all rows stay one ring.
func planRing(x *slot, t *txn) move {
	if t.rounds == 0 {
		x.read(t, x.l.ring[x.random.Int(len(x.l.ring))], signal.OpReadExclusive)
		return moveExecute
	}
	last := t.actions[len(t.actions)-1]
	if signal.IsRead(last.op) && t.rounds < 4 {
		next := int(last.got.amount)
		if next < 0 || next >= len(x.l.ring) {
			x.l.net.failf("%v: %v names the row %d as next, and there are %d", t, last.cell, next, len(x.l.ring))
			return moveRollback
		}
		x.read(t, x.l.ring[next], signal.OpReadExclusive)
		return moveExecute
	}
	a, b, c, d := t.actions[0], t.actions[1], t.actions[2], t.actions[3]
	if a.cell == b.cell || b.cell == c.cell || c.cell == a.cell || d.cell == b.cell {
		x.l.net.failf("%v: the ring of %d rows is closed after %v, %v, %v, %v", t, len(x.l.ring), a.cell, b.cell, c.cell, d.cell)
		return moveRollback
	}
	place := func(c *cell) int32 { return int32(c.id - ringBase) }
	for _, w := range [...]struct {
		of *action
		to *cell
	}{{a, c.cell}, {c, b.cell}, {b, d.cell}} {
		x.write(t, w.of.cell, signal.OpUpdate, partA, w.of.got.version+1, place(w.to))
	}
	return x.ending()
}

// planTwins writes the same amount into both rows of a pair, or reads both under shared locks.
func planTwins(x *slot, t *txn) move {
	if t.rounds == 0 {
		i := x.random.Int(len(x.l.twins) / 2)
		t.cells = x.l.twins[2*i : 2*i+2]
		op := Pick(x.random, signal.OpReadExclusive, signal.OpReadExclusive, signal.OpReadShared)
		for _, c := range t.cells {
			x.add(t, c, op, wholeRow, value{})
		}
		return moveExecute
	}
	if t.actions[0].op == signal.OpReadShared {
		return moveCommit
	}
	amount := int32(x.random.Int(1_000_000))
	for i, c := range t.cells {
		x.write(t, c, signal.OpUpdate, partA, t.actions[i].got.version+1, amount)
	}
	return x.ending()
}

func checkTwins(x *slot, t *txn) {
	if a, b := t.actions[0], t.actions[1]; t.rounds == 1 && a.got.amount != b.got.amount {
		x.l.net.failf("%v: %v holds %d and %v holds %d under one transaction's locks, and must hold the same", t, a.cell, a.got.amount, b.cell, b.got.amount)
	}
}

// planAtomic reads or writes one register, or both.
func planAtomic(x *slot, t *txn) move {
	if t.rounds == 0 {
		c := x.l.atomic[x.random.Int(len(x.l.atomic))]
		t.invoked = x.l.tick()
		switch x.random.Int(5) {
		case 0:
			x.add(t, c, signal.OpReadShared, partA, value{})
		case 1:
			x.add(t, c, signal.OpReadCommitted, partA, value{})
		case 2:
			x.add(t, c, signal.OpReadExclusive, partA, value{})
			return moveExecute
		default:
			x.write(t, c, signal.OpUpdate, partA, 0, 0)
		}
		return moveCommit
	}
	x.write(t, t.actions[0].cell, signal.OpUpdate, partA, 0, 0)
	return moveCommit
}

// tick is a time that no other event of a history has.
func (l *load) tick() int64 {
	l.ticks++
	return l.ticks
}

// afterAtomic takes a transaction into its register's history.
func afterAtomic(x *slot, t *txn, _ bool) {
	if len(t.actions) == 0 || t.state == txnAborted {
		return
	}
	e := visit{t: t, invoked: t.invoked, returned: x.l.tick()}
	for _, a := range t.actions {
		if signal.IsRead(a.op) {
			e.reads, e.read = true, a.got.tag
		} else {
			e.writes, e.write = true, a.v.tag
		}
	}
	c := t.actions[0].cell
	c.visits = append(c.visits, e)
}
