// Package sim is the other runtime: a whole cluster, data nodes and clients, in one goroutine on virtual time, from
// one seed.
//
// The blocks are those of the real data node and the real client. The simulator plays everything around them: it
// delivers each signal when its virtual time has come, fires timers, and opens links. From the seed it draws the
// options of the run (nodes, replicas, thread layouts, pool sizes, timeouts), how long every signal travels, which of
// a thread's waiting signals comes next, and what the clients do. Kept from the real world is one promise only: FIFO
// per ordered pair of threads, and between a client's session and a thread. Every other order may happen.
//
// It proves that nobody keeps or overruns a signal's bytes: a signal is delivered in memory of exactly its size, in
// front of a page that cannot be touched, and overwritten when its handler returns. So is the memory of the outgoing
// buffers. What crosses nodes passes the same check as frames from a socket.
//
// The digest is a hash chain over all deliveries: time, sender, receiver, number, bytes. The same seed gives the same
// digest, signal for signal. When a check fails, the last signals are printed with one command that repeats the run.
//
// The package owns virtual time and every order. A run never looks at the machine's clock, starts a goroutine, uses
// floating point or ranges over a map; only the command runs several seeds at once. Invariants: virtual time never goes back; a signal is delivered exactly once unless
// a test tampers with it; the random sources of components are independent, so that one more draw here moves nothing
// there.
//
// Read next: options.go (what is drawn), network.go (how signals travel), cluster.go (how a cluster comes up),
// workload.go (what the clients do), and one file per checker (check_*.go). docs/simulation.md is for its users.
package sim
