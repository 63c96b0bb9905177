package mgmd_test

import (
	"strings"
	"testing"

	"github.com/cohortdb/cohort/internal/mgm/mgmtest"
	"github.com/cohortdb/cohort/internal/signal"
)

// Of two data nodes that have lost each other, the one that comes first to the management server goes on.
func TestTheServerArbitrates(t *testing.T) {
	ini := strings.Replace(mgmtest.TwoNodes, "[NDB_MGMD]\n", "[NDB_MGMD]\nArbitrationDelay=3\n", 1)
	s := mgmtest.Start(t, ini)
	one, two := start(s)
	run, ticket := [2]uint32{1, 2}, [2]uint32{77, 78}
	mgmtest.Send(one, signal.NumArbitStartReq, signal.BlockArbitrator, func(r *signal.ArbitStartReq) {
		r.Run, r.View, r.Turn, r.Ticket = run, 5, 1, ticket
	})
	mgmtest.Until(t, "the ticket is taken", func() bool { return one.Got("ArbitStartConf") })
	choose := func(n *mgmtest.Node, ticket [2]uint32) {
		mgmtest.Send(n, signal.NumArbitChooseReq, signal.BlockArbitrator, func(r *signal.ArbitChooseReq) {
			r.Attempt, r.Run, r.View, r.Turn, r.Ticket = 9, run, 5, 1, ticket
			r.Part.Add(n.ID)
		})
	}
	choose(two, [2]uint32{1, 1})
	mgmtest.Until(t, "an unknown ticket is refused", func() bool { return two.Got("ArbitChooseRef") })
	choose(one, ticket)
	mgmtest.Until(t, "node 1 goes on", func() bool { return one.Got("ArbitChooseConf") })
	s.Logged("Arbitration: node 1 may go on without the other members of view 5")
	choose(two, ticket)
	s.Logged("Arbitration: node 2 may not go on: node 1 won view 5")
	if one.Got("ArbitChooseRef") || two.Got("ArbitChooseConf") {
		t.Error("both heard both answers")
	}
}
