package sim

import (
	"fmt"

	"github.com/cohortdb/cohort/internal/client"
	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/signal"
)

// What the clients were told, and what follows from it. The simulator sees all clients at once and one virtual time,
// so it knows more than any of them: which of two answers came first, and who held a lock when.

// class says what is known of a row.
type class uint8

const (
	// classChain: the row is always there, and every change of its first part reads it under an exclusive lock and
	// adds 1 to its version: the versions give the order of the changes. Its second part anybody may overwrite.
	classChain class = iota
	// classChurn: anybody inserts, changes and deletes it.
	classChurn
	// classPrivate: one stream of transactions alone changes it, so it is known exactly.
	classPrivate
	// classAtomic: it is always there, and a transaction reads or writes nothing else: its history is kept.
	classAtomic
)

// cell is a row of the load, there or not.
type cell struct {
	rel   *relation
	id    uint64
	name  string
	class class
	// number is the cell's place in the order in which transactions mostly take locks.
	number int

	exact value // classPrivate: the newest committed content

	final value // what was read at the end

	version uint32 // classChain: the highest version that was acknowledged
	gci     uint64 // the highest epoch of an acknowledged change
	gciB    uint64 // the same, of changes of the second part

	// holders are the transactions that hold a lock on the row, as far as their clients know.
	holders []holder
	changes []change
	glances []glance
	doubts  []*action // writes of transactions whose outcome is unknown
	vague   []pending // classPrivate: what such a transaction may have made of it, and what was before; then it is left alone
	deletes []*txn    // whose deletes were sent; those that were rolled back are swept out now and then
	inserts int       // acknowledged, less acknowledged deletes
	visits  []visit   // classAtomic: its history
}

func (c *cell) String() string { return fmt.Sprintf("%s row %d", c.rel.name, c.id) }

type holder struct {
	t         *txn
	exclusive bool
}

// change is a committed change of a cell.
type change struct {
	gci     uint64
	version uint32
	tag     uint32
	t       *txn
	part    part
	insert  bool
	delete  bool
	hasB    bool // the second part was set, else to NULL
}

// touchesB tells whether a change sets the second part, to a value or to NULL.
func (h *change) touchesB() bool { return h.part != partA || h.insert }

// glance is a version that a committed transaction has read under a lock.
type glance struct {
	version uint32
	gci     uint64 // of the transaction that read it
	t       *txn
}

// txnState is what became of a transaction, as far as its client knows.
type txnState uint8

const (
	txnOpen txnState = iota
	txnCommitted
	txnAborted
	// txnUnknown: its link or session ended while its commit was under way. checkDoubts decides at the end.
	txnUnknown
)

// txn is a transaction as the load sees it.
type txn struct {
	slot    *slot
	kind    int
	number  int
	tx      *client.Tx
	state   txnState
	gci     uint64
	err     *ndberror.Error
	actions []*action
	round   int // where the actions of the present batch begin in actions
	rounds  int
	cells   []*cell // what its plan has chosen
	begun   int64
	invoked int64 // classAtomic: when it began, in ticks
	by      uint8 // the data node that said that it is committed; 0 = not known
	asked   int64 // when the present batch was sent; 0 = nothing is awaited
	move    move

	// floor is the epoch that this transaction must not be older than, should it commit: somebody saw its rows after
	// newer ones were acknowledged.
	floor uint64
	// certain: its client was told that it is committed, but not in which epoch.
	certain bool
	// seen: another transaction has read what this one wrote, before its outcome was known.
	seen *txn
	// rivals are transactions that came to hold a lock while this one held a conflicting one, as their clients heard of
	// it. One of the two had lost its lock, and its client has not been told yet: they must not both commit.
	rivals []conflict
	held   []*cell
	pend   []pending // classPrivate: own changes
}

type conflict struct {
	cell  *cell
	other *txn
	at    int64
}

// visit is a transaction that read or wrote a register, and was not rolled back as far as its client knows.
type visit struct {
	t                 *txn
	invoked, returned int64 // in ticks
	reads, writes     bool
	read, write       uint32 // tags
}

type pending struct {
	cell *cell
	v    value
}

func (t *txn) String() string {
	return fmt.Sprintf("transaction %d (%s, node %d session %d)", t.number, kinds[t.kind].name, t.slot.s.proc.ID, t.slot.s.index)
}

// action is an operation of a transaction.
type action struct {
	t      *txn
	cell   *cell
	op     uint8
	part   part
	ignore bool // its failure is ignored
	noWait bool
	row    *row
	o      *client.Op
	v      value // written
	got    value // read
	code   int
	done   bool

	floorVersion uint32 // what was acknowledged when it was sent
	floorGCI     uint64
	floorGCIB    uint64

	predicted bool // classPrivate: code and content are known beforehand
	wantCode  int
	want      value
}

