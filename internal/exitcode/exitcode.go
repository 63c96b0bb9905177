// Package exitcode is the one table of the statuses with which a data node's process ends: one per reason, so that a
// supervisor or a test can tell them apart without reading a log.
//
// It owns the numbers and a word for each. A number never changes its meaning. 1 and 2 are left to the runtime of Go
// and to errors of the command line.
package exitcode

// The statuses.
const (
	Done            = 0  // stopped in order, because somebody asked
	Config          = 3  // the configuration cannot be used by this node
	Refused         = 4  // the cluster runs already and cannot take this node
	NodeLost        = 5  // other data nodes were lost, and with them all data of a node group
	StartFailed     = 6  // the cluster did not start within StartFailureTimeout
	Lagging         = 7  // a node did not finish an epoch in time
	Bug             = 8  // an invariant was broken
	Memory          = 9  // the memory of the configuration could not be had
	Network         = 10 // a port could not be bound
	Management      = 11 // no management server gave a node id and a configuration
	StoppedByForce  = 12 // a data node was stopped by force, and the cluster cannot go on without it
	PutOut          = 13 // the other data nodes went on without this one
	Arbitration     = 14 // the arbitrator decided for others, or there was none
	Minority        = 15 // a larger part of the cluster is cut off from this node
	JoinFailed      = 16 // the node could not be taken in by the running cluster; it may try again
	firstUnassigned = 17
)

var texts = [firstUnassigned]string{
	Done: "stopped", Config: "configuration", Refused: "refused by the cluster", NodeLost: "a data node was lost",
	StartFailed: "the start took too long", Lagging: "a node lags behind", Bug: "an invariant was broken",
	Memory: "out of memory", Network: "the network cannot be used", Management: "no management server",
	StoppedByForce: "a data node was stopped by force",
	PutOut:         "put out of the cluster", Arbitration: "arbitration lost", Minority: "cut off from the larger part", JoinFailed: "could not join",
}

// Text is a status in words, "" for one that is not in the table.
func Text(code int) string {
	if code < 0 || code >= len(texts) {
		return ""
	}
	return texts[code]
}
