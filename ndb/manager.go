package ndb

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
)

// manager is what a connection needs of a management server.
type manager interface {
	nodeID() int
	config() *config.Config
	port(ctx context.Context, node int) (int, error) // of a data node; 0: not known
	keep(ctx context.Context)                        // holds on to the node id until ctx ends
	close()
}

// mgmd is a manager that asks a management server, and goes on without when it is gone.
type mgmd struct {
	opts   mgmclient.Options
	target config.ConnectString
	name   string
	secret uint64
	id     int
	conf   *config.Config

	mu   sync.Mutex
	c    *mgmclient.Client
	look chan struct{} // makes keep look at once
}

func newMgmd(ctx context.Context, connectString string, o Options, secret uint64) (*mgmd, error) {
	if connectString == "" {
		connectString = os.Getenv(mgmclient.Environment)
	}
	target, err := config.ParseConnectString(connectString)
	if err != nil {
		return nil, err
	}
	m := &mgmd{opts: mgmclient.Options{Name: o.Name, Retries: -1, RetryDelay: 200 * time.Millisecond}, target: target, name: o.Name, secret: secret,
		look: make(chan struct{}, 1)}
	m.id = o.NodeID
	if m.id == 0 {
		m.id = target.NodeID
	}
	if m.c, err = mgmclient.ConnectTo(ctx, target, m.opts); err != nil {
		return nil, err
	}
	if m.id, err = m.c.GetNodeID(ctx, mgmclient.NodeIDRequest{Type: config.APINode, NodeID: m.id, Name: o.Name, Secret: secret, Wait: time.Second}); err == nil {
		m.conf, err = m.c.GetConfig(ctx, m.id)
	}
	if err != nil {
		m.c.Close()
		return nil, err
	}
	return m, nil
}

func (m *mgmd) nodeID() int            { return m.id }
func (m *mgmd) config() *config.Config { return m.conf }

func (m *mgmd) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.c.Close()
}

func (m *mgmd) port(ctx context.Context, node int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	m.mu.Lock()
	c := m.c
	m.mu.Unlock()
	p, err := c.GetPort(ctx, m.id, node)
	if errors.Is(err, mgmclient.ErrGone) { // another one may know
		select {
		case m.look <- struct{}{}:
		default:
		}
	}
	return p, err
}

// keep looks from time to time whether the session with the management server lives, since it holds the node id, and
// opens another, with any server of the connect string, when it does not. Nothing else depends on it: the links to the data
// nodes prove that the node lives.
func (m *mgmd) keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		case <-m.look:
		}
		m.mu.Lock()
		c := m.c
		m.mu.Unlock()
		check, cancel := context.WithTimeout(ctx, 3*time.Second)
		err := c.CheckConnection(check)
		cancel()
		if err == nil || ctx.Err() != nil {
			continue
		}
		opts := m.opts
		opts.Retries = 0
		n, err := mgmclient.ConnectTo(ctx, m.target, opts)
		if err != nil {
			continue
		}
		_, err = n.GetNodeID(ctx, mgmclient.NodeIDRequest{Type: config.APINode, NodeID: m.id, Name: m.name, Cluster: m.conf.Name,
			Secret: m.secret, Running: true})
		if err != nil {
			n.Close()
			continue
		}
		m.mu.Lock()
		m.c = n
		m.mu.Unlock()
		c.Close()
	}
}
