package ndb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"
)

type account struct {
	ID      uint32           `ndb:"ID"`
	Branch  uint32           `ndb:"BRANCH"`
	Balance int64            `ndb:"BALANCE"`
	Name    string           `ndb:"NAME"`
	Note    *string          `ndb:"NOTE"`
	Limit   sql.Null[uint16] `ndb:"LIMIT"`
	Words   [3]uint32        `ndb:"WORDS"`
	Open    bool             `ndb:"OPEN"`
	Small   int              `ndb:"SMALL"`
	Rate    float64          `ndb:"RATE"`
	Ignored int
}

func accountDef() TableDef {
	return TableDef{Database: "bank", Name: "account", NoLogging: true, Columns: []Column{
		{Name: "ID", Type: TypeUint32, Key: true, Dist: true},
		{Name: "BRANCH", Type: TypeUint32, Key: true},
		{Name: "BALANCE", Type: TypeInt64},
		{Name: "NAME", Type: TypeChar, Length: 7},
		{Name: "NOTE", Type: TypeVarchar, Length: 100, Nullable: true},
		{Name: "LIMIT", Type: TypeUint16, Nullable: true},
		{Name: "WORDS", Type: TypeUint32, Length: 3},
		{Name: "OPEN", Type: TypeUint8},
		{Name: "SMALL", Type: TypeInt24},
		{Name: "RATE", Type: TypeFloat},
	}}
}

