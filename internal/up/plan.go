package up

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/options"
)

const (
	loopback = "127.0.0.1"

	// firstMgmID leaves the ids below it to data nodes, as most people number their nodes; with more data nodes
	// the management server follows them.
	firstMgmID = 49

	comment = "Written by cohort up; each start writes it anew. To keep changes, copy it and give the copy with --config."
)

// plan is what will be started.
type plan struct {
	file          string // config.ini, absolute
	text          string // its contents
	summary       string // in words
	warnings      []string
	servers       []server
	data          []int // node ids of the data nodes
	mgmPort       int   // of the first server
	portMayMove   bool  // another port may be tried if this one is taken after all
	multiThreaded bool
}

// server is a management server: its node id and port.
type server struct{ id, port int }

// connectString is where the management servers listen.
func (p *plan) connectString() string {
	var all []string
	for _, s := range p.servers {
		all = append(all, net.JoinHostPort(loopback, strconv.Itoa(s.port)))
	}
	return strings.Join(all, ",")
}

// addServer adds a management server: the first one on the port that was chosen, others on any free one.
func (p *plan) addServer(id int) (port int, err error) {
	port = p.mgmPort
	for taken := len(p.servers) > 0; taken; {
		if port, err = freePort(); err != nil {
			return 0, err
		}
		taken = slices.ContainsFunc(p.servers, func(s server) bool { return s.port == port })
	}
	p.servers = append(p.servers, server{id, port})
	return port, nil
}

// threadParameters ask for a multi-threaded data node.
var threadParameters = []string{"MaxNoOfExecutionThreads", "ThreadConfig", "AutomaticThreadConfig"}

// sectionsOf are the names under which a configuration has each kind of section, with the kind's own defaults.
var sectionsOf = []struct {
	kind   config.Section
	header string
}{
	{config.SectionNDBD, "ndbd"},
	{config.SectionMGMD, "ndb_mgmd"},
	{config.SectionAPI, "api"},
	{config.SectionTCP, "tcp"},
	{config.SectionSystem, "system"},
}

// owned are parameters that follow from what cohort up is.
var owned = map[string]string{
	"nodeid": "node ids are given out by cohort up", "id": "node ids are given out by cohort up",
	"hostname": "all nodes run on this machine", "datadir": "use --dir", "portnumber": "use --mgm-port",
	"noofreplicas": "use --replicas",
}

