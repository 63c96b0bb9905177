package ndb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/version"
)

const (
	maxLinks      = 255      // sockets of a connection
	sessionBuffer = 16 << 10 // bytes of a session's send buffer for a socket, to start with
	maxBuffer     = 1 << 30  // and at most; what may be in it is bounded by MaxOperations
	receiveBuffer = 64 << 10 // bytes, to start with
	maxQueue      = 64 << 20 // bytes that wait for a socket that takes nothing: beyond it the link is cut
)

var (
	errClosing = errors.New("the connection is being closed")
	errOther   = errors.New("another link to the node was lost")
	errOut     = errors.New("the other data nodes go on without it")
)

// refusal is a data node's answer that it does not take the link.
type refusal struct {
	code uint32 // one of signal's Refuse constants
	text string
}

func (r *refusal) Error() string { return "refused: " + r.text }

// link is one socket to a data node. Whoever holds the poller's token reads it; whoever finds nobody writing writes for
// everyone.
type link struct {
	fd   int
	slot int // of the Env's buffer
	node uint8
	gone chan struct{} // closed when the link is lost

	in []byte // received and not yet executed are in[:n]; the token's holder only
	n  int

	mu      sync.Mutex
	queue   []byte // to be written after what is being written
	spare   []byte
	writing bool
	blocked bool // the socket takes nothing: the poller goes on when it does
	closed  bool
	err     error // why
}

// keeper keeps the links to one data node up.
type keeper struct {
	c    *Conn
	node uint8
	host string
	port int // as configured; 0: the management server knows it
	base int // first buffer
	last int // port that worked last
}

func (k *keeper) run(ctx context.Context) {
	// A node that refuses is there, and has something to bring to an end before it takes the link: that takes it no longer
	// than a moment, while it is unknown when one that does not answer will be back.
	const least, most, refused = 10 * time.Millisecond, 500 * time.Millisecond, 50 * time.Millisecond
	pause, said := least, ""
	for ctx.Err() == nil {
		links, conf, err := k.open(ctx)
		if err == nil {
			k.c.opts.Logf("ndb: node %d: connected to data node %d", k.c.id, k.node)
			pause, said = least, ""
			k.c.up(k.node, k.base, links, conf)
			k.watch(ctx, links)
			k.c.down(k.node)
			continue
		}
		if text := err.Error(); text != said && ctx.Err() == nil {
			k.c.opts.Logf("ndb: node %d: no link to data node %d: %s", k.c.id, k.node, text)
			said = text
		}
		var no *refusal
		if errors.As(err, &no) && (no.code == signal.RefuseTaken || no.code == signal.RefuseNotReady) {
			pause = refused
		}
		k.rest(ctx, pause)
		pause = min(2*pause, most)
	}
}

// rest waits, but not long for a node that the others say comes back.
func (k *keeper) rest(ctx context.Context, pause time.Duration) {
	const coming = 20 * time.Millisecond
	begin := time.Now()
	for {
		k.c.mu.Lock()
		st, watch := k.c.state.Load(), k.c.watch
		k.c.mu.Unlock()
		left := pause
		if st.view.Node(k.node).Coming {
			left, watch = min(pause, coming), nil
		}
		left -= time.Since(begin)
		if left <= 0 {
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-watch:
			timer.Stop()
			continue
		}
		timer.Stop()
		return
	}
}

// watch waits until one of the links is lost, and loses the others.
func (k *keeper) watch(ctx context.Context, links []*link) {
	any := make(chan struct{}, len(links))
	for _, l := range links {
		go func() {
			select {
			case <-l.gone:
			case <-ctx.Done():
			}
			any <- struct{}{}
		}()
	}
	<-any
	for _, l := range links {
		k.c.lost(l, errOther)
	}
}

// open opens all links to the node, or none.
func (k *keeper) open(ctx context.Context) ([]*link, *signal.HelloConf, error) {
	addr, err := k.address(ctx)
	if err != nil {
		return nil, nil, err
	}
	var links []*link
	fail := func(err error) ([]*link, *signal.HelloConf, error) {
		for _, l := range links {
			syscall.Close(l.fd)
		}
		return nil, nil, err
	}
	var first *signal.HelloConf
	for i := 0; i == 0 || i < min(int(first.Sockets), k.c.perNode); i++ {
		fd, conf, err := k.dial(ctx, addr, i)
		if err != nil {
			return fail(err)
		}
		links = append(links, &link{fd: fd, slot: k.base + i, node: k.node, gone: make(chan struct{}), in: newIn(receiveBuffer)})
		if i == 0 {
			first = conf
		} else if conf.Secret != first.Secret {
			return fail(errors.New("the node was started anew between two links"))
		}
	}
	return links, first, nil
}

