package noded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
)

const (
	// askTime bounds one exchange with a management server.
	askTime = 5 * time.Second
	// lookEvery is the pause between attempts to find a management server.
	lookEvery = 100 * time.Millisecond
	// sayEvery is how often it is said that none is found.
	sayEvery = 10 * time.Second
	// idTime is how long a management server may wait for a node id to become free: after a restart the last run's link
	// may still be there.
	idTime = 10 * time.Second
)

// management is what the node has to do with management servers.
type management struct {
	name    string
	servers config.ConnectString
	secret  [2]uint32
	log     *logger

	id   int // node id, once there is one
	conf *config.Config
	port int // on which the node listens

	mu     sync.Mutex
	client *mgmclient.Client // session for questions; the first one holds the node id until the link does
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
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (m *management) options() mgmclient.Options {
	return mgmclient.Options{Name: m.name, Timeout: askTime}
}

// enter gets the node id and the configuration.
func (m *management) enter(ctx context.Context, s *settings) error {
	c, err := m.find(ctx, s.patience())
	if err != nil {
		return err
	}
	ask, cancel := context.WithTimeout(ctx, idTime+askTime)
	defer cancel()
	claim := m.claim(s.nodeID)
	claim.Wait = idTime
	id, err := c.GetNodeID(ask, claim)
	var no *mgmclient.Refusal
	if errors.As(err, &no) {
		return fmt.Errorf("the management server at %s gives no node id: %w `ndb_mgm -e show` tells who has which", c.Addr(), err)
	} else if err != nil {
		return err
	}
	conf, err := c.GetConfig(ask, id)
	if err != nil {
		return fmt.Errorf("the management server at %s gives no configuration: %w", c.Addr(), err)
	}
	m.id, m.conf, m.client = id, conf, c
	return nil
}

// publish tells the management server on which port the node listens.
func (m *management) publish(ctx context.Context, port int) error {
	m.port = port
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return m.client.SetPort(ctx, m.id, port)
}

// session is a session for questions, a new one if the last one broke. The caller holds mu.
func (m *management) session(ctx context.Context) (*mgmclient.Client, error) {
	if m.client.Alive() {
		return m.client, nil
	}
	c, err := mgmclient.ConnectTo(ctx, m.servers, m.options())
	if err != nil {
		return nil, err
	}
	m.client = c
	return c, nil
}

// portOf asks on which port a data node listens.
func (m *management) portOf(ctx context.Context, node int) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.session(ctx)
	if err != nil {
		return 0, err
	}
	port, err := c.GetPort(ctx, m.id, node)
	if err == nil && port == 0 {
		err = fmt.Errorf("node %d has not said yet where it listens", node)
	}
	return port, err
}

// dialData reaches a data node.
func (m *management) dialData(ctx context.Context, node int) (net.Conn, error) {
	port, err := m.portOf(ctx, node)
	if err != nil {
		return nil, err
	}
	var d net.Dialer
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
	at := config.ConnectString{Servers: m.servers.Servers, Binds: m.servers.Binds}
	if n.HostName != "" {
		at.Servers = append(at.Servers[:len(at.Servers):len(at.Servers)], config.Endpoint{Host: n.HostName, Port: int(n.Int("PortNumber"))})
		at.Binds = append(at.Binds[:len(at.Binds):len(at.Binds)], m.servers.Bind)
	}
	var first error
	for i := range at.Servers {
		c, err := mgmclient.ConnectTo(ctx, config.ConnectString{Servers: at.Servers[i : i+1], Binds: at.Binds[i : i+1]}, m.options())
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
