package mgmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/wire"
	"github.com/cohortdb/cohort/internal/version"
)

// Several management servers of one cluster. Each opens a session to each other one and says over it, in order, what it
// has to say; what the other has to say comes over the other's own session.
//
//	server --mgmd hello--> other                          same cluster, same configuration?
//	server --mgmd sync, mgmd hold…, mgmd port…, mgmd synced--> other    all node ids that are held here
//	server --mgmd hold, mgmd free, mgmd port--> other     whatever changes from then on
//	server --mgmd prepare, mgmd commit (abort)--> other   a new configuration, see agree.go
//
// A node id that is asked for is given only when every other server that answers agrees (nodeid.go). A server that does
// not answer for three heartbeats (HeartbeatIntervalMgmdMgmd) is gone; what it held stays held for Limits.Lease, in
// which its nodes and clients come over here.

// peer is another management server. All of it is under the server's mu, but for the session, which is attend's.
type peer struct {
	id     uint8
	cancel context.CancelFunc // ends attend
	kick   chan struct{}      // wakes attend
	ready  bool               // it answers and has the same configuration: it hears all orders
	orders []*order           // not yet said
	synced bool               // it has told this server everything since its last sync began
	met    bool               // an attempt to reach it has come to an end
	why    string             // the newest reason why it is not ready, as the log has it
	from   *session           // its own session to this server, nil if there is none

	version uint32
	addr    netip.Addr
}

// order is something to say to a peer.
type order struct {
	header string // of the reply
	bytes  []byte
	done   chan error // what became of it; nil where nobody wants to know
}

// again is an error that is over when the peer is greeted again.
type again struct{ error }

// errPeerLost is what becomes of an order to a peer that is gone.
var errPeerLost = errors.New("the management server is gone")

// lease is a node id that another server says is held there.
type lease struct {
	secret  uint64
	version uint32
	addr    netip.Addr
}

// refreshPeers follows the configuration: an attendant for each other management server. The caller holds mu.
func (s *Server) refreshPeers() {
	for id, p := range s.peers {
		if n := s.nodes[id]; n == nil || n.conf.Type != config.ManagementNode {
			p.cancel()
			delete(s.peers, id)
		}
	}
	if s.context == nil || s.ending {
		return // not yet serving, or no more
	}
	for id, n := range s.nodes {
		if n == nil || n.conf.Type != config.ManagementNode || uint8(id) == s.own || s.peers[uint8(id)] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(s.context)
		p := &peer{id: uint8(id), cancel: cancel, kick: make(chan struct{}, 1)}
		s.peers[p.id] = p
		s.busy.Go(func() { s.attend(ctx, p) })
	}
}

// interval is the pause between heartbeats to other management servers. The caller holds mu.
func (s *Server) interval() time.Duration {
	return time.Duration(s.nodes[s.own].conf.Int("HeartbeatIntervalMgmdMgmd")) * time.Millisecond
}

// greetMin is how long a peer has at least to answer when it is greeted.
const greetMin = 2 * time.Second

// patience is how many intervals a peer may say nothing.
const patience = 3

// attend keeps the session to a peer, tries again where there is none, and says what is to be said.
func (s *Server) attend(ctx context.Context, p *peer) {
	for ctx.Err() == nil {
		s.mu.Lock()
		pause := s.interval()
		s.mu.Unlock()
		c, err := s.greet(ctx, p, max(patience*pause, greetMin))
		s.mu.Lock()
		s.notReady(p, err)
		s.mu.Unlock()
		if err == nil {
			err = s.serve(ctx, p, c, pause)
			s.lose(p, err)
		}
		if c != nil {
			c.Close()
		}
		select {
		case <-ctx.Done():
		case <-p.kick:
		case <-time.After(pause):
		}
	}
	s.mu.Lock()
	p.drop()
	s.mu.Unlock()
}

