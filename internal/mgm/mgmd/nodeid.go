package mgmd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/wire"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/version"
)

// The lease of a node id. A session takes it with get nodeid; a link takes it over, or takes it by itself when a running
// node comes back to a server that was started anew. It is free again when neither is left.
//
//	free --get nodeid--> held by session --Hello--> held by link --link closes--> free
//	                          |                        ^
//	                          +-- session ends --> free --Hello of a running node
//
// Other management servers are asked before a session gets an id, and hear of all that becomes of it. If two servers
// give one id away at the same moment, the one with the lower id wins and the other tries the next.
//
// For API nodes, which may have no link to the server at all, session and link count alike. An id to which a data node
// has a link is taken even if its holder has lost this server.

// claim is a wish for a node id.
type claim struct {
	typ     config.NodeType
	id      uint8 // 0: any
	name    string
	version uint32
	secret  uint64
	running bool // the node runs already and only lost this server
	peer    netip.Addr
}

// refusal is why a claim fails; retry says that waiting may help.
type refusal struct {
	text      string
	code      int
	retry     bool
	elsewhere bool // another management server refused
}

// waitMax is how long a session may wait for an id to become free.
const waitMax = 30 * time.Second

func (s *Server) getNodeID(ctx context.Context, ss *session, r *wire.Request) answer {
	const header = "get nodeid reply"
	refuse := func(why refusal) answer {
		return reply(wire.Begin(header).Int("error_code", int64(why.code)).Field("result", why.text))
	}
	c, why := s.readClaim(ss, r)
	if why != nil {
		return refuse(*why)
	}
	wait := min(time.Duration(num(r, "timeout", 0))*time.Millisecond, waitMax)
	s.meet(ctx)
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		id, why := s.claim(ctx, ss, c)
		if why == nil {
			return reply(wire.Begin(header).Uint("nodeid", uint32(id)).Field("result", "Ok"))
		}
		if !why.retry {
			s.logRefusal(ss, r, why)
			return refuse(*why)
		}
		var again <-chan time.Time
		if why.elsewhere {
			again = time.After(askAgain) // nothing here changes when it is free there
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			s.logRefusal(ss, r, why)
			return refuse(*why)
		}
	}
}

// askAgain is the pause after a refusal of another management server.
const askAgain = 50 * time.Millisecond

func (s *Server) logRefusal(ss *session, r *wire.Request, why *refusal) {
	if num(r, "log_event", 1) != 0 {
		s.note(event.Warning, "Allocate nodeid for %s failed. Returned error: '%s'", ss.peer, why.text)
	}
}

// readClaim checks all that does not depend on other nodes.
func (s *Server) readClaim(ss *session, r *wire.Request) (claim, *refusal) {
	refuse := func(code int, format string, args ...any) (claim, *refusal) {
		return claim{}, &refusal{text: fmt.Sprintf(format, args...), code: code}
	}
	c := claim{typ: config.NodeType(num(r, "nodetype", 0)), version: num(r, "version", 0), running: flag(r, "running"), peer: ss.peer}
	switch c.typ {
	case config.DataNode, config.APINode:
	case config.ManagementNode:
		return refuse(mgmclient.CodeNodeID, "A management server has the node id that --ndb-nodeid or its host in the configuration says; nobody gives it one")
	default:
		return refuse(mgmclient.CodeNodeID, "There is no node type %d; use 0 for data, 1 for API", c.typ)
	}
	wanted := num(r, "nodeid", 0)
	if wanted > 255 {
		return refuse(mgmclient.CodeNodeID, "No node defined with id=%d in config file.", wanted)
	}
	c.id = uint8(wanted)
	if !version.Compatible(c.version, version.Number) {
		return refuse(mgmclient.CodeNodeIDConfig, "Incompatible versions: the management server has %s and the node %s; use the same version",
			version.Text(version.Number), version.Text(c.version))
	}
	if endian, ok := r.Fields.Get("endian"); ok && !strings.EqualFold(endian, "little") {
		return refuse(mgmclient.CodeNodeIDConfig, "Only little-endian machines can be nodes; this one says it is %s-endian", endian)
	}
	s.mu.Lock()
	clusterName := s.conf.Name
	s.mu.Unlock()
	if name, ok := r.Fields.Get("cluster"); ok && name != clusterName {
		return refuse(mgmclient.CodeNodeIDConfig, "This is cluster %s, but the node belongs to cluster %s; correct its connect string", clusterName, name)
	}
	if text, ok := r.Fields.Get("secret"); ok {
		secret, err := strconv.ParseUint(text, 16, 64)
		if err != nil {
			return refuse(mgmclient.CodeNodeID, "The secret is no hexadecimal number")
		}
		c.secret = secret
	}
	c.name, _ = r.Fields.Get("name")
	return c, nil
}

