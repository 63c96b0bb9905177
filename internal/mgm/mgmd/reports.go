package mgmd

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/frames"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/wire"
	"github.com/cohortdb/cohort/internal/signal"
)

// pageBytes is the size of a page of data memory.
const pageBytes = 32 << 10

// dumpEvents answers REPORT: it asks nodes how they are, or gives what it remembers of their events.
func (s *Server) dumpEvents(ctx context.Context, _ *session, r *wire.Request) answer {
	const header = "dump events reply"
	word, _ := r.Fields.Get("type")
	t, ok := parseType(word)
	if !ok {
		return bad(header, fmt.Sprintf("Events of type '%s' cannot be asked for: use MemoryUsage (%d), BackupStatus (%d) or SavedEvent (%d)",
			word, event.MemoryUsage, event.BackupStatus, event.SavedEvent))
	}
	nodes := s.linkedDataNodes()
	if list, given := r.Fields.Get("nodes"); given && strings.TrimSpace(list) != "" {
		if nodes, ok = ids(list); !ok {
			return bad(header, fmt.Sprintf("'%s' is no list of node ids", list))
		}
		if why := s.reportable(nodes, t); why != "" {
			return bad(header, why)
		}
	} else if t == event.SavedEvent {
		nodes = s.configured()
	}
	events, why := s.collect(ctx, t, nodes)
	if why != "" {
		return bad(header, why)
	}
	out := wire.Begin(header).Field("result", "Ok").Int("events", int64(len(events))).End()
	for _, m := range events {
		out = append(out, mgmclient.EventHeader+"\n"...)
		seconds := uint32(0)
		if !m.at.IsZero() {
			seconds = uint32(m.at.Unix())
		}
		out = append(m.event.AppendFields(out, seconds), '\n')
	}
	return answer{bytes: out}
}

// parseType reads the number or name of a type that can be asked for.
func parseType(word string) (event.Type, bool) {
	for _, t := range []event.Type{event.MemoryUsage, event.BackupStatus, event.SavedEvent} {
		if word == strconv.Itoa(int(t)) || strings.EqualFold(word, t.String()) {
			return t, true
		}
	}
	return 0, false
}

func (s *Server) configured() (nodes []uint8) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, n := range s.nodes {
		if n != nil {
			nodes = append(nodes, uint8(id))
		}
	}
	return nodes
}

// reportable says what is wrong with asking these nodes.
func (s *Server) reportable(nodes []uint8, t event.Type) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range nodes {
		if t == event.SavedEvent {
			if s.nodes[id] == nil {
				return fmt.Sprintf("There is no node %d in the configuration", id)
			}
			continue
		}
		n, why := s.dataNode(uint32(id))
		if why != "" {
			return why
		}
		if n.link == nil {
			return fmt.Sprintf("Node %d is not connected", id)
		}
	}
	return ""
}

// collect gets the events of a type.
func (s *Server) collect(ctx context.Context, t event.Type, nodes []uint8) ([]saved, string) {
	switch t {
	case event.SavedEvent:
		return s.events.remembered(nodes), ""
	case event.BackupStatus:
		// There are no backups yet, so none runs.
		var all []saved
		for _, id := range nodes {
			all = append(all, saved{event: event.New(id, event.BackupStatus)})
		}
		return all, ""
	}
	return s.memoryUsage(ctx, nodes)
}

// memoryUsage asks nodes for their pages.
func (s *Server) memoryUsage(ctx context.Context, nodes []uint8) ([]saved, string) {
	ctx, cancel := context.WithTimeout(ctx, s.limits.Answer)
	defer cancel()
	asks := map[uint8]*ask{}
	for _, l := range s.dataLinks() {
		ref, a := s.newAsk(l)
		defer s.endAsk(ref)
		for _, id := range nodes {
			if id == l.node && asks[id] == nil {
				asks[id] = a
				l.send(frames.Make(signal.NumReportReq, address(id, signal.BlockManager), address(s.own, signal.BlockMgm), "", func(r *signal.ReportReq) {
					r.Ref, r.Kind = ref, signal.ReportMemory
				}))
			}
		}
	}
	var all []saved
	for _, id := range nodes {
		a := asks[id]
		if a == nil {
			return nil, fmt.Sprintf("Node %d is not connected", id)
		}
		select {
		case b, ok := <-a.reply:
			if !ok {
				return nil, fmt.Sprintf("Node %d was lost before it answered", id)
			}
			c := frames.As[signal.ReportConf](frames.Head(b))
			all = append(all,
				saved{event: event.New(id, event.MemoryUsage, 0, pageBytes, c.DataPages, c.DataTotal, event.BlockDataMemory)},
				saved{event: event.New(id, event.MemoryUsage, 0, pageBytes, c.IndexPages, c.IndexTotal, event.BlockIndexMemory)})
		case <-ctx.Done():
			return nil, fmt.Sprintf("Node %d does not answer", id)
		}
	}
	return all, ""
}

// dumpState hands numbers to a data node.
func (s *Server) dumpState(ctx context.Context, _ *session, r *wire.Request) answer {
	const header = "dump state reply"
	list, _ := r.Fields.Get("args")
	var args [16]uint32
	count := 0
	for word := range strings.FieldsSeq(list) {
		n, err := strconv.ParseUint(word, 0, 32)
		if err != nil || count == len(args) {
			return bad(header, fmt.Sprintf("'%s' is no list of at most %d numbers", list, len(args)))
		}
		args[count] = uint32(n)
		count++
	}
	s.mu.Lock()
	n, why := s.dataNode(num(r, "node", 0))
	var l *link
	if n != nil {
		if l = n.link; l == nil {
			why = fmt.Sprintf("Node %d is not connected", n.conf.ID)
		}
	}
	s.mu.Unlock()
	if why == "" && count == 0 {
		why = "DUMP needs a number"
	}
	if why != "" {
		return bad(header, why)
	}
	if args[0] == dumpTransactions || args[0] == dumpLocks {
		if why := s.dumpList(ctx, l.node, args[0]); why != "" {
			return bad(header, why)
		}
		return reply(wire.Begin(header).Field("result", "Ok"))
	}
	err := l.send(frames.Make(signal.NumDumpOrd, address(l.node, signal.BlockManager), address(s.own, signal.BlockMgm), "", func(o *signal.DumpOrd) {
		o.Args, o.N = args, uint32(count)
	}))
	if err != nil {
		return bad(header, fmt.Sprintf("Node %d is gone: %v", l.node, err))
	}
	return reply(wire.Begin(header).Field("result", "Ok"))
}