// notReady notes why a peer is not ready, if that is news; nil means that it is. The caller holds mu.
func (s *Server) notReady(p *peer, err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != p.why && why != "" && s.context.Err() == nil {
		s.note(event.Warning, "Management server %d cannot be used: %s", p.id, why)
	}
	p.why, p.met = why, !errors.As(err, &again{})
	s.signalChange()
}

// serve says orders to a peer, and looks from time to time whether it still answers, until it does not.
func (s *Server) serve(ctx context.Context, p *peer, c *mgmclient.Client, pause time.Duration) error {
	for look := false; ; {
		s.mu.Lock()
		var o *order
		if len(p.orders) > 0 {
			o = p.orders[0]
			p.orders = p.orders[1:]
		}
		s.mu.Unlock()
		if o == nil && !look {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-p.kick: // there is an order, or a reason to look at once
			case <-time.After(pause):
			}
			look = true
			continue
		}
		look = false
		limit, cancel := context.WithTimeout(ctx, patience*pause)
		var err error
		if o != nil {
			_, err = c.Exchange(limit, o.header, o.bytes)
		} else {
			err = c.CheckConnection(limit)
		}
		cancel()
		var refusal *mgmclient.Refusal
		refused := errors.As(err, &refusal)
		if o != nil && o.done != nil {
			if err != nil && !refused {
				o.done <- errPeerLost
			} else {
				o.done <- err
			}
		} else if refused {
			s.note(event.Warning, "Management server %d refused: %s", p.id, refusal.Text)
		}
		if err != nil && !refused {
			return err
		}
	}
}

// drop forgets what was to be said. The server's mu is held.
func (p *peer) drop() {
	p.ready = false
	for _, o := range p.orders {
		if o.done != nil {
			o.done <- errPeerLost
		}
	}
	p.orders = nil
}

// lose takes a peer for gone.
func (s *Server) lose(p *peer, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.drop()
	if s.context.Err() != nil || s.peers[p.id] != p {
		return
	}
	p.why = fmt.Sprint(err)
	s.report(event.New(s.own, event.Disconnected, uint32(p.id)))
	s.expire(p)
	s.signalChange()
}

// expire frees what a peer held, unless it has come back by then. The caller holds mu.
func (s *Server) expire(p *peer) {
	time.AfterFunc(s.limits.Lease, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.ready || p.from != nil || s.ending {
			return
		}
		for _, n := range s.nodes {
			if n == nil {
				continue
			}
			if _, held := n.elsewhere[p.id]; held {
				delete(n.elsewhere, p.id)
				s.freeIfUnused(n, fmt.Sprintf("management server %d, where it was held, is gone", p.id))
			}
		}
	})
}

// say puts an order into a peer's queue, if the peer is ready. The caller holds mu.
func (s *Server) say(p *peer, header string, bytes []byte, done chan error) bool {
	if !p.ready {
		return false
	}
	p.orders = append(p.orders, &order{header, bytes, done})
	p.wake()
	return true
}

func (p *peer) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// sayAll says something to all peers that are ready, for whose opinion nobody waits. The caller holds mu.
func (s *Server) sayAll(header string, bytes []byte) {
	if s.ending {
		return // what ends here goes on elsewhere
	}
	for _, p := range s.peers {
		s.say(p, header, bytes, nil)
	}
}

const (
	heldReply   = "mgmd hold reply"
	freedReply  = "mgmd free reply"
	portReply   = "mgmd port reply"
	syncReply   = "mgmd sync reply"
	syncedReply = "mgmd synced reply"
	helloReply  = "mgmd hello reply"
)

// holdRequest tells of a node id that is held here, or is asked for (claimed). The caller holds mu.
func holdRequest(n *node, claimed, running bool) []byte {
	b := wire.Begin("mgmd hold").Int("node", int64(n.conf.ID)).Field("secret", strconv.FormatUint(n.secret, 16)).Uint("version", n.version).
		Bool("claimed", claimed).Bool("running", running)
	if n.addr.IsValid() {
		b.Field("address", n.addr.String())
	}
	return b.End()
}

