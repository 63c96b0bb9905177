package ndb

import (
	"context"
	"time"
)

// Options of Connect.
type Options struct {
	Name           string                           // of the program, for the cluster log; "" is the program's file name
	NodeID         int                              // node id to take; 0: any free one (a connect string may name one too)
	ConnectTimeout time.Duration                    // for finding a management server and the first data node; 0: 30 s, beyond the ctx of Connect
	WaitAll        bool                             // Connect waits until every configured data node is started, not just one
	WaitTimeout    time.Duration                    // longest wait for an answer of a data node; 0: 20 s. Beyond it an operation ends with 4012
	Logf           func(format string, args ...any) // what happens to links; nil: nothing is said
}

// Conn is an API node of the cluster, with links to every data node.
type Conn struct{}

// Connect makes the program a node of the cluster: it asks a management server of the connect string
// ("[nodeid=N,]host[:port][,host[:port]]…", "" is localhost:1186 or what NDB_CONNECTSTRING says) for a node id and the
// configuration, opens links to the data nodes, and returns when at least one of them (or all, see Options) is started.
func Connect(ctx context.Context, connectString string, o Options) (*Conn, error) {
	return nil, ErrNotSupportedYet
}

// Close ends the sessions and the links. Transactions under way are rolled back.
func (c *Conn) Close() error { return nil }

// NodeID is the node id of the connection.
func (c *Conn) NodeID() int { return 0 }

// Node describes a data node.
type Node struct {
	ID        int
	Host      string
	Group     int  // node group, -1: none or not known
	Connected bool // the links are up
	Started   bool // it takes transactions
}

// Nodes describes the data nodes, ascending by id.
func (c *Conn) Nodes() []Node { return nil }

// WaitReady waits until n data nodes are started; n = 0 means all that are configured.
func (c *Conn) WaitReady(ctx context.Context, n int) error { return nil }

// Table looks a table up. The answer is kept: later calls cost nothing until the table changes.
func (c *Conn) Table(ctx context.Context, database, name string) (*Table, error) {
	return nil, ErrNotSupportedYet
}

// CreateTable creates a table.
func (c *Conn) CreateTable(ctx context.Context, def TableDef) (*Table, error) {
	return nil, ErrNotSupportedYet
}

// DropTable drops a table.
func (c *Conn) DropTable(ctx context.Context, database, name string) error { return nil }

// Tables lists the tables of the cluster.
func (c *Conn) Tables(ctx context.Context) ([]TableName, error) { return nil, nil }

// SessionOptions of NewSession.
type SessionOptions struct {
	MaxTransactions int // at once; 0: 1024, at most 16384
	MaxOperations   int // in transactions that have not ended; 0: 4 × MaxTransactions, at most 1048576
}

// NewSession opens a stream of work.
func (c *Conn) NewSession(o SessionOptions) (*Session, error) { return nil, ErrNotSupportedYet }

// Session is a stream of work: transactions of one goroutine at a time, of which many may be under way.
type Session struct{}

// Close rolls back what is under way and gives the session up.
func (s *Session) Close() error { return nil }

// Conn is the session's connection.
func (s *Session) Conn() *Conn { return nil }

// TxOptions say where a transaction's coordinator is, and how it is reached. The zero value: at the primary of the
// first operation's row, and no coordinator at all where none is needed.
type TxOptions struct {
	Node       int  // data node of the coordinator; 0: the node of the first row's primary
	RoundRobin bool // each transaction at the next data node in turn
	Coordinate bool // go through a coordinator even where a short path would do
}

// Begin starts a transaction. An error means that MaxTransactions are open (4006), or the session is closed.
func (s *Session) Begin() (*Tx, error) { return nil, ErrNotSupportedYet }

// BeginWith starts a transaction with options.
func (s *Session) BeginWith(o TxOptions) (*Tx, error) { return nil, ErrNotSupportedYet }

// SendMode says when Send and Poll write requests to the sockets.
type SendMode uint8

const (
	// SendAdaptive leaves requests in the buffer while more are likely to come soon and answers are outstanding.
	SendAdaptive SendMode = iota
	// SendForce writes at once.
	SendForce
	// SendLazy leaves it to the background, every 10 ms.
	SendLazy
)

// Send sends what CommitAsync and ExecuteAsync have prepared, as the mode says.
func (s *Session) Send(mode SendMode) error { return nil }

