package mgmclient

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/wire"
	"github.com/cohortdb/cohort/internal/version"
)

// ServerPort is the parameter of set and get connection parameter: the port on which a data node listens for links.
const ServerPort = 406

// NodeIDRequest says which node id is wanted.
type NodeIDRequest struct {
	Type config.NodeType
	// NodeID is the id that must be given, 0 for any that fits.
	NodeID int
	// Name says who asks, for the log.
	Name string
	// Cluster is the name of the cluster that the node belongs to, if it knows already; another cluster refuses.
	Cluster string
	// Secret tells this run of the node from any other; its link's Hello must carry the same. 0: none.
	Secret uint64
	// Running says that the node runs with NodeID already and only lost its management server: the server takes the word
	// of the data nodes' links for it, not against it.
	Running bool
	// Wait is how long the server may wait for an id that is taken to become free.
	Wait time.Duration
}

// NDB's numbers for refusals of a node id.
const (
	CodeNodeID       = 1101 // no id: taken, not configured, wrong host, …
	CodeNodeIDConfig = 1102 // the node and the server do not belong together: version, cluster name
)

// NDB's numbers for refusals of single user mode.
const (
	CodeEnterSingle = 4001
	CodeExitSingle  = 4002
)

// GetNodeID takes a node id. It is held by this session; see the package comment.
func (c *Client) GetNodeID(ctx context.Context, r NodeIDRequest) (int, error) {
	b := wire.Begin("get nodeid").
		Uint("version", version.Number).
		Uint("nodetype", uint32(r.Type)).
		Uint("nodeid", uint32(r.NodeID)).
		Field("user", "cohort").Field("password", "cohort").Field("public key", "none").
		Field("endian", "little").
		Uint("timeout", uint32(r.Wait.Milliseconds()))
	if r.Name != "" {
		b.Field("name", r.Name)
	}
	if r.Cluster != "" {
		b.Field("cluster", r.Cluster)
	}
	if r.Secret != 0 {
		b.Field("secret", strconv.FormatUint(r.Secret, 16))
	}
	if r.Running {
		b.Bool("running", true)
	}
	reply, err := c.call(ctx, "get nodeid reply", b)
	if err != nil {
		return 0, err
	}
	id, err := reply.Fields.Uint("nodeid", 0)
	if err != nil || id < 1 || id > 255 {
		return 0, fmt.Errorf("the management server gave %q as node id", reply.Fields)
	}
	return int(id), nil
}

// GetConfig fetches the cluster's configuration for a node.
func (c *Client) GetConfig(ctx context.Context, node int) (*config.Config, error) {
	raw, err := c.GetConfigBytes(ctx, node)
	if err != nil {
		return nil, err
	}
	return config.UnmarshalBinary(raw)
}

// GetConfigBytes fetches the configuration in its binary form.
func (c *Client) GetConfigBytes(ctx context.Context, node int) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := wire.Begin("get config_v2").Uint("version", version.Number)
	if node != 0 {
		b.Uint("node", uint32(node))
	}
	reply, err := c.callLocked(ctx, "get config reply", b.End())
	if err != nil {
		return nil, err
	}
	length, err := reply.Fields.Uint("Content-Length", 0)
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	defer c.watch(ctx)()
	body, err := c.reader.Body(int64(length))
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	for range 2 { // the end of the body's last line, then the empty line
		if blank, err := c.reader.Line(); err != nil || blank != "" {
			return nil, c.fail(ctx, errors.New("no empty line follows the configuration"))
		}
	}
	raw := make([]byte, base64.StdEncoding.DecodedLen(len(body)))
	n, err := base64.StdEncoding.Decode(raw, body)
	if err != nil {
		return nil, fmt.Errorf("the configuration came damaged (%w): ask again", err)
	}
	return raw[:n], nil
}

// SetConfig gives the server a new configuration.
func (c *Client) SetConfig(ctx context.Context, conf *config.Config) error {
	raw, err := conf.MarshalBinary()
	if err != nil {
		return err
	}
	body := make([]byte, base64.StdEncoding.EncodedLen(len(raw)))
	base64.StdEncoding.Encode(body, raw)
	b := wire.Begin("set config_v2").Int("Content-Length", int64(len(body))).
		Field("Content-Type", "ndbconfig/octet-stream").Field("Content-Transfer-Encoding", "base64")
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err = c.callLocked(ctx, "set config reply", b.EndBody(body))
	return err
}

// SetPort tells the server on which port a data node listens for links. A node says it again to a server that was
// started anew.
func (c *Client) SetPort(ctx context.Context, node, port int) error {
	_, err := c.call(ctx, "set connection parameter reply", wire.Begin("set connection parameter").
		Uint("node1", uint32(node)).Uint("node2", 0).Uint("param", ServerPort).Int("value", int64(port)))
	return err
}

// GetPort asks on which port the listening one of two nodes listens for the other; 0: not known yet.
func (c *Client) GetPort(ctx context.Context, node1, node2 int) (int, error) {
	reply, err := c.call(ctx, "get connection parameter reply", wire.Begin("get connection parameter").
		Uint("node1", uint32(node1)).Uint("node2", uint32(node2)).Uint("param", ServerPort))
	if err != nil {
		return 0, err
	}
	port, err := reply.Fields.Uint("value", 0)
	if err != nil || port > 65535 {
		return 0, fmt.Errorf("the management server gave a port that is none: %q", reply.Fields)
	}
	return int(port), nil
}

// MgmdNodeID is the server's own node id.
func (c *Client) MgmdNodeID(ctx context.Context) (int, error) {
	reply, err := c.call(ctx, "get mgmd nodeid reply", wire.Begin("get mgmd nodeid"))
	if err != nil {
		return 0, err
	}
	id, err := reply.Fields.Uint("nodeid", 0)
	return int(id), err
}

// ConvertToTransporter makes the session a link: the text protocol ends, and the connection is the caller's, without
// deadlines and with nothing read ahead of the caller. The Client is of no further use.
func (c *Client) ConvertToTransporter(ctx context.Context) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return nil, c.broken
	}
	if c.reader.Buffered() > 0 {
		return nil, c.fail(ctx, errors.New("the server said something that nobody asked for"))
	}
	stop := c.watch(ctx)
	_, err := c.conn.Write(wire.Begin("transporter connect").End())
	stop()
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	c.broken = fmt.Errorf("%w: it became a link", ErrGone)
	if err := c.conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return c.conn, nil
}

// CheckConnection asks for a sign of life.
func (c *Client) CheckConnection(ctx context.Context) error {
	_, err := c.call(ctx, "check connection reply", wire.Begin("check connection"))
	return err
}
