package noded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/datanode"
	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/host"
	sig "github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/version"
)

// exitUsage is the status of a command line that could not be understood.
const exitUsage = 2

// failure is why the process ends: an exit status and a line.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

func fail(code int, format string, args ...any) *failure {
	return &failure{code, fmt.Sprintf(format, args...)}
}

// NDBD runs a data node with one thread and returns its exit status.
func NDBD(name string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return run(name, false, args, stdout, stderr)
}

// NDBMTD runs a data node with as many threads as the configuration says.
func NDBMTD(name string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return run(name, true, args, stdout, stderr)
}

func run(name string, multi bool, args []string, stdout, stderr io.Writer) int {
	s, set, err := parse(args)
	if status, done := set.Answer(err, name, stdout, stderr); done {
		return status
	}
	interrupts := make(chan os.Signal, 4)
	signal.Notify(interrupts, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(interrupts)
	p := &process{name: name, multi: multi, args: args, settings: s, log: newLogger(stdout, name), interrupts: interrupts}
	defer p.log.flush()
	if err := p.serve(); err != nil {
		var f *failure
		if !errors.As(err, &f) {
			f = fail(exitcode.Config, "%v", err)
		}
		fmt.Fprintf(stderr, "%s: %s\n", name, f.text)
		return f.code
	}
	return exitcode.Done
}

// process is one run of a data node.
type process struct {
	*settings
	name       string
	multi      bool
	args       []string
	log        *logger
	interrupts chan os.Signal

	mgm      *management
	conf     *config.Node
	config   datanode.Config
	layout   datanode.Layout
	data     *host.Memory // rows and indexes
	copies   *host.Memory // copies of rows with pending changes
	listener net.Listener
	started  bool // the node has been started once
}

// serve is the whole course.
func (p *process) serve() error {
	p.log.info("Cohort %s, process %d, starts", version.String(), os.Getpid())
	if err := p.serveProfiles(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer p.release()
	if ended, err := p.prepare(ctx, cancel); err != nil || ended {
		return err
	}
	h, err := p.build()
	if err != nil {
		return err
	}
	go p.obey(ctx, h)
	exit := h.Run()
	p.release()
	return p.end(exit)
}

// release gives back what the node took from outside, but for the memory, which goes with the process.
func (p *process) release() {
	if p.mgm != nil {
		p.mgm.close()
	}
	if p.listener != nil {
		_ = p.listener.Close()
	}
	for _, m := range []*host.Memory{p.data, p.copies} {
		if m != nil {
			m.Close()
		}
	}
}

// prepare gets what the node needs from outside: id, configuration, memory, port. ended: a signal came first.
func (p *process) prepare(ctx context.Context, cancel context.CancelFunc) (ended bool, err error) {
	done := make(chan struct{})
	defer close(done)
	interrupted := make(chan struct{})
	go func() {
		select {
		case <-p.interrupts:
			close(interrupted)
			cancel()
		case <-done:
		}
	}()
	err = p.acquire(ctx)
	select {
	case <-interrupted:
		p.log.info("interrupted before the start")
		return true, nil
	default:
		return false, err
	}
}

func (p *process) acquire(ctx context.Context) error {
	p.mgm = &management{name: p.name, servers: p.servers, secret: host.NewSecret(), log: p.log}
	if err := p.mgm.enter(ctx, p.settings); err != nil {
		return fail(exitcode.Management, "%v", err)
	}
	p.conf = p.mgm.conf.Node(p.mgm.id)
	if p.conf == nil || p.conf.Type != config.DataNode {
		return fail(exitcode.Config, "the configuration has no data node %d: correct it, or ask for another id with --ndb-nodeid", p.mgm.id)
	}
	p.log.configure(p.conf, p.verbose)
	p.log.info("node id %d, configuration %d of cluster %s", p.mgm.id, p.mgm.conf.Generation, p.mgm.conf.Name)
	if !p.conf.Bool("Diskless") {
		p.log.warning("Diskless is 0, but nothing is written to disk yet: data are lost when all nodes stop")
	}
	if err := os.MkdirAll(p.dataDir(), 0o755); err != nil {
		return fail(exitcode.Config, "DataDir cannot be used: %v: correct DataDir, or its permissions", err)
	}
	if err := p.limits(); err != nil {
		return err
	}
	return p.listen(ctx)
}

func (p *process) dataDir() string { return p.conf.String("DataDir") }

// listen binds the port for other nodes and makes it known.
func (p *process) listen(ctx context.Context) error {
	port := int(p.conf.Int("ServerPort"))
	address := net.JoinHostPort(p.listenHost(), strconv.Itoa(port))
	var err error
	if p.listener, err = net.Listen("tcp", address); err != nil {
		return fail(exitcode.Network, "cannot listen for other nodes: %v: correct HostName or ServerPort, or use --bind-address", err)
	}
	port = p.listener.Addr().(*net.TCPAddr).Port
	if err := p.mgm.publish(ctx, port); err != nil {
		return fail(exitcode.Management, "the management server does not take the port: %v", err)
	}
	p.log.info("listens on %v", p.listener.Addr())
	return nil
}

// listenHost is the address to listen on: that of the node's links where all have the same, else every address.
func (p *process) listenHost() string {
	if p.bind != "" {
		return p.bind
	}
	host := p.conf.HostName
	for _, n := range p.mgm.conf.Nodes {
		if l := p.mgm.conf.Link(p.mgm.id, n.ID); l != nil && (l.BindAny() || l.HostName(p.mgm.id) != host) {
			return ""
		}
	}
	return host
}

// leaveTime is how long a node that the system asks to stop may take to leave in order. Supervisors wait a little longer.
const leaveTime = 8 * time.Second

// obey stops the node when the system asks for it: in order, so that clients lose nothing; at once if the cluster could
// not go on without it, if that takes too long, or when asked again. Then the rest of the cluster takes it for a lost node.
func (p *process) obey(ctx context.Context, h *host.Host) {
	var s os.Signal
	select {
	case s = <-p.interrupts:
	case <-ctx.Done():
		return
	}
	p.log.info("stops: %v", s)
	refused := make(chan string, 1)
	h.Leave(func(text string) { refused <- text })
	why := ""
	select {
	case text := <-refused:
		why = ", at once: " + text
	case s = <-p.interrupts:
		why = ", at once: asked twice"
	case <-time.After(leaveTime):
		why = fmt.Sprintf(", at once: it did not leave in order within %v", leaveTime)
	case <-ctx.Done():
		return
	}
	h.Stop(host.Exit{Code: exitcode.Done, Text: "by signal: " + s.String() + why})
}

// end judges how the node ended: it starts again, or the process ends with a status.
func (p *process) end(exit host.Exit) error {
	text := exit.Text
	if exit.Trace != "" {
		text += "; its last signals are in " + exit.Trace
	}
	if exit.Restart&sig.StopRestart != 0 {
		p.log.info("starts anew: %s", text)
		return p.again(exit.Restart)
	}
	if exit.Code == exitcode.Done && !exit.Bug {
		p.log.info("stopped: %s", text)
		return nil
	}
	p.log.info("ends with status %d (%s): %s", exit.Code, exitcode.Text(int(exit.Code)), text)
	if !p.conf.Bool("StopOnError") {
		if err := p.retry(); err != nil {
			return err
		}
	}
	return fail(int(exit.Code), "node %d stopped: %s", p.mgm.id, text)
}

// serveProfiles serves Go's profiles, if asked to.
func (p *process) serveProfiles() error {
	if p.pprof == "" {
		return nil
	}
	l, err := net.Listen("tcp", p.pprof)
	if err != nil {
		return fail(exitcode.Network, "cannot serve profiles: %v", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	p.log.info("profiles at http://%v/debug/pprof/", l.Addr())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	return nil
}

// tuneGo sets what Go's collector may use beside the data memory: little is allocated after the start, so it seldom
// runs, and what the start left behind is given back.
func tuneGo() {
	debug.SetGCPercent(100)
	debug.FreeOSMemory()
}
