package ndb

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/cohortdb/cohort/internal/ndberror"
)

// RetryOptions of RetryWith.
type RetryOptions struct {
	Within time.Duration // no attempt begins later than this after the first one did; 0: only the context limits it
}

// Retry runs f in a transaction, and again in a new one while it fails with an error that says Retry. f commits the
// transaction (or rolls it back); it must not keep it. Retry ends with nil, with f's error, or, when ctx ends while it
// pauses, with both that error and the context's.
//
// Between attempts there is a growing and random pause of up to half a second. While data nodes fail, stop or come back
// (1204, 270, 280, 286, 4010) it is shorter: the first time none, later up to 20 ms. That no data node is connected (4009)
// is waited out for Options.WaitTimeout. An outcome that is not known (4008, 4012) is never tried again: f might be done
// twice.
func Retry(ctx context.Context, s *Session, f func(*Tx) error) error {
	return RetryWith(ctx, s, RetryOptions{}, f)
}

// RetryWith is Retry with options. When the time is over it ends with the last error.
func RetryWith(ctx context.Context, s *Session, o RetryOptions, f func(*Tx) error) error {
	const least, most, mostMoving = time.Millisecond, 500 * time.Millisecond, 20 * time.Millisecond
	began := time.Now()
	var alone time.Time // since when there has been no data node
	pause := time.Duration(0)
	for n := 0; ; n++ {
		err := attempt(s, f)
		var e *Error
		if err == nil || !errors.As(err, &e) {
			return err
		}
		limit := most
		switch e.Code {
		case ndberror.ClusterNotReady: // refused before anything was sent
			if alone.IsZero() {
				alone = time.Now()
			} else if time.Since(alone) >= s.c.opts.WaitTimeout {
				return err
			}
		case ndberror.Moving, ndberror.NodeStopping, 280, ndberror.PartFailed, ndberror.NodeFailed:
			alone, limit = time.Time{}, mostMoving
			if n == 0 {
				continue
			}
		default:
			if alone = (time.Time{}); !e.Retry {
				return err
			}
		}
		pause = min(max(2*pause, least), limit)
		wait := pause/2 + time.Duration(rand.Int64N(int64(pause)))
		if o.Within > 0 && time.Since(began)+wait > o.Within {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(err, context.Cause(ctx))
		case <-timer.C:
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
