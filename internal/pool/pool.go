// Package pool has bounded sets of records that are addressed by index: no allocation per record, no Go pointer
// needed to reach one, and running out is an answer, not a crash.
//
// A record keeps its index for its life. Memory is reserved at once but touched only as records are first used,
// since the free list of never-used records is a counter. Not safe for concurrent use: a pool belongs to a block.
package pool

import "github.com/cohortdb/cohort/internal/invariant"

// None stands for no record.
const None = ^uint32(0)

// Pool is a bounded set of T. The zero Pool has no room; use New.
type Pool[T any] struct {
	rec   []T
	next  []uint32 // free list; busy marks a record in use
	free  uint32   // head of the free list, None when empty
	fresh uint32   // records from here on were never used
	used  uint32
}

const busy = ^uint32(0) - 1

// New makes a pool of n records, 1 ≤ n < 2³¹.
func New[T any](n int) *Pool[T] {
	invariant.That(n > 0 && n < 1<<31, "a pool has between 1 and 2^31 records")
	return &Pool[T]{rec: make([]T, n), next: make([]uint32, n), free: None}
}

// Seize takes a record; its content is what the last owner left. It returns None and nil when all are in use.
func (p *Pool[T]) Seize() (uint32, *T) {
	i := p.free
	switch {
	case i != None:
		p.free = p.next[i]
	case int(p.fresh) < len(p.rec):
		i = p.fresh
		p.fresh++
	default:
		return None, nil
	}
	p.next[i] = busy
	p.used++
	return i, &p.rec[i]
}

// Release gives a record back. Releasing one that is not in use is a broken invariant.
func (p *Pool[T]) Release(i uint32) {
	if !p.InUse(i) {
		invariant.Failf("record %d of %d is released but not in use", i, len(p.rec))
	}
	p.next[i] = p.free
	p.free = i
	p.used--
}

// At is the record with index i, which must be in use.
func (p *Pool[T]) At(i uint32) *T {
	if p.next[i] != busy {
		invariant.Failf("record %d of %d is not in use", i, len(p.rec))
	}
	return &p.rec[i]
}

// InUse tells whether i names a record in use; i may be anything.
func (p *Pool[T]) InUse(i uint32) bool { return i < uint32(len(p.rec)) && p.next[i] == busy }

// Find is At for an index that may be stale or made up: nil when no such record is in use.
func (p *Pool[T]) Find(i uint32) *T {
	if !p.InUse(i) {
		return nil
	}
	return &p.rec[i]
}

// Used is how many records are in use, Cap how many there are, High how many were ever used at once at most.
func (p *Pool[T]) Used() int { return int(p.used) }

// Cap is the number of records.
func (p *Pool[T]) Cap() int { return len(p.rec) }

// High bounds the indexes ever handed out: all records in use have a lower index.
func (p *Pool[T]) High() uint32 { return p.fresh }
