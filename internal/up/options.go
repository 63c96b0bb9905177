package up

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cohortdb/cohort/internal/options"
)

const (
	defaultDir     = "cohort-data"
	defaultMgmPort = 1186

	serversMax   = 4
	dataNodesMax = 144
	replicasMax  = 4
	apiNodesMax  = 100
)

// setting is one --set Parameter=Value.
type setting struct{ name, value string }

// choices are what the command line asks for.
type choices struct {
	dir           string // where config.ini, logs and nodes' files go; with ephemeral, a temporary folder
	ephemeral     bool   // the folder is removed at the end
	config        string // the user's own configuration file; empty: one is made
	dataNodes     int    // 0 in a field below means: not given
	replicas      int
	apiNodes      int
	servers       int // management servers
	settings      []setting
	mgmPort       int // 0: any free one
	mgmPortGiven  bool
	multiThreaded bool
	run           string // the command to run in place of waiting; empty: none
	startTimeout  time.Duration
}

// errSQLPort answers --sql-port, which scripts may know already.
var errSQLPort = errors.New("not supported yet: there is no SQL node so far; leave the option out")

// describe is the set of options, with o as the place of their values.
func (o *choices) describe() *options.Set {
	s := options.New("[options]", `Starts a whole cluster on this machine: a management server and data nodes, each a process of its own on the
loopback address. Prints "cohort: ready connectstring=HOST:PORT" when all nodes are started, and runs until it is
interrupted (Ctrl-C); then it stops the nodes in order.

Each start writes config.ini in the folder anew: keep your own in another file and give it with --config. A node's
output is in ndb_ID_out.log there, the cluster log in ndb_ID_cluster.log.`)
	s.String(&o.dir, "dir", "D", "folder for config.ini, logs and the nodes' files\n(default: ./"+defaultDir+")")
	s.Bool(&o.ephemeral, "ephemeral", "a temporary folder in place of --dir, removed at the end")
	s.Int(&o.dataNodes, "data-nodes", "N", "data nodes (default: 2)", 1, dataNodesMax)
	s.Int(&o.replicas, "replicas", "R", "copies of each row, 1 to 4; N must be a multiple of it\n(default: 2, or 1 with one data node)", 1, replicasMax)
	s.Int(&o.apiNodes, "api-nodes", "N", "slots for clients (default: 24)", 1, apiNodesMax)
	s.Int(&o.servers, "mgm-servers", "N", "management servers (default: 1)", 1, serversMax)
	s.Func("set", "PARAMETER=VALUE", "sets a configuration parameter in all sections that\nhave it; may be repeated", o.addSetting)
	s.String(&o.config, "config", "F", "this configuration, config.ini or my.cnf form, in place\nof a made one; all its hosts become this machine")
	s.Func("mgm-port", "P", "port of the (first) management server; 0: any free one\n(default: 1186, or a free one if that is taken)", func(text string) error {
		o.mgmPortGiven = true
		n, err := parsePort(text)
		o.mgmPort = n
		return err
	})
	s.Bool(&o.multiThreaded, "multi-threaded", "ndbmtd for data nodes (default: ndbmtd where a node has\nmore than two CPUs or --set lays out threads, else ndbd)")
	s.Func("run", "COMMAND", "run this shell command in place of waiting, with\nNDB_CONNECTSTRING set and this binary's folder first in\nPATH; then stop the cluster and exit with its status", func(text string) error {
		if strings.TrimSpace(text) == "" {
			return errors.New("there is no command")
		}
		o.run = text
		return nil
	})
	s.Func("start-timeout", "TIME", "give up when the cluster is not started by then\n(default: 2m)", func(text string) error {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return fmt.Errorf("%q is not a time such as 90s or 5m", text)
		}
		o.startTimeout = d
		return nil
	})
	s.Func("sql-port", "P", "port of the SQL node: not supported yet", func(string) error { return errSQLPort })
	s.Example("cohort up")
	s.Example("cohort up --data-nodes 4 --set DataMemory=500M")
	s.Example("cohort up --ephemeral --data-nodes 1 --run 'flexAsynch -ndbrecord -temp -t 8 -p 512 -r 5 -a 2'")
	s.Example("cohort up --config cluster.cnf --mgm-port 0")
	return s
}

func (o *choices) addSetting(text string) error {
	name, value, ok := strings.Cut(text, "=")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if !ok || name == "" || strings.ContainsAny(text, "\r\n") {
		return fmt.Errorf("%q is not of the form Parameter=Value", text)
	}
	o.settings = append(o.settings, setting{name, value})
	return nil
}

// sets says whether a --set is for a parameter.
func (o *choices) sets(name string) bool {
	return slices.ContainsFunc(o.settings, func(s setting) bool { return strings.EqualFold(s.name, name) })
}

func parsePort(text string) (port int, err error) {
	if n, err := fmt.Sscanf(text, "%d", &port); n != 1 || err != nil || fmt.Sprint(port) != text || port < 0 || port > 65535 {
		return 0, fmt.Errorf("%q is not a number from 0 to 65535", text)
	}
	return port, nil
}

// parse reads a command line. Help and version come as options.ErrHelp and options.ErrVersion.
func parse(args []string) (*choices, *options.Set, error) {
	o := &choices{mgmPort: defaultMgmPort, startTimeout: 2 * time.Minute}
	set := o.describe()
	rest, err := set.Parse(args)
	if err == nil {
		err = options.NoArguments(rest)
	}
	if err == nil {
		err = o.settle()
	}
	return o, set, err
}

// settle fills in what depends on other options, and refuses what does not fit together.
func (o *choices) settle() error {
	if o.ephemeral && o.dir != "" {
		return errors.New("--ephemeral makes a temporary folder, --dir names one: choose one of them")
	}
	if o.dir == "" {
		o.dir = defaultDir
	}
	if o.config != "" && o.dataNodes+o.replicas+o.apiNodes+o.servers > 0 {
		return errors.New("--data-nodes, --replicas, --api-nodes and --mgm-servers say what the file of --config says: leave them out")
	}
	if o.dataNodes == 0 {
		o.dataNodes = max(2, o.replicas)
	}
	if o.replicas == 0 {
		o.replicas = min(2, o.dataNodes)
	}
	if o.servers == 0 {
		o.servers = 1
	}
	if o.apiNodes == 0 {
		o.apiNodes = 24
	}
	if o.dataNodes%o.replicas != 0 {
		return fmt.Errorf("%d data nodes cannot form node groups of %d replicas: --data-nodes must be a multiple of --replicas", o.dataNodes, o.replicas)
	}
	return nil
}
