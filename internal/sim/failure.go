package sim

import (
	"fmt"
	"runtime/debug"
	"strings"
	"unsafe"

	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/signal"
)

// Failure says what went wrong in a run.
type Failure struct {
	At     int64 // virtual time, nanoseconds
	Reason string
	Stack  string // of a panic
	// Last holds the last signals before it, printed, oldest first.
	Last []string
}

func (f *Failure) Error() string { return fmt.Sprintf("at %s: %s", ns(f.At), f.Reason) }

// failf ends the run, unless it has failed already.
func (n *Network) failf(format string, args ...any) {
	if n.failure == nil {
		n.failure = &Failure{At: n.now, Reason: fmt.Sprintf(format, args...), Last: n.ring.lines()}
	}
}

// guard runs f, and makes a broken assertion or a touched guard page in a block a failure of the run.
func (n *Network) guard(f func()) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		if v := recover(); v != nil {
			reason := fmt.Sprint("panic: ", v)
			if x, ok := v.(invariant.Violation); ok {
				reason = x.Error()
			}
			if n.failure == nil {
				n.failf("%s", reason)
				n.failure.Stack = stackOfBlock(debug.Stack())
			}
		}
	}()
	f()
}

// stackOfBlock is the part of a panic's stack that is the block's: below the panic itself, above the simulator.
func stackOfBlock(stack []byte) string {
	var kept []string
	lines := strings.Split(string(stack), "\n")
	below := false
	for i := 0; i+1 < len(lines); i++ {
		if strings.HasPrefix(lines[i], "panic(") {
			below, kept = true, nil
			i++
			continue
		}
		if strings.Contains(lines[i], "sim.(*Network).execute") {
			break
		}
		if below {
			kept = append(kept, strings.TrimSpace(lines[i]))
		}
	}
	return strings.Join(kept, "\n")
}

// ringSize is how many signals a failure shows.
const ringSize = 200

// ring keeps the last signals of a run as they were delivered, without their sections.
type ring struct {
	at    [ringSize]int64
	bytes [ringSize][]byte
	count uint64
}

func (r *ring) add(at int64, b []byte) {
	i := r.count % ringSize
	r.at[i] = at
	fixed := int(signal.FixedSize((*signal.Head)(unsafe.Pointer(unsafe.SliceData(b))).Num))
	r.bytes[i] = append(r.bytes[i][:0], b[:min(max(fixed, signal.HeadSize), len(b))]...)
	r.count++
}

func (r *ring) lines() []string {
	var out []string
	for k := r.count - min(r.count, ringSize); k < r.count; k++ {
		i := k % ringSize
		h := (*signal.Head)(unsafe.Pointer(unsafe.SliceData(r.bytes[i])))
		out = append(out, traceLine(r.at[i], h))
	}
	return out
}

// traceLine prints a delivery.
func traceLine(at int64, h *signal.Head) string {
	return fmt.Sprintf("%12.3f %s", float64(at)/1000, signal.Format(h))
}
