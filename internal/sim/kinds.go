package sim

import (
	"cmp"
	"slices"

	"github.com/cohortdb/cohort/internal/signal"
)

// kind is a kind of transaction.
type kind struct {
	name string
	// plan defines the next batch and says what ends it; t.rounds counts the batches before.
	plan func(x *slot, t *txn) move
	// check, if set, examines a batch that is over while the transaction lives.
	check func(x *slot, t *txn)
	// after, if set, is called when the transaction has ended.
	after func(x *slot, t *txn, committed bool)
	// pause is the mean of pauses between batches, taken after one in three; 0 = none.
	pause int64
}

// Kinds of transactions, in the order of LoadOptions.Weights. The last ones are not drawn.
const (
	kindTransfer = iota
	kindAudit
	kindIncrement
	kindLook
	kindHold
	kindPrivate
	kindChurn
	kindBlind
	kindShuffle
	kindAtomic
	kindRing
	kindTwins
	kindIdle // now and then, whatever the weights
	kindSetUp
	kindReadBack
	kindPassing
	kindsOfTransactions

	kindsDrawn = kindIdle // those before are drawn by weight
)

var kinds [kindsOfTransactions]kind

// The table refers to plans that print names of kinds, so it is filled in here.
func init() {
	kinds = [kindsOfTransactions]kind{
		kindTransfer:  {name: "transfer", plan: planTransfer, pause: 200 * microsecond},
		kindAudit:     {name: "audit", plan: planAudit, check: checkAudit},
		kindIncrement: {name: "increment", plan: planIncrement},
		kindLook:      {name: "look", plan: planLook},
		kindHold:      {name: "hold", plan: planHold, pause: millisecond},
		kindPrivate:   {name: "private", plan: planPrivate, pause: 100 * microsecond},
		kindChurn:     {name: "churn", plan: planChurn},
		kindBlind:     {name: "blind", plan: planBlind},
		kindShuffle:   {name: "shuffle", plan: planShuffle, pause: 500 * microsecond},
		kindAtomic:    {name: "atomic", plan: planAtomic, after: afterAtomic},
		kindRing:      {name: "ring", plan: planRing, pause: 100 * microsecond},
		kindTwins:     {name: "twins", plan: planTwins, check: checkTwins, pause: 100 * microsecond},
		kindIdle:      {name: "idle", plan: planIdle, pause: millisecond},
		kindSetUp:     {name: "set-up", plan: planSetUp, after: afterSetUp},
		kindReadBack:  {name: "read-back", plan: planReadBack, after: afterReadBack},
		kindPassing:   {name: "passing", plan: planPassing},
	}
}

// pick draws a cell, a hot one often.
func (x *slot) pick(cells []*cell) *cell {
	if x.random.Chance(x.l.o.HotOf, 16) {
		return cells[x.random.Int(min(len(cells), 3))]
	}
	return cells[x.random.Int(len(cells))]
}

// several draws up to n different cells, mostly in one order: transactions that take locks in different orders deadlock.
func (x *slot) several(cells []*cell, n int) []*cell {
	got := x.any(cells, n)
	if !x.random.Chance(x.l.o.DisorderOf, 16) {
		slices.SortFunc(got, func(a, b *cell) int { return cmp.Compare(a.number, b.number) })
	}
	return got
}

func (x *slot) any(cells []*cell, n int) []*cell {
	var got []*cell
next:
	for range n {
		c := x.pick(cells)
		for _, o := range got {
			if o == c {
				continue next
			}
		}
		got = append(got, c)
	}
	return got
}

// ending draws how a transaction ends that could commit.
func (x *slot) ending() move {
	switch {
	case x.random.Chance(1, 16):
		return moveRollback
	case x.random.Chance(1, 64):
		return moveAbandon
	}
	return moveCommit
}

// planTransfer moves money between accounts: exclusive reads, then updates.
func planTransfer(x *slot, t *txn) move {
	if t.rounds == 0 {
		t.cells = x.several(x.l.accounts, 2)
		for _, c := range t.cells {
			x.read(t, c, signal.OpReadExclusive)
		}
		return moveExecute
	}
	if len(t.cells) < 2 {
		return moveRollback
	}
	sum := int32(x.random.Between(1, 100))
	x.next(t, t.cells[0], -sum)
	x.next(t, t.cells[1], sum)
	return x.ending()
}

// next defines the update of a chained row that was read under an exclusive lock.
func (x *slot) next(t *txn, c *cell, more int32) {
	var now value
	for _, a := range t.actions {
		if a.cell == c && a.done {
			now = a.got
			if !signal.IsRead(a.op) {
				now = a.v
			}
		}
	}
	p := partA
	if c.rel.hasB() && x.random.Chance(1, 2) {
		p = wholeRow
	}
	op := Pick(x.random, signal.OpUpdate, signal.OpUpdate, signal.OpWrite)
	x.write(t, c, op, p, now.version+1, now.amount+more)
}

