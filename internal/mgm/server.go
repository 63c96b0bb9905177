package mgm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/clusterlog"
	"github.com/cohortdb/cohort/internal/mgm/configstore"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/mgmd"
	"github.com/cohortdb/cohort/internal/options"
)

// serverOptions are the command line of ndb_mgmd.
type serverOptions struct {
	name string

	file      string
	mycnf     bool
	configDir string
	cache     bool
	initial   bool
	reload    bool
	nodaemon  bool
	nodeID    int
	bind      string
	connect   string
	printFull bool
	verbose   bool
	hostMap   map[string]string
	overrides []config.Setting
}

func serverSet(o *serverOptions) *options.Set {
	set := options.New("-f FILE [options]", `The management server: hands out the configuration and node ids, knows the state of
every node, writes the cluster log, and answers ndb_mgm. It stays in the foreground.`)
	set.String(&o.file, "config-file,f", "FILE", "configuration of the cluster, a config.ini;\nread if none is stored, and with --initial or --reload")
	set.Bool(&o.mycnf, "mycnf", "the file is a my.cnf with [cluster_config]")
	set.String(&o.configDir, "configdir", "DIR", "where the configuration is stored\n(default: DataDir of the server, else the current folder)")
	set.Bool(&o.cache, "config-cache", "store the configuration (default); =0 reads the file\nat every start and stores nothing")
	set.Bool(&o.initial, "initial", "drop what is stored and read the file anew")
	set.Bool(&o.reload, "reload", "take what has changed in the file as a new version")
	set.Int(&o.nodeID, "ndb-nodeid", "N", "own node id, where the configuration has several\nmanagement servers on this host", 1, 255)
	set.Func("host-map", "NAME=ADDRESS,…", "use an address instead of a host name of the file", o.addHosts)
	set.Func("set", "PARAMETER=VALUE", "set a parameter over what the file says; may be repeated", o.addOverride)
	set.String(&o.bind, "bind-address", "HOST[:PORT]", "listen there (default: HostName if that is loopback,\nelse everywhere, on PortNumber)")
	set.String(&o.connect, "ndb-connectstring,c", "CONNECTSTRING", "other management servers, to fetch the configuration\nfrom where no file is named and none is stored")
	set.Bool(&o.printFull, "print-full-config,P", "print every parameter of the configuration and end")
	set.Bool(&o.nodaemon, "nodaemon", "stay in the foreground (it always does)")
	set.Func("daemon,d", "", "not supported: start it in the background with &\nor under a supervisor", func(string) error {
		return errors.New("the server stays in the foreground: start it in the background with & or under a supervisor")
	})
	set.Bool(&o.verbose, "verbose,v", "print on standard output what the cluster log has\nabout the start")
	set.Example("ndb_mgmd -f config.ini --configdir=/var/lib/cohort")
	set.Example("ndb_mgmd -f config.ini --reload")
	set.Example("ndb_mgmd -c mgm1:1186 --configdir=/var/lib/cohort")
	set.Example("ndb_mgmd -f my.cnf --mycnf --host-map n1=127.0.0.1,n2=127.0.0.1")
	return set
}

func (o *serverOptions) addHosts(list string) error {
	for pair := range strings.SplitSeq(list, ",") {
		name, address, found := strings.Cut(pair, "=")
		if !found || name == "" || address == "" {
			return fmt.Errorf("%q is not NAME=ADDRESS", pair)
		}
		if o.hostMap == nil {
			o.hostMap = map[string]string{}
		}
		o.hostMap[name] = address
	}
	return nil
}

func (o *serverOptions) addOverride(pair string) error {
	name, value, found := strings.Cut(pair, "=")
	if !found || name == "" {
		return fmt.Errorf("%q is not PARAMETER=VALUE", pair)
	}
	o.overrides = append(o.overrides, config.Setting{Name: name, Value: value})
	return nil
}

