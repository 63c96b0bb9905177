package mgmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/frames"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/wire"
	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/signal"
)

// Single user mode. Each data node answers when nothing of others is open at it any more, which it rolls back if it can;
// the mode holds when all have answered, or nowhere. A node that starts while it holds learns of it from the members that
// take it in.
//
//	server --SingleReq--> every started data node --SingleConf--> server

func (s *Server) enterSingleUser(ctx context.Context, _ *session, r *wire.Request) answer {
	const header = "enter single user reply"
	id := num(r, "nodeId", 0)
	s.mu.Lock()
	why := s.maySingle(id)
	s.mu.Unlock()
	if why != "" {
		return reply(wire.Begin(header).Int("error_code", mgmclient.CodeEnterSingle).Field("result", why))
	}
	if why := s.single(ctx, uint8(id)); why != "" {
		// Whoever went along lets everybody in again, whether or not this request's client still waits.
		s.single(context.WithoutCancel(ctx), 0)
		return reply(wire.Begin(header).Int("error_code", mgmclient.CodeEnterSingle).Field("result", why))
	}
	return reply(wire.Begin(header).Field("result", "Ok"))
}

func (s *Server) exitSingleUser(ctx context.Context, _ *session, _ *wire.Request) answer {
	const header = "exit single user reply"
	why := ""
	s.mu.Lock()
	if s.singleClient() == 0 && !s.singleUser() {
		why = "The cluster is not in single user mode"
	}
	s.mu.Unlock()
	if why == "" {
		why = s.single(ctx, 0)
	}
	if why != "" {
		return reply(wire.Begin(header).Int("error_code", mgmclient.CodeExitSingle).Field("result", why))
	}
	return reply(wire.Begin(header).Field("result", "Ok"))
}

// maySingle says what is wrong with letting only that node in. The caller holds mu.
func (s *Server) maySingle(id uint32) string {
	if id < 1 || id > 255 || s.nodes[id] == nil {
		return fmt.Sprintf("There is no node %d in the configuration", id)
	}
	if s.nodes[id].conf.Type != config.APINode {
		return fmt.Sprintf("Node %d is no API node", id)
	}
	if now := s.singleClient(); now != 0 {
		return fmt.Sprintf("Single user mode is entered already, for node %d; leave it first", now)
	}
	started := 0
	for _, n := range s.nodes {
		if n == nil || n.link == nil || n.conf.Type != config.DataNode {
			continue
		}
		switch n.state.state {
		case signal.StateStarted, signal.StateSingleUser:
			started++
		default:
			return fmt.Sprintf("Operation not allowed while nodes are starting or stopping; node %d is %s", n.conf.ID, strings.ToLower(string(stateWord(n.state.state))))
		}
	}
	if started == 0 {
		return "No data node has started"
	}
	return ""
}

// singleClient is the only client that data nodes let in, 0 if they let all in. The caller holds mu.
func (s *Server) singleClient() uint8 {
	for _, n := range s.nodes {
		if n != nil && n.link != nil && n.state.single != 0 {
			return n.state.single
		}
	}
	return 0
}

// single asks all started data nodes to let only one client in, or all (0), and waits until they have done so. A node
// that is lost meanwhile lets nobody in.
func (s *Server) single(ctx context.Context, client uint8) (why string) {
	ctx, cancel := context.WithTimeout(ctx, s.limits.Stop)
	defer cancel()
	type asked struct {
		node uint8
		ask  *ask
	}
	var all []asked
	for _, l := range s.dataLinks() {
		s.mu.Lock()
		n := s.nodes[l.node]
		serves := n != nil && n.link == l && (n.state.state == signal.StateStarted || n.state.state == signal.StateSingleUser)
		s.mu.Unlock()
		if !serves {
			continue
		}
		ref, a := s.newAsk(l)
		defer s.endAsk(ref)
		all = append(all, asked{l.node, a})
		l.send(s.singleReq(l.node, ref, client))
	}
	var refused []string
	for _, a := range all {
		select {
		case b, ok := <-a.ask.reply:
			if !ok {
				continue
			}
			if code := frames.As[signal.SingleConf](frames.Head(b)).Code; code != 0 {
				refused = append(refused, fmt.Sprintf("Node %d refused: %s (error %d)", a.node, ndberror.Get(int(code)).Message, code))
			}
		case <-ctx.Done():
			refused = append(refused, fmt.Sprintf("Node %d has not answered; %d REPORT TRANSACTIONS shows what is still open there", a.node, a.node))
		}
	}
	return strings.Join(refused, "; ")
}

func (s *Server) singleReq(node uint8, ref uint32, client uint8) []byte {
	return frames.Make(signal.NumSingleReq, address(node, signal.BlockManager), address(s.own, signal.BlockMgm), "", func(r *signal.SingleReq) {
		r.Ref, r.Node = ref, uint32(client)
	})
}
