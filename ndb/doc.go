// Package ndb is the record API of Cohort: what a Go program uses to read and change rows by primary key.
//
// # Goals
//
// One row, one at a time, in the time of a network round trip; hundreds of thousands of rows a second from one
// process when many are under way; and a program that reads as what it does. So an operation allocates nothing,
// takes no lock and uses no reflection; what is sent together travels together; and every error is a value with a
// code, a class and a word whether it is worth trying again.
//
// # Shape
//
//	Conn      a node of the cluster: links to every data node. A process may have several, each a node id.
//	Session   one stream of work on a connection; belongs to one goroutine at a time.
//	Tx        a transaction of a session: operations are defined, executed, committed.
//	Table     a table as the cluster knows it.
//	Record[T] a Go struct bound to a table by tags; Row, the same without a struct.
//
// A program in short:
//
//	type Account struct {
//		ID      uint32  `ndb:"id"`
//		Balance int64   `ndb:"balance"`
//		Note    *string `ndb:"note"` // a pointer: NULL is nil
//	}
//
//	conn, err := ndb.Connect(ctx, "localhost:1186", ndb.Options{Name: "bank"})
//	table, err := conn.Table(ctx, "bank", "account")
//	accounts, err := ndb.Bind[Account](table)
//	s, err := conn.NewSession(ndb.SessionOptions{})
//
//	err = ndb.Retry(ctx, s, func(tx *ndb.Tx) error {
//		a := Account{ID: 7}
//		accounts.Read(tx, &a, ndb.Exclusive)
//		if err := tx.Execute(ctx); err != nil {
//			return err
//		}
//		a.Balance += 10
//		accounts.Update(tx, &a)
//		return tx.Commit(ctx)
//	})
//
// # Transactions
//
// Begin gives a Tx; operations are defined on it (Insert, Read, …: their values are taken at once); Execute runs what
// was defined and leaves the transaction open, Commit runs it and commits, Rollback undoes everything. Close gives
// the Tx back to its session and rolls back what has not ended; a Tx must not be used afterwards. Many transactions
// of a session may be under way together: see CommitAsync, Send and Poll.
//
// A transaction of one committed read, or of one write that is committed at once, goes straight to the data node
// that has the row; everything else goes through a coordinator at the node that has the row of the first operation,
// or where TxOptions say.
//
// # Errors
//
// Errors of the database are *Error. Error.Retry says that the transaction had no effect and may be run again as it
// is, which is what Retry does; ClassUnknownResult that nobody knows whether it was committed: look before trying again.
// An operation that fails rolls its transaction back, unless it was told to be ignored (Op.IgnoreError); then Op.Err has
// the error.
//
// When a data node fails, stops or comes back, transactions with a part there end with errors of the first kind. A commit
// that was under way there is asked after at the nodes that take over: only if nobody is left who knows does it end with
// ErrAnswerLost. Tables, records and sessions stay good.
//
// # Goroutines
//
// A Conn, a Table and a Record may be used by any number of goroutines. A Session, with its transactions and rows
// in use, belongs to one goroutine at a time. A connection with a single session needs no goroutine hand-over per
// operation: the caller reads the sockets itself. With several sessions a receiver goroutine reads for all, and
// requests of sessions that send at the same time travel together. The switch is automatic.
//
// Read next: docs/api-guide.md; inside, package client, which holds the protocol without sockets and goroutines.
package ndb
