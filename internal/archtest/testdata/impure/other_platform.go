//go:build plan9

package impure

import "os" // want: I/O

func elsewhere(f func()) {
	go f() // want: go
	_ = os.Args
}
