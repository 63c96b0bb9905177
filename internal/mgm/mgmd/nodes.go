package mgmd

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/version"
)

// node is what the server knows of a configured node. All of it is under the server's mu.
type node struct {
	conf *config.Node

	holder  *session   // the session that holds its id, nil if none does
	link    *link      // its open link, nil if there is none
	secret  uint64     // of the run that holds the id, 0 if it gave none
	version uint32     // of its program, 0 while it holds nothing
	addr    netip.Addr // from where it holds the id; invalid while the id is free
	links   int        // links that it ever opened

	elsewhere map[uint8]lease // by management server: it is held there
	pending   bool            // holder has asked for the id, and other servers have not yet agreed
	outbid    bool            // meanwhile another server has given it away

	port  int           // on which it listens, as it said itself; 0: it did not
	ports map[uint8]int // the same for a single other node

	state nodeState
}

// nodeState is a data node's newest word about itself; it counts only while the link is open.
type nodeState struct {
	state     uint32 // one of signal's State constants
	phase     uint32 // last completed start phase
	group     uint32 // node group, NoRef if none
	dynamicID uint32 // order of joining, from 1; 0 or NoRef if it has not joined
	connected signal.NodeSet

	view       uint32         // number of the view that it has committed, 0: none
	members    signal.NodeSet // of it
	serving    signal.NodeSet // of them, those that have all their data
	hears      signal.NodeSet // data nodes that it hears
	arbitrator uint8          // 0: none
	single     uint8          // the only client that it lets in, 0: all
	pages      uint32         // of memory in use
}

// nothing is the state of a node that has said nothing.
var nothing = nodeState{group: noNumber, dynamicID: noNumber}

// noNumber stands for "none" in numbers of NodeStateRep.
const noNumber = ^uint32(0)

// reported says that a linked data node has a link to the node. The caller holds mu.
func (s *Server) reported(id uint8) bool {
	for _, n := range s.nodes {
		if n != nil && n.link != nil && n.conf.ID != int(id) && n.state.connected.Has(id) {
			return true
		}
	}
	return false
}

// releaseHolder takes from a session the node id that it holds. The caller holds mu.
func (s *Server) releaseHolder(ss *session) {
	if ss.held == 0 {
		return
	}
	n := s.nodes[ss.held]
	ss.held = 0
	if n != nil && n.holder == ss {
		n.holder = nil
		s.tellIfReleased(n)
		s.freeIfUnused(n, "its session ended")
	}
}

// freeIfUnused gives a node id free that neither session nor link holds any more and no data node has a link to. The
// caller holds mu.
func (s *Server) freeIfUnused(n *node, why string) {
	if n.holder == nil && n.link == nil && len(n.elsewhere) == 0 && !s.reported(uint8(n.conf.ID)) {
		n.port, n.ports = 0, nil
	}
	if n.addr.IsValid() && n.holder == nil && n.link == nil && len(n.elsewhere) == 0 && !s.reported(uint8(n.conf.ID)) {
		n.secret, n.version, n.addr = 0, 0, netip.Addr{}
		n.state = nothing
		s.report(event.New(s.own, event.NodeIdFreed, uint32(n.conf.ID)).WithText(why))
	}
	s.signalChange()
}

// freeUnreported gives those ids free that were held only by a data node's word. The caller holds mu.
func (s *Server) freeUnreported() {
	for _, n := range s.nodes {
		if n != nil {
			s.freeIfUnused(n, "no data node has a link to it any more")
		}
	}
}

// setPort keeps the port on which a data node listens: for all others (other 0), or for one.
func (n *node) setPort(other uint8, port int) {
	if other == 0 {
		n.port = port
		return
	}
	if n.ports == nil {
		n.ports = map[uint8]int{}
	}
	n.ports[other] = port
}

