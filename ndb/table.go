package ndb

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cohortdb/cohort/internal/client"
	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/schema"
)

// Type is the type of a column's values.
type Type uint8

// Types. Numbers may be arrays: see Column.Length.
const (
	TypeInt8      = Type(schema.Tinyint)
	TypeUint8     = Type(schema.Tinyunsigned)
	TypeInt16     = Type(schema.Smallint)
	TypeUint16    = Type(schema.Smallunsigned)
	TypeInt24     = Type(schema.Mediumint)
	TypeUint24    = Type(schema.Mediumunsigned)
	TypeInt32     = Type(schema.Int)
	TypeUint32    = Type(schema.Unsigned)
	TypeInt64     = Type(schema.Bigint)
	TypeUint64    = Type(schema.Bigunsigned)
	TypeFloat     = Type(schema.Float)
	TypeDouble    = Type(schema.Double)
	TypeChar      = Type(schema.Char)      // fixed length, padded with spaces, which a string is read without
	TypeVarchar   = Type(schema.Varchar)   // up to Length bytes
	TypeBinary    = Type(schema.Binary)    // fixed length, padded with zero bytes
	TypeVarbinary = Type(schema.Varbinary) // up to Length bytes
)

func (t Type) String() string { return schema.ColumnType(t).String() }

// Column describes a column.
type Column struct {
	Name     string
	Type     Type
	Length   int  // bytes of a character or binary type; values of an array of numbers, where 0 means 1
	Nullable bool // may be NULL
	Key      bool // part of the primary key, in the order of the columns
	Dist     bool // part of the distribution key, which is part of the primary key; none: the whole primary key
}

// TableDef describes a table to be created.
type TableDef struct {
	Database  string
	Name      string
	Columns   []Column
	NoLogging bool // rows are not logged: the table is empty after a restart of the whole cluster
	Fragments int  // 0: the cluster's default
}

// TableName names a table of the cluster.
type TableName struct {
	ID        int
	Version   int
	Database  string
	Name      string
	NoLogging bool
}

// Table is a table as the cluster knows it.
type Table struct {
	c       *Conn
	core    *client.Table
	columns []Column
	all     *rowFormat // every column

	mu      sync.Mutex
	formats map[string]*rowFormat // for rows of which only some columns count, by their mask
}

// tableEntry is a table that was looked up, or is being looked up until ready is closed.
type tableEntry struct {
	ready chan struct{}
	table *Table
	err   error
}

// Table looks a table up: ErrNoSuchTable if there is none. The answer is kept: later calls cost nothing until the
// cluster says that the table has changed.
func (c *Conn) Table(ctx context.Context, database, name string) (*Table, error) {
	full := database + "/" + name
	for {
		c.mu.Lock()
		e := c.tables[full]
		if e == nil {
			e = &tableEntry{ready: make(chan struct{})}
			c.tables[full] = e
			c.mu.Unlock()
			e.table, e.err = c.lookUp(ctx, full)
			if e.err != nil {
				c.mu.Lock()
				if c.tables[full] == e {
					delete(c.tables, full)
				}
				c.mu.Unlock()
			}
			close(e.ready)
			return e.table, e.err
		}
		c.mu.Unlock()
		select {
		case <-e.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if e.err == nil {
			return e.table, nil
		}
	}
}

// forgetTable drops what is known of a table: it is old.
func (c *Conn) forgetTable(t *client.Table) {
	c.mu.Lock()
	for name, e := range c.tables {
		if e.table != nil && e.table.core == t {
			delete(c.tables, name)
		}
	}
	c.mu.Unlock()
}

func (c *Conn) lookUp(ctx context.Context, full string) (*Table, error) {
	var t *client.Table
	err := c.ask(ctx, true, func(timeout int64, answer func(*ndberror.Error)) {
		c.core.TableInfo(full, timeout, func(x *client.Table, e *ndberror.Error) {
			t = x
			answer(e)
		})
	})
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", full, err)
	}
	return newTable(c, t)
}

