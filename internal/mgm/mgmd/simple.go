package mgmd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/wire"
	"github.com/cohortdb/cohort/internal/version"
)

func (s *Server) getVersion(context.Context, *session, *wire.Request) answer {
	return reply(wire.Begin("version").Uint("id", version.Number).
		Uint("major", version.Major).Uint("minor", version.Minor).Uint("build", version.Build).Field("string", version.Text(version.Number)).
		Uint("mysql_major", version.MySQLMajor).Uint("mysql_minor", version.MySQLMinor).Uint("mysql_build", version.MySQLBuild))
}

func (s *Server) setClientVersion(_ context.Context, ss *session, r *wire.Request) answer {
	ss.version = num(r, "major", 0)<<16 | num(r, "minor", 0)<<8&0xff00 | num(r, "build", 0)&0xff
	if name, ok := r.Fields.Get("name"); ok {
		s.mu.Lock()
		ss.name = name
		s.mu.Unlock()
	}
	return reply(wire.Begin("set clientversion reply").Field("result", "Ok"))
}

func (s *Server) getMgmdNodeID(context.Context, *session, *wire.Request) answer {
	return reply(wire.Begin("get mgmd nodeid reply").Uint("nodeid", uint32(s.own)))
}

func (s *Server) checkConnection(context.Context, *session, *wire.Request) answer {
	return reply(wire.Begin("check connection reply").Field("result", "Ok"))
}

func (s *Server) bye(context.Context, *session, *wire.Request) answer {
	return answer{next: closeSession}
}

func (s *Server) endSession(context.Context, *session, *wire.Request) answer {
	a := reply(wire.Begin("end session reply").Field("result", "Ok"))
	a.next = closeSession
	return a
}

func (s *Server) transporterConnect(context.Context, *session, *wire.Request) answer {
	return answer{next: becomeLink}
}

// singleUserSince is the first version of NDB's clients that understand is_single_user; Cohort's own, with smaller
// numbers, always did.
const singleUserSince = 8<<16 | 0<<8 | 22

func (s *Server) getStatus(_ context.Context, ss *session, r *wire.Request) answer {
	types := []config.NodeType{config.DataNode, config.ManagementNode, config.APINode}
	if list, ok := r.Fields.Get("types"); ok && strings.TrimSpace(list) != "" {
		types = nil
		for _, word := range strings.Fields(list) {
			t, ok := mgmclient.ParseNodeType(word)
			if !ok {
				return answer{bytes: wire.Refusal(fmt.Sprintf("Unknown node type, '%s'; use NDB, MGM, API", word))}
			}
			types = append(types, t)
		}
	}
	single := ss.version != 0 && (ss.version>>16 == version.Major || ss.version >= singleUserSince)

	s.mu.Lock()
	var nodes []mgmclient.NodeStatus
	for _, t := range types {
		for _, n := range s.nodes {
			if n != nil && n.conf.Type == t {
				nodes = append(nodes, s.status(n))
			}
		}
	}
	s.mu.Unlock()

	b := wire.Begin("node status").Int("nodes", int64(len(nodes)))
	for i := range nodes {
		writeStatus(b, &nodes[i], single)
		if n := &nodes[i]; ss.version>>16 == version.Major && n.CopyTotal > 0 {
			b.Uint(fmt.Sprintf("node.%d.copy_done_mb", n.ID), n.CopyDone).Uint(fmt.Sprintf("node.%d.copy_total_mb", n.ID), n.CopyTotal)
		}
	}
	return reply(b)
}

func writeStatus(b *wire.Builder, n *mgmclient.NodeStatus, single bool) {
	prefix := fmt.Sprintf("node.%d.", n.ID)
	b.Field(prefix+"type", n.Type.String()).
		Field(prefix+"status", string(n.Status)).
		Uint(prefix+"version", n.Version).
		Uint(prefix+"mysql_version", n.MySQLVersion).
		Int(prefix+"startphase", int64(n.StartPhase)).
		Int(prefix+"dynamic_id", int64(n.DynamicID)).
		Int(prefix+"node_group", int64(n.NodeGroup)).
		Int(prefix+"connect_count", int64(n.ConnectCount)).
		Field(prefix+"address", n.Address)
	if single {
		b.Bool(prefix+"is_single_user", n.SingleUser)
	}
}

