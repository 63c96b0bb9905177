package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/cohortdb/cohort/internal/options"
)

const (
	exitFailed = 1
	exitUsage  = 2

	// dataMemory is that of the machine that NDB was measured on.
	dataMemory = "2000M"
)

// choices are what the command line asks for.
type choices struct {
	only   []string // names of runs; empty: all
	repeat int
	json   string // file; empty: none
	list   bool
}

func parse(args []string) (*choices, *options.Set, error) {
	c := &choices{repeat: 1}
	s := options.New("[options]", `Runs flexAsynch against clusters of several shapes, each started for its run, and prints a table in Markdown: rates, and
CPU time per operation of data nodes and client, beside what NDB 8.0.32 needs on a machine of the same kind.`)
	s.Func("only", "NAME,…", "only these runs", func(text string) error {
		for _, name := range strings.Split(text, ",") {
			if !slices.ContainsFunc(runs, func(r run) bool { return r.name == name }) {
				return fmt.Errorf("there is no run %q: --list lists them", name)
			}
			c.only = append(c.only, name)
		}
		return nil
	})
	s.Int(&c.repeat, "repeat", "N", "go through all runs N times, and print means (default: 1)", 1, 100)
	s.String(&c.json, "json", "FILE", "write the figures to this file too")
	s.Bool(&c.list, "list", "list the runs and do nothing")
	s.Example("cohort bench matrix")
	s.Example("cohort bench matrix --only batched,replicas --repeat 3 --json figures.json")
	rest, err := s.Parse(args)
	if err == nil {
		err = options.NoArguments(rest)
	}
	return c, s, err
}

// Main runs `cohort bench matrix` and returns its exit status. name is what it calls itself.
func Main(name string, args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c, set, err := parse(args)
	if status, done := set.Answer(err, name, stdout, stderr); done {
		return status
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintf(stderr, "%s: this binary cannot be found: %v\n", name, err)
		return exitFailed
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	m := &matrix{choices: c, name: name, out: stdout, err: stderr, start: func(r *run) (*figures, error) { return r.start(ctx, self) }}
	if c.list {
		m.list()
		return 0
	}
	if err := m.run(ctx); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return exitFailed
	}
	return 0
}

// figures are what flexAsynch writes.
type figures struct {
	Rows []phaseFigures `json:"rows"`
}

type phaseFigures struct {
	Phase      string   `json:"phase"`
	Mean       float64  `json:"mean_per_s"`
	Best       float64  `json:"max_per_s"`
	Operations int64    `json:"operations"`
	Failed     int64    `json:"failed"`
	Client     *float64 `json:"client_cpu_us_per_op"`
	Node       *float64 `json:"node_cpu_us_per_op"`
}

// command is the command line of a run's cluster; figures go to file.
func (r *run) command(self, file string) []string {
	args := []string{"up", "--ephemeral", "--mgm-port", "0", "--data-nodes", fmt.Sprint(r.dataNodes), "--replicas", fmt.Sprint(r.replicas),
		"--set", "Diskless=1", "--set", "DataMemory=" + dataMemory}
	if r.set != "" {
		args = append(args, "--set", r.set)
	}
	if r.threads {
		args = append(args, "--multi-threaded")
	}
	return append(args, "--run", fmt.Sprintf("%s flexasynch %s --json %s", quote(self), r.options, quote(file)))
}

