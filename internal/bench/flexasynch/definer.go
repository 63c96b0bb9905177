package flexasynch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// definers is the second driver: definer goroutines make batches of transactions, sorted by the data node of their
// first row, and executors, each for one data node or some, run them.
//
// The keys are those of the first driver: there are as many logical threads, and definer i has those that are i modulo
// the number of definers.
type definers struct {
	s         *settings
	stage     *atomic.Int32
	nodes     []int
	executors []*thread
	groups    int        // of data nodes and of executors
	group     [256]uint8 // by data node: where its transactions go
	sequences []*sequence
	placers   []placer // by definer
}

func newDefiners(ctx context.Context, s *settings, c cluster, tables []string, shared *control) (driver, error) {
	d := &definers{s: s, stage: &shared.stage, nodes: c.nodes(), groups: min(s.threads, len(c.nodes()))}
	for i, node := range d.nodes {
		d.group[node] = uint8(i % d.groups)
	}
	var err error
	if d.executors, err = openThreads(ctx, s, c, tables, shared); err != nil {
		return nil, err
	}
	for range s.definerCount {
		place, err := c.newPlacer(ctx, tables)
		if err != nil {
			d.close()
			return nil, err
		}
		d.placers = append(d.placers, place)
	}
	for owner := range s.threads {
		d.sequences = append(d.sequences, newSequence(s, d.nodes, owner, d.placers[owner%s.definerCount]))
	}
	return d, nil
}

func (d *definers) close() { closeThreads(d.executors) }

func (d *definers) run(w work) (tally, error) {
	queues := make([]*queue, d.groups)
	for g := range queues {
		executors := (d.s.threads - g + d.groups - 1) / d.groups
		queues[g] = newQueue(d.s.definerCount, executors, d.s.parallel, d.s.operations)
	}
	var wait sync.WaitGroup
	problems := make([]error, d.s.definerCount)
	for i := range d.s.definerCount {
		wait.Add(1)
		go func() {
			defer wait.Done()
			problems[i] = d.define(i, &w, queues)
		}()
	}
	for i, t := range d.executors {
		t.begin(w.expect, !w.endless)
		wait.Add(1)
		go func() {
			defer wait.Done()
			t.err = bindTo(d.s.executorCPUs, i)
			if t.err == nil {
				t.run(&taker{queue: queues[i%d.groups]})
			}
			if t.err != nil || d.stage.Load() == stopped {
				for _, q := range queues {
					q.giveUp()
				}
			}
		}()
	}
	wait.Wait()
	sum, err := collect(d.executors)
	return sum, errors.Join(append(problems, err)...)
}

// define makes the batches of a definer's logical threads, a transaction of each in turn.
func (d *definers) define(definer int, w *work, queues []*queue) error {
	defer func() {
		for _, q := range queues {
			q.finished()
		}
	}()
	if err := bindTo(d.s.definerCPUs, definer); err != nil {
		return err
	}
	var sources []source
	for owner := definer; owner < d.s.threads; owner += d.s.definerCount {
		if from := w.source(d.s, d.sequences[owner]); from != nil {
			sources = append(sources, from)
		}
	}
	open := make([]*batch, len(queues))
	t := transaction{keys: make([]uint32, d.s.operations)}
	for i := 0; len(sources) > 0 && d.stage.Load() != stopped; {
		i %= len(sources)
		ok, done := sources[i].next(&t, false)
		if done {
			sources = append(sources[:i], sources[i+1:]...)
		} else {
			i++
		}
		if !ok {
			continue
		}
		node := d.placers[definer].node(t.table, t.keys[0], t.owner)
		g := d.group[node]
		if open[g] == nil {
			if open[g] = queues[g].empty(); open[g] == nil {
				return nil
			}
		}
		open[g].put(&t, node)
		if len(open[g].items) == d.s.parallel || d.s.immediate && queues[g].waiting.Load() > 0 {
			queues[g].hand(open[g])
			open[g] = nil
		}
	}
	for g, b := range open {
		if b != nil {
			queues[g].hand(b)
		}
	}
	return nil
}

// bindTo binds the calling goroutine's thread to the CPU of a list that is thread i's; an empty list binds nothing.
func bindTo(list []int, i int) error {
	if len(list) == 0 {
		return nil
	}
	return bind(list[i%len(list)])
}

// tryCPUs tells whether threads can be bound to the CPUs of a list.
func tryCPUs(list []int) error {
	for _, cpu := range list {
		tried := make(chan error)
		go func() { tried <- bind(cpu) }() // the thread ends with the goroutine
		if err := <-tried; err != nil {
			return err
		}
	}
	return nil
}
