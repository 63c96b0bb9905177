package mgmclient

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/wire"
)

// canned is a connection whose other side said everything beforehand.
type canned struct {
	*bytes.Reader
	sent bytes.Buffer
}

func (c *canned) Write(p []byte) (int, error)      { return c.sent.Write(p) }
func (c *canned) Close() error                     { return nil }
func (c *canned) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *canned) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *canned) SetDeadline(time.Time) error      { return nil }
func (c *canned) SetReadDeadline(time.Time) error  { return nil }
func (c *canned) SetWriteDeadline(time.Time) error { return nil }

// answering is a session with a server that answers with text, whatever it is asked.
func answering(text string) (*Client, *canned) {
	conn := &canned{Reader: bytes.NewReader([]byte(text))}
	target := config.ConnectString{Servers: []config.Endpoint{{Host: "h", Port: 1}}, Binds: []config.Endpoint{{}}}
	return &Client{conn: conn, reader: wire.NewReader(conn, wire.Limits{LineBytes: 1000, Lines: 1000, BodyBytes: 1 << 16}), target: target}, conn
}

func TestARefusalLeavesTheSessionAlive(t *testing.T) {
	ctx := context.Background()
	c, conn := answering("get nodeid reply\nerror_code: 1101\nresult: Id 3 already allocated by another node.\n\nresult: Unknown command, 'check connection'\n\ncheck connection reply\nresult: Ok\n\n")
	_, err := c.GetNodeID(ctx, NodeIDRequest{Type: config.DataNode, NodeID: 3, Secret: 255, Cluster: "x", Running: true, Wait: time.Second})
	var refusal *Refusal
	if !errors.As(err, &refusal) || refusal.Code != CodeNodeID || err.Error() != "Id 3 already allocated by another node." {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"get nodeid\nversion: 256\nnodetype: 0\nnodeid: 3\n", "timeout: 1000\n", "cluster: x\n", "secret: ff\n", "running: 1\n"} {
		if !strings.Contains(conn.sent.String(), want) {
			t.Errorf("%q is missing in %q", want, &conn.sent)
		}
	}
	if err := c.CheckConnection(ctx); !errors.As(err, &refusal) || refusal.Text != "Unknown command, 'check connection'" {
		t.Fatalf("%v", err)
	}
	if err := c.CheckConnection(ctx); err != nil || !c.Alive() {
		t.Fatalf("%v", err)
	}
}

func TestAnAnswerToSomethingElseEndsTheSession(t *testing.T) {
	ctx := context.Background()
	for _, text := range []string{"", "HTTP/1.1 400 Bad Request\nServer: x\n\n", "version\nid: 1\n\n", "check connection reply\nresult", "\n"} {
		c, _ := answering(text)
		if err := c.CheckConnection(ctx); !errors.Is(err, ErrGone) || c.Alive() {
			t.Errorf("%q: %v", text, err)
		}
		if _, err := c.Status(ctx); !errors.Is(err, ErrGone) {
			t.Errorf("%q, afterwards: %v", text, err)
		}
	}
}

func TestStatusIsRead(t *testing.T) {
	c, _ := answering("node status\nnodes: 2\nnode.1.type: NDB\nnode.1.status: STARTING\nnode.1.startphase: 4\nnode.1.dynamic_id: -1\nnode.1.future: 7\n" +
		"node.49.type: MGM\nnode.49.status: NEW WORD\n\n")
	s, err := c.Status(context.Background())
	if err != nil || s.Node(1).Status != Starting || s.Node(1).StartPhase != 4 || s.Node(49).Status != Unknown || s.President() != 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	for _, bad := range []string{"nodes: 2\nnode.1.type: NDB\n", "nodes: x\n", "nodes: 1\nnode.1.type: CAT\n", "nodes: 1\nnode.0.type: NDB\n", "nodes: 1\nnode.1.startphase: x\n", "nodes: 1\nnode.1.version: -1\n"} {
		c, _ := answering("node status\n" + bad + "\n")
		if s, err := c.Status(context.Background()); err == nil {
			t.Errorf("%q is read as %+v", bad, s)
		}
	}
}

