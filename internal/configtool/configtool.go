// Package configtool is ndb_config: it answers questions about a cluster's configuration, for scripts.
//
// It reads a configuration file, or asks a management server, and prints values of nodes, or describes the
// parameters themselves. It never changes anything. Output on success is nothing but the answer, so that a
// script can take it as it is; faults go to standard error.
//
// Read next: query.go (values of nodes), info.go (the parameters themselves).
package configtool

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/options"
)

const (
	exitFailed = options.StatusFailed
	exitUsage  = options.StatusUsage
)

// request is what the command line asks for.
type request struct {
	connect  string // connect string of management servers
	file     string // configuration file, in place of a server
	myCnf    bool
	fromNode int // the node whose configuration is asked of the server

	info        bool // describe parameters
	xml         bool
	diffDefault bool
	queryAll    bool
	query       string

	nodes, connections, system bool // what the query is about; none: nodes

	nodeID int
	host   string
	kind   string // ndbd, mysqld, ndb_mgmd

	fields, rows string // separators
}

func (r *request) describe() *options.Set {
	s := options.New("[options]", "Prints values of a cluster's configuration, or describes the parameters that there are.")
	s.String(&r.connect, "ndb-connectstring,c", "CONNECTSTRING", "where the management servers are\n(default: $NDB_CONNECTSTRING, else localhost:1186)")
	s.String(&r.file, "config-file", "FILE", "read this config.ini in place of asking a server")
	s.Bool(&r.myCnf, "mycnf", "the file has the my.cnf form, with [cluster_config]")
	s.Int(&r.fromNode, "config-from-node", "ID", "ask for the configuration as this node has it", 1, 255)
	s.String(&r.query, "query,q", "NAMES", "parameters to print, separated by commas; id, type, host\nand nodegroup besides")
	s.Bool(&r.queryAll, "query-all,a", "print all parameters, as NAME=VALUE")
	s.Bool(&r.diffDefault, "diff-default", "print the parameters that differ from their defaults")
	s.Bool(&r.nodes, "nodes", "query nodes (the default)")
	s.Bool(&r.connections, "connections", "query links between nodes")
	s.Bool(&r.system, "system", "query the cluster as a whole")
	s.Int(&r.nodeID, "nodeid", "ID", "only this node", 1, 255)
	s.String(&r.host, "host", "NAME", "only nodes on this host")
	s.String(&r.kind, "type", "TYPE", "only nodes of this type: ndbd, mysqld or ndb_mgmd")
	s.String(&r.fields, "fields,f", "SEPARATOR", "stands between the values of a node (default: a comma)")
	s.String(&r.rows, "rows,r", "SEPARATOR", "stands between nodes (default: a blank); \\n and \\t are known")
	s.Bool(&r.info, "configinfo", "describe all parameters")
	s.Bool(&r.xml, "xml", "with --configinfo: as XML")
	s.Func("config-binary-file", "FILE", "not supported yet", func(string) error { return errBinaryFile })
	s.Example("ndb_config --query=id,type,host --rows='\\n'")
	s.Example("ndb_config --type=ndbd --query=nodeid,DataMemory --config-file=config.ini")
	s.Example("ndb_config --configinfo")
	s.Example("ndb_config --diff-default -c 127.0.0.1:1186")
	return s
}

var errBinaryFile = errors.New("--config-binary-file is not supported yet: give the file that the configuration was made from with --config-file")

// Main runs ndb_config under the given name and returns its exit status.
func Main(name string, args []string, _ io.Reader, stdout, stderr io.Writer) int {
	r := &request{fields: ",", rows: " "}
	set := r.describe()
	rest, err := set.Parse(args)
	if err == nil {
		err = options.NoArguments(rest)
	}
	if err == nil {
		err = r.settle()
	}
	if status, done := set.Answer(err, name, stdout, stderr); done {
		if errors.Is(err, errBinaryFile) {
			status = exitFailed
		}
		return status
	}
	answer, warnings, err := r.answer()
	for _, w := range warnings {
		fmt.Fprintf(stderr, "%s: warning: %s\n", name, w)
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return exitFailed
	}
	io.WriteString(stdout, answer)
	return 0
}

// settle refuses what does not fit together.
func (r *request) settle() error {
	asked := 0
	for _, b := range []bool{r.info, r.diffDefault, r.queryAll, r.query != ""} {
		if b {
			asked++
		}
	}
	about := 0
	for _, b := range []bool{r.nodes, r.connections, r.system} {
		if b {
			about++
		}
	}
	switch {
	case asked == 0:
		return errors.New("nothing is asked: give --query, --query-all, --diff-default or --configinfo; --help explains them")
	case asked > 1:
		return errors.New("--query, --query-all, --diff-default and --configinfo exclude one another: give one of them")
	case about > 1:
		return errors.New("--nodes, --connections and --system exclude one another: give one of them")
	case r.xml && !r.info:
		return errors.New("--xml belongs to --configinfo: give both, or none")
	case r.diffDefault && (r.connections || r.system):
		return errors.New("--diff-default is about nodes: leave --connections and --system out")
	case r.myCnf && r.file == "":
		return errors.New("--mycnf says what form the file of --config-file has: give the file too")
	case r.file != "" && r.fromNode != 0:
		return errors.New("--config-from-node asks a server, --config-file does not: give one of them")
	}
	if _, ok := types[r.kind]; r.kind != "" && !ok {
		return fmt.Errorf("--type=%s is no type of node: give ndbd, mysqld or ndb_mgmd", r.kind)
	}
	for _, separator := range []*string{&r.fields, &r.rows} {
		*separator = strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(*separator)
	}
	return nil
}

// answer is the whole output.
func (r *request) answer() (text string, warnings []config.Warning, err error) {
	if r.info {
		if r.xml {
			return infoXML(), nil, nil
		}
		return infoText(), nil, nil
	}
	var c *config.Config
	if r.file != "" {
		data, err := options.ReadFile(r.file)
		if err != nil {
			return "", nil, fmt.Errorf("the configuration cannot be read: %w", err)
		}
		if c, warnings, err = config.Parse(data, config.Options{FileName: r.file, MyCnf: r.myCnf}); err != nil {
			return "", warnings, fmt.Errorf("the configuration cannot be used:\n%w", err)
		}
	} else if c, err = fetch(r.connect, r.fromNode); err != nil {
		return "", nil, err
	}
	text, err = r.values(c)
	return text, warnings, err
}
