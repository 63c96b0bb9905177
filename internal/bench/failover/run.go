package failover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/cohortdb/cohort/internal/options"
	"github.com/cohortdb/cohort/ndb"
)

const (
	before = 500 * time.Millisecond  // of the load, before the event
	short  = 2500 * time.Millisecond // after it: a round of what is noticed at once …
	long   = 4 * time.Second         // … and of what takes a second to be noticed
)

// Main runs `cohort bench failover` and returns its exit status. name is what it calls itself.
func Main(name string, args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c, set, err := parse(args)
	if status, done := set.Answer(err, name, stdout, stderr); done {
		return status
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	b := &bench{choices: c, name: name, err: stderr}
	err = b.run(ctx)
	if len(b.report.rows) > 0 {
		b.report.print(stdout)
	}
	if err == nil && c.json != "" {
		err = b.report.write(c.json, append([]string{name}, args...))
	}
	if err != nil {
		if ctx.Err() != nil {
			err = errInterrupted
		}
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return options.StatusFailed
	}
	for _, x := range b.report.rows {
		if x.Lost > 0 {
			fmt.Fprintf(stderr, "%s: %d acknowledged updates were lost (%s, %d data nodes)\n", name, x.Lost, x.Kind, x.DataNodes)
			return options.StatusFailed
		}
	}
	return 0
}

// bench is one run of the program.
type bench struct {
	*choices
	name   string
	err    io.Writer
	report report
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.err, b.name+": "+format+"\n", args...)
}

func (b *bench) run(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("this binary cannot be found: %w", err)
	}
	dir := b.keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "cohort-failover-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	for _, nodes := range b.nodes {
		if err := b.cluster(ctx, self, filepath.Join(dir, fmt.Sprintf("nodes-%d", nodes)), nodes); err != nil {
			return fmt.Errorf("%d data nodes: %w", nodes, err)
		}
	}
	return nil
}

// cluster does everything to a cluster of one size.
func (b *bench) cluster(ctx context.Context, self, dir string, nodes int) error {
	n, why := &network{}, errors.New("--loopback was given")
	if !b.loopback {
		var made *network
		if made, why = newNetwork(nodes); why == nil {
			n = made
		}
	}
	defer n.close()
	where := "namespaces"
	if why != nil {
		where = "loopback"
	}
	c, err := newCluster(ctx, self, dir, n, nodes, b.set)
	if err != nil {
		return err
	}
	defer c.close()
	b.say("%d data nodes started (%s)", nodes, where)
	if err := b.rest(ctx, c, nodes); err != nil {
		return err
	}
	conn, err := ndb.Connect(ctx, c.connectString(), ndb.Options{Name: "bench failover", WaitAll: true})
	if err != nil {
		return err
	}
	defer conn.Close()
	l, err := newLoad(ctx, conn, b.rows, b.rate)
	if err != nil {
		return err
	}
	if err := b.deadlock(ctx, l, nodes); err != nil {
		return err
	}
	l.start()
	defer l.stop()
	for _, kind := range b.kinds {
		if kind == "cut" && why != nil {
			b.report.rows = append(b.report.rows, &Row{Kind: kind, DataNodes: nodes, Note: "not supported here: " + why.Error()})
			continue
		}
		var rounds []*round
		for i := range b.repeat {
			r, err := b.round(ctx, c, l, kind, i)
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", kind, i+1, err)
			}
			b.say("%d data nodes, %s, round %d of %d: gap %.1f ms, throughput back after %.0f ms, node back after %.1f s (gap %.1f ms), errors seen: %s, retried: %s, lost %d", nodes, kind,
				i+1, b.repeat, millis(gap(r.ops)), millis(r.back()), r.rejoin.Seconds(), millis(gap(r.coming)), count(slices.Concat(r.ops, r.coming)), classes(tried(r.tries)), r.lost)
			rounds = append(rounds, r)
		}
		b.report.rows = append(b.report.rows, summary(kind, nodes, where, rounds))
	}
	return nil
}

func count(ops []op) string {
	m := map[string]int{}
	for _, o := range ops {
		if o.code != 0 {
			m[fmt.Sprint(o.code)]++
		}
	}
	return classes(m)
}

func tried(tries []try) map[string]int {
	m := map[string]int{}
	for _, t := range tries {
		m[fmt.Sprint(t.code)]++
	}
	return m
}

