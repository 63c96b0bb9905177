package mgmd_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/clusterlog"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/mgmd"
	"github.com/cohortdb/cohort/internal/mgm/mgmtest"
)

// Whatever is no request closes its connection with a reason in the log, and the server goes on.
func TestGarbageClosesItsConnectionOnly(t *testing.T) {
	notes := &mgmtest.Text{}
	s := mgmtest.Start(t, mgmtest.TwoNodes, func(o *mgmd.Options) { o.Notes = notes })
	held := s.Connect()
	take(t, held, mgmclient.NodeIDRequest{Type: data, NodeID: 1})
	for _, c := range []struct{ send, want string }{
		{"\x16\x03\x01\x02\x00\x01\x00", "control byte 0x16"},
		{strings.Repeat("x", 5000), "longer than 4096 bytes"},
		{"get version\nno colon\n\n", "is not a line `name: value`"},
		{"get version\n" + strings.Repeat("a: b\n", 70) + "\n", "more than 64 lines"},
		{"set config_v2\nContent-Length: 999999999\n\n", "a body of 999999999 bytes"},
		{"\xff\xfe\n", "UTF-8"},
		{strings.Repeat("\n", 100), "empty lines"},
	} {
		speak := s.Dial()
		if _, err := io.WriteString(speak, c.send+"\n"); err != nil {
			t.Fatal(err)
		}
		if rest := speak.Rest(); rest != "" {
			t.Errorf("%q was answered %q", c.send, rest)
		}
		s.Logged(c.want)
		mgmtest.Until(t, "a note about "+c.want, func() bool { return strings.Contains(notes.String(), c.want) })
	}
	if err := held.CheckConnection(mgmtest.Context(t)); err != nil {
		t.Error(err)
	}
	if _, why := take(t, s.Connect(), mgmclient.NodeIDRequest{Type: data, NodeID: 1}); why != "Id 1 already allocated by another node." {
		t.Errorf("%q", why)
	}
}

func limits(f func(*mgmd.Limits)) func(*mgmd.Options) {
	return func(o *mgmd.Options) { f(&o.Limits) }
}

func TestIdleSessionsEndButThoseThatHoldAnIdStay(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes, limits(func(l *mgmd.Limits) { l.Idle = 30 * time.Millisecond }))
	holder := s.Connect()
	take(t, holder, mgmclient.NodeIDRequest{Type: data, NodeID: 1})
	if rest := s.Dial().Rest(); rest != "" {
		t.Errorf("%q", rest)
	}
	s.Logged("it said nothing for too long")
	if err := holder.CheckConnection(mgmtest.Context(t)); err != nil {
		t.Error(err)
	}
}

func TestARequestMustComeToAnEnd(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes, limits(func(l *mgmd.Limits) { l.Request = 30 * time.Millisecond }))
	speak := s.Dial()
	if _, err := io.WriteString(speak, "get version\n"); err != nil {
		t.Fatal(err)
	}
	if rest := speak.Rest(); rest != "" {
		t.Errorf("%q", rest)
	}
	s.Logged("it said nothing for too long")
}

func TestSessionsAreCounted(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes, limits(func(l *mgmd.Limits) { l.Sessions = 2 }))
	first := s.Connect()
	take(t, first, mgmclient.NodeIDRequest{Type: data, NodeID: 1})
	take(t, s.Connect(), mgmclient.NodeIDRequest{Type: data, NodeID: 2})
	if rest := s.Dial().Rest(); rest != "result: Too many sessions\n\n" {
		t.Errorf("%q", rest)
	}
	s.Logged("2 sessions are open")
	first.Close()
	mgmtest.Until(t, "a place is free", func() bool {
		c, err := mgmclient.Connect(mgmtest.Context(t), s.Addr, mgmclient.Options{})
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// Sessions that hold no node id make room for others: first those that never said anything, the oldest of them first.
func TestSilentSessionsMakeRoom(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes, limits(func(l *mgmd.Limits) { l.Sessions = 3 }))
	holder, asked := s.Connect(), s.Connect()
	take(t, holder, mgmclient.NodeIDRequest{Type: data, NodeID: 1})
	if err := asked.CheckConnection(mgmtest.Context(t)); err != nil {
		t.Fatal(err)
	}
	silent := s.Dial()
	for range 10 {
		next := s.Dial()
		if rest := silent.Rest(); rest != "" {
			t.Fatalf("%q", rest)
		}
		silent = next
	}
	works := func(c *mgmclient.Client) {
		t.Helper()
		if err := c.CheckConnection(mgmtest.Context(t)); err != nil {
			t.Fatal(err)
		}
	}
	late := s.Connect()
	works(late)
	works(asked)
	s.Logged("those that say nothing are closed for new ones")
	works(s.Connect())
	if late.CheckConnection(mgmtest.Context(t)) == nil {
		t.Error("the session that has been silent for longest did not make room")
	}
	works(asked)
	works(holder)
}

// A listener that does not read loses its connection; the cluster log and others lose nothing.
func TestAListenerThatDoesNotReadIsCutOff(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes, limits(func(l *mgmd.Limits) { l.Write = 50 * time.Millisecond }))
	n := s.Link(1)
	deaf := s.Dial()
	if err := deaf.Conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	deaf.Say("listen event\nfilter: 15=INFO\n\n")
	text := strings.Repeat("w", event.TextMax)
	mgmtest.Until(t, "it is cut off", func() bool {
		for range 200 {
			n.Event(event.New(1, event.CreateLogBytes).WithText(text)) // of a level that the cluster log does not have
		}
		log := s.Log.String()
		return strings.Contains(log, "it does not read its events") || strings.Contains(log, "it did not read 1000 events in time")
	})
	if err := s.Connect().CheckConnection(mgmtest.Context(t)); err != nil {
		t.Error(err)
	}
}