// MainMgmd is the program ndb_mgmd.
func MainMgmd(name string, args []string, _ io.Reader, stdout, stderr io.Writer) int {
	o := &serverOptions{name: name, cache: true}
	rest, status, done := parse(serverSet(o), name, args, stdout, stderr)
	if done {
		return status
	}
	if err := options.NoArguments(rest); err != nil {
		complain(stderr, name, err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx, stdout, stderr); err != nil {
		complain(stderr, name, err)
		return exitFailed
	}
	return exitDone
}

// run brings the server up, in the order in which each step needs the one before, and serves.
func (o *serverOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	if o.initial && o.reload {
		return errors.New("--initial and --reload exclude each other: --initial drops what is stored, --reload keeps it")
	}
	if o.file == "" && (o.initial || o.reload || !o.cache && o.connect == "" || o.printFull && o.configDir == "") {
		return errors.New("a configuration file is needed for that: name one with -f FILE")
	}
	fromFile, warnings, err := o.readIfNamed()
	for _, w := range warnings {
		fmt.Fprintf(stderr, "%s: warning: %s\n", o.name, w)
	}
	if err != nil {
		return err
	}
	// Who the servers are is known from the file, from what is stored, or from one that runs.
	known := fromFile
	if known == nil {
		if known, err = o.fetched(ctx); err != nil {
			return err
		}
	}
	id, err := o.ownID(known)
	if err != nil {
		return err
	}
	if o.printFull && fromFile != nil {
		printFull(stdout, fromFile)
		return nil
	}
	if err := o.standsIn(fromFile, id); err != nil {
		return err
	}
	start := mgmd.Start{File: fromFile, Initial: o.initial, Reload: o.reload, Own: id}
	if o.cache {
		if start.Store, err = configstore.Open(o.storeDir(known, id), id); err != nil {
			return err
		}
	}
	if start.Running, err = o.running(ctx, known, start.Store, id); err != nil {
		return err
	}
	choice, err := start.Choose()
	if err != nil {
		return err
	}
	for _, w := range choice.Warn {
		fmt.Fprintf(stderr, "%s: warning: %s\n", o.name, w)
	}
	if o.printFull {
		printFull(stdout, choice.Config)
		return nil
	}
	return o.serve(ctx, choice, id, start.Store, warnings, stdout, stderr)
}

func (o *serverOptions) serve(ctx context.Context, choice *mgmd.Choice, id int, store *configstore.Store, warnings []config.Warning, stdout, stderr io.Writer) error {
	c := choice.Config
	own := c.Node(id)
	if own == nil || own.Type != config.ManagementNode {
		return fmt.Errorf("node %d is no management server in the configuration that counts: correct --ndb-nodeid or start with --reload or --initial", id)
	}
	destinations, err := config.ParseLogDestination(own.String("LogDestination"))
	if err != nil {
		return err
	}
	log, err := clusterlog.Open(destinations, own.String("DataDir"), id, stdout, stderr)
	if err != nil {
		return err
	}
	defer log.Close()
	so := mgmd.Options{Config: c, NodeID: id, Store: store, Log: log, Notes: stderr}
	if o.file != "" {
		so.Read = o.read
	}
	server, err := mgmd.New(so)
	if err != nil {
		return err
	}
	listener, err := o.listen(own)
	if err != nil {
		return err
	}
	note := func(severity event.Severity, text string) {
		server.Note(severity, text)
		if o.verbose {
			fmt.Fprintln(stdout, text)
		}
	}
	for _, text := range choice.Notes {
		note(event.Note, text)
	}
	for _, text := range choice.Warn {
		note(event.Warning, text)
	}
	for _, w := range warnings {
		note(event.Warning, w.String())
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	var change sync.WaitGroup
	var refused error
	change.Go(func() {
		if choice.Change != nil {
			if refused = server.Change(ctx, choice.Change); refused != nil {
				end()
				return
			}
		}
		fmt.Fprintf(stdout, "ndb_mgmd: listening on %s\n", reachable(listener.Addr(), own))
	})
	err = server.Serve(ctx, listener)
	change.Wait()
	if refused != nil {
		return refused
	}
	if errors.Is(err, mgmd.ErrStopped) || ctx.Err() != nil {
		return nil
	}
	return err
}

// readIfNamed reads the configuration file of the command line, if there is one.
func (o *serverOptions) readIfNamed() (*config.Config, []config.Warning, error) {
	if o.file == "" {
		return nil, nil, nil
	}
	return o.read("", o.mycnf)
}

// read reads a configuration file; an empty name means the one of the command line.
func (o *serverOptions) read(file string, mycnf bool) (*config.Config, []config.Warning, error) {
	if file == "" {
		file, mycnf = o.file, o.mycnf
	}
	data, err := options.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("the configuration file cannot be read (%w): correct -f", err)
	}
	return config.Parse(data, config.Options{FileName: file, MyCnf: mycnf, HostMap: o.hostMap, Overrides: o.overrides})
}

// ownID finds out which node of the configuration this server is: as told, else the one whose host is this machine,
// else the one that has stored a configuration here.
func (o *serverOptions) ownID(c *config.Config) (int, error) {
	if o.nodeID != 0 {
		return o.nodeID, nil
	}
	if c == nil {
		dir := o.storeDir(nil, 0)
		nodes, err := configstore.Nodes(dir)
		switch {
		case err != nil:
			return 0, err
		case len(nodes) == 0:
			return 0, fmt.Errorf("no configuration is stored in %s and no file was named: name one with -f FILE, or the right folder with --configdir", dir)
		case len(nodes) > 1:
			return 0, fmt.Errorf("%s has configurations of several management servers (%v): say with --ndb-nodeid which one this is", dir, nodes)
		}
		return nodes[0], nil
	}
	var here, all []string
	id := 0
	for _, n := range c.ManagementNodes() {
		all = append(all, fmt.Sprintf("node %d at %s", n.ID, orAny(n.HostName)))
		if !n.Bool("Dedicated") && mgmd.IsThisHost(n.HostName) {
			here = append(here, strconv.Itoa(n.ID))
			id = n.ID
		}
	}
	switch len(here) {
	case 0:
		return 0, fmt.Errorf("no management server of the configuration (%s) is this host: correct HostName, map it with --host-map, or say with --ndb-nodeid which one this is",
			strings.Join(all, ", "))
	case 1:
		return id, nil
	}
	return 0, fmt.Errorf("management servers %s of the configuration are all this host: say with --ndb-nodeid which one this is", strings.Join(here, ", "))
}

// standsIn refuses an id that the file gives to no management server, before the file is stored for it. What is stored
// already counts more than the file, and is looked at later.
func (o *serverOptions) standsIn(c *config.Config, id int) error {
	if c == nil {
		return nil
	}
	if n := c.Node(id); n != nil && n.Type == config.ManagementNode {
		return nil
	}
	if stored, err := configstore.Nodes(o.storeDir(c, id)); err != nil {
		return err
	} else if o.cache && !o.initial && !o.reload && slices.Contains(stored, id) {
		return nil
	}
	return fmt.Errorf("node %d is no management server in %s: correct --ndb-nodeid", id, o.file)
}

func orAny(host string) string {
	if host == "" {
		return "any host"
	}
	return host
}

// storeDir is where configurations are stored.
func (o *serverOptions) storeDir(c *config.Config, id int) string {
	if o.configDir != "" {
		return o.configDir
	}
	if c != nil {
		if n := c.Node(id); n != nil && n.Type == config.ManagementNode && n.String("DataDir") != "" {
			return n.String("DataDir")
		}
	}
	return "."
}

// listen binds the server's port.
func (o *serverOptions) listen(own *config.Node) (net.Listener, error) {
	host, port := "", int(own.Int("PortNumber"))
	if own.HostName != "" && mgmd.IsLoopback(own.HostName) {
		host = own.HostName // nobody from elsewhere could have been meant
	}
	if o.bind != "" {
		target, err := config.ParseConnectString("bind-address=" + o.bind)
		if err != nil {
			return nil, err
		}
		host = target.Bind.Host
		if target.Bind.Port != 0 {
			port = target.Bind.Port
		}
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return nil, fmt.Errorf("%s is no address of this machine (%w): correct --bind-address or HostName", host, err)
	} else if err != nil {
		return nil, fmt.Errorf("port %d cannot be used (%w): end what listens there, or set PortNumber (0 takes any free port)", port, err)
	}
	return l, nil
}

// reachable is where clients find a listener.
func reachable(a net.Addr, own *config.Node) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return a.String()
	}
	host := tcp.IP.String()
	if tcp.IP.IsUnspecified() {
		if host = own.HostName; host == "" {
			host = "localhost"
		}
	}
	return net.JoinHostPort(host, strconv.Itoa(tcp.Port))
}

