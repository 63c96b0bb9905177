package mgmclient

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/wire"
)

// Status is what a node does, in the protocol's words.
type Status string

// The states.
const (
	Unknown      Status = "UNKNOWN"
	NoContact    Status = "NO_CONTACT"
	NotStarted   Status = "NOT_STARTED"
	Starting     Status = "STARTING"
	Started      Status = "STARTED"
	ShuttingDown Status = "SHUTTING_DOWN"
	Restarting   Status = "RESTARTING"
	SingleUser   Status = "SINGLE USER MODE"
	Resume       Status = "RESUME"
	Connected    Status = "CONNECTED"
)

// Statuses are all states.
var Statuses = []Status{Unknown, NoContact, NotStarted, Starting, Started, ShuttingDown, Restarting, SingleUser, Resume, Connected}

// NoPlace is the dynamic id and node group of a node that has none.
const NoPlace = -1

// NodeStatus is how one node is.
type NodeStatus struct {
	ID           int
	Type         config.NodeType
	Status       Status
	Version      uint32 // 0: never heard of
	MySQLVersion uint32
	StartPhase   int // last completed, while starting
	DynamicID    int // order of joining, NoPlace if not in the cluster
	NodeGroup    int // NoPlace if in none
	ConnectCount int
	Address      string // from where it is connected, or where it is expected; empty: anywhere
	SingleUser   bool   // the server says so for its whole cluster
	CopyDone     uint32 // while starting: MB of rows copied from its peers
	CopyTotal    uint32 // … of how many; 0: it does not copy
}

// IsConnected reports whether the server has heard of the node and not lost it.
func (n *NodeStatus) IsConnected() bool { return n.Status != NoContact && n.Status != Unknown }

// ClusterStatus is how all nodes of the asked types are, in the order data, management, API, each by id.
type ClusterStatus struct{ Nodes []NodeStatus }

// Node finds a node, nil if there is none.
func (s *ClusterStatus) Node(id int) *NodeStatus {
	for i := range s.Nodes {
		if s.Nodes[i].ID == id {
			return &s.Nodes[i]
		}
	}
	return nil
}

// OfType are the nodes of a type.
func (s *ClusterStatus) OfType(t config.NodeType) (nodes []*NodeStatus) {
	for i := range s.Nodes {
		if s.Nodes[i].Type == t {
			nodes = append(nodes, &s.Nodes[i])
		}
	}
	return nodes
}

// President is the data node that leads: the connected one that joined first; 0 if none is in a cluster.
func (s *ClusterStatus) President() int {
	president, first := 0, 0
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Type != config.DataNode || !n.IsConnected() || n.DynamicID == NoPlace {
			continue
		}
		if president == 0 || n.DynamicID < first {
			president, first = n.ID, n.DynamicID
		}
	}
	return president
}

// Status asks how the nodes of some types are; none means all.
func (c *Client) Status(ctx context.Context, types ...config.NodeType) (*ClusterStatus, error) {
	b := wire.Begin("get status")
	if len(types) > 0 {
		var words []string
		for _, t := range types {
			words = append(words, t.String())
		}
		b.Field("types", strings.Join(words, " "))
	}
	reply, err := c.call(ctx, "node status", b)
	if err != nil {
		return nil, err
	}
	return ParseStatus(reply.Fields)
}

// ParseStatus reads the lines of a node status.
func ParseStatus(fields wire.Fields) (*ClusterStatus, error) {
	count, err := fields.Uint("nodes", 0)
	if err != nil || count > 255 {
		return nil, fmt.Errorf("the status has no number of nodes")
	}
	s := &ClusterStatus{}
	for _, f := range fields {
		rest, ok := strings.CutPrefix(f.Name, "node.")
		if !ok {
			continue
		}
		idText, name, ok := strings.Cut(rest, ".")
		id, err := strconv.Atoi(idText)
		if !ok || err != nil || id < 1 || id > 255 {
			return nil, fmt.Errorf("the status has a line %q", f.Name)
		}
		n := s.Node(id)
		if n == nil {
			s.Nodes = append(s.Nodes, NodeStatus{ID: id, Status: Unknown, DynamicID: NoPlace, NodeGroup: NoPlace})
			n = &s.Nodes[len(s.Nodes)-1]
		}
		if err := n.set(name, f.Value); err != nil {
			return nil, fmt.Errorf("the status of node %d: %w", id, err)
		}
	}
	if len(s.Nodes) != int(count) {
		return nil, fmt.Errorf("the status speaks of %d nodes and has %d", count, len(s.Nodes))
	}
	return s, nil
}

