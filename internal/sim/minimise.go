package sim

import (
	"fmt"
	"io"
	"strings"
)

// A failing run is made smaller by trying: with fewer faults, shorter ones, fewer transactions, less time, as long as it
// still fails with a complaint of the same kind. What is left is a schedule and a command that repeats it.

// minimiser looks for the smallest run that fails like one.
type minimiser struct {
	seed  uint64
	w     Wanted // the smallest so far
	kind  string // of complaint
	out   io.Writer
	tries int
	best  Result
	run   func(seed uint64, w Wanted) (Result, error)
}

// Minimise makes a failing run of a seed smaller. It returns what the smallest one wants, and how it ended; a run that
// does not fail is returned as it is.
func Minimise(seed uint64, w Wanted, out io.Writer) (Wanted, Result, error) {
	m := &minimiser{seed: seed, w: w, out: out, run: func(seed uint64, w Wanted) (Result, error) { return Run(Draw(seed, w), Config{}) }}
	return m.all()
}

func (m *minimiser) all() (Wanted, Result, error) {
	r, err := m.run(m.seed, m.w)
	if err != nil || r.Failure == nil {
		return m.w, r, err
	}
	m.best, m.kind = r, complaint(r.Failure.Reason)
	m.say("fails %v", r.Failure)
	if m.w.Schedule == nil { // what was drawn becomes a schedule
		w := m.w
		w.Schedule = append([]fault{}, r.Done...)
		if ok, err := m.try(w, "as a schedule of %d faults", len(w.Schedule)); err != nil || !ok {
			if err == nil {
				m.say("its schedule alone does not make it fail: the faults stay as they were drawn")
				err = m.smaller()
			}
			return m.w, m.best, err
		}
	}
	for before := -1; before != m.size(); {
		before = m.size()
		for _, f := range []func() error{m.fewerFaults, m.smaller, m.shorterFaults, m.fewerKinds} {
			if err := f(); err != nil {
				return m.w, m.best, err
			}
		}
	}
	return m.w, m.best, nil
}

// size is a measure that every success lowers.
func (m *minimiser) size() int {
	s := m.w.Transactions + int(m.w.VirtualTime/millisecond) + int(m.w.Faults)
	for _, f := range m.w.Schedule {
		s += 100_000 + len(f.a) + len(f.b) + int(f.dur/millisecond)
	}
	return s
}

// complaint is the kind of a complaint: its words, without names and numbers.
func complaint(reason string) string {
	var words []string
	for _, w := range strings.FieldsFunc(reason, func(r rune) bool { return r != '-' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') }) {
		if kindNames[w] || len(words) == 12 {
			continue
		}
		words = append(words, w)
	}
	return strings.Join(words, " ")
}

// kindNames are words of complaints that differ between runs which fail alike.
var kindNames = map[string]bool{"account": true, "register": true, "mixed": true, "passing": true, "r": true, "f": true, "us": true, "ms": true, "s": true}

func init() {
	for _, k := range kinds {
		kindNames[k.name] = true
	}
	for _, o := range opNames {
		for _, w := range strings.Fields(o) {
			kindNames[w] = true
		}
	}
}

func (m *minimiser) say(format string, args ...any) { fmt.Fprintf(m.out, format+"\n", args...) }

// try takes w if it fails in the same way.
func (m *minimiser) try(w Wanted, format string, args ...any) (bool, error) {
	m.tries++
	r, err := m.run(m.seed, w)
	if err != nil {
		return false, err
	}
	if r.Failure == nil || complaint(r.Failure.Reason) != m.kind {
		return false, nil
	}
	m.w, m.best = w, r
	m.say("still fails "+format, args...)
	return true, nil
}

// fewerFaults drops faults: halves, quarters, … one by one.
func (m *minimiser) fewerFaults() error {
	for size := (len(m.w.Schedule) + 1) / 2; size > 0; size /= 2 {
		for i := 0; i < len(m.w.Schedule); {
			w := m.w
			end := min(i+size, len(w.Schedule))
			w.Schedule = append(append([]fault{}, m.w.Schedule[:i]...), m.w.Schedule[end:]...)
			ok, err := m.try(w, "with %d faults", len(w.Schedule))
			if err != nil {
				return err
			}
			if !ok {
				i += size
			}
		}
	}
	return nil
}

// smaller runs fewer transactions, for a shorter time.
func (m *minimiser) smaller() error {
	for _, by := range []int{8, 2, 4} { // eighths, halves, three quarters
		for {
			w := m.w
			if w.Transactions = m.transactions() / by; by == 4 {
				w.Transactions = m.transactions() * 3 / 4
			}
			if w.Transactions < 1 {
				break
			}
			ok, err := m.try(w, "with %d transactions", w.Transactions)
			if err != nil {
				return err
			}
			if !ok {
				break
			}
		}
	}
	for _, by := range []int64{4, 2} {
		for {
			w := m.w
			if w.VirtualTime = m.time() / by; w.VirtualTime < millisecond {
				break
			}
			ok, err := m.try(w, "in %s", ns(w.VirtualTime))
			if err != nil {
				return err
			}
			if !ok {
				break
			}
		}
	}
	return nil
}

func (m *minimiser) transactions() int {
	if m.w.Transactions == 0 {
		return defaultTransactions
	}
	return m.w.Transactions
}

func (m *minimiser) time() int64 {
	if m.w.VirtualTime == 0 {
		return defaultVirtualTime
	}
	return m.w.VirtualTime
}

// shorterFaults lets faults last less long, and hit fewer nodes.
func (m *minimiser) shorterFaults() error {
	change := func(i int, f func(*fault)) (bool, error) {
		w := m.w
		w.Schedule = append([]fault{}, m.w.Schedule...)
		f(&w.Schedule[i])
		return m.try(w, "with %v", w.Schedule[i])
	}
	for i := range m.w.Schedule {
		for m.w.Schedule[i].dur > millisecond {
			if ok, err := change(i, func(f *fault) { f.dur /= 2 }); err != nil || !ok {
				if err != nil {
					return err
				}
				break
			}
		}
		for k := 0; k < len(m.w.Schedule[i].a) && len(m.w.Schedule[i].a) > 1; {
			ok, err := change(i, func(f *fault) { f.a = append(append([]uint8{}, f.a[:k]...), f.a[k+1:]...) })
			if err != nil {
				return err
			}
			if !ok {
				k++
			}
		}
	}
	return nil
}

// fewerKinds leaves out what else makes a run different.
func (m *minimiser) fewerKinds() error {
	if m.w.Schedule == nil {
		return nil
	}
	for i := range faultSetNames {
		if f := faultSet(1) << i; m.w.Faults.has(f) && f != faultsDelay {
			w := m.w
			w.Faults &^= f
			if _, err := m.try(w, "without %s", faultSetNames[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