// planAudit sums all accounts up, under shared locks.
func planAudit(x *slot, t *txn) move {
	if t.rounds == 0 {
		for _, c := range x.l.accounts {
			x.read(t, c, signal.OpReadShared)
		}
		return moveExecute
	}
	return Pick(x.random, moveCommit, moveCommit, moveRollback)
}

func checkAudit(x *slot, t *txn) {
	sum := int64(0)
	for _, a := range t.actions {
		sum += int64(a.got.amount)
	}
	if want := int64(len(x.l.accounts)) * initialAmount; sum != want {
		x.l.net.failf("%v finds %d in all accounts under shared locks, and there must be %d", t, sum, want)
	}
}

// planIncrement adds to registers.
func planIncrement(x *slot, t *txn) move {
	if t.rounds == 0 {
		t.cells = x.several(x.l.registers, x.random.Between(1, max(x.l.o.Operations/2, 1)))
		for _, c := range t.cells {
			a := x.read(t, c, signal.OpReadExclusive)
			if x.random.Chance(1, 32) {
				a.notWaiting()
			}
		}
		return moveExecute
	}
	for _, c := range t.cells {
		x.next(t, c, 1)
	}
	if t.rounds == 1 && x.random.Chance(1, 4) {
		return moveExecute // and again, on top of the own change
	}
	return x.ending()
}

// planLook reads committed rows without locks.
func planLook(x *slot, t *txn) move {
	for range x.random.Between(1, x.l.o.Operations) {
		cells := Pick(x.random, x.l.accounts, x.l.registers, x.l.churn)
		x.read(t, x.pick(cells), signal.OpReadCommitted).ignoring()
	}
	return moveCommit
}

// planHold reads rows under shared locks twice, with a pause in between: nobody may change them meanwhile.
func planHold(x *slot, t *txn) move {
	switch t.rounds {
	case 0:
		t.cells = x.several(x.l.registers, x.random.Between(1, 3))
		for _, c := range t.cells {
			x.read(t, c, signal.OpReadShared)
		}
		return moveExecute
	case 1:
		for _, c := range t.cells {
			x.read(t, c, Pick(x.random, signal.OpReadCommitted, signal.OpReadShared))
		}
		return moveExecute
	}
	for i, a := range t.actions[:len(t.cells)] {
		if b := t.actions[len(t.cells)+i]; a.got.version != b.got.version && a.part != partB && b.part != partB {
			x.l.net.failf("%v: %v had version %d and then %d under one shared lock", t, a.cell, a.got.version, b.got.version)
		}
	}
	return x.ending()
}

// planPrivate does anything to rows that no other stream touches.
func planPrivate(x *slot, t *txn) move {
	if len(x.private) == 0 {
		return moveCommit // of none of them the content is known any more
	}
	more := x.random.Between(1, min(x.l.o.Operations, 6))
	if t.rounds == 0 && x.random.Chance(1, 3) {
		more = 1 // one that may go without a coordinator
	}
	for range more {
		c := x.private[x.random.Int(len(x.private))]
		op := uint8(x.random.Int(int(signal.OpMax)))
		if op == signal.OpReadCommitted && x.touched(t, c) {
			op = signal.OpReadShared // a committed read does not wait for the own change before it
		}
		var a *action
		if signal.IsRead(op) {
			a = x.read(t, c, op)
		} else {
			p := x.partOf(c, false)
			if op != signal.OpUpdate && p == partB {
				p = wholeRow
			}
			if op == signal.OpDelete {
				p = wholeRow
			}
			a = x.write(t, c, op, p, uint32(x.random.Int(1000)), int32(x.random.Int(1000)))
		}
		if x.random.Chance(7, 8) {
			a.ignoring()
		}
	}
	if x.random.Chance(1, 2) {
		return moveExecute
	}
	return x.ending()
}

// touched tells whether the present batch has changed a cell.
func (x *slot) touched(t *txn, c *cell) bool {
	for _, a := range t.actions[t.round:] {
		if a.cell == c && !signal.IsRead(a.op) {
			return true
		}
	}
	return false
}

