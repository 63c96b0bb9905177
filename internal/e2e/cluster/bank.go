package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cohortdb/cohort/internal/e2e"
	"github.com/cohortdb/cohort/ndb"
)

const (
	accounts = 200
	opening  = 1000 // money in each account at first
	// lines is how many errors are told in full.
	lines = 20
)

// account is a row of the table of accounts; teller a client's own row, which counts its transfers.
type account struct {
	ID      uint32 `ndb:"id"`
	Balance int64  `ndb:"balance"`
}

type teller struct {
	ID   uint32 `ndb:"id"`
	Done uint32 `ndb:"done"`
}

// Bank is clients that move money between accounts. Each transfer counts up the client's own row in the same transaction,
// so that the next one sees whether what the client was told is so: a commit that was acknowledged is there, what was
// rolled back is not, and what became of an unknown outcome. At the end every balance must be what the transfers make it.
type Bank struct {
	c        *Cluster
	conn     *ndb.Conn
	accounts *ndb.Record[account]
	tellers  *ndb.Record[teller]
	stop     context.CancelFunc
	ctx      context.Context
	work     sync.WaitGroup

	mu      sync.Mutex
	deltas  [accounts]int64
	done    int            // transfers
	errors  map[string]int // by code
	wrong   []string       // what must not be
	last    time.Time      // of the newest transfer
	longest time.Duration  // without one, since Gap was asked
	starved int            // errors for which this machine is the reason
	unclear int            // outcomes that were unknown and have been found out
}

// NewBank opens the bank with so many clients.
func (c *Cluster) NewBank(clients int) *Bank {
	c.t.Helper()
	b := &Bank{c: c, errors: map[string]int{}, last: time.Now()}
	b.ctx, b.stop = context.WithCancel(context.Background())
	c.t.Cleanup(func() {
		b.stop()
		b.work.Wait()
	})
	var err error
	must := func(e error) {
		c.t.Helper()
		if e != nil {
			c.t.Fatal(e)
		}
	}
	for deadline := time.Now().Add(e2e.Patience); ; { // the slot's last holder may just have gone
		b.conn, err = ndb.Connect(b.ctx, c.ConnectString(), ndb.Options{Name: "bank", WaitAll: true, Logf: c.t.Logf})
		if err == nil || time.Now().After(deadline) {
			break
		}
		<-time.After(100 * time.Millisecond)
	}
	must(err)
	c.t.Cleanup(func() { b.conn.Close() })
	table := func(name, value string, kind ndb.Type) *ndb.Table {
		t, err := b.conn.CreateTable(b.ctx, ndb.TableDef{Database: "bank", Name: name, NoLogging: true,
			Columns: []ndb.Column{{Name: "id", Type: ndb.TypeUint32, Key: true}, {Name: value, Type: kind}}})
		must(err)
		return t
	}
	b.accounts, err = ndb.Bind[account](table("account", "balance", ndb.TypeInt64))
	must(err)
	b.tellers, err = ndb.Bind[teller](table("teller", "done", ndb.TypeUint32))
	must(err)
	s, err := b.conn.NewSession(ndb.SessionOptions{})
	must(err)
	defer s.Close()
	for i := range accounts {
		must(b.accounts.Put(b.ctx, s, &account{uint32(i), opening}))
	}
	for i := range clients {
		must(b.tellers.Put(b.ctx, s, &teller{uint32(i), 0}))
	}
	for i := range clients {
		s, err := b.conn.NewSession(ndb.SessionOptions{})
		must(err)
		b.work.Add(1)
		go func() {
			defer b.work.Done()
			defer s.Close()
			b.serve(uint32(i), s)
		}()
	}
	return b
}

// transfer is one of a client's.
type transfer struct {
	number   uint32
	from, to uint32
	amount   int64
}

// serve is one client.
func (b *Bank) serve(id uint32, s *ndb.Session) {
	random := rand.New(rand.NewSource(int64(id)))
	done := uint32(0)
	var open *transfer // of unknown outcome
	for b.ctx.Err() == nil {
		f := transfer{number: done + 1, amount: 1 + random.Int63n(10)}
		for f.from, f.to = uint32(random.Intn(accounts)), uint32(random.Intn(accounts)); f.from == f.to; {
			f.to = uint32(random.Intn(accounts))
		}
		seen, err := b.try(s, id, &f)
		if seen != nothing { // it has read how far it had come
			switch {
			case open != nil && seen == open.number:
				b.book(open)
				done = open.number
			case seen != done:
				b.fail("client %d was told that its newest transfer is %d, and finds %d", id, done, seen)
				return
			}
			if open != nil {
				b.mu.Lock()
				b.unclear++
				b.mu.Unlock()
			}
			open = nil
			f.number = done + 1
		}
		switch {
		case err == nil:
			b.book(&f)
			done = f.number
		case b.judge(id, err) && seen != nothing: // it may have been committed
			open = &f
			fallthrough
		default:
			<-time.After(time.Millisecond)
		}
	}
	if open != nil { // the last one's outcome
		b.settle(id, s, done, open)
	}
}

// nothing is what a transfer has seen that did not come to read its client's row.
const nothing = ^uint32(0)