func portRequest(node, other uint8, port int) []byte {
	return wire.Begin("mgmd port").Uint("node1", uint32(node)).Uint("node2", uint32(other)).Int("value", int64(port)).End()
}

// tellHeld tells all peers that a node id is held here. The caller holds mu.
func (s *Server) tellHeld(n *node) { s.sayAll(heldReply, holdRequest(n, false, false)) }

// tellIfReleased tells all peers if a node id is held here no more. The caller holds mu.
func (s *Server) tellIfReleased(n *node) {
	if n.holder == nil && n.link == nil {
		s.sayAll(freedReply, wire.Begin("mgmd free").Int("node", int64(n.conf.ID)).End())
	}
}

// digest stands for a configuration.
func digest(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// greet opens a session to a peer and compares configurations; if they are the same the peer is ready, and has been told
// what is held here.
func (s *Server) greet(ctx context.Context, p *peer, limit time.Duration) (*mgmclient.Client, error) {
	s.mu.Lock()
	n := s.nodes[p.id]
	if n == nil {
		s.mu.Unlock()
		return nil, errPeerLost
	}
	where := config.Endpoint{Host: n.conf.HostName, Port: int(n.conf.Int("PortNumber"))}
	name, generation, own := s.conf.Name, s.conf.Generation, digest(s.raw)
	s.mu.Unlock()
	if where.Host == "" || where.Port == 0 {
		return nil, fmt.Errorf("the configuration does not say where it is: give it a HostName and a PortNumber")
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := mgmclient.ConnectTo(ctx, config.ConnectString{Servers: []config.Endpoint{where}, Binds: []config.Endpoint{{}}}, mgmclient.Options{Name: "ndb_mgmd"})
	if err != nil {
		return nil, fmt.Errorf("it does not answer at %s", where)
	}
	reply, err := c.Exchange(ctx, helloReply, wire.Begin("mgmd hello").Uint("node", uint32(s.own)).Uint("version", version.Number).Field("cluster", name).
		Uint("generation", generation).Field("digest", own).End())
	if err != nil {
		return c, err
	}
	theirs, err := readHello(reply)
	switch {
	case err != nil:
		return c, err
	case theirs.node != p.id:
		return c, fmt.Errorf("at %s is node %d", where, theirs.node)
	case theirs.generation > generation:
		if err := s.fetch(ctx, c); err != nil {
			return c, err
		}
		p.wake()
		return c, again{fmt.Errorf("its configuration %d was newer and has been taken", theirs.generation)}
	case theirs.generation < generation:
		return c, again{fmt.Errorf("its configuration %d is older than %d, which it has to fetch", theirs.generation, generation)}
	case theirs.digest != own:
		if same, err := s.same(ctx, c); err != nil {
			return c, err
		} else if !same {
			return c, s.conflict(ctx, p, c, generation, theirs.uptime)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conf.Generation != generation {
		p.wake()
		return c, again{errors.New("the configuration changes just now")}
	}
	p.ready, p.version = true, theirs.version
	if a, err := netip.ParseAddr(c.RemoteHost()); err == nil {
		p.addr = a.Unmap()
	}
	s.report(event.New(s.own, event.Connected, uint32(p.id)))
	s.sync(p)
	return c, nil
}

// hello is what a server says about itself.
type hello struct {
	node       uint8
	version    uint32
	generation uint32
	digest     string
	uptime     time.Duration
}

func readHello(r *wire.Reply) (h hello, err error) {
	number := func(name string) uint32 {
		n, e := r.Fields.Uint(name, 0)
		if err == nil {
			err = e
		}
		return n
	}
	h.node, h.version, h.generation = uint8(number("node")), number("id"), number("generation")
	h.uptime = time.Duration(number("uptime_ms")) * time.Millisecond
	h.digest, _ = r.Fields.Get("digest")
	return h, err
}

// sync tells a peer that has just become ready all that is held here. The caller holds mu.
func (s *Server) sync(p *peer) {
	s.say(p, syncReply, wire.Begin("mgmd sync").End(), nil)
	for _, n := range s.nodes {
		if n == nil || n.holder == nil && n.link == nil {
			continue
		}
		s.say(p, heldReply, holdRequest(n, false, false), nil)
		if n.port != 0 {
			s.say(p, portReply, portRequest(uint8(n.conf.ID), 0, n.port), nil)
		}
		for other, port := range n.ports {
			s.say(p, portReply, portRequest(uint8(n.conf.ID), other, port), nil)
		}
	}
	s.say(p, syncedReply, wire.Begin("mgmd synced").End(), nil)
}

// onHello hears from another management server how it is; from here on the session is its session.
func (s *Server) onHello(ctx context.Context, ss *session, r *wire.Request) answer {
	id, generation := num(r, "node", 0), num(r, "generation", 0)
	name, _ := r.Fields.Get("cluster")
	theirs, _ := r.Fields.Get("digest")
	s.mu.Lock()
	host, known := "", false
	if id >= 1 && id <= 255 && s.nodes[id] != nil && s.nodes[id].conf.Type == config.ManagementNode {
		host, known = s.nodes[id].conf.HostName, true
	}
	s.mu.Unlock()
	elsewhere := known && matchHost(ctx, host, ss.peer) == noMatch
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[uint8(id)]
	switch v := num(r, "version", 0); {
	case !version.Compatible(v, version.Number):
		return bad(helloReply, fmt.Sprintf("Incompatible versions: management server %d has %s and management server %d %s; use the same version",
			s.own, version.Text(version.Number), id, version.Text(v)))
	case name != s.conf.Name:
		return bad(helloReply, fmt.Sprintf("This is cluster %s, not %s", s.conf.Name, name))
	case id == uint32(s.own):
		return bad(helloReply, fmt.Sprintf("Management server %d runs already; say with --ndb-nodeid which one this is", id))
	case elsewhere:
		return bad(helloReply, fmt.Sprintf("Connection done from wrong host ip %s. Id %d is for host %s.", ss.peer, id, host))
	case !known && generation <= s.conf.Generation:
		return bad(helloReply, fmt.Sprintf("Node %d is no management server in configuration %d; correct --ndb-nodeid, or add it with --reload", id, s.conf.Generation))
	case p != nil:
		ss.peerOf, p.from = p.id, ss
		ss.name = "ndb_mgmd"
		if !p.ready || generation != s.conf.Generation || theirs != digest(s.raw) {
			p.wake() // look at once
		}
	}
	return reply(wire.Begin(helloReply).Field("result", "Ok").Uint("node", uint32(s.own)).Uint("id", version.Number).Uint("generation", s.conf.Generation).
		Field("digest", digest(s.raw)).Uint("uptime_ms", uint32(min(time.Since(s.began).Milliseconds(), 1<<31))))
}

// fromPeer says whose session it is; only other management servers may say what comes here. The caller holds mu.
func (s *Server) fromPeer(ss *session) (*peer, string) {
	if p := s.peers[ss.peerOf]; ss.peerOf != 0 && p != nil && p.from == ss {
		return p, ""
	}
	return nil, "Only another management server may say that, after mgmd hello"
}

// onSync forgets what a peer held: it tells it all anew.
func (s *Server) onSync(_ context.Context, ss *session, _ *wire.Request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, why := s.fromPeer(ss)
	if why != "" {
		return bad(syncReply, why)
	}
	p.synced = false
	for _, n := range s.nodes {
		if n != nil {
			delete(n.elsewhere, p.id)
		}
	}
	return reply(wire.Begin(syncReply).Field("result", "Ok"))
}

// onSynced: now everything that the peer holds is known.
func (s *Server) onSynced(_ context.Context, ss *session, _ *wire.Request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, why := s.fromPeer(ss)
	if why != "" {
		return bad(syncedReply, why)
	}
	p.synced = true
	s.freeUnreported()
	return reply(wire.Begin(syncedReply).Field("result", "Ok"))
}

// onHold hears that a node id is held at a peer, or is asked for there.
func (s *Server) onHold(_ context.Context, ss *session, r *wire.Request) answer {
	id := num(r, "node", 0)
	text, _ := r.Fields.Get("secret")
	secret, err := strconv.ParseUint(text, 16, 64)
	address, _ := r.Fields.Get("address")
	addr, _ := netip.ParseAddr(address)
	s.mu.Lock()
	defer s.mu.Unlock()
	p, why := s.fromPeer(ss)
	switch {
	case why != "":
		return bad(heldReply, why)
	case err != nil:
		return bad(heldReply, "The secret is no hexadecimal number")
	case id < 1 || id > 255 || s.nodes[id] == nil:
		return bad(heldReply, fmt.Sprintf("No node defined with id=%d in config file.", id))
	}
	n := s.nodes[id]
	other := s.heldByAnother(n, secret, p.id)
	if flag(r, "claimed") {
		// Two have asked for it at the same time at two servers: the one with the lower id gives it away.
		outbid := other && n.pending && n.link == nil && p.id < s.own && !n.leasedToAnother(secret, p.id)
		if other && !outbid || !other && !flag(r, "running") && !s.sameRun(n, secret) && s.reported(uint8(id)) {
			return bad(heldReply, fmt.Sprintf("Id %d already allocated by another node.", id))
		}
		n.outbid = n.outbid || outbid
	} else if other {
		s.note(event.Warning, "Node id %d is held both here and at management server %d, by two nodes: end one of them", id, p.id)
	}
	if n.elsewhere == nil {
		n.elsewhere = map[uint8]lease{}
	}
	n.elsewhere[p.id] = lease{secret, num(r, "version", 0), addr}
	s.signalChange()
	return reply(wire.Begin(heldReply).Field("result", "Ok"))
}

// sameRun says that it is this run of the node that holds its id. The caller holds mu.
func (s *Server) sameRun(n *node, secret uint64) bool {
	if secret == 0 {
		return false
	}
	if secret == n.secret {
		return true
	}
	for _, l := range n.elsewhere {
		if l.secret == secret {
			return true
		}
	}
	return false
}

// heldByAnother says that another run than secret's holds a node id, here or at a server other than except. The caller
// holds mu.
func (s *Server) heldByAnother(n *node, secret uint64, except uint8) bool {
	return (n.holder != nil || n.link != nil) && n.secret != secret || n.leasedToAnother(secret, except)
}

// leasedToAnother says the same of other servers only. The server's mu is held.
func (n *node) leasedToAnother(secret uint64, except uint8) bool {
	for id, l := range n.elsewhere {
		if id != except && l.secret != secret {
			return true
		}
	}
	return false
}

// onFree hears that a node id is not held at a peer any more.
func (s *Server) onFree(_ context.Context, ss *session, r *wire.Request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, why := s.fromPeer(ss)
	if why != "" {
		return bad(freedReply, why)
	}
	if id := num(r, "node", 0); id <= 255 && s.nodes[id] != nil {
		delete(s.nodes[id].elsewhere, p.id)
		s.freeIfUnused(s.nodes[id], fmt.Sprintf("management server %d holds it no more", p.id))
	}
	return reply(wire.Begin(freedReply).Field("result", "Ok"))
}

// onPort hears where a data node listens.
func (s *Server) onPort(_ context.Context, ss *session, r *wire.Request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, why := s.fromPeer(ss); why != "" {
		return bad(portReply, why)
	}
	n, why := s.dataNode(num(r, "node1", 0))
	if other := num(r, "node2", 0); why == "" && other <= 255 {
		n.setPort(uint8(other), int(num(r, "value", 0)))
		s.signalChange()
	}
	return reply(wire.Begin(portReply).Field("result", "Ok"))
}

// settled says that every other server was either told to be away or has told all that it holds. The caller holds mu.
func (s *Server) settled() bool {
	for _, p := range s.peers {
		if !p.met || p.ready && !p.synced {
			return false
		}
	}
	return true
}
