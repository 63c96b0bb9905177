package ndb_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/cohortdb/cohort/ndb"
)

// Account is a row of table bank.account. Fields name their columns; a pointer can be NULL.
type Account struct {
	ID      uint32  `ndb:"id"`
	Owner   string  `ndb:"owner"`
	Balance int64   `ndb:"balance"`
	Note    *string `ndb:"note"`
}

// These examples need a running cluster: `cohort up` starts one.

func Example() {
	ctx := context.Background()
	conn, err := ndb.Connect(ctx, "localhost:1186", ndb.Options{Name: "bank"})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	table, err := conn.CreateTable(ctx, ndb.TableDef{Database: "bank", Name: "account", Columns: []ndb.Column{
		{Name: "id", Type: ndb.TypeUint32, Key: true},
		{Name: "owner", Type: ndb.TypeVarchar, Length: 60},
		{Name: "balance", Type: ndb.TypeInt64},
		{Name: "note", Type: ndb.TypeVarchar, Length: 200, Nullable: true},
	}})
	if errors.Is(err, ndb.ErrTableExists) {
		table, err = conn.Table(ctx, "bank", "account")
	}
	if err != nil {
		log.Fatal(err)
	}
	accounts, err := ndb.Bind[Account](table)
	if err != nil {
		log.Fatal(err)
	}
	s, err := conn.NewSession(ndb.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	if err := accounts.Put(ctx, s, &Account{ID: 7, Owner: "Ada", Balance: 100}); err != nil {
		log.Fatal(err)
	}
	a := Account{ID: 7}
	switch err := accounts.Get(ctx, s, &a); {
	case errors.Is(err, ndb.ErrNotFound):
		fmt.Println("nobody has that number")
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Println(a.Owner, a.Balance)
	}
}

// Transfer moves money between two rows in one transaction, and tries again where the cluster asks for it: after a
// lock wait, a full pool, the loss of a node.
func ExampleRetry() {
	var (
		ctx      = context.Background()
		s        *ndb.Session
		accounts *ndb.Record[Account]
	)
	balance, err := accounts.Only("balance") // the other columns are neither read nor written
	if err != nil {
		log.Fatal(err)
	}
	errPoor := errors.New("not enough money")
	err = ndb.Retry(ctx, s, func(tx *ndb.Tx) error {
		from, to := Account{ID: 7}, Account{ID: 8}
		balance.Read(tx, &from, ndb.Exclusive)
		balance.Read(tx, &to, ndb.Exclusive)
		if err := tx.Execute(ctx); err != nil {
			return err
		}
		if from.Balance < 30 {
			return errPoor // the transaction is rolled back, and not tried again
		}
		from.Balance -= 30
		to.Balance += 30
		balance.Update(tx, &from)
		balance.Update(tx, &to)
		return tx.Commit(ctx)
	})
	var e *ndb.Error
	switch {
	case err == nil:
		fmt.Println("done")
	case errors.As(err, &e) && e.Class == ndb.ClassUnknownResult:
		fmt.Println("nobody knows whether it was committed: look before trying again")
	default:
		fmt.Println(err)
	}
}

// loader keeps many transactions under way from one goroutine.
type loader struct {
	s      *ndb.Session
	failed int
	done   func(*ndb.Tx) // made a function once: a closure for each transaction would be an allocation for each
}

func (l *loader) ended(tx *ndb.Tx) {
	if tx.Err() != nil {
		l.failed++
		log.Printf("row %d: %v", tx.Tag, tx.Err())
	}
}

func ExampleSession_Poll() {
	var (
		ctx      = context.Background()
		s        *ndb.Session
		accounts *ndb.Record[Account]
	)
	l := &loader{s: s}
	l.done = l.ended
	const rows, together = 1_000_000, 512
	for i := 0; i < rows || s.Pending() > 0; {
		for i < rows && s.Pending() < together {
			tx, err := s.Begin()
			if err != nil {
				log.Fatal(err)
			}
			tx.Tag = uint64(i)
			accounts.Insert(tx, &Account{ID: uint32(i)}) // the values are taken at once
			tx.CommitAsync(l.done)
			i++
		}
		if _, err := s.Poll(ctx, together/2); err != nil { // sends, and waits for half of them
			log.Fatal(err)
		}
	}
	fmt.Println(l.failed, "failed")
}

// A Row does without a struct: columns are set and read by their number.
func ExampleTable_NewRow() {
	var (
		s     *ndb.Session
		table *ndb.Table
	)
	id, owner, balance := table.Column("id"), table.Column("owner"), table.Column("balance")
	row := table.NewRow()
	row.SetUint(id, 7)
	row.SetString(owner, "Ada")
	row.SetInt(balance, 100)

	tx, err := s.Begin()
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Close()
	tx.Write(row) // only the columns that were set
	if err := tx.Commit(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// An operation may be allowed to fail without rolling its transaction back.
func ExampleOp_IgnoreError() {
	var (
		ctx      = context.Background()
		s        *ndb.Session
		accounts *ndb.Record[Account]
	)
	tx, err := s.Begin()
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Close()
	a, b := Account{ID: 1}, Account{ID: 2}
	first := accounts.Read(tx, &a, ndb.Shared).IgnoreError()
	second := accounts.Read(tx, &b, ndb.Shared).IgnoreError()
	if err := tx.Execute(ctx); err != nil {
		log.Fatal(err)
	}
	for _, op := range []*ndb.Op{first, second} {
		if errors.Is(op.Err(), ndb.ErrNotFound) {
			fmt.Println("a row is missing")
		}
	}
}

func ExampleConn_WaitReady() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := ndb.Connect(ctx, "", ndb.Options{Name: "reporter"}) // where NDB_CONNECTSTRING says
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	if err := conn.WaitReady(ctx, 0); err != nil { // all data nodes, not just the first
		log.Print(err)
	}
	for _, n := range conn.Nodes() {
		fmt.Println(n.ID, n.Host, n.Group, n.Started)
	}
}