func (n *NodeStatus) set(name, value string) error {
	number := func(target *int) error {
		v, err := strconv.Atoi(value)
		if err != nil {
			return fmt.Errorf("%s is %q", name, value)
		}
		*target = v
		return nil
	}
	unsigned := func(target *uint32) error {
		v, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return fmt.Errorf("%s is %q", name, value)
		}
		*target = uint32(v)
		return nil
	}
	switch name {
	case "type":
		t, ok := ParseNodeType(value)
		if !ok {
			return fmt.Errorf("type is %q", value)
		}
		n.Type = t
	case "status":
		n.Status = Unknown
		for _, s := range Statuses {
			if string(s) == value {
				n.Status = s
			}
		}
	case "version":
		return unsigned(&n.Version)
	case "mysql_version":
		return unsigned(&n.MySQLVersion)
	case "startphase":
		return number(&n.StartPhase)
	case "dynamic_id":
		return number(&n.DynamicID)
	case "node_group":
		return number(&n.NodeGroup)
	case "connect_count":
		return number(&n.ConnectCount)
	case "address":
		n.Address = value
	case "copy_done_mb":
		return unsigned(&n.CopyDone)
	case "copy_total_mb":
		return unsigned(&n.CopyTotal)
	case "is_single_user":
		n.SingleUser = value == "1"
	}
	return nil
}

// ParseNodeType reads the protocol's word for a type.
func ParseNodeType(word string) (config.NodeType, bool) {
	for _, t := range []config.NodeType{config.DataNode, config.APINode, config.ManagementNode} {
		if strings.EqualFold(word, t.String()) {
			return t, true
		}
	}
	return 0, false
}

// ClusterState is the cluster as a whole, as the server puts it together from what nodes say.
type ClusterState struct {
	View       uint32 // number of the members' view, 0: no cluster runs
	Members    int
	President  int
	Arbitrator int      // 0: none
	SingleUser int      // the only client that is let in, 0: all are
	Dangers    []string // what is wrong although it runs
}

// ClusterState asks how the cluster as a whole is.
func (c *Client) ClusterState(ctx context.Context) (*ClusterState, error) {
	reply, err := c.call(ctx, "cluster state", wire.Begin("get cluster state"))
	if err != nil {
		return nil, err
	}
	st := &ClusterState{}
	if st.View, err = reply.Fields.Uint("view", 0); err != nil {
		return nil, err
	}
	for name, to := range map[string]*int{"members": &st.Members, "president": &st.President, "arbitrator": &st.Arbitrator, "single_user": &st.SingleUser} {
		n, err := reply.Fields.Uint(name, 0)
		if err != nil {
			return nil, err
		}
		*to = int(n)
	}
	for _, f := range reply.Fields {
		if strings.HasPrefix(f.Name, "danger.") {
			st.Dangers = append(st.Dangers, f.Value)
		}
	}
	return st, nil
}

// ServerVersion is what a server says about itself.
type ServerVersion struct {
	Number      uint32
	Text        string
	MySQLNumber uint32
}

// Version asks for the server's version.
func (c *Client) Version(ctx context.Context) (ServerVersion, error) {
	reply, err := c.call(ctx, "version", wire.Begin("get version"))
	if err != nil {
		return ServerVersion{}, err
	}
	var v ServerVersion
	if v.Number, err = reply.Fields.Uint("id", 0); err != nil {
		return v, err
	}
	v.Text, _ = reply.Fields.Get("string")
	for _, part := range []string{"mysql_major", "mysql_minor", "mysql_build"} {
		n, err := reply.Fields.Uint(part, 0)
		if err != nil {
			return v, err
		}
		v.MySQLNumber = v.MySQLNumber<<8 | n
	}
	return v, nil
}

// StopOptions are how nodes are stopped or started again.
type StopOptions struct {
	Abort   bool // at once, without waiting for transactions
	Force   bool // even if the rest cannot go on
	Initial bool // restart: without the files
	NoStart bool // restart: wait for START
}

// Stopped is the outcome of a stop or restart.
type Stopped struct {
	Count      int
	Disconnect bool // the server itself goes away now
}

func nodeList(nodes []int) string {
	var words []string
	for _, n := range nodes {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, " ")
}