// ask sends a request of the connection's block and waits for its answer. again: an answer that a failing node cost is
// asked for once more.
func (c *Conn) ask(ctx context.Context, again bool, send func(timeout int64, answer func(*ndberror.Error))) error {
	release := c.wantReceiver()
	defer release()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		got := make(chan *ndberror.Error, 1)
		c.mu.Lock()
		if c.state.Load().closed {
			c.mu.Unlock()
			return ErrClosed
		}
		c.env.SetNow(c.now())
		send(int64(c.opts.WaitTimeout), func(e *ndberror.Error) { got <- e })
		c.flushCore()
		c.mu.Unlock()
		select {
		case e := <-got:
			if e != nil && again && e.Retry {
				select {
				case <-ctx.Done():
				case <-time.After(pause):
					continue
				}
			}
			return codeError(e)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// CreateTable creates a table and looks it up: ErrTableExists if there is one of that name.
func (c *Conn) CreateTable(ctx context.Context, def TableDef) (*Table, error) {
	t := &schema.Table{Database: def.Database, Name: def.Name, Logging: !def.NoLogging, Fragments: uint32(max(def.Fragments, 0))}
	for _, x := range def.Columns {
		t.Columns = append(t.Columns, schema.Column{Name: x.Name, Type: schema.ColumnType(x.Type), Length: uint32(max(x.Length, 0)),
			Nullable: x.Nullable, PrimaryKey: x.Key, DistributionKey: x.Dist})
	}
	full := def.Database + "/" + def.Name
	if err := t.Validate(); err != nil {
		if e, ok := err.(*schema.Error); ok {
			return nil, fmt.Errorf("table %s: %s: %w", full, e.Reason, ErrorOf(int(e.Code)))
		}
		return nil, fmt.Errorf("table %s: %w", full, err)
	}
	err := c.ask(ctx, false, func(timeout int64, answer func(*ndberror.Error)) { c.core.CreateTable(t, timeout, answer) })
	if err != nil {
		return nil, fmt.Errorf("create table %s: %w", full, err)
	}
	c.forgetName(full)
	return c.Table(ctx, def.Database, def.Name)
}

func (c *Conn) forgetName(full string) {
	c.mu.Lock()
	delete(c.tables, full)
	c.mu.Unlock()
}

// DropTable drops a table: ErrNoSuchTable if there is none.
func (c *Conn) DropTable(ctx context.Context, database, name string) error {
	full := database + "/" + name
	err := c.ask(ctx, false, func(timeout int64, answer func(*ndberror.Error)) { c.core.DropTable(full, timeout, answer) })
	c.forgetName(full)
	if err != nil {
		return fmt.Errorf("drop table %s: %w", full, err)
	}
	return nil
}

// Tables lists the tables of the cluster.
func (c *Conn) Tables(ctx context.Context) ([]TableName, error) {
	var out []TableName
	err := c.ask(ctx, true, func(timeout int64, answer func(*ndberror.Error)) {
		c.core.ListTables(timeout, func(all []client.TableEntry, e *ndberror.Error) {
			out = out[:0]
			for _, x := range all {
				database, name, _ := strings.Cut(x.Name, "/")
				out = append(out, TableName{ID: int(x.ID), Version: int(x.Version), Database: database, Name: name,
					NoLogging: x.Flags&client.TableLogged == 0})
			}
			answer(e)
		})
	})
	return out, err
}

func newTable(c *Conn, core *client.Table) (*Table, error) {
	t := &Table{c: c, core: core, formats: map[string]*rowFormat{}}
	for i := range core.Def.Columns {
		x := &core.Def.Columns[i]
		t.columns = append(t.columns, Column{Name: x.Name, Type: Type(x.Type), Length: int(x.Length), Nullable: x.Nullable,
			Key: x.PrimaryKey, Dist: x.DistributionKey})
	}
	var err error
	t.all, err = newRowFormat(t, nil)
	return t, err
}

// Database is the name of the table's database.
func (t *Table) Database() string { return t.core.Def.Database }

// Name is the table's name in its database.
func (t *Table) Name() string { return t.core.Def.Name }

// ID is its number in the cluster.
func (t *Table) ID() int { return t.core.ID() }

// Version is the version of its definition and map.
func (t *Table) Version() int { return t.core.Version() }

// Columns describes the columns. It must not be changed.
func (t *Table) Columns() []Column { return t.columns }

// NoLogging tells whether rows are not logged.
func (t *Table) NoLogging() bool { return !t.core.Def.Logging }

// Column is the index of a column, -1 if there is none of that name.
func (t *Table) Column(name string) int {
	for i := range t.columns {
		if t.columns[i].Name == name {
			return i
		}
	}
	for i := range t.columns {
		if strings.EqualFold(t.columns[i].Name, name) {
			return i
		}
	}
	return -1
}

// Fragments is the number of fragments (partitions).
func (t *Table) Fragments() int { return t.core.Fragments() }

// node is the data node to which operations on a row of a fragment go now.
func (t *Table) node(fragment int) int {
	return int(t.c.state.Load().view.Primary(t.core, fragment).Node())
}

// FragmentNodes are the data nodes that hold a fragment now, the primary's first.
func (t *Table) FragmentNodes(fragment int) []int {
	var out []int
	if fragment < 0 || fragment >= t.core.Fragments() {
		return nil
	}
	for _, a := range t.c.state.Load().view.Chain(t.core, fragment) {
		out = append(out, int(a.Node()))
	}
	return out
}
