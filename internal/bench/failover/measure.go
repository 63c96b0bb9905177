package failover

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cohortdb/cohort/ndb"
)

// round is what one round of a kind has shown.
type round struct {
	ops     []op
	tries   []try
	from    int64 // of the load's time: where the round begins, what happens happens, and the round ends
	event   int64
	to      int64
	rejoin  time.Duration
	coming  []op // operations that were to be sent while the node came back
	lost    int
	written int64 // updates acknowledged
}

// Row is a line of the table, and of the file.
type Row struct {
	Kind      string `json:"kind"`
	DataNodes int    `json:"data_nodes"`
	Rounds    int    `json:"rounds"`
	Network   string `json:"network"`
	Note      string `json:"note,omitempty"` // why there are no figures

	// LongestGap is the longest time from when an operation was to be sent until it had succeeded.
	LongestGap float64 `json:"longest_gap_ms"`
	MedianGap  float64 `json:"median_gap_ms"` // of the rounds' longest
	P999       float64 `json:"p999_ms"`
	P50        float64 `json:"p50_ms"`
	Silence    float64 `json:"longest_silence_ms"` // the longest time in which no operation succeeded
	// Back is when, after the event, throughput was what it is without one, for good; the worst round.
	Back   float64 `json:"throughput_back_ms"`
	Rejoin float64 `json:"rejoin_s"` // until the node was back with all its data and its primaries; the mean
	// RejoinGap is the longest gap meanwhile, and a little beyond it.
	RejoinGap float64 `json:"rejoin_gap_ms"`

	Errors       map[string]int `json:"errors"`  // that a program sees, by class
	Repeated     map[string]int `json:"retried"` // that Retry hides, by class
	Operations   int            `json:"operations"`
	Acknowledged int64          `json:"acknowledged"` // updates
	Lost         int            `json:"lost"`         // of these
}

const bucket = 10 * int64(time.Millisecond)

// gap is the longest latency of some operations.
func gap(ops []op) (longest int64) {
	for _, o := range ops {
		longest = max(longest, o.took)
	}
	return longest
}

// successes are the times at which operations succeeded, ascending.
func (r *round) successes() (times []int64) {
	for _, o := range r.ops {
		if o.code == 0 {
			times = append(times, o.at+o.took)
		}
	}
	slices.Sort(times)
	return times
}

// silence is the longest time without a success.
func (r *round) silence() (longest int64) {
	last := r.from
	for _, t := range r.successes() {
		if t > r.to {
			break
		}
		longest = max(longest, t-last)
		last = t
	}
	return max(longest, r.to-last)
}

// back is how long after the event the last stretch of 250 ms ends in which fewer than nine tenths of what was to be sent
// succeeded; 0 if there was none.
func (r *round) back() int64 {
	const stretch = 25 // buckets
	n := int((r.to - r.event) / bucket)
	if n < stretch {
		return 0
	}
	asked, done := make([]int, n), make([]int, n)
	count := func(to []int, at int64) {
		if i := (at - r.event) / bucket; at >= r.event && int(i) < n {
			to[i]++
		}
	}
	for _, o := range r.ops {
		count(asked, o.at)
		if o.code == 0 {
			count(done, o.at+o.took)
		}
	}
	end, a, d := 0, 0, 0
	for i := range n {
		a, d = a+asked[i], d+done[i]
		if i >= stretch {
			a, d = a-asked[i-stretch], d-done[i-stretch]
		}
		if i >= stretch-1 && 10*d < 9*a {
			end = i + 1
		}
	}
	return int64(end) * bucket
}

// quantile of ascending values.
func quantile(sorted []int64, q float64) int64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func millis(ns int64) float64 { return float64(ns/1000) / 1000 }

