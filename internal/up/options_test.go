package up

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/cohortdb/cohort/internal/version"
)

func TestDefaultsAreTwoNodesAndTwoReplicas(t *testing.T) {
	o, _, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	if o.dataNodes != 2 || o.replicas != 2 || o.dir != defaultDir || o.mgmPort != defaultMgmPort || o.mgmPortGiven || o.ephemeral {
		t.Fatalf("%+v", o)
	}
}

func TestEveryOptionArrives(t *testing.T) {
	o, _, err := parse([]string{"--dir", "d", "--data-nodes=4", "--replicas", "4", "--api-nodes", "7", "--set", "DataMemory=1G",
		"--set", "Diskless = 0", "--mgm-port", "0", "--multi-threaded", "--run", "true", "--start-timeout", "3s"})
	if err != nil {
		t.Fatal(err)
	}
	if o.dir != "d" || o.dataNodes != 4 || o.replicas != 4 || o.apiNodes != 7 || o.mgmPort != 0 || !o.mgmPortGiven ||
		!o.multiThreaded || o.run != "true" || o.startTimeout != 3*time.Second {
		t.Fatalf("%+v", o)
	}
	if len(o.settings) != 2 || o.settings[0] != (setting{"DataMemory", "1G"}) || o.settings[1] != (setting{"Diskless", "0"}) {
		t.Fatalf("%+v", o.settings)
	}
}

func TestOneDataNodeHasOneReplicaUnlessSaidOtherwise(t *testing.T) {
	if o, _, err := parse([]string{"--data-nodes", "1"}); err != nil || o.replicas != 1 {
		t.Fatalf("%+v, %v", o, err)
	}
	if o, _, err := parse([]string{"--replicas", "3"}); err != nil || o.dataNodes != 3 {
		t.Fatalf("%+v, %v", o, err)
	}
	if _, _, err := parse([]string{"--data-nodes", "1", "--replicas", "2"}); err == nil {
		t.Fatal("two replicas on one node")
	}
}

func TestWrongOptionsAreRefusedWithTheReason(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"--data-nodes 3", "multiple of --replicas"},
		{"--data-nodes 0", `"0" is not a number from 1 to 144`},
		{"--data-nodes 145 --replicas 1", "from 1 to 144"},
		{"--replicas 5", "from 1 to 4"},
		{"--api-nodes 0", "from 1 to 100"},
		{"--mgm-port 65536", "from 0 to 65535"},
		{"--mgm-port 1x", "from 0 to 65535"},
		{"--start-timeout 0s", "is not a time"},
		{"--set DataMemory", "not of the form Parameter=Value"},
		{"--set =3", "not of the form Parameter=Value"},
		{"--ephemeral --dir d", "choose one"},
		{"--config f --replicas 2", "say what the file of --config says"},
		{"--config f --data-nodes 2", "say what the file of --config says"},
		{"--nonsense", "nonsense"},
		{"--run=", "there is no command"},
		{"loose", `"loose" is no option`},
	} {
		var stdout, stderr bytes.Buffer
		status := Main("cohort up", strings.Fields(c.args), nil, &stdout, &stderr)
		if status != exitUsage || stdout.Len() > 0 || !strings.HasPrefix(stderr.String(), "cohort up: ") || !strings.Contains(stderr.String(), c.says) {
			t.Errorf("%s: status %d, %q", c.args, status, stderr.String())
		}
	}
}

func TestASQLNodeIsNotSupportedYet(t *testing.T) {
	var stdout, stderr bytes.Buffer
	status := Main("cohort up", []string{"--sql-port", "3306"}, strings.NewReader(""), &stdout, &stderr)
	if status != exitFailed || !strings.Contains(stderr.String(), "option --sql-port: not supported yet: ") {
		t.Fatalf("status %d, %q", status, stderr.String())
	}
}

func TestHelpExplainsEveryOption(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if status := Main("cohort up", []string{"--help"}, nil, &stdout, &stderr); status != 0 || stderr.Len() > 0 {
		t.Fatalf("status %d, %q", status, stderr.String())
	}
	for _, option := range []string{"dir", "ephemeral", "data-nodes", "replicas", "api-nodes", "set", "config", "mgm-port",
		"multi-threaded", "run", "start-timeout", "sql-port", "help"} {
		if !strings.Contains(stdout.String(), "--"+option) {
			t.Errorf("help has no --%s", option)
		}
	}
	if !strings.Contains(stdout.String(), "Examples:\n") {
		t.Error("help has no examples")
	}
}

func TestVersion(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if status := Main("cohort up", []string{"--version"}, nil, &stdout, &stderr); status != 0 || stdout.String() != "cohort up cohort-"+version.String()+"\n" {
		t.Fatalf("status %d, %q, %q", status, stdout.String(), stderr.String())
	}
}