func TestThePresidentIsWhoJoinedFirst(t *testing.T) {
	s := ClusterStatus{Nodes: []NodeStatus{
		{ID: 1, Status: NoContact, DynamicID: 1}, {ID: 2, Status: Started, DynamicID: 3}, {ID: 3, Status: Started, DynamicID: 2}, {ID: 4, Status: Starting, DynamicID: NoPlace},
	}}
	if p := s.President(); p != 3 {
		t.Fatalf("president %d", p)
	}
}

// A server that is silent holds nobody beyond the context.
func TestTheContextEndsACall(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if _, err := Connect(ctx, l.Addr().String(), Options{}); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Fatalf("%v", err)
	}
	if _, err := Connect(context.Background(), "127.0.0.1:1", Options{Retries: 1, RetryDelay: time.Millisecond}); err == nil || !strings.Contains(err.Error(), "no management server answers at 127.0.0.1:1 (") {
		t.Fatalf("%v", err)
	}
	if _, err := Connect(context.Background(), "nonsense=1", Options{}); err == nil {
		t.Fatal("a connect string that is none")
	}
}

// Nothing listens on the port, and that is what the error says, also where the time ends in the middle of a try.
func TestTheErrorNamesTheReasonAndNotTheEndOfTheTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	_, err := Connect(ctx, "127.0.0.1:1", Options{Retries: -1, RetryDelay: time.Nanosecond})
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Fatalf("%v", err)
	}
}

// FuzzAnswers lets a server answer anything to every kind of question: a result or an error, never a panic.
func FuzzAnswers(f *testing.F) {
	f.Add("node status\nnodes: 1\nnode.1.type: NDB\nnode.1.status: STARTED\n\n")
	f.Add("get config reply\nresult: Ok\nContent-Length: 4\n\nYWJj\n\n")
	f.Add("dump events reply\nresult: Ok\nevents: 1\n\nlog event reply\ntype=50\ntime=0\nsource_nodeid=1\npages_used=4\n\n")
	f.Add("get nodeid reply\nnodeid: 2\nresult: Ok\n\n")
	f.Add("listen event\nresult: 0\n\n<PING>\nlog event reply\ntype=59\nsource_nodeid=2\ntext=x\n\n")
	f.Add("result: Unknown command, 'x'\n\n")
	f.Add("version\nid: 256\nmysql_major: 8\n\n")
	f.Add("get cluster loglevel\nstartup: 7\n\n")
	ctx := context.Background()
	f.Fuzz(func(t *testing.T, text string) {
		for _, ask := range []func(c *Client) error{
			func(c *Client) error { _, err := c.Status(ctx); return err },
			func(c *Client) error { _, err := c.GetConfig(ctx, 1); return err },
			func(c *Client) error { _, err := c.GetNodeID(ctx, NodeIDRequest{}); return err },
			func(c *Client) error { _, err := c.GetPort(ctx, 1, 2); return err },
			func(c *Client) error { _, err := c.Version(ctx); return err },
			func(c *Client) error { _, err := c.LogLevels(ctx); return err },
			func(c *Client) error { _, _, err := c.LogFilter(ctx); return err },
			func(c *Client) error { _, err := c.StopAll(ctx, true, true, StopOptions{}); return err },
			func(c *Client) error { _, err := c.DumpEvents(ctx, event.MemoryUsage, nil); return err },
			func(c *Client) error {
				stream, err := c.ListenEvents(ctx, event.Levels{})
				for err == nil {
					_, err = stream.Next()
				}
				return err
			},
		} {
			c, _ := answering(text)
			err := ask(c)
			var refusal *Refusal
			if errors.As(err, &refusal) && !c.Alive() {
				t.Fatalf("%q: refused, and the session is gone: %v", text, err)
			}
		}
	})
}
