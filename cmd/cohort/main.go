// Command cohort is the whole of Cohort in one static binary: management server and client, data node,
// quick start, benchmarks and tools.
//
// Called by one of the names that NDB users know (a link beside the binary: ndb_mgm, ndbmtd, …) it is that
// tool; called by any other name it takes the tool's name as its first argument. This package owns the
// table of tools (tools.go) and how they are found; it does no work of its own. Start reading at the
// package that the table names for a tool.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/cohortdb/cohort/internal/version"
)

// exitUsage is the status of a call that could not be understood, as flag parsers have it.
const exitUsage = 2

func main() {
	os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// run finds the tool that argv names and gives it the remaining arguments; it returns the exit status.
func run(argv []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if t, ok := byLink(filepath.Base(argv[0])); ok {
		return t.run(t.link, argv[1:], stdin, stdout, stderr)
	}
	if len(argv) < 2 {
		printHelp(stderr)
		return exitUsage
	}
	name, args := argv[1], argv[2:]
	switch name {
	case "help", "--help", "-help", "-h", "-?":
		return help(args, stdin, stdout, stderr)
	case "version", "--version", "-version", "-V":
		fmt.Fprintln(stdout, version.String())
		return 0
	}
	t, ok := byCommand(name)
	if !ok {
		t, ok = byLink(name)
	}
	if !ok {
		fmt.Fprintf(stderr, "cohort: there is no command %q: `cohort help` lists them%s\n", name, suggestion(name))
		return exitUsage
	}
	return t.run("cohort "+t.command, args, stdin, stdout, stderr)
}

// help answers `cohort help`, `cohort help COMMAND` and `cohort help --links`.
func help(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		printHelp(stdout)
		return 0
	}
	switch args[0] {
	case "help", "version", "--help", "-?": // these have no help of their own; the list explains them
		printHelp(stdout)
		return 0
	case "--links":
		for _, t := range tools {
			if t.link != "" {
				fmt.Fprintln(stdout, t.link)
			}
		}
		return 0
	}
	return run([]string{"cohort", args[0], "--help"}, stdin, stdout, stderr)
}

func printHelp(w io.Writer) {
	fmt.Fprintf(w, `Cohort %s: an in-memory, synchronously replicated database cluster.

Usage: cohort COMMAND [options]    or, by the name of a link beside the binary: NAME [options]

`, version.String())
	for _, t := range tools {
		fmt.Fprintf(w, "  %-13s %-17s %s\n", t.command, t.link, t.help)
	}
	fmt.Fprint(w, `  help          -                 this list; 'cohort help COMMAND' for one command; 'cohort help --links' for the links
  version       -                 the version

Examples:
  cohort up                                      a two-node, two-replica cluster on this machine
  ndb_mgm -e show                                its nodes and what they do
  cohort up --ephemeral --run 'flexAsynch -ndbrecord -temp -t 8 -p 512 -r 5 -a 2'
                                                 a benchmark against a cluster that lives as long as it
`)
}

// suggestion names the commands that a mistyped one may have meant, or is empty.
func suggestion(name string) string {
	var near []string
	edits := min(2, len(name)/2)
	for _, t := range tools {
		if distance(name, t.command) <= edits {
			near = append(near, t.command)
		} else if t.link != "" && distance(name, t.link) <= edits {
			near = append(near, t.link)
		}
	}
	if len(near) == 0 {
		return ""
	}
	return " (did you mean " + strings.Join(near, " or ") + "?)"
}

// distance is the number of single-letter edits between two words, letter case aside.
func distance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			substitute := diagonal
			if a[i-1] != b[j-1] {
				substitute++
			}
			diagonal = row[j]
			row[j] = min(substitute, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