func stopped(reply *wire.Reply, err error, field string) (Stopped, error) {
	if err != nil {
		return Stopped{}, err
	}
	n, err := reply.Fields.Uint(field, 0)
	if err != nil {
		return Stopped{}, err
	}
	d, _ := reply.Fields.Get("disconnect")
	return Stopped{int(n), d == "1"}, nil
}

// Stop stops some nodes.
func (c *Client) Stop(ctx context.Context, nodes []int, o StopOptions) (Stopped, error) {
	reply, err := c.call(ctx, "stop reply", wire.Begin("stop v2").Field("node", nodeList(nodes)).Bool("abort", o.Abort).Bool("force", o.Force))
	return stopped(reply, err, "stopped")
}

// StopAll stops all data nodes (db), the management server (mgm), or both.
func (c *Client) StopAll(ctx context.Context, db, mgm bool, o StopOptions) (Stopped, error) {
	var what []string
	if db {
		what = append(what, "db")
	}
	if mgm {
		what = append(what, "mgm")
	}
	reply, err := c.call(ctx, "stop reply", wire.Begin("stop all").Bool("abort", o.Abort).Field("stop", strings.Join(what, ",")))
	return stopped(reply, err, "stopped")
}

// Restart restarts some nodes.
func (c *Client) Restart(ctx context.Context, nodes []int, o StopOptions) (Stopped, error) {
	reply, err := c.call(ctx, "restart reply", wire.Begin("restart node v2").Field("node", nodeList(nodes)).
		Bool("initialstart", o.Initial).Bool("nostart", o.NoStart).Bool("abort", o.Abort).Bool("force", o.Force))
	return stopped(reply, err, "restarted")
}

// RestartAll restarts all data nodes.
func (c *Client) RestartAll(ctx context.Context, o StopOptions) (Stopped, error) {
	reply, err := c.call(ctx, "restart reply", wire.Begin("restart all").
		Bool("initialstart", o.Initial).Bool("nostart", o.NoStart).Bool("abort", o.Abort))
	return stopped(reply, err, "restarted")
}

// Start starts a data node that waits for it.
func (c *Client) Start(ctx context.Context, node int) error {
	_, err := c.call(ctx, "start reply", wire.Begin("start").Uint("node", uint32(node)))
	return err
}

// StartAll starts all data nodes that wait for it and says how many.
func (c *Client) StartAll(ctx context.Context) (int, error) {
	reply, err := c.call(ctx, "start reply", wire.Begin("start all"))
	s, err := stopped(reply, err, "started")
	return s.Count, err
}

// LogFilter asks for the cluster log's severity filter: [0] is the switch of the whole log, the rest by severity.
func (c *Client) LogFilter(ctx context.Context) (on bool, passes map[event.Severity]bool, err error) {
	reply, err := c.call(ctx, "clusterlog", wire.Begin("get info clusterlog"))
	if err != nil {
		return false, nil, err
	}
	passes = map[event.Severity]bool{}
	for _, f := range reply.Fields {
		if f.Name == "enabled" {
			on = f.Value == "1"
		} else if s, ok := event.ParseSeverity(f.Name); ok {
			passes[s] = f.Value == "1"
		}
	}
	return on, passes, nil
}

// SetLogFilter changes the filter of a severity: 0 the whole log, 7 all severities; change 1 on, 0 off, -1 toggle.
func (c *Client) SetLogFilter(ctx context.Context, severity, change int) error {
	_, err := c.call(ctx, "set logfilter reply", wire.Begin("set logfilter").Int("level", int64(severity)).Int("enable", int64(change)))
	return err
}

// LogLevels asks for the cluster log's level of each category.
func (c *Client) LogLevels(ctx context.Context) (event.Levels, error) {
	reply, err := c.call(ctx, "get cluster loglevel", wire.Begin("get cluster loglevel"))
	var levels event.Levels
	if err != nil {
		return levels, err
	}
	for _, f := range reply.Fields {
		if category, ok := event.ParseCategory(f.Name); ok {
			n, err := strconv.ParseUint(f.Value, 10, 8)
			if err != nil {
				return levels, fmt.Errorf("level of %s is %q", f.Name, f.Value)
			}
			levels[category] = uint8(n)
		}
	}
	return levels, nil
}

// SetLogLevel sets the level of a category for what a node reports to the cluster log.
func (c *Client) SetLogLevel(ctx context.Context, node int, category event.Category, level uint8) error {
	_, err := c.call(ctx, "set cluster loglevel reply", wire.Begin("set cluster loglevel").
		Uint("node", uint32(node)).Uint("category", uint32(category)+event.WireBase).Uint("level", uint32(level)))
	return err
}

