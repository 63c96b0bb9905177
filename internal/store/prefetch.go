//go:build amd64 || arm64

package store

import "unsafe"

// Prefetch16 asks the processor for the cache lines at 16 addresses. It changes nothing, and an address may be
// anything (nil, out of the region).
//
//go:noescape
func Prefetch16(p *[16]unsafe.Pointer)
