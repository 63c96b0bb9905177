package matrix

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func number(v float64) *float64 { return &v }

func TestEveryRunHasItsReference(t *testing.T) {
	ndb, err := readReference(ndbTable)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i := range runs {
		r := &runs[i]
		if seen[r.name] || r.dataNodes%r.replicas != 0 || r.options == "" {
			t.Errorf("%+v", r)
		}
		seen[r.name] = true
		if strings.HasPrefix(r.name, "document-") {
			continue
		}
		for _, phase := range []string{"insert", "read", "update", "delete"} {
			x, ok := ndb[key{r.reference(), phase}]
			if !ok || x.node == nil || *x.node <= 0 || x.client == nil {
				t.Errorf("%s, %s: %+v", r.name, phase, x)
			}
		}
	}
	for k := range ndb {
		if !seen[k.run] {
			t.Errorf("figures of NDB for %s, which is no run", k.run)
		}
	}
	if x := ndb[key{"batched", "read"}]; *x.mean != 526000 || *x.best != 577000 || *x.node != 1.84 || *x.client != 1.33 {
		t.Errorf("batched reads: %+v", x)
	}
}

func TestATableThatCannotBeReadIsRefused(t *testing.T) {
	for table, reason := range map[string]string{
		"h\th\na\tb\t1\t2\t3":                "line 2: 5 fields",
		"a\tb\tc\td\te\tf\nr\tp\t1\t2\tx\t-": "line 2: e: ",
	} {
		if _, err := readReference(table); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: %v", table, err)
		}
	}
}

func TestOptions(t *testing.T) {
	c, _, err := parse([]string{"--only", "batched,replicas", "--repeat=3", "--json", "f"})
	if want := (&choices{only: []string{"batched", "replicas"}, repeat: 3, json: "f"}); err != nil || !reflect.DeepEqual(c, want) {
		t.Errorf("%+v %v", c, err)
	}
	for _, args := range [][]string{{"--only", "nothing"}, {"--repeat", "0"}, {"word"}, {"--nonsense"}} {
		var out, errs bytes.Buffer
		if status := Main("cohort bench matrix", args, nil, &out, &errs); status != exitUsage || out.Len() > 0 || !strings.HasPrefix(errs.String(), "cohort bench matrix: ") {
			t.Errorf("%v: status %d, %s%s", args, status, &out, &errs)
		}
	}
	var out, errs bytes.Buffer
	if status := Main("cohort bench matrix", []string{"--list"}, nil, &out, &errs); status != 0 || strings.Count(out.String(), "\n") != len(runs) {
		t.Errorf("status %d\n%s%s", status, &out, &errs)
	}
	out.Reset()
	if status := Main("cohort bench matrix", []string{"--help"}, nil, &out, &errs); status != 0 || !strings.Contains(out.String(), "Examples:") {
		t.Errorf("status %d\n%s", status, &out)
	}
}

func TestTheCommandOfARun(t *testing.T) {
	r := run{dataNodes: 2, replicas: 2, threads: true, options: "-a 2"}
	got := strings.Join(r.command("/it's/cohort", "/f"), "|")
	want := `up|--ephemeral|--mgm-port|0|--data-nodes|2|--replicas|2|--set|Diskless=1|--set|DataMemory=2000M|--multi-threaded|--run|'/it'\''s/cohort' flexasynch -a 2 --json '/f'`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestTheTable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.json")
	var out, errs bytes.Buffer
	tries := map[string]int{}
	m := &matrix{choices: &choices{only: []string{"batched", "100-bytes", "one-at-a-time-replicas"}, repeat: 2, json: file}, name: "matrix", out: &out, err: &errs}
	m.start = func(r *run) (*figures, error) {
		tries[r.name]++
		n := float64(tries[r.name])
		switch r.name {
		case "100-bytes":
			return nil, errors.New("no luck")
		case "one-at-a-time-replicas":
			return &figures{[]phaseFigures{{Phase: "update", Mean: 8000, Best: 8100, Operations: 10, Client: number(43), Node: nil, Failed: int64(n)}}}, nil
		}
		return &figures{[]phaseFigures{{Phase: "read", Mean: 1000000 * n, Best: 2000000 * n, Operations: 100, Client: number(0.1 * n), Node: number(0.2 * n)}}}, nil
	}
	err := m.run(context.Background())
	if err == nil || err.Error() != "2 runs failed: 100-bytes, 100-bytes: see above" || strings.Count(errs.String(), "100-bytes failed: no luck") != 2 {
		t.Errorf("%v\n%s", err, &errs)
	}
	want := "| run | phase | rate /s (mean, best) | node µs/op | client µs/op | NDB rate /s | NDB node | NDB client | NDB ÷ Cohort, node | target node, client |\n" +
		"| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n" +
		"| **batched**: 1 node, ndbd, `-ndbrecord -temp -t 8 -p 512 -r 5 -a 2` | read | 1,500,000 (4,000,000) | 0.30 | 0.15 | 526,000 (577,000) | 1.84 | 1.33 | 6.1 | 0.30, 0.25 |\n" +
		"| **100-bytes**: 1 node, ndbd, `-temp -con 2 -t 8 -r 2 -p 64 -ndbrecord -a 25` | FAILED | | | | | | | | |\n" +
		"| **one-at-a-time-replicas**: 2 nodes, 2 replicas, ndbd, `-ndbrecord -temp -t 1 -p 1 -o 10000 -a 2` (NDB's rates are those of ndbmtd) | update | 8,000 (8,100) | – | 43.0 | 3,150 | 182 | 67.0 | – | – |\n" +
		"| | | 3 operations FAILED | | | | | | | |\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Name    string
		Machine struct{ CPUs int }
		Rows    []row
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Name != "matrix" || got.Machine.CPUs < 1 || len(got.Rows) != 2 || got.Rows[0].Operations != 200 || *got.Rows[0].NDBNode != 1.84 || got.Rows[1].Node != nil {
		t.Errorf("%s", text)
	}
}

func TestARunThatCannotStartSaysWhatItPrinted(t *testing.T) {
	_, err := runs[0].start(context.Background(), "/bin/false")
	if err == nil {
		t.Error("no error")
	}
}