// fetched is the configuration of a server that runs, where no file is named and none is stored here; else nil.
func (o *serverOptions) fetched(ctx context.Context) (*config.Config, error) {
	nodes, err := configstore.Nodes(o.storeDir(nil, 0))
	if err != nil {
		return nil, err
	}
	if o.cache && (o.nodeID == 0 && len(nodes) > 0 || slices.Contains(nodes, o.nodeID)) {
		return nil, nil
	}
	from := mgmclient.ConnectString(o.connect)
	if from == "" {
		return nil, nil // ownID or Choose say what is missing
	}
	ctx, cancel := context.WithTimeout(ctx, fetchMax)
	defer cancel()
	client, err := mgmclient.Connect(ctx, from, mgmclient.Options{Name: "ndb_mgmd"})
	if err != nil {
		return nil, fmt.Errorf("no configuration is stored in %s, no file was named with -f, and %w", o.storeDir(nil, 0), err)
	}
	defer client.Close()
	return client.GetConfig(ctx, 0)
}

// fetchMax is how long a server that runs may take to give its configuration, askMax how long another one may take to
// show that it runs.
const (
	fetchMax = 10 * time.Second
	askMax   = time.Second
)

// running are the other management servers that answer, of all that the configuration here or the connect string names.
func (o *serverOptions) running(ctx context.Context, known *config.Config, store *configstore.Store, own int) ([]mgmd.Running, error) {
	places := map[config.Endpoint]int{} // what is to be there: a node id, 0 if that is not known
	add := func(c *config.Config) {
		for _, n := range c.ManagementNodes() {
			if port := int(n.Int("PortNumber")); n.ID != own && n.HostName != "" && port != 0 {
				places[config.Endpoint{Host: n.HostName, Port: port}] = n.ID
			}
		}
	}
	if o.connect != "" {
		target, err := config.ParseConnectString(o.connect)
		if err != nil {
			return nil, err
		}
		for _, at := range target.Servers {
			places[at] = 0
		}
	}
	if store != nil {
		if raw, _, err := store.Load(); err == nil {
			if c, err := config.UnmarshalBinary(raw); err == nil {
				add(c)
			}
		}
	}
	if known != nil {
		add(known)
	}
	var mu sync.Mutex
	var all []mgmd.Running
	var faults []error
	var asks sync.WaitGroup
	for at := range places {
		asks.Go(func() {
			r, err := ask(ctx, at)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				faults = append(faults, err)
			case r != nil && r.Node == own:
				faults = append(faults, fmt.Errorf("management server %d runs already at %s: say with --ndb-nodeid which one this is, or stop the other", own, at))
			case r != nil && !slices.ContainsFunc(all, func(o mgmd.Running) bool { return o.Node == r.Node }):
				all = append(all, *r)
			}
		})
	}
	asks.Wait()
	slices.SortFunc(all, func(a, b mgmd.Running) int { return a.Node - b.Node })
	return all, errors.Join(faults...)
}

