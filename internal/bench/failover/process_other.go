//go:build !linux

package failover

import (
	"errors"
	"syscall"
	"time"
)

func withParent() *syscall.SysProcAttr { return nil }

func cpuOf(int) (time.Duration, error) {
	return 0, errors.New("CPU time of processes is read on Linux only")
}

func memoryMB() int { return 0 }
