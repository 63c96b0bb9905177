package mgmd_test

import (
	"io"
	"strings"
	"testing"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/frames"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/mgmtest"
	"github.com/cohortdb/cohort/internal/signal"
)

func refOf(h *signal.Head) *signal.HelloRef { return frames.As[signal.HelloRef](h) }

func TestStatesBecomeStatus(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	n := s.Link(1)
	none := ^uint32(0)
	for _, c := range []struct {
		state, phase, group, dynamicID uint32
		want                           mgmclient.NodeStatus
	}{
		{signal.StateStarting, 3, none, none, mgmclient.NodeStatus{Status: mgmclient.Starting, StartPhase: 3, NodeGroup: -1, DynamicID: -1}},
		{signal.StateStarted, 9, 0, 4, mgmclient.NodeStatus{Status: mgmclient.Started, NodeGroup: 0, DynamicID: 4}},
		{signal.StateStopping, 0, 0, 4, mgmclient.NodeStatus{Status: mgmclient.ShuttingDown, NodeGroup: 0, DynamicID: 4}},
		{signal.StateSingleUser, 0, 0, 4, mgmclient.NodeStatus{Status: mgmclient.SingleUser, NodeGroup: 0, DynamicID: 4}},
		{signal.StateRestarting, 0, 0, 4, mgmclient.NodeStatus{Status: mgmclient.Restarting, NodeGroup: 0, DynamicID: 4}},
		{signal.StateNotStarted, 0, none, none, mgmclient.NodeStatus{Status: mgmclient.NotStarted, NodeGroup: -1, DynamicID: -1}},
		{777, 0, none, none, mgmclient.NodeStatus{Status: mgmclient.Unknown, NodeGroup: -1, DynamicID: -1}},
	} {
		n.State(c.state, c.phase, c.group, c.dynamicID)
		mgmtest.Until(t, string(c.want.Status), func() bool {
			status, err := s.Connect().Status(mgmtest.Context(t), data)
			if err != nil {
				t.Fatal(err)
			}
			got := *status.Node(1)
			return got.Status == c.want.Status && got.StartPhase == c.want.StartPhase && got.NodeGroup == c.want.NodeGroup && got.DynamicID == c.want.DynamicID
		})
	}
}

func TestEventsReachLogAndListenersByCategoryAndLevel(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	n := s.Link(1)
	ctx := mgmtest.Context(t)
	var levels event.Levels
	levels[event.CategoryCheckpoint] = 10
	stream, err := s.Connect().ListenEvents(ctx, levels)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	text := s.Dial()
	if got := text.Say("listen event\nfilter: 15=253 STARTUP=4\n\n"); got != "listen event\nresult: 0\n\n" {
		t.Fatalf("%q", got)
	}
	// The node hears what somebody wants: the log's levels, raised by the listeners'.
	mgmtest.Until(t, "the subscription", func() bool {
		l := n.Levels()
		return l[event.CategoryCheckpoint] == 15 && l[event.CategoryStartup] == 7 && l[event.CategoryConnection] == 8
	})
	n.Event(event.New(1, event.GlobalCheckpointCompleted, 17)) // level 10: for listeners, not for the log
	n.Event(event.New(1, event.StartPhaseCompleted, 5, event.StartKindInitial))
	n.Event(event.New(1, event.Disconnected, 2))
	n.Event(event.New(1, event.WarningEvent).WithText("two\nlines"))
	s.Logged("ALERT    -- Node 1: Node 2 Disconnected\n")
	s.Logged("WARNING  -- Node 1: two lines\n")
	s.Logged("INFO     -- Node 1: Start phase 5 completed (initial start)\n")
	if strings.Contains(s.Log.String(), "checkpoint 17") {
		t.Error("the log has an event above its level")
	}
	if e, err := stream.Next(); err != nil || e != event.New(1, event.GlobalCheckpointCompleted, 17) {
		t.Errorf("%v, %v", e, err)
	}
	want := "Node 1: Global checkpoint 17 completed\nNode 1: Start phase 5 completed (initial start)\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(text, got); err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	stream.Close()
	text.Close()
	mgmtest.Until(t, "the listeners are forgotten", func() bool { return n.Levels()[event.CategoryCheckpoint] == 7 })
}

func TestListenersAreToldWhatIsWrong(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	for _, filter := range []string{"x", "16=253", "1=999", "WEATHER=1"} {
		if got := s.Dial().Say("listen event\nfilter: " + filter + "\n\n"); got != "listen event\nresult: -1\nmsg: '"+filter+"' is not LEVEL=CATEGORY with a level from 0 to 15\n\n" {
			t.Errorf("%q", got)
		}
	}
	if got := s.Dial().Say("listen event\nnode: 7\n\n"); !strings.Contains(got, "There is no node 7") {
		t.Errorf("%q", got)
	}
}