func (a *action) locks() bool     { return a.op != signal.OpReadCommitted }
func (a *action) exclusive() bool { return a.op > signal.OpReadShared }

// model is what all clients know together.
type model struct {
	net   *Network
	cells []*cell
	index map[cellKey]*cell // never ranged over
	// writes are all writes that were ever sent, by tag.
	writes []write
	doubts []*txn // whose outcome is unknown
	// disturbed: links were cut or nodes failed, so that errors may come from that.
	disturbed bool
	// wrote, if set, is told of each transaction that wrote and was acknowledged.
	wrote func(t *txn)
	stats statistics
}

type cellKey struct {
	rel *relation
	id  uint64
}

// write is what a tag stands for.
type write struct {
	t       *txn
	cell    *cell
	version uint32
}

func newModel(n *Network) *model {
	return &model{net: n, index: map[cellKey]*cell{}, writes: make([]write, 1)}
}

// cell finds or makes a cell.
func (m *model) cell(r *relation, id uint64, c class) *cell {
	k := cellKey{r, id}
	x := m.index[k]
	if x == nil {
		x = &cell{rel: r, id: id, class: c, name: r.keyName(id), number: len(m.cells)}
		m.index[k] = x
		m.cells = append(m.cells, x)
	}
	return x
}

// newTag is the tag of a write that is about to be sent.
func (m *model) newTag(t *txn, c *cell, version uint32) uint32 {
	m.writes = append(m.writes, write{t, c, version})
	return uint32(len(m.writes) - 1)
}

func (m *model) failf(format string, args ...any) { m.net.failf(format, args...) }

// sent takes note that an action is on its way.
func (m *model) sent(t *txn, a *action) {
	c := a.cell
	a.floorVersion, a.floorGCI, a.floorGCIB = c.version, c.gci, c.gciB
	if a.op == signal.OpDelete {
		c.deletes = append(c.deletes, t)
	}
	if a.predicted {
		m.predict(t, a)
	}
}

// predict says what an action on a private row must do, with what its transaction has done before.
func (m *model) predict(t *txn, a *action) {
	v := a.cell.exact
	own := -1
	for i := range t.pend {
		if t.pend[i].cell == a.cell {
			own = i
			v = t.pend[i].v
		}
	}
	a.want = v
	w := v
	switch a.op {
	case signal.OpInsert:
		if v.present {
			a.wantCode = ndberror.Duplicate
			return
		}
		w = a.v
		if a.part == partA {
			w.hasB, w.tagB = false, 0
		}
	case signal.OpUpdate, signal.OpDelete:
		if !v.present {
			a.wantCode = ndberror.NotFound
			return
		}
		w = merged(v, a.v, a.part)
		if a.op == signal.OpDelete {
			w = value{}
		}
	case signal.OpWrite:
		w = merged(v, a.v, a.part)
	default:
		if !v.present {
			a.wantCode = ndberror.NotFound
		}
		return
	}
	if own >= 0 {
		t.pend[own].v = w
	} else {
		t.pend = append(t.pend, pending{a.cell, w})
	}
}

// merged is what a write of some columns makes of a value.
func merged(old, with value, p part) value {
	v := old
	v.present = true
	if p != partB {
		v.version, v.amount, v.tag = with.version, with.amount, with.tag
	}
	if p != partA {
		v.hasB, v.tagB = with.hasB, with.tagB
	}
	return v
}

// answered examines one action whose batch is over while its transaction lives, or has committed.
func (m *model) answered(t *txn, a *action) {
	if e := a.o.Err(); e != nil {
		a.code = e.Code
	}
	a.done = true
	if a.predicted && a.code != a.wantCode {
		m.failf("%v: %s of %v gave %d, but must give %d: nobody else changes it", t, opNames[a.op], a.cell, a.code, a.wantCode)
		return
	}
	if a.code != 0 {
		m.refused(t, a)
		return
	}
	if signal.IsRead(a.op) {
		m.read(t, a)
	}
	if a.locks() && t.move == moveExecute {
		m.hold(t, a)
	}
}

var opNames = [signal.OpMax]string{"committed read", "shared read", "exclusive read", "insert", "update", "write", "delete"}

// refused examines an operation's error in a transaction that lives on.
func (m *model) refused(t *txn, a *action) {
	ok := false
	switch a.code {
	case ndberror.NotFound:
		ok = a.op != signal.OpInsert && a.op != signal.OpWrite && a.cell.class != classChain
		m.missing(t, a)
	case ndberror.Duplicate:
		ok = a.op == signal.OpInsert && a.cell.class != classChain
	case ndberror.LockBusy:
		ok = a.noWait
	}
	if !ok || !a.ignore {
		m.failf("%v: %s of %v was refused with %d, and the transaction went on", t, opNames[a.op], a.cell, a.code)
	}
}

