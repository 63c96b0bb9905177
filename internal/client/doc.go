// Package client is the protocol half of the record API: what a program's node says to data nodes and what it makes
// of their answers. [NDB: the inside of the NDB API]
//
// There are two blocks, both pure state machines without sockets, goroutines, locks or clock:
//
//   - Conn, one per node id (address instance 0): which data nodes are there and serve, where tables and their
//     fragments are, creating and dropping tables. What sessions need of it is a View and Tables: immutable values
//     that are handed over whole, so that a session on another thread may read them.
//   - Session, one stream of work (address instance 1 to 65535): transactions and operations in bounded pools.
//     Requests are built in place in the buffers of the session's Env; answers are executed in place.
//
// # Who drives it
//
// A runtime (package ndb with sockets and goroutines, the simulator with virtual time) gives each block an Env of its
// own (nobody else puts signals there), and
//
//  1. tells Conn of links by LinkUpRep and LinkDownRep, delivers to it what comes for instance 0, calls its Tick about
//     every 100 ms, and after each call sends what is in its Env and hands a changed View() to every session by SetView;
//  2. sets the Env's Via or Spread for each node before the View that names the node reaches a session;
//  3. before it sends what is in a session's Env calls Settle; it sends at the session's wish or whenever it likes;
//  4. delivers what comes for a session by Deliver, calls Tick about every 100 ms, SetNow on the Env before either.
//     Config.Done is called from inside Deliver, Tick and SetView, once for each Execute, Commit or Rollback that is
//     over; it may define and start further operations, on this transaction or another.
//
// # A transaction
//
// Begin, then operations: Format.Read, Insert, … (their values are taken at once, into the outgoing buffer), then
// Execute, Commit or Rollback. Each of these returns false when it is over already (nothing had to be asked) and
// otherwise ends in one call of Done. Release gives the record back at any time; what has not ended is rolled back.
//
//	one committed read:   client --ReadReq--> ldm --ReadConf|KeyRef--> client
//	one-shot write:       client --WriteReq--> ldm --WriteConf|KeyRef--> client
//	everything else:      client --KeyReq…--> tc --TxConf|TxRef, KeyRef--> client, ldm --ReadConf--> client
//
// Which of these it is shows only when the next operation or the commit comes. So the last operation of a session
// stays open: it can still be turned into another form, because it is the last thing in its buffer.
//
// # What comes from data nodes
//
// They are other processes: an answer is checked against the operation it names (record, transaction number, lengths)
// and dropped and counted when it does not fit; a row that does not fit its columns makes the operation fail with 4005.
//
// Invariants: a transaction ends once; Done is called once for each start that returned true; a record that is free is
// named by no signal that would be accepted; at most outcome.Window commits are beyond the acknowledgement.
//
// Read next: session.go, define.go, commit.go, deliver.go, failure.go; conn.go; format.go, encode.go, decode.go for rows.
package client
