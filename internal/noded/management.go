package noded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/signal"
)

const (
	// askTime bounds one exchange with a management server.
	askTime = 5 * time.Second
	// portTime bounds the question to one server where another node listens; after as long without any server that
	// answers, the next questions are spared.
	portTime = time.Second
	// connectTime bounds the attempt to reach a data node. A first packet that is lost is sent again after a second.
	connectTime = 1100 * time.Millisecond
	// lookEvery is the pause between attempts to find a management server.
	lookEvery = 100 * time.Millisecond
	// sayEvery is how often it is said that none is found.
	sayEvery = 10 * time.Second
	// idTime is how long a management server may wait for a node id to become free: after a restart the last run's link
	// may still be there.
	idTime = 10 * time.Second
)

// management is what the node has to do with management servers. Any of them will do for questions, and when none is
// left the node goes by what it knows.
type management struct {
	name    string
	servers config.ConnectString // of the command line; once there is a configuration, those that it has besides
	secret  [2]uint32
	log     *logger

	id   int // node id, once there is one
	conf *config.Config
	port int // on which the node listens

	mu     sync.Mutex
	client *mgmclient.Client           // session for questions; the first one holds the node id until the link does
	turn   int                         // server to ask next, once the session is gone
	silent time.Time                   // when no server answered
	ports  [signal.MaxDataNode + 1]int // where data nodes listened when that was last known
}

// find connects to a management server and says meanwhile what it waits for. It tries at least once; patience below 0 has
// no end.
func (m *management) find(ctx context.Context, patience time.Duration) (*mgmclient.Client, error) {
	began, said := time.Now(), time.Time{}
	for {
		c, err := mgmclient.ConnectTo(ctx, m.servers, m.options())
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil || patience >= 0 && time.Since(began) >= patience {
			return nil, err
		}
		if time.Since(said) > sayEvery {
			said = time.Now()
			m.log.info("waiting for a management server: %v", err)
		}
		if !sleep(ctx, lookEvery) {
			return nil, err
		}
	}
}

func (m *management) options() mgmclient.Options {
	return mgmclient.Options{Name: m.name, Timeout: 2 * portTime}
}

// enter gets the node id and the configuration.
func (m *management) enter(ctx context.Context, s *settings) error {
	began, said := time.Now(), time.Time{}
	for {
		c, err := m.find(ctx, s.patience())
		if err != nil {
			return err
		}
		err = m.enterAt(ctx, c, s)
		if err == nil {
			m.learnServers()
			return nil
		}
		c.Close()
		// A server that went away, or hangs, is no reason to give up; one that says no is, unless this is a restart by itself,
		// when the node id is still taken by the run before.
		var no *mgmclient.Refusal
		refused := errors.As(err, &no)
		if ctx.Err() != nil || refused && !s.itself || s.patience() >= 0 && time.Since(began) >= s.patience() {
			return err
		}
		if time.Since(said) > sayEvery {
			said = time.Now()
			m.log.info("asks again: %v", err)
		}
		m.servers = from(m.servers, 1)
		if !sleep(ctx, lookEvery) {
			return err
		}
	}
}

// enterAt gets both from one server.
func (m *management) enterAt(ctx context.Context, c *mgmclient.Client, s *settings) error {
	ask, cancel := context.WithTimeout(ctx, idTime+askTime)
	defer cancel()
	claim := m.claim(s.nodeID)
	claim.Wait = idTime
	id, err := c.GetNodeID(ask, claim)
	if err != nil {
		return fmt.Errorf("the management server at %s gives no node id: %w `ndb_mgm -e show` tells who has which", c.Addr(), err)
	}
	conf, err := c.GetConfig(ask, id)
	if err != nil {
		return fmt.Errorf("the management server at %s gives no configuration: %w", c.Addr(), err)
	}
	m.id, m.conf, m.client = id, conf, c
	return nil
}

// learnServers adds the management servers of the configuration that the command line did not name.
func (m *management) learnServers() {
	s := &m.servers
	for _, n := range m.conf.Nodes {
		at := config.Endpoint{Host: n.HostName}
		if n.Type != config.ManagementNode || n.HostName == "" {
			continue
		}
		if at.Port = int(n.Int("PortNumber")); !slices.Contains(s.Servers, at) {
			s.Servers, s.Binds = append(s.Servers, at), append(s.Binds, s.Bind)
		}
	}
}

