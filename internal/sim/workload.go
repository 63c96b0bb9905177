package sim

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/client"
	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/signal"
)

// The workload: each session runs a few streams of transactions, one transaction after the other in each. A kind of
// transaction (kinds.go) is a plan: called before each batch, it defines operations and says what ends the batch.

// move says how a batch ends.
type move uint8

const (
	// moveExecute: run what was defined and go on.
	moveExecute move = iota
	// moveCommit: run and commit.
	moveCommit
	// moveRollback: undo everything.
	moveRollback
	// moveAbandon: give the transaction back as it is; nobody waits for its end.
	moveAbandon
	// movePause: do nothing for a while, with locks held, then plan again.
	movePause
)

// load is the workload of a run.
type load struct {
	net    *Network
	o      *LoadOptions
	model  *model
	apis   []*api
	slots  []*slot
	tables [loadTables]*relation
	// opened is what each API node knows of the tables of the load.
	opened map[tableKey]*formats

	accounts, registers, churn, ring, twins, atomic []*cell
	ticks                                           int64 // of histories

	phase   phase
	todo    []*cell  // phaseSetUp, phaseReadBack: what is left to insert or read
	passing *passing // the passing table, nil while there is none
	budget  int      // phaseLoad: transactions that are left to begin
	pace    int64    // mean pause of a stream between its bursts
	planned int      // budget at first
	since   int64    // when the load began, and
	time    int64    // in how long all of it should have begun, ns
	begun   int
	ended   int
	// inactive is after how long without a request the cluster ends a transaction, ns.
	inactive int64
	random   *Random
}

// phase is what the streams do.
type phase uint8

const (
	phaseRest phase = iota
	phaseSetUp
	phaseLoad
	phaseReadBack
)

const (
	tableAccount = iota
	tableRegister
	tableMixed
	loadTables
)

const mixedName = "sim/mixed"

type tableKey struct {
	api *api
	rel *relation
}

// slot is a stream of transactions.
type slot struct {
	l       *load
	s       *session
	number  int
	random  *Random
	private []*cell
	t       *txn         // under way, or nil
	told    func(t *txn) // if set, is called once when a transaction has ended
	rows    []*row
	used    int // of rows, by the present transaction
}

// initialAmount is what each account holds at first.
const initialAmount = 1000

func newLoad(n *Network, options *Options, r *Random, apis []*api) *load {
	o := &options.Load
	l := &load{net: n, o: o, model: newModel(n), apis: apis, opened: map[tableKey]*formats{}, random: r,
		inactive: int64(options.InactiveMillis) * millisecond}
	l.tables = [loadTables]*relation{
		{name: "sim/account", shape: shapeAccount},
		{name: "sim/register", shape: shapeRegister},
		{name: mixedName, shape: shapeMixed, large: o.LargeBytes, dense: o.Dense},
	}
	m := l.model
	for i := range o.Accounts {
		l.accounts = append(l.accounts, m.cell(l.tables[tableAccount], uint64(i), classChain))
	}
	for i := range o.Registers {
		t := l.tables[tableRegister]
		if i%2 == 1 {
			t = l.tables[tableMixed]
		}
		l.registers = append(l.registers, m.cell(t, uint64(i), classChain))
	}
	for i := range o.Churned {
		t := l.tables[tableMixed]
		if i%3 == 0 {
			t = l.tables[tableRegister]
		}
		l.churn = append(l.churn, m.cell(t, uint64(10_000+i), classChurn))
	}
	l.addConstrained()
	for _, a := range apis {
		for _, s := range a.sessions {
			for range o.Streams {
				l.addSlot(s)
			}
		}
	}
	return l
}

func (l *load) addSlot(s *session) *slot {
	x := &slot{l: l, s: s, number: len(l.slots), random: l.random.Sub("stream").Sub(string(rune('0' + len(l.slots))))}
	for i := range l.o.Private {
		t := l.tables[tableRegister]
		if i%2 == 1 {
			t = l.tables[tableMixed]
		}
		x.private = append(x.private, l.model.cell(t, uint64(100_000+1000*x.number+i), classPrivate))
	}
	l.slots = append(l.slots, x)
	s.slots = append(s.slots, x)
	return x
}