// try carries out a transfer; seen is the client's row as the transfer found it.
func (b *Bank) try(s *ndb.Session, id uint32, f *transfer) (seen uint32, err error) {
	ctx := context.Background() // a transfer that has begun ends, within the connection's patience
	seen = nothing
	tx, err := s.Begin()
	if err != nil {
		return seen, err
	}
	defer tx.Close()
	me := teller{ID: id}
	b.tellers.Read(tx, &me, ndb.Exclusive)
	if err := tx.Execute(ctx); err != nil {
		return seen, err
	}
	seen = me.Done
	me.Done++
	f.number = me.Done
	b.tellers.Update(tx, &me)
	one, two := account{ID: f.from}, account{ID: f.to}
	b.accounts.Read(tx, &one, ndb.Exclusive)
	b.accounts.Read(tx, &two, ndb.Exclusive)
	if err := tx.Execute(ctx); err != nil {
		return seen, err
	}
	one.Balance -= f.amount
	two.Balance += f.amount
	b.accounts.Update(tx, &one)
	b.accounts.Update(tx, &two)
	return seen, tx.Commit(ctx)
}

// settle finds out what became of a client's last transfer.
func (b *Bank) settle(id uint32, s *ndb.Session, done uint32, open *transfer) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	me := teller{ID: id}
	err := ndb.Retry(ctx, s, func(tx *ndb.Tx) error {
		b.tellers.Read(tx, &me, ndb.Exclusive)
		return tx.Commit(ctx)
	})
	switch {
	case err != nil:
		b.fail("client %d cannot find out what became of its last transfer: %v", id, err)
	case me.Done == open.number:
		b.book(open)
	case me.Done != done:
		b.fail("client %d was told that its last transfer was %d, and finds %d", id, done, me.Done)
	}
}

// book notes that a transfer is done.
func (b *Bank) book(f *transfer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deltas[f.from] -= f.amount
	b.deltas[f.to] += f.amount
	b.done++
	now := time.Now()
	b.longest = max(b.longest, now.Sub(b.last))
	b.last = now
}

// judge counts an error and tells whether the transfer's outcome is unknown. Whatever has no reason is wrong.
func (b *Bank) judge(id uint32, err error) (unknown bool) {
	at := time.Now()
	var e *ndb.Error
	if !errors.As(err, &e) {
		b.fail("client %d: %v, which is no error of the database", id, err)
		return true
	}
	b.mu.Lock()
	b.errors[fmt.Sprintf("%d %s", e.Code, e.Message)]++
	b.mu.Unlock()
	unknown = e.Class == ndb.ClassUnknownResult
	switch {
	case e.Code == 266 || e.Code == 274: // others had the accounts
	case !e.Retry && !unknown:
		b.fail("client %d: %v, which no program expects", id, err)
	case b.c.reason(at) != "":
	case b.c.starved(at):
		b.mu.Lock()
		b.starved++
		b.mu.Unlock()
	default:
		b.fail("client %d: %v, although nothing was done to the cluster", id, err)
	}
	return unknown
}

func (b *Bank) fail(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.wrong) < lines {
		b.wrong = append(b.wrong, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// Wrong is what must not have happened so far.
func (b *Bank) Wrong() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.wrong)
}

// Done is how many transfers are done.
func (b *Bank) Done() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.done
}

// Gap is the longest time without a transfer since it was last asked.
func (b *Bank) Gap() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	gap := max(b.longest, time.Since(b.last))
	b.longest, b.last = 0, time.Now()
	return gap
}

// Goes waits until more transfers are done.
func (b *Bank) Goes(more int) {
	b.c.t.Helper()
	want := b.Done() + more
	for deadline := time.Now().Add(time.Minute); b.Done() < want; {
		if w := b.Wrong(); len(w) > 0 {
			b.c.t.Fatalf("what must not be:\n%s", strings.Join(w, "\n"))
		}
		if time.Now().After(deadline) {
			b.c.t.Fatalf("only %d of %d transfers in a minute; errors so far: %v", b.Done()-want+more, more, b.Errors())
		}
		<-time.After(5 * time.Millisecond)
	}
}

// Errors are the errors so far, by code.
func (b *Bank) Errors() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]int{}
	for k, n := range b.errors {
		all[k] = n
	}
	return all
}

// Close ends the clients and audits the bank.
func (b *Bank) Close() {
	b.c.t.Helper()
	b.stop()
	b.work.Wait()
	s, err := b.conn.NewSession(ndb.SessionOptions{})
	if err != nil {
		b.c.t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sum := int64(0)
	for i := range accounts {
		a := account{ID: uint32(i)}
		if err := ndb.Retry(ctx, s, func(tx *ndb.Tx) error {
			b.accounts.Read(tx, &a, ndb.Shared)
			return tx.Commit(ctx)
		}); err != nil {
			b.c.t.Fatalf("account %d: %v", i, err)
		}
		sum += a.Balance
		if want := opening + b.deltas[i]; a.Balance != want {
			b.fail("account %d has %d, its transfers make it %d", i, a.Balance, want)
		}
	}
	if sum != accounts*opening {
		b.fail("all accounts have %d, and had %d at first", sum, accounts*opening)
	}
	b.c.t.Logf("%d transfers; outcomes that were unknown at first: %d; errors: %v", b.done, b.unclear, b.errors)
	if b.starved > 0 {
		b.c.t.Logf("%d errors because this machine did not let a node run for a while", b.starved)
	}
	if w := b.Wrong(); len(w) > 0 {
		b.c.t.Fatalf("what must not be:\n%s", strings.Join(w, "\n"))
	}
}