// meet waits, after the start, until the other management servers have told what they hold, or have had the time.
func (s *Server) meet(ctx context.Context) {
	s.mu.Lock()
	ctx, cancel := context.WithDeadline(ctx, s.waitTill)
	s.mu.Unlock()
	defer cancel()
	s.await(ctx, s.settled)
}

// claim gives a session a node id, or says why not.
func (s *Server) claim(ctx context.Context, ss *session, c claim) (uint8, *refusal) {
	hosts := s.matchHosts(ctx, c) // before the lock is taken: a name server may need seconds
	if c.secret == 0 {
		c.secret = rand.Uint64() | 1 // other management servers know the holder by it
	}
	var tried signal.NodeSet
	for {
		s.mu.Lock()
		var n *node
		var why *refusal
		if c.id != 0 {
			n, why = s.wantedNode(c, hosts)
		} else {
			n, why = s.freeNode(c, hosts, &tried)
		}
		if why != nil {
			s.mu.Unlock()
			return 0, why
		}
		id := uint8(n.conf.ID)
		again := s.sameRun(n, c.secret) // it has the id already, from here or from another server
		answers := s.occupy(ss, n, c)
		s.mu.Unlock()
		refused := ""
		for _, done := range answers {
			var no *mgmclient.Refusal
			if err := <-done; errors.As(err, &no) {
				refused = no.Text
			} // one that is gone has nothing against it
		}
		s.mu.Lock()
		won := refused == "" && !n.outbid && n.holder == ss
		n.pending, n.outbid = false, false
		if won {
			if !again {
				s.report(event.New(s.own, event.NodeIdAllocated, uint32(id)).WithText(fmt.Sprintf("%s at %s", typeName(n.conf.Type), c.peer)))
			}
			s.signalChange()
			s.mu.Unlock()
			return id, nil
		}
		s.releaseHolder(ss)
		s.mu.Unlock()
		if c.id != 0 {
			return 0, &refusal{text: fmt.Sprintf("Id %d already allocated by another node.", c.id), code: mgmclient.CodeNodeID, retry: true, elsewhere: true}
		}
		tried.Add(id)
	}
}

// occupy gives a session a node id as far as this server goes, and asks the others. The caller holds mu.
func (s *Server) occupy(ss *session, n *node, c claim) (answers []chan error) {
	if old := n.holder; old != nil && old != ss {
		old.held = 0 // the same run, which lost its session
	}
	if ss.held != 0 && ss.held != uint8(n.conf.ID) {
		s.releaseHolder(ss)
	}
	n.holder, n.secret, n.version, n.addr, n.pending = ss, c.secret, c.version, c.peer, true
	ss.held = uint8(n.conf.ID)
	if c.name != "" {
		ss.name = c.name
	}
	for _, p := range s.peers {
		done := make(chan error, 1)
		if s.say(p, heldReply, holdRequest(n, true, c.running), done) {
			answers = append(answers, done)
		}
	}
	return answers
}

// matchHosts compares the claim's address with the hosts of all nodes that it might get, at the same time.
func (s *Server) matchHosts(ctx context.Context, c claim) map[string]hostMatch {
	s.mu.Lock()
	hosts := map[string]hostMatch{}
	for id, n := range s.nodes {
		if n != nil && n.conf.Type == c.typ && (c.id == 0 || int(c.id) == id) {
			hosts[n.conf.HostName] = noMatch
		}
	}
	s.mu.Unlock()
	type result struct {
		host  string
		match hostMatch
	}
	results := make(chan result, len(hosts))
	for host := range hosts {
		go func() { results <- result{host, matchHost(ctx, host, c.peer)} }()
	}
	for range len(hosts) {
		r := <-results
		hosts[r.host] = r.match
	}
	return hosts
}

