package up

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cohortdb/cohort/internal/exitcode"
)

// TestMain lets this test binary stand for the nodes that it starts: their first argument says what to do.
func TestMain(m *testing.M) {
	if os.Getenv("UP_TEST_CHILD") != "" && len(os.Args) > 1 {
		os.Exit(playChild(os.Args[1]))
	}
	os.Exit(m.Run())
}

func playChild(part string) int {
	switch part {
	case "fail":
		for i := range 30 {
			fmt.Printf("line %d\n", i)
		}
		fmt.Fprintln(os.Stderr, "ndbd: the disk is full")
		return exitcode.NodeLost
	case "obey":
		terms := make(chan os.Signal, 1)
		signal.Notify(terms, syscall.SIGTERM)
		fmt.Println("listening")
		<-terms
		return 0
	case "defy":
		never := make(chan os.Signal, 1)
		signal.Notify(never, syscall.SIGTERM, syscall.SIGINT)
		fmt.Println("listening")
		for range never { // whatever comes
		}
	case "parent": // starts a child that would live for ever, says its process id, and waits
		c, err := launch(os.Args[2], os.Args[3], "ndbd", "data node 1", 1, true, "defy")
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(c.cmd.Process.Pid)
		select {}
	}
	return 3
}

// start launches this binary as a node that plays a part, and waits for its first line.
func start(t *testing.T, dir string, id int, data bool, part string) *child {
	t.Helper()
	t.Setenv("UP_TEST_CHILD", "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c, err := launch(dir, self, "ndbd", fmt.Sprintf("data node %d", id), id, data, part)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.cmd.Process.Kill()
		<-c.done
	})
	eventually(t, "its first line", func() bool { return len(lastLines(c.log, 1)) > 0 })
	return c
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.After(20 * time.Second); !holds(); {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestAFailedChildIsReportedWithTheEndOfItsLog(t *testing.T) {
	c := start(t, t.TempDir(), 3, true, "fail")
	<-c.done
	story := c.story()
	for _, part := range []string{"data node 3 (process ", "ended: exit status 5 (a data node was lost)", c.log, "line 29", "ndbd: the disk is full"} {
		if !strings.Contains(story, part) {
			t.Errorf("no %q in %s", part, story)
		}
	}
	if strings.Contains(story, "line 10\n") {
		t.Errorf("more than the last lines: %s", story)
	}
}

func TestAChildsProcessIDIsInAFile(t *testing.T) {
	c := start(t, t.TempDir(), 3, true, "defy")
	text, err := os.ReadFile(c.pid)
	if err != nil || strings.TrimSpace(string(text)) != strconv.Itoa(c.cmd.Process.Pid) {
		t.Fatalf("%q, %v", text, err)
	}
}

func TestChildrenDieWithTheirParentEvenWhenItIsKilled(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(self, "parent", t.TempDir(), self)
	parent.Env = append(os.Environ(), "UP_TEST_CHILD=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	parent.Process.Kill()
	parent.Wait()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the parent says %q", line)
	}
	// A dead child may stay a zombie until its new parent reaps it: dead it is all the same.
	eventually(t, "the child's end", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || bytes.Contains(stat, []byte(") Z ")) || bytes.Contains(stat, []byte(") X "))
	})
}

func TestStopGoesFromAskingToKilling(t *testing.T) {
	dir := t.TempDir()
	obedient, defiant := start(t, dir, 1, true, "obey"), start(t, dir, 2, true, "defy")
	var stderr bytes.Buffer
	interrupts := make(chan os.Signal, 2)
	r := &runner{name: "cohort up", stderr: &stderr, interrupts: interrupts, mgm: management{connectString: "127.0.0.1:1"}, children: []*child{obedient, defiant}}
	// Two interrupts, as of an impatient user, stand for the time that a stop waits.
	go func() {
		<-obedient.done
		interrupts <- syscall.SIGINT
		interrupts <- syscall.SIGINT
	}()
	r.stop()
	if !obedient.ended() || !defiant.ended() {
		t.Fatal("children live")
	}
	if obedient.status() != "exit status 0" || defiant.status() != "signal: killed" {
		t.Errorf("%s; %s", obedient.status(), defiant.status())
	}
	if !strings.Contains(stderr.String(), "data node 2 does not stop: killing process") {
		t.Errorf("%q", stderr.String())
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.pid")); left != nil {
		t.Errorf("left: %v", left)
	}
}

func TestStoppingACommandGivesAShellsStatus(t *testing.T) {
	for command, want := range map[string]int{"exit 0": 0, "exit 5": 5, "kill -TERM $$": 128 + 15} {
		status, err := exitStatus(exec.Command("sh", "-c", command).Run())
		if err != nil || status != want {
			t.Errorf("%s: %d, %v", command, status, err)
		}
	}
	if status, err := exitStatus(fmt.Errorf("no process")); err == nil || status != exitFailed {
		t.Errorf("%d, %v", status, err)
	}
}

func TestLastLinesOfALongFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	var text strings.Builder
	for i := range 50000 {
		fmt.Fprintf(&text, "line %d\n", i)
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	got := lastLines(file, 2)
	if len(got) != 2 || got[0] != "line 49998" || got[1] != "line 49999" {
		t.Fatalf("%q", got)
	}
	if got := lastLines(file+"x", 2); got != nil {
		t.Fatalf("%q", got)
	}
}
