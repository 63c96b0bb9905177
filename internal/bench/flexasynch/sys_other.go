//go:build !linux

package flexasynch

import (
	"errors"
	"time"
)

// ownCPU is not known on this system.
func ownCPU() time.Duration { return 0 }

// memoryMB is not known on this system.
func memoryMB() int { return 0 }

func bind(int) error {
	return errors.New("threads can be bound to CPUs on Linux only: leave the CPU lists out")
}
