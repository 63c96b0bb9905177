// Package mgmd is the management server: it hands out the configuration and node ids, knows the ports and states of all
// nodes, stops and starts them when asked, writes the cluster log, and passes events on.
//
// Everybody speaks to it in the text protocol of package wire, one session per connection. A node that has its id and
// configuration makes a connection a link ("transporter connect"); from then on it carries signals, by which the server
// learns of states and events and sends its orders. Running nodes and clients need no management server: killing it
// stops nothing, and one that is started again learns the state from the links that come back.
//
// The package owns the table of nodes, the leases of node ids, the sessions and their limits, and the decision which
// events reach the cluster log and which listeners. It opens no files but by package configstore, and knows nothing of
// rows or transactions. Invariants: one node id has at most one holder (a session, a link, a holder at
// another management server, or a node that other nodes have a link to); whatever arrives on a connection can end that connection, and nothing else; no reply waits for a
// client that does not read.
//
// Several servers of a cluster work side by side: they hold one configuration and give no id away twice, as long as they
// reach each other.
//
// Read next: session.go (a connection's life), commands.go (the table of commands), nodeid.go (who gets which id),
// peer.go and agree.go (other management servers), link.go (the signal side), stop.go.
package mgmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"math/rand/v2"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/clusterlog"
	"github.com/cohortdb/cohort/internal/mgm/configstore"
	"github.com/cohortdb/cohort/internal/version"
)

// Limits protect the server from its clients.
type Limits struct {
	Sessions int           // most connections at once
	Idle     time.Duration // how long a session that holds no node id may say nothing
	Request  time.Duration // how long a request may take from its first line to its empty one
	Write    time.Duration // how long a client may take to read an answer
	Ping     time.Duration // pause between signs of life on a stream of events
	Answer   time.Duration // how long a node may take to answer a signal
	Stop     time.Duration // how long nodes may take to stop
	Settle   time.Duration // how long a change of the cluster may take to be told by all nodes
	Lease    time.Duration // how long what another management server held stays held when it is gone
	Meet     time.Duration // how long other management servers may take to tell what they hold, before ids are given out
}

// DefaultLimits fit clusters of 255 nodes with a tool or two open at each.
var DefaultLimits = Limits{Sessions: 1000, Idle: 10 * time.Minute, Request: 30 * time.Second, Write: 30 * time.Second, Ping: 10 * time.Second,
	Answer: 5 * time.Second, Stop: 2 * time.Minute, Settle: time.Second, Lease: 10 * time.Second, Meet: 5 * time.Second}

// Options are what a server works with.
type Options struct {
	Config *config.Config
	NodeID int
	// Store keeps configurations; nil keeps none.
	Store *configstore.Store
	// Read reads a configuration file for reload config; an empty name means the one of the command line.
	Read func(file string, mycnf bool) (*config.Config, []config.Warning, error)
	Log  *clusterlog.Log
	// Notes takes one line for every connection that was closed because of what came over it, and the like.
	Notes  io.Writer
	Limits Limits
}

// Server is a management server.
type Server struct {
	own    uint8 // node id
	opts   Options
	limits Limits
	secret uint64 // of this run, for links
	events *pump
	arbit  *arbitration

	mu       sync.Mutex
	conf     *config.Config
	raw      []byte // conf in binary form
	nodes    [256]*node
	sessions map[uint64]*session
	lastID   uint64        // of sessions
	changed  chan struct{} // closed and replaced when anything of a node changes
	asks     map[uint32]*ask
	lastRef  uint32
	ending   bool      // no new sessions or links
	fullSaid time.Time // when the log last had that a connection was one too many
	stop     context.CancelCauseFunc
	listen   net.Addr
	busy     sync.WaitGroup // sessions

	peers    map[uint8]*peer // other management servers of the configuration, while serving
	prepared *prepared       // a configuration that waits for its commit
	context  context.Context // of Serve; nil before
	began    time.Time
	waitTill time.Time // until then no id is given out before the others have told theirs

	considering bool     // gaps are looked for in a moment
	warned      []string // those that the cluster log has
}

// ErrStopped is why Serve ends when a client stopped the server.
var ErrStopped = errors.New("stopped by a client")

// New makes a server of a configuration.
func New(o Options) (*Server, error) {
	if o.Limits == (Limits{}) {
		o.Limits = DefaultLimits
	}
	s := &Server{own: uint8(o.NodeID), opts: o, limits: o.Limits, secret: rand.Uint64() | 1, sessions: map[uint64]*session{},
		changed: make(chan struct{}), asks: map[uint32]*ask{}, peers: map[uint8]*peer{}, began: time.Now()}
	if err := s.setConfig(o.Config); err != nil {
		return nil, err
	}
	if n := s.nodes[s.own]; n == nil || n.conf.Type != config.ManagementNode {
		return nil, fmt.Errorf("node %d is no management server in this configuration: correct --ndb-nodeid or the [ndb_mgmd] section", o.NodeID)
	}
	s.nodes[s.own].version = version.Number
	s.events = newPump(s)
	s.arbit = newArbitration(s, time.Duration(s.nodes[s.own].conf.Int("ArbitrationDelay"))*time.Millisecond)
	return s, nil
}

// Serve answers on a listener until the context ends, a client stops the server, or the listener fails. It returns when
// every session is closed and every event written.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, stop := context.WithCancelCause(ctx)
	s.mu.Lock()
	s.stop, s.listen, s.context, s.waitTill = stop, l.Addr(), ctx, time.Now().Add(s.limits.Meet)
	s.refreshPeers()
	s.mu.Unlock()
	closed := context.AfterFunc(ctx, func() { l.Close() })
	defer closed()
	s.note(event.Note, "Management server %d started, version %s", s.own, version.Text(version.Number))

	pause := time.Millisecond
	var err error
	for {
		conn, acceptErr := l.Accept()
		if acceptErr == nil {
			pause = time.Millisecond
			s.open(ctx, conn)
			continue
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
			break
		}
		if errors.Is(acceptErr, net.ErrClosed) {
			err = acceptErr
			break
		}
		// Out of file descriptors, most likely: it passes when sessions end.
		s.note(event.Warning, "A connection could not be taken: %v", acceptErr)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Second)
	}
	stop(err)
	s.closeAll()
	s.busy.Wait()
	s.note(event.Note, "Management server %d stops: %v", s.own, err)
	s.events.close()
	return err
}

// closeAll ends every session and link.
func (s *Server) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	for _, p := range s.peers {
		p.cancel()
	}
	for _, ss := range s.sessions {
		ss.conn.Close()
	}
	s.signalChange()
}

// Note makes an entry of the server's own in the cluster log.
func (s *Server) Note(severity event.Severity, text string) { s.note(severity, "%s", text) }

// note makes an entry of the server's own in the cluster log.
func (s *Server) note(severity event.Severity, format string, args ...any) {
	t := event.InfoEvent
	if severity >= event.Warning {
		t = event.WarningEvent
	}
	s.report(event.New(s.own, t).WithText(fmt.Sprintf(format, args...)))
}

// report hands an event to the cluster log and to listeners. It never waits.
func (s *Server) report(e event.Event) { s.events.offer(e) }

// signalChange wakes everybody who waits for a node's state. The caller holds mu.
func (s *Server) signalChange() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// await waits until done, called with mu held, is true; it returns false when the context ends first.
func (s *Server) await(ctx context.Context, done func() bool) bool {
	for {
		s.mu.Lock()
		ok, changed := done(), s.changed
		s.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}
