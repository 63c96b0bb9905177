package failover

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// network is how the nodes of a cluster reach each other: over the loopback address, or each data node from a network
// namespace of its own, by a bridge on which the management server and the client are too.
type network struct {
	id    string // of the bridge and namespaces; empty: loopback
	base  string // first three numbers of the addresses
	nodes int
}

// prefix begins the names of bridges; a process id follows.
const prefix = "cb"

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
	links, err := exec.Command("ip", "-o", "link").Output()
	if err != nil {
		return nil, fmt.Errorf("ip -o link: %w", err)
	}
	sweep(string(links))
	addresses, err := exec.Command("ip", "-o", "-4", "addr").Output()
	if err != nil {
		return nil, fmt.Errorf("ip -o -4 addr: %w", err)
	}
	n := &network{id: prefix + strconv.Itoa(os.Getpid()), nodes: nodes}
	if n.base = freeBase(string(addresses), os.Getpid()); n.base == "" {
		return nil, fmt.Errorf("all networks of 198.18.0.0/15 are in use")
	}
	if err = ip("link", "add", n.id, "type", "bridge"); err == nil {
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

// freeBase chooses a network that no address of this machine is in. 198.18.0.0/15 is set apart for benchmarks.
func freeBase(addresses string, seed int) string {
	for i := range 512 {
		k := (seed + i) % 512
		base := fmt.Sprintf("198.%d.%d", 18+k/256, k%256)
		if !strings.Contains(addresses, " "+base+".") {
			return base
		}
	}
	return ""
}

// leftovers are the numbers of processes by whose names bridges are called.
func leftovers(links string) (pids []int) {
	for _, line := range strings.Split(links, "\n") {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		if pid, err := strconv.Atoi(strings.TrimPrefix(strings.TrimSuffix(f[1], ":"), prefix)); err == nil && strings.HasPrefix(f[1], prefix) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// sweep takes away what runs have left behind that were killed.
func sweep(links string) {
	for _, pid := range leftovers(links) {
		if err := syscall.Kill(pid, 0); err == syscall.ESRCH {
			(&network{id: prefix + strconv.Itoa(pid), nodes: mostNodes}).close()
		}
	}
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
