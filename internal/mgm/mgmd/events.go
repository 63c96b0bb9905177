package mgmd

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/clusterlog"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/wire"
)

// savedMax is how many events the server remembers for REPORT EVENTLOG.
const savedMax = 2000

// pumpRoom is how many events may wait for the cluster log; a burst beyond it is counted and lost. ownRoom of it is for
// the server's own entries, which no node's burst may push out.
const (
	pumpRoom = 4096
	ownRoom  = 512
)

// listenerRoom is how many events may wait for a listener before it is cut off.
const listenerRoom = 1000

// saved is a remembered event.
type saved struct {
	event event.Event
	at    time.Time
}

// pump takes events from everywhere, without ever waiting, and brings them in their order to the cluster log, to
// listeners, and into memory.
type pump struct {
	server *Server
	in     chan event.Event
	done   chan struct{}

	mu        sync.Mutex
	closed    bool
	lost      int // events that found no room since the last one that did
	levels    map[uint8]*event.Levels
	listeners map[*listener]struct{}
	memory    []saved // the newest savedMax, oldest first
}

// listener is a session that wants events.
type listener struct {
	node     uint8 // of whom, 0: of all
	levels   event.Levels
	parsable bool
	events   chan event.Event
	cutOff   chan struct{} // closed when events found no room
}

func newPump(s *Server) *pump {
	p := &pump{server: s, in: make(chan event.Event, pumpRoom), done: make(chan struct{}), levels: map[uint8]*event.Levels{}, listeners: map[*listener]struct{}{}}
	go p.run()
	return p
}

// offer takes an event.
func (p *pump) offer(e event.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	if p.lost > 0 && len(p.in) < cap(p.in)/2 {
		p.in <- event.New(p.server.own, event.WarningEvent).WithText(fmt.Sprintf("%d events were lost: the cluster log is written too slowly", p.lost))
		p.lost = 0
	}
	room := cap(p.in)
	if e.Node != p.server.own {
		room -= ownRoom
	}
	if len(p.in) >= room {
		p.lost++
		return
	}
	p.in <- e // there is room, and nobody else puts anything in
}

// close writes what was offered and ends.
func (p *pump) close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.in)
	}
	p.mu.Unlock()
	<-p.done
}

func (p *pump) run() {
	defer close(p.done)
	for e := range p.in {
		info := e.Info()
		p.mu.Lock()
		toLog := p.levelsOf(e.Node).Admits(info.Category, info.Level)
		if len(p.memory) == savedMax {
			p.memory = slices.Delete(p.memory, 0, savedMax/4)
		}
		p.memory = append(p.memory, saved{e, time.Now()})
		for l := range p.listeners {
			if (l.node == 0 || l.node == e.Node) && l.levels.Admits(info.Category, info.Level) {
				p.give(l, e)
			}
		}
		p.mu.Unlock()
		if toLog {
			p.server.opts.Log.Write(info.Severity, e.String())
		}
	}
}

// give hands an event to a listener. The caller holds mu.
func (p *pump) give(l *listener, e event.Event) {
	select {
	case l.events <- e:
	default:
		close(l.cutOff)
		delete(p.listeners, l)
	}
}

// levelsOf are the levels at which a node's events reach the cluster log. The caller holds mu.
func (p *pump) levelsOf(node uint8) *event.Levels {
	if p.levels[node] == nil {
		levels := event.DefaultLevels()
		p.levels[node] = &levels
	}
	return p.levels[node]
}

// wanted is what a node must report so that the cluster log and every listener get what they want.
func (p *pump) wanted(node uint8) event.Levels {
	p.mu.Lock()
	defer p.mu.Unlock()
	levels := *p.levelsOf(node)
	for l := range p.listeners {
		if l.node == 0 || l.node == node {
			levels.Raise(&l.levels)
		}
	}
	return levels
}

func (p *pump) add(l *listener) {
	p.mu.Lock()
	p.listeners[l] = struct{}{}
	p.mu.Unlock()
	p.server.subscribeAll()
}

func (p *pump) remove(l *listener) {
	p.mu.Lock()
	delete(p.listeners, l)
	p.mu.Unlock()
	p.server.subscribeAll()
}

// remembered are the events of some nodes, oldest first.
func (p *pump) remembered(nodes []uint8) (all []saved) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.memory {
		if slices.Contains(nodes, m.event.Node) {
			all = append(all, m)
		}
	}
	return all
}

// listenEvent makes the session a stream of events.
func (s *Server) listenEvent(_ context.Context, _ *session, r *wire.Request) answer {
	const header = "listen event"
	refuse := func(text string) answer {
		return reply(wire.Begin(header).Int("result", -1).Field("msg", text))
	}
	l := &listener{parsable: flag(r, "parsable"), events: make(chan event.Event, listenerRoom), cutOff: make(chan struct{})}
	node := num(r, "node", 0)
	s.mu.Lock()
	known := node <= 255 && (node == 0 || s.nodes[node] != nil)
	s.mu.Unlock()
	if !known {
		return refuse(fmt.Sprintf("There is no node %d in the configuration", node))
	}
	l.node = uint8(node)
	filter, _ := r.Fields.Get("filter")
	for pair := range strings.FieldsFuncSeq(filter, func(c rune) bool { return c == ' ' || c == ',' }) {
		category, level, ok := parseFilter(pair)
		if !ok {
			return refuse(fmt.Sprintf("'%s' is not LEVEL=CATEGORY with a level from 0 to %d", pair, event.LevelMax))
		}
		l.levels[category] = max(l.levels[category], level)
	}
	a := reply(wire.Begin(header).Int("result", 0))
	a.next, a.stream = becomeStream, l
	return a
}

