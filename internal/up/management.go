package up

import (
	"context"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
)

// askTimeout is how long a management server may take over one question.
const askTimeout = 3 * time.Second

// management asks the management server; it keeps its session while that lives.
type management struct {
	connectString string
	client        *mgmclient.Client
}

// session connects, unless there is a session already.
func (m *management) session(ctx context.Context) (*mgmclient.Client, error) {
	if m.client != nil && m.client.Alive() {
		return m.client, nil
	}
	var err error
	m.client, err = mgmclient.Connect(ctx, m.connectString, mgmclient.Options{Name: "cohort up", Timeout: askTimeout})
	return m.client, err
}

// status is how the data nodes are.
func (m *management) status() (*mgmclient.ClusterStatus, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	client, err := m.session(ctx)
	if err != nil {
		return nil, err
	}
	return client.Status(ctx, config.DataNode)
}

// shutdown asks for the end of all data nodes and of the management server.
func (m *management) shutdown(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client, err := m.session(ctx)
	if err != nil {
		return err
	}
	_, err = client.StopAll(ctx, true, true, mgmclient.StopOptions{})
	return err
}

func (m *management) close() {
	if m.client != nil {
		m.client.Close()
	}
}
