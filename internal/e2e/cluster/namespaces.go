package cluster

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// nowhere is an Ethernet address that nobody has: what is sent there is lost without a word.
const nowhere = "02:00:00:00:00:01"

// prefix begins the names of namespaces and bridges of this package, followed by the process id of their test.
const prefix = "cohort"

var namespaceCount struct {
	sync.Mutex
	n int
}

// namespaces are hosts as network namespaces, joined by a bridge whose address is the test's own.
type namespaces struct {
	bridge string
	names  map[int]string // of namespaces, by node
	ip     map[int]string
	mac    map[int]string
	device map[int]string // the bridge's end of the node's cable
}

func (s *namespaces) String() string          { return "network namespaces" }
func (s *namespaces) address(node int) string { return s.ip[node] }
func (s *namespaces) private(int) string      { return "" }
func (s *namespaces) port(int) int            { return 0 }
func (s *namespaces) command(node int) []string {
	return []string{"ip", "netns", "exec", s.names[node]}
}

// ip runs the command of that name.
func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// all runs commands of ip until one fails.
func all(lines ...string) error {
	for _, line := range lines {
		if err := ip(strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

// newNamespaces makes them; they go when the test ends.
func newNamespaces(t testing.TB, nodes []int) (*namespaces, error) {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("that needs root, and this is user %d", os.Geteuid())
	}
	sweep()
	namespaceCount.Lock()
	defer namespaceCount.Unlock()
	namespaceCount.n++
	id := fmt.Sprintf("%d-%d", os.Getpid(), namespaceCount.n)
	s := &namespaces{bridge: prefix[:2] + id, names: map[int]string{}, ip: map[int]string{}, mac: map[int]string{}, device: map[int]string{}}
	if len(s.bridge) > 15 {
		return nil, fmt.Errorf("%s is too long a name for a device", s.bridge)
	}
	subnet, err := freeSubnet()
	if err != nil {
		return nil, err
	}
	t.Cleanup(s.remove)
	if err := all("link add name "+s.bridge+" type bridge", "addr add "+subnet+".1/24 dev "+s.bridge, "link set "+s.bridge+" up"); err != nil {
		return nil, err
	}
	for i, n := range nodes {
		name, device := prefix+id+"-"+strconv.Itoa(n), fmt.Sprintf("%s%dv%d", prefix[:2], os.Getpid()%100000, namespaceCount.n*256+n)
		s.device[n] = device
		s.names[n], s.ip[n], s.mac[n] = name, fmt.Sprintf("%s.%d", subnet, 10+i), fmt.Sprintf("02:00:00:00:01:%02x", i)
		if err := all("netns add "+name, "link add "+device+" type veth peer name eth0 netns "+name,
			"link set "+device+" master "+s.bridge+" up", "-n "+name+" link set eth0 address "+s.mac[n],
			"-n "+name+" addr add "+s.ip[n]+"/24 dev eth0", "-n "+name+" link set eth0 up", "-n "+name+" link set lo up"); err != nil {
			return nil, err
		}
	}
	for _, a := range nodes {
		for _, b := range nodes {
			if a != b {
				if err := s.block(a, b, false); err != nil {
					return nil, err
				}
			}
		}
	}
	return s, nil
}

// block sets the Ethernet address to which one node sends what is for another.
func (s *namespaces) block(from, to int, on bool) error {
	at := s.mac[to]
	if on {
		at = nowhere
	}
	return all("-n " + s.names[from] + " neigh replace " + s.ip[to] + " lladdr " + at + " nud permanent dev eth0")
}

func (s *namespaces) unplug(node int, on bool) error {
	state := "up"
	if on {
		state = "down"
	}
	return all("link set " + s.device[node] + " " + state)
}

// delay holds back whatever the node sends, if the kernel can.
func (s *namespaces) delay(from, _ int, d time.Duration) error {
	command := exec.Command("tc", "-n", s.names[from], "qdisc", "replace", "dev", "eth0", "root", "netem", "delay", fmt.Sprintf("%dus", d.Microseconds()))
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("this kernel cannot delay packets (netem): %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// remove takes everything away; processes in the namespaces have ended before.
func (s *namespaces) remove() {
	for _, name := range s.names {
		_ = ip("netns", "del", name)
	}
	_ = ip("link", "del", s.bridge)
}

// sweep removes what tests left behind that were killed.
func sweep() {
	dead := func(name string) bool {
		pid, _, _ := strings.Cut(strings.TrimPrefix(name, prefix), "-")
		n, err := strconv.Atoi(pid)
		if err != nil {
			return false
		}
		_, err = os.Stat(fmt.Sprintf("/proc/%d", n))
		return os.IsNotExist(err)
	}
	spaces, _ := os.ReadDir("/run/netns")
	for _, s := range spaces {
		if strings.HasPrefix(s.Name(), prefix) && dead(s.Name()) {
			_ = ip("netns", "del", s.Name())
		}
	}
	devices, _ := net.Interfaces()
	for _, d := range devices {
		if rest, ok := strings.CutPrefix(d.Name, prefix[:2]); ok && strings.Contains(rest, "-") && dead(prefix+rest) {
			_ = ip("link", "del", d.Name)
		}
	}
}

// freeSubnet is the first three numbers of a /24 that no device of this machine has.
func freeSubnet() (string, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	begin := os.Getpid()
	for i := range 1 << 14 {
		k := (begin + i) % (1 << 14)
		subnet := fmt.Sprintf("10.%d.%d", 192+k>>8, k&255)
		used := false
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.Contains(net.ParseIP(subnet+".1")) {
				used = true
			}
		}
		if !used {
			return subnet, nil
		}
	}
	return "", fmt.Errorf("no free network")
}
