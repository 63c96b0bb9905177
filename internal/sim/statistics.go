package sim

import (
	"fmt"
	"sort"
	"strings"

	"github.com/cohortdb/cohort/internal/ndberror"
)

// statistics count what a load has done: a run in which nothing commits proves nothing.
type statistics struct {
	Committed, Aborted [kindsOfTransactions]int
	// Codes counts the errors that rolled transactions back.
	Codes map[int]int
	// Tables counts tables that were created and dropped during the load, Reopened sessions that were closed and opened anew,
	// Cut transactions that this ended.
	Tables, Reopened, Cut int
	// Links counts links between a client and a data node that were cut, Unknown commits whose outcome the client could not
	// know because of that or of the end of its session.
	Links, Unknown int
	// Reborn counts clients that were killed and started again.
	Reborn int
}

// runStatistics count what happened to a cluster.
type runStatistics struct {
	Faults [faultKinds]int
	Quiet  int // pairs of replicas that were compared while the load ran
	Exits  int // data nodes that ended by themselves
	Views  int // that were agreed on
}

func (s *statistics) committed(kind int) { s.Committed[kind]++ }

func (s *statistics) aborted(kind int, e *ndberror.Error) {
	s.Aborted[kind]++
	if s.Codes == nil {
		s.Codes = map[int]int{}
	}
	if e != nil {
		s.Codes[e.Code]++
	}
}

// add sums the counters of runs.
func (s *statistics) add(o *statistics) {
	for i := range s.Committed {
		s.Committed[i] += o.Committed[i]
		s.Aborted[i] += o.Aborted[i]
	}
	if s.Codes == nil {
		s.Codes = map[int]int{}
	}
	for code, n := range o.Codes { // a sum: the order does not matter
		s.Codes[code] += n
	}
	s.Tables += o.Tables
	s.Reopened += o.Reopened
	s.Cut += o.Cut
	s.Links += o.Links
	s.Unknown += o.Unknown
	s.Reborn += o.Reborn
}

// transactions are those that ended, however.
func (s *statistics) transactions() (committed, aborted int) {
	for i := range s.Committed {
		committed += s.Committed[i]
		aborted += s.Aborted[i]
	}
	return committed, aborted
}

func (s *statistics) String() string {
	var b strings.Builder
	for i := range s.Committed {
		fmt.Fprintf(&b, "%s %d+%d, ", kinds[i].name, s.Committed[i], s.Aborted[i])
	}
	var codes []int
	for code := range s.Codes {
		codes = append(codes, code)
	}
	sort.Ints(codes)
	fmt.Fprintf(&b, "%d tables, %d sessions reopened, %d transactions cut, %d links cut, %d outcomes unknown, errors", s.Tables, s.Reopened, s.Cut,
		s.Links, s.Unknown)
	for _, code := range codes {
		fmt.Fprintf(&b, " %d:%d", code, s.Codes[code])
	}
	return b.String()
}
