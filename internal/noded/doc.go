// Package noded is the process of a data node: the programs ndbd and ndbmtd.
//
// It reads the command line, gets a node id and the configuration from a management server, reserves the memory, binds
// the port, builds the node (datanode) and runs it (host) until it stops; then it exits with a status that names the
// reason (exitcode), or starts itself anew in the same process when management asked for a restart. ndbd has one
// thread, ndbmtd as many as the configuration says.
//
// It owns the process: log, exit status, signals of the system, memory limits of Go. It decides nothing about the
// cluster, and a management server that goes away later does not matter to it: the link is made again when one is there.
//
// Invariants: it never goes into the background; every end has one line on standard error that says why, unless it
// was asked for; nothing of the cluster runs before node id, configuration, memory and port are had.
//
// Read next: noded.go (the course), management.go (the management server), node.go (putting the node
// together), links.go (what the runtime knows of other nodes), again.go (restarts).
package noded