// summary makes a kind's row of its rounds.
func summary(kind string, nodes int, network string, rounds []*round) *Row {
	x := &Row{Kind: kind, DataNodes: nodes, Rounds: len(rounds), Network: network, Errors: map[string]int{}, Repeated: map[string]int{}}
	var gaps, all []int64
	var silence, back, rejoinGap int64
	var rejoin time.Duration
	for _, r := range rounds {
		gaps = append(gaps, gap(r.ops))
		rejoinGap = max(rejoinGap, gap(r.coming))
		silence, back = max(silence, r.silence()), max(back, r.back())
		rejoin += r.rejoin
		for _, o := range r.ops {
			all = append(all, o.took)
		}
		for _, o := range slices.Concat(r.ops, r.coming) {
			if o.code != 0 {
				x.Errors[class(o.code)]++
			}
		}
		for _, t := range r.tries {
			x.Repeated[class(t.code)]++
		}
		x.Operations += len(r.ops)
		x.Acknowledged += r.written
		x.Lost += r.lost
	}
	slices.Sort(gaps)
	slices.Sort(all)
	x.LongestGap, x.MedianGap = millis(quantile(gaps, 1)), millis(quantile(gaps, 0.5))
	x.P999, x.P50 = millis(quantile(all, 0.999)), millis(quantile(all, 0.5))
	x.Silence, x.Back, x.RejoinGap = millis(silence), millis(back), millis(rejoinGap)
	if len(rounds) > 0 {
		x.Rejoin = float64(rejoin.Milliseconds()/int64(len(rounds))) / 1000
	}
	return x
}

// class is a code's class in words.
func class(code int) string {
	if e, ok := ndb.ErrorOf(code).(*ndb.Error); ok {
		return e.Class.String()
	}
	return "other"
}

// classes writes how many errors of each class there were.
func classes(m map[string]int) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		words = append(words, fmt.Sprintf("%s %d", name, m[name]))
	}
	if words == nil {
		return "none"
	}
	return strings.Join(words, ", ")
}

// deadlocks is how long transactions waited that waited for each other.
type deadlocks struct {
	DataNodes int            `json:"data_nodes"`
	Kind      string         `json:"kind"`
	Rounds    int            `json:"rounds"`
	Median    float64        `json:"median_ms"`
	Longest   float64        `json:"longest_ms"`
	Errors    map[string]int `json:"errors"` // codes of the transactions that were rolled back
}

// idle is what the data nodes use while nothing is asked of them.
type idle struct {
	DataNodes int     `json:"data_nodes"`
	Kind      string  `json:"kind"`
	Percent   float64 `json:"cpu_pct_per_node"`
}

// report is everything that was measured.
type report struct {
	rows      []*Row
	deadlocks []*deadlocks
	idle      []*idle
}

func (r *report) print(out io.Writer) {
	fmt.Fprintln(out, "| kind | data nodes | rounds | longest gap ms (median) | p99.9 ms | p50 ms | silence ms | throughput back ms | back s (gap ms) | errors seen | errors retried | acknowledged | lost |")
	fmt.Fprintln(out, "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- | ---: | ---: |")
	for _, x := range r.rows {
		if x.Note != "" {
			fmt.Fprintf(out, "| %s | %d | – | %s | | | | | | | | | |\n", x.Kind, x.DataNodes, x.Note)
			continue
		}
		fmt.Fprintf(out, "| %s | %d | %d | %.1f (%.1f) | %.1f | %.2f | %.1f | %.0f | %.1f (%.1f) | %s | %s | %d | %d |\n", x.Kind, x.DataNodes, x.Rounds, x.LongestGap, x.MedianGap,
			x.P999, x.P50, x.Silence, x.Back, x.Rejoin, x.RejoinGap, classes(x.Errors), classes(x.Repeated), x.Acknowledged, x.Lost)
	}
	fmt.Fprintln(out)
	fmt.Fprintln(out, "| | data nodes | |")
	fmt.Fprintln(out, "| --- | ---: | --- |")
	for _, d := range r.deadlocks {
		fmt.Fprintf(out, "| deadlock of two transactions broken after | %d | median %.1f ms, longest %.1f ms, of %d; rolled back with: %s |\n", d.DataNodes, d.Median, d.Longest,
			d.Rounds, classes(d.Errors))
	}
	for _, i := range r.idle {
		fmt.Fprintf(out, "| CPU of a data node with nothing to do: heartbeats, checks and epochs | %d | %.2f %% |\n", i.DataNodes, i.Percent)
	}
}

// write writes the file of --json.
func (r *report) write(file string, command []string) error {
	rows := []any{}
	for _, x := range r.rows {
		rows = append(rows, x)
	}
	for _, x := range r.deadlocks {
		rows = append(rows, x)
	}
	for _, x := range r.idle {
		rows = append(rows, x)
	}
	text, err := json.MarshalIndent(map[string]any{
		"name":    "failover",
		"command": command,
		"machine": map[string]any{"cpus": runtime.NumCPU(), "memory_mb": memoryMB(), "go": runtime.Version()},
		"rows":    rows,
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
