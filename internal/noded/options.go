package noded

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/options"
	"github.com/cohortdb/cohort/internal/signal"
)

// settings are what the command line says.
type settings struct {
	connect string // connect string of the command line, empty where it has none
	servers config.ConnectString
	nodeID  int // 0: whichever is free
	noStart bool
	noWait  signal.NodeSet
	bind    string // address to listen on; empty: as the configuration says
	// How often to look for a management server (-1: for ever), and seconds for each time.
	retries, retryDelay int
	verbose             bool
	pprof               string // host:port, empty: none
	itself              bool   // the node has started this run by itself
}

// parse reads the command line of ndbd or ndbmtd.
func parse(args []string) (*settings, *options.Set, error) {
	s := &settings{}
	var noWait string
	var foreground, initial, daemon bool
	s.retries, s.retryDelay, s.itself = 12, 5, itself()
	set := options.New("[options]", "A data node of a Cohort cluster: gets its node id and configuration from the management server, and runs until the\n"+
		"cluster is told to stop. It stays in the foreground and logs to standard output; the exit status names the reason of its end.")
	set.String(&s.connect, "ndb-connectstring,c", "STRING", "management server: [nodeid=N,]HOST[:PORT][,HOST[:PORT]]…;\ndefault: $NDB_CONNECTSTRING, else localhost:1186")
	set.Int(&s.nodeID, "ndb-nodeid", "N", "node id to ask for; default: one that is free", 1, signal.MaxDataNode)
	set.Bool(&initial, "initial", "start without what earlier runs wrote (so far nothing is written, and every start is an initial one)")
	set.Bool(&s.noStart, "nostart,n", "wait for START of the management client")
	set.String(&noWait, "nowait-nodes", "LIST", "data nodes (ids, with commas between) that the first start need not wait for")
	set.String(&s.bind, "bind-address", "HOST", "address to listen on for other nodes; default: HostName of the configuration")
	set.Int(&s.retries, "connect-retries", "N", "how often to look for a management server; -1: for ever; default 12", -1, 1<<30)
	set.Int(&s.retryDelay, "connect-retry-delay", "SECONDS", "how long each of these may take; default 5", 0, 1<<20)
	set.Bool(&foreground, "nodaemon", "stay in the foreground: it always does")
	set.Bool(&foreground, "foreground", "the same")
	set.Bool(&daemon, "daemon,d", "not supported: start it in the background with a service manager, or with &")
	set.Bool(&s.verbose, "verbose,v", "log every event of the node, whatever the LogLevel parameters say")
	set.String(&s.pprof, "pprof", "HOST:PORT", "serve Go's profiles there; loopback addresses only")
	set.Example("ndbmtd -c mgmhost:1186")
	set.Example("ndbd -c nodeid=2,mgmhost --nostart")
	set.Example("NDB_CONNECTSTRING=mgmhost ndbmtd --ndb-nodeid=1")
	rest, err := set.Parse(args)
	if err != nil {
		return nil, set, err
	}
	switch {
	case len(rest) > 0:
		return nil, set, fmt.Errorf("there is no argument %q: --help lists the options", rest[0])
	case daemon:
		return nil, set, errors.New("--daemon is not supported: the process stays in the foreground; use a service manager, or & of the shell")
	}
	if s.servers, err = config.ParseConnectString(mgmclient.ConnectString(s.connect)); err != nil {
		return nil, set, err
	}
	if s.nodeID == 0 {
		s.nodeID = s.servers.NodeID
	}
	if s.noWait, err = parseNodes(noWait); err != nil {
		return nil, set, fmt.Errorf("option --nowait-nodes: %w", err)
	}
	return s, set, checkLoopback(s.pprof)
}

// patience is how long to look for a management server; negative: for ever. A node that starts again by itself has nobody
// who would start it once more.
func (s *settings) patience() time.Duration {
	if s.retries < 0 || s.itself {
		return -1
	}
	return time.Duration(s.retries) * time.Duration(s.retryDelay) * time.Second
}

// parseNodes reads a list of data nodes.
func parseNodes(list string) (signal.NodeSet, error) {
	var set signal.NodeSet
	for _, word := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > signal.MaxDataNode {
			return set, fmt.Errorf("%q is not a data node's id, 1 to %d", word, signal.MaxDataNode)
		}
		set.Add(uint8(n))
	}
	return set, nil
}

// checkLoopback accepts an empty address or one that only this machine reaches.
func checkLoopback(address string) error {
	if address == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("option --pprof: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("option --pprof: %s is no loopback address: profiles are for this machine only", host)
	}
	return nil
}
