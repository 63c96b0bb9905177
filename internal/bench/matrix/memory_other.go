//go:build !linux

package matrix

// memoryMB is not known on this system.
func memoryMB() int { return 0 }