// start lets the streams run budget transactions in about the given time.
func (l *load) start(budget int, time int64) {
	l.phase, l.budget, l.planned = phaseLoad, budget, budget
	l.since, l.time = l.net.now, time*3/4
	l.pace = 2 * time / int64(max(budget/len(l.slots), 1))
	l.wake()
}

// behind tells whether fewer transactions have begun than should have by now.
func (l *load) behind() bool {
	return int64(l.planned-l.budget)*l.time < int64(l.planned)*(l.net.now-l.since)
}

// reopenSessions closes and opens sessions, times times, with random pauses of about pause.
func (l *load) reopenSessions(times int, pause int64) {
	if times == 0 || l.phase != phaseLoad {
		return
	}
	l.net.at(l.net.now+l.random.Exponential(pause), func() {
		a := l.apis[l.random.Int(len(l.apis))]
		if l.phase == phaseLoad && !a.down {
			a.sessions[l.random.Int(len(a.sessions))].reopen(&l.model.stats)
		}
		l.reopenSessions(times-1, pause)
	})
}

// cutLinks closes links between clients and data nodes, times times, with random pauses of about pause.
func (l *load) cutLinks(c *cluster, times int, pause int64) {
	if times == 0 || l.phase != phaseLoad {
		return
	}
	l.net.at(l.net.now+l.random.Exponential(pause), func() {
		a, d := l.apis[l.random.Int(len(l.apis))], c.nodes[l.random.Int(len(c.nodes))]
		if l.phase == phaseLoad && linked(a.proc, d.proc) {
			l.model.stats.Links++
			l.model.disturbed = true
			c.net.closeLink(a.proc, d.proc.ID, l.random)
		}
		l.cutLinks(c, times-1, pause)
	})
}

// startOn lets the streams insert or read cells until none is left.
func (l *load) startOn(p phase, cells []*cell) {
	l.phase, l.pace = p, 0
	l.todo = append(l.todo[:0], cells...)
	l.wake()
}

func (l *load) wake() {
	for _, x := range l.slots {
		l.net.at(l.net.now+l.random.Below(millisecond), x.begin)
	}
}

// stop lets no further transaction begin.
func (l *load) stop() { l.phase = phaseRest }

// idle tells whether no transaction is under way, and none is left to begin.
func (l *load) idle() bool {
	if l.begun != l.ended {
		return false
	}
	switch l.phase {
	case phaseLoad:
		return l.budget == 0
	case phaseSetUp, phaseReadBack:
		return len(l.todo) == 0
	}
	return true
}

// take takes up to n cells of what is left to do.
func (l *load) take(n int) []*cell {
	n = min(n, len(l.todo))
	got := append([]*cell(nil), l.todo[:n]...)
	l.todo = l.todo[n:]
	return got
}

// begin starts the stream's next transaction.
func (x *slot) begin() {
	l := x.l
	if x.t != nil || l.net.failure != nil || x.s.api.down {
		return
	}
	switch {
	case l.phase == phaseSetUp && len(l.todo) > 0:
		x.run(kindSetUp)
	case l.phase == phaseReadBack && len(l.todo) > 0:
		x.run(kindReadBack)
	case l.phase == phaseLoad && l.budget > 0:
		l.budget--
		if l.passing != nil && x.random.Chance(1, 4) {
			x.run(kindPassing)
		} else {
			x.run(l.drawKind(x.random))
		}
	}
}

// drawKind draws a kind of transaction by the weights.
func (l *load) drawKind(r *Random) int {
	if l.inactive < 2*second && r.Chance(1, 200) {
		return kindIdle
	}
	sum := 0
	for _, w := range l.o.Weights {
		sum += w
	}
	k := r.Int(sum)
	for i, w := range l.o.Weights {
		if k -= w; k < 0 {
			return i
		}
	}
	return 0
}

// run starts a transaction of a kind.
func (x *slot) run(kind int) {
	l := x.l
	l.begun++
	x.used = 0
	x.t = &txn{slot: x, kind: kind, number: l.begun, begun: l.net.now}
	l.net.onThread(x.s.thread, func() {
		o := client.TxOptions{RoundRobin: x.random.Chance(1, 8), Coordinate: x.random.Chance(1, 8)}
		x.t.tx = x.s.s.Begin(o)
		if x.t.tx == nil {
			l.net.failf("%v has no room for a transaction, though each stream has but one", x.s)
			return
		}
		x.s.byTx[x.t.tx.Index()] = x.t
		x.batch(x.t)
	})
}

