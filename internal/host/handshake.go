package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
	"unsafe"

	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/version"
)

const (
	// helloTime bounds the exchange of Hello and HelloConf.
	helloTime = 5 * time.Second
	// hellosMax bounds the connections that have not said yet who they are. One more takes the place of the oldest: a node
	// says it at once, so that thousands of connections that say nothing keep nobody out.
	hellosMax = 256
	// crowdedPause keeps connections that had to make room from filling the log.
	crowdedPause = 10 * time.Second
	// dialFirst, doubled up to dialSoon, is the pause between attempts to reach a peer. One that was not reached for
	// dialLong need not be found so quickly: dialLast.
	dialFirst = 10 * time.Millisecond
	dialSoon  = 80 * time.Millisecond
	dialLast  = 400 * time.Millisecond
	dialLong  = time.Minute
)

// accept takes connections until the listener closes.
func (h *Host) accept() {
	defer h.work.Done()
	for {
		c, err := h.cfg.Listener.Accept()
		if err != nil {
			if h.stopping.Load() || errors.Is(err, net.ErrClosed) {
				return
			}
			h.cfg.Log("cannot accept a connection: %v", err)
			if !h.rest(dialLast) {
				return
			}
			continue
		}
		g := &guest{Conn: c}
		h.seat(g)
		h.work.Add(1)
		go func() {
			defer h.work.Done()
			h.welcome(g)
		}()
	}
}

// guest is a connection that has not said yet who it is.
type guest struct {
	net.Conn
	ousted bool // it was closed to make room; under Host.mu
}

// seat notes a guest; one too many takes the place of the oldest.
func (h *Host) seat(g *guest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.guests = append(h.guests, g); len(h.guests) <= hellosMax {
		return
	}
	oldest := h.guests[0]
	h.guests = slices.Delete(h.guests, 0, 1)
	oldest.ousted = true
	_ = oldest.Close()
	if h.ousted++; time.Since(h.crowdedAt) > crowdedPause {
		h.crowdedAt = time.Now()
		h.cfg.Log("connection from %v closed: it said nothing, and %d others do neither; so far %d were closed to make room",
			oldest.RemoteAddr(), hellosMax, h.ousted)
	}
}

// unseat forgets a guest; it is false for one that was closed to make room.
func (h *Host) unseat(g *guest) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(h.guests, g); i >= 0 {
		h.guests = slices.Delete(h.guests, i, i+1)
	}
	return !g.ousted
}

// welcome answers a Hello.
func (h *Host) welcome(g *guest) {
	c := g.Conn
	_ = c.SetDeadline(time.Now().Add(helloTime))
	stop := context.AfterFunc(h.ctx, func() { _ = c.Close() })
	defer stop()
	var m signal.Hello
	err := readFrame(c, frameOf(&m), signal.NumHello, 0)
	stayed := h.unseat(g)
	if err != nil {
		if stayed && !errors.Is(err, io.EOF) && !h.stopping.Load() { // a connection that says nothing is somebody's port check
			h.cfg.Log("connection from %v closed: %v", c.RemoteAddr(), err)
		}
		_ = c.Close()
		return
	}
	p, want, r := h.judge(&m)
	if r == nil {
		h.mu.Lock()
		r = h.admit(p, m.Secret, int(m.Socket), want)
		h.mu.Unlock()
	}
	if r != nil {
		h.refuse(c, &m, r)
		return
	}
	answer := signal.HelloConf{Head: h.head(signal.NumHelloConf, uint8(m.Node), unsafe.Sizeof(signal.HelloConf{})),
		Version: signal.WireVersion, Software: version.Number, Node: uint32(h.cfg.Node), Sockets: uint32(want),
		LDMs: uint32(h.cfg.LDMs), TCs: uint32(h.cfg.TCs), Secret: h.secret}
	if _, err := c.Write(frameOf(&answer)); err != nil {
		h.cfg.Log("connection from %v closed: %v", c.RemoteAddr(), err)
		_ = c.Close()
		return
	}
	fd, err := takeSocket(c, &p.Peer)
	if err != nil {
		h.cfg.Log("connection from node %d closed: %v", p.node, err)
		return
	}
	rep := signal.LinkRep{Node: m.Node, Kind: m.Kind, Software: m.Software, LDMs: m.LDMs, TCs: m.TCs}
	if r := h.offer(p, fd, int(m.Socket), want, rep, m.Secret); r != nil {
		h.cfg.Log("connection from node %d closed: %v", p.node, r)
	}
}

