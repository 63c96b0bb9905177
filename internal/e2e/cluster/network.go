package cluster

import (
	"testing"
	"time"
)

// Kind says what the hosts of a cluster are made of.
type Kind int

const (
	// Any: namespaces where they can be made, else proxies.
	Any Kind = iota
	// Namespaces: nothing else will do.
	Namespaces
	// Proxies: addresses of the loopback network, each behind a proxy.
	Proxies
)

// network is the hosts of a cluster, one for each node, and what lies between them.
type network interface {
	// String says what it is, for the test's log.
	String() string
	// address is where a node is reached: HostName of its section.
	address(node int) string
	// private is the address that the node's own process binds, "" if it is the same.
	private(node int) string
	// port is a port for a node to listen on, 0: the node may choose.
	port(node int) int
	// command is what to put before a command to run it on a node's host.
	command(node int) []string
	// block cuts what one node sends to another, or lets it through again.
	block(from, to int, on bool) error
	// unplug cuts a node from everybody, clients too, or joins it again.
	unplug(node int, on bool) error
	// delay keeps what one node sends to another for a while.
	delay(from, to int, d time.Duration) error
}

// newNetwork makes hosts for nodes.
func newNetwork(t testing.TB, kind Kind, nodes []int) network {
	t.Helper()
	var n network
	switch kind {
	case Proxies:
		n = newProxies(t, nodes)
	default:
		s, err := newNamespaces(t, nodes)
		switch {
		case err == nil:
			n = s
		case kind == Namespaces:
			t.Fatalf("network namespaces cannot be made here: %v: run this as root, with ip of iproute2", err)
		default:
			t.Logf("network namespaces cannot be made here: %v", err)
			n = newProxies(t, nodes)
		}
	}
	t.Logf("the nodes run in %v", n)
	return n
}
