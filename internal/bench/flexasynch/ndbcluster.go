package flexasynch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/ndb"
)

const (
	connectTimeout = 30 * time.Second // to find the cluster
	readyTimeout   = 10 * time.Second // beyond the first data node, for the others
	quietTimeout   = 2 * time.Second  // until the user is told that we wait
)

// ndbCluster is the cluster by way of package ndb.
type ndbCluster struct {
	conns []*ndb.Conn
	ids   []int
}

// connect opens the connections. note is told what is odd but no error.
func connect(ctx context.Context, s *settings, note func(format string, args ...any)) (cluster, error) {
	c := &ndbCluster{}
	for i := range s.connections {
		o := ndb.Options{Name: program, ConnectTimeout: connectTimeout}
		if len(s.receiveCPUs) > 0 {
			o.OnReceiver = func() {
				if err := bindTo(s.receiveCPUs, i); err != nil {
					note("receiver of connection %d: %v", i+1, err)
				}
			}
		}
		waiting := time.AfterFunc(quietTimeout, func() {
			note("waiting for the cluster at %s, %v at most", cmp.Or(mgmclient.ConnectString(s.connect), "localhost:1186"), connectTimeout)
		})
		conn, err := ndb.Connect(ctx, s.connect, o)
		waiting.Stop()
		if err != nil {
			c.close()
			return nil, refused(i+1, s.connections, err)
		}
		c.conns = append(c.conns, conn)
		if i == 0 {
			for _, n := range conn.Nodes() {
				c.ids = append(c.ids, n.ID)
			}
		}
		ready, cancel := context.WithTimeout(ctx, readyTimeout)
		err = conn.WaitReady(ready, 0)
		cancel()
		if err != nil && ctx.Err() == nil {
			note("connection %d goes on without all data nodes: %v", i+1, err)
		}
	}
	return c, nil
}

// refused says why a connection could not be had.
func refused(i, n int, err error) error {
	var refusal *mgmclient.Refusal
	if errors.As(err, &refusal) && refusal.Code == mgmclient.CodeNodeID {
		return fmt.Errorf("connection %d of %d: %s: every connection needs a free [api] or [mysqld] slot of the configuration: add some, or lower -con",
			i, n, strings.TrimSuffix(refusal.Text, "."))
	}
	return fmt.Errorf("connection %d of %d: %w", i, n, err)
}

func (c *ndbCluster) nodes() []int { return c.ids }

func (c *ndbCluster) createTable(ctx context.Context, def ndb.TableDef) error {
	_, err := c.conns[0].CreateTable(ctx, def)
	return err
}

func (c *ndbCluster) dropTable(ctx context.Context, database, table string) error {
	return c.conns[0].DropTable(ctx, database, table)
}

func (c *ndbCluster) close() {
	for _, conn := range c.conns {
		conn.Close()
	}
}

func (c *ndbCluster) newLane(ctx context.Context, connection int, o laneOptions, tables []string) (lane, error) {
	conn := c.conns[connection]
	transactions := o.parallel
	if o.separate {
		transactions *= o.operations
	}
	l := &ndbLane{o: o, separate: make([]pieces, o.parallel)}
	for _, name := range tables {
		table, err := lookUp(ctx, conn, name)
		if err != nil {
			return nil, err
		}
		if err := checkColumns(table.Columns(), o); err != nil {
			return nil, fmt.Errorf("table %s of database %s: %w: give -a and -s as it was created with, or create another one", name, database, err)
		}
		l.tables = append(l.tables, newLaneTable(table, o))
	}
	session, err := conn.NewSession(ndb.SessionOptions{MaxTransactions: transactions, MaxOperations: o.parallel * o.operations})
	if err != nil {
		return nil, err
	}
	l.session, l.done = session, l.ended
	return l, nil
}

func lookUp(ctx context.Context, conn *ndb.Conn, name string) (*ndb.Table, error) {
	table, err := conn.Table(ctx, database, name)
	if errors.Is(err, ndb.ErrNoSuchTable) {
		return nil, fmt.Errorf("%w: make it with -create_table", err)
	}
	return table, err
}

// ndbPlacer has a row of each table, to ask for its node.
type ndbPlacer []*ndb.Row

func (c *ndbCluster) newPlacer(ctx context.Context, tables []string) (placer, error) {
	var p ndbPlacer
	for _, name := range tables {
		table, err := lookUp(ctx, c.conns[0], name)
		if err != nil {
			return nil, err
		}
		p = append(p, table.NewRow())
	}
	return p, nil
}

func (p ndbPlacer) node(table int, key, owner uint32) int {
	row := p[table]
	row.SetUint(colDistKey, uint64(key))
	row.SetUint(colCol0, uint64(owner))
	return row.Node()
}

// checkColumns tells whether a table has the columns of the settings.
func checkColumns(columns []ndb.Column, o laneOptions) error {
	if len(columns) != o.attributes+1 {
		return fmt.Errorf("it has %d columns, not %d", len(columns), o.attributes+1)
	}
	for i, c := range columns {
		words := 1
		if i >= firstValue {
			words = o.words
		}
		if c.Type != ndb.TypeUint32 || max(c.Length, 1) != words || c.Key != (i < firstValue) {
			return fmt.Errorf("column %s is not of %d words", c.Name, words)
		}
	}
	return nil
}

// ndbLane is a session.
type ndbLane struct {
	o        laneOptions
	session  *ndb.Session
	tables   []laneTable
	separate []pieces         // with laneOptions.separate, by slot
	done     func(tx *ndb.Tx) // l.ended, made a function once
}

// pieces are a slot's transactions of one read each.
type pieces struct {
	left int // not ended
	code int // first error
}

