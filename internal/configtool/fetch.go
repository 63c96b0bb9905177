package configtool

import (
	"context"
	"fmt"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
)

// fetchTimeout is how long a server may take to answer.
const fetchTimeout = 10 * time.Second

// fetch asks a management server for the configuration, as a node has it or (0) as it is.
func fetch(connect string, node int) (*config.Config, error) {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	client, err := mgmclient.Connect(ctx, mgmclient.ConnectString(connect), mgmclient.Options{Name: "ndb_config"})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	c, err := client.GetConfig(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("the management server %s gives no configuration: %w", client.Addr(), err)
	}
	return c, nil
}
