package flexasynch

import (
	"encoding/json"
	"os"
	"runtime"
)

// report is the file of --json.
type report struct {
	Name    string      `json:"name"`
	Command []string    `json:"command"`
	Machine machine     `json:"machine"`
	Rows    []reportRow `json:"rows"`
}

type machine struct {
	CPUs     int    `json:"cpus"`
	MemoryMB int    `json:"memory_mb"`
	Go       string `json:"go"`
}

// reportRow is the figures of a kind of phase over all loops.
type reportRow struct {
	Phase      string   `json:"phase"`
	Mean       float64  `json:"mean_per_s"`
	Min        float64  `json:"min_per_s"`
	Max        float64  `json:"max_per_s"`
	Deviation  float64  `json:"stddev_pct"`
	Operations int64    `json:"operations"`
	Failed     int64    `json:"failed"` // operations that failed for good, and rows that were wrong
	ClientCPU  *float64 `json:"client_cpu_us_per_op"`
	NodeCPU    *float64 `json:"node_cpu_us_per_op"` // null: the data nodes' processes are not known
}

// rowOrder is that of the documented file.
var rowOrder = []kind{insert, read, update, remove}

func newReport(command []string, all *[kinds]figures, nodesKnown bool) *report {
	r := &report{Name: "flexasynch", Command: command, Rows: []reportRow{},
		Machine: machine{runtime.NumCPU(), memoryMB(), runtime.Version()}}
	for _, k := range rowOrder {
		f := &all[k]
		if len(f.rates) == 0 {
			continue
		}
		row := reportRow{Phase: k.String(), Operations: f.operations, Failed: f.failed + f.wrong}
		row.Mean, row.Min, row.Max, row.Deviation = f.spread()
		client := perOperation(f.clientCPU, f.operations)
		row.ClientCPU = &client
		if nodesKnown {
			node := perOperation(f.nodeCPU, f.operations)
			row.NodeCPU = &node
		}
		r.Rows = append(r.Rows, row)
	}
	return r
}

func (r *report) write(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
