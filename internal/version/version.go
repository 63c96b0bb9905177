// Package version says which Cohort this is: one number for people, links, files and the management protocol.
//
// It owns the version constants and nothing else. The number on the wire is packed as the management
// protocol packs it, major × 65536 + minor × 256 + build, so that clients compare versions as integers.
package version

import "fmt"

// The version of this tree. Nodes of one cluster may differ in Build, and by one in Minor.
const (
	Major = 0
	Minor = 1
	Build = 0
)

// Number is the packed version, as `get version` and `get status` report it.
const Number = Major<<16 | Minor<<8 | Build

// String is the version in dotted form, for example "0.1.0".
func String() string { return fmt.Sprintf("%d.%d.%d", Major, Minor, Build) }

// Format unpacks a number that came from another node or program into dotted form.
func Format(number uint32) string {
	return fmt.Sprintf("%d.%d.%d", number>>16, number>>8&0xff, number&0xff)
}
