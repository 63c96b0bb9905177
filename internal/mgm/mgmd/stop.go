package mgmd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/frames"
	"github.com/cohortdb/cohort/internal/mgm/wire"
	"github.com/cohortdb/cohort/internal/signal"
)

// Stopping and starting nodes. The server asks every node that is to stop, all at once, and waits until their links
// close; a node that restarts comes back by itself.

// halt is a wish to stop or restart nodes.
type halt struct {
	nodes []uint8 // data nodes
	flags uint32  // signal's Stop flags
}

// stopNodes is the command stop: some nodes, data nodes or this server.
func (s *Server) stopNodes(ctx context.Context, _ *session, r *wire.Request) answer {
	const header = "stop reply"
	list, _ := r.Fields.Get("node")
	nodes, ok := ids(list)
	if !ok {
		return bad(header, fmt.Sprintf("'%s' is no list of node ids", list))
	}
	own := slices.Contains(nodes, s.own)
	var others []uint8
	nodes = slices.DeleteFunc(nodes, func(id uint8) bool {
		if id != s.own && s.isServer(id) {
			others = append(others, id)
			return true
		}
		return id == s.own
	})
	h := halt{nodes: nodes}
	if flag(r, "abort") {
		h.flags |= signal.StopAbort
	}
	if flag(r, "force") {
		h.flags |= signal.StopForce
	}
	count := 0
	if len(nodes) > 0 {
		if why := s.knownDataNodes(nodes); why != "" {
			return bad(header, why)
		}
		if why := s.whole(&h); why != "" {
			return bad(header, why)
		}
		var why string
		if count, why = s.halt(ctx, h); why != "" {
			return reply(wire.Begin(header).Field("result", why).Int("stopped", int64(count)).Int("disconnect", 0))
		}
	}
	if why := s.stopServers(ctx, others); why != "" {
		return reply(wire.Begin(header).Field("result", why).Int("stopped", int64(count)).Int("disconnect", 0))
	}
	a := reply(wire.Begin(header).Field("result", "Ok").Int("stopped", int64(count)).Bool("disconnect", own))
	if own {
		a.next = stopServer
	}
	return a
}

// stopAll is the command stop all: the data nodes, the management servers, or both.
func (s *Server) stopAll(ctx context.Context, _ *session, r *wire.Request) answer {
	const header = "stop reply"
	what, given := r.Fields.Get("stop")
	db, mgm := !given, false
	for word := range strings.FieldsFuncSeq(what, func(c rune) bool { return c == ',' || c == ' ' }) {
		switch strings.ToLower(word) {
		case "db":
			db = true
		case "mgm":
			mgm = true
		default:
			return bad(header, fmt.Sprintf("'%s' is neither db nor mgm", word))
		}
	}
	if !db && !mgm {
		return bad(header, "Nothing is to be stopped: db, mgm or both")
	}
	count := 0
	if db {
		h := halt{nodes: s.linkedDataNodes(), flags: signal.StopAll}
		if flag(r, "abort") {
			h.flags |= signal.StopAbort
		}
		var why string
		if count, why = s.halt(ctx, h); why != "" {
			return reply(wire.Begin(header).Field("result", why).Int("stopped", int64(count)).Int("disconnect", 0))
		}
	}
	if mgm {
		if why := s.stopServers(ctx, s.readyServers()); why != "" {
			s.note(event.Warning, "%s", why)
		}
	}
	a := reply(wire.Begin(header).Field("result", "Ok").Int("stopped", int64(count)).Bool("disconnect", mgm))
	if mgm {
		a.next = stopServer
	}
	return a
}

func (s *Server) isServer(id uint8) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[id] != nil && s.nodes[id].conf.Type == config.ManagementNode
}