// batch plans and sends batches until something has to be waited for.
func (x *slot) batch(t *txn) {
	for x.l.net.failure == nil {
		t.round = len(t.actions)
		t.move = kinds[t.kind].plan(x, t)
		t.rounds++
		waits := false
		switch t.move {
		case movePause:
			x.later(t, x.l.inactive/2+x.random.Below(x.l.inactive+1))
			return
		case moveExecute:
			waits = t.tx.Execute()
		case moveCommit:
			x.l.model.letGo(t)
			waits = t.tx.Commit()
		case moveRollback:
			x.l.model.letGo(t)
			waits = t.tx.Rollback()
		case moveAbandon:
			x.l.model.letGo(t)
			x.end(t, false, nil)
			return
		}
		if waits {
			t.asked = x.l.net.now
			return
		}
		if !x.over(t) {
			return
		}
	}
}

// done is called when the batch of a transaction is over that was waited for.
func (x *slot) done(t *txn) {
	t.asked = 0
	if x.l.net.failure == nil && x.over(t) {
		x.batch(t)
	}
}

// over examines a batch that is over. True: the transaction goes on.
func (x *slot) over(t *txn) bool {
	m := x.l.model
	err := t.tx.Err()
	ended := t.tx.State() == client.Ended
	switch {
	case ended && err == nil && t.move == moveCommit:
		for _, a := range t.actions[t.round:] {
			m.answered(t, a)
		}
		x.end(t, true, nil)
		return false
	case ended || err != nil:
		x.failed(t, err)
		return false
	}
	for _, a := range t.actions[t.round:] {
		m.answered(t, a)
	}
	if x.l.net.failure != nil {
		return false
	}
	if check := kinds[t.kind].check; check != nil {
		check(x, t)
	}
	if pause := kinds[t.kind].pause; pause > 0 && x.random.Chance(1, 3) {
		x.later(t, x.random.Exponential(pause))
		return false
	}
	return true
}

// later goes on with a transaction after a while.
func (x *slot) later(t *txn, wait int64) {
	x.l.net.at(x.l.net.now+wait, func() {
		if x.t == t {
			x.l.net.onThread(x.s.thread, func() { x.batch(t) })
		}
	})
}

// failed ends a transaction that was rolled back.
func (x *slot) failed(t *txn, err *ndberror.Error) {
	if err != nil && err.Code == ndberror.NotFound && len(t.actions) == 1 {
		x.l.model.missing(t, t.actions[0])
	}
	x.end(t, false, err)
}

// end gives a transaction back and plans the next.
func (x *slot) end(t *txn, committed bool, err *ndberror.Error) {
	l := x.l
	gci := t.tx.GCI()
	switch {
	case committed && t.tx.Err() == nil:
		l.model.ended(t, true, gci, nil)
	case t.move == moveCommit && err != nil && (err.Class == ndberror.ClassUnknownResult || err.Code == ndberror.CommittedNotRead):
		t.certain = err.Code == ndberror.CommittedNotRead
		l.model.inDoubt(t)
	default:
		l.model.ended(t, false, 0, err)
	}
	if after := kinds[t.kind].after; after != nil {
		after(x, t, committed)
	}
	if f := x.told; f != nil {
		x.told = nil
		f(t)
	}
	x.s.byTx[t.tx.Index()] = nil
	t.tx.Release()
	x.forget(t)
	wait := int64(0)
	if l.phase == phaseLoad && x.random.Chance(1, 4) && !l.behind() {
		wait = x.random.Exponential(l.pace)
	}
	if err != nil && err.Class.Temporary() {
		wait += x.random.Exponential(millisecond)
	}
	l.net.at(l.net.now+wait, x.begin)
}

// forget ends the stream's transaction.
func (x *slot) forget(t *txn) {
	t.tx = nil
	for _, a := range t.actions { // the records go to other transactions
		a.o, a.row = nil, nil
	}
	x.t = nil
	x.l.ended++
}

