package mgmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/frames"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/version"
)

// The signal side: a connection that became a link.
//
//	node --"transporter connect"--> server        (text)
//	node --Hello--> server --HelloConf--> node    (or HelloRef and the end)
//	node --NodeStateRep, EventRep--> server
//	server --EventSubscribeOrd, StopReq, StartOrd, DumpOrd, ReportReq, SingleReq, ListReq--> node
//	node --StopConf, StopRef, ReportConf, SingleConf, ListConf…--> server
//	node --ArbitStartReq, ArbitChooseReq--> server (its arbitrator) --…Conf, …Ref--> node

// link is an open link to a node.
type link struct {
	node uint8
	conn net.Conn
	mu   sync.Mutex // one writer at a time
}

// send sends a signal; a link that does not take it is closed.
func (l *link) send(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := frames.Send(l.conn, b)
	if err != nil {
		l.conn.Close()
	}
	return err
}

// link runs the session as a link and says why it ended.
func (ss *session) link() (reason string) {
	s := ss.server
	s.mu.Lock()
	ss.mode = "link"
	s.mu.Unlock()
	in := frames.NewReader(ss.conn, ss.reader.Rest())
	ss.conn.SetReadDeadline(time.Now().Add(s.limits.Request))
	h, err := in.Next()
	if err != nil {
		return "it sent no Hello: " + linkError(err)
	}
	hello, fault := checkHello(h)
	if fault != "" {
		return fault
	}
	l, refused := s.acceptLink(ss, hello)
	if l == nil {
		return refused
	}
	defer func() { s.linkDown(l, reason) }()
	ss.conn.SetReadDeadline(time.Time{})
	kind, peer := signal.Peer(hello.Kind), l.node
	if err := l.send(s.helloConf(l)); err != nil {
		return "it did not read the HelloConf: " + err.Error()
	}
	s.subscribe(l)
	for {
		h, err := in.Next()
		if err != nil {
			return linkError(err)
		}
		if fault := signal.Check(h, kind, peer, s.own); fault != nil {
			return fault.Error()
		}
		if !s.receive(l, h) {
			return fmt.Sprintf("a management server does not take %s", signal.Name(h.Num))
		}
	}
}

// linkError is empty for a peer that closed its end between two frames.
func linkError(err error) string {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		return ""
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the link ended inside a frame"
	}
	return err.Error()
}

// checkHello examines the first frame of a link.
func checkHello(h *signal.Head) (*signal.Hello, string) {
	if h.Num != signal.NumHello {
		return nil, "a link begins with Hello, not with " + signal.Name(h.Num)
	}
	if fault := signal.Check(h, signal.PeerData, h.From.Node(), h.To.Node()); fault != nil {
		return nil, fault.Error()
	}
	hello := *frames.As[signal.Hello](h) // the frame's bytes die with the next one
	if hello.Magic != signal.HelloMagic {
		return nil, "the Hello is none of ours"
	}
	return &hello, ""
}

func address(node, block uint8) signal.Addr { return signal.MakeAddr(node, block, 0) }

// acceptLink gives a Hello its link, or refuses it and says why.
func (s *Server) acceptLink(ss *session, hello *signal.Hello) (*link, string) {
	code, text := s.judgeHello(ss, hello)
	if code == 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		// Between judging and here another may have taken the id.
		if n := s.nodes[hello.Node]; n != nil && !s.linkTaken(ss, n, helloSecret(hello)) {
			return s.linkUp(ss, n, hello), ""
		}
		code, text = signal.RefuseTaken, fmt.Sprintf("Id %d already allocated by another node.", hello.Node)
	}
	from := address(s.own, signal.BlockMgm)
	frames.Send(ss.conn, frames.Make(signal.NumHelloRef, address(uint8(hello.Node), signal.BlockManager), from, text, func(r *signal.HelloRef) {
		r.Code, r.TextLen = code, uint32(len(text))
	}))
	return nil, fmt.Sprintf("its link was refused: %s", text)
}

func helloSecret(h *signal.Hello) uint64 { return uint64(h.Secret[0]) | uint64(h.Secret[1])<<32 }

