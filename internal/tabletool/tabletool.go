// Package tabletool is the tools about tables: ndb_show_tables, ndb_desc, ndb_drop_table.
//
// Each connects as a client of the record API, asks or changes the dictionary, prints what NDB's tool of that name
// prints, as far as Cohort has it, and ends. They read no rows. A table that is missing, or a cluster that is not
// there, ends a tool with a message and status 1.
//
// Read next: package ndb, whose functions do the work.
package tabletool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/options"
	"github.com/cohortdb/cohort/ndb"
)

const (
	defaultDatabase = "TEST_DB"

	// connectTimeout is how long a cluster may take to let us in, answerTimeout to answer. After quietTimeout the tool
	// says that it waits.
	connectTimeout = 30 * time.Second
	answerTimeout  = 60 * time.Second
	quietTimeout   = 2 * time.Second
)

// common are the options that all these tools have.
type common struct {
	connect  string
	database string
}

func (c *common) describe(s *options.Set, database string) {
	s.String(&c.connect, "ndb-connectstring,c", "CONNECTSTRING", "where the management servers are\n(default: $NDB_CONNECTSTRING, else localhost:1186)")
	s.String(&c.database, "database,d", "NAME", database)
}

// tool is one program: what it takes, and what it does once it is connected.
type tool struct {
	set  *options.Set
	c    *common
	args func(rest []string) error // takes the arguments that are no options
	run  func(ctx context.Context, conn *ndb.Conn, out io.Writer) error
}

// main runs a tool and returns its exit status.
func (t *tool) main(name string, args []string, stdout, stderr io.Writer) int {
	rest, err := t.set.Parse(args)
	if err == nil {
		err = t.args(rest)
	}
	if status, done := t.set.Answer(err, name, stdout, stderr); done {
		return status
	}
	if err := t.connected(name, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return options.StatusFailed
	}
	return 0
}

func (t *tool) connected(name string, stdout, stderr io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout+answerTimeout)
	defer cancel()
	where := mgmclient.ConnectString(t.c.connect)
	waiting := time.AfterFunc(quietTimeout, func() {
		fmt.Fprintf(stderr, "%s: waiting for the cluster at %s, %v at most\n", name, cmp.Or(where, "localhost:1186"), connectTimeout)
	})
	conn, err := ndb.Connect(ctx, where, ndb.Options{Name: name, ConnectTimeout: connectTimeout})
	waiting.Stop()
	var refusal *mgmclient.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Code == mgmclient.CodeNodeID:
		return fmt.Errorf("%s: a tool needs a free [api] or [mysqld] slot of the configuration: add some", strings.TrimSuffix(refusal.Text, "."))
	case err != nil:
		return errors.New(strings.TrimPrefix(err.Error(), "ndb: ")) // what went wrong does not depend on the package
	}
	defer conn.Close()
	return t.run(ctx, conn, stdout)
}

// ShowTables is ndb_show_tables.
func ShowTables(name string, args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c := &common{}
	var parsable, unqualified bool
	s := options.New("[options]", "Lists the tables of a cluster.")
	c.describe(s, "only tables of this database (default: of all)")
	s.Bool(&parsable, "parsable,p", "print values in quotes, separated by tabs, for programs")
	s.Bool(&unqualified, "unqualified,u", "leave out the database")
	s.Example("ndb_show_tables -c 127.0.0.1:1186")
	s.Example("ndb_show_tables -d TEST_DB -p")
	t := &tool{set: s, c: c, args: options.NoArguments}
	t.run = func(ctx context.Context, conn *ndb.Conn, out io.Writer) error {
		tables, err := conn.Tables(ctx)
		if err != nil {
			return err
		}
		io.WriteString(out, list(tables, c.database, parsable, unqualified))
		return nil
	}
	return t.main(name, args, stdout, stderr)
}

// list is the output of ndb_show_tables.
func list(tables []ndb.TableName, database string, parsable, unqualified bool) string {
	var b strings.Builder
	row := func(id, logging, database, name string) {
		fields := []string{id, "UserTable", "Online", logging, database, "def", name}
		if id == "id" {
			fields = []string{"id", "type", "state", "logging", "database", "schema", "name"}
		}
		if unqualified {
			fields = append(fields[:4], fields[6])
		}
		if parsable {
			b.WriteString("'" + strings.Join(fields, "'\t'") + "'\n")
			return
		}
		widths := []int{5, 20, 8, 7, 12, 8, 0}
		for i, field := range fields {
			if i == len(fields)-1 {
				b.WriteString(field + "\n")
			} else {
				fmt.Fprintf(&b, "%-*s ", widths[i], field)
			}
		}
	}
	if !parsable {
		row("id", "", "", "")
	}
	for _, t := range tables {
		if database != "" && t.Database != database {
			continue
		}
		logging := "Yes"
		if t.NoLogging {
			logging = "No"
		}
		row(fmt.Sprint(t.ID), logging, t.Database, t.Name)
	}
	return b.String()
}

