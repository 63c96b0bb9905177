package mgmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cohortdb/cohort/internal/mgm/mgmtest"
	"github.com/cohortdb/cohort/internal/signal"
)

// TestProtocol plays the conversations in testdata/protocol: what stands behind "> " is sent, and what follows must be
// the answer, to the letter. The cluster is TwoNodes; in files whose name begins with "up_" both data nodes have started.
func TestProtocol(t *testing.T) {
	files, err := filepath.Glob("testdata/protocol/*.txt")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			s := mgmtest.Start(t, mgmtest.TwoNodes)
			if strings.HasPrefix(filepath.Base(file), "up_") {
				one, two := start(s)
				refuse := func(*signal.StopReq) string { return "the cluster cannot go on without it" }
				one.OnStop, two.OnStop = refuse, refuse
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			speak := s.Dial()
			var got strings.Builder
			var request strings.Builder
			asking := false
			for line := range strings.SplitAfterSeq(string(raw), "\n") {
				sent, isSent := strings.CutPrefix(line, "> ")
				switch {
				case isSent || line == ">\n":
					if line == ">\n" {
						sent = "\n"
					}
					request.WriteString(sent)
					got.WriteString(line)
					asking = true
				case asking:
					got.WriteString(speak.Say(request.String()))
					request.Reset()
					asking = false
				}
				if strings.HasPrefix(line, "#") {
					got.WriteString(line)
				}
			}
			if want := string(raw); got.String() != want {
				t.Errorf("got:\n%s\nwant:\n%s", &got, want)
			}
		})
	}
}

// start lets both data nodes of TwoNodes start.
func start(s *mgmtest.Server) (one, two *mgmtest.Node) {
	one, two = s.Link(1), s.Link(2)
	one.Pages, two.Pages = [4]uint32{4, 3198, 2, 3196}, [4]uint32{1599, 3198, 3, 3196}
	one.State(signal.StateStarted, 0, 0, 1, 2)
	two.State(signal.StateStarted, 0, 0, 2, 1)
	started(s, 1, 2)
	return one, two
}

// started waits until the server knows that nodes have started.
func started(s *mgmtest.Server, nodes ...int) {
	speak := s.Dial()
	mgmtest.Until(speak.T(), "nodes have started", func() bool {
		status := speak.Say("get status\ntypes: NDB\n\n")
		for _, id := range nodes {
			if !strings.Contains(status, fmt.Sprintf("node.%d.status: STARTED\n", id)) {
				return false
			}
		}
		return true
	})
}