// status is how a node is. The caller holds mu.
func (s *Server) status(n *node) mgmclient.NodeStatus {
	st := mgmclient.NodeStatus{ID: n.conf.ID, Type: n.conf.Type, Status: mgmclient.NoContact, DynamicID: mgmclient.NoPlace, NodeGroup: mgmclient.NoPlace,
		ConnectCount: n.links, SingleUser: s.singleUser()}
	switch {
	case n.conf.ID == int(s.own):
		st.Status = mgmclient.Connected
		st.Address = n.conf.HostName
		if a, ok := s.listen.(interface{ AddrPort() netip.AddrPort }); ok && !a.AddrPort().Addr().IsUnspecified() {
			st.Address = a.AddrPort().Addr().Unmap().String()
		} else if st.Address == "" {
			st.Address = "127.0.0.1"
		}
	case n.conf.Type == config.ManagementNode:
		p := s.peers[uint8(n.conf.ID)]
		if p == nil || !p.ready {
			return st
		}
		st.Status, st.Address, st.Version, st.MySQLVersion = mgmclient.Connected, p.addr.String(), p.version, version.MySQLNumber
		return st
	case n.conf.Type == config.DataNode:
		if n.link == nil || s.putOut(n) {
			return st
		}
		st.Status = stateWord(n.state.state)
		if st.Status == mgmclient.Starting {
			st.StartPhase = int(n.state.phase)
			st.CopyDone, st.CopyTotal = s.copied(n)
		}
		if n.state.group != noNumber {
			st.NodeGroup = int(n.state.group)
		}
		if n.state.dynamicID != noNumber && n.state.dynamicID != 0 {
			st.DynamicID = int(n.state.dynamicID)
		}
		st.Address = n.addr.String()
	case n.holder != nil || n.link != nil:
		st.Status = mgmclient.Connected
		st.Address = n.addr.String()
	case len(n.elsewhere) > 0:
		st.Status = mgmclient.Connected
		for _, id := range slices.Sorted(maps.Keys(n.elsewhere)) {
			l := n.elsewhere[id]
			st.Address, st.Version, st.MySQLVersion = l.addr.String(), l.version, version.MySQLNumber
		}
		return st
	case s.reported(uint8(n.conf.ID)):
		st.Status = mgmclient.Connected
		st.Address = n.conf.HostName
	default:
		return st
	}
	st.Version = n.version
	st.MySQLVersion = version.MySQLNumber
	return st
}

// putOut tells whether the others have gone on without a data node that has a link to us and does not know it yet: it
// hangs, or is cut off from them. The caller holds mu.
func (s *Server) putOut(n *node) bool {
	if n.state.view == 0 {
		return false // it starts
	}
	v, at := s.picture()
	return at != nil && v.Number > n.state.view && !v.Has(uint8(n.conf.ID))
}

// copied is how many MB a node that recovers has, and how many its peers have. The caller holds mu.
func (s *Server) copied(n *node) (done, total uint32) {
	v, at := s.picture()
	if at == nil || v.State(uint8(n.conf.ID)) != signal.MemberRecovering {
		return 0, 0
	}
	for _, m := range v.Members {
		if o := s.nodes[m.Node]; o.conf.NodeGroup == n.conf.NodeGroup && o.link != nil && v.Serving(uint8(m.Node)) {
			total = max(total, o.state.pages)
		}
	}
	const pagesOfMB = 1 << 20 / pageBytes
	return min(n.state.pages, total) / pagesOfMB, total / pagesOfMB
}

func stateWord(state uint32) mgmclient.Status {
	switch state {
	case signal.StateNotStarted:
		return mgmclient.NotStarted
	case signal.StateStarting:
		return mgmclient.Starting
	case signal.StateStarted:
		return mgmclient.Started
	case signal.StateStopping:
		return mgmclient.ShuttingDown
	case signal.StateSingleUser:
		return mgmclient.SingleUser
	case signal.StateRestarting:
		return mgmclient.Restarting
	}
	return mgmclient.Unknown
}

// singleUser says that a data node is in single user mode. The caller holds mu.
func (s *Server) singleUser() bool {
	for _, n := range s.nodes {
		if n != nil && n.link != nil && n.state.state == signal.StateSingleUser {
			return true
		}
	}
	return false
}

// typeName is a node's type as people know it: "ndbd(NDB)".
func typeName(t config.NodeType) string {
	switch t {
	case config.DataNode:
		return "ndbd(NDB)"
	case config.ManagementNode:
		return "ndb_mgmd(MGM)"
	}
	return "mysqld(API)"
}