// parseFilter reads LEVEL=CATEGORY; CATEGORY=LEVEL, with a category by name, will do as well.
func parseFilter(pair string) (event.Category, uint8, bool) {
	first, second, found := strings.Cut(pair, "=")
	if !found {
		first, second, found = strings.Cut(pair, ":")
	}
	if !found {
		return 0, 0, false
	}
	if category, ok := event.ParseCategory(second); ok {
		level, ok := parseLevel(first)
		return category, level, ok
	}
	category, ok := event.ParseCategory(first)
	level, levelOK := parseLevel(second)
	return category, level, ok && levelOK
}

func parseLevel(text string) (uint8, bool) {
	n, err := strconv.ParseUint(text, 10, 8)
	return uint8(n), err == nil && n <= event.LevelMax
}

// stream sends events until the client goes away or does not read.
func (ss *session) stream(ctx context.Context, l *listener) (reason string) {
	s := ss.server
	s.mu.Lock()
	ss.mode = "events"
	s.mu.Unlock()

	gone := make(chan struct{})
	go func() {
		defer close(gone)
		ss.conn.SetReadDeadline(time.Time{})
		for {
			// Whatever a listener says is of no interest; that it is gone is.
			if _, err := ss.reader.Line(); err != nil {
				return
			}
		}
	}()
	defer func() {
		ss.conn.SetReadDeadline(time.Unix(1, 0))
		<-gone
	}()
	ping := time.NewTicker(s.limits.Ping)
	defer ping.Stop()
	for {
		var out []byte
		select {
		case <-ctx.Done():
			return ""
		case <-gone:
			return ""
		case <-l.cutOff:
			return fmt.Sprintf("it did not read %d events in time", listenerRoom)
		case <-ping.C:
			out = []byte(mgmclient.Ping + "\n")
		case e := <-l.events:
			out = l.format(e)
		}
		if err := ss.write(out); err != nil {
			if os.IsTimeout(err) {
				return "it does not read its events"
			}
			return ""
		}
	}
}

func (l *listener) format(e event.Event) []byte {
	if !l.parsable {
		return []byte(e.String() + "\n")
	}
	out := []byte(mgmclient.EventHeader + "\n")
	return append(e.AppendFields(out, 0), '\n')
}

func (s *Server) getInfoClusterlog(context.Context, *session, *wire.Request) answer {
	f := s.opts.Log.Filter()
	b := wire.Begin("clusterlog").Bool("enabled", f.On)
	for severity := event.Debug; severity <= event.Alert; severity++ {
		b.Bool(strings.ToLower(severity.String()), f.Passes[severity])
	}
	return reply(b)
}

func (s *Server) setLogFilter(_ context.Context, _ *session, r *wire.Request) answer {
	text, _ := r.Fields.Get("enable")
	change, err := strconv.Atoi(text)
	if err != nil || change < -1 || change > 1 {
		return bad("set logfilter reply", "enable is 1, 0 or -1 to toggle")
	}
	if !s.opts.Log.SetFilter(int(min(num(r, "level", 0), 100)), clusterlog.Change(change)) {
		return bad("set logfilter reply", "level is 0 for the whole log, 1 (DEBUG) to 6 (ALERT), or 7 for all")
	}
	return reply(wire.Begin("set logfilter reply").Int("result", 1))
}

// getClusterLogLevel tells the levels of the first data node; they differ between nodes only if somebody made them.
func (s *Server) getClusterLogLevel(context.Context, *session, *wire.Request) answer {
	s.mu.Lock()
	first := s.own
	for _, n := range s.nodes {
		if n != nil && n.conf.Type == config.DataNode {
			first = uint8(n.conf.ID)
			break
		}
	}
	s.mu.Unlock()
	s.events.mu.Lock()
	levels := *s.events.levelsOf(first)
	s.events.mu.Unlock()
	b := wire.Begin("get cluster loglevel")
	for category := range event.NumCategories {
		b.Uint(strings.ToLower(category.String()), uint32(levels[category]))
	}
	return reply(b)
}

func (s *Server) setClusterLogLevel(_ context.Context, _ *session, r *wire.Request) answer {
	header := r.Command + " reply"
	word, _ := r.Fields.Get("category")
	category, ok := event.ParseCategory(word)
	if !ok {
		return bad(header, fmt.Sprintf("There is no event category '%s'", word))
	}
	level, node := num(r, "level", 0), num(r, "node", 0)
	if level > event.LevelMax {
		return bad(header, fmt.Sprintf("A level is a number from 0 to %d, not %d", event.LevelMax, level))
	}
	s.mu.Lock()
	var targets []uint8
	for id, n := range s.nodes {
		if n != nil && (node == 0 && n.conf.Type != config.APINode || int(node) == id) {
			targets = append(targets, uint8(id))
		}
	}
	s.mu.Unlock()
	if len(targets) == 0 {
		return bad(header, fmt.Sprintf("There is no node %d in the configuration", node))
	}
	s.events.mu.Lock()
	for _, id := range targets {
		s.events.levelsOf(id)[category] = uint8(level)
	}
	s.events.mu.Unlock()
	s.subscribeAll()
	return reply(wire.Begin(header).Field("result", "Ok"))
}
