package sim

import (
	"strings"
	"testing"
)

func TestASchedulePrintsAsItIsWritten(t *testing.T) {
	const text = "kill 2 for 1.5s @4.2s; kill 2,4 @4.200000001s; pause 3 for 600ms @5s; cut 1-3 for 2s @7s; cut 1>3 for 2s @7s; " +
		"split 1,2,199|3,4 for 2s @7s; reset 1-3 @8s; slow 1>3 by 20ms for 5s @9s; stop 2 for 3s @10s; restart 2 @10s; start 2 @12s; heal @13s"
	list, err := parseSchedule(text)
	if err != nil || len(list) != 12 {
		t.Fatal(list, err)
	}
	if got := scheduleText(list); got != text {
		t.Fatalf("%s\nis printed as\n%s", text, got)
	}
	lines, err := parseSchedule("# a comment\n" + strings.ReplaceAll(text, "; ", "\n") + "\n")
	if err != nil || scheduleText(lines) != text {
		t.Fatal(lines, err)
	}
}

func TestWhatIsNoSchedule(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{"kill 2", "write what"}, {"kill @2s", "write what"}, {"burn 2 @2s", `there is no "burn"`}, {"cut 1 @2s", "not as many nodes"},
		{"cut 1-2-3 @2s", "not as many nodes"}, {"kill 0 @2s", "is no node"}, {"kill 999 @2s", "is no node"}, {"kill 2 for @2s", "is missing"},
		{"kill 2 for soon @2s", "is no time"}, {"kill 2 until 3s @2s", "means nothing"}, {"kill 2 @later", "is no time"}, {"slow 1-2 by 3ms @2s", "not as many nodes"},
	} {
		if _, err := parseSchedule(c.text); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v", c.text, err)
		}
	}
}

func TestSetsOfFaults(t *testing.T) {
	for _, text := range []string{"all", "none", "delay", "kill,cut", "delay,kill,pause,cut,oneway,slow,arbitrator,restart,stop,drift"} {
		s, err := parseFaults(text)
		if err != nil || s.String() != text {
			t.Errorf("%s: %v %v", text, s, err)
		}
	}
	if s, err := parseFaults("kill, pause"); err != nil || s != faultsKill|faultsPause {
		t.Error(s, err)
	}
}