// missing examines a read that found no row.
func (m *model) missing(t *txn, a *action) {
	c := a.cell
	if c.class != classChurn || a.floorGCI == 0 {
		return
	}
	found := false
	kept := c.deletes[:0]
	for _, d := range c.deletes {
		found = found || d.state == txnOpen || d.state == txnUnknown || d.state == txnCommitted && d.gci >= a.floorGCI
		if d.state != txnAborted {
			kept = append(kept, d)
		}
	}
	c.deletes = kept
	if found {
		return
	}
	m.failf("%v: %s of %v found no row, but a change in epoch %v was acknowledged before and no delete came after it",
		t, opNames[a.op], c, signal.GCI(a.floorGCI))
}

// read examines what a read has given.
func (m *model) read(t *txn, a *action) {
	c := a.cell
	v, wrong := c.rel.get(a.row, a.part)
	a.got = v
	if wrong != "" {
		m.failf("%v: %s of %v gave a row that was never written: %s", t, opNames[a.op], c, wrong)
		return
	}
	if a.predicted {
		if w := masked(a.want, a.part); masked(v, a.part) != w {
			m.failf("%v: %s of %v gave %+v, but it holds %+v: nobody else changes it", t, opNames[a.op], c, v, w)
		}
		return
	}
	switch {
	case a.part == partB:
	case c.class == classChain:
		m.source(t, a, v.tag, 0)
		m.chained(t, a, v)
	default:
		m.source(t, a, v.tag, a.floorGCI)
	}
	if a.part != partA && v.hasB {
		m.source(t, a, v.tagB, a.floorGCIB)
	}
}

// masked is a value without the columns that were not asked for.
func masked(v value, p part) value {
	switch p {
	case partA:
		v.hasB, v.tagB = false, 0
	case partB:
		v.version, v.amount, v.tag = 0, 0, 0
	}
	return v
}

// source examines whose write a read has seen: of that row, of a transaction that is not rolled back, and not older
// than what was acknowledged before the read was sent.
func (m *model) source(t *txn, a *action, tag uint32, floor uint64) {
	c := a.cell
	if tag == 0 || int(tag) >= len(m.writes) || m.writes[tag].cell != c {
		m.failf("%v: %s of %v gave the tag %d, which was never written there", t, opNames[a.op], c, tag)
		return
	}
	w := m.writes[tag].t
	switch {
	case w == t:
		return
	case w.state == txnAborted:
		m.failf("%v: %s of %v saw a write of %v, which was rolled back", t, opNames[a.op], c, w)
	case w.state == txnCommitted && w.gci < floor:
		m.failf("%v: %s of %v saw a write of epoch %v, but one of epoch %v was acknowledged before it was sent",
			t, opNames[a.op], c, signal.GCI(w.gci), signal.GCI(floor))
	case w.state == txnOpen || w.state == txnUnknown:
		w.seen = t
		w.floor = max(w.floor, floor)
	}
}

// chained examines the version of a row whose versions are in order.
func (m *model) chained(t *txn, a *action, v value) {
	c := a.cell
	if m.net.failure != nil {
		return
	}
	if w := m.writes[v.tag]; w.version != v.version {
		m.failf("%v: %s of %v gave version %d with the tag of version %d", t, opNames[a.op], c, v.version, w.version)
		return
	}
	if v.version < a.floorVersion && m.writes[v.tag].t != t {
		m.failf("%v: %s of %v gave version %d, but version %d was acknowledged before it was sent", t, opNames[a.op], c,
			v.version, a.floorVersion)
	}
}

// hold takes note that a transaction holds a lock, as far as its client knows, and looks for others that hold a
// conflicting one.
func (m *model) hold(t *txn, a *action) {
	c := a.cell
	for _, h := range c.holders {
		if h.t != t && (h.exclusive || a.exclusive()) {
			h.t.rivals = append(h.t.rivals, conflict{c, t, m.net.now})
			t.rivals = append(t.rivals, conflict{c, h.t, m.net.now})
		}
	}
	c.holders = append(c.holders, holder{t, a.exclusive()})
	t.held = append(t.held, c)
}

// letGo takes note that a transaction may have lost its locks: it has asked for its end, or has heard of it.
func (m *model) letGo(t *txn) {
	for _, c := range t.held {
		kept := c.holders[:0]
		for _, h := range c.holders {
			if h.t != t {
				kept = append(kept, h)
			}
		}
		c.holders = kept
	}
	t.held = t.held[:0]
}

