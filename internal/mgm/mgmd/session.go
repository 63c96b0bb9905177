package mgmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/wire"
)

// session is one connection, from its opening to its end, whatever it becomes in between.
type session struct {
	server *Server
	id     uint64
	conn   net.Conn
	reader *wire.Reader
	peer   netip.Addr
	since  time.Time

	// Under the server's mu.
	name    string // who it is, as it says itself
	held    uint8  // node id that it holds, 0: none
	command string // the newest command
	used    time.Time
	mode    string // "text", "events" or "link"
	idle    bool   // it waits for its client: to read an answer or to give a command
	ousted  bool   // it was closed to make room for another
	peerOf  uint8  // the management server that it belongs to, 0: none

	version uint32 // of the client's program, from set clientversion; only the session's goroutine touches it
}

// next is what becomes of a session after a command.
type next int

const (
	goOn         next = iota // read the next command
	closeSession             // the client is done
	becomeStream             // events from here on
	becomeLink               // signals from here on
	stopServer               // the server ends
)

// answer is a handler's result: bytes to send and what becomes of the session.
type answer struct {
	bytes  []byte
	next   next
	stream *listener // for becomeStream
}

func reply(b *wire.Builder) answer { return answer{bytes: b.End()} }

// fullPause keeps refused connections from filling the cluster log.
const fullPause = 10 * time.Second

// open starts a session. Where there are too many, one that holds nothing and says nothing makes room; if there is none,
// the new one is refused.
func (s *Server) open(ctx context.Context, conn net.Conn) {
	ss := &session{server: s, conn: conn, reader: wire.NewReader(conn, wire.RequestLimits), since: time.Now(), used: time.Now(), mode: "text", idle: true}
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		ss.peer = a.AddrPort().Addr().Unmap()
	}
	s.mu.Lock()
	full := len(s.sessions) >= s.limits.Sessions
	crowded := full
	if full && !s.ending {
		full = !s.oust()
	}
	if !full && !s.ending {
		s.lastID++
		ss.id = s.lastID
		s.sessions[ss.id] = ss
		s.busy.Add(1)
	}
	ending := s.ending
	say := crowded && time.Since(s.fullSaid) > fullPause
	if say {
		s.fullSaid = time.Now()
	}
	s.mu.Unlock()
	switch {
	case !say:
	case full:
		s.note(event.Warning, "A connection from %s was refused: %d sessions are open; PURGE STALE SESSIONS or close some", ss.peer, s.limits.Sessions)
	default:
		s.note(event.Warning, "%d sessions are open: those that say nothing are closed for new ones; LIST SESSIONS shows whose they are", s.limits.Sessions)
	}
	if full || ending {
		conn.SetWriteDeadline(time.Now().Add(time.Second))
		conn.Write(wire.Refusal("Too many sessions"))
		conn.Close()
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		// A holder of a node id whose machine is gone is noticed within seconds, so that it can come back elsewhere.
		tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 3 * time.Second, Interval: time.Second, Count: 3})
		unconfirmed(tcp, 6000)
	}
	go func() {
		defer s.busy.Done()
		reason := ss.run(ctx)
		conn.Close()
		s.end(ss, reason)
	}()
}

// oust closes the session that has waited longest for its client without holding a node id, one that never gave a command
// before one that did. False: there is none. The caller holds mu.
func (s *Server) oust() bool {
	var worst *session
	for _, ss := range s.sessions {
		if !ss.idle || ss.held != 0 || ss.peerOf != 0 {
			continue
		}
		if worst == nil || ss.command == "" && worst.command != "" || (ss.command == "") == (worst.command == "") && ss.used.Before(worst.used) {
			worst = ss
		}
	}
	if worst == nil {
		return false
	}
	worst.ousted = true
	worst.conn.Close()
	delete(s.sessions, worst.id)
	return true
}

// run serves the connection and says why it ended; an empty reason needs no word.
func (ss *session) run(ctx context.Context) (reason string) {
	for {
		request, err := ss.read()
		if err != nil {
			return ss.explain(err)
		}
		ss.server.mu.Lock()
		ss.command, ss.used, ss.idle = request.Command, time.Now(), false
		ousted := ss.ousted
		ss.server.mu.Unlock()
		if ousted {
			return ""
		}
		a := ss.server.execute(ctx, ss, request)
		if a.next == goOn {
			ss.server.mu.Lock()
			ss.used, ss.idle = time.Now(), true
			ss.server.mu.Unlock()
		}
		if a.stream != nil {
			// Before the answer: whoever has it may rely on hearing all that happens from then on.
			ss.server.events.add(a.stream)
			defer ss.server.events.remove(a.stream)
		}
		if err := ss.write(a.bytes); err != nil {
			if errors.Is(err, net.ErrClosed) {
				return ""
			}
			return fmt.Sprintf("it did not read the answer to %q (%v)", request.Command, err)
		}
		switch a.next {
		case closeSession:
			return ""
		case becomeStream:
			return ss.stream(ctx, a.stream)
		case becomeLink:
			return ss.link()
		case stopServer:
			ss.server.stop(ErrStopped)
			return ""
		}
	}
}

// read reads the next request within the limits of time.
func (ss *session) read() (*wire.Request, error) {
	ss.server.mu.Lock()
	kept := ss.held != 0 || ss.peerOf != 0
	ss.server.mu.Unlock()
	deadline := time.Time{}
	if !kept {
		deadline = time.Now().Add(ss.server.limits.Idle)
	}
	if err := ss.conn.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	command, err := ss.reader.Command()
	if err != nil {
		return nil, err
	}
	if err := ss.conn.SetReadDeadline(time.Now().Add(ss.server.limits.Request)); err != nil {
		return nil, err
	}
	return ss.reader.Finish(command)
}

func (ss *session) write(bytes []byte) error {
	if len(bytes) == 0 {
		return nil
	}
	if err := ss.conn.SetWriteDeadline(time.Now().Add(ss.server.limits.Write)); err != nil {
		return err
	}
	_, err := ss.conn.Write(bytes)
	return err
}

// explain says why a connection is closed, or nothing where its client simply went away.
func (ss *session) explain(err error) string {
	var malformed *wire.Error
	switch {
	case errors.As(err, &malformed):
		return malformed.Reason
	case errors.Is(err, os.ErrDeadlineExceeded):
		return idleReason
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		return ""
	}
	return err.Error()
}

// idleReason is why a session ends that is of no use to anybody; it is no fault.
const idleReason = "it said nothing for too long"

// end forgets a session, frees what it held, and logs the reason if there is one.
func (s *Server) end(ss *session, reason string) {
	s.mu.Lock()
	delete(s.sessions, ss.id)
	s.releaseHolder(ss)
	if p := s.peers[ss.peerOf]; p != nil && p.from == ss {
		p.from = nil
		s.forgetPrepared(p.id)
		if !s.ending {
			s.expire(p)
			p.wake() // it may be gone
		}
	}
	s.mu.Unlock()
	switch reason {
	case "":
		return
	case idleReason:
		s.note(event.Note, "Connection from %s closed: %s", ss.peer, reason)
		return
	}
	s.note(event.Warning, "Connection from %s closed: %s", ss.peer, reason)
	if s.opts.Notes != nil {
		fmt.Fprintf(s.opts.Notes, "ndb_mgmd: connection from %s closed: %s\n", ss.peer, reason)
	}
}