// quote makes a word of a shell command.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// start runs the cluster and flexAsynch, and reads the figures.
func (r *run) start(ctx context.Context, self string) (*figures, error) {
	dir, err := os.MkdirTemp("", "cohort-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "figures.json")
	cmd := exec.CommandContext(ctx, self, r.command(self, file)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it has a cluster to stop
	said, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, said)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var f figures
	return &f, json.Unmarshal(text, &f)
}

// matrix is one run of the program.
type matrix struct {
	*choices
	name     string
	out, err io.Writer
	start    func(r *run) (*figures, error)
}

func (m *matrix) wanted(r *run) bool { return len(m.only) == 0 || slices.Contains(m.only, r.name) }

func (m *matrix) list() {
	for i := range runs {
		if r := &runs[i]; m.wanted(r) {
			fmt.Fprintf(m.out, "%-24s%s: flexAsynch %s\n", r.name, r.shape(), r.options)
		}
	}
}

// row is a line of the table.
type row struct {
	Run          string   `json:"run"`
	Phase        string   `json:"phase"`
	DataNodes    int      `json:"data_nodes"`
	Replicas     int      `json:"replicas"`
	Program      string   `json:"program"`
	Options      string   `json:"options"`
	Mean         float64  `json:"mean_per_s"`
	Best         float64  `json:"best_per_s"`
	Operations   int64    `json:"operations"`
	Failed       int64    `json:"failed"`
	Node         *float64 `json:"node_cpu_us_per_op"`
	Client       *float64 `json:"client_cpu_us_per_op"`
	NDBMean      *float64 `json:"ndb_mean_per_s"`
	NDBBest      *float64 `json:"ndb_best_per_s"`
	NDBNode      *float64 `json:"ndb_node_cpu_us_per_op"`
	NDBClient    *float64 `json:"ndb_client_cpu_us_per_op"`
	TargetNode   *float64 `json:"target_node_cpu_us_per_op"`
	TargetClient *float64 `json:"target_client_cpu_us_per_op"`

	samples int
}

// run runs everything and prints the table; runs that fail are told at once, and at the end by the error.
func (m *matrix) run(ctx context.Context) error {
	ndb, err := readReference(ndbTable)
	if err != nil {
		return fmt.Errorf("the table of NDB's figures: %w", err)
	}
	rows := map[string][]*row{}
	var failed []string
	for pass := range m.repeat {
		for i := range runs {
			r := &runs[i]
			if !m.wanted(r) {
				continue
			}
			if ctx.Err() != nil {
				return errors.New("interrupted")
			}
			fmt.Fprintf(m.err, "%s: %d of %d: %s (%s): flexAsynch %s\n", m.name, pass+1, m.repeat, r.name, r.shape(), r.options)
			f, err := m.start(r)
			if err != nil {
				fmt.Fprintf(m.err, "%s: %s failed: %v\n", m.name, r.name, err)
				failed = append(failed, r.name)
				continue
			}
			for _, p := range f.Rows {
				rows[r.name] = merge(rows[r.name], r, p, ndb[key{r.reference(), p.Phase}])
			}
		}
	}
	m.print(rows)
	if m.json != "" {
		if err := m.write(rows); err != nil {
			return fmt.Errorf("the figures cannot be written: %w", err)
		}
	}
	if failed != nil {
		return fmt.Errorf("%d runs failed: %s: see above", len(failed), strings.Join(failed, ", "))
	}
	return nil
}

// merge adds a phase's figures to those of earlier passes.
func merge(rows []*row, r *run, p phaseFigures, ndb reference) []*row {
	i := slices.IndexFunc(rows, func(x *row) bool { return x.Phase == p.Phase })
	if i < 0 {
		x := &row{Run: r.name, Phase: p.Phase, DataNodes: r.dataNodes, Replicas: r.replicas, Program: "ndbd", Options: r.options,
			NDBMean: ndb.mean, NDBBest: ndb.best, NDBNode: ndb.node, NDBClient: ndb.client}
		if r.threads {
			x.Program = "ndbmtd"
		}
		if node, client := r.targetOf(p.Phase); node > 0 {
			x.TargetNode, x.TargetClient = &node, &client
		}
		rows, i = append(rows, x), len(rows)
	}
	x := rows[i]
	n := float64(x.samples)
	x.samples++
	x.Mean = (x.Mean*n + p.Mean) / (n + 1)
	x.Best = max(x.Best, p.Best)
	x.Node, x.Client = mean(x.Node, p.Node, n), mean(x.Client, p.Client, n)
	x.Operations += p.Operations
	x.Failed += p.Failed
	return rows
}

// mean adds a sample to a mean of n; a missing one makes the mean missing.
func mean(old, sample *float64, n float64) *float64 {
	if sample == nil || n > 0 && old == nil {
		return nil
	}
	v := *sample
	if n > 0 {
		v = (*old*n + v) / (n + 1)
	}
	return &v
}

// print prints the table.
func (m *matrix) print(rows map[string][]*row) {
	fmt.Fprintln(m.out, "| run | phase | rate /s (mean, best) | node µs/op | client µs/op | NDB rate /s | NDB node | NDB client | NDB ÷ Cohort, node | target node, client |")
	fmt.Fprintln(m.out, "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	for i := range runs {
		r := &runs[i]
		if !m.wanted(r) {
			continue
		}
		first := fmt.Sprintf("**%s**: %s, `%s`", r.name, r.shape(), r.options)
		if r.note != "" {
			first += " (" + r.note + ")"
		}
		if rows[r.name] == nil {
			fmt.Fprintf(m.out, "| %s | FAILED | | | | | | | | |\n", first)
		}
		for _, x := range rows[r.name] {
			fmt.Fprintf(m.out, "| %s | %s | %s (%s) | %s | %s | %s | %s | %s | %s | %s |\n", first, x.Phase, whole(&x.Mean), whole(&x.Best),
				micro(x.Node), micro(x.Client), rates(x.NDBMean, x.NDBBest), micro(x.NDBNode), micro(x.NDBClient), ratio(x.NDBNode, x.Node), x.targets())
			first = ""
			if x.Failed > 0 {
				fmt.Fprintf(m.out, "| | | %d operations FAILED | | | | | | | |\n", x.Failed)
			}
		}
	}
}

func (x *row) targets() string {
	if x.TargetNode == nil {
		return "–"
	}
	return micro(x.TargetNode) + ", " + micro(x.TargetClient)
}

// whole writes a rate with its thousands parted.
func whole(v *float64) string {
	if v == nil {
		return "–"
	}
	digits := fmt.Sprint(int64(*v))
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func rates(mean, best *float64) string {
	if best == nil {
		return whole(mean)
	}
	return whole(mean) + " (" + whole(best) + ")"
}

// micro writes a time in µs: three digits that count.
func micro(v *float64) string {
	switch {
	case v == nil:
		return "–"
	case *v < 10:
		return fmt.Sprintf("%.2f", *v)
	case *v < 100:
		return fmt.Sprintf("%.1f", *v)
	}
	return fmt.Sprintf("%.0f", *v)
}

func ratio(a, b *float64) string {
	if a == nil || b == nil || *b == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f", *a / *b)
}

// write writes the file of --json.
func (m *matrix) write(rows map[string][]*row) error {
	all := []*row{}
	for i := range runs {
		all = append(all, rows[runs[i].name]...)
	}
	text, err := json.MarshalIndent(map[string]any{
		"name":    "matrix",
		"command": append([]string{m.name}, m.arguments()...),
		"machine": map[string]any{"cpus": runtime.NumCPU(), "memory_mb": memoryMB(), "go": runtime.Version()},
		"rows":    all,
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(m.json, append(text, '\n'), 0o644)
}

func (m *matrix) arguments() []string {
	args := []string{"--repeat", fmt.Sprint(m.repeat), "--json", m.json}
	if len(m.only) > 0 {
		args = append(args, "--only", strings.Join(m.only, ","))
	}
	return args
}
