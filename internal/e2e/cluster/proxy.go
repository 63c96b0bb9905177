package cluster

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cohortdb/cohort/internal/signal"
)

// proxies are hosts as addresses of the loopback network. A node's own process binds its private address; its public one,
// which the others know, is a proxy's, which passes on what comes, late or not at all.
type proxies struct {
	third   int // third number of the addresses
	ports   map[int]int
	nodes   []int
	mu      sync.Mutex
	changed chan struct{} // closed when ways change
	ways    map[[2]int]way
	alone   map[int]bool // nodes that are unplugged
	open    map[net.Conn]bool
	closed  bool
}

// way is what happens to bytes from one node to another.
type way struct {
	blocked bool
	delay   time.Duration
}

func (p *proxies) String() string          { return "one network, behind proxies that can cut and delay" }
func (p *proxies) address(node int) string { return fmt.Sprintf("127.%d.0.%d", p.third, node) }
func (p *proxies) private(node int) string { return fmt.Sprintf("127.%d.1.%d", p.third, node) }
func (p *proxies) port(node int) int       { return p.ports[node] }
func (p *proxies) command(int) []string    { return nil }

func newProxies(t testing.TB, nodes []int) *proxies {
	t.Helper()
	namespaceCount.Lock()
	defer namespaceCount.Unlock()
	namespaceCount.n++
	p := &proxies{ports: map[int]int{}, nodes: nodes, changed: make(chan struct{}), ways: map[[2]int]way{}, alone: map[int]bool{}, open: map[net.Conn]bool{}}
	var wait sync.WaitGroup
	var listeners []net.Listener
	t.Cleanup(func() {
		for _, l := range listeners {
			l.Close()
		}
		p.mu.Lock()
		p.closed = true
		for c := range p.open {
			c.Close()
		}
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
		wait.Wait()
	})
	p.third = 1 + (os.Getpid()*8+namespaceCount.n)%250
	for _, n := range nodes {
		l, err := net.Listen("tcp", net.JoinHostPort(p.address(n), "0"))
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
		p.ports[n] = l.Addr().(*net.TCPAddr).Port
		wait.Add(1)
		go func() {
			defer wait.Done()
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				wait.Add(1)
				go func() {
					defer wait.Done()
					p.serve(c, n)
				}()
			}
		}()
	}
	return p
}

func (p *proxies) block(from, to int, on bool) error {
	p.change(from, to, func(w *way) { w.blocked = on })
	return nil
}

func (p *proxies) unplug(node int, on bool) error {
	p.change(0, 0, func(*way) { p.alone[node] = on })
	return nil
}

func (p *proxies) delay(from, to int, d time.Duration) error {
	p.change(from, to, func(w *way) { w.delay = d })
	return nil
}

func (p *proxies) change(from, to int, f func(*way)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.ways[[2]int{from, to}]
	f(&w)
	p.ways[[2]int{from, to}] = w
	close(p.changed)
	p.changed = make(chan struct{})
}

// pass waits until bytes that came at a time may go from one node to another; false at the end of everything.
func (p *proxies) pass(from, to int, came time.Time) bool {
	for {
		p.mu.Lock()
		w, changed, closed := p.ways[[2]int{from, to}], p.changed, p.closed
		w.blocked = w.blocked || p.alone[from] || p.alone[to]
		p.mu.Unlock()
		left := w.delay - time.Since(came)
		switch {
		case closed:
			return false
		case w.blocked:
			<-changed
		case left > 0:
			select {
			case <-time.After(left):
			case <-changed:
			}
		default:
			return true
		}
	}
}

// track notes a connection, so that it can be closed; false at the end of everything.
func (p *proxies) track(c net.Conn, on bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on && p.closed {
		c.Close()
		return false
	}
	if on {
		p.open[c] = true
	} else {
		delete(p.open, c)
		c.Close()
	}
	return true
}

// serve passes a connection to a node on.
func (p *proxies) serve(in net.Conn, to int) {
	if !p.track(in, true) {
		return
	}
	defer p.track(in, false)
	from, first, err := p.caller(in)
	if err != nil || !p.pass(from, to, time.Now()) || !p.pass(to, from, time.Now()) {
		return
	}
	d := net.Dialer{}
	if from != 0 { // a management server wants to see the address of its configuration
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(p.address(from))}
	}
	out, err := d.Dial("tcp", net.JoinHostPort(p.private(to), strconv.Itoa(p.ports[to])))
	if err != nil || !p.track(out, true) {
		return
	}
	defer p.track(out, false)
	var both sync.WaitGroup
	both.Add(2)
	go func() { defer both.Done(); p.pump(in, out, from, to, first) }()
	go func() { defer both.Done(); p.pump(out, in, to, from, nil) }()
	both.Wait()
}

// caller tells which node a connection comes from: by its address, or by its first frame. 0: none of ours.
func (p *proxies) caller(in net.Conn) (int, []byte, error) {
	source := in.RemoteAddr().(*net.TCPAddr).IP.String()
	for _, n := range p.nodes {
		if source == p.private(n) {
			return n, nil, nil
		}
	}
	b := make([]byte, signal.HeadSize)
	k, err := io.ReadFull(in, b[:4]) // as much as a management server is sent at least
	if err != nil {
		return 0, nil, err
	}
	if num := uint16(b[2]) | uint16(b[3])<<8; num != signal.NumHello {
		return 0, b[:k], nil
	}
	if _, err = io.ReadFull(in, b[4:]); err != nil {
		return 0, nil, err
	}
	from := signal.Addr(uint32(b[8]) | uint32(b[9])<<8 | uint32(b[10])<<16 | uint32(b[11])<<24)
	return int(from.Node()), b, nil
}

// piece is some bytes and when they came.
type piece struct {
	b    []byte
	came time.Time
}

// pump passes bytes on in one direction, first what was read before, and then the end.
func (p *proxies) pump(in, out net.Conn, from, to int, first []byte) {
	pieces := make(chan piece, 256)
	go func() {
		defer close(pieces)
		if len(first) > 0 {
			pieces <- piece{first, time.Now()}
		}
		for {
			b := make([]byte, 32<<10)
			n, err := in.Read(b)
			if n > 0 {
				pieces <- piece{b[:n], time.Now()}
			}
			if err != nil {
				return
			}
		}
	}()
	broken := false
	for x := range pieces {
		if broken = broken || !p.pass(from, to, x.came); broken {
			continue
		}
		if _, err := out.Write(x.b); err != nil {
			broken = true
			in.Close()
		}
	}
	if p.pass(from, to, time.Now()) {
		if c, ok := out.(*net.TCPConn); ok && !broken {
			_ = c.CloseWrite()
			return
		}
	}
	out.Close()
}
