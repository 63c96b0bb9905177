package sim

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cohortdb/cohort/internal/ndberror"
)

// small is what tests want of a run: less load than the command's, so that many seeds fit.
var small = Wanted{DataNodes: 4, Replicas: 2, VirtualTime: 3 * second, Transactions: 4000}

func runSeed(t *testing.T, seed uint64, w Wanted, c Config) Result {
	t.Helper()
	r, err := Run(Draw(seed, w), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// passes fails the test with all that is known of a failed run.
func passes(t *testing.T, r *Result, w Wanted) {
	t.Helper()
	if r.Failure == nil {
		return
	}
	last := r.Failure.Last[max(len(r.Failure.Last)-40, 0):]
	t.Fatalf("seed %d failed %v\n%s\n%v\n%s\nrepeat: %s", r.Options.Seed, r.Failure, r.Failure.Stack, r.Options, strings.Join(last, "\n"),
		(&command{wanted: w}).repeat(r.Options.Seed))
}

// TestHundredSeeds is the load of four data nodes in two groups over a hundred seeds, every tenth of them twice.
func TestHundredSeeds(t *testing.T) {
	var mu sync.Mutex
	var sum statistics
	var digests sync.Map
	t.Run("seeds", func(t *testing.T) {
		for seed := uint64(1); seed <= 100; seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				r := runSeed(t, seed, small, Config{})
				passes(t, &r, small)
				if seed%10 == 0 {
					if again := runSeed(t, seed, small, Config{}); again.Digest != r.Digest || again.Delivered != r.Delivered {
						t.Fatalf("seed %d: digest %v after %d signals, then %v after %d", seed, r.Digest, r.Delivered, again.Digest, again.Delivered)
					}
				}
				if other, twice := digests.Swap(r.Digest, seed); twice {
					t.Fatalf("seeds %d and %v run alike", seed, other)
				}
				mu.Lock()
				defer mu.Unlock()
				sum.add(&r.Stats)
			})
		}
	})
	if t.Failed() {
		return
	}
	t.Log(&sum)
	// A load that never gets anywhere proves nothing.
	for k := range kinds {
		if sum.Committed[k] < 100 {
			t.Errorf("only %d transactions of the kind %s committed", sum.Committed[k], kinds[k].name)
		}
	}
	if committed, aborted := sum.transactions(); committed < 100_000 || aborted > committed {
		t.Errorf("%d transactions committed, %d were rolled back", committed, aborted)
	}
	if sum.Tables < 100 || sum.Cut < 100 || sum.Links < 100 || sum.Unknown < 100 {
		t.Errorf("%d tables created and dropped, %d transactions cut by the end of their session, %d links cut, %d outcomes unknown: too few",
			sum.Tables, sum.Cut, sum.Links, sum.Unknown)
	}
	for _, code := range []int{ndberror.NotFound, ndberror.Duplicate, ndberror.LockTimeout, ndberror.LockBusy, ndberror.Inactive,
		ndberror.NoOperationRecord, ndberror.NoTransRecord, ndberror.DataMemoryFull, ndberror.TableDropped} {
		if sum.Codes[code] == 0 {
			t.Errorf("error %d never came", code)
		}
	}
}

// TestOtherShapes lets the seed decide on nodes and replicas.
func TestOtherShapes(t *testing.T) {
	w := Wanted{VirtualTime: second, Transactions: 1500}
	for seed := uint64(1); seed <= 40; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := runSeed(t, seed, w, Config{})
			passes(t, &r, w)
		})
	}
}
