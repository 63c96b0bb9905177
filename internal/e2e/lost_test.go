package e2e_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cohortdb/cohort/internal/e2e"
	"github.com/cohortdb/cohort/ndb"
)

// TestLostDataNode kills a data node under load: whoever uses the cluster gets an error that says so at once, nothing
// hangs, and the survivor stops with the reason, since nobody takes over yet.
func TestLostDataNode(t *testing.T) {
	c := e2e.StartCluster(t, e2e.Options{DataNodes: 2, Replicas: 2})
	conn, s := connect(t, c)
	table := wide(t, conn)
	r := table.NewRow()
	for i := range 100 {
		if err := insert(t, s, r, i); err != nil {
			t.Fatal(err)
		}
	}
	errs := make(chan error, 1)
	running := make(chan struct{})
	go func() { // writes and locking reads until one fails
		s, err := conn.NewSession(ndb.SessionOptions{})
		if err != nil {
			errs <- err
			return
		}
		row := table.NewRow()
		for i := 0; ; i++ {
			err := func() error {
				tx, err := s.Begin()
				if err != nil {
					return err
				}
				defer tx.Close()
				row.Reset()
				row.SetUint(0, uint64(i%100))
				tx.Read(row, ndb.Exclusive)
				if err := tx.Execute(context.Background()); err != nil {
					return err
				}
				row.SetWords(1, make([]uint32, 1024))
				tx.Update(row)
				return tx.Commit(context.Background())
			}()
			if i == 50 {
				close(running)
			}
			if err != nil {
				errs <- err
				return
			}
		}
	}()
	<-running
	one := c.PID(t, 1)
	begin := time.Now()
	c.Kill(t, 2)
	err := <-errs
	var e *ndb.Error
	if !errors.As(err, &e) || e.Class != ndb.ClassNodeRecovery && e.Class != ndb.ClassUnknownResult && e.Class != ndb.ClassNodeShutdown {
		t.Fatalf("an operation ended with %v", err)
	}
	if d := time.Since(begin); d > 10*time.Second {
		t.Fatalf("it took %v until the client was told", d)
	}
	e2e.Eventually(t, "the survivor stops", func() bool { return !e2e.Alive(one) })
	if log := c.Log(t, 1); !strings.Contains(log, "node 2 was lost") {
		t.Fatal("the survivor does not say why it stopped:\n", log)
	}
	// With no data node left everything fails, and says so.
	e2e.Eventually(t, "the client knows that nobody serves", func() bool {
		err := get(t.Context(), s, r, 1)
		return errors.Is(err, ndb.ErrNotReady)
	})
	if _, err := conn.CreateTable(t.Context(), ndb.TableDef{Database: "test", Name: "late",
		Columns: []ndb.Column{{Name: "id", Type: ndb.TypeUint32, Key: true}}}); err == nil {
		t.Fatal("a table was created without data nodes")
	}
}