// ended takes note of a transaction's outcome.
func (m *model) ended(t *txn, committed bool, gci uint64, err *ndberror.Error) {
	m.letGo(t)
	if !committed {
		t.state, t.err = txnAborted, err
		m.stats.aborted(t.kind, err)
		if t.seen != nil {
			m.failf("%v was rolled back, but %v has read what it wrote", t, t.seen)
		}
		if err != nil {
			m.allowed(t, err)
		}
		return
	}
	t.state, t.gci = txnCommitted, gci
	t.by = t.slot.s.from
	m.stats.committed(t.kind)
	for _, r := range t.rivals {
		if r.other.state == txnCommitted {
			m.failf("%v and %v committed, and at %s both held conflicting locks on %v", r.other, t, ns(r.at), r.cell)
		}
	}
	writes := false
	for _, a := range t.actions {
		writes = writes || a.code == 0 && !signal.IsRead(a.op)
	}
	if !writes {
		return
	}
	if gci == 0 {
		m.failf("%v committed writes without an epoch", t)
	}
	if m.wrote != nil {
		m.wrote(t)
	}
	if gci < t.floor {
		m.failf("%v committed in epoch %v, but its write was seen after one of epoch %v was acknowledged", t,
			signal.GCI(gci), signal.GCI(t.floor))
	}
	for _, a := range t.actions {
		m.committed(t, a)
	}
	for _, p := range t.pend {
		p.cell.exact = p.v
	}
}

// inDoubt takes note of a transaction whose outcome its client cannot know.
func (m *model) inDoubt(t *txn) {
	m.letGo(t)
	t.state = txnUnknown
	m.stats.Unknown++
	m.doubts = append(m.doubts, t)
	for _, a := range t.actions {
		if !signal.IsRead(a.op) && a.code == 0 {
			a.cell.doubts = append(a.cell.doubts, a)
		}
	}
	for _, p := range t.pend {
		p.cell.vague = []pending{{p.cell, p.cell.exact}, {p.cell, p.v}}
		t.slot.leave(p.cell)
	}
}

// committed takes note of one action of a committed transaction.
func (m *model) committed(t *txn, a *action) {
	c := a.cell
	if a.code != 0 {
		return
	}
	if signal.IsRead(a.op) {
		if a.locks() && a.part != partB && c.class == classChain && m.writes[a.got.tag].t != t {
			c.glances = append(c.glances, glance{a.got.version, t.gci, t})
		}
		return
	}
	if a.op == signal.OpInsert {
		c.inserts++
	}
	if a.op == signal.OpDelete {
		c.inserts--
	}
	c.changes = append(c.changes, change{gci: t.gci, version: a.v.version, tag: a.v.tag, t: t, part: a.part,
		insert: a.op == signal.OpInsert, delete: a.op == signal.OpDelete, hasB: a.v.hasB && a.part != partA})
	if a.part != partB {
		c.gci = max(c.gci, t.gci)
		c.version = max(c.version, a.v.version)
	}
	if a.part != partA || a.op == signal.OpInsert || a.op == signal.OpDelete {
		c.gciB = max(c.gciB, t.gci)
	}
}

// allowed examines the error that rolled a transaction back.
func (m *model) allowed(t *txn, e *ndberror.Error) {
	passing := false
	mayMiss, mayExist, noWait := false, false, false
	exact := true
	for i, a := range t.actions {
		passing = passing || a.cell.rel.name == passingName
		if i < t.round {
			continue // it has had its answer
		}
		if a.predicted {
			mayMiss = mayMiss || a.wantCode == ndberror.NotFound && !a.ignore
			mayExist = mayExist || a.wantCode == ndberror.Duplicate && !a.ignore
			continue
		}
		exact = false
		mayMiss = mayMiss || a.cell.class == classChurn && a.op != signal.OpInsert && a.op != signal.OpWrite
		mayExist = mayExist || a.cell.class == classChurn && a.op == signal.OpInsert
		noWait = noWait || a.noWait
	}
	ok := false
	switch {
	case e.Code == ndberror.NodeFailed || e.Code == ndberror.ClusterNotReady || e.Code == ndberror.Moving:
		ok = m.disturbed
	case e.Code == ndberror.SessionClosed:
		ok = t.slot.s.closing
	case e.Code == ndberror.NotFound:
		ok = mayMiss
	case e.Code == ndberror.Duplicate:
		ok = mayExist
	case e.Code == ndberror.LockBusy:
		ok = noWait
	case e.Class == ndberror.ClassSpace:
		ok = true
	case e.Class == ndberror.ClassSchema:
		ok = passing
	case e.Class == ndberror.ClassNodeRecovery || e.Class == ndberror.ClassNodeShutdown || e.Class == ndberror.ClassUnknownResult:
		ok = m.disturbed
	default:
		ok = e.Class.Temporary() && e.Class != ndberror.ClassInternalTemporary
	}
	if !ok {
		m.failf("%v failed with %v, which nothing it did explains (everything it touched is its own: %v)", t, e, exact)
	}
}