// judgeHello says whether a link may be; code 0 means yes.
func (s *Server) judgeHello(ss *session, hello *signal.Hello) (code uint32, text string) {
	s.mu.Lock()
	var n *node
	if hello.Node <= 255 {
		n = s.nodes[hello.Node]
	}
	clusterName, ending := s.conf.Name, s.ending
	holds := n != nil && (n.holder == ss || n.secret != 0 && n.secret == helloSecret(hello))
	host := ""
	if n != nil {
		host = n.conf.HostName
	}
	s.mu.Unlock()
	kinds := map[uint32]config.NodeType{uint32(signal.PeerData): config.DataNode, uint32(signal.PeerAPI): config.APINode}
	t, isNode := kinds[hello.Kind]
	switch {
	case ending:
		return signal.RefuseNotReady, "The management server stops."
	case hello.Version != signal.WireVersion || !version.Compatible(hello.Software, version.Number):
		return signal.RefuseVersion, fmt.Sprintf("Incompatible versions: the management server has %s (frames %d) and the node %s (frames %d).",
			version.Text(version.Number), signal.WireVersion, version.Text(hello.Software), hello.Version)
	case hello.Name != signal.NameHash(clusterName):
		return signal.RefuseCluster, fmt.Sprintf("This is cluster %s; the node belongs to another.", clusterName)
	case hello.Peer != uint32(s.own):
		return signal.RefuseMeant, fmt.Sprintf("This is node %d, not node %d.", s.own, hello.Peer)
	case !isNode || n == nil || n.conf.Type != t || uint32(hello.From.Node()) != hello.Node:
		return signal.RefuseNode, fmt.Sprintf("No such node %d in the configuration, or of another kind.", hello.Node)
	case hello.Socket != 0:
		return signal.RefuseSocket, "A management server has one link to each node."
	}
	// A holder of the id has shown from where it comes; a node that comes back to a new server has not.
	if !holds && matchHost(context.Background(), host, ss.peer) == noMatch {
		return signal.RefuseNode, fmt.Sprintf("Connection done from wrong host ip %s. Id %d is for host %s.", ss.peer, hello.Node, host)
	}
	return 0, ""
}

// linkTaken says that somebody else has the id. The caller holds mu.
func (s *Server) linkTaken(ss *session, n *node, secret uint64) bool {
	if n.holder == ss {
		return n.link != nil
	}
	if secret != 0 && secret == n.secret {
		return false
	}
	return n.holder != nil || n.link != nil || s.heldByAnother(n, secret, 0)
}

// linkUp makes the connection the node's link. The caller holds mu.
func (s *Server) linkUp(ss *session, n *node, hello *signal.Hello) *link {
	if old := n.link; old != nil {
		old.conn.Close() // of the same run, which lost it before this server noticed
	}
	l := &link{node: uint8(n.conf.ID), conn: ss.conn}
	n.link, n.secret, n.version, n.addr = l, helloSecret(hello), hello.Software, ss.peer
	n.links++
	n.state = nothing
	if n.conf.Type == config.DataNode && n.holder != nil {
		// From here on the link holds the id.
		n.holder.held = 0
		n.holder = nil
	}
	s.report(event.New(s.own, event.Connected, uint32(l.node)))
	s.tellHeld(n)
	s.signalChange()
	return l
}

// linkDown forgets a link.
func (s *Server) linkDown(l *link, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[l.node]
	if n == nil || n.link != l {
		return // a newer one has taken its place
	}
	n.link = nil
	s.report(event.New(s.own, event.Disconnected, uint32(l.node)))
	for ref, a := range s.asks {
		if a.node == l.node {
			delete(s.asks, ref)
			close(a.reply)
		}
	}
	if reason == "" {
		reason = "its link closed"
	}
	s.tellIfReleased(n)
	s.freeIfUnused(n, reason)
	s.freeUnreported()
	s.reconsider()
}

func (s *Server) helloConf(l *link) []byte {
	return frames.Make(signal.NumHelloConf, address(l.node, signal.BlockManager), address(s.own, signal.BlockMgm), "", func(c *signal.HelloConf) {
		c.Version, c.Software, c.Node, c.Sockets = signal.WireVersion, version.Number, uint32(s.own), 1
		c.Secret = [2]uint32{uint32(s.secret), uint32(s.secret >> 32)}
	})
}