// killed ends what is under way at a client that is killed by end. Nobody will hear what became of it.
func (l *load) killed(a *api, end func()) {
	a.down = true
	for _, s := range a.sessions {
		for _, x := range s.slots {
			t := x.t
			if t == nil {
				continue
			}
			l.model.stats.Cut++
			if t.move == moveCommit && t.asked != 0 {
				l.model.inDoubt(t)
			} else {
				l.model.ended(t, false, 0, nil)
			}
			if after := kinds[t.kind].after; after != nil {
				after(x, t, false)
			}
			s.byTx[t.tx.Index()] = nil
			x.forget(t)
		}
	}
	end()
	if l.passing != nil {
		delete(l.opened, tableKey{a, l.passing.rel})
	}
	asked := a.asked
	a.asked = nil
	for _, q := range asked {
		q.answer(ndberror.Get(ndberror.AnswerLost))
	}
}

// restarted starts a client that was killed. It goes on when it knows the tables again.
func (l *load) restarted(c *cluster, a *api) {
	l.model.stats.Reborn++
	a.boot()
	c.come(a.proc)
	p, left := a.proc, 1
	opened := func() {
		if left--; left > 0 || a.proc != p {
			return
		}
		a.down = false
		for _, s := range a.sessions {
			for _, x := range s.slots {
				l.net.at(l.net.now+l.random.Below(millisecond), x.begin)
			}
		}
	}
	for _, r := range l.tables {
		if l.opened[tableKey{a, r}] != nil { // else it does not exist yet
			left++
			l.open(a, r, opened)
		}
	}
	opened()
}

// leave lets a private cell alone from now on.
func (x *slot) leave(c *cell) {
	for i := range x.private {
		if x.private[i] == c {
			x.private = append(x.private[:i:i], x.private[i+1:]...)
			return
		}
	}
}

// row takes a row for an action.
func (x *slot) row() *row {
	if x.used == len(x.rows) {
		x.rows = append(x.rows, &row{})
	}
	x.used++
	return x.rows[x.used-1]
}

// add defines an operation on a cell. The value is what a change writes.
func (x *slot) add(t *txn, c *cell, op uint8, p part, v value) *action {
	l := x.l
	f := l.opened[tableKey{x.s.api, c.rel}]
	a := &action{t: t, cell: c, op: op, part: p, v: v, row: x.row(), predicted: c.class == classPrivate && len(c.vague) == 0}
	t.actions = append(t.actions, a)
	c.setKey(a.row)
	if !signal.IsRead(op) {
		c.rel.put(a.row, v)
	}
	l.model.sent(t, a)
	g := f[p]
	switch op {
	case signal.OpInsert:
		a.o = g.Insert(t.tx, unsafe.Pointer(a.row))
	case signal.OpUpdate:
		a.o = g.Update(t.tx, unsafe.Pointer(a.row))
	case signal.OpWrite:
		a.o = g.Write(t.tx, unsafe.Pointer(a.row))
	case signal.OpDelete:
		a.o = g.Delete(t.tx, unsafe.Pointer(a.row))
	default:
		a.o = g.Read(t.tx, unsafe.Pointer(a.row), op)
	}
	return a
}

// read defines a read.
func (x *slot) read(t *txn, c *cell, op uint8) *action {
	return x.add(t, c, op, x.partOf(c, true), value{})
}

// partOf draws which columns an operation names.
func (x *slot) partOf(c *cell, read bool) part {
	switch {
	case !c.rel.hasB() || x.random.Chance(1, 2):
		return wholeRow
	case read || x.random.Chance(1, 2):
		return partA
	}
	return partB
}

// write defines a change with a new tag.
func (x *slot) write(t *txn, c *cell, op uint8, p part, version uint32, amount int32) *action {
	tag := x.l.model.newTag(t, c, version)
	v := value{present: true, version: version, amount: amount, tag: tag}
	if c.rel.hasB() && p != partA {
		v.hasB = op == signal.OpInsert || x.random.Chance(7, 8)
		if v.hasB {
			v.tagB = tag
		}
	}
	return x.add(t, c, op, p, v)
}

// ignore lets the transaction live on if the action fails for its row.
func (a *action) ignoring() *action {
	a.ignore = true
	a.o.IgnoreError()
	return a
}

// notWaiting makes the action fail where it would wait for a lock.
func (a *action) notWaiting() *action {
	a.noWait = true
	a.o.NoWait()
	return a
}
