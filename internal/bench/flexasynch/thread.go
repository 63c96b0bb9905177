package flexasynch

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/cohortdb/cohort/ndb"
)

// stage is where a timed run is. Runs that are not timed are always counting.
type stage = int32

const (
	warming stage = iota
	counting
	cooling
	stopped
	stages
)

// control is what a run and its threads share.
type control struct {
	stage atomic.Int32
	ended atomic.Int64 // transactions of the phase
}

// patience is how long a poll waits before it looks whether the run was stopped.
const patience = 200 * time.Millisecond

// failure is a transaction that failed.
type failure struct {
	owner, number uint32
	unknown       bool // its outcome is not known: it may have been done
}

// source gives a thread its next transactions.
type source interface {
	// next fills in a transaction. Without one ok is false: there is none now; done says that there will be none any more.
	// mayWait says that the thread has nothing else to do.
	next(t *transaction, mayWait bool) (ok, done bool)
}

// thread keeps transactions in flight on a lane of its own.
type thread struct {
	lane     lane
	stage    *atomic.Int32
	progress *atomic.Int64 // transactions of all threads that have ended

	slots    []transaction
	free     []int32 // slots
	inFlight int

	// Of the phase.
	expect uint32 // generation that reads must find; 0: any that was written whole
	again  bool   // what failed is run again: keep it
	tally  tally
	err    error // that ended the thread
}

// tally is what became of transactions.
type tally struct {
	ended    [stages]int64 // that succeeded, by stage
	codes    map[int]int64 // that failed, by error code
	wrong    int64         // rows that were read and are not what was written
	failures []failure     // to be run again
}

// newThread makes a thread; its lane comes from open, which is given the options completed by where ends are told.
func newThread(o laneOptions, c *control, open func(laneOptions) (lane, error)) (*thread, error) {
	t := &thread{stage: &c.stage, progress: &c.ended, slots: make([]transaction, o.parallel)}
	keys := make([]uint32, o.parallel*o.operations)
	for i := range t.slots {
		t.slots[i].keys, keys = keys[:o.operations:o.operations], keys[o.operations:]
		t.free = append(t.free, int32(i))
	}
	o.ended = t.ended
	var err error
	t.lane, err = open(o)
	return t, err
}

// begin makes the thread ready for a phase.
func (t *thread) begin(expect uint32, again bool) {
	t.expect, t.again, t.tally, t.err = expect, again, tally{}, nil
}

// run runs the transactions of a source until there are no more, or the run is stopped.
func (t *thread) run(from source) {
	for done := false; ; {
		for !done && len(t.free) > 0 && t.stage.Load() != stopped {
			slot := t.free[len(t.free)-1]
			x := &t.slots[slot]
			ok, last := from.next(x, t.inFlight == 0)
			done = last
			if !ok {
				break
			}
			t.free = t.free[:len(t.free)-1]
			t.inFlight++
			t.lane.start(int(slot), x)
		}
		if t.inFlight == 0 {
			if done || t.stage.Load() == stopped {
				return
			}
			continue // every transaction failed at once: go on with the next ones
		}
		enough := t.inFlight
		if !done {
			enough = max(t.inFlight/2, 1)
		}
		before := t.inFlight
		t.err = t.lane.poll(patience, enough)
		t.progress.Add(int64(before - t.inFlight))
		if t.err != nil {
			return
		}
	}
}

// ended is told by the lane that a transaction has ended.
func (t *thread) ended(slot, code int) {
	x := &t.slots[slot]
	t.free = append(t.free, int32(slot))
	t.inFlight--
	if code != 0 {
		t.failed(x, code)
		return
	}
	t.tally.ended[t.stage.Load()]++
	if x.kind != read {
		return
	}
	for i := range x.keys {
		generation, whole := t.lane.got(slot, i, x)
		if !whole || generation != t.expect && (t.expect != 0 || generation >= generationMax) || generation == 0 {
			t.tally.wrong++
		}
	}
}

// failed takes note of a transaction that failed.
func (t *thread) failed(x *transaction, code int) {
	if x.unknown && alreadyDone(x.kind, code) {
		t.tally.ended[t.stage.Load()]++
		return
	}
	if t.tally.codes == nil {
		t.tally.codes = map[int]int64{}
	}
	t.tally.codes[code]++
	if t.again {
		t.tally.failures = append(t.tally.failures, failure{x.owner, x.number, x.unknown || outcomeUnknown(code)})
	}
}

// outcomeUnknown tells whether a transaction that failed with a code may have been committed.
func outcomeUnknown(code int) bool {
	var e *ndb.Error
	return errors.As(ndb.ErrorOf(code), &e) && e.Class == ndb.ClassUnknownResult
}

// alreadyDone tells whether an error means that an earlier try, whose outcome was not known, had its effect: nobody else
// has the thread's keys.
func alreadyDone(k kind, code int) bool {
	switch k {
	case insert:
		return code == ndb.CodeOf(ndb.ErrDuplicate)
	case remove:
		return code == ndb.CodeOf(ndb.ErrNotFound)
	}
	return false
}

// add adds another thread's tally.
func (y *tally) add(x *tally) {
	for i, n := range x.ended {
		y.ended[i] += n
	}
	for code, n := range x.codes {
		if y.codes == nil {
			y.codes = map[int]int64{}
		}
		y.codes[code] += n
	}
	y.wrong += x.wrong
	y.failures = append(y.failures, x.failures...)
}