func (k *keeper) address(ctx context.Context) (string, error) {
	port := k.port
	if port == 0 {
		p, err := k.c.mgm.port(ctx, int(k.node))
		switch {
		case err == nil && p != 0:
			port = p
		case err == nil:
			return "", errors.New("it has not told the management server its port yet")
		case k.last != 0: // without a management server the old port is worth a try
			port = k.last
		default:
			return "", fmt.Errorf("its port is not known: %w", err)
		}
	}
	k.last = port
	host := k.host
	if host == "" {
		host = "localhost"
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

// dial opens one socket and shakes hands.
func (k *keeper) dial(ctx context.Context, addr string, socket int) (fd int, _ *signal.HelloConf, err error) {
	const patience = 3 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, nil, err
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, nil, err
	}
	h := signal.Hello{Magic: signal.HelloMagic, Version: signal.WireVersion, Software: version.Number, Node: uint32(k.c.id),
		Kind: uint32(signal.PeerAPI), Socket: uint32(socket), Peer: uint32(k.node), Name: signal.NameHash(k.c.conf.Name),
		Secret: [2]uint32{uint32(k.c.secret), uint32(k.c.secret >> 32)}}
	h.Len, h.Num = uint16(unsafe.Sizeof(h)/4), signal.NumHello
	h.From, h.To = signal.MakeAddr(k.c.id, signal.BlockClient, 0), signal.MakeAddr(k.node, signal.BlockManager, 0)
	if _, err := nc.Write(unsafe.Slice((*byte)(unsafe.Pointer(&h)), unsafe.Sizeof(h))); err != nil {
		return 0, nil, err
	}
	conf, err := k.answer(nc)
	if err != nil {
		return 0, nil, err
	}
	fd, err = takeFD(nc.(*net.TCPConn))
	return fd, conf, err
}

// answer reads the answer to a Hello.
func (k *keeper) answer(r io.Reader) (*signal.HelloConf, error) {
	b := make([]uint32, 1100/4+signal.HeadSize) // a HelloRef has up to 1024 bytes of text
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&b[0])), 4*len(b))
	if _, err := io.ReadFull(r, raw[:signal.HeadSize]); err != nil {
		return nil, fmt.Errorf("no answer to the handshake: %w", err)
	}
	h := (*signal.Head)(unsafe.Pointer(&b[0]))
	n := h.Bytes()
	if n < signal.HeadSize || n > uint32(len(raw)) {
		return nil, errors.New("the answer to the handshake is no frame of this protocol")
	}
	if _, err := io.ReadFull(r, raw[signal.HeadSize:n]); err != nil {
		return nil, fmt.Errorf("half an answer to the handshake: %w", err)
	}
	ref, c := (*signal.HelloRef)(unsafe.Pointer(h)), (*signal.HelloConf)(unsafe.Pointer(h))
	switch {
	case h.Num == signal.NumHelloRef && n >= uint32(unsafe.Sizeof(*ref)) && n == uint32(unsafe.Sizeof(*ref))+signal.Pad(min(ref.TextLen, 1<<20)):
		return nil, &refusal{ref.Code, ref.Text()}
	case h.Num == signal.NumHelloConf && n == uint32(unsafe.Sizeof(*c)):
		switch {
		case c.Version != signal.WireVersion:
			return nil, fmt.Errorf("the node speaks version %d of the links' protocol, this program %d", c.Version, signal.WireVersion)
		case c.Node != uint32(k.node):
			return nil, fmt.Errorf("node %d answers there", c.Node)
		case c.Sockets == 0 || c.LDMs == 0 || c.TCs == 0:
			return nil, errors.New("the node has no thread that serves")
		}
		return c, nil
	}
	return nil, fmt.Errorf("the handshake was answered by a frame of %d bytes, %s", n, signal.Name(h.Num))
}