// Poll waits until at least min transactions that were prepared with CommitAsync or ExecuteAsync are done (or all, if
// fewer are under way), and runs their functions. What is still in the send buffer is sent first. It returns how many
// are done; fewer than min only with the error of ctx.
func (s *Session) Poll(ctx context.Context, min int) (int, error) { return 0, nil }

// PollFor is Poll with a timeout in place of a context: fewer than min is no error. With timeout 0 it never waits.
func (s *Session) PollFor(timeout time.Duration, min int) (int, error) { return 0, nil }

// SendPoll is Send and PollFor in one.
func (s *Session) SendPoll(mode SendMode, timeout time.Duration, min int) (int, error) { return 0, nil }

// Pending is how many prepared transactions are not done yet.
func (s *Session) Pending() int { return 0 }

// Tx is a transaction. It must be given back by Close; in the function of CommitAsync that happens by itself.
type Tx struct {
	// Tag is the program's own: neither read nor changed while the transaction lives, 0 at its begin.
	Tag uint64
}

// Execute runs the operations that were defined since the last Execute and waits for them; the transaction stays open.
func (t *Tx) Execute(ctx context.Context) error { return nil }

// Commit runs what was defined, commits, and waits until that is done on every replica.
func (t *Tx) Commit(ctx context.Context) error { return nil }

// Rollback undoes everything and waits until that is done.
func (t *Tx) Rollback(ctx context.Context) error { return nil }

// Close gives the transaction back; one that has not ended is rolled back. The Tx and its Ops must not be used
// afterwards.
func (t *Tx) Close() {}

// CommitAsync prepares the commit; Send or Poll sends it. done is called by a Poll of the session when the transaction
// has ended (Err says how); afterwards it is given back, unless done has begun it anew by Reuse. done must not poll. Keep
// one function for all transactions (a method value stored once): a closure per call is an allocation per call.
func (t *Tx) CommitAsync(done func(*Tx)) {}

// ExecuteAsync is CommitAsync without commit: in done, further operations may be defined, and ExecuteAsync,
// CommitAsync, RollbackAsync or Close must follow there or later.
func (t *Tx) ExecuteAsync(done func(*Tx)) {}

// RollbackAsync undoes everything.
func (t *Tx) RollbackAsync(done func(*Tx)) {}

// Err is the error of the transaction: what rolled it back, or why its outcome is not known.
func (t *Tx) Err() error { return nil }

// GCI is the epoch in which the transaction was committed; 0 before, and for one that was not.
func (t *Tx) GCI() uint64 { return 0 }

// Node is the data node of the transaction's coordinator, or that it goes to without one; 0 before its first operation.
func (t *Tx) Node() int { return 0 }

// ReadMode says what a read sees and locks.
type ReadMode uint8

const (
	// Committed sees the newest committed row, takes no lock and never waits.
	Committed ReadMode = iota
	// Shared locks the row against changes until the transaction ends.
	Shared
	// Exclusive locks the row against changes and locking reads until the transaction ends.
	Exclusive
)

// Read defines a read of the row whose key is in r; its other columns are there when the batch is done.
func (t *Tx) Read(r *Row, mode ReadMode) *Op { return nil }

// Insert defines an insert: error 630 if the row exists.
func (t *Tx) Insert(r *Row) *Op { return nil }

// Update defines an update of the columns that were set since Row.Reset: error 626 if the row does not exist.
func (t *Tx) Update(r *Row) *Op { return nil }

// Write defines an insert or update.
func (t *Tx) Write(r *Row) *Op { return nil }

// Delete defines a delete: error 626 if the row does not exist.
func (t *Tx) Delete(r *Row) *Op { return nil }

// Op is an operation of a transaction. It lives as long as its Tx.
type Op struct{}

// IgnoreError lets the transaction live on if this operation fails for its row (626, 630, …).
func (o *Op) IgnoreError() *Op { return o }

// NoWait makes the operation fail with 635 where it would wait for a lock.
func (o *Op) NoWait() *Op { return o }

// Err is the error of the operation, once its batch is done.
func (o *Op) Err() error { return nil }

// Table is a table as the cluster knows it.
type Table struct{}

// Database, Name, ID and Version name the table.
func (t *Table) Database() string { return "" }

// Name is the table's name in its database.
func (t *Table) Name() string { return "" }

// ID is its number.
func (t *Table) ID() int { return 0 }

// Version is its version.
func (t *Table) Version() int { return 0 }

// Columns describes the columns.
func (t *Table) Columns() []Column { return nil }

