package flexasynch

import (
	"fmt"
	"math"
	"time"
)

// result is what a phase has done.
type result struct {
	kind       kind
	operations int64 // that the phase is made of
	failed     int64 // of these, for good
	wrong      int64 // rows that were read and are not what was written
	elapsed    time.Duration
	clientCPU  time.Duration
	nodeCPU    time.Duration // meaningful where the data nodes' processes are known
}

// perSecond is the rate.
func (r *result) perSecond() float64 {
	if r.elapsed <= 0 {
		return 0
	}
	return float64(r.operations) / r.elapsed.Seconds()
}

// figures add up the results of a kind.
type figures struct {
	rates      []float64
	operations int64
	failed     int64
	wrong      int64
	clientCPU  time.Duration
	nodeCPU    time.Duration
}

func (f *figures) add(r *result) {
	f.rates = append(f.rates, r.perSecond())
	f.operations += r.operations
	f.failed += r.failed
	f.wrong += r.wrong
	f.clientCPU += r.clientCPU
	f.nodeCPU += r.nodeCPU
}

// spread is mean, smallest, largest, and standard deviation in percent of the mean.
func (f *figures) spread() (mean, low, high, deviation float64) {
	low, high = f.rates[0], f.rates[0]
	for _, r := range f.rates {
		mean += r
		low, high = min(low, r), max(high, r)
	}
	n := float64(len(f.rates))
	mean /= n
	var squares float64
	for _, r := range f.rates {
		squares += (r - mean) * (r - mean)
	}
	if mean > 0 {
		deviation = 100 * math.Sqrt(squares/n) / mean
	}
	return mean, low, high, deviation
}

// line is the final line of a kind. All its numbers are cut to whole ones, as readers of such lines expect.
func (f *figures) line(k kind) string {
	mean, low, high, deviation := f.spread()
	return fmt.Sprintf("%s average: %d/s min: %d/s max: %d/s stddev: %d%%", k, int64(mean), int64(low), int64(high), int64(deviation))
}

// perOperation is a time per operation in microseconds.
func perOperation(d time.Duration, operations int64) float64 {
	if operations == 0 {
		return 0
	}
	return float64(d.Nanoseconds()) / 1e3 / float64(operations)
}
