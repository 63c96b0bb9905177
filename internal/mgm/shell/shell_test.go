package shell_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/mgmtest"
	"github.com/cohortdb/cohort/internal/mgm/shell"
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
[API]
NodeId=52
HostName=127.0.0.1
[API]
NodeId=53
`

const none = ^uint32(0)

// TestSessions plays what an operator types in testdata/*.txt against a server: behind "> " stands a command, then what
// must be printed, to the letter; a line "! " says that the command must fail. The cluster has four data nodes: 1 and
// 2 have started, 4 is starting, 3 is missing; API node 51 is connected.
func TestSessions(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			s := cluster(t, true)
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			out := &strings.Builder{}
			sh := shell.New(shell.Options{Target: target(t, s.Addr), Out: out})
			defer sh.Close()
			var got strings.Builder
			for line := range strings.SplitAfterSeq(string(raw), "\n") {
				command, isCommand := strings.CutPrefix(line, "> ")
				if strings.HasPrefix(line, "#") {
					got.WriteString(line)
				}
				if !isCommand {
					continue
				}
				got.WriteString(line)
				out.Reset()
				err := sh.Execute(mgmtest.Context(t), strings.TrimSpace(command))
				got.WriteString(strings.ReplaceAll(out.String(), s.Addr, "ADDRESS"))
				if err != nil {
					got.WriteString("! " + err.Error() + "\n")
				}
			}
			if got.String() != string(raw) {
				t.Errorf("got:\n%s\nwant:\n%s", &got, raw)
			}
		})
	}
}

func target(t *testing.T, addr string) config.ConnectString {
	t.Helper()
	c, err := config.ParseConnectString(addr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// cluster is such a cluster; whole says that nodes 1 and 2 refuse to be stopped.
func cluster(t *testing.T, whole bool) *mgmtest.Server {
	t.Helper()
	s := mgmtest.Start(t, fourNodes)
	one, two, four := s.Link(1), s.Link(2), s.Link(4)
	one.Pages, two.Pages, four.Pages = [4]uint32{4, 3198, 2, 3196}, [4]uint32{1599, 3198, 3, 3196}, [4]uint32{0, 3198, 0, 3196}
	one.State(signal.StateStarted, 0, 0, 1, 2)
	two.State(signal.StateStarted, 0, 0, 2, 1)
	four.Report(func(r *signal.NodeStateRep) {
		r.State, r.StartPhase, r.NodeGroup = signal.StateStarting, 4, none
	})
	refuse := func(*signal.StopReq) string { return "node group 0 has no other node" }
	client, other := signal.MakeAddr(51, signal.BlockClient, 3), signal.MakeAddr(52, signal.BlockClient, 1)
	one.Transactions[0] = []signal.TransactionLine{{Client: client, Tx: 17, State: signal.TxIsActive, Operations: 2, AgeMillis: 20, IdleMillis: 15}}
	one.Locks[0] = []signal.LockLine{{Client: client, Tx: 17, Table: 5, Frag: 1, Row: 9, Mode: signal.LockIsExclusive, Millis: 18},
		{Client: other, Tx: 4, Table: 5, Frag: 1, Row: 9, Mode: signal.LockIsShared, Waits: 1, Millis: 10, AheadTx: 17, Ahead: client}}
	if whole {
		one.OnStop, two.OnStop = refuse, refuse
	}
	api := s.Connect()
	if _, err := api.GetNodeID(mgmtest.Context(t), mgmclient.NodeIDRequest{Type: config.APINode, NodeID: 51}); err != nil {
		t.Fatal(err)
	}
	mgmtest.Until(t, "the states", func() bool {
		status, err := api.Status(mgmtest.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		return status.Node(1).Status == mgmclient.Started && status.Node(2).Status == mgmclient.Started && status.Node(4).Status == mgmclient.Starting
	})
	return s
}

func TestStatusHasTheProgressOfACopy(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	one, two := s.Link(1), s.Link(2)
	one.Report(func(r *signal.NodeStateRep) {
		r.State, r.View, r.Pages, r.Members, r.Serving = signal.StateStarted, 7, 80*32, signal.NodeSet{0b110}, signal.NodeSet{0b10}
	})
	two.Report(func(r *signal.NodeStateRep) { r.State, r.StartPhase, r.Pages = signal.StateStarting, 5, 12*32 })
	out := &strings.Builder{}
	sh := shell.New(shell.Options{Target: target(t, s.Addr), Out: out})
	defer sh.Close()
	mgmtest.Until(t, "the progress", func() bool {
		out.Reset()
		if err := sh.Execute(mgmtest.Context(t), "2 status"); err != nil {
			t.Fatal(err)
		}
		return strings.HasSuffix(out.String(), "Node 2: starting (Last completed phase 5) (copied 12 of 80 MB) (cohort-0.1.0)\n")
	})
}

func TestShutdownEndsServerAndSession(t *testing.T) {
	s := cluster(t, false)
	out := &strings.Builder{}
	sh := shell.New(shell.Options{Target: target(t, s.Addr), Out: out})
	if err := sh.Execute(mgmtest.Context(t), "shutdown;"); err != nil {
		t.Fatal(err)
	}
	<-s.Ended
	want := "Connected to Management Server at: " + s.Addr + "\n3 NDB Cluster node(s) have shutdown.\nDisconnecting to allow management server to shutdown.\n"
	if out.String() != want {
		t.Errorf("%q", out)
	}
	if err := sh.Execute(mgmtest.Context(t), "show"); err == nil || errors.Is(err, shell.ErrFailed) {
		t.Errorf("show without a server: %v", err)
	}
}

func TestStopAndRestart(t *testing.T) {
	for _, c := range []struct {
		command string
		flags   uint32
		want    string
	}{
		{"1,2 4 stop", signal.StopAll, "Node 1 has shutdown.\nNode 2 has shutdown.\nNode 4 has shutdown.\n"},
		{"ALL STOP -a", signal.StopAll | signal.StopAbort, "NDB Cluster has shutdown.\n"},
		{"1 sto -a -f", signal.StopAbort | signal.StopForce, "Node 1 has shutdown.\n"},
		{"all rest -ni", signal.StopAll | signal.StopRestart | signal.StopNoStart | signal.StopInitial, "NDB Cluster is being restarted.\nUse ALL STATUS to see the system start-up phases.\n"},
		{"1 2 4 restart -a", signal.StopAll | signal.StopRestart | signal.StopAbort, "Node 1 is being restarted\nNode 2 is being restarted\nNode 4 is being restarted\n"},
		{"49 stop", 0, "Node 49 has shutdown.\nDisconnecting to allow management server to shutdown.\n"},
	} {
		t.Run(c.command, func(t *testing.T) {
			s := mgmtest.Start(t, fourNodes)
			one := s.Link(1)
			s.Link(2)
			s.Link(4)
			one.State(signal.StateStarted, 0, 0, 1)
			look := s.Connect()
			mgmtest.Until(t, "node 1 has started", func() bool {
				status, err := look.Status(mgmtest.Context(t))
				return err == nil && status.Node(1).Status == mgmclient.Started
			})
			out := &strings.Builder{}
			sh := shell.New(shell.Options{Target: target(t, s.Addr), Out: out})
			defer sh.Close()
			err := sh.Execute(mgmtest.Context(t), c.command)
			_, printed, _ := strings.Cut(out.String(), "\n")
			if err != nil || printed != c.want || one.StopFlags() != c.flags {
				t.Errorf("%q, flags %#x, %v", printed, one.StopFlags(), err)
			}
		})
	}
}

func TestASessionThatIsGoneIsOpenedAnew(t *testing.T) {
	s := cluster(t, false)
	out := &strings.Builder{}
	sh := shell.New(shell.Options{Target: target(t, "127.0.0.1:1,"+s.Addr), Out: out})
	defer sh.Close()
	if err := sh.Execute(mgmtest.Context(t), "1 status"); err != nil {
		t.Fatal(err)
	}
	if want := "Connected to Management Server at: " + s.Addr + "\nNode 1: started (cohort-0.1.0)\n"; out.String() != want {
		t.Fatalf("every server of the connect string is tried: %q", out)
	}
	for _, command := range []string{"connect", "connect " + s.Addr} {
		out.Reset()
		if err := sh.Execute(mgmtest.Context(t), command); err != nil || out.String() != "Connected to Management Server at: "+s.Addr+"\n" {
			t.Fatalf("%q, %v", out, err)
		}
	}
	if err := sh.Execute(mgmtest.Context(t), "connect 127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Fatal(err)
	}
	if err := sh.Execute(mgmtest.Context(t), "connect "+s.Addr); err != nil {
		t.Fatal(err)
	}
}

func TestEventLogHasTimes(t *testing.T) {
	s := cluster(t, false)
	out := &strings.Builder{}
	sh := shell.New(shell.Options{Target: target(t, s.Addr), Out: out})
	defer sh.Close()
	line := regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d Node 49: Node 2 Connected$`)
	mgmtest.Until(t, "node 2's line with its time", func() bool {
		out.Reset()
		if err := sh.Execute(mgmtest.Context(t), "49 report event"); err != nil {
			t.Fatal(err)
		}
		return line.MatchString(out.String())
	})
}