// ask looks whether a management server runs at a place; nil if none does.
func ask(ctx context.Context, at config.Endpoint) (*mgmd.Running, error) {
	ctx, cancel := context.WithTimeout(ctx, askMax)
	defer cancel()
	where := config.ConnectString{Servers: []config.Endpoint{at}, Binds: []config.Endpoint{{}}}
	client, err := mgmclient.ConnectTo(ctx, where, mgmclient.Options{Name: "ndb_mgmd"})
	if err != nil {
		return nil, nil // nobody is there
	}
	defer client.Close()
	id, err := client.MgmdNodeID(ctx)
	if err != nil {
		return nil, fmt.Errorf("what answers at %s is no management server of this version (%w): stop it, or correct the configuration's hosts and ports", at, err)
	}
	c, err := client.GetConfig(ctx, 0)
	if err != nil {
		return nil, fmt.Errorf("management server %d at %s does not give its configuration: %w", id, at, err)
	}
	return &mgmd.Running{Node: id, Where: at.String(), Config: c}, nil
}

// printFull prints every parameter of every node, defaults included, as a config.ini.
func printFull(w io.Writer, c *config.Config) {
	fmt.Fprintf(w, "[SYSTEM]\nName=%s\n", c.Name)
	all := config.Describe()
	for _, t := range []config.NodeType{config.ManagementNode, config.DataNode, config.APINode} {
		for _, n := range c.Nodes {
			if n.Type != t {
				continue
			}
			section := mgmd.SectionOf(t)
			fmt.Fprintf(w, "\n[%s]\n", section)
			for i := range all {
				if all[i].Section == section {
					if value := n.String(all[i].Name); value != "" {
						fmt.Fprintf(w, "%s=%s\n", all[i].Name, value)
					}
				}
			}
		}
	}
}