// subscribe tells a data node which events to report.
func (s *Server) subscribe(l *link) {
	levels := s.events.wanted(l.node)
	l.send(frames.Make(signal.NumEventSubscribeOrd, address(l.node, signal.BlockManager), address(s.own, signal.BlockMgm), "", func(o *signal.EventSubscribeOrd) {
		copy(o.Levels[:], levels[:])
	}))
}

// subscribeAll tells all of them, after the wishes changed.
func (s *Server) subscribeAll() {
	for _, l := range s.dataLinks() {
		s.subscribe(l)
	}
}

// dataLinks are the links to data nodes, by node id.
func (s *Server) dataLinks() (all []*link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.nodes {
		if n != nil && n.link != nil && n.conf.Type == config.DataNode {
			all = append(all, n.link)
		}
	}
	return all
}

// ask is a question to a node whose answer somebody waits for.
type ask struct {
	node  uint8
	reply chan []byte // a copy of the answer; closed without one when the link closes
	parts [][]byte    // of a list: what has come so far
}

// newAsk opens a question to the node of a link. One whose link has closed meanwhile is answered already, by nothing.
func (s *Server) newAsk(l *link) (uint32, *ask) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastRef++
	a := &ask{node: l.node, reply: make(chan []byte, 1)}
	if n := s.nodes[l.node]; n == nil || n.link != l {
		close(a.reply)
		return s.lastRef, a
	}
	s.asks[s.lastRef] = a
	return s.lastRef, a
}

// endAsk forgets a question that nobody waits for any more.
func (s *Server) endAsk(ref uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.asks, ref)
}

// answered hands an answer to whoever waits for it.
func (s *Server) answered(l *link, ref uint32, h *signal.Head) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.asks[ref]
	if a == nil || a.node != l.node {
		return // too late, or never asked
	}
	delete(s.asks, ref)
	a.reply <- frames.Copy(h)
}

// receive takes a checked signal; false means that no such signal is for a management server.
func (s *Server) receive(l *link, h *signal.Head) bool {
	switch h.Num {
	case signal.NumNodeStateRep:
		s.onNodeStateRep(l, frames.As[signal.NodeStateRep](h))
	case signal.NumEventRep:
		s.onEventRep(l, frames.As[signal.EventRep](h))
	case signal.NumStopConf:
		s.answered(l, frames.As[signal.StopConf](h).Ref, h)
	case signal.NumStopRef:
		s.answered(l, frames.As[signal.StopRef](h).Ref, h)
	case signal.NumReportConf:
		s.answered(l, frames.As[signal.ReportConf](h).Ref, h)
	case signal.NumSingleConf:
		s.answered(l, frames.As[signal.SingleConf](h).Ref, h)
	case signal.NumListConf:
		s.onListConf(l, frames.As[signal.ListConf](h))
	case signal.NumArbitStartReq, signal.NumArbitChooseReq:
		s.arbit.deliver(h)
	default:
		return false
	}
	return true
}

func (s *Server) onNodeStateRep(l *link, r *signal.NodeStateRep) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[l.node]
	if n == nil || n.link != l {
		return
	}
	n.state = nodeState{state: r.State, phase: r.StartPhase, group: r.NodeGroup, dynamicID: r.DynamicID, connected: r.Connected, view: r.View, members: r.Members,
		serving: r.Serving, hears: r.Hears, arbitrator: uint8(min(r.Arbitrator, 255)), single: uint8(min(r.Single, 255)), pages: r.Pages}
	if r.Software != 0 {
		n.version = r.Software
	}
	s.freeUnreported()
	s.reconsider()
}

func (s *Server) onEventRep(l *link, r *signal.EventRep) {
	e := event.Event{Type: event.Type(min(r.Event, 0xffff)), Node: uint8(min(r.Node, 255)), Args: r.Args}.WithText(string(r.Text()))
	s.mu.Lock()
	if s.nodes[e.Node] == nil {
		e.Node = l.node
	}
	if e.Type == event.ConnectedApiVersion && e.Args[0] <= 255 {
		if n := s.nodes[e.Args[0]]; n != nil && n.conf.Type == config.APINode && n.version == 0 {
			n.version = e.Args[1]
		}
	}
	s.mu.Unlock()
	s.report(e)
}
