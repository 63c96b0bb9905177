package main

import (
	"fmt"
	"io"

	"github.com/cohortdb/cohort/internal/bench/failover"
	"github.com/cohortdb/cohort/internal/bench/flexasynch"
	"github.com/cohortdb/cohort/internal/bench/matrix"
	"github.com/cohortdb/cohort/internal/configtool"
	"github.com/cohortdb/cohort/internal/mgm"
	"github.com/cohortdb/cohort/internal/noded"
	"github.com/cohortdb/cohort/internal/sim"
	"github.com/cohortdb/cohort/internal/tabletool"
	"github.com/cohortdb/cohort/internal/up"
)

// entry starts a tool. name is what the tool calls itself in messages ("ndb_mgm", or "cohort mgm").
type entry func(name string, args []string, stdin io.Reader, stdout, stderr io.Writer) int

// tool is one program of the binary.
type tool struct {
	command string // its name after "cohort"
	link    string // its name as a link beside the binary; empty where NDB has no such program
	help    string // one line for the list of commands
	run     entry
}

// tools lists every program, in the order in which help prints them. Links of the Makefile come from here.
var tools = []tool{
	{"up", "", "starts a whole cluster on this machine: the quick start", up.Main},
	{"mgmd", "ndb_mgmd", "management server: configuration, node ids, states, cluster log", mgm.MainMgmd},
	{"mgm", "ndb_mgm", "management client: shows the state of a cluster, starts and stops it", mgm.MainMgm},
	{"waiter", "ndb_waiter", "waits until the data nodes are in a state", mgm.MainWaiter},
	{"ndbd", "ndbd", "a data node with one thread", noded.NDBD},
	{"ndbmtd", "ndbmtd", "a data node with as many threads as the configuration says", noded.NDBMTD},
	{"config", "ndb_config", "answers questions about the configuration, for scripts", configtool.Main},
	{"show-tables", "ndb_show_tables", "lists tables", tabletool.ShowTables},
	{"desc", "ndb_desc", "describes tables: columns, keys, partitions", tabletool.Desc},
	{"drop-table", "ndb_drop_table", "drops tables", tabletool.DropTable},
	{"flexasynch", "flexAsynch", "the benchmark of the record API: inserts, reads, updates, deletes", flexAsynch},
	{"sim", "", "simulates a cluster and its clients on virtual time, from a seed, and checks what they were told", simulate},
	{"bench", "", "benchmarks that are not programs of NDB's; 'cohort bench --help' lists them", bench},
	{"select-all", "ndb_select_all", "prints the rows of a table",
		later("it comes with table scans")},
	{"select-count", "ndb_select_count", "counts the rows of a table",
		later("it comes with table scans")},
	{"delete-all", "ndb_delete_all", "deletes all rows of a table",
		later("it comes with table scans")},
	{"restore", "ndb_restore", "restores a backup",
		later("it comes with backups")},
}

// flexAsynch is flexasynch.Main as an entry; it calls itself flexAsynch under every name.
func flexAsynch(_ string, args []string, _ io.Reader, stdout, stderr io.Writer) int {
	return flexasynch.Main(args, stdout, stderr)
}

// simulate is sim.Main as an entry; it is called cohort sim only.
func simulate(_ string, args []string, _ io.Reader, stdout, stderr io.Writer) int {
	return sim.Main(args, stdout, stderr)
}

// benches are the programs of cohort bench.
var benches = []tool{
	{"matrix", "", "flexAsynch against clusters of several shapes, beside NDB's figures", matrix.Main},
	{"restart", "", "how long restarts take", later("it comes with recovery")},
	{"failover", "", "what a client notices when data nodes die, hang, are cut off or are stopped", failover.Main},
}

// bench is cohort bench NAME.
func bench(name string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		for _, b := range benches {
			if b.command == args[0] {
				return b.run(name+" "+b.command, args[1:], stdin, stdout, stderr)
			}
		}
	}
	out, status := stderr, exitUsage
	switch {
	case len(args) == 0:
		fmt.Fprintf(out, "%s: no benchmark is named: give one of these\n\n", name)
	case args[0] == "--help" || args[0] == "-?":
		out, status = stdout, 0
	default:
		fmt.Fprintf(out, "%s: there is no benchmark %q: give one of these\n\n", name, args[0])
	}
	fmt.Fprintf(out, "Usage: %s NAME [options]\n\n", name)
	for _, b := range benches {
		fmt.Fprintf(out, "  %-10s%s\n", b.command, b.help)
	}
	fmt.Fprint(out, "\nExamples:\n  cohort bench matrix\n  cohort bench matrix --help\n")
	return status
}

// later answers for a tool whose capability the cluster does not have.
func later(reason string) entry {
	return func(name string, _ []string, _ io.Reader, _, stderr io.Writer) int {
		fmt.Fprintf(stderr, "%s: not supported yet: %s\n", name, reason)
		return 1
	}
}

func byLink(name string) (tool, bool) {
	for _, t := range tools {
		if t.link != "" && t.link == name {
			return t, true
		}
	}
	return tool{}, false
}

func byCommand(name string) (tool, bool) {
	for _, t := range tools {
		if t.command == name {
			return t, true
		}
	}
	return tool{}, false
}
