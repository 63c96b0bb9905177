// Package host is the real runtime of a data node: threads, sockets, clock and memory around the blocks that package
// kernel drives.
//
// A node has one or more loops (threads). A loop owns its sockets, its Env and the blocks placed on it, and does
// everything for them in one goroutine: it polls, reads, checks frames, executes them in windows of up to 16 with the
// node's touch-ahead, runs the jobs that they cause, takes what other loops handed over, fires timers, and writes every
// destination once per turn. Batching falls out of load: an idle loop answers at once, a busy one carries many
// signals per system call. A turn is bounded by time, and timers come first in the next one, however many signals wait
// within the node: they are late by about a millisecond at most.
//
// Signals between loops go through one bounded ring per ordered pair (handover.go); a loop that sleeps is woken
// through its eventfd. Signals that arrive from another loop for another node are passed on to the link that this
// loop owns. The order is FIFO per pair of threads.
//
// A link to a peer is one or more sockets (peers.go): a client opens one per receiving thread, two data nodes the
// fewer of both sides'. It is up when all are there, and down as soon as one is lost; LinkUpRep comes before
// every signal of the peer and LinkDownRep after the last one, on whatever thread it arrived. Membership may end one
// (LinkCloseOrd). A node's id is taken from the first Hello until membership says by NodeFreeRep that nothing of it is
// left.
//
// Liveness (pulse.go): threads note when they last heard of each data node, and when they did not run themselves.
// Membership asks (HeardReq); the answer comes behind everything that had arrived by then. After a stall longer than
// StallLimit nothing is taken in from clients, nor sent to them, before membership has said that the node is still in
// the cluster (StallRep, TrustOrd).
//
// Bounds: a client is not read from while its own send buffer is above its soft limit, while one to a data node is, or
// while signals pile up between threads or within one; one that takes nothing for five seconds, or passes the hard
// limit, is cut. So a data node that is slow makes clients wait, long before its own link is at its hard limit. A
// bad frame closes its link with a logged reason and nothing else.
//
// The package never looks inside a signal beyond its head, knows no block, and decides nothing: what a lost link
// means is the core's business. A broken assertion ends Run with the reason and a trace file of the last signals.
//
// Invariants: what a loop owns is touched by that loop only; peers and the list of loops are behind one mutex that
// no signal ever waits for; no allocation per signal.
//
// Read next: loop.go (a turn), frames.go (from bytes to blocks), socket.go (writing, limits), handover.go, peers.go,
// pulse.go.
package host
