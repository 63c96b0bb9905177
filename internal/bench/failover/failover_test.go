package failover

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const ms = int64(time.Millisecond)

// steady makes the operations of a round of three seconds, one a millisecond, each done after took.
func steady(took func(at int64) (int64, int)) *round {
	r := &round{event: 500 * ms, to: 3000 * ms}
	for at := int64(0); at < r.to; at += ms {
		t, code := took(at)
		r.ops = append(r.ops, op{at, t, code})
	}
	return r
}

func TestFiguresOfARound(t *testing.T) {
	quick := func(int64) (int64, int) { return ms / 2, 0 }
	for _, c := range []struct {
		name               string
		took               func(at int64) (int64, int)
		gap, silence, back int64 // milliseconds
	}{
		{"nothing happens", quick, 0, 1, 0},
		{"all wait for 40 ms", func(at int64) (int64, int) {
			if at >= 500*ms && at < 540*ms {
				return 540*ms - at, 0
			}
			return quick(at)
		}, 40, 40, 0}, // too short to be seen in a stretch of 250 ms
		{"half of them wait for a second", func(at int64) (int64, int) {
			if at >= 500*ms && at < 1500*ms && at/ms%2 == 0 {
				return 1500*ms - at, 0
			}
			return quick(at)
		}, 1000, 2, 1020},
		{"all fail for 600 ms", func(at int64) (int64, int) {
			if at >= 500*ms && at < 1100*ms {
				return 3 * ms, 4008
			}
			return quick(at)
		}, 3, 601, 830},
	} {
		r := steady(c.took)
		if gap, silence, back := gap(r.ops)/ms, r.silence()/ms, r.back()/ms; gap != c.gap || silence != c.silence || back < c.back-20 || back > c.back+20 {
			t.Errorf("%s: gap %d ms, silence %d ms, back after %d ms, where %d, %d and %d are expected", c.name, gap, silence, back, c.gap, c.silence, c.back)
		}
	}
}

func TestTheTable(t *testing.T) {
	one, two := steady(func(at int64) (int64, int) { return ms, 0 }), steady(func(at int64) (int64, int) {
		if at == 700*ms {
			return 90 * ms, 4008
		}
		return ms, 0
	})
	one.written, two.written, two.lost, two.rejoin = 100, 50, 3, time.Second
	two.tries = []try{{1, 4010}, {2, 1204}, {3, 266}}
	r := report{rows: []*Row{summary("kill", 4, "loopback", []*round{one, two}), {Kind: "cut", DataNodes: 4, Note: "not supported here: why"}},
		deadlocks: []*deadlocks{{DataNodes: 4, Kind: "deadlock", Rounds: 2, Median: 3, Longest: 4, Errors: map[string]int{"274": 2}}},
		idle:      []*idle{{4, "idle", 0.5}}}
	var out bytes.Buffer
	r.print(&out)
	for _, want := range []string{"| kill | 4 | 2 | 90.0 (90.0) |", "| unknown result 1 | node recovery 2, timeout expired 1 | 150 | 3 |", "not supported here: why",
		"median 3.0 ms, longest 4.0 ms, of 2; rolled back with: 274 2", "0.50 %"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	file := filepath.Join(t.TempDir(), "figures.json")
	if err := r.write(file, []string{"cohort bench failover"}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var back struct {
		Name string
		Rows []map[string]any
	}
	if err := json.Unmarshal(text, &back); err != nil || back.Name != "failover" || len(back.Rows) != 4 {
		t.Fatal(err, back)
	}
	row := back.Rows[0]
	for name, want := range map[string]any{"kind": "kill", "data_nodes": 4.0, "longest_gap_ms": 90.0, "p999_ms": 1.0, "acknowledged": 150.0, "lost": 3.0} {
		if row[name] != want {
			t.Errorf("%s is %v, not %v", name, row[name], want)
		}
	}
	if e := row["errors"].(map[string]any); e["unknown result"] != 1.0 {
		t.Error(e)
	}
}

func TestTheCommandLine(t *testing.T) {
	for _, c := range []struct {
		args string
		want string // in the error; empty: none
	}{
		{"--data-nodes 2,4 --kinds kill,cut --repeat 3 --rate 500 --set MaxNoOfTables=9 --set Arbitration=Default --loopback", ""},
		{"--data-nodes 3", "is not 2, 4, 6 or 8"},
		{"--kinds explode", "there is no kind"},
		{"--set DataMemory", "is not NAME=VALUE"},
		{"--repeat 0", "repeat"},
		{"more", "more"},
	} {
		ch, _, err := parse(strings.Fields(c.args))
		switch {
		case c.want == "" && (err != nil || len(ch.nodes) != 2 || len(ch.kinds) != 2 || ch.repeat != 3 || ch.set != "MaxNoOfTables=9\nArbitration=Default\n"):
			t.Error(c.args, err, ch)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v", c.args, err)
		}
	}
	var out, errs bytes.Buffer
	if status := Main("cohort bench failover", []string{"--help"}, nil, &out, &errs); status != 0 || !strings.Contains(out.String(), "Usage: cohort bench failover [options]") {
		t.Error(status, out.String(), errs.String())
	}
	if status := Main("cohort bench failover", []string{"--kinds", "x"}, nil, io.Discard, &errs); status != 2 {
		t.Error(status)
	}
}

func TestNetworks(t *testing.T) {
	const links = `1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536
7: cb4711: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500
8: cb4711v1@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500
9: cbx: <BROADCAST> mtu 1500
12: cb99: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500
`
	if got := leftovers(links); len(got) != 2 || got[0] != 4711 || got[1] != 99 {
		t.Error(got)
	}
	const addresses = `1: lo    inet 127.0.0.1/8 scope host lo
9: cb1    inet 198.18.7.254/24 scope global cb1
9: cb2    inet 198.18.8.254/24 scope global cb2
`
	for seed, want := range map[int]string{7: "198.18.9", 9: "198.18.9", 255: "198.18.255", 256: "198.19.0", 511: "198.19.255", 512 + 7: "198.18.9"} {
		if got := freeBase(addresses, seed); got != want {
			t.Errorf("%d: %s, not %s", seed, got, want)
		}
	}
}