// planChurn inserts, changes and deletes rows that everybody else does that to.
func planChurn(x *slot, t *txn) move {
	many := x.random.Between(1, x.l.o.Operations)
	if x.random.Chance(1, 2) {
		many = 1
	}
	for _, c := range x.several(x.l.churn, many) {
		a := (*action)(nil)
		op := Pick(x.random, signal.OpInsert, signal.OpInsert, signal.OpDelete, signal.OpUpdate, signal.OpReadExclusive)
		if x.l.o.Dense && x.random.Chance(1, 2) {
			op = signal.OpInsert
		}
		switch op {
		case signal.OpReadExclusive:
			a = x.read(t, c, op)
		case signal.OpUpdate:
			a = x.write(t, c, op, x.partOf(c, false), 0, 0)
		case signal.OpInsert:
			a = x.write(t, c, op, Pick(x.random, wholeRow, wholeRow, partA), 0, 0)
		default:
			a = x.write(t, c, op, wholeRow, 0, 0)
		}
		if x.random.Chance(15, 16) {
			a.ignoring()
		}
		if x.random.Chance(1, 32) {
			a.notWaiting()
		}
	}
	return x.ending()
}

// planBlind overwrites the second part of registers without looking.
func planBlind(x *slot, t *txn) move {
	for _, c := range x.several(x.l.registers, Pick(x.random, 1, 1, 2, x.l.o.Operations)) {
		x.write(t, c, Pick(x.random, signal.OpUpdate, signal.OpWrite), partB, 0, 0)
	}
	return moveCommit
}

// planShuffle does a bit of everything, in several batches.
func planShuffle(x *slot, t *txn) move {
	for range x.random.Between(1, max(x.l.o.Operations/3, 1)) {
		switch x.random.Int(5) {
		case 0:
			x.read(t, x.pick(x.l.churn), Pick(x.random, signal.OpReadCommitted, signal.OpReadShared, signal.OpReadExclusive)).ignoring()
		case 1:
			x.read(t, x.pick(x.l.registers), Pick(x.random, signal.OpReadCommitted, signal.OpReadShared, signal.OpReadExclusive))
		case 2:
			x.write(t, x.pick(x.l.registers), signal.OpUpdate, partB, 0, 0)
		case 3:
			x.write(t, x.pick(x.l.churn), signal.OpDelete, wholeRow, 0, 0).ignoring()
		default:
			x.write(t, x.pick(x.l.churn), signal.OpInsert, wholeRow, 0, 0).ignoring()
		}
	}
	if x.random.Chance(1, 2) {
		return moveExecute
	}
	return x.ending()
}

// planIdle locks a row and goes away for a while: longer than TransactionInactiveTimeout, at times.
func planIdle(x *slot, t *txn) move {
	switch t.rounds {
	case 0:
		x.read(t, x.pick(x.l.registers), signal.OpReadShared)
		return moveExecute
	case 1:
		return movePause
	}
	return x.ending()
}

// planSetUp inserts rows that are there from the beginning.
func planSetUp(x *slot, t *txn) move {
	t.cells = x.l.take(setUpBatch)
	for _, c := range t.cells {
		amount := int32(0)
		switch {
		case c.rel == x.l.tables[tableAccount]:
			amount = initialAmount
		case c.id >= ringBase && c.id < ringBase+uint64(len(x.l.ring)):
			amount = int32(c.id-ringBase+1) % int32(len(x.l.ring))
		}
		x.write(t, c, signal.OpInsert, wholeRow, 1, amount)
	}
	return moveCommit
}

// setUpBatch is how many rows a transaction inserts or reads before and after the load: fewer than the smallest pools hold.
const setUpBatch = 8

func afterSetUp(x *slot, t *txn, committed bool) {
	if !committed {
		x.l.todo = append(x.l.todo, t.cells...)
	}
}

// planReadBack reads what is there at the end.
func planReadBack(x *slot, t *txn) move {
	t.cells = x.l.take(setUpBatch)
	op := Pick(x.random, signal.OpReadCommitted, signal.OpReadShared)
	for _, c := range t.cells {
		x.add(t, c, op, wholeRow, value{}).ignoring()
	}
	return moveCommit
}

func afterReadBack(x *slot, t *txn, committed bool) {
	if !committed {
		x.l.todo = append(x.l.todo, t.cells...)
		return
	}
	for _, a := range t.actions {
		a.cell.final = a.got
	}
}

// planPassing uses a table that is dropped sooner or later.
func planPassing(x *slot, t *txn) move {
	p := x.l.passing
	if p == nil || x.l.opened[tableKey{x.s.api, p.rel}] == nil {
		return moveCommit // gone since this kind was drawn
	}
	for range x.random.Between(1, max(x.l.o.Operations/2, 1)) {
		c := x.pick(p.cells)
		switch x.random.Int(4) {
		case 0:
			x.read(t, c, Pick(x.random, signal.OpReadCommitted, signal.OpReadShared)).ignoring()
		case 1:
			x.write(t, c, signal.OpDelete, wholeRow, 0, 0).ignoring()
		default:
			x.write(t, c, signal.OpInsert, wholeRow, 0, 0).ignoring()
		}
	}
	if t.rounds < 3 && x.random.Chance(1, 3) {
		return moveExecute
	}
	return x.ending()
}
