package matrix

import "fmt"

// run is one run of flexAsynch against a cluster of its own.
type run struct {
	name      string
	dataNodes int
	replicas  int
	threads   bool   // ndbmtd, not ndbd
	options   string // of flexAsynch
	note      string // how it differs from what NDB ran; empty: not at all
	target    targets
	set       string // a parameter of the cluster, NAME=VALUE; empty: none
	as        string // the run of NDB's to compare with, if it is not the one of this name
}

// reference is the name of NDB's run.
func (r *run) reference() string {
	if r.as != "" {
		return r.as
	}
	return r.name
}

// targets are what an operation may cost: CPU in µs of the data nodes (summed) and of the client; 0: there is none.
type targets struct{ readNode, readClient, writeNode, writeClient float64 }

var (
	batchedTarget    = targets{0.3, 0.25, 0.4, 0.3}
	coordinateTarget = targets{0.3, 0.25, 0.6, 0.3}
	replicasTarget   = targets{0.3, 0.3, 0.9, 0.6}
	sessionsTarget   = targets{1.0, 1.2, 1.0, 1.2}
	aloneTarget      = targets{20, 20, 20, 20}
)

// runs are all of them, in the order of the table. Names are those of ndb.tsv.
var runs = []run{
	{"batched", 1, 1, false, "-ndbrecord -temp -t 8 -p 512 -r 5 -a 2", "", batchedTarget, "", ""},
	{"two-connections", 1, 1, false, "-temp -con 2 -t 8 -r 2 -p 64 -ndbrecord -a 2", "", batchedTarget, "", ""},
	{"100-bytes", 1, 1, false, "-temp -con 2 -t 8 -r 2 -p 64 -ndbrecord -a 25", "", targets{}, "", ""},
	{"4-kilobytes", 1, 1, false, "-temp -con 2 -t 8 -r 2 -p 64 -ndbrecord -a 25 -s 40", "", targets{}, "", ""},
	{"4-kilobytes-touched", 1, 1, false, "-temp -con 2 -t 8 -r 2 -p 64 -ndbrecord -a 25 -s 40", "all memory is touched at start, as NDB does", targets{}, "LockPagesInMainMemory=1", "4-kilobytes"},
	{"small-table", 1, 1, false, "-ndbrecord -temp -t 4 -p 256 -o 100 -a 2", "", batchedTarget, "", ""},
	{"threads", 1, 1, true, "-ndbrecord -temp -t 8 -p 512 -r 5 -a 2", "", batchedTarget, "", ""},
	{"threads-8-connections", 1, 1, true, "-ndbrecord -n -temp -a 2 -l 3 -con 8 -t 12 -p 200 -o 1000", "", batchedTarget, "", ""},
	{"through-tc", 1, 1, false, "-ndbrecord -temp -t 8 -p 512 -r 5 -a 2 -through-tc", "NDB has no shorter path; its figures are those of ndbmtd", coordinateTarget, "", ""},
	{"replicas", 2, 2, false, "-ndbrecord -temp -t 8 -p 512 -r 5 -a 2", "", replicasTarget, "", ""},
	{"replicas-threads", 2, 2, true, "-ndbrecord -temp -t 8 -p 512 -r 5 -a 2", "", replicasTarget, "", ""},
	{"sessions-8x16", 1, 1, false, "-ndbrecord -temp -t 8 -p 16 -o 2000 -a 2", "", sessionsTarget, "", ""},
	{"sessions-8x4", 1, 1, false, "-ndbrecord -temp -t 8 -p 4 -o 4000 -a 2", "", targets{}, "", ""},
	{"one-at-a-time", 1, 1, false, "-ndbrecord -temp -t 1 -p 1 -o 20000 -a 2", "", aloneTarget, "", ""},
	{"one-at-a-time-replicas", 2, 2, false, "-ndbrecord -temp -t 1 -p 1 -o 10000 -a 2", "NDB's rates are those of ndbmtd", targets{}, "", ""},
	{"document-000-a", 4, 2, false, "-ndbrecord -n -temp -a 2 -l 1 -con 8 -t 16 -p 100 -o 1000 -warmup_time 1000", "-l 1 for -l 3; no figures of NDB", replicasTarget, "", ""},
	{"document-000-b", 4, 2, false, "-ndbrecord -n -temp -a 2 -l 1 -con 8 -t 8 -p 400 -o 1000 -warmup_time 1000", "-l 1 for -l 3; no figures of NDB", replicasTarget, "", ""},
	{"document-000-c", 2, 2, false, "-ndbrecord -n -temp -a 2 -l 1 -con 8 -t 12 -p 200 -o 1000 -warmup_time 1000", "-l 1 for -l 3; no figures of NDB", replicasTarget, "", ""},
	{"document-000-d", 2, 2, false, "-ndbrecord -n -temp -a 2 -l 1 -con 8 -t 12 -p 400 -o 1000 -warmup_time 1000", "-l 1 for -l 3; no figures of NDB", replicasTarget, "", ""},
}

// shape describes a run's cluster.
func (r *run) shape() string {
	nodes, program := "1 node", "ndbd"
	if r.dataNodes > 1 {
		nodes = fmt.Sprintf("%d nodes, %d replicas", r.dataNodes, r.replicas)
	}
	if r.threads {
		program = "ndbmtd"
	}
	return nodes + ", " + program
}

// target is what an operation of a phase may cost.
func (r *run) targetOf(phase string) (node, client float64) {
	if phase == "read" {
		return r.target.readNode, r.target.readClient
	}
	return r.target.writeNode, r.target.writeClient
}