// makePlan decides on the configuration and the ports.
func makePlan(o *choices, m machine) (*plan, error) {
	p := &plan{file: filepath.Join(o.dir, "config.ini")}
	if err := p.choosePort(o); err != nil {
		return nil, err
	}
	for _, s := range o.settings {
		if why := owned[strings.ToLower(s.name)]; why != "" && (o.config == "" || !strings.EqualFold(s.name, "NoOfReplicas")) {
			return nil, fmt.Errorf("--set %s=%s cannot be done: %s", s.name, s.value, why)
		}
	}
	var f *ini
	if o.config != "" {
		var err error
		if f, err = p.adopt(o); err != nil {
			return nil, err
		}
	} else {
		var err error
		if f, err = p.compose(o, m); err != nil {
			return nil, err
		}
	}
	for _, s := range o.settings {
		if err := apply(f, s); err != nil {
			return nil, err
		}
	}
	p.text = f.String()
	_, warnings, err := config.Parse([]byte(p.text), config.Options{FileName: p.file})
	for _, w := range warnings {
		if o.config == "" { // those of the user's own file were told with its own lines
			p.warnings = append(p.warnings, w.String())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be used:\n%w", err)
	}
	p.summarize(f, o, m)
	return p, nil
}

// choosePort decides where the management server listens.
func (p *plan) choosePort(o *choices) error {
	p.mgmPort = o.mgmPort
	if p.mgmPort != 0 && portFree(p.mgmPort) {
		p.portMayMove = !o.mgmPortGiven
		return nil
	}
	if o.mgmPortGiven && o.mgmPort != 0 {
		return fmt.Errorf("port %d is taken: give another one with --mgm-port, or 0 for any free one", o.mgmPort)
	}
	var err error
	p.portMayMove = true
	p.mgmPort, err = freePort()
	if err == nil && o.mgmPort != 0 {
		p.warnings = append(p.warnings, fmt.Sprintf("port %d is taken, the management server uses %d", o.mgmPort, p.mgmPort))
	}
	return err
}

// compose makes a configuration from the options and the machine.
func (p *plan) compose(o *choices, m machine) (*ini, error) {
	f := &ini{comment: comment}
	share := m.choose(o.dataNodes)
	mgm := max(firstMgmID, o.dataNodes+1)
	for range o.servers {
		port, err := p.addServer(mgm)
		if err != nil {
			return nil, err
		}
		f.add("ndb_mgmd", "NodeId", strconv.Itoa(mgm), "HostName", loopback, "PortNumber", strconv.Itoa(port), "DataDir", o.dir)
		mgm++
	}

	defaults := f.add("ndbd default",
		"NoOfReplicas", strconv.Itoa(o.replicas),
		"HostName", loopback,
		"DataDir", o.dir,
		"DataMemory", megabytes(share.dataMemory),
		"MaxNoOfConcurrentTransactions", strconv.Itoa(concurrentTransactions),
		"MaxNoOfConcurrentOperations", strconv.Itoa(concurrentOperations),
		// Nothing is written to disk so far; this says so, in place of a warning at every start.
		"Diskless", "1")
	layout := o.sets("ThreadConfig") || o.sets("MaxNoOfExecutionThreads")
	p.multiThreaded = o.multiThreaded || share.multiThreaded || layout || o.sets("AutomaticThreadConfig")
	if p.multiThreaded && !layout { // which it would override
		defaults.set("AutomaticThreadConfig", "1")
		defaults.set("NumCPUs", strconv.Itoa(share.cpus))
	}
	for id := 1; id <= o.dataNodes; id++ {
		f.add("ndbd", "NodeId", strconv.Itoa(id))
		p.data = append(p.data, id)
	}
	for i := range o.apiNodes {
		f.add("api", "NodeId", strconv.Itoa(mgm+i))
	}
	return f, nil
}

// adopt takes a configuration of the user's, with every host on this machine.
func (p *plan) adopt(o *choices) (*ini, error) {
	text, err := options.ReadFile(o.config)
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be read: %w", err)
	}
	c, warnings, err := config.Parse(text, config.Options{FileName: o.config, MyCnf: isMyCnf(string(text))})
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be used:\n%w", err)
	}
	for _, w := range warnings {
		p.warnings = append(p.warnings, w.String())
	}
	f := readINI(c.Text())
	f.comment = comment
	f.spell("api", "HostName", "ExecuteOnComputer")
	f.spell("ndb_mgmd", "ExecuteOnComputer")
	f.spell("ndbd", append([]string{"ServerPort", "ExecuteOnComputer"}, threadParameters...)...)
	for _, s := range f.of("ndb_mgmd") {
		port, err := p.addServer(id(s))
		if err != nil {
			return nil, err
		}
		s.set("HostName", loopback)
		s.set("DataDir", o.dir)
		s.set("PortNumber", strconv.Itoa(port))
	}
	ports := map[string]bool{}
	for _, s := range f.of("ndbd") {
		p.data = append(p.data, id(s))
		s.set("HostName", loopback)
		s.set("DataDir", o.dir)
		if port := s.get("ServerPort"); port != "" && ports[port] {
			s.unset("ServerPort") // two hosts may have the same one, one machine may not
		} else {
			ports[port] = true
		}
	}
	for _, s := range f.of("api") {
		if s.get("HostName") != "" {
			s.set("HostName", loopback)
		}
	}
	for _, s := range f.sections {
		s.unset("ExecuteOnComputer") // its place is taken by HostName
	}
	p.multiThreaded = o.multiThreaded
	for _, s := range f.of("ndbd") {
		for _, name := range threadParameters {
			if v := s.get(name); v != "" && v != "0" && !strings.EqualFold(v, "false") {
				p.multiThreaded = true
			}
		}
	}
	return f, nil
}

// id is the node id of a section.
func id(s *section) int {
	n, _ := strconv.Atoi(s.get("NodeId")) // config prints one for every node
	return n
}

// isMyCnf tells the my.cnf form of a configuration by its group.
func isMyCnf(text string) bool {
	for _, line := range strings.Split(text, "\n") {
		line = strings.ToLower(strings.TrimSpace(line))
		if strings.HasPrefix(line, "[cluster_config") || strings.HasPrefix(line, "[cluster-config") {
			return true
		}
	}
	return false
}

// apply carries out one --set: in the defaults of each kind of section that knows the parameter, over what single
// nodes have of their own.
func apply(f *ini, s setting) error {
	known := false
	for _, kind := range sectionsOf {
		parameter := config.Lookup(kind.kind, s.name)
		if parameter == nil {
			continue
		}
		known = true
		header := kind.header
		if kind.kind != config.SectionSystem {
			for _, single := range f.of(header) {
				single.unset(parameter.Name)
			}
			header += " default"
		}
		sections := f.of(header)
		if len(sections) == 0 {
			sections = []*section{f.add(header)}
		}
		for _, section := range sections {
			section.set(parameter.Name, s.value)
		}
	}
	if !known {
		return fmt.Errorf("--set %s=%s: there is no such parameter: `ndb_config --configinfo` lists them", s.name, s.value)
	}
	return nil
}

// summarize says in words what the plan will start.
func (p *plan) summarize(f *ini, o *choices, m machine) {
	program := "ndbd"
	if p.multiThreaded {
		program = "ndbmtd"
	}
	p.summary = fmt.Sprintf("%s and %s (%s)", count(len(p.servers), "management server"), count(len(p.data), "data node"), program)
	if o.config != "" {
		p.summary += " of " + o.config
		return
	}
	defaults := f.of("ndbd default")[0]
	p.summary += fmt.Sprintf(", %s of each row, DataMemory %s each", count(o.replicas, "replica"), defaults.get("DataMemory"))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// portFree reports whether a port of the loopback address can be listened on now.
func portFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

// freePort is a port that nobody listens on now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return 0, fmt.Errorf("no free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
