// Package up is `cohort up`: a whole cluster on this machine, in one command, for as long as one wants it.
//
// It chooses sizes from the machine, writes a config.ini, starts the management servers and the data nodes as
// processes of their own (the same binary under other names), waits until all are started, and says so in one
// line. Then it waits for an interrupt, or runs the one command it was given, and stops everything in order.
//
// It owns the processes it started, their log files and, with --ephemeral, its folder. It knows nodes only as
// an operator does: by configuration, management protocol and exit status. Invariants: no process of its own
// outlives it, even when it is killed; a child that fails is reported with the last lines of its log and the command
// that brings it back, and the others go on while a data node is left; the ready line is printed only when every data
// node is started.
//
// Read next: options.go (what can be chosen), up.go (the course of a run), process.go (children).
package up
