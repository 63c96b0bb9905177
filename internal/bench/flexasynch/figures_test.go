package flexasynch

import (
	"testing"
	"time"
)

// The expected lines are printed ones of flexAsynch; where three loops were run the third rate is what the average of
// the printed ones leaves.
func TestFinalLinesAreAsKnown(t *testing.T) {
	for _, c := range []struct {
		kind  kind
		rates []float64
		want  string
	}{
		{insert, []float64{374200.4}, "insert average: 374200/s min: 374200/s max: 374200/s stddev: 0%"},
		{update, []float64{370947.9}, "update average: 370947/s min: 370947/s max: 370947/s stddev: 0%"},
		{remove, []float64{395061}, "delete average: 395061/s min: 395061/s max: 395061/s stddev: 0%"},
		{insert, []float64{153875, 170212, 159138}, "insert average: 161075/s min: 153875/s max: 170212/s stddev: 4%"},
		{update, []float64{158149, 182836, 161941}, "update average: 167642/s min: 158149/s max: 182836/s stddev: 6%"},
		{remove, []float64{181179, 192840, 185442}, "delete average: 186487/s min: 181179/s max: 192840/s stddev: 2%"},
		{insert, []float64{357621, 408475, 400700}, "insert average: 388932/s min: 357621/s max: 408475/s stddev: 5%"},
		{insert, []float64{574575, 555812, 574435}, "insert average: 568274/s min: 555812/s max: 574575/s stddev: 1%"},
		{read, []float64{0, 10, 20}, "read average: 10/s min: 0/s max: 20/s stddev: 81%"},
		{read, []float64{0}, "read average: 0/s min: 0/s max: 0/s stddev: 0%"},
		{read, []float64{12345678.9}, "read average: 12345678/s min: 12345678/s max: 12345678/s stddev: 0%"},
	} {
		f := figures{rates: c.rates}
		if got := f.line(c.kind); got != c.want {
			t.Errorf("%v: %s, want %s", c.rates, got, c.want)
		}
	}
}

func TestFiguresAddUp(t *testing.T) {
	var f figures
	f.add(&result{operations: 1000, elapsed: time.Second, clientCPU: 2 * time.Millisecond, nodeCPU: time.Millisecond, failed: 1, wrong: 2})
	f.add(&result{operations: 1000, elapsed: 2 * time.Second, clientCPU: 4 * time.Millisecond, nodeCPU: time.Millisecond})
	f.add(&result{})
	if f.operations != 2000 || f.failed != 1 || f.wrong != 2 {
		t.Fatalf("%+v", f)
	}
	if got := perOperation(f.clientCPU, f.operations); got != 3 {
		t.Errorf("client: %v µs", got)
	}
	if got := perOperation(f.nodeCPU, f.operations); got != 1 {
		t.Errorf("nodes: %v µs", got)
	}
	if got := perOperation(time.Second, 0); got != 0 {
		t.Errorf("no operations: %v µs", got)
	}
	if got := f.line(insert); got != "insert average: 500/s min: 0/s max: 1000/s stddev: 81%" {
		t.Error(got)
	}
}
