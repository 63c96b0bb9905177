package flexasynch

import (
	"slices"
	"sync"
	"sync/atomic"
)

// batch is transactions that definers hand to an executor.
type batch struct {
	items []item
	keys  []uint32 // of all items, operations after operations
}

// item is a transaction without its keys.
type item struct {
	transaction
	node int // with the primary of its first row
	at   int // its first key
}

// put appends a transaction.
func (b *batch) put(t *transaction, node int) {
	b.items = append(b.items, item{*t, node, len(b.keys)})
	b.keys = append(b.keys, t.keys...)
}

// queue carries batches from the definers to the executors of some data nodes.
type queue struct {
	waiting atomic.Int32 // executors that have nothing to do

	mu       sync.Mutex
	ready    sync.Cond // a batch is ready, or no more will be
	room     sync.Cond // a batch is free, or none is wanted any more
	batches  []*batch  // ready, oldest first
	free     []*batch
	definers int  // that may still put something
	off      bool // the phase is given up
}

// newQueue makes a queue for so many definers and executors, whose batches have room for so many transactions.
func newQueue(definers, executors, transactions, operations int) *queue {
	q := &queue{definers: definers}
	q.ready.L, q.room.L = &q.mu, &q.mu
	// Each definer may keep one half full; of the rest an executor runs one while the next is being filled.
	for range definers + 2*executors {
		q.free = append(q.free, &batch{make([]item, 0, transactions), make([]uint32, 0, transactions*operations)})
	}
	return q
}

// empty is a batch to be filled; nil: the phase is given up. It waits until one is free.
func (q *queue) empty() *batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.free) == 0 && !q.off {
		q.room.Wait()
	}
	if q.off {
		return nil
	}
	b := q.free[len(q.free)-1]
	q.free = q.free[:len(q.free)-1]
	b.items, b.keys = b.items[:0], b.keys[:0]
	return b
}

// hand hands a batch over, sorted by data node.
func (q *queue) hand(b *batch) {
	slices.SortStableFunc(b.items, func(a, b item) int { return a.node - b.node })
	q.mu.Lock()
	q.batches = append(q.batches, b)
	q.mu.Unlock()
	q.ready.Signal()
}

// finished is called by each definer that has put everything.
func (q *queue) finished() {
	q.mu.Lock()
	q.definers--
	q.mu.Unlock()
	q.ready.Broadcast()
}

// giveUp ends the phase: nobody takes batches any more.
func (q *queue) giveUp() {
	q.mu.Lock()
	q.off = true
	q.mu.Unlock()
	q.room.Broadcast()
	q.ready.Broadcast()
}

// take gives a batch back and takes the next; nil: there is none now, and with done none will come.
func (q *queue) take(back *batch, mayWait bool) (next *batch, done bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if back != nil {
		q.free = append(q.free, back)
		q.room.Signal()
	}
	for len(q.batches) == 0 && q.definers > 0 && !q.off && mayWait {
		q.waiting.Add(1)
		q.ready.Wait()
		q.waiting.Add(-1)
	}
	if len(q.batches) == 0 || q.off {
		return nil, q.definers == 0 || q.off
	}
	next = q.batches[0]
	q.batches = slices.Delete(q.batches, 0, 1)
	return next, false
}

// taker is an executor's source.
type taker struct {
	queue *queue
	batch *batch // being run; nil: none
	at    int    // its next item
}

func (s *taker) next(t *transaction, mayWait bool) (ok, done bool) {
	for s.batch == nil || s.at == len(s.batch.items) {
		s.batch, done = s.queue.take(s.batch, mayWait)
		s.at = 0
		if s.batch == nil {
			return false, done
		}
	}
	x := &s.batch.items[s.at]
	s.at++
	keys := t.keys
	*t = x.transaction
	t.keys = keys
	copy(keys, s.batch.keys[x.at:])
	return true, false
}
