//go:build amd64 || arm64

package store

import "unsafe"

// Prefetch16 asks the processor for the cache lines at 16 addresses. It changes nothing, and an address may be
// anything (nil, out of the region).
//
//go:noescape
func Prefetch16(p *[16]unsafe.Pointer)

// PrefetchRows16 is Prefetch16 for rows: it asks for the line 24 bytes behind each address too, since a third of small
// rows lie across two lines. The second request costs nothing when it is the same line.
//
//go:noescape
func PrefetchRows16(p *[16]unsafe.Pointer)
