// Package invariant holds the assertions that stay on in production.
//
// An assertion states what must never happen whatever comes from outside; a broken one is a BUG: the node
// prints the reason, leaves its last signals and dies, and the cluster lives on. Input from outside (frames,
// files, configuration, SQL) is never asserted but answered with an error.
//
// Two forms, because a variadic check allocates its arguments even when it holds (66 ns and 2 allocations,
// against 0.8 ns and none):
//
//	invariant.That(n < cap, "the ring has room")
//	if n >= cap { invariant.Failf("ring %d: %d of %d", id, n, cap) }
package invariant

import "fmt"

// Violation is the value that a broken assertion panics with, so that a runtime can tell a BUG from other panics.
type Violation struct{ Reason string }

func (v Violation) Error() string { return "invariant broken: " + v.Reason }

// That panics with a Violation unless ok. The text says what must hold.
func That(ok bool, text string) {
	if !ok {
		fail(text)
	}
}

//go:noinline
func fail(text string) { panic(Violation{text}) }

// Failf panics with a Violation; call it inside an if so that its arguments cost nothing while all is well.
//
//go:noinline
func Failf(format string, args ...any) { panic(Violation{fmt.Sprintf(format, args...)}) }
