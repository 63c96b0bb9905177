// Package mgm is the programs of management: the server ndb_mgmd, the client ndb_mgm, and ndb_waiter, as functions that
// the one binary calls.
//
// It owns their options, what they print about themselves, their exit statuses, and the order in which a server comes
// up. What they do is in the packages below: mgmd, shell, waiter. It never ends the process; its functions return the
// status. Invariants: status 0 only on success; errors go to standard error as `PROGRAM: what went wrong: what to do`.
//
// Read next: server.go here; then package mgmd.
package mgm

import (
	"fmt"
	"io"

	"github.com/cohortdb/cohort/internal/options"
)

// Statuses of the programs.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// parse reads a command line; done says that the program has nothing more to do and ends with status.
func parse(set *options.Set, name string, args []string, stdout, stderr io.Writer) (rest []string, status int, done bool) {
	rest, err := set.Parse(args)
	status, done = set.Answer(err, name, stdout, stderr)
	return rest, status, done
}

func complain(stderr io.Writer, name string, err error) { fmt.Fprintf(stderr, "%s: %v\n", name, err) }