// Dump hands numbers to a data node (DUMP).
func (c *Client) Dump(ctx context.Context, node int, args []uint32) error {
	var words []string
	for _, a := range args {
		words = append(words, strconv.FormatUint(uint64(a), 10))
	}
	_, err := c.call(ctx, "dump state reply", wire.Begin("dump state").Uint("node", uint32(node)).Field("args", strings.Join(words, " ")))
	return err
}

// PurgeStaleSessions gives node ids free whose holders do not react, and says which.
func (c *Client) PurgeStaleSessions(ctx context.Context) (string, error) {
	reply, err := c.call(ctx, "purge stale sessions reply", wire.Begin("purge stale sessions"))
	if err != nil {
		return "", err
	}
	purged, _ := reply.Fields.Get("purged")
	return purged, nil
}

// ReloadConfig makes the server read its configuration file anew; an empty name means the same file again.
func (c *Client) ReloadConfig(ctx context.Context, file string, mycnf bool) error {
	b := wire.Begin("reload config").Bool("mycnf", mycnf)
	if file != "" {
		b.Field("config_filename", file)
	}
	_, err := c.call(ctx, "reload config reply", b)
	return err
}

// ShowConfig asks for parameters; empty selections mean all.
func (c *Client) ShowConfig(ctx context.Context, section string, node int, name string) (wire.Fields, error) {
	b := wire.Begin("show config")
	if section != "" {
		b.Field("Section", section)
	}
	if node != 0 {
		b.Uint("NodeId", uint32(node))
	}
	if name != "" {
		b.Field("Name", name)
	}
	reply, err := c.call(ctx, "show config reply", b)
	if err != nil {
		return nil, err
	}
	return reply.Fields, nil
}

// EnterSingleUser and ExitSingleUser switch single user mode.
func (c *Client) EnterSingleUser(ctx context.Context, node int) error {
	_, err := c.call(ctx, "enter single user reply", wire.Begin("enter single user").Uint("nodeId", uint32(node)))
	return err
}

// ExitSingleUser ends single user mode.
func (c *Client) ExitSingleUser(ctx context.Context) error {
	_, err := c.call(ctx, "exit single user reply", wire.Begin("exit single user"))
	return err
}

// CreateNodegroup makes a node group of data nodes that have none and gives its number.
func (c *Client) CreateNodegroup(ctx context.Context, nodes []int) (int, error) {
	reply, err := c.call(ctx, "create nodegroup reply", wire.Begin("create nodegroup").Field("nodes", nodeList(nodes)))
	if err != nil {
		return 0, err
	}
	ng, err := reply.Fields.Uint("ng", 0)
	return int(ng), err
}

// DropNodegroup drops an empty node group.
func (c *Client) DropNodegroup(ctx context.Context, group int) error {
	_, err := c.call(ctx, "drop nodegroup reply", wire.Begin("drop nodegroup").Uint("ng", uint32(group)))
	return err
}

// Backup is what START BACKUP asks for.
type Backup struct {
	ID        uint32 // 0: the next
	Wait      int    // 0 not at all, 1 until started, 2 until completed
	Snapshot  int    // 0 as of the end, 1 as of the start
	Encrypted bool
	Password  string
}

// StartBackup starts a backup and gives its number.
func (c *Client) StartBackup(ctx context.Context, o Backup) (uint32, error) {
	b := wire.Begin("start backup").Uint("completed", uint32(o.Wait)).Uint("backuppoint", uint32(o.Snapshot))
	if o.ID != 0 {
		b.Uint("backupid", o.ID)
	}
	if o.Encrypted {
		b.Field("encryption_password", o.Password).Uint("password_length", uint32(len(o.Password)))
	}
	reply, err := c.call(ctx, "start backup reply", b)
	if err != nil {
		return 0, err
	}
	return reply.Fields.Uint("id", 0)
}

// AbortBackup ends a backup that runs.
func (c *Client) AbortBackup(ctx context.Context, id uint32) error {
	_, err := c.call(ctx, "abort backup reply", wire.Begin("abort backup").Uint("id", id))
	return err
}

// Do sends a command that no method here has and gives the lines of its answer.
func (c *Client) Do(ctx context.Context, request *wire.Builder) (*wire.Reply, error) {
	return c.call(ctx, "", request)
}
