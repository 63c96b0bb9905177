package mgmd_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/mgmd"
	"github.com/cohortdb/cohort/internal/mgm/mgmtest"
	"github.com/cohortdb/cohort/internal/signal"
)

const fourNodes = `[SYSTEM]
Name=test
[NDBD DEFAULT]
NoOfReplicas=2
Diskless=1
HostName=127.0.0.1
[NDB_MGMD]
NodeId=49
HostName=127.0.0.1
[NDBD]
NodeId=1
[NDBD]
NodeId=2
[NDBD]
NodeId=3
[NDBD]
NodeId=4
[API]
NodeId=51
`

func set(nodes ...uint8) (s signal.NodeSet) {
	for _, n := range nodes {
		s.Add(n)
	}
	return s
}

// state waits until the server's state of the cluster is as wanted.
func state(t *testing.T, c *mgmclient.Client, what string, ok func(*mgmclient.ClusterState) bool) {
	t.Helper()
	var last *mgmclient.ClusterState
	mgmtest.Until(t, what, func() bool {
		st, err := c.ClusterState(mgmtest.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		last = st
		return ok(st)
	})
	t.Logf("%s: %+v", what, *last)
}

// SHOW says when the next failure would end the cluster, and why; the cluster log, too, has who cannot reach whom.
func TestDangersAreTold(t *testing.T) {
	s := mgmtest.Start(t, fourNodes, limits(func(l *mgmd.Limits) { l.Settle = time.Millisecond }))
	c := s.Connect()
	var all [5]*mgmtest.Node
	for id := uint8(1); id <= 4; id++ {
		all[id] = s.Link(id)
	}
	for id := uint8(1); id <= 4; id++ {
		all[id].State(signal.StateStarted, 0, uint32(id-1)/2, uint32(id), set4(id)...)
	}
	view := func(number uint32, members, serving signal.NodeSet, arbitrator uint32) {
		for id := uint8(1); id <= 4; id++ {
			if members.Has(id) {
				all[id].Report(func(r *signal.NodeStateRep) {
					r.View, r.Members, r.Serving, r.Arbitrator, r.Hears = number, members, serving, arbitrator, members
				})
			}
		}
	}
	dangers := func(want ...string) func(*mgmclient.ClusterState) bool {
		return func(st *mgmclient.ClusterState) bool { return slices.Equal(st.Dangers, want) }
	}
	state(t, c, "no view yet", func(st *mgmclient.ClusterState) bool { return st.View == 0 && st.Dangers == nil })
	view(1, set(1, 2, 3, 4), set(1, 2, 3, 4), 0)
	state(t, c, "three of four are a majority", func(st *mgmclient.ClusterState) bool {
		return st.View == 1 && st.Members == 4 && st.President == 1 && st.Arbitrator == 0 && st.Dangers == nil
	})
	view(2, set(1, 3, 4), set(1, 3, 4), 49)
	const alone = "The loss of one more data node may end the cluster: node group 0 has only node 1"
	state(t, c, "a group of one", dangers(alone))
	view(3, set(1, 2, 3, 4), set(1, 3, 4), 49)
	state(t, c, "who recovers does not count", func(st *mgmclient.ClusterState) bool {
		return st.View == 3 && slices.Equal(st.Dangers, []string{alone})
	})
	view(4, set(1, 2, 3, 4), set(1, 2, 3, 4), 49)
	state(t, c, "all have their data again", func(st *mgmclient.ClusterState) bool { return st.View == 4 && st.Dangers == nil })
	all[2].Report(func(r *signal.NodeStateRep) { r.Connected[0] &^= 1 << 3 })
	all[4].Report(func(r *signal.NodeStateRep) { r.Hears.Remove(1) })
	state(t, c, "who cannot reach whom", dangers("Nodes 2 and 3 have no link to each other", "Node 4 does not hear node 1"))
	s.Logged("WARNING  -- Node 49: Nodes 2 and 3 have no link to each other")
	s.Logged("WARNING  -- Node 49: Node 4 does not hear node 1")
	all[4].Report(func(r *signal.NodeStateRep) { r.Hears.Add(1) })
	s.Logged("INFO     -- Node 49: No longer so: Node 4 does not hear node 1")
	all[3].Close()
	state(t, c, "a member without a link here", func(st *mgmclient.ClusterState) bool {
		return len(st.Dangers) > 0 && st.Dangers[0] == "Node 3 is in the cluster, but has no link to management server 49"
	})
}

// set4 is all of 1..4 but one.
func set4(but uint8) (nodes []uint8) {
	for id := uint8(1); id <= 4; id++ {
		if id != but {
			nodes = append(nodes, id)
		}
	}
	return nodes
}

// Two nodes need an arbitrator whatever happens.
func TestTwoNodesWithoutAnArbitratorAreInDanger(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	one, two := start(s)
	for _, n := range []*mgmtest.Node{one, two} {
		n.Report(func(r *signal.NodeStateRep) { r.View, r.Members, r.Serving = 1, set(1, 2), set(1, 2) })
	}
	c := s.Connect()
	state(t, c, "no arbitrator", func(st *mgmclient.ClusterState) bool {
		return len(st.Dangers) == 1 && strings.HasSuffix(st.Dangers[0], ": there is no arbitrator, and the half that is left would need one")
	})
	for _, n := range []*mgmtest.Node{one, two} {
		n.Report(func(r *signal.NodeStateRep) { r.Arbitrator = 49 })
	}
	state(t, c, "an arbitrator", func(st *mgmclient.ClusterState) bool { return st.Arbitrator == 49 && st.Dangers == nil })
}

// A node that hangs keeps its link and its last word, "started"; the others have gone on without it.
func TestANodeThatWasPutOutIsNotShownAsStarted(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	one, two := start(s)
	for _, n := range []*mgmtest.Node{one, two} {
		n.Report(func(r *signal.NodeStateRep) { r.View, r.Members, r.Serving = 1, set(1, 2), set(1, 2) })
	}
	c := s.Connect()
	second := func(want mgmclient.Status) {
		t.Helper()
		mgmtest.Until(t, "node 2 to be "+string(want), func() bool {
			status, err := c.Status(mgmtest.Context(t), data)
			return err == nil && len(status.Nodes) >= 2 && status.Nodes[1].Status == want
		})
	}
	second(mgmclient.Started)
	one.Report(func(r *signal.NodeStateRep) { r.View, r.Members, r.Serving = 2, set(1), set(1) })
	second(mgmclient.NoContact)
	two.Report(func(r *signal.NodeStateRep) { r.State, r.View, r.Members = signal.StateStarting, 0, set() })
	second(mgmclient.Starting)
}

func TestSingleUserMode(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	ctx, c := mgmtest.Context(t), s.Connect()
	if err := c.EnterSingleUser(ctx, 51); err == nil || err.Error() != "No data node has started" {
		t.Fatal(err)
	}
	one, two := start(s)
	for id, want := range map[int]string{2: "Node 2 is no API node", 9: "There is no node 9 in the configuration"} {
		if err := c.EnterSingleUser(ctx, id); err == nil || err.Error() != want {
			t.Errorf("%d: %v", id, err)
		}
	}
	if err := c.ExitSingleUser(ctx); err == nil || err.Error() != "The cluster is not in single user mode" {
		t.Fatal(err)
	}
	// One node does not go along: nowhere does the mode hold.
	two.OnSingle = func(client uint32) uint32 {
		if client != 0 {
			return 4002
		}
		return 0
	}
	if err := c.EnterSingleUser(ctx, 51); err == nil || !strings.HasPrefix(err.Error(), "Node 2 refused: ") {
		t.Fatal(err)
	}
	mgmtest.Until(t, "node 1 lets all in again", func() bool { return one.Got("Node=51") && one.Got("Node=0") })
	state(t, c, "everybody is let in", func(st *mgmclient.ClusterState) bool { return st.SingleUser == 0 })
	two.OnSingle = nil
	if err := c.EnterSingleUser(ctx, 51); err != nil {
		t.Fatal(err)
	}
	state(t, c, "one is let in", func(st *mgmclient.ClusterState) bool { return st.SingleUser == 51 })
	status, err := c.Status(ctx, data)
	if err != nil || status.Node(1).Status != mgmclient.SingleUser {
		t.Fatalf("%+v, %v", status, err)
	}
	if err := c.EnterSingleUser(ctx, 52); err == nil || !strings.Contains(err.Error(), "entered already, for node 51") {
		t.Fatal(err)
	}
	if err := c.ExitSingleUser(ctx); err != nil {
		t.Fatal(err)
	}
	state(t, c, "everybody is let in", func(st *mgmclient.ClusterState) bool { return st.SingleUser == 0 })
	two.State(signal.StateStopping, 0, 0, 3, 1)
	mgmtest.Until(t, "a node stops", func() bool {
		status, err := c.Status(ctx, data)
		return err == nil && status.Node(2).Status == mgmclient.ShuttingDown
	})
	if err := c.EnterSingleUser(ctx, 51); err == nil || !strings.HasPrefix(err.Error(), "Operation not allowed while nodes are starting or stopping") {
		t.Fatal(err)
	}
}

func TestListsOfWhatIsOpen(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	one, _ := start(s)
	client := signal.MakeAddr(51, signal.BlockClient, 3)
	other := signal.MakeAddr(52, signal.BlockClient, 1)
	one.Transactions = [2][]signal.TransactionLine{
		{{Client: client, Tx: 17, State: signal.TxIsActive, Operations: 2, AgeMillis: 20, IdleMillis: 15}},
		{{Client: other, Tx: 4, State: signal.TxIsActive, Operations: 3, Waiting: 1, AgeMillis: 1200}}}
	one.Locks = [2][]signal.LockLine{1: {
		{Client: other, Tx: 4, Table: 5, Frag: 1, Row: 9, Mode: signal.LockIsShared, Waits: 1, Millis: 10, AheadTx: 17, Ahead: client},
		{Client: client, Tx: 17, Table: 5, Frag: 1, Row: 9, Mode: signal.LockIsExclusive, Millis: 18},
		{Client: other, Tx: 4, Table: 5, Frag: 2, Row: signal.NoRef, Mode: signal.LockIsExclusive, Waits: 1, Millis: 700, AheadTx: 17, Ahead: client}}}
	one.Left = 2
	ctx, c := mgmtest.Context(t), s.Connect()
	transactions, left, err := c.Transactions(ctx, nil, 10)
	if err != nil || left != 4 || len(transactions) != 2 {
		t.Fatalf("%v, %d, %v", transactions, left, err)
	}
	for i, want := range []string{"tc 1: transaction 52.1/4 active for 1.2s, 3 operations, 1 of them wait for locks",
		"tc 0: transaction 51.3/17 active for 20ms, 2 operations, its client silent for 15ms"} {
		if got := transactions[i].String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	locks, _, err := c.Locks(ctx, []int{1}, 10)
	if err != nil || len(locks) != 3 {
		t.Fatalf("%v, %v", locks, err)
	}
	for i, want := range []string{"ldm 1: table 5 fragment 2 a new row: transaction 52.1/4 waits for the exclusive lock for 700ms, behind 51.3/17",
		"ldm 1: table 5 fragment 1 row 9: transaction 51.3/17 holds the exclusive lock for 18ms",
		"ldm 1: table 5 fragment 1 row 9: transaction 52.1/4 waits for the shared lock for 10ms, behind 51.3/17"} {
		if got := locks[i].String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if empty, left, err := c.Locks(ctx, []int{2}, 10); len(empty) != 0 || left != 0 || err != nil {
		t.Errorf("%v, %d, %v", empty, left, err)
	}
	for _, bad := range []struct {
		nodes []int
		most  int
		want  string
	}{{[]int{3}, 10, "There is no node 3"}, {[]int{51}, 10, "no data node"}, {nil, 5000, "most is a number from 1 to 1000"}} {
		if _, _, err := c.Transactions(ctx, bad.nodes, bad.most); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%v", err)
		}
	}
	// NDB's numbers for the same write them to the cluster log.
	if err := c.Dump(ctx, 1, []uint32{2550}); err != nil {
		t.Fatal(err)
	}
	if err := c.Dump(ctx, 1, []uint32{2350}); err != nil {
		t.Fatal(err)
	}
	s.Logged("Node 1: Open transactions: 2")
	s.Logged("Node 1: tc 1: transaction 52.1/4 active for 1.2s")
	s.Logged("Node 1: Locks that somebody waits for: 3")
	s.Logged("Node 1: ldm 1: table 5 fragment 1 row 9: transaction 51.3/17 holds the exclusive lock for 18ms")
}

func TestProgressOfACopyShows(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	one, two := s.Link(1), s.Link(2)
	one.Report(func(r *signal.NodeStateRep) {
		r.State, r.View, r.Members, r.Serving, r.Pages = signal.StateStarted, 7, set(1, 2), set(1), 800*32
	})
	two.Report(func(r *signal.NodeStateRep) { r.State, r.StartPhase, r.Pages = signal.StateStarting, 5, 120*32 })
	c := s.Connect()
	mgmtest.Until(t, "the progress", func() bool {
		status, err := c.Status(mgmtest.Context(t), data)
		if err != nil {
			t.Fatal(err)
		}
		return status.Node(2).CopyDone == 120 && status.Node(2).CopyTotal == 800
	})
}
