package flexasynch

import (
	"context"
	"time"

	"github.com/cohortdb/cohort/ndb"
)

// cluster is what a run needs of the database. ndbcluster.go has the real one.
type cluster interface {
	// nodes are the ids of the data nodes, ascending.
	nodes() []int
	createTable(ctx context.Context, def ndb.TableDef) error
	dropTable(ctx context.Context, database, table string) error
	// newLane opens a lane on a connection, 0 to -con minus 1. Tables must exist and have the columns of the settings.
	newLane(ctx context.Context, connection int, o laneOptions, tables []string) (lane, error)
	newPlacer(ctx context.Context, tables []string) (placer, error)
	close()
}

// lane runs the transactions of one thread; it belongs to one goroutine at a time.
type lane interface {
	// start defines the operations of a transaction and prepares its commit. Its end is told to laneOptions.ended,
	// from inside poll or, if it fails at once, from inside start.
	start(slot int, t *transaction)
	// poll sends what was prepared and waits until so many transactions have ended; fewer after the timeout.
	poll(timeout time.Duration, min int) error
	// got is what operation i of the slot's transaction, a read, has read: the generation that the stamp tells, and
	// whether every other word is that of the generation.
	got(slot, i int, t *transaction) (generation uint32, whole bool)
	close()
}

// placer tells where rows are; it belongs to one goroutine at a time.
type placer interface {
	// node is the data node with the primary of a row.
	node(table int, key, owner uint32) int
}

// laneOptions say how operations are done.
type laneOptions struct {
	parallel   int // slots
	operations int // of a transaction
	attributes int
	words      int
	record     bool          // whole rows at once, not column by column
	readMode   ndb.ReadMode  // what reads see and lock
	separate   bool          // each read in a transaction of its own
	write      bool          // Write in place of Insert and Update
	reads      ndb.TxOptions // of transactions that read
	writes     ndb.TxOptions // of transactions that write
	send       ndb.SendMode
	ended      func(slot int, code int) // a transaction has ended, with an error's code or 0
}

// transaction is a unit of work in a slot.
type transaction struct {
	kind       kind
	table      int
	owner      uint32   // the logical thread that has the keys
	number     uint32   // which transaction of that thread
	generation uint32   // to be written, or expected
	keys       []uint32 // DISTKEY of each operation
	unknown    bool     // an earlier try failed, and whether it had its effect is not known
}

// laneOptions translates the settings.
func (s *settings) laneOptions() laneOptions {
	o := laneOptions{
		parallel: s.parallel, operations: s.operations, attributes: s.attributes, words: s.words,
		record: s.record, write: s.write, send: s.send, readMode: ndb.Shared,
	}
	switch {
	case s.record || s.dirty:
		o.readMode = ndb.Committed
	case s.simple:
		o.separate = true
	}
	o.reads.RoundRobin = s.noHint
	o.writes.RoundRobin = s.noHint
	o.writes.Coordinate = s.throughTC
	return o
}