// laneTable is what a lane has of a table.
type laneTable struct {
	table *ndb.Table
	out   *ndb.Row   // for whatever is written: its values are taken when an operation is defined
	in    []*ndb.Row // for reads, by slot × operations + operation; made when first used

	fill []uint32 // a column of the generation's words
	// generation is that of out's and fill's words; 0: not set
	generation uint32
	first      []uint32 // COL1, with more than one word
}

func newLaneTable(table *ndb.Table, o laneOptions) laneTable {
	return laneTable{
		table: table, out: table.NewRow(), in: make([]*ndb.Row, o.parallel*o.operations),
		fill: make([]uint32, o.words), first: make([]uint32, o.words),
	}
}

func (l *ndbLane) start(slot int, t *transaction) {
	options := &l.o.writes
	if t.kind == read {
		options = &l.o.reads
	}
	if l.o.separate && t.kind == read {
		l.startSeparate(slot, t, options)
		return
	}
	tx, err := l.session.BeginWith(*options)
	if err != nil {
		l.o.ended(slot, codeOf(err))
		return
	}
	tx.Tag = uint64(slot)
	table := &l.tables[t.table]
	for i, key := range t.keys {
		l.define(tx, table, slot, i, key, t)
	}
	tx.CommitAsync(l.done)
}

// startSeparate gives each read a transaction of its own.
func (l *ndbLane) startSeparate(slot int, t *transaction, options *ndb.TxOptions) {
	p := &l.separate[slot]
	p.left, p.code = len(t.keys), 0
	table := &l.tables[t.table]
	for i, key := range t.keys {
		tx, err := l.session.BeginWith(*options)
		if err != nil {
			l.piece(slot, codeOf(err))
			continue
		}
		tx.Tag = uint64(slot)
		l.define(tx, table, slot, i, key, t)
		tx.CommitAsync(l.done)
	}
}

// define defines one operation.
func (l *ndbLane) define(tx *ndb.Tx, table *laneTable, slot, i int, key uint32, t *transaction) {
	if t.kind == read {
		row := table.in[slot*l.o.operations+i]
		if row == nil {
			row = table.table.NewRow()
			table.in[slot*l.o.operations+i] = row
		}
		if !l.o.record {
			row.Reset()
		}
		row.SetUint(colDistKey, uint64(key))
		row.SetUint(colCol0, uint64(t.owner))
		tx.Read(row, l.o.readMode)
		return
	}
	row := table.out
	if !l.o.record {
		row.Reset()
	}
	row.SetUint(colDistKey, uint64(key))
	row.SetUint(colCol0, uint64(t.owner))
	if t.kind == remove {
		tx.Delete(row)
		return
	}
	table.setValues(row, key, t, l.o)
	switch {
	case l.o.write:
		tx.Write(row)
	case t.kind == insert:
		tx.Insert(row)
	default:
		tx.Update(row)
	}
}

// setValues gives a row its values. A record-style row keeps those of a generation; only the stamp differs.
func (t *laneTable) setValues(row *ndb.Row, key uint32, x *transaction, o laneOptions) {
	fresh := t.generation != x.generation
	if fresh {
		t.generation = x.generation
		for i := range t.fill {
			t.fill[i], t.first[i] = x.generation, x.generation
		}
	}
	t.first[0] = stamp(key, x.owner, x.generation)
	if o.words == 1 {
		row.SetUint(firstValue, uint64(t.first[0]))
	} else {
		row.SetWords(firstValue, t.first)
	}
	if o.record && !fresh {
		return
	}
	for c := firstValue + 1; c <= o.attributes; c++ {
		if o.words == 1 {
			row.SetUint(c, uint64(x.generation))
		} else {
			row.SetWords(c, t.fill)
		}
	}
}

// ended hears of the end of a transaction.
func (l *ndbLane) ended(tx *ndb.Tx) {
	code := 0
	if err := tx.Err(); err != nil {
		code = codeOf(err)
	}
	slot := int(tx.Tag)
	if l.separate[slot].left > 0 {
		l.piece(slot, code)
		return
	}
	l.o.ended(slot, code)
}

func (l *ndbLane) piece(slot, code int) {
	p := &l.separate[slot]
	if p.code == 0 {
		p.code = code
	}
	if p.left--; p.left == 0 {
		l.o.ended(slot, p.code)
	}
}

func (l *ndbLane) poll(timeout time.Duration, min int) error {
	_, err := l.session.SendPoll(l.o.send, timeout, min)
	return err
}

func (l *ndbLane) got(slot, i int, t *transaction) (generation uint32, whole bool) {
	row := l.tables[t.table].in[slot*l.o.operations+i]
	mix := stamp(t.keys[i], t.owner, 0)
	if l.o.words == 1 {
		generation = uint32(row.Uint(firstValue)) ^ mix
		for c := firstValue + 1; c <= l.o.attributes; c++ {
			if uint32(row.Uint(c)) != generation {
				return generation, false
			}
		}
		return generation, true
	}
	first := row.Words(firstValue)
	generation = first[0] ^ mix
	if !allAre(first[1:], generation) {
		return generation, false
	}
	for c := firstValue + 1; c <= l.o.attributes; c++ {
		if !allAre(row.Words(c), generation) {
			return generation, false
		}
	}
	return generation, true
}

// allAre tells whether every word has a value. It looks at all of them without a branch for each.
func allAre(words []uint32, value uint32) bool {
	var different uint32
	for _, w := range words {
		different |= w ^ value
	}
	return different == 0
}

func (l *ndbLane) close() { l.session.Close() }

// codeOf is the code of an error; one that is not the database's is -1.
func codeOf(err error) int { return ndb.CodeOf(err) }
