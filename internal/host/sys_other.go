//go:build !linux

package host

import (
	"errors"
	"net"
	"syscall"
	"unsafe"
)

// A data node's loops are made of epoll and eventfd. Elsewhere New answers with this error; everything else of
// Cohort (management, clients, simulator) runs there.
var errSystem = errors.New("data nodes run on Linux only: run them there, and clients wherever you like")

const (
	readable = 1
	writable = 4
	broken   = 24
	hungup   = 8192
	errAgain = syscall.EAGAIN
)

type ready struct {
	Events uint32
	Fd     int32
}

type poller struct{ ev int }

func (p *poller) open() error              { return errSystem }
func (p *poller) close()                   {}
func (p *poller) add(int, uint32) error    { return errSystem }
func (p *poller) change(int, uint32) error { return errSystem }
func (p *poller) peek() []ready            { return nil }
func (p *poller) wait(int) []ready         { return nil }
func (p *poller) wake()                    {}
func (p *poller) woken()                   {}
func hungUp(int) bool                      { return false }
func whyBroken(int) string                 { return "" }
func unread(int) int                       { return 0 }
func closeSocket(int)                      {}
func finish(int)                           {}
func adviseHuge(unsafe.Pointer, uintptr)   {}
func discard(unsafe.Pointer, uintptr)      {}
func lock(unsafe.Pointer, uintptr) error   { return errSystem }

// MachineMemory is the memory of the machine in bytes, 0 if it cannot be known.
func MachineMemory() int64 { return 0 }

func receive(int, []byte) (int, syscall.Errno)  { return 0, syscall.EINVAL }
func transmit(int, []byte) (int, syscall.Errno) { return 0, syscall.EINVAL }
func takeSocket(net.Conn, *Peer) (int, error)   { return -1, errSystem }
func reserve(uintptr) (unsafe.Pointer, error)   { return nil, errSystem }
