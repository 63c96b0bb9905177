package flexasynch

import (
	"context"
	"fmt"
	"sync"
)

// work is what a phase asks of the driver.
type work struct {
	kind       kind
	generation uint32 // to be written
	expect     uint32 // by reads; 0: any
	endless    bool   // again and again until stopped; what fails is only counted
	failed     map[uint32][]failure
}

// driver runs phases over lanes.
type driver interface {
	// run does all of the work, or, where work.failed is set, what failed of it.
	run(w work) (tally, error)
	close()
}

// threads is the driver whose threads define and run their own transactions.
type threads struct {
	s         *settings
	threads   []*thread
	sequences []*sequence
}

func newThreads(ctx context.Context, s *settings, c cluster, tables []string, shared *control) (driver, error) {
	d := &threads{s: s}
	var err error
	if d.threads, err = openThreads(ctx, s, c, tables, shared); err != nil {
		return nil, err
	}
	for i := range s.threads {
		place, err := c.newPlacer(ctx, tables)
		if err != nil {
			d.close()
			return nil, err
		}
		d.sequences = append(d.sequences, newSequence(s, c.nodes(), i, place))
	}
	return d, nil
}

// openThreads makes -t threads, thread i with a lane on connection i mod con.
func openThreads(ctx context.Context, s *settings, c cluster, tables []string, shared *control) ([]*thread, error) {
	var all []*thread
	for i := range s.threads {
		t, err := newThread(s.laneOptions(), shared, func(o laneOptions) (lane, error) {
			return c.newLane(ctx, i%s.connections, o, tables)
		})
		if err != nil {
			closeThreads(all)
			return nil, fmt.Errorf("thread %d of %d: %w", i+1, s.threads, err)
		}
		all = append(all, t)
	}
	return all, nil
}

func closeThreads(all []*thread) {
	for _, t := range all {
		t.lane.close()
	}
}

func (d *threads) run(w work) (tally, error) {
	var wait sync.WaitGroup
	for i, t := range d.threads {
		from := w.source(d.s, d.sequences[i])
		if from == nil {
			continue
		}
		t.begin(w.expect, !w.endless)
		wait.Add(1)
		go func() {
			defer wait.Done()
			t.run(from)
		}()
	}
	wait.Wait()
	return collect(d.threads)
}

// source is the work of one logical thread; nil: none.
func (w *work) source(s *settings, q *sequence) source {
	q.rewind()
	a := all{sequence: q, kind: w.kind, generation: w.generation, count: uint32(s.rounds * s.parallel), endless: w.endless}
	if w.failed == nil {
		return &a
	}
	if failures := w.failed[q.owner]; len(failures) > 0 {
		return newAgain(a, failures)
	}
	return nil
}

// collect adds up what the threads have done since their begin.
func collect(threads []*thread) (sum tally, err error) {
	for _, t := range threads {
		sum.add(&t.tally)
		if err == nil && t.err != nil {
			err = t.err
		}
		t.tally = tally{}
	}
	return sum, err
}

func (d *threads) close() { closeThreads(d.threads) }

// byOwner groups failures by logical thread.
func byOwner(failures []failure) map[uint32][]failure {
	m := map[uint32][]failure{}
	for _, f := range failures {
		m[f.owner] = append(m[f.owner], f)
	}
	return m
}
