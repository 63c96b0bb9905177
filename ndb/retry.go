package ndb

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Retry runs f in a transaction, and again in a new one, after a growing and random pause, while it fails with an error
// that says Retry. f commits the transaction (or rolls it back); it must not keep it. Retry ends with nil, with f's error,
// or, when ctx ends while it pauses, with both that error and the context's.
func Retry(ctx context.Context, s *Session, f func(*Tx) error) error {
	const least, most = time.Millisecond, 500 * time.Millisecond
	for pause := least; ; pause = min(2*pause, most) {
		err := attempt(s, f)
		var e *Error
		if err == nil || !errors.As(err, &e) || !e.Retry {
			return err
		}
		wait := time.NewTimer(pause/2 + time.Duration(rand.Int64N(int64(pause))))
		select {
		case <-ctx.Done():
			wait.Stop()
			return errors.Join(err, context.Cause(ctx))
		case <-wait.C:
		}
	}
}

func attempt(s *Session, f func(*Tx) error) error {
	tx, err := s.Begin()
	if err != nil {
		return err
	}
	defer tx.Close()
	return f(tx)
}