// DropTable is ndb_drop_table.
func DropTable(name string, args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c := &common{database: defaultDatabase}
	var names []string
	s := options.New("[options] TABLE…", "Drops tables, with all their rows.")
	c.describe(s, "the tables' database (default: "+defaultDatabase+")")
	s.Example("ndb_drop_table -d TEST_DB TAB0")
	t := &tool{set: s, c: c, args: func(rest []string) error {
		names = rest
		return atLeastOne(rest)
	}}
	t.run = func(ctx context.Context, conn *ndb.Conn, out io.Writer) error {
		for _, table := range names {
			if err := conn.DropTable(ctx, c.database, table); err != nil {
				return noSuchTable(err)
			}
			fmt.Fprintf(out, "Dropping table %s...\n", table)
		}
		return nil
	}
	return t.main(name, args, stdout, stderr)
}

func atLeastOne(rest []string) error {
	if len(rest) == 0 {
		return errors.New("no table is named: give one or more; ndb_show_tables lists them")
	}
	return nil
}

// noSuchTable adds to an error about a table that is not there what to do.
func noSuchTable(err error) error {
	if errors.Is(err, ndb.ErrNoSuchTable) {
		return fmt.Errorf("%w: ndb_show_tables lists them, -d says of which database", err)
	}
	return err
}

// Desc is ndb_desc.
func Desc(name string, args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c := &common{database: defaultDatabase}
	var names []string
	s := options.New("[options] TABLE…", "Describes tables: their columns and how they are spread.")
	c.describe(s, "the tables' database (default: "+defaultDatabase+")")
	s.Example("ndb_desc -d TEST_DB TAB0")
	t := &tool{set: s, c: c, args: func(rest []string) error {
		names = rest
		return atLeastOne(rest)
	}}
	t.run = func(ctx context.Context, conn *ndb.Conn, out io.Writer) error {
		tables, err := conn.Tables(ctx)
		if err != nil {
			return err
		}
		for _, wanted := range names {
			table, err := conn.Table(ctx, c.database, wanted)
			if err != nil {
				return noSuchTable(err)
			}
			d := description{name: table.Name(), version: table.Version(), fragments: table.Fragments(), columns: table.Columns()}
			for _, t := range tables {
				if t.Database == c.database && t.Name == wanted {
					d.noLogging = t.NoLogging
				}
			}
			io.WriteString(out, d.String())
		}
		return nil
	}
	return t.main(name, args, stdout, stderr)
}

// description is what ndb_desc says about a table.
type description struct {
	name      string
	version   int
	fragments int
	noLogging bool
	columns   []ndb.Column
}

func (d *description) String() string {
	var key, dist []string
	for _, c := range d.columns {
		if c.Key {
			key = append(key, c.Name)
		}
		if c.Dist {
			dist = append(dist, c.Name)
		}
	}
	if dist == nil {
		dist = key
	}
	var b strings.Builder
	fmt.Fprintf(&b, "-- %s --\nVersion: %d\nFragment type: HashMapPartition\nLogged table: %s\nTemporary table: no\n", d.name, d.version, yesNo(!d.noLogging))
	fmt.Fprintf(&b, "Number of attributes: %d\nNumber of primary keys: %d\nPartitionCount: %d\nFragmentCount: %d\nHashMap: 3840 buckets\n",
		len(d.columns), len(key), d.fragments, d.fragments)
	b.WriteString("-- Attributes --\n")
	for _, c := range d.columns {
		b.WriteString(c.Name + " " + typeName(c))
		switch {
		case c.Key:
			b.WriteString(" PRIMARY KEY")
			if c.Dist || len(dist) == len(key) {
				b.WriteString(" DISTRIBUTION KEY")
			}
		case c.Nullable:
			b.WriteString(" NULL")
		default:
			b.WriteString(" NOT NULL")
		}
		array := "FIXED"
		if c.Type == ndb.TypeVarchar || c.Type == ndb.TypeVarbinary {
			array = "SHORT_VAR"
			if c.Length > 255 {
				array = "MEDIUM_VAR"
			}
		}
		b.WriteString(" AT=" + array + " ST=MEMORY\n")
	}
	fmt.Fprintf(&b, "-- Indexes --\nPRIMARY KEY(%s) - UniqueHashIndex\n\n", strings.Join(key, ", "))
	return b.String()
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// typeName is a column's type as NDB's tool writes it: Unsigned, Unsigned [8], Varchar(20).
func typeName(c ndb.Column) string {
	name := c.Type.String()
	switch c.Type {
	case ndb.TypeChar, ndb.TypeVarchar, ndb.TypeBinary, ndb.TypeVarbinary:
		return fmt.Sprintf("%s(%d)", name, max(c.Length, 1))
	}
	if c.Length > 1 {
		return fmt.Sprintf("%s [%d]", name, c.Length)
	}
	return name
}