// readyServers are the other management servers that answer.
func (s *Server) readyServers() (ids []uint8) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, p := range s.peers {
		if p.ready {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// stopServers asks other management servers to stop, waits until they are gone, and says which did not hear it.
func (s *Server) stopServers(ctx context.Context, ids []uint8) (why string) {
	ctx, cancel := context.WithTimeout(ctx, s.limits.Stop)
	defer cancel()
	asked := map[uint8]chan error{}
	s.mu.Lock()
	for _, id := range ids {
		done := make(chan error, 1)
		if p := s.peers[id]; p == nil || !s.say(p, "stop reply", wire.Begin("stop v2").Uint("node", uint32(id)).End(), done) {
			done <- errPeerLost
		}
		asked[id] = done
	}
	s.mu.Unlock()
	var stopping []uint8
	for _, id := range ids {
		if err := <-asked[id]; err != nil {
			why = fmt.Sprintf("Management server %d is not connected", id)
			continue
		}
		stopping = append(stopping, id)
	}
	s.await(ctx, func() bool {
		return !slices.ContainsFunc(stopping, func(id uint8) bool { p := s.peers[id]; return p != nil && p.ready })
	})
	return why
}

func restartFlags(r *wire.Request) uint32 {
	flags := signal.StopRestart
	for name, bit := range map[string]uint32{"initialstart": signal.StopInitial, "nostart": signal.StopNoStart, "abort": signal.StopAbort, "force": signal.StopForce} {
		if flag(r, name) {
			flags |= bit
		}
	}
	return flags
}

// restartNodes is the command restart node. A node that restarts comes back by itself and copies its data from its peers.
func (s *Server) restartNodes(ctx context.Context, _ *session, r *wire.Request) answer {
	const header = "restart reply"
	list, _ := r.Fields.Get("node")
	nodes, ok := ids(list)
	switch {
	case !ok:
		return bad(header, fmt.Sprintf("'%s' is no list of node ids", list))
	case slices.Contains(nodes, s.own):
		return bad(header, "A management server does not restart itself: stop it and start it again")
	}
	h := halt{nodes: nodes, flags: restartFlags(r)}
	if why := s.knownDataNodes(nodes); why != "" {
		return bad(header, why)
	}
	if why := s.whole(&h); why != "" {
		return bad(header, why)
	}
	return s.restart(ctx, header, h)
}

// restartAll is the command restart all.
func (s *Server) restartAll(ctx context.Context, _ *session, r *wire.Request) answer {
	return s.restart(ctx, "restart reply", halt{nodes: s.linkedDataNodes(), flags: restartFlags(r) | signal.StopAll})
}

func (s *Server) restart(ctx context.Context, header string, h halt) answer {
	if len(h.nodes) == 0 {
		return bad(header, "No data node is connected")
	}
	count, why := s.halt(ctx, h)
	if why == "" {
		why = "Ok"
	}
	return reply(wire.Begin(header).Field("result", why).Int("restarted", int64(count)).Int("disconnect", 0))
}

func (s *Server) linkedDataNodes() (nodes []uint8) {
	for _, l := range s.dataLinks() {
		nodes = append(nodes, l.node)
	}
	return nodes
}

// knownDataNodes says what is wrong with a list of nodes that are to be stopped: each must be a connected data node.
func (s *Server) knownDataNodes(nodes []uint8) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range nodes {
		n := s.nodes[id]
		switch {
		case n == nil:
			return fmt.Sprintf("There is no node %d in the configuration", id)
		case n.conf.Type == config.APINode:
			return fmt.Sprintf("Node %d is an API node; stop its program instead", id)
		case n.conf.Type == config.ManagementNode:
			return fmt.Sprintf("Node %d is a management server, which does not restart itself: stop it and start it again", id)
		case n.link == nil:
			return fmt.Sprintf("Node %d is not connected", id)
		}
	}
	return ""
}

// whole makes a stop of some nodes a stop of the cluster where no node would be left. Whether the others can go on
// without some is for the nodes themselves to say: only they know who has which data now. Who stops the last one by its
// number, and says no more, hardly means the cluster.
func (s *Server) whole(h *halt) (why string) {
	s.mu.Lock()
	v, _ := s.picture()
	s.mu.Unlock()
	left := v.Set() // members that this server has no link to stay, too
	if v.Number == 0 {
		for _, id := range s.linkedDataNodes() {
			left.Add(id)
		}
	}
	for _, id := range h.nodes {
		left.Remove(id)
	}
	if !left.Empty() {
		return ""
	}
	s.mu.Lock()
	configured := len(s.conf.DataNodes())
	s.mu.Unlock()
	if len(h.nodes) == 1 && configured > 1 && h.flags&signal.StopForce == 0 {
		return fmt.Sprintf("Node %d is the last one that runs, and the cluster would stop with it; use ALL STOP or SHUTDOWN, or -f if that is meant", h.nodes[0])
	}
	h.flags |= signal.StopAll
	return ""
}

// halt asks nodes to stop and waits until their links are closed. It gives how many stopped, and why not all did.
func (s *Server) halt(ctx context.Context, h halt) (int, string) {
	ctx, cancel := context.WithTimeout(ctx, s.limits.Stop)
	defer cancel()
	var bitmap [8]uint32
	for _, id := range h.nodes {
		bitmap[id/32] |= 1 << (id % 32)
	}
	word := "Stop"
	if h.flags&signal.StopRestart != 0 {
		word = "Restart"
	}
	if len(h.nodes) == 0 {
		return 0, ""
	}
	s.note(event.Note, "%s of nodes %s requested", word, nodeWords(h.nodes))

	type asked struct {
		link *link
		ref  uint32
		ask  *ask
	}
	var all []asked
	for _, l := range s.dataLinks() {
		if !slices.Contains(h.nodes, l.node) {
			continue
		}
		ref, a := s.newAsk(l)
		defer s.endAsk(ref)
		all = append(all, asked{l, ref, a})
		l.send(frames.Make(signal.NumStopReq, address(l.node, signal.BlockManager), address(s.own, signal.BlockMgm), "", func(r *signal.StopReq) {
			r.Ref, r.Flags, r.Nodes = ref, h.flags, bitmap
		}))
	}
	var refused []string
	var stopping []*link
	for _, a := range all {
		select {
		case b, ok := <-a.ask.reply:
			if ok {
				if head := frames.Head(b); head.Num == signal.NumStopRef {
					r := frames.As[signal.StopRef](head)
					refused = append(refused, fmt.Sprintf("Node %d refused: %s (error %d)", a.link.node, r.Text(), r.Code))
					continue
				}
			}
		case <-ctx.Done():
			// It may stop without a word; whether it did shows below.
		}
		stopping = append(stopping, a.link)
	}
	s.await(ctx, func() bool { return len(s.stillUp(stopping)) == 0 })
	s.mu.Lock()
	up := s.stillUp(stopping)
	s.mu.Unlock()
	if len(up) > 0 {
		refused = append(refused, fmt.Sprintf("Nodes %s have not stopped within %v; look at their logs", nodeWords(up), s.limits.Stop.Round(time.Second)))
	}
	return len(stopping) - len(up), strings.Join(refused, "; ")
}

// stillUp are the nodes among links whose link is open. The caller holds mu.
func (s *Server) stillUp(links []*link) (nodes []uint8) {
	for _, l := range links {
		if n := s.nodes[l.node]; n != nil && n.link == l {
			nodes = append(nodes, l.node)
		}
	}
	return nodes
}

func nodeWords(nodes []uint8) string {
	var words []string
	for _, id := range nodes {
		words = append(words, fmt.Sprint(id))
	}
	return strings.Join(words, ",")
}

// startNode is the command start: a data node that was launched with --nostart.
func (s *Server) startNode(_ context.Context, _ *session, r *wire.Request) answer {
	const header = "start reply"
	s.mu.Lock()
	n, why := s.dataNode(num(r, "node", 0))
	var l *link
	if n != nil {
		switch l = n.link; {
		case l == nil:
			why = fmt.Sprintf("Node %d is not connected", n.conf.ID)
		case n.state.state != signal.StateNotStarted:
			why = fmt.Sprintf("Node %d is not waiting to be started", n.conf.ID)
		}
	}
	s.mu.Unlock()
	if why != "" {
		return bad(header, why)
	}
	if err := s.sendStart(l); err != nil {
		return bad(header, fmt.Sprintf("Node %d is gone: %v", l.node, err))
	}
	return reply(wire.Begin(header).Field("result", "Ok").Int("started", 1))
}

// startAll is the command start all.
func (s *Server) startAll(context.Context, *session, *wire.Request) answer {
	count := 0
	for _, l := range s.dataLinks() {
		s.mu.Lock()
		n := s.nodes[l.node]
		waits := n != nil && n.link == l && n.state.state == signal.StateNotStarted
		s.mu.Unlock()
		if waits && s.sendStart(l) == nil {
			count++
		}
	}
	return reply(wire.Begin("start reply").Field("result", "Ok").Int("started", int64(count)))
}

func (s *Server) sendStart(l *link) error {
	return l.send(frames.Make[signal.StartOrd](signal.NumStartOrd, address(l.node, signal.BlockManager), address(s.own, signal.BlockMgm), "", nil))
}