func TestReports(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	start(s)
	ctx, c := mgmtest.Context(t), s.Connect()
	all, err := c.DumpEvents(ctx, event.MemoryUsage, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range all {
		got = append(got, d.Event.String())
	}
	want := "Node 1: Data usage is 0%(4 32K pages of total 3198)|Node 1: Index usage is 0%(2 32K pages of total 3196)|" +
		"Node 2: Data usage is 50%(1599 32K pages of total 3198)|Node 2: Index usage is 0%(3 32K pages of total 3196)"
	if strings.Join(got, "|") != want {
		t.Fatalf("%q", got)
	}
	if all, err = c.DumpEvents(ctx, event.BackupStatus, []int{2}); err != nil || len(all) != 1 || all[0].Event.String() != "Node 2: Backup not started" {
		t.Fatalf("%v, %v", all, err)
	}
	if all, err = c.DumpEvents(ctx, event.SavedEvent, []int{49}); err != nil || len(all) == 0 || all[0].Seconds == 0 {
		t.Fatalf("%v, %v", all, err)
	}
	if _, err = c.DumpEvents(ctx, event.MemoryUsage, []int{3}); err == nil || err.Error() != "There is no node 3 in the configuration" {
		t.Fatalf("%v", err)
	}
	if err := c.Dump(ctx, 2, []uint32{1000, 7}); err != nil {
		t.Fatal(err)
	}
}

func TestDumpReachesTheNode(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	n := s.Link(2)
	if err := s.Connect().Dump(mgmtest.Context(t), 2, []uint32{1000, 7}); err != nil {
		t.Fatal(err)
	}
	mgmtest.Until(t, "the numbers", func() bool { return n.Got("DumpOrd 49:mgm.0 -> 2:manager.0 Args=[1000 7 0") && n.Got("N=2") })
	if err := s.Connect().Dump(mgmtest.Context(t), 1, []uint32{1}); err == nil || err.Error() != "Node 1 is not connected" {
		t.Fatal(err)
	}
}

// What comes over a link that should not come there ends that link and nothing else.
func TestBadFramesEndTheirLinkOnly(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	good := s.Link(2)
	to, from := signal.MakeAddr(49, signal.BlockMgm, 0), signal.MakeAddr(1, signal.BlockManager, 0)
	for _, c := range []struct {
		want string
		send []byte
	}{
		{"shorter than a head", make([]byte, 64)},
		{"unknown number", frames.Make[signal.StartOrd](60000, to, from, "", nil)},
		{"not for such a peer", frames.Make[signal.StartOrd](signal.NumStartOrd, to, from, "", nil)},
		{"another node's name", frames.Make[signal.NodeStateRep](signal.NumNodeStateRep, to, signal.MakeAddr(2, signal.BlockManager, 0), "", nil)},
		{"does not take Hello", frames.Make[signal.Hello](signal.NumHello, to, from, "", nil)},
		{"sections do not fit", frames.Make(signal.NumEventRep, to, from, "", func(e *signal.EventRep) { e.TextLen = 9 })},
		{"inside a frame", frames.Make[signal.NodeStateRep](signal.NumNodeStateRep, to, from, "", nil)[:20]},
	} {
		n := s.Link(1)
		if _, err := n.Conn.Write(c.send); err != nil {
			t.Fatal(err)
		}
		if c.want == "inside a frame" {
			n.Close()
		}
		s.Logged("Connection from 127.0.0.1 closed: ")
		s.Logged(c.want)
		n.Close()
		mgmtest.Until(t, "node 1 is free", func() bool {
			status, err := s.Connect().Status(mgmtest.Context(t), data)
			return err == nil && status.Node(1).Status == mgmclient.NoContact && status.Node(2).Status != mgmclient.NoContact
		})
	}
	good.State(signal.StateStarted, 0, 0, 1)
	started(s, 2)
}

func TestALinkBeginsWithHello(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	speak := s.Dial()
	if _, err := speak.Write(append([]byte("transporter connect\n\n"), frames.Make[signal.StartOrd](signal.NumStartOrd, 0, 0, "", nil)...)); err != nil {
		t.Fatal(err)
	}
	if rest := speak.Rest(); rest != "" {
		t.Errorf("%q", rest)
	}
	s.Logged("a link begins with Hello, not with StartOrd")
}