// judge says who greets and how many sockets the link is to have, or why it cannot be.
func (h *Host) judge(m *signal.Hello) (*peer, int, *refusal) {
	switch {
	case m.Version != signal.WireVersion:
		return nil, 0, &refusal{signal.RefuseVersion, fmt.Sprintf("the wire protocol is version %d here, %d there", signal.WireVersion, m.Version)}
	case !version.Compatible(m.Software, version.Number):
		return nil, 0, &refusal{signal.RefuseVersion, fmt.Sprintf("version %s does not work with %s", version.Format(m.Software), version.Format(version.Number))}
	case m.Name != h.cfg.Name:
		return nil, 0, &refusal{signal.RefuseCluster, "this node is of a cluster with another name"}
	case m.Peer != uint32(h.cfg.Node):
		return nil, 0, &refusal{signal.RefuseMeant, fmt.Sprintf("this is node %d, not node %d", h.cfg.Node, m.Peer)}
	case m.Node == 0 || m.Node > 255 || h.peers[m.Node] == nil:
		return nil, 0, &refusal{signal.RefuseNode, fmt.Sprintf("the configuration has no node %d that may link to this one", m.Node)}
	}
	p := h.peers[m.Node]
	switch {
	case uint32(p.Kind) != m.Kind:
		return nil, 0, &refusal{signal.RefuseNode, fmt.Sprintf("node %d is of another kind in the configuration", m.Node)}
	case p.Dial != nil:
		return nil, 0, &refusal{signal.RefuseMeant, fmt.Sprintf("node %d is dialled by node %d, not the other way round", m.Node, h.cfg.Node)}
	}
	return p, h.socketsFor(p.Kind, int(min(m.Sockets, 255))), nil
}

// refuse says why and closes.
func (h *Host) refuse(c net.Conn, m *signal.Hello, r *refusal) {
	n := uint32(len(r.text))
	b := make([]byte, uint32(unsafe.Sizeof(signal.HelloRef{}))+signal.Pad(n))
	ref := (*signal.HelloRef)(unsafe.Pointer(&b[0]))
	ref.Head = h.head(signal.NumHelloRef, uint8(m.Node), uintptr(len(b)))
	ref.Code, ref.TextLen = r.code, n
	copy(b[unsafe.Sizeof(*ref):], r.text)
	_, _ = c.Write(b)
	_ = c.Close()
	if r.code != signal.RefuseTaken { // the usual case of a node that comes back quickly
		h.cfg.Log("link from node %d (%v) refused: %s", m.Node, c.RemoteAddr(), r.text)
	}
}

func (h *Host) head(num uint16, to uint8, bytes uintptr) signal.Head {
	return signal.Head{Len: uint16(bytes / 4), Num: num, To: signal.MakeAddr(to, signal.BlockManager, 0),
		From: signal.MakeAddr(h.cfg.Node, signal.BlockManager, 0)}
}

// dial keeps the link to a peer up: it opens it, waits until it is down and cleared away, and opens it again.
func (h *Host) dial(p *peer) {
	defer h.work.Done()
	pause, said, since := dialFirst, "", time.Now()
	for {
		h.mu.Lock()
		state, changed := p.state, p.changed
		h.mu.Unlock()
		if state != stateDown {
			select {
			case <-changed:
				pause, since = dialFirst, time.Now()
			case <-h.ctx.Done():
				return
			}
			continue
		}
		err := h.dialAll(p)
		if h.ctx.Err() != nil {
			return
		}
		if err == nil {
			said = ""
			continue
		}
		if text := err.Error(); text != said {
			said = text
			h.cfg.Log("cannot link to node %d yet: %s", p.node, text)
		}
		if !h.rest(pause) {
			return
		}
		if pause = min(2*pause, dialSoon); time.Since(since) > dialLong {
			pause = dialLast
		}
	}
}

