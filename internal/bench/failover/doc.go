// Package failover is `cohort bench failover`: what a program notices when data nodes die, hang, are cut off or are
// stopped.
//
// It starts a cluster of real processes, each data node in a network namespace of its own where the machine allows that,
// and a client that asks for a fixed number of single-row updates and reads a second, whatever becomes of them (an open
// loop): the latency of each counts from the moment at which it was to be sent, and what fails for a while is repeated as
// package ndb's Retry would. Then it does the same thing to the cluster again and again, once a round:
//
//	control   nothing
//	kill      SIGKILL to a data node
//	hang      SIGSTOP to a data node; when the others have gone on without it, it is continued or killed in turn
//	cut       a data node's network goes down; it comes up again after the round
//	stop      a data node is stopped by management
//
// and waits until the node is back, under the same load. Every update writes the next number of its row, so that a row
// shows which updates it has: all rows are read back at the end of each round, and an update that was acknowledged and is
// not there is counted as lost.
//
// Besides it measures how long two transactions that wait for each other wait, and what the data nodes cost while nothing
// is asked of them.
//
// Read next: run.go for the course, load.go for the client, measure.go for the figures, network.go for namespaces.
package failover
