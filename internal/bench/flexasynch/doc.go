// Package flexasynch is flexAsynch: the benchmark of the asynchronous record API.
//
// A thread keeps a number of transactions in flight: it defines them, sends them all, polls until enough have
// completed, and goes on. Phases of inserts, reads, updates and deletes follow each other over keys that no other
// thread uses; after each the rate is printed, and at the end four lines with averages. With -new a second driver
// does the same work with definer threads, which make batches sorted by data node, and executor threads, which run
// them.
//
// The package owns the options and what they mean, the keys and values of the rows, the count of what failed, and the
// arithmetic of the printed figures. It reaches the cluster only by package ndb, behind the two small interfaces of
// seam.go, so that every option is tested without a cluster.
//
// Invariants: each phase runs threads × rounds × parallel transactions of so many operations each, none twice unless it
// failed; every row that is read is compared with what was written; nothing is allocated per operation; the exit status
// is 0 only when no operation failed for good and no row was wrong.
//
// Read next: options.go (what can be chosen), run.go (the course), thread.go (the loop), ndbcluster.go (how operations
// reach ndb); docs/flexasynch.md for users.
package flexasynch
