package flexasynch

import "sort"

// sequence gives the keys of a logical thread's transactions, one transaction after another. It is the same sequence in
// every phase.
type sequence struct {
	s     *settings
	nodes []int
	owner uint32
	place placer // used with -local only

	number uint32   // of the next transaction
	random uint64   // state of the random numbers of -local 3
	cursor []uint32 // with -local: the next key to look at, for each table and node
}

func newSequence(s *settings, nodes []int, owner int, place placer) *sequence {
	q := &sequence{s: s, nodes: nodes, owner: uint32(owner), place: place}
	if s.local != everywhere {
		q.cursor = make([]uint32, s.tables*len(nodes))
	}
	q.rewind()
	return q
}

// rewind goes back to the first transaction.
func (q *sequence) rewind() {
	q.number = 0
	q.random = uint64(q.owner)*0x9E3779B97F4A7C15 + 1
	clear(q.cursor)
}

// next fills in the next transaction's number, table and keys.
func (q *sequence) next(t *transaction) {
	t.owner, t.number, t.table = q.owner, q.number, 0
	if q.s.tables > 1 {
		t.table = int(q.number) % q.s.tables
	}
	if q.s.local == everywhere {
		first := q.number * uint32(len(t.keys))
		for i := range t.keys {
			t.keys[i] = first + uint32(i)
		}
	} else {
		q.nextLocal(t)
	}
	q.number++
}

// nextLocal takes the next keys whose rows are on the transaction's node.
func (q *sequence) nextLocal(t *transaction) {
	index := 0
	switch q.s.local {
	case ownNode:
		index = int(q.owner)
	case nodesInTurn:
		index = int(q.number)
	case randomNode:
		q.random = q.random*6364136223846793005 + 1442695040888963407
		index = int(q.random >> 33)
	}
	index %= len(q.nodes)
	cursor := &q.cursor[t.table*len(q.nodes)+index]
	for i := range t.keys {
		for q.place.node(t.table, *cursor, q.owner) != q.nodes[index] {
			*cursor++
		}
		t.keys[i] = *cursor
		*cursor++
	}
}

// skipTo goes forward to a transaction; scratch takes the keys of those between.
func (q *sequence) skipTo(number uint32, scratch *transaction) {
	if q.s.local == everywhere {
		q.number = number
		return
	}
	for q.number < number {
		q.next(scratch)
	}
}

// all is every transaction of a logical thread in a phase; again and again, with another generation for each time, in
// a timed run.
type all struct {
	sequence   *sequence
	kind       kind
	generation uint32
	count      uint32 // of transactions
	endless    bool
}

func (a *all) next(t *transaction, _ bool) (ok, done bool) {
	if a.sequence.number == a.count {
		if !a.endless {
			return false, true
		}
		a.sequence.rewind()
		a.generation = a.generation%(generationMax-1) + 1
	}
	a.sequence.next(t)
	t.kind, t.generation, t.unknown = a.kind, a.generation, false
	return true, !a.endless && a.sequence.number == a.count
}

// again is the transactions of a logical thread that failed.
type again struct {
	all      all
	failures []failure // ascending by number
	scratch  transaction
}

func newAgain(a all, failures []failure) *again {
	sort.Slice(failures, func(i, j int) bool { return failures[i].number < failures[j].number })
	return &again{all: a, failures: failures, scratch: transaction{keys: make([]uint32, a.sequence.s.operations)}}
}

func (g *again) next(t *transaction, _ bool) (ok, done bool) {
	if len(g.failures) == 0 {
		return false, true
	}
	f := g.failures[0]
	g.failures = g.failures[1:]
	g.all.sequence.skipTo(f.number, &g.scratch)
	g.all.next(t, false)
	t.unknown = f.unknown
	return true, len(g.failures) == 0
}
