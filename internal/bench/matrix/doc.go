// Package matrix is `cohort bench matrix`: flexAsynch against clusters of several shapes, beside what NDB needs for the
// same on a machine of the same kind.
//
// It owns the list of runs (runs.go) and NDB's figures (ndb.tsv, data). Each run is a process: cohort up with a cluster
// of its own, flexAsynch in it, figures in a file. It measures nothing itself. Invariant: a run that failed is shown as
// failed, and the exit status says so.
//
// Read next: docs/performance.md, which has a table that this program printed.
package matrix
