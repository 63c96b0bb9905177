package ndb

import (
	"context"
	"fmt"

	"github.com/cohortdb/cohort/internal/client"
	"github.com/cohortdb/cohort/internal/signal"
)

// Tx is a transaction. It must be given back by Close; after the function of CommitAsync that happens by itself.
type Tx struct {
	// Tag is the program's own; 0 at Begin.
	Tag uint64

	core *client.Tx
	s    *Session
	done func(*Tx)
	life uint32 // tells transactions that use this record one after the other apart
}

// Session is the transaction's session.
func (t *Tx) Session() *Session { return t.s }

// Execute runs the operations that were defined since the last Execute and waits for them; the transaction stays open.
func (t *Tx) Execute(ctx context.Context) error {
	if err := t.usable(); err != nil {
		return err
	}
	return t.wait(ctx, t.core.Execute())
}

// Commit runs what was defined, commits, and waits until that is done on every replica.
func (t *Tx) Commit(ctx context.Context) error {
	if err := t.usable(); err != nil {
		return err
	}
	return t.wait(ctx, t.core.Commit())
}

// usable takes the session, and says whether the transaction can go on.
func (t *Tx) usable() error {
	t.s.acquire()
	if t.core.State() == client.Defining {
		return nil
	}
	if !t.s.polling {
		t.s.release()
	}
	if err := t.Err(); err != nil {
		return err
	}
	return ErrTxEnded
}

// Rollback undoes everything and waits until that is done. It is no error that there was nothing to undo.
func (t *Tx) Rollback(ctx context.Context) error {
	t.s.acquire()
	before := t.core.Err()
	err := t.wait(ctx, t.core.Rollback())
	if t.core.Err() == before && ctx.Err() == nil { // what had made it fail earlier is no failure of the rollback
		return nil
	}
	return err
}

// wait waits until what was started is over.
func (t *Tx) wait(ctx context.Context, started bool) error {
	s := t.s
	if started {
		if s.polling {
			t.core.GiveUp()
			return errInside
		}
		if err := s.until(ctx, t, SendForce, -1, 0); err != nil {
			t.core.GiveUp()
			s.flush(SendForce)
			s.release()
			return fmt.Errorf("%w: %w", err, t.Err())
		}
	}
	if !s.polling {
		s.release()
	}
	return t.Err()
}

// Close gives the transaction back; one that has not ended is rolled back, without waiting for that. The Tx and its Ops
// must not be used afterwards.
func (t *Tx) Close() {
	s := t.s
	s.acquire()
	if t.done != nil { // its function will not be called any more
		t.done = nil
		s.pending--
	}
	t.core.Release()
	if !s.polling {
		s.flush(SendForce)
		s.release()
	}
}

// CommitAsync prepares the commit; Send or Poll sends it. done is called by a Poll of the session (or another call that
// waits) when the transaction has ended: Err says how. Then it is given back. done must not wait. Keep one function for
// all transactions (a method value stored once): a closure made for each is an allocation for each. On a transaction that
// is under way it does nothing.
func (t *Tx) CommitAsync(done func(*Tx)) {
	t.s.acquire()
	t.async(done, t.core.Commit())
}

// ExecuteAsync is CommitAsync without commit: in done or later, further operations may be defined, and another
// ExecuteAsync, CommitAsync, RollbackAsync or Close must follow. Only where Err is not nil the transaction has ended
// and is given back.
func (t *Tx) ExecuteAsync(done func(*Tx)) {
	t.s.acquire()
	t.async(done, t.core.Execute())
}

// RollbackAsync undoes everything.
func (t *Tx) RollbackAsync(done func(*Tx)) {
	t.s.acquire()
	t.async(done, t.core.Rollback())
}

func (t *Tx) async(done func(*Tx), started bool) {
	s := t.s
	if t.core.Busy() && !started || done == nil {
		return
	}
	if t.done == nil {
		s.pending++
	}
	t.done = done
	s.unsent++
	if !started {
		s.ready = append(s.ready, t)
	} else if s.core.Buffered() >= sendAt {
		s.flush(SendForce)
	}
}

// Err is the error of the transaction: what rolled it back, or why its outcome is not known.
func (t *Tx) Err() error { return codeError(t.core.Err()) }

// GCI is the epoch in which the transaction was committed (high word: global checkpoint, low word: epoch within it); 0
// before, and for one that was not or had nothing to commit.
func (t *Tx) GCI() uint64 { return t.core.GCI() }

// Node is the data node of the transaction's coordinator, or that it goes to without one; 0 before its first operation.
func (t *Tx) Node() int { return t.core.Node() }

// ReadMode says what a read sees and locks.
type ReadMode uint8

const (
	// Committed sees the newest committed row, takes no lock and never waits.
	Committed ReadMode = ReadMode(signal.OpReadCommitted)
	// Shared locks the row against changes until the transaction ends.
	Shared ReadMode = ReadMode(signal.OpReadShared)
	// Exclusive locks the row against changes and locking reads until the transaction ends.
	Exclusive ReadMode = ReadMode(signal.OpReadExclusive)
)

// Op is an operation of a transaction. It lives as long as its Tx.
type Op client.Op

func (o *Op) core() *client.Op { return (*client.Op)(o) }

// IgnoreError lets the transaction live on if this operation fails for its row (626, 630, 635 and the like); Err has the
// error. It must be said at once, before anything else is done with the session.
func (o *Op) IgnoreError() *Op {
	o.core().IgnoreError()
	return o
}

// NoWait makes the operation fail with 635 where it would wait for a lock. It must be said at once, before anything else
// is done with the session.
func (o *Op) NoWait() *Op {
	o.core().NoWait()
	return o
}

// Err is the operation's own error, once its batch is done.
func (o *Op) Err() error { return codeError(o.core().Err()) }