// wantedNode finds the node that a claim names. The caller holds mu.
func (s *Server) wantedNode(c claim, hosts map[string]hostMatch) (*node, *refusal) {
	n := s.nodes[c.id]
	refuse := func(retry bool, format string, args ...any) (*node, *refusal) {
		return nil, &refusal{text: fmt.Sprintf(format, args...), code: mgmclient.CodeNodeID, retry: retry}
	}
	switch {
	case n == nil:
		return refuse(false, "No node defined with id=%d in config file.", c.id)
	case n.conf.Type != c.typ:
		return refuse(false, "Id %d configured as %s, connect attempted as %s.", c.id, typeName(n.conf.Type), typeName(c.typ))
	case hosts[n.conf.HostName] == noMatch:
		return refuse(false, "Connection done from wrong host ip %s. Id %d is for host %s.", c.peer, c.id, n.conf.HostName)
	case s.taken(n, c):
		return refuse(true, "Id %d already allocated by another node.", c.id)
	}
	return n, nil
}

// freeNode finds a free node for a claim that names none: one of that very host before one of any host, then the lowest
// id. The caller holds mu.
func (s *Server) freeNode(c claim, hosts map[string]hostMatch, tried *signal.NodeSet) (*node, *refusal) {
	var best *node
	fits, elsewhere := 0, ""
	for _, n := range s.nodes {
		if n == nil || n.conf.Type != c.typ || n.conf.Bool("Dedicated") {
			continue
		}
		match := hosts[n.conf.HostName]
		if match == noMatch {
			elsewhere = n.conf.HostName
			continue
		}
		fits++
		if !s.taken(n, c) && !tried.Has(uint8(n.conf.ID)) && (best == nil || match > hosts[best.conf.HostName]) {
			best = n
		}
	}
	switch {
	case best != nil:
		return best, nil
	case fits > 0:
		return nil, &refusal{text: fmt.Sprintf("No free node id found for %s.", typeName(c.typ)), code: mgmclient.CodeNodeID, retry: true}
	case elsewhere != "":
		return nil, &refusal{text: fmt.Sprintf("Connection done from wrong host ip %s. No %s is for that host.", c.peer, typeName(c.typ)), code: mgmclient.CodeNodeID}
	}
	return nil, &refusal{text: fmt.Sprintf("No %s is in the configuration that is given without asking for it by number.", typeName(c.typ)), code: mgmclient.CodeNodeID}
}

// taken says that somebody else has the id. The caller holds mu.
func (s *Server) taken(n *node, c claim) bool {
	if s.sameRun(n, c.secret) {
		return false
	}
	if s.heldByAnother(n, c.secret, 0) {
		return true
	}
	return !c.running && s.reported(uint8(n.conf.ID))
}

// hostMatch is how well a client's address fits a configured host; a higher one is better.
type hostMatch int

const (
	noMatch   hostMatch = iota // another machine
	anyHost                    // the configuration names no host
	sameHost                   // both are this machine, by different addresses
	exactHost                  // the very address
)

// matchHost compares the address of a client with a host of the configuration.
func matchHost(ctx context.Context, host string, peer netip.Addr) hostMatch {
	if host == "" {
		return anyHost
	}
	addrs := resolve(ctx, host)
	for _, a := range addrs {
		if a == peer {
			return exactHost
		}
	}
	if isOwn(peer) {
		for _, a := range addrs {
			if isOwn(a) {
				return sameHost
			}
		}
	}
	return noMatch
}

// resolveMax is how long a name server may take.
const resolveMax = 2 * time.Second

// resolve gives the addresses of a name; none if it cannot be resolved.
func resolve(ctx context.Context, host string) []netip.Addr {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a.Unmap()}
	}
	// Not the caller's context: its time may be up already, and a claim is tried once in any case.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveMax)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	return addrs
}

// isOwn says that an address is one of this machine.
func isOwn(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, o := range own {
		if n, ok := o.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == a {
				return true
			}
		}
	}
	return false
}

// IsThisHost says that a host of the configuration may be this machine.
func IsThisHost(host string) bool {
	return host == "" || slices.ContainsFunc(resolve(context.Background(), host), isOwn)
}

// IsLoopback says that a host of the configuration is reached from this machine only.
func IsLoopback(host string) bool {
	addrs := resolve(context.Background(), host)
	return len(addrs) > 0 && !slices.ContainsFunc(addrs, func(a netip.Addr) bool { return !a.IsLoopback() })
}
