package mgmd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/wire"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/view"
)

// What the server makes of all that nodes say: who is in the cluster, what would end it, who cannot reach whom. It is in
// SHOW; the cluster log has the last whenever it changes, the rest is there as events of the nodes.

// picture is the cluster as the linked data node with the newest view sees it, and that node. A view with number 0 means
// that none runs. The caller holds mu.
func (s *Server) picture() (v view.View, at *nodeState) {
	for _, n := range s.nodes {
		if n != nil && n.link != nil && n.state.view != 0 && (at == nil || n.state.view > at.view) {
			at = &n.state
		}
	}
	if at == nil {
		return v, nil
	}
	var members []signal.Member
	president := uint32(0)
	for id := at.members.Next(0); id != 0; id = at.members.Next(id) {
		n := s.nodes[id]
		if n == nil || n.conf.Type != config.DataNode {
			continue
		}
		m := signal.Member{Node: uint32(id), Group: uint32(n.conf.NodeGroup), State: signal.MemberRecovering, LDMs: 1, TCs: 1}
		if at.serving.Has(id) {
			m.State = signal.MemberLeading
		}
		if n.link != nil && n.state.dynamicID != noNumber {
			m.DynamicID = n.state.dynamicID
		}
		members = append(members, m)
	}
	slices.SortStableFunc(members, func(a, b signal.Member) int { return int(a.DynamicID) - int(b.DynamicID) })
	if len(members) > 0 {
		president = members[0].Node
	}
	v.Take(at.view, president, members)
	return v, at
}

// dangers says what is wrong with the cluster although it runs: one line for each thing. The caller holds mu.
func (s *Server) dangers() (lines []string) {
	v, at := s.picture()
	if at == nil {
		return nil
	}
	return append(fatal(&v, at.arbitrator != 0), s.gaps(&v)...)
}

// gaps says who cannot reach whom. The caller holds mu.
func (s *Server) gaps(v *view.View) []string { return append(s.unlinked(v), s.deaf(v)...) }

// fatal says why the loss of one more data node would end the cluster; nothing if it would not.
func fatal(v *view.View, arbitrator bool) (why []string) {
	alone := map[uint32]string{}
	undecided := false
	for _, m := range v.Members {
		if m.State < signal.MemberFollowing {
			continue
		}
		part := v.ServingSet()
		part.Remove(uint8(m.Node))
		switch v.Weigh(&part) {
		case view.Lives:
		case view.Arbitrates:
			undecided = !arbitrator
		default:
			alone[m.Group] = fmt.Sprintf("node group %d has only node %d", m.Group, m.Node)
		}
	}
	const end = "The loss of one more data node may end the cluster: "
	for _, group := range slices.Sorted(maps.Keys(alone)) {
		why = append(why, alone[group])
	}
	if undecided {
		why = append(why, "there is no arbitrator, and the half that is left would need one")
	}
	if why == nil {
		return nil
	}
	return []string{end + strings.Join(why, ", ")}
}

// unlinked says which members of the cluster have no link to each other, or none to this server. The caller holds mu.
func (s *Server) unlinked(v *view.View) (lines []string) {
	for i, a := range v.Members {
		n := s.nodes[a.Node]
		if n.link == nil {
			lines = append(lines, fmt.Sprintf("Node %d is in the cluster, but has no link to management server %d", a.Node, s.own))
			continue
		}
		for _, b := range v.Members[i+1:] {
			o := s.nodes[b.Node]
			if o.link != nil && !(n.state.connected.Has(uint8(b.Node)) && o.state.connected.Has(uint8(a.Node))) {
				lines = append(lines, fmt.Sprintf("Nodes %d and %d have no link to each other", min(a.Node, b.Node), max(a.Node, b.Node)))
			}
		}
	}
	return lines
}

// deaf says which members do not hear others though they have a link. The caller holds mu.
func (s *Server) deaf(v *view.View) (lines []string) {
	for _, a := range v.Members {
		n := s.nodes[a.Node]
		if n.link == nil || n.state.hears.Empty() {
			continue // it does not say
		}
		for _, b := range v.Members {
			if b.Node != a.Node && n.state.connected.Has(uint8(b.Node)) && !n.state.hears.Has(uint8(b.Node)) {
				lines = append(lines, fmt.Sprintf("Node %d does not hear node %d", a.Node, b.Node))
			}
		}
	}
	return lines
}

func (s *Server) getClusterState(context.Context, *session, *wire.Request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, at := s.picture()
	b := wire.Begin("cluster state")
	arbitrator := uint8(0)
	if at != nil {
		arbitrator = at.arbitrator
	}
	b.Uint("view", v.Number).Int("members", int64(len(v.Members))).Uint("president", uint32(v.President)).
		Uint("arbitrator", uint32(arbitrator)).Uint("single_user", uint32(s.singleClient()))
	lines := s.dangers()
	b.Int("dangers", int64(len(lines)))
	for i, line := range lines {
		b.Field(fmt.Sprintf("danger.%d", i+1), line)
	}
	return reply(b)
}

// reconsider looks again, a moment later, who cannot reach whom: nodes tell of one change one after
// the other. The caller holds mu.
func (s *Server) reconsider() {
	s.signalChange()
	if s.considering || s.ending {
		return
	}
	s.considering = true
	time.AfterFunc(s.limits.Settle, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.considering = false
		v, _ := s.picture()
		now := s.gaps(&v)
		for _, line := range now {
			if !slices.Contains(s.warned, line) {
				s.note(event.Warning, "%s", line)
			}
		}
		for _, line := range s.warned {
			if !slices.Contains(now, line) {
				s.note(event.Note, "No longer so: %s", line)
			}
		}
		s.warned = now
	})
}
