package mgmd_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/configstore"
	"github.com/cohortdb/cohort/internal/mgm/mgmd"
	"github.com/cohortdb/cohort/internal/mgm/mgmtest"
)

func TestTheConfigurationTravels(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	ctx, c := mgmtest.Context(t), s.Connect()
	for range 2 { // the session goes on after a body
		got, err := c.GetConfig(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		if changes := config.Diff(mgmtest.Parse(t, mgmtest.TwoNodes), got); len(changes) > 0 || got.Name != "test" {
			t.Fatalf("%v, %q", changes, got.Name)
		}
	}
	if err := c.CheckConnection(ctx); err != nil {
		t.Fatal(err)
	}
}

func store(t *testing.T) *configstore.Store {
	t.Helper()
	st, err := configstore.Open(t.TempDir(), 49)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// choose is a start where no other server runs.
func choose(st *configstore.Store, file *config.Config, initial, reload bool) (*mgmd.Choice, error) {
	return mgmd.Start{Store: st, File: file, Initial: initial, Reload: reload, Own: 49}.Choose()
}

// TestChoose tells which configuration counts at a start, in the order of an operator's life.
func TestChoose(t *testing.T) {
	st := store(t)
	ini := strings.Replace(mgmtest.TwoNodes, "Name=test\n", "", 1)
	if _, err := choose(st, nil, false, false); err == nil || !strings.Contains(err.Error(), "-f FILE") {
		t.Fatalf("nothing at all: %v", err)
	}
	first, err := choose(st, mgmtest.Parse(t, ini), false, false)
	if err != nil || first.Config.Generation != 1 || !strings.HasPrefix(first.Config.Name, "cohort-") {
		t.Fatalf("first start: %+v, %v", first, err)
	}
	name := first.Config.Name

	again, err := choose(st, mgmtest.Parse(t, ini), false, false)
	if err != nil || again.Config.Generation != 1 || again.Config.Name != name || again.Warn != nil {
		t.Fatalf("the same file again: %+v, %v", again, err)
	}
	changed := ini + "[API]\nNodeId=53\n"
	changed = strings.Replace(changed, "Diskless=1\n", "Diskless=1\nMaxNoOfConcurrentOperations=100000\n", 1)
	ignored, err := choose(st, mgmtest.Parse(t, changed), false, false)
	if err != nil || ignored.Config.Node(53) != nil || len(ignored.Warn) != 1 || !strings.Contains(ignored.Warn[0], "in 3 points") ||
		!strings.Contains(ignored.Warn[0], "--reload") {
		t.Fatalf("a changed file: %+v, %v", ignored, err)
	}
	reloaded, err := choose(st, mgmtest.Parse(t, changed), false, true)
	if err != nil || reloaded.Config.Node(53) == nil || reloaded.Config.Generation != 2 || reloaded.Config.Name != name || len(reloaded.Notes) != 4 {
		t.Fatalf("--reload: %+v, %v", reloaded, err)
	}
	if all := strings.Join(reloaded.Notes, "\n"); !strings.Contains(all, "[NDBD] 1 MaxNoOfConcurrentOperations: 32K -> 100000 (needs node restart)") &&
		!strings.Contains(all, "[NDBD] 1 MaxNoOfConcurrentOperations: 32768 -> 100000 (needs") {
		t.Errorf("every change and what it needs is noted: %s", all)
	}
	withoutFile, err := choose(st, nil, false, false)
	if err != nil || withoutFile.Config.Node(53) == nil || withoutFile.Config.Generation != 2 {
		t.Fatalf("without a file: %+v, %v", withoutFile, err)
	}
	if _, err := choose(st, mgmtest.Parse(t, mgmtest.TwoNodes), false, true); err == nil || !strings.Contains(err.Error(), "--initial") {
		t.Fatalf("another name: %v", err)
	}
	// Taking the newest file away goes back.
	if err := os.Remove(st.Path(2)); err != nil {
		t.Fatal(err)
	}
	if back, err := choose(st, nil, false, false); err != nil || back.Config.Generation != 1 {
		t.Fatalf("%+v, %v", back, err)
	}
	// A damaged one is named, and --initial drops it.
	if err := os.WriteFile(st.Path(2), []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	var damaged *configstore.Damaged
	if _, err := choose(st, mgmtest.Parse(t, ini), false, false); !errors.As(err, &damaged) {
		t.Fatalf("%v", err)
	}
	initial, err := choose(st, mgmtest.Parse(t, mgmtest.TwoNodes), true, false)
	if err != nil || initial.Config.Name != "test" || initial.Config.Generation != 3 {
		t.Fatalf("--initial: %+v, %v", initial, err)
	}
	if all, err := st.Sequences(); len(all) != 1 || err != nil {
		t.Fatalf("%v, %v", all, err)
	}
	bare, err := choose(nil, mgmtest.Parse(t, ini), false, false)
	if err != nil || bare.Config.Name == "" || bare.Config.Generation != 1 {
		t.Fatalf("without a store: %+v, %v", bare, err)
	}
}

func TestReloadConfig(t *testing.T) {
	st := store(t)
	file := filepath.Join(t.TempDir(), "config.ini")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := mgmtest.Start(t, mgmtest.TwoNodes, func(o *mgmd.Options) {
		o.Store = st
		o.Read = func(name string, mycnf bool) (*config.Config, []config.Warning, error) {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, nil, err
			}
			return config.Parse(text, config.Options{FileName: file, MyCnf: mycnf})
		}
	})
	n := s.Link(2)
	ctx, c := mgmtest.Context(t), s.Connect()
	write(mgmtest.TwoNodes + "[API]\nNodeId=53\nConnectBackoffMaxTime=2\n")
	if err := c.ReloadConfig(ctx, "", false); err != nil {
		t.Fatal(err)
	}
	s.Logged("Configuration 1: [API] 53 NodeId: none -> 53 (needs node restart)")
	s.Logged("ConnectBackoffMaxTime has no effect")
	if got, err := c.GetConfig(ctx, 53); err != nil || got.Node(53) == nil || got.Generation != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	if _, sequence, err := st.Load(); sequence != 1 || err != nil {
		t.Fatalf("%d, %v", sequence, err)
	}
	if err := c.ReloadConfig(ctx, "", false); err != nil {
		t.Fatal(err)
	}
	s.Logged("The configuration has not changed")
	// A running node keeps its place.
	write(strings.ReplaceAll(mgmtest.TwoNodes, "NodeId=2\n", "NodeId=3\n"))
	if err := c.ReloadConfig(ctx, "", false); err == nil || err.Error() != "Node 2 runs and has no place in the new configuration; stop it first" {
		t.Fatal(err)
	}
	n.Close()
	s.Logged("Nodeid 2 freed")
	if err := c.ReloadConfig(ctx, "", false); err != nil {
		t.Fatal(err)
	}
	write("[NDBD]\nNoOfReplicas=9\n")
	if err := c.ReloadConfig(ctx, "", false); err == nil || !strings.Contains(err.Error(), "NoOfReplicas") {
		t.Fatal(err)
	}
	write(strings.Replace(mgmtest.TwoNodes, "Name=test", "Name=other", 1))
	if err := c.ReloadConfig(ctx, "", false); err == nil || !strings.Contains(err.Error(), "--initial") {
		t.Fatal(err)
	}
}

func TestSetConfig(t *testing.T) {
	s := mgmtest.Start(t, mgmtest.TwoNodes)
	ctx, c := mgmtest.Context(t), s.Connect()
	if err := c.SetConfig(ctx, mgmtest.Parse(t, mgmtest.TwoNodes+"[API]\nNodeId=60\n")); err != nil {
		t.Fatal(err)
	}
	if got, err := c.GetConfig(ctx, 60); err != nil || got.Generation != 1 {
		t.Fatalf("%v, %v", got, err)
	}
}
