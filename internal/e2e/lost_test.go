package e2e_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cohortdb/cohort/internal/e2e"
	"github.com/cohortdb/cohort/ndb"
)

// TestLostDataNode kills a data node under load: whoever uses the cluster gets an error that says so at once, can do the
// same again at once, and nothing hangs. With the last data node everything fails, and says so.
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
	begin := time.Now()
	c.Kill(t, 2)
	err := <-errs
	var e *ndb.Error
	if !errors.As(err, &e) || !e.Retry && e.Class != ndb.ClassUnknownResult {
		t.Fatalf("an operation ended with %v", err)
	}
	if d := time.Since(begin); d > 10*time.Second {
		t.Fatalf("it took %v until the client was told", d)
	}
	for i := range 100 {
		err := ndb.Retry(t.Context(), s, func(tx *ndb.Tx) error {
			r.Reset()
			r.SetUint(0, uint64(i))
			tx.Read(r, ndb.Exclusive)
			return tx.Commit(t.Context())
		})
		if err != nil {
			t.Fatalf("row %d: %v", i, err)
		}
	}
	one := c.PID(t, 1)
	c.Kill(t, 1)
	e2e.Eventually(t, "node 1 has ended", func() bool { return !e2e.Alive(one) })
	e2e.Eventually(t, "the client knows that nobody serves", func() bool {
		err := get(t.Context(), s, r, 1)
		return errors.Is(err, ndb.ErrNotReady)
	})
	if _, err := conn.CreateTable(t.Context(), ndb.TableDef{Database: "test", Name: "late",
		Columns: []ndb.Column{{Name: "id", Type: ndb.TypeUint32, Key: true}}}); err == nil {
		t.Fatal("a table was created without data nodes")
	}
}