// round does one thing to the cluster, and puts it right again.
func (b *bench) round(ctx context.Context, c *cluster, l *load, kind string, i int) (*round, error) {
	node := 1 + i%len(c.data)
	p := c.data[node-1]
	r := &round{from: l.now()}
	written := l.writes.Load()
	if err := sleep(ctx, before); err != nil {
		return nil, err
	}
	r.event = l.now()
	length := short
	var err error
	switch kind {
	case "kill":
		err = p.signal(syscall.SIGKILL)
	case "hang":
		err, length = p.signal(syscall.SIGSTOP), long
	case "cut":
		err, length = c.net.cut(node, true), long
	case "stop":
		err = c.stopNode(ctx, node)
	}
	if err == nil {
		err = sleep(ctx, length-time.Duration(l.now()-r.event))
	}
	r.to = l.now()
	if err != nil {
		return nil, err
	}
	switch {
	case kind == "hang" && i%2 == 0: // it finds out by itself that it was put out, and comes back
		err = p.signal(syscall.SIGCONT)
	case kind == "hang":
		err = p.signal(syscall.SIGKILL)
	case kind == "cut":
		err = c.net.cut(node, false)
	}
	if err != nil {
		return nil, err
	}
	healed := time.Now()
	if kind != "control" {
		if err := c.back(ctx, node, l.whole); err != nil {
			return nil, err
		}
		r.rejoin = time.Since(healed)
	}
	if kind != "control" {
		if err := sleep(ctx, settled); err != nil {
			return nil, err
		}
	}
	back := l.now()
	for end := time.Now().Add(patience); l.open(back) > 0 && time.Now().Before(end); {
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
	r.written = l.writes.Load() - written
	if r.lost, err = l.check(ctx); err != nil {
		return nil, err
	}
	r.ops, r.tries = l.results(r.from, back)
	end, _ := slices.BinarySearchFunc(r.ops, r.to, func(o op, at int64) int { return cmp.Compare(o.at, at) })
	r.ops, r.coming = r.ops[:end], r.ops[end:]
	return r, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(max(d, 0)):
		return nil
	}
}

// whole tells whether every fragment has both replicas, and the primaries are spread over all nodes.
func (l *load) whole() bool {
	t := l.record.Table()
	first := map[int]bool{}
	for i := range t.Fragments() {
		n := t.FragmentNodes(i)
		if len(n) != 2 {
			return false
		}
		first[n[0]] = true
	}
	nodes := l.conn.Nodes()
	for _, n := range nodes {
		if !n.Started {
			return false
		}
	}
	return len(first) == len(nodes)
}

// rest measures the data nodes while nothing is asked of them.
func (b *bench) rest(ctx context.Context, c *cluster, nodes int) error {
	const length = 3 * time.Second
	if err := sleep(ctx, time.Second); err != nil {
		return err
	}
	began := time.Now()
	used, err := c.cpu()
	if err != nil {
		b.say("CPU time of data nodes: not supported here: %v", err)
		return nil
	}
	if err := sleep(ctx, length); err != nil {
		return err
	}
	now, err := c.cpu()
	if err != nil {
		return err
	}
	b.report.idle = append(b.report.idle, &idle{Kind: "idle", DataNodes: nodes,
		Percent: 100 * (now - used).Seconds() / time.Since(began).Seconds() / float64(nodes)})
	return nil
}

// deadlock lets two transactions wait for each other, again and again.
func (b *bench) deadlock(ctx context.Context, l *load, nodes int) error {
	d := &deadlocks{Kind: "deadlock", DataNodes: nodes, Rounds: b.repeat, Errors: map[string]int{}}
	s, err := l.conn.NewSession(ndb.SessionOptions{MaxTransactions: 16})
	if err != nil {
		return err
	}
	defer s.Close()
	var waits []int64
	for i := range b.repeat {
		took, code, err := l.embrace(ctx, s, uint32(2*i%l.rows), uint32((2*i+1)%l.rows))
		if err != nil {
			return fmt.Errorf("deadlock: %w", err)
		}
		waits = append(waits, int64(took))
		d.Errors[fmt.Sprint(code)]++
	}
	slices.Sort(waits)
	d.Median, d.Longest = millis(quantile(waits, 0.5)), millis(quantile(waits, 1))
	b.report.deadlocks = append(b.report.deadlocks, d)
	return nil
}

// embrace makes a deadlock of two transactions, and tells how long it lasted and with which code one of them ended.
func (l *load) embrace(ctx context.Context, s *ndb.Session, one, two uint32) (took time.Duration, code int, err error) {
	rows := [2][2]counter{{{ID: one}, {ID: two}}, {{ID: two}, {ID: one}}}
	var txs [2]*ndb.Tx
	for i := range txs {
		if txs[i], err = s.Begin(); err != nil {
			return 0, 0, err
		}
		defer txs[i].Close()
		l.record.Read(txs[i], &rows[i][0], ndb.Exclusive)
		if err := txs[i].Execute(ctx); err != nil {
			return 0, 0, err
		}
	}
	began := time.Now()
	done := func(tx *ndb.Tx) {
		if err := tx.Err(); err != nil {
			took, code = time.Since(began), ndb.CodeOf(err)
		}
	}
	for i := range txs {
		l.record.Read(txs[i], &rows[i][1], ndb.Exclusive)
		txs[i].CommitAsync(done)
	}
	if _, err := s.Poll(ctx, 2); err != nil {
		return 0, 0, err
	}
	if code == 0 {
		return 0, 0, errors.New("both transactions were committed")
	}
	return took, code, nil
}