func mustTable(t testing.TB, c *Conn, def TableDef) *Table {
	t.Helper()
	table, err := c.CreateTable(context.Background(), def)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func mustBind[T any](t testing.TB, table *Table) *Record[T] {
	t.Helper()
	r, err := Bind[T](table)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustSession(t testing.TB, c *Conn, o SessionOptions) *Session {
	t.Helper()
	s, err := c.NewSession(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustBegin(t testing.TB, s *Session) *Tx {
	t.Helper()
	tx, err := s.Begin()
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func TestARowComesBackAsItWasWritten(t *testing.T) {
	f := newFake(t, 2, 2)
	c := f.connect(Options{Logf: t.Logf})
	accounts := mustBind[account](t, mustTable(t, c, accountDef()))
	s := mustSession(t, c, SessionOptions{})
	defer s.Close()
	ctx := context.Background()
	note := "hello, world"
	for i := range uint32(50) {
		a := account{ID: i, Branch: i * 7, Balance: -int64(i), Name: fmt.Sprint("n", i), Words: [3]uint32{i, 2, 3}, Open: i%2 == 0, Small: -int(i) * 1000, Rate: 0.5}
		if i%3 == 0 {
			a.Note = &note
			a.Limit = sql.Null[uint16]{V: uint16(i), Valid: true}
		}
		if err := accounts.Put(ctx, s, &a); err != nil {
			t.Fatal(err)
		}
	}
	other := "x"
	for i := range uint32(50) {
		a := account{ID: i, Branch: i * 7, Note: &other, Limit: sql.Null[uint16]{V: 9, Valid: true}}
		if err := accounts.Get(ctx, s, &a); err != nil {
			t.Fatal(i, err)
		}
		if a.Balance != -int64(i) || a.Name != fmt.Sprint("n", i) || a.Words != [3]uint32{i, 2, 3} || a.Open != (i%2 == 0) || a.Small != -int(i)*1000 || a.Rate != 0.5 {
			t.Errorf("%d: %+v", i, a)
		}
		if (a.Note != nil) != (i%3 == 0) || a.Limit.Valid != (i%3 == 0) || a.Note != nil && *a.Note != note || a.Limit.V != uint16(i)*uint16((3-i%3)/3) {
			t.Errorf("%d: %v %+v", i, a.Note, a.Limit)
		}
	}
	a := account{ID: 1000}
	if err := accounts.Get(ctx, s, &a); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	var e *Error
	if err := accounts.Get(ctx, s, &a); !errors.As(err, &e) || e.Class != ClassNoData || e.Retry {
		t.Errorf("%v", err)
	}
}

// A row's key tells where it lives, without asking anybody, and a row that is removed is gone.
func TestARowHasItsPlaceAndIsRemoved(t *testing.T) {
	f := newFake(t, 2, 2)
	c := f.connect(Options{})
	accounts := mustBind[account](t, mustTable(t, c, accountDef()))
	s := mustSession(t, c, SessionOptions{})
	defer s.Close()
	ctx := context.Background()
	nodeOf, used := map[int]int{}, map[int]bool{}
	for i := range uint32(50) {
		a := account{ID: i}
		fragment, node := accounts.Fragment(&a), accounts.Node(&a)
		if fragment < 0 || fragment >= accounts.Table().Fragments() || node == 0 {
			t.Fatalf("row %d: fragment %d, node %d", i, fragment, node)
		}
		if known := nodeOf[fragment]; known != 0 && known != node {
			t.Errorf("fragment %d is at nodes %d and %d", fragment, known, node)
		}
		nodeOf[fragment], used[node] = node, true
		if err := accounts.Put(ctx, s, &a); err != nil {
			t.Fatal(err)
		}
		if err := accounts.Remove(ctx, s, &a); err != nil {
			t.Fatal(err)
		}
		if err := accounts.Get(ctx, s, &a); !errors.Is(err, ErrNotFound) {
			t.Errorf("row %d after it was removed: %v", i, err)
		}
		if err := accounts.Remove(ctx, s, &a); !errors.Is(err, ErrNotFound) {
			t.Errorf("row %d removed twice: %v", i, err)
		}
	}
	if len(used) != 2 {
		t.Errorf("all rows are at nodes %v", used)
	}
}

func TestATransactionOfSeveralOperations(t *testing.T) {
	f := newFake(t, 2, 2)
	c := f.connect(Options{})
	accounts := mustBind[account](t, mustTable(t, c, accountDef()))
	balance, err := accounts.Only("BALANCE")
	if err != nil {
		t.Fatal(err)
	}
	s := mustSession(t, c, SessionOptions{})
	defer s.Close()
	ctx := context.Background()

	tx := mustBegin(t, s)
	row := account{Balance: 100, Name: "seven"}
	for i := range uint32(10) { // one struct for all: values are taken at once
		row.ID = i
		accounts.Insert(tx, &row)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if tx.GCI() == 0 || tx.Node() == 0 {
		t.Error(tx.GCI(), tx.Node())
	}
	tx.Close()

	err = Retry(ctx, s, func(tx *Tx) error {
		from, to := account{ID: 1}, account{ID: 2}
		balance.Read(tx, &from, Exclusive)
		balance.Read(tx, &to, Exclusive)
		if err := tx.Execute(ctx); err != nil {
			return err
		}
		if from.Balance != 100 || from.Name != "" {
			t.Errorf("%+v", from)
		}
		from.Balance -= 30
		to.Balance += 30
		balance.Update(tx, &from)
		balance.Update(tx, &to)
		return tx.Commit(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[uint32]int64{1: 70, 2: 130, 3: 100} {
		a := account{ID: id}
		if err := accounts.Get(ctx, s, &a); err != nil || a.Balance != want || a.Name != "seven" {
			t.Errorf("%d: %+v %v", id, a, err)
		}
	}

	tx = mustBegin(t, s)
	row.ID = 3
	accounts.Delete(tx, &row)
	row.ID = 4
	dup := accounts.Insert(tx, &row)
	if err := tx.Commit(ctx); !errors.Is(err, ErrDuplicate) || !errors.Is(dup.Err(), ErrDuplicate) {
		t.Error(err, dup.Err())
	}
	tx.Close()
	tx = mustBegin(t, s)
	row.ID = 4
	dup = accounts.Insert(tx, &row).IgnoreError()
	row.ID = 3
	accounts.Delete(tx, &row)
	if err := tx.Commit(ctx); err != nil || !errors.Is(dup.Err(), ErrDuplicate) {
		t.Error(err, dup.Err())
	}
	tx.Close()
	tx = mustBegin(t, s)
	row.ID = 5
	accounts.Delete(tx, &row)
	row.ID = 6
	accounts.Delete(tx, &row)
	if err := tx.Execute(ctx); err != nil {
		t.Error(err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Error(err)
	}
	if err := tx.Commit(ctx); !errors.Is(err, ErrTxEnded) {
		t.Error(err)
	}
	tx.Close()
	for id, there := range map[uint32]bool{3: false, 5: true, 6: true} {
		a := account{ID: id}
		if err := accounts.Get(ctx, s, &a); (err == nil) != there {
			t.Errorf("%d: %v", id, err)
		}
	}
}

func TestAsynchronousTransactions(t *testing.T) {
	for _, sessions := range []int{1, 3} {
		t.Run(fmt.Sprint(sessions), func(t *testing.T) {
			f := newFake(t, 2, 2)
			c := f.connect(Options{})
			accounts := mustBind[account](t, mustTable(t, c, accountDef()))
			done := make(chan error, sessions)
			for k := range sessions {
				s := mustSession(t, c, SessionOptions{MaxTransactions: 64})
				go func() { done <- asyncWork(s, accounts, uint32(k)*10000) }()
			}
			for range sessions {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func asyncWork(s *Session, accounts *Record[account], first uint32) error {
	defer s.Close()
	const n, inFlight = 2000, 50
	var failure error
	run := func(define func(tx *Tx, i uint32), check func(tx *Tx)) error {
		left := n
		for i := uint32(0); i < n; {
			for s.Pending() < inFlight && i < n {
				tx, err := s.Begin()
				if err != nil {
					return err
				}
				tx.Tag = uint64(i)
				define(tx, i)
				tx.CommitAsync(func(tx *Tx) {
					left--
					if err := tx.Err(); err != nil && failure == nil {
						failure = err
					}
					if check != nil {
						check(tx)
					}
				})
				i++
			}
			if err := s.Send(SendAdaptive); err != nil {
				return err
			}
			if _, err := s.Poll(context.Background(), inFlight/2); err != nil {
				return err
			}
		}
		for s.Pending() > 0 {
			if _, err := s.PollFor(10*time.Second, s.Pending()); err != nil {
				return err
			}
		}
		if left != 0 {
			return fmt.Errorf("%d are missing", left)
		}
		return failure
	}
	rows := make([]account, n)
	if err := run(func(tx *Tx, i uint32) {
		accounts.Insert(tx, &account{ID: first + i, Balance: int64(i)})
	}, nil); err != nil {
		return fmt.Errorf("insert: %w", err)
	}
	err := run(func(tx *Tx, i uint32) {
		rows[i] = account{ID: first + i}
		accounts.Read(tx, &rows[i], ReadMode(i%3))
	}, func(tx *Tx) {
		if r := rows[tx.Tag]; r.Balance != int64(tx.Tag) {
			failure = fmt.Errorf("row %d: %+v", tx.Tag, r)
		}
	})
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	return run(func(tx *Tx, i uint32) {
		accounts.Delete(tx, &account{ID: first + i})
		if i%2 == 0 {
			accounts.Insert(tx, &account{ID: first + n + i})
		}
	}, nil)
}