func TestStreamsHaveSignsOfLife(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes, limits(func(l *mgmd.Limits) { l.Ping = 5 * time.Millisecond }))
	speak := s.Dial()
	if got := speak.Say("listen event\n\n"); !strings.HasPrefix(got, "listen event\nresult: 0\n\n") {
		t.Fatalf("%q", got)
	}
	got := make([]byte, len("<PING>\n<PING>\n"))
	if _, err := io.ReadFull(speak, got); err != nil || string(got) != "<PING>\n<PING>\n" {
		t.Fatalf("%q, %v", got, err)
	}
}

func TestSessionsCanBeListed(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	c := s.Connect()
	take(t, c, mgmclient.NodeIDRequest{Type: data, NodeID: 2, Name: "ndbmtd"})
	got := s.Dial().Say("list sessions\n\n")
	for _, want := range []string{"list sessions reply\nsessions: 2\n", "session.1.name: ndbmtd\n", "session.1.nodeid: 2\n", "session.1.command: get nodeid\n",
		"session.2.command: list sessions\n", "session.2.own: 1\n", "session.2.address: 127.0.0.1\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	speak := s.Dial()
	if got := speak.Say("get session id\n\n"); got != "get session id reply\nid: 3\n\n" {
		t.Errorf("%q", got)
	}
	if got := speak.Say("get session\nid: 1\n\n"); !strings.HasPrefix(got, "get session reply\nid: 1\naddress: 127.0.0.1\nname: ndbmtd\n") {
		t.Errorf("%q", got)
	}
	if got := speak.Say("get session\nid: 9\n\n"); got != "get session reply\nresult: There is no session 9\n\n" {
		t.Errorf("%q", got)
	}
	if got := speak.Say("purge stale sessions\n\n"); got != "purge stale sessions reply\npurged: \nresult: Ok\n\n" {
		t.Errorf("%q", got)
	}
	speak.Write([]byte("bye\n\n"))
	if rest := speak.Rest(); rest != "" {
		t.Errorf("%q", rest)
	}
}

// FuzzProtocol sends random text to a server: it answers or closes, and goes on serving.
func FuzzProtocol(f *testing.F) {
	for name := range mgmd.Commands() {
		f.Add([]byte(name + "\n\n"))
		f.Add([]byte(name + "\nnode: 1\nversion: 256\nnodetype: 1\nlevel: 1\nenable: 1\ncategory: 250\nargs: 1\n\n"))
	}
	f.Add([]byte("get nodeid\nversion: 256\nnodetype: 0\n\nget config_v2\nversion: 256\n\nset connection parameter\nnode1: 1\nnode2: 0\nparam: 406\nvalue: 7\n\n"))
	f.Add([]byte("transporter connect\n\n\x01\x00\x01\x00aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"))
	f.Add([]byte("listen event\nparsable: 1\nfilter: 15=253\n\n"))
	server, err := mgmd.New(mgmd.Options{Config: mgmtest.Parse(f, mgmtest.TwoNodes), NodeID: 49, Log: quiet(f),
		Limits: mgmd.Limits{Sessions: 10, Idle: time.Minute, Request: time.Minute, Write: time.Minute, Ping: time.Minute, Answer: time.Millisecond, Stop: time.Millisecond}})
	if err != nil {
		f.Fatal(err)
	}
	// Not sockets but memory: a hundred times the tries in the same time, and no port is used up.
	in := make(chan net.Conn)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go server.Serve(ctx, listener{in, ctx.Done()})
	f.Fuzz(func(t *testing.T, text []byte) {
		// What stops the server does what it should; it is tested elsewhere.
		if lower := strings.ToLower(string(text)); strings.Contains(lower, "stop") || strings.Contains(lower, "timeout") {
			return
		}
		conn := &memory{Reader: bytes.NewReader(text), closed: make(chan struct{})}
		in <- conn
		select {
		case <-conn.closed:
		case <-time.After(mgmtest.Patience):
			t.Fatalf("%q: neither answered nor closed", text)
		}
	})
}

func quiet(f *testing.F) *clusterlog.Log {
	log, err := clusterlog.Open([]config.LogDestination{{Console: true}}, "", 49, io.Discard, io.Discard)
	if err != nil {
		f.Fatal(err)
	}
	return log
}

// listener hands out connections that a test makes.
type listener struct {
	conns <-chan net.Conn
	done  <-chan struct{}
}

func (l listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l listener) Close() error   { return nil }
func (l listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1186} }

// memory is a connection whose client said everything at once and reads nothing back.
type memory struct {
	*bytes.Reader
	closed chan struct{}
	once   sync.Once
}

func (m *memory) Write(p []byte) (int, error) { return len(p), nil }
func (m *memory) Close() error                { m.once.Do(func() { close(m.closed) }); return nil }
func (m *memory) LocalAddr() net.Addr         { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1186} }
func (m *memory) RemoteAddr() net.Addr        { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9} }
func (m *memory) SetDeadline(time.Time) error { return nil }

func (m *memory) SetReadDeadline(time.Time) error  { return nil }
func (m *memory) SetWriteDeadline(time.Time) error { return nil }