// dialAll opens every socket of a link.
func (h *Host) dialAll(p *peer) error {
	want := 1
	for k := 0; k < want; k++ {
		conf, fd, err := h.dialOne(p, k)
		if err == nil {
			if want = 1; p.Kind != signal.PeerMgm {
				want = max(1, min(len(h.cfg.Receivers), int(min(conf.Sockets, 255))))
			}
			rep := signal.LinkRep{Node: uint32(p.node), Kind: uint32(p.Kind), Software: conf.Software, LDMs: conf.LDMs, TCs: conf.TCs}
			if r := h.offer(p, fd, k, want, rep, conf.Secret); r != nil {
				err = r
			}
		}
		if err != nil {
			h.mu.Lock()
			secret := p.secret
			h.mu.Unlock()
			h.ungather(p, secret)
			return err
		}
	}
	return nil
}

// dialOne opens socket k of a link.
func (h *Host) dialOne(p *peer, k int) (*signal.HelloConf, int, error) {
	ctx, cancel := context.WithTimeout(h.ctx, helloTime)
	defer cancel()
	c, err := p.Dial(ctx)
	if err != nil {
		return nil, -1, err
	}
	stop := context.AfterFunc(h.ctx, func() { _ = c.Close() })
	defer stop()
	_ = c.SetDeadline(time.Now().Add(helloTime))
	m := signal.Hello{Head: h.head(signal.NumHello, p.node, unsafe.Sizeof(signal.Hello{})), Magic: signal.HelloMagic,
		Version: signal.WireVersion, Software: version.Number, Node: uint32(h.cfg.Node), Kind: uint32(signal.PeerData),
		Socket: uint32(k), Peer: uint32(p.node), Name: h.cfg.Name, Secret: h.secret,
		Sockets: uint32(len(h.cfg.Receivers)), LDMs: uint32(h.cfg.LDMs), TCs: uint32(h.cfg.TCs)}
	conf := new(signal.HelloConf)
	if _, err = c.Write(frameOf(&m)); err == nil {
		err = readFrame(c, frameOf(conf), signal.NumHelloConf, p.node)
	}
	if err == nil && (conf.Version != signal.WireVersion || conf.Node != uint32(p.node) || conf.Sockets == 0) {
		err = errors.New("its answer makes no sense")
	}
	if err != nil {
		_ = c.Close()
		return nil, -1, err
	}
	fd, err := takeSocket(c, &p.Peer)
	return conf, fd, err
}

// frameOf is the bytes of a signal without sections.
func frameOf[T any](m *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(m)), unsafe.Sizeof(*m)) }

// readFrame reads one frame of a handshake, not a byte more, into b. A HelloRef instead becomes the error that it
// carries. peer is the node that must have sent it, 0 for any.
func readFrame(c net.Conn, b []byte, num uint16, peer uint8) error {
	if _, err := io.ReadFull(c, b[:signal.HeadSize]); err != nil {
		return err
	}
	h := (*signal.Head)(unsafe.Pointer(&b[0]))
	if h.Num == signal.NumHelloRef && num != signal.NumHelloRef && h.Bytes() <= 2048 && h.Bytes() >= uint32(unsafe.Sizeof(signal.HelloRef{})) {
		return readRefusal(c, h)
	}
	if h.Num != num || h.Bytes() != uint32(len(b)) {
		return fmt.Errorf("it does not begin with a %s", signal.Name(num))
	}
	if _, err := io.ReadFull(c, b[signal.HeadSize:]); err != nil {
		return err
	}
	if num == signal.NumHello {
		if m := (*signal.Hello)(unsafe.Pointer(&b[0])); m.Magic != signal.HelloMagic {
			return errors.New("it is no cluster node that speaks there")
		}
	} else if h.From.Node() != peer {
		return fmt.Errorf("node %d answers in place of node %d", h.From.Node(), peer)
	}
	return nil
}

func readRefusal(c net.Conn, head *signal.Head) error {
	b := make([]byte, head.Bytes())
	*(*signal.Head)(unsafe.Pointer(&b[0])) = *head
	if _, err := io.ReadFull(c, b[signal.HeadSize:]); err != nil {
		return err
	}
	r := (*signal.HelloRef)(unsafe.Pointer(&b[0]))
	if signal.Pad(r.TextLen) != uint32(len(b))-uint32(unsafe.Sizeof(*r)) {
		return errors.New("its refusal makes no sense")
	}
	return &refusal{r.Code, "refused: " + r.Text()}
}

// rest waits; false when the host stops meanwhile.
func (h *Host) rest(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-h.ctx.Done():
		return false
	}
}