// setPort keeps the port on which a data node listens: for all others (node2 0), or for one.
func (s *Server) setPort(_ context.Context, _ *session, r *wire.Request) answer {
	const header = "set connection parameter reply"
	node1, node2, port := num(r, "node1", 0), num(r, "node2", 0), num(r, "value", 0)
	if why := portParameter(r); why != "" {
		return bad(header, why)
	}
	if port < 1 || port > 65535 {
		return bad(header, fmt.Sprintf("A port is a number from 1 to 65535, not %d", port))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, why := s.dataNode(node1)
	switch {
	case why != "":
		return bad(header, why)
	case node2 > 255 || node2 != 0 && s.nodes[node2] == nil:
		return bad(header, fmt.Sprintf("There is no node %d in the configuration", node2))
	case n.holder == nil && n.link == nil:
		return bad(header, fmt.Sprintf("Node %d holds no id; get one first", node1))
	}
	n.setPort(uint8(node2), int(port))
	s.sayAll(portReply, portRequest(uint8(node1), uint8(node2), int(port)))
	s.signalChange()
	return reply(wire.Begin(header).Field("message", "").Field("result", "Ok"))
}

// getPort tells on which port the listening one of two nodes listens: the data node, and of two data nodes the one
// with the lower id. 0 means that it has not said yet.
func (s *Server) getPort(_ context.Context, _ *session, r *wire.Request) answer {
	const header = "get connection parameter reply"
	node1, node2 := num(r, "node1", 0), num(r, "node2", 0)
	if why := portParameter(r); why != "" {
		return bad(header, why)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range []uint32{node1, node2} {
		if id < 1 || id > 255 || s.nodes[id] == nil {
			return bad(header, fmt.Sprintf("There is no node %d in the configuration", id))
		}
	}
	isData := func(id uint32) bool { return s.nodes[id].conf.Type == config.DataNode }
	listener, other := min(node1, node2), max(node1, node2)
	if !isData(listener) {
		listener, other = other, listener
	}
	if !isData(listener) {
		return bad(header, fmt.Sprintf("Neither node %d nor node %d is a data node", node1, node2))
	}
	n := s.nodes[listener]
	port, ok := n.ports[uint8(other)]
	if !ok {
		if port = n.port; port == 0 {
			port = int(n.conf.Int("ServerPort"))
		}
	}
	return reply(wire.Begin(header).Int("value", int64(port)).Field("result", "Ok"))
}

func portParameter(r *wire.Request) string {
	if p := num(r, "param", 0); p != mgmclient.ServerPort {
		return fmt.Sprintf("Parameter %d of a connection cannot be set or read while the cluster runs; %d, the port, can", p, mgmclient.ServerPort)
	}
	return ""
}

// dataNode finds a data node; the text says why there is none. The caller holds mu.
func (s *Server) dataNode(id uint32) (*node, string) {
	if id < 1 || id > 255 || s.nodes[id] == nil {
		return nil, fmt.Sprintf("There is no node %d in the configuration", id)
	}
	if n := s.nodes[id]; n.conf.Type == config.DataNode {
		return n, ""
	}
	return nil, fmt.Sprintf("Node %d is no data node", id)
}

func (s *Server) listSessions(_ context.Context, own *session, _ *wire.Request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []uint64
	for id := range s.sessions {
		all = append(all, id)
	}
	slices.Sort(all)
	b := wire.Begin("list sessions reply").Int("sessions", int64(len(all)))
	for _, id := range all {
		s.sessions[id].describe(b, fmt.Sprintf("session.%d.", id), own)
	}
	return reply(b)
}

// describe writes what is known of a session. The caller holds the server's mu.
func (ss *session) describe(b *wire.Builder, prefix string, own *session) {
	b.Field(prefix+"address", ss.peer.String()).Field(prefix+"name", ss.name).Field(prefix+"mode", ss.mode).
		Uint(prefix+"nodeid", uint32(ss.held)).Field(prefix+"command", ss.command).
		Int(prefix+"seconds", int64(time.Since(ss.since)/time.Second)).Int(prefix+"idle", int64(time.Since(ss.used)/time.Second)).
		Bool(prefix+"own", ss == own)
}

func (s *Server) getSessionID(_ context.Context, ss *session, _ *wire.Request) answer {
	return reply(wire.Begin("get session id reply").Field("id", fmt.Sprint(ss.id)))
}

func (s *Server) getSession(_ context.Context, own *session, r *wire.Request) answer {
	const header = "get session reply"
	id := uint64(num(r, "id", 0))
	s.mu.Lock()
	defer s.mu.Unlock()
	ss := s.sessions[id]
	if ss == nil {
		return bad(header, fmt.Sprintf("There is no session %d", id))
	}
	b := wire.Begin(header).Field("id", fmt.Sprint(id))
	ss.describe(b, "", own)
	return reply(b.Field("result", "Ok"))
}

// staleAfter is how long a data node may hold its id by its session alone and say nothing.
const staleAfter = 30 * time.Second

// purgeStaleSessions closes sessions of data nodes that took an id and then neither linked nor said a word.
func (s *Server) purgeStaleSessions(context.Context, *session, *wire.Request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var purged []string
	for _, n := range s.nodes {
		if n == nil || n.conf.Type != config.DataNode || n.link != nil || n.holder == nil {
			continue
		}
		if ss := n.holder; time.Since(ss.used) >= staleAfter {
			s.releaseHolder(ss)
			ss.conn.Close()
			purged = append(purged, fmt.Sprint(n.conf.ID))
		}
	}
	return reply(wire.Begin("purge stale sessions reply").Field("purged", strings.Join(purged, " ")).Field("result", "Ok"))
}
