// Package mgmclient speaks to a management server: it is what data nodes, API nodes and tools use to get a node id, the
// configuration, the ports of others, the state of the cluster, and to ask for something to be done.
//
// A Client is one session. A node keeps its Client open as long as it lives: the session holds its node id until the
// node has a link to the server (data nodes), or for as long as there is no other proof that it lives (API nodes). The
// usual order for a data node:
//
//	c, err := mgmclient.Connect(ctx, connectString, mgmclient.Options{Name: "ndbmtd"})
//	id, err := c.GetNodeID(ctx, mgmclient.NodeIDRequest{Type: config.DataNode, NodeID: wanted, Secret: secret})
//	conf, err := c.GetConfig(ctx, id)
//	err = c.SetPort(ctx, id, port)              // the port on which it listens for other nodes
//	conn, err := c.ConvertToTransporter(ctx)    // from here on a link: Hello with Secret, then signals
//
// The package owns the session's bytes and nothing of the cluster's state. It never retries by itself, but for Connect
// where Options say so; it never logs. Invariants: calls of one Client are answered in order, one at a time; after an
// error that is not a *Refusal the session is gone and every later call says so; whatever a server sends, a call gives
// a result or an error, never a panic.
//
// Read next: node.go (what nodes ask), status.go (what operators ask), events.go (the stream of events).
package mgmclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/wire"
	"github.com/cohortdb/cohort/internal/version"
)

// Options are how to connect.
type Options struct {
	// Name says who is connecting; it shows in the server's list of sessions and in its log.
	Name string
	// Retries is how often all hosts are tried again after the first time; negative: until the context ends.
	Retries int
	// RetryDelay is the pause between tries; 0 means one second.
	RetryDelay time.Duration
	// Timeout is how long to wait for one host; 0 means three seconds.
	Timeout time.Duration
}

// Client is a session with a management server.
type Client struct {
	mu     sync.Mutex
	conn   net.Conn
	reader *wire.Reader
	broken error // why the session is gone, nil while it lives

	target config.ConnectString
	server int // its place among the target's
	opts   Options
}

// ErrGone is in the chain of every error that says that the session is gone: connect anew.
var ErrGone = errors.New("the session with the management server is gone")

// Refusal is a server's answer that it will not or cannot do what was asked. The session goes on.
type Refusal struct {
	Command string
	Text    string // the result line
	Code    int    // NDB's number for the refusal where the server gives one, else 0
}

func (r *Refusal) Error() string { return r.Text }

// Connect opens a session with the first management server of the connect string that answers. An empty connect string
// is localhost:1186.
func Connect(ctx context.Context, connectString string, opts Options) (*Client, error) {
	target, err := config.ParseConnectString(connectString)
	if err != nil {
		return nil, err
	}
	return ConnectTo(ctx, target, opts)
}

// ConnectTo does the same with a connect string that is read already.
func ConnectTo(ctx context.Context, target config.ConnectString, opts Options) (*Client, error) {
	if opts.RetryDelay == 0 {
		opts.RetryDelay = time.Second
	}
	if opts.Timeout == 0 {
		opts.Timeout = 3 * time.Second
	}
	var before error // of the try before: the last one may have been cut short, which tells nothing about the server
	for try := 0; ; try++ {
		c, err := tryAll(ctx, target, opts)
		if err == nil {
			return c, nil
		}
		if over(ctx) && before != nil {
			return nil, before
		}
		before = err
		if opts.Retries >= 0 && try >= opts.Retries || over(ctx) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(opts.RetryDelay):
		}
	}
}

// over reports whether the context has ended. Package net ends a dial at the deadline, which may be a moment before the
// context itself does.
func over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

func tryAll(ctx context.Context, target config.ConnectString, opts Options) (*Client, error) {
	var reasons []string
	for i := range target.Servers {
		c, err := tryOne(ctx, target, i, opts)
		if err == nil {
			return c, nil
		}
		var op *net.OpError
		if errors.As(err, &op) && op.Err != nil {
			err = op.Err
		}
		reasons = append(reasons, fmt.Sprintf("%s (%v)", target.Servers[i], err))
	}
	return nil, fmt.Errorf("no management server answers at %s: start one or correct the connect string", strings.Join(reasons, ", "))
}

