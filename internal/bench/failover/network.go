package failover

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// network is how the nodes of a cluster reach each other: over the loopback address, or each data node from a network
// namespace of its own, by a bridge on which the management server and the client are too.
type network struct {
	id    string // of the bridge and namespaces; empty: loopback
	base  string // first three numbers of the addresses
	nodes int
}

// hubHost is the last number of the bridge's own address.
const hubHost = 254

// newNetwork makes the namespaces, or says why that is not possible here.
func newNetwork(nodes int) (*network, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return nil, fmt.Errorf("network namespaces need the command ip")
	}
	pid := os.Getpid()
	// 198.18.0.0/15 is set apart for benchmarks.
	n := &network{id: fmt.Sprintf("cb%d", pid%1000000), base: fmt.Sprintf("198.%d.%d", 18+pid/256%2, pid%256), nodes: nodes}
	err := ip("link", "add", n.id, "type", "bridge")
	if err == nil {
		err = ip("addr", "add", fmt.Sprintf("%s.%d/24", n.base, hubHost), "dev", n.id)
	}
	if err == nil {
		err = ip("link", "set", n.id, "up")
	}
	for i := 1; i <= nodes && err == nil; i++ {
		err = n.add(i)
	}
	if err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

func (n *network) space(node int) string { return fmt.Sprintf("%s-%d", n.id, node) }
func (n *network) cable(node int) string { return fmt.Sprintf("%sv%d", n.id, node) }

// add makes the namespace of a node and the cable to it.
func (n *network) add(node int) error {
	space, cable := n.space(node), n.cable(node)
	for _, args := range [][]string{
		{"netns", "add", space},
		{"link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space},
		{"link", "set", cable, "master", n.id, "up"},
		{"-n", space, "addr", "add", fmt.Sprintf("%s.%d/24", n.base, node), "dev", "eth0"},
		{"-n", space, "link", "set", "eth0", "up"},
		{"-n", space, "link", "set", "lo", "up"},
	} {
		if err := ip(args...); err != nil {
			return err
		}
	}
	return nil
}

// close takes everything away that is there.
func (n *network) close() {
	if n.id == "" {
		return
	}
	for i := 1; i <= n.nodes; i++ {
		_ = ip("netns", "del", n.space(i))
	}
	_ = ip("link", "del", n.id)
}

// host is the address of a data node, 0 for the management server's.
func (n *network) host(node int) string {
	switch {
	case n.id == "":
		return "127.0.0.1"
	case node == 0:
		return fmt.Sprintf("%s.%d", n.base, hubHost)
	}
	return fmt.Sprintf("%s.%d", n.base, node)
}

// inside is the command that runs a command at a data node's place.
func (n *network) inside(node int, command []string) []string {
	if n.id == "" || node == 0 {
		return command
	}
	return append([]string{"ip", "netns", "exec", n.space(node)}, command...)
}

// cut takes a node's cable away, or (false) gives it back.
func (n *network) cut(node int, cut bool) error {
	state := "up"
	if cut {
		state = "down"
	}
	return ip("link", "set", n.cable(node), state)
}

func ip(args ...string) error {
	if said, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(said)))
	}
	return nil
}
