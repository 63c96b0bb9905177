package mgmclient

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/wire"
)

// EventStream is a session that has become a stream of events.
type EventStream struct {
	conn   net.Conn
	reader *wire.Reader
}

// silence is how long a stream may be quiet: the server sends a sign of life far more often.
const silence = 60 * time.Second

// ListenEvents turns the session into a stream of the events that levels admit. The Client is of no further use.
func (c *Client) ListenEvents(ctx context.Context, levels event.Levels) (*EventStream, error) {
	var pairs []string
	for category, level := range levels {
		if level > 0 {
			pairs = append(pairs, fmt.Sprintf("%d=%d", level, category+event.WireBase))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	request := wire.Begin("listen event").Bool("parsable", true).Field("filter", strings.Join(pairs, " "))
	reply, err := c.exchange(ctx, request.End())
	if err != nil {
		return nil, err
	}
	// This command says 0 where others say Ok.
	if reply.Header != "listen event" || reply.Result() != "0" {
		text, ok := reply.Fields.Get("msg")
		if !ok {
			text = reply.Result()
		}
		return nil, &Refusal{Command: "listen event", Text: text}
	}
	c.broken = fmt.Errorf("%w: it became a stream of events", ErrGone)
	return &EventStream{conn: c.conn, reader: c.reader}, nil
}

// Next waits for the next event.
func (s *EventStream) Next() (event.Event, error) {
	for {
		if err := s.conn.SetReadDeadline(time.Now().Add(silence)); err != nil {
			return event.Event{}, err
		}
		line, err := s.reader.Line()
		if err != nil {
			return event.Event{}, fmt.Errorf("%w: %w", ErrGone, err)
		}
		switch line {
		case "", Ping:
			continue
		case EventHeader:
		default:
			return event.Event{}, fmt.Errorf("%w: the stream of events has a line %q", ErrGone, line)
		}
		e, _, err := readEvent(s.reader)
		return e, err
	}
}

// Close ends the stream; a Next that waits returns with an error.
func (s *EventStream) Close() error { return s.conn.Close() }

// What stands between events in a stream.
const (
	EventHeader = "log event reply"
	Ping        = "<PING>"
)

// readEvent reads the lines of one event up to the empty one.
func readEvent(r *wire.Reader) (event.Event, uint32, error) {
	var lines []string
	for {
		line, err := r.Line()
		if err != nil {
			return event.Event{}, 0, fmt.Errorf("%w: %w", ErrGone, err)
		}
		if line == "" {
			break
		}
		if lines = append(lines, line); len(lines) > 4*event.ArgsMax {
			return event.Event{}, 0, fmt.Errorf("%w: an event has no end", ErrGone)
		}
	}
	return event.ParseFields(lines)
}

// Dumped is an event that a server had or fetched when asked.
type Dumped struct {
	Event   event.Event
	Seconds uint32 // since 1970; 0: now
}

// DumpEvents asks nodes for their events of a type: MemoryUsage, BackupStatus, or SavedEvent for what the server
// remembers of everything they reported. No nodes means all data nodes.
func (c *Client) DumpEvents(ctx context.Context, t event.Type, nodes []int) ([]Dumped, error) {
	b := wire.Begin("dump events").Uint("type", uint32(t))
	if len(nodes) > 0 {
		b.Field("nodes", nodeList(nodes))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	reply, err := c.callLocked(ctx, "dump events reply", b.End())
	if err != nil {
		return nil, err
	}
	count, err := reply.Fields.Uint("events", 0)
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	defer c.watch(ctx)()
	var all []Dumped
	for range count {
		header, err := c.reader.Line()
		if err == nil && header != EventHeader {
			err = fmt.Errorf("a line %q stands where an event should begin", header)
		}
		if err != nil {
			return nil, c.fail(ctx, err)
		}
		e, seconds, err := readEvent(c.reader)
		if err != nil {
			return nil, c.fail(ctx, err)
		}
		all = append(all, Dumped{e, seconds})
	}
	return all, nil
}