// Column is the index of a column, -1 if there is none of that name.
func (t *Table) Column(name string) int { return -1 }

// Fragments is the number of fragments (partitions).
func (t *Table) Fragments() int { return 0 }

// NewRow makes an empty row of the table.
func (t *Table) NewRow() *Row { return nil }

// Row is a row of a table without a Go struct: values are set and read by column index.
type Row struct{}

// Reset forgets all values.
func (r *Row) Reset() {}

// Node is the data node with the primary of the row whose key is in r, 0 if it is not known.
func (r *Row) Node() int { return 0 }

// Fragment is the number of the row's fragment.
func (r *Row) Fragment() int { return 0 }

// SetUint sets an unsigned column. A value that does not fit, or a column of another kind, makes the operation fail.
func (r *Row) SetUint(col int, v uint64) {}

// SetInt sets a signed column.
func (r *Row) SetInt(col int, v int64) {}

// SetFloat sets a float or double column.
func (r *Row) SetFloat(col int, v float64) {}

// SetBytes sets a character or binary column.
func (r *Row) SetBytes(col int, v []byte) {}

// SetString is SetBytes for a string.
func (r *Row) SetString(col int, v string) {}

// SetWords sets an array column.
func (r *Row) SetWords(col int, v []uint32) {}

// SetNull sets a column to NULL.
func (r *Row) SetNull(col int) {}

// IsNull tells whether a column is NULL or has no value.
func (r *Row) IsNull(col int) bool { return true }

// Uint is the value of an unsigned column.
func (r *Row) Uint(col int) uint64 { return 0 }

// Int is the value of a signed column.
func (r *Row) Int(col int) int64 { return 0 }

// Float is the value of a float or double column.
func (r *Row) Float(col int) float64 { return 0 }

// Bytes is the value of a character or binary column; it is valid until the row changes.
func (r *Row) Bytes(col int) []byte { return nil }

// Words is the value of an array column; it is valid until the row changes.
func (r *Row) Words(col int) []uint32 { return nil }

// Record is a Go struct bound to a table. Its methods define operations as those of Tx do; values are taken from the
// struct at once, and a read writes into the struct when the batch is done: it must stay where it is until then.
type Record[T any] struct{}

// Bind compiles the binding of T: a struct whose exported fields name columns by the tag `ndb:"NAME"`; a field without
// tag is ignored. Every key column must be bound; what other columns are not bound is neither read nor changed, and
// an insert leaves it NULL (an error if it cannot be). Types: integers and floats of the column's size (or larger: checked),
// bool for 8-bit columns, string or []byte for character and binary columns, [N]byte for binary ones, [N]uint32 or []uint32 for
// arrays, and a pointer to any of these for a nullable column. A []byte or []uint32 that is read into keeps its
// room where that suffices.
func Bind[T any](t *Table) (*Record[T], error) { return nil, ErrNotSupportedYet }

// Only is the record without the columns that are not named (key columns stay): Read and Update of it leave others alone.
func (r *Record[T]) Only(columns ...string) (*Record[T], error) { return nil, ErrNotSupportedYet }

// Table is the record's table.
func (r *Record[T]) Table() *Table { return nil }

// Node is the data node with the primary of the row.
func (r *Record[T]) Node(row *T) int { return 0 }

// Read defines a read by the key in row.
func (r *Record[T]) Read(tx *Tx, row *T, mode ReadMode) *Op { return nil }

// Insert defines an insert.
func (r *Record[T]) Insert(tx *Tx, row *T) *Op { return nil }

// Update defines an update of all bound columns.
func (r *Record[T]) Update(tx *Tx, row *T) *Op { return nil }

// Write defines an insert or update.
func (r *Record[T]) Write(tx *Tx, row *T) *Op { return nil }

// Delete defines a delete.
func (r *Record[T]) Delete(tx *Tx, row *T) *Op { return nil }

// Get reads one committed row in a transaction of its own: ErrNotFound if there is none.
func (r *Record[T]) Get(ctx context.Context, s *Session, row *T) error { return nil }

// Put writes one row (insert or update) in a transaction of its own.
func (r *Record[T]) Put(ctx context.Context, s *Session, row *T) error { return nil }

// Retry runs f in a transaction, and again, after a growing and random pause, while it fails with an error that says
// Retry; f commits. It ends with f's error, or ctx's. f must not keep the Tx.
func Retry(ctx context.Context, s *Session, f func(*Tx) error) error { return nil }