// from is the connect string with the k-th server first.
func from(s config.ConnectString, k int) config.ConnectString {
	k %= len(s.Servers)
	s.Servers = append(slices.Clone(s.Servers[k:]), s.Servers[:k]...)
	s.Binds = append(slices.Clone(s.Binds[k:]), s.Binds[:k]...)
	return s
}

// sleep waits; false when the context ends meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// publish tells the management server on which port the node listens.
func (m *management) publish(ctx context.Context, port int) error {
	m.port = port
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return m.client.SetPort(ctx, m.id, port)
}

// askPort asks one server on which port a data node listens, over the session if there is one. The caller holds mu.
func (m *management) askPort(ctx context.Context, node int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, portTime)
	defer cancel()
	if !m.client.Alive() {
		one := from(m.servers, m.turn)
		one.Servers, one.Binds = one.Servers[:1], one.Binds[:1]
		c, err := mgmclient.ConnectTo(ctx, one, m.options())
		if err != nil {
			return 0, err
		}
		m.client = c
	}
	return m.client.GetPort(ctx, m.id, node)
}

// portOf says on which port a data node listens: as its configuration has it, as any management server knows it, or, when
// none answers, as it was known before.
func (m *management) portOf(ctx context.Context, node int) (int, error) {
	if port := int(m.conf.Node(node).Int("ServerPort")); port != 0 {
		return port, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var first error
	answered := false
	if m.ports[node] == 0 || time.Since(m.silent) > portTime {
		for range m.servers.Servers {
			port, err := m.askPort(ctx, node)
			if err == nil && port != 0 {
				m.ports[node] = port
				return port, nil
			}
			if answered = answered || err == nil; err == nil {
				err = fmt.Errorf("node %d has not said yet where it listens", node)
			}
			if first == nil {
				first = err
			}
			if ctx.Err() != nil {
				return 0, first
			}
			m.client.Close()
			m.turn = (m.turn + 1) % len(m.servers.Servers)
		}
		if !answered {
			m.silent = time.Now()
		}
	}
	if port := m.ports[node]; port != 0 {
		return port, nil
	}
	return 0, first
}

// dialData reaches a data node.
func (m *management) dialData(ctx context.Context, node int) (net.Conn, error) {
	port, err := m.portOf(ctx, node)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: connectTime}
	return d.DialContext(ctx, "tcp", net.JoinHostPort(m.conf.Link(m.id, node).HostName(node), strconv.Itoa(port)))
}

// dialServer reaches a management server and makes the session a link.
func (m *management) dialServer(ctx context.Context, node int) (net.Conn, error) {
	c, err := m.reach(ctx, node)
	if err != nil {
		return nil, err
	}
	conn, err := m.linkOver(ctx, c)
	if err != nil {
		c.Close()
	}
	return conn, err
}

// linkOver makes a session a link. A server that was started anew knows neither that the id is taken nor the port any more.
func (m *management) linkOver(ctx context.Context, c *mgmclient.Client) (net.Conn, error) {
	r := m.claim(m.id)
	r.Running, r.Cluster = true, m.conf.Name
	if _, err := c.GetNodeID(ctx, r); err != nil {
		return nil, err
	}
	if err := c.SetPort(ctx, m.id, m.port); err != nil {
		return nil, err
	}
	return c.ConvertToTransporter(ctx)
}

// claim is the wish for a node id.
func (m *management) claim(id int) mgmclient.NodeIDRequest {
	return mgmclient.NodeIDRequest{Type: config.DataNode, NodeID: id, Name: m.name, Secret: uint64(m.secret[0]) | uint64(m.secret[1])<<32}
}

// reach opens a session with a certain management server: where the connect string or the configuration says it is.
func (m *management) reach(ctx context.Context, node int) (*mgmclient.Client, error) {
	n := m.conf.Node(node)
	at := m.servers
	if i := slices.Index(at.Servers, config.Endpoint{Host: n.HostName, Port: int(n.Int("PortNumber"))}); i > 0 {
		at = from(at, i) // most likely there
	}
	var first error
	o := m.options()
	o.Timeout = portTime // one that hangs leaves time for the others
	for i := range at.Servers {
		c, err := mgmclient.ConnectTo(ctx, config.ConnectString{Servers: at.Servers[i : i+1], Binds: at.Binds[i : i+1]}, o)
		if err == nil {
			var id int
			if id, err = c.MgmdNodeID(ctx); err == nil && id == node {
				return c, nil
			}
			c.Close()
			if err == nil {
				err = fmt.Errorf("%s is node %d, not node %d", at.Servers[i], id, node)
			}
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// close ends the session.
func (m *management) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.client != nil {
		m.client.Close()
	}
}
