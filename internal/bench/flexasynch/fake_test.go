package flexasynch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohortdb/cohort/ndb"
)

// fakeCluster keeps rows in a map, and what it was asked for.
type fakeCluster struct {
	mu      sync.Mutex
	ids     []int
	s       *settings
	tables  map[string]map[[2]uint32]uint32 // generation by key
	created []ndb.TableDef
	dropped []string
	lanes   []*fakeLane
	closed  bool
	noSlot  int // connections that are refused beyond so many; 0: none

	// failing answers for a transaction in place of the cluster: a code, and whether it has its effect all the same.
	failing func(t *transaction) (code int, effect bool)
	// spoil changes what a read gives.
	spoil func(t *transaction, generation uint32) (uint32, bool)
	// each is told of every transaction that is run.
	each func(table string, t *transaction)
	ran  func(l *fakeLane, t *transaction)
}

func newFake(nodes int) *fakeCluster {
	f := &fakeCluster{tables: map[string]map[[2]uint32]uint32{}}
	for i := range nodes {
		f.ids = append(f.ids, i+1)
	}
	return f
}

func (f *fakeCluster) nodes() []int { return f.ids }

func (f *fakeCluster) createTable(_ context.Context, def ndb.TableDef) error {
	if f.tables[def.Name] != nil {
		return ndb.ErrTableExists
	}
	f.tables[def.Name] = map[[2]uint32]uint32{}
	f.created = append(f.created, def)
	return nil
}

func (f *fakeCluster) dropTable(_ context.Context, db, table string) error {
	if db != database || f.tables[table] == nil {
		return ndb.ErrNoSuchTable
	}
	delete(f.tables, table)
	f.dropped = append(f.dropped, table)
	return nil
}

func (f *fakeCluster) newLane(_ context.Context, connection int, o laneOptions, tables []string) (lane, error) {
	for _, name := range tables {
		if f.tables[name] == nil {
			return nil, ndb.ErrNoSuchTable
		}
	}
	l := &fakeLane{f: f, connection: connection, o: o, tables: tables, values: make([]uint32, o.parallel*o.operations), whole: true}
	f.lanes = append(f.lanes, l)
	return l, nil
}

func (f *fakeCluster) newPlacer(context.Context, []string) (placer, error) { return f, nil }

func (f *fakeCluster) node(_ int, key, owner uint32) int {
	return f.ids[int(key*2654435761>>7+owner)%len(f.ids)]
}

func (f *fakeCluster) close() { f.closed = true }

// fakeLane ends transactions in another order than they came in.
type fakeLane struct {
	f          *fakeCluster
	connection int
	o          laneOptions
	tables     []string
	waiting    []started
	most       int // in flight
	values     []uint32
	whole      bool
	polls      int
	closed     bool
}

type started struct {
	slot int
	t    *transaction
}

func (l *fakeLane) start(slot int, t *transaction) {
	l.waiting = append(l.waiting, started{slot, t})
	l.most = max(l.most, len(l.waiting))
}

func (l *fakeLane) poll(_ time.Duration, min int) error {
	l.polls++
	for range min {
		if len(l.waiting) == 0 {
			break
		}
		i := l.polls % len(l.waiting)
		s := l.waiting[i]
		last := len(l.waiting) - 1
		l.waiting[i] = l.waiting[last]
		l.waiting = l.waiting[:last]
		l.o.ended(s.slot, l.execute(s.slot, s.t))
	}
	return nil
}

func (l *fakeLane) execute(slot int, t *transaction) int {
	f := l.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.each != nil {
		f.each(l.tables[t.table], t)
	}
	if f.ran != nil {
		f.ran(l, t)
	}
	code, effect := 0, true
	if f.failing != nil {
		if code, effect = f.failing(t); code != 0 && !effect {
			return code
		}
	}
	rows := f.tables[l.tables[t.table]]
	for i, key := range t.keys {
		k := [2]uint32{key, t.owner}
		old, there := rows[k]
		switch {
		case t.kind == insert && there && !l.o.write:
			return ndb.CodeOf(ndb.ErrDuplicate)
		case (t.kind == update && !l.o.write || t.kind == remove || t.kind == read) && !there:
			return ndb.CodeOf(ndb.ErrNotFound)
		case t.kind == remove:
			delete(rows, k)
		case t.kind == read:
			l.whole = true
			if f.spoil != nil {
				old, l.whole = f.spoil(t, old)
			}
			l.values[slot*l.o.operations+i] = old
		default:
			rows[k] = t.generation
		}
	}
	return code
}

func (l *fakeLane) got(slot, i int, _ *transaction) (uint32, bool) {
	return l.values[slot*l.o.operations+i], l.whole
}

func (l *fakeLane) close() { l.closed = true }

// outcome is what a run of the program printed and gave.
type outcome struct {
	status         int
	stdout, stderr string
}

// program runs the program on the fake.
func (f *fakeCluster) program(t *testing.T, ctx context.Context, args ...string) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	status := start(ctx, args, &out, &errs, func(_ context.Context, s *settings, _ func(string, ...any)) (cluster, error) {
		if f.noSlot > 0 && s.connections > f.noSlot {
			return nil, errors.New("no slot")
		}
		f.s = s
		return f, nil
	})
	for _, l := range f.lanes {
		if !l.closed {
			t.Error("a lane was not closed")
		}
	}
	return outcome{status, out.String(), errs.String()}
}

// run runs the program with words of one string; it must succeed.
func (f *fakeCluster) run(t *testing.T, command string) string {
	t.Helper()
	o := f.program(t, context.Background(), strings.Fields(command)...)
	if o.status != 0 || o.stderr != "" {
		t.Fatalf("flexAsynch %s: status %d\n%s%s", command, o.status, o.stdout, o.stderr)
	}
	return o.stdout
}

// linesWith are the lines that begin with a text.
func linesWith(text, prefix string) []string {
	var found []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			found = append(found, strings.TrimSuffix(line, "\n"))
		}
	}
	return found
}

// counter counts operations by kind, and keys by how often they were used.
type counter struct {
	operations [kinds]int
	keys       map[string]int
}

func (c *counter) each(table string, t *transaction) {
	if c.keys == nil {
		c.keys = map[string]int{}
	}
	c.operations[t.kind] += len(t.keys)
	for _, key := range t.keys {
		c.keys[fmt.Sprintf("%v %s %d %d", t.kind, table, key, t.owner)]++
	}
}

// distinct tells how many keys of a kind there were, and how often each was used: the least and the most.
func (c *counter) distinct(k kind) (n, least, most int) {
	var counts []int
	for key, count := range c.keys {
		if strings.HasPrefix(key, k.String()+" ") {
			counts = append(counts, count)
		}
	}
	if len(counts) == 0 {
		return 0, 0, 0
	}
	return len(counts), slices.Min(counts), slices.Max(counts)
}

// idleLane ends every transaction with the next poll, and does nothing else.
type idleLane struct {
	o     laneOptions
	slots []int
}

func (l *idleLane) start(slot int, _ *transaction) { l.slots = append(l.slots, slot) }

func (l *idleLane) poll(_ time.Duration, _ int) error {
	for _, slot := range l.slots {
		l.o.ended(slot, 0)
	}
	l.slots = l.slots[:0]
	return nil
}

func (l *idleLane) got(int, int, *transaction) (uint32, bool) { return 1, true }
func (l *idleLane) close()                                    {}
