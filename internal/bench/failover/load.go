package failover

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cohortdb/cohort/ndb"
)

const (
	workers   = 4                      // goroutines, each with a session and its part of the rows
	underWay  = 8192                   // transactions of a session at most
	patience  = 60 * time.Second       // for operations that are under way when the load ends
	soonest   = time.Millisecond       // pause before a repetition, at first …
	latest    = 500 * time.Millisecond // … and at most
	latestOut = 20 * time.Millisecond  // … for errors of a failover
	settled   = 250 * time.Millisecond // after a node is back, until the cluster is taken to be at rest
)

// counter is a row: the number of its newest update, and something to carry.
type counter struct {
	ID   uint32     `ndb:"id"`
	N    uint32     `ndb:"n"`
	Rest [23]uint32 `ndb:"rest"`
}

// op is an operation of the load, as it ended.
type op struct {
	at   int64 // when it was to be sent, nanoseconds since the load began
	took int64 // until it succeeded or was given up
	code int   // 0: it succeeded; else the error that a program would have seen
}

// try is an attempt that failed and was repeated.
type try struct {
	at   int64
	code int
}

// load is the open-loop client.
type load struct {
	conn    *ndb.Conn
	record  *ndb.Record[counter]
	rows    int
	began   time.Time
	acked   []atomic.Uint32 // by row: the newest number that was acknowledged
	workers []*worker
	end     atomic.Bool
	running sync.WaitGroup
	writes  atomic.Int64 // acknowledged
}

func newLoad(ctx context.Context, conn *ndb.Conn, rows, rate int) (*load, error) {
	table, err := conn.CreateTable(ctx, ndb.TableDef{Database: "bench", Name: "counter", Columns: []ndb.Column{
		{Name: "id", Type: ndb.TypeUint32, Key: true}, {Name: "n", Type: ndb.TypeUint32}, {Name: "rest", Type: ndb.TypeUint32, Length: 23}}})
	if err != nil {
		return nil, err
	}
	l := &load{conn: conn, rows: rows, acked: make([]atomic.Uint32, rows)}
	if l.record, err = ndb.Bind[counter](table); err != nil {
		return nil, err
	}
	for i := range workers {
		w := &worker{l: l, index: i, interval: int64(time.Second) * workers / int64(rate), rng: rand.New(rand.NewPCG(1, uint64(i))),
			taken: make([]bool, rows/workers)}
		w.note = w.done
		if w.s, err = conn.NewSession(ndb.SessionOptions{MaxTransactions: underWay}); err != nil {
			return nil, err
		}
		l.workers = append(l.workers, w)
	}
	return l, l.fill(ctx)
}

// fill inserts every row.
func (l *load) fill(ctx context.Context) error {
	var failed error
	return l.each(ctx, func(tx *ndb.Tx, c *counter) { l.record.Write(tx, c) }, func(_ *counter, err error) {
		if err != nil {
			failed = err
		}
	}, &failed)
}