func TestAPipeIsASessionToo(t *testing.T) {
	s := cluster(t, false)
	out := &strings.Builder{}
	sh := shell.New(shell.Options{Target: target(t, s.Addr), Out: out})
	if err := sh.Interact(mgmtest.Context(t), strings.NewReader("1 status\n\nfoo\n2 status\nquit\n1 status\n")); !errors.Is(err, shell.ErrFailed) {
		t.Errorf("a failed command shows in the error: %v", err)
	}
	want := "Connected to Management Server at: " + s.Addr + "\nNode 1: started (cohort-0.1.0)\nInvalid command: foo\nType HELP for help.\n\nNode 2: started (cohort-0.1.0)\n"
	if out.String() != want {
		t.Errorf("%q", out)
	}
}

func TestAWatcherPrintsWhatHappens(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	n := s.Link(1)
	out := &mgmtest.Text{}
	sh := shell.New(shell.Options{Target: target(t, s.Addr), Out: out, Watch: true})
	defer sh.Close()
	if err := sh.Execute(mgmtest.Context(t), "connect"); err != nil {
		t.Fatal(err)
	}
	n.Event(event.New(1, event.StartPhaseCompleted, 3)) // of too little weight
	n.Event(event.New(1, event.NDBStartCompleted, 0x000100))
	mgmtest.Until(t, "the event", func() bool { return strings.HasSuffix(out.String(), "Node 1: Started (cohort-0.1.0)\n") })
	if strings.Contains(out.String(), "phase") {
		t.Errorf("%s", out)
	}
}

