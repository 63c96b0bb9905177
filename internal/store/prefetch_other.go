//go:build !amd64 && !arm64

package store

import "unsafe"

// Prefetch16 does nothing here: touch-ahead is only a hint.
func Prefetch16(*[16]unsafe.Pointer) {}

// PrefetchRows16 does nothing here.
func PrefetchRows16(*[16]unsafe.Pointer) {}
