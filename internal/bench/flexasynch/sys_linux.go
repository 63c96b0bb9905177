package flexasynch

import (
	"fmt"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// ownCPU is the user and system time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// memoryMB is the memory of the machine.
func memoryMB() int {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return 0
	}
	return int(uint64(info.Totalram) * uint64(info.Unit) >> 20)
}

// bind keeps the calling goroutine on a thread of its own, and that thread on one CPU. The thread ends with the
// goroutine.
func bind(cpu int) error {
	runtime.LockOSThread()
	var set [cpusMax / 64]uint64
	set[cpu/64] = 1 << (cpu % 64)
	_, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(set), uintptr(unsafe.Pointer(&set)))
	if errno != 0 {
		return fmt.Errorf("a thread cannot be bound to CPU %d: %w: name CPUs that this process may use", cpu, errno)
	}
	return nil
}