// tryOne opens a session with the i-th server of the connect string.
func tryOne(ctx context.Context, target config.ConnectString, i int, opts Options) (*Client, error) {
	ctx, cancel := context.WithTimeout(ctx, opts.Timeout)
	defer cancel()
	dialer := net.Dialer{}
	if bind := target.Binds[i]; bind.Host != "" {
		local, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(bind.Host, strconv.Itoa(bind.Port)))
		if err != nil {
			return nil, err
		}
		dialer.LocalAddr = local
	}
	server := target.Servers[i]
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(server.Host, strconv.Itoa(server.Port)))
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn, reader: wire.NewReader(conn, wire.ReplyLimits), target: target, server: i, opts: opts}
	// Whoever answers this is a management server; another program on that port is not.
	b := wire.Begin("set clientversion").Uint("major", version.Major).Uint("minor", version.Minor).Uint("build", version.Build)
	if opts.Name != "" {
		b.Field("name", opts.Name)
	}
	if _, err := c.call(ctx, "set clientversion reply", b); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Addr is the server's host:port as the connect string has it.
func (c *Client) Addr() string { return c.target.Servers[c.server].String() }

// Target is what the client was told to connect to.
func (c *Client) Target() config.ConnectString { return c.target }

// RemoteHost is the address of the server that answered.
func (c *Client) RemoteHost() string {
	host, _, err := net.SplitHostPort(c.conn.RemoteAddr().String())
	if err != nil {
		return ""
	}
	return host
}

// Exchange sends a request that is written already, with a body if it has one, and gives the answer with that header.
func (c *Client) Exchange(ctx context.Context, header string, request []byte) (*wire.Reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.callLocked(ctx, header, request)
}

// Another opens a further session with the same server.
func (c *Client) Another(ctx context.Context) (*Client, error) {
	return tryOne(ctx, c.target, c.server, c.opts)
}

// Close ends the session.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return nil
	}
	c.broken = fmt.Errorf("%w: it was closed here", ErrGone)
	return c.conn.Close()
}

// Alive reports whether the session can be used, as far as is known without asking the server.
func (c *Client) Alive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken == nil
}

// exchange sends a request and reads the head of the reply. The caller holds mu.
func (c *Client) exchange(ctx context.Context, request []byte) (*wire.Reply, error) {
	if c.broken != nil {
		return nil, c.broken
	}
	defer c.watch(ctx)()
	if _, err := c.conn.Write(request); err != nil {
		return nil, c.fail(ctx, err)
	}
	reply, err := c.reader.Reply()
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	return reply, nil
}

// watch makes the end of the context end the connection's reads and writes; what it returns stops that.
func (c *Client) watch(ctx context.Context) (stop func()) {
	if deadline, ok := ctx.Deadline(); ok {
		c.conn.SetDeadline(deadline)
	} else {
		c.conn.SetDeadline(time.Time{})
	}
	finished := make(chan struct{})
	stopped := context.AfterFunc(ctx, func() {
		c.conn.SetDeadline(time.Unix(1, 0))
		close(finished)
	})
	return func() {
		if !stopped() {
			<-finished // else a later deadline could be overwritten by this one
		}
	}
}

// fail closes the connection: after half an exchange nothing on it can be trusted.
func (c *Client) fail(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	c.broken = fmt.Errorf("%w (%s: %w)", ErrGone, c.Addr(), err)
	c.conn.Close()
	return c.broken
}

// call makes one exchange and checks that the answer is the one to this request and that its result is Ok. An empty
// header accepts any.
func (c *Client) call(ctx context.Context, header string, request *wire.Builder) (*wire.Reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.callLocked(ctx, header, request.End())
}

func (c *Client) callLocked(ctx context.Context, header string, request []byte) (*wire.Reply, error) {
	reply, err := c.exchange(ctx, request)
	if err != nil {
		return nil, err
	}
	command, _, _ := strings.Cut(string(request), "\n")
	if reply.Header == "" {
		return nil, &Refusal{Command: command, Text: reply.Result()}
	}
	if header != "" && reply.Header != header {
		return nil, c.fail(ctx, fmt.Errorf("%q was answered %q: that is no management server of this version", command, reply.Header))
	}
	if result, ok := reply.Fields.Get("result"); ok && !strings.EqualFold(result, "ok") && result != "1" {
		code, _ := reply.Fields.Uint("error_code", 0)
		return nil, &Refusal{Command: command, Text: result, Code: int(code)}
	}
	return reply, nil
}