// takeFD takes the socket out of the hands of package net: it is read and written by system calls from here on.
func takeFD(nc *net.TCPConn) (fd int, err error) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return 0, err
	}
	if e := raw.Control(func(s uintptr) {
		var errno syscall.Errno
		var r uintptr
		r, _, errno = syscall.Syscall(syscall.SYS_FCNTL, s, syscall.F_DUPFD_CLOEXEC, 0)
		if fd = int(r); errno != 0 {
			err = errno
		}
	}); e != nil {
		return 0, e
	}
	if err != nil {
		return 0, os.NewSyscallError("fcntl", err)
	}
	return fd, syscall.SetNonblock(fd, true)
}

// lost ends a link, once: the socket is shut down, and closed when nobody writes to it.
func (c *Conn) lost(l *link, why error) {
	l.mu.Lock()
	first := !l.closed
	if first {
		l.closed, l.err, l.queue = true, why, nil
		_ = syscall.Shutdown(l.fd, syscall.SHUT_RDWR)
		if !l.writing {
			l.finish(c)
		}
	}
	l.mu.Unlock()
	if first {
		if why != errClosing && why != errOther && !c.state.Load().closed {
			c.opts.Logf("ndb: node %d: the link to data node %d is lost: %v", c.id, l.node, why)
		}
		close(l.gone)
	}
}

// finish closes the socket of a closed link that nobody writes to. A reader may still be in the middle of its read:
// closing takes it out of the poller, and the slot's generation keeps the reader from reading another's socket. The
// caller holds l.mu.
func (l *link) finish(c *Conn) {
	c.forget(l.fd)
}

// send writes b to the socket, or queues it behind what another writes; nothing of b is used after it returns. lazy
// only queues: the background writes.
func (c *Conn) send(l *link, b []byte, lazy bool) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	if l.writing || l.blocked || lazy {
		l.queue = append(l.queue, b...)
		over := len(l.queue) > maxQueue
		l.mu.Unlock()
		if over {
			c.lost(l, fmt.Errorf("the data node takes nothing, and %d bytes wait", maxQueue))
		}
		return
	}
	l.writing = true
	if len(l.queue) > 0 {
		l.queue = append(l.queue, b...)
		b = nil
	}
	l.write(c, b)
}

// write writes b and then whatever is queued. The caller holds l.mu, and has set writing.
func (l *link) write(c *Conn, b []byte) {
	for {
		if len(b) == 0 {
			if len(l.queue) == 0 || l.closed {
				break
			}
			l.queue, l.spare = l.spare[:0], l.queue
			b = l.spare
		}
		l.mu.Unlock()
		n, err := write(l.fd, b)
		l.mu.Lock()
		if err == nil && n == len(b) {
			b = nil
			continue
		}
		if err == nil || err == syscall.EAGAIN {
			rest := append([]byte(nil), b[max(n, 0):]...)
			l.queue = append(rest, l.queue...)
			if !l.closed {
				l.blocked = true
				c.wantWrite(l, true)
			}
			break
		}
		l.writing = false
		closed := l.closed
		if closed {
			l.finish(c)
		}
		l.mu.Unlock()
		if !closed {
			c.lost(l, os.NewSyscallError("write", err))
		}
		return
	}
	l.writing = false
	if l.closed {
		l.finish(c)
	}
	l.mu.Unlock()
}

// writable goes on with what a socket did not take before.
func (c *Conn) writable(l *link) {
	l.mu.Lock()
	if l.closed || l.writing || !l.blocked {
		l.mu.Unlock()
		return
	}
	l.blocked = false
	c.wantWrite(l, false)
	l.writing = true
	l.write(c, nil)
}

// writeQueued writes what lazy sends have left.
func (c *Conn) writeQueued(l *link) {
	l.mu.Lock()
	if l.closed || l.writing || l.blocked || len(l.queue) == 0 {
		l.mu.Unlock()
		return
	}
	l.writing = true
	l.write(c, nil)
}

func write(fd int, b []byte) (int, error) {
	for {
		n, err := syscall.Write(fd, b)
		if err != syscall.EINTR {
			return n, err
		}
	}
}

func read(fd int, b []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, b)
		if err != syscall.EINTR {
			return n, err
		}
	}
}
