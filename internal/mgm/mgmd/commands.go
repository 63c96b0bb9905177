package mgmd

import (
	"context"
	"strconv"
	"strings"

	"github.com/cohortdb/cohort/internal/mgm/wire"
)

// kind is what an argument's value must be.
type kind int

const (
	text kind = iota
	number
)

// argument is one that a command takes.
type argument struct {
	name     string
	kind     kind
	optional bool
}

// command is an entry of the protocol.
type command struct {
	args []argument
	run  func(s *Server, ctx context.Context, ss *session, r *wire.Request) answer
}

// commands is the protocol: every command, its arguments, and what runs it.
var commands map[string]*command

func init() {
	n := func(name string) argument { return argument{name, number, false} }
	on := func(name string) argument { return argument{name, number, true} }
	t := func(name string) argument { return argument{name, text, false} }
	ot := func(name string) argument { return argument{name, text, true} }
	body := []argument{n("Content-Length"), ot("Content-Type"), ot("Content-Transfer-Encoding")}

	commands = map[string]*command{
		"get version":       {nil, (*Server).getVersion},
		"set clientversion": {[]argument{n("major"), n("minor"), n("build"), ot("name")}, (*Server).setClientVersion},
		"get status":        {[]argument{ot("types")}, (*Server).getStatus},
		"get nodeid": {[]argument{n("version"), n("nodetype"), on("transporter"), on("nodeid"), ot("user"), ot("password"), ot("public key"),
			ot("endian"), ot("name"), on("timeout"), on("log_event"), ot("cluster"), ot("secret"), on("running")}, (*Server).getNodeID},
		"get config":       {[]argument{n("version"), on("node"), on("nodetype"), on("from_node")}, (*Server).getConfig},
		"get config_v2":    {[]argument{n("version"), on("node"), on("nodetype"), on("from_node")}, (*Server).getConfig},
		"set config_v2":    {body, (*Server).putConfig},
		"get mgmd nodeid":  {nil, (*Server).getMgmdNodeID},
		"show config":      {[]argument{ot("Section"), on("NodeId"), ot("Name")}, (*Server).showConfig},
		"reload config":    {[]argument{ot("config_filename"), on("mycnf"), on("force")}, (*Server).reloadConfig},
		"start":            {[]argument{n("node")}, (*Server).startNode},
		"start all":        {nil, (*Server).startAll},
		"stop":             {[]argument{t("node"), on("abort"), on("force")}, (*Server).stopNodes},
		"stop v2":          {[]argument{t("node"), on("abort"), on("force")}, (*Server).stopNodes},
		"stop all":         {[]argument{on("abort"), ot("stop")}, (*Server).stopAll},
		"restart node":     {[]argument{t("node"), on("initialstart"), on("nostart"), on("abort"), on("force")}, (*Server).restartNodes},
		"restart node v2":  {[]argument{t("node"), on("initialstart"), on("nostart"), on("abort"), on("force")}, (*Server).restartNodes},
		"restart all":      {[]argument{on("initialstart"), on("nostart"), on("abort")}, (*Server).restartAll},
		"check connection": {nil, (*Server).checkConnection},

		"set connection parameter": {[]argument{n("node1"), n("node2"), n("param"), n("value")}, (*Server).setPort},
		"get connection parameter": {[]argument{n("node1"), n("node2"), n("param")}, (*Server).getPort},
		"transporter connect":      {nil, (*Server).transporterConnect},

		"get info clusterlog":  {nil, (*Server).getInfoClusterlog},
		"get cluster loglevel": {nil, (*Server).getClusterLogLevel},
		"set cluster loglevel": {[]argument{n("node"), t("category"), n("level")}, (*Server).setClusterLogLevel},
		"set loglevel":         {[]argument{n("node"), t("category"), n("level")}, (*Server).setClusterLogLevel},
		"set logfilter":        {[]argument{n("level"), t("enable")}, (*Server).setLogFilter},
		"listen event":         {[]argument{on("node"), on("parsable"), ot("filter")}, (*Server).listenEvent},
		"dump events":          {[]argument{t("type"), ot("nodes")}, (*Server).dumpEvents},
		"dump state":           {[]argument{n("node"), t("args")}, (*Server).dumpState},

		"mgmd hello": {[]argument{n("node"), n("version"), t("cluster"), n("generation"), t("digest")}, (*Server).onHello},
		"mgmd sync":  {nil, (*Server).onSync},
		"mgmd hold": {[]argument{n("node"), t("secret"), n("version"), on("claimed"), on("running"), ot("address")},
			(*Server).onHold},
		"mgmd free":    {[]argument{n("node")}, (*Server).onFree},
		"mgmd port":    {[]argument{n("node1"), n("node2"), n("value")}, (*Server).onPort},
		"mgmd synced":  {nil, (*Server).onSynced},
		"mgmd prepare": {append([]argument{n("generation")}, body...), (*Server).onPrepare},
		"mgmd commit":  {[]argument{n("generation")}, (*Server).onCommit},
		"mgmd abort":   {nil, (*Server).onAbort},
		"mgmd end":     {[]argument{t("reason")}, (*Server).onEnd},

		"list sessions":        {nil, (*Server).listSessions},
		"get session id":       {nil, (*Server).getSessionID},
		"get session":          {[]argument{n("id")}, (*Server).getSession},
		"purge stale sessions": {nil, (*Server).purgeStaleSessions},
		"bye":                  {nil, (*Server).bye},
		"end session":          {nil, (*Server).endSession},

		"enter single user": {[]argument{n("nodeId")}, (*Server).enterSingleUser},
		"exit single user":  {nil, (*Server).exitSingleUser},
		"get cluster state": {nil, (*Server).getClusterState},
		"list transactions": {[]argument{ot("nodes"), on("most")}, (*Server).listTransactions},
		"list locks":        {[]argument{ot("nodes"), on("most")}, (*Server).listLocks},

		"start backup": {[]argument{on("completed"), on("backupid"), on("backuppoint"), ot("encryption_password"), on("password_length")},
			later("start backup reply", "backup")},
		"abort backup":     {[]argument{n("id")}, later("abort backup reply", "backup")},
		"create nodegroup": {[]argument{t("nodes")}, later("create nodegroup reply", "adding node groups while the cluster runs")},
		"drop nodegroup":   {[]argument{n("ng")}, later("drop nodegroup reply", "dropping node groups")},
		"start tls":        {nil, later("start tls reply", "TLS on this port")},
	}
}

