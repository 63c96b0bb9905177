package mgmd

import (
	"net"
	"syscall"
)

// unconfirmed bounds how long what was sent to a peer may stay unconfirmed by its machine: while something is under way
// the system asks no questions.
func unconfirmed(c *net.TCPConn, msec int) {
	const userTimeout = 18 // TCP_USER_TIMEOUT
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, userTimeout, msec) })
	}
}