// each does something with every row, in a session of its own, many at once; what fails for a while is repeated.
func (l *load) each(ctx context.Context, define func(*ndb.Tx, *counter), over func(*counter, error), failed *error) error {
	s, err := l.conn.NewSession(ndb.SessionOptions{MaxTransactions: 512})
	if err != nil {
		return err
	}
	defer s.Close()
	rows := make([]counter, l.rows)
	again := make([]int, l.rows)
	for i := range again {
		again[i] = i
	}
	begin := time.Now()
	for len(again) > 0 {
		todo := again
		again = nil
		done := func(tx *ndb.Tx) {
			i, err := int(tx.Tag), tx.Err()
			var e *ndb.Error
			if errors.As(err, &e) && (e.Retry || e.Class == ndb.ClassUnknownResult) && time.Since(begin) < patience {
				again = append(again, i)
				return
			}
			over(&rows[i], err)
		}
		for k, i := range todo {
			rows[i].ID = uint32(i)
			tx, err := s.Begin()
			if err != nil {
				return err
			}
			tx.Tag = uint64(i)
			define(tx, &rows[i])
			tx.CommitAsync(done)
			least := 0
			if s.Pending() >= 256 {
				least = 128
			}
			if k == len(todo)-1 {
				least = s.Pending()
			}
			if _, err := s.Poll(ctx, least); err != nil {
				return err
			}
		}
		if len(again) > 0 {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	return *failed
}

// now is the load's time.
func (l *load) now() int64 { return int64(time.Since(l.began)) }

func (l *load) start() {
	l.began = time.Now()
	for _, w := range l.workers {
		l.running.Add(1)
		go func() {
			defer l.running.Done()
			w.run()
		}()
	}
}

// stop ends the load when everything under way is over.
func (l *load) stop() {
	l.end.Store(true)
	l.running.Wait()
}

// check reads every row back and counts updates that were acknowledged before and are not there.
func (l *load) check(ctx context.Context) (lost int, err error) {
	want := make([]uint32, l.rows)
	for i := range want {
		want[i] = l.acked[i].Load()
	}
	var failed error
	err = l.each(ctx, func(tx *ndb.Tx, c *counter) { l.record.Read(tx, c, ndb.Committed) }, func(c *counter, err error) {
		switch {
		case errors.Is(err, ndb.ErrNotFound):
			lost += int(want[c.ID]) + 1
		case err != nil:
			failed = fmt.Errorf("row %d cannot be read back: %w", c.ID, err)
		case c.N < want[c.ID]:
			lost += int(want[c.ID] - c.N)
		}
	}, &failed)
	return lost, err
}

// results gives the operations that were to be sent in a stretch of time, ascending, and the attempts that were repeated.
func (l *load) results(from, to int64) (ops []op, tries []try) {
	for _, w := range l.workers {
		w.mu.Lock()
		for _, o := range w.ops {
			if o.at >= from && o.at < to {
				ops = append(ops, o)
			}
		}
		for _, t := range w.tries {
			if t.at >= from && t.at < to {
				tries = append(tries, t)
			}
		}
		w.mu.Unlock()
	}
	slices.SortFunc(ops, func(a, b op) int { return int(a.at - b.at) })
	return ops, tries
}

// open is how many operations that were to be sent before a moment are not over.
func (l *load) open(before int64) int {
	n := 0
	for _, w := range l.workers {
		w.mu.Lock()
		for _, j := range w.jobs {
			if j.busy && j.at < before {
				n++
			}
		}
		w.mu.Unlock()
	}
	return n
}

// worker is one goroutine of the load.
type worker struct {
	l        *load
	index    int
	interval int64
	s        *ndb.Session
	rng      *rand.Rand
	note     func(*ndb.Tx)
	turn     int
	taken    []bool // by place of a row: an update is under way, or its outcome is not known
	again    waiting

	mu    sync.Mutex // guards what follows against readers; only the worker changes it
	jobs  []*job
	spare []int
	ops   []op
	tries []try
}

// job is an operation under way.
type job struct {
	row   counter
	at    int64
	due   int64 // of its repetition
	index int
	tries int
	write bool
	busy  bool
}

func (w *worker) run() {
	l := w.l
	next := int64(w.index) * w.interval / workers
	var deadline int64
	for {
		now := l.now()
		ending := l.end.Load()
		if ending && deadline == 0 {
			deadline = now + int64(patience)
		}
		for ; next <= now && !ending; next += w.interval {
			w.begin(next)
		}
		for len(w.again) > 0 && w.again[0].due <= now {
			w.send(heap.Pop(&w.again).(*job))
		}
		if ending && (len(w.spare) == len(w.jobs) || now > deadline) {
			w.s.Close()
			return
		}
		wait := int64(settled)
		if !ending {
			wait = next - l.now()
		}
		if len(w.again) > 0 {
			wait = min(wait, w.again[0].due-l.now())
		}
		if _, err := w.s.SendPoll(ndb.SendForce, time.Duration(max(wait, 0)), 1); err != nil {
			return // the connection is closed
		}
		if w.s.Pending() == 0 && wait > 0 { // the session has nothing to wait for
			time.Sleep(time.Duration(min(wait, next-l.now())))
		}
	}
}

// begin begins an operation: every other one is an update of the next row that has none under way.
func (w *worker) begin(at int64) {
	var j *job
	w.mu.Lock()
	if n := len(w.spare); n > 0 {
		j = w.jobs[w.spare[n-1]]
		w.spare = w.spare[:n-1]
	} else {
		j = &job{index: len(w.jobs)}
		w.jobs = append(w.jobs, j)
	}
	*j = job{index: j.index, at: at, busy: true, write: at/w.interval%2 == 0}
	w.mu.Unlock()
	place := w.rng.IntN(len(w.taken))
	if j.write {
		place = w.free()
		w.taken[place] = true
	}
	if j.row.ID = uint32(place*workers + w.index); j.write {
		j.row.N = w.l.acked[j.row.ID].Load() + 1
	}
	w.send(j)
}

// free is the place of the next row that may be updated: one at a time, so that what is there last was sent last.
func (w *worker) free() int {
	for range w.taken {
		w.turn += 7919 // a prime: neighbours in time are no neighbours in the table
		if place := w.turn % len(w.taken); !w.taken[place] {
			return place
		}
	}
	return w.turn % len(w.taken) // every row has one under way: far beyond any rate and stall that is measured
}

func (w *worker) send(j *job) {
	tx, err := w.s.Begin()
	if err != nil {
		w.failed(j, err)
		return
	}
	tx.Tag = uint64(j.index)
	if j.write {
		w.l.record.Update(tx, &j.row)
	} else {
		w.l.record.Read(tx, &j.row, ndb.Committed)
	}
	tx.CommitAsync(w.note)
}

func (w *worker) done(tx *ndb.Tx) {
	j := w.jobs[tx.Tag]
	if err := tx.Err(); err != nil {
		w.failed(j, err)
		return
	}
	if j.write {
		w.l.acked[j.row.ID].Store(j.row.N)
		w.l.writes.Add(1)
	}
	w.over(j, 0)
}

// failed repeats what may be repeated, as ndb.Retry does.
func (w *worker) failed(j *job, err error) {
	code, limit, again := ndb.CodeOf(err), latest, false
	var e *ndb.Error
	if errors.As(err, &e) {
		again = e.Retry
	}
	pause := soonest << min(j.tries, 10)
	switch code {
	case 4009:
		again = true
	case 1204, 270, 280, 286, 4010:
		limit = latestOut
		if j.tries == 0 {
			pause = 0
		}
	}
	if !again {
		w.over(j, code)
		return
	}
	pause = min(pause, limit)
	now := w.l.now()
	w.mu.Lock()
	w.tries = append(w.tries, try{now, code})
	w.mu.Unlock()
	j.tries++
	j.due = now + int64(pause/2) + w.rng.Int64N(int64(pause/2)+1)
	heap.Push(&w.again, j)
}

func (w *worker) over(j *job, code int) {
	w.mu.Lock()
	w.ops = append(w.ops, op{at: j.at, took: w.l.now() - j.at, code: code})
	j.busy = false
	if j.write && code == 0 {
		w.taken[j.row.ID/workers] = false
	}
	w.spare = append(w.spare, j.index)
	w.mu.Unlock()
}

// waiting is a heap of jobs by the time of their repetition.
type waiting []*job

func (h waiting) Len() int           { return len(h) }
func (h waiting) Less(i, k int) bool { return h[i].due < h[k].due }
func (h waiting) Swap(i, k int)      { h[i], h[k] = h[k], h[i] }
func (h *waiting) Push(x any)        { *h = append(*h, x.(*job)) }
func (h *waiting) Pop() any {
	n := len(*h) - 1
	j := (*h)[n]
	*h = (*h)[:n]
	return j
}