// codeNotImplemented is NDB's error number for what a version cannot do.
const codeNotImplemented = 4003

// later answers for a capability that this version does not have.
func later(header, what string) func(*Server, context.Context, *session, *wire.Request) answer {
	return func(*Server, context.Context, *session, *wire.Request) answer {
		return reply(wire.Begin(header).Uint("error_code", codeNotImplemented).Field("result", what+" is not supported yet"))
	}
}

// execute checks a request against the table and runs it.
func (s *Server) execute(ctx context.Context, ss *session, r *wire.Request) answer {
	c := commands[r.Command]
	if c == nil {
		// The table has the spelling of NDB; people type in any case and with any spaces.
		if c = commands[strings.ToLower(strings.Join(strings.Fields(r.Command), " "))]; c == nil {
			return answer{bytes: wire.Unknown(r.Command)}
		}
	}
	for i, f := range r.Fields {
		a := c.argument(f.Name)
		switch {
		case a == nil:
			return answer{bytes: wire.Refusal("Unknown argument, '" + f.Name + "'")}
		case a.kind == number && !isNumber(f.Value):
			return answer{bytes: wire.Refusal("Type mismatch, '" + f.Name + "'")}
		}
		for _, earlier := range r.Fields[:i] {
			if earlier.Name == f.Name {
				return answer{bytes: wire.Refusal("Repeated argument, '" + f.Name + "'")}
			}
		}
	}
	for i := range c.args {
		if _, given := r.Fields.Get(c.args[i].name); !given && !c.args[i].optional {
			return answer{bytes: wire.Refusal("Missing argument, '" + c.args[i].name + "'")}
		}
	}
	return c.run(s, ctx, ss, r)
}

func (c *command) argument(name string) *argument {
	for i := range c.args {
		if c.args[i].name == name {
			return &c.args[i]
		}
	}
	return nil
}

func isNumber(value string) bool {
	_, err := strconv.ParseUint(value, 0, 32)
	return err == nil
}

// num is a number argument that execute has checked; absent is def.
func num(r *wire.Request, name string, def uint32) uint32 {
	n, err := r.Fields.Uint(name, def)
	if err != nil {
		return def
	}
	return n
}

func flag(r *wire.Request, name string) bool { return num(r, name, 0) != 0 }

// ids reads a list of node ids, separated by spaces or commas; ok is false if it is empty or has anything else.
func ids(list string) (nodes []uint8, ok bool) {
	for word := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ' ' || r == ',' }) {
		n, err := strconv.ParseUint(word, 10, 8)
		if err != nil || n == 0 {
			return nil, false
		}
		nodes = append(nodes, uint8(n))
	}
	return nodes, len(nodes) > 0
}

func bad(header, format string) answer { return reply(wire.Begin(header).Field("result", format)) }

// Commands are the names of all commands, each with whether it takes arguments.
func Commands() map[string]bool {
	all := map[string]bool{}
	for name, c := range commands {
		all[name] = len(c.args) > 0
	}
	return all
}