func TestCompletion(t *testing.T) {
	for line, want := range map[string][]string{
		"sh":             {"SHOW ", "SHUTDOWN "},
		"clus":           {"CLUSTERLOG "},
		"clusterlog ":    {"clusterlog INFO ", "clusterlog OFF ", "clusterlog ON ", "clusterlog TOGGLE "},
		"clusterlog o":   {"clusterlog OFF ", "clusterlog ON "},
		"ALL ST":         {"ALL START ", "ALL STATUS ", "ALL STOP "},
		"1 2 rep":        {"1 2 REPORT "},
		"all report m":   {"all report MEMORYUSAGE "},
		"help SH":        {"help SHOW ", "help SHUTDOWN "},
		"exit single ":   {"exit single USER "},
		"toggle nothing": nil,
	} {
		if got := shell.Complete(line); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// TestAnyWordsAreAnswered puts words of the grammar and others together in every order of a thousand draws: the shell
// says what is wrong, or wants to connect, and never panics.
func TestAnyWordsAreAnswered(t *testing.T) {
	words := []string{"show", "all", "1,2", "3", "stop", "-a", "rep", "mem", "start", "backup", "encrypt", "password='x'", "wait", "started", "clusterlog", "toggle",
		"debug", "prompt", "'x'", "a=1", "startup=3", "help", "create", "drop", "nodegroup", "exit", "single", "user", "mode", "enter", "0", ";", "dump", "=", ",", "-",
		"purge", "stale", "sessions", "\x00", "ä", "99999999999999999999", "connect", "h:1:2", "info", "tls", "nodelog", "on"}
	nobody := config.ConnectString{Servers: []config.Endpoint{{Host: "127.0.0.1", Port: 1}}, Binds: []config.Endpoint{{}}}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // nothing is ever dialled
	draw := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var line string
		for range draw.IntN(6) {
			line += words[draw.IntN(len(words))] + " "
		}
		sh := shell.New(shell.Options{Target: nobody, Out: &strings.Builder{}})
		if err := sh.Execute(ctx, line); err == nil && strings.HasPrefix(line, "1,2 stop") {
			t.Errorf("%q worked without a server", line)
		}
		shell.Complete(line)
		sh.Close()
	}
}
