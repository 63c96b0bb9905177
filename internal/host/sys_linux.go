package host

import (
	"net"
	"os"
	"syscall"
	"unsafe"
)

// Events of a socket, as epoll names them.
const (
	readable = syscall.EPOLLIN
	writable = syscall.EPOLLOUT
	broken   = syscall.EPOLLERR | syscall.EPOLLHUP
	hungup   = syscall.EPOLLRDHUP
)

// errAgain says that a socket has nothing to give or takes nothing now.
const errAgain = syscall.EAGAIN

// ready is one event: Fd and Events.
type ready = syscall.EpollEvent

// poller is an epoll set with an eventfd that wakes it.
type poller struct {
	ep, ev int
	list   [64]ready
}

func (p *poller) open() error {
	var err error
	if p.ep, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	const nonblock, cloexec = 0x800, 0x80000
	fd, _, e := syscall.RawSyscall(syscall.SYS_EVENTFD2, 0, nonblock|cloexec, 0)
	if e != 0 {
		_ = syscall.Close(p.ep)
		return os.NewSyscallError("eventfd2", e)
	}
	p.ev = int(fd)
	if err := p.add(p.ev, readable); err != nil {
		p.close()
		return err
	}
	return nil
}

func (p *poller) close() {
	_ = syscall.Close(p.ev)
	_ = syscall.Close(p.ep)
}

func (p *poller) add(fd int, events uint32) error {
	return os.NewSyscallError("epoll_ctl", syscall.EpollCtl(p.ep, syscall.EPOLL_CTL_ADD, fd, &ready{Events: events, Fd: int32(fd)}))
}

func (p *poller) change(fd int, events uint32) error {
	return os.NewSyscallError("epoll_ctl", syscall.EpollCtl(p.ep, syscall.EPOLL_CTL_MOD, fd, &ready{Events: events, Fd: int32(fd)}))
}

// peek asks what is ready without waiting; it cannot block, so Go's scheduler need not hear of it.
func (p *poller) peek() []ready {
	n, _, e := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(p.ep), uintptr(unsafe.Pointer(&p.list[0])), uintptr(len(p.list)), 0, 0, 0)
	if e != 0 {
		return nil
	}
	return p.list[:n]
}

// wait blocks until something is ready or msec milliseconds have passed; -1 waits for ever.
func (p *poller) wait(msec int) []ready {
	n, err := syscall.EpollWait(p.ep, p.list[:], msec)
	if err != nil {
		return nil
	}
	return p.list[:n]
}

// wake makes the set ready; any thread may call it.
func (p *poller) wake() {
	one := uint64(1)
	_, _, _ = syscall.RawSyscall(syscall.SYS_WRITE, uintptr(p.ev), uintptr(unsafe.Pointer(&one)), 8)
}

// woken takes the wake-up back.
func (p *poller) woken() {
	var n uint64
	_, _, _ = syscall.RawSyscall(syscall.SYS_READ, uintptr(p.ev), uintptr(unsafe.Pointer(&n)), 8)
}

// receive reads from a socket that does not block. 0 bytes: the peer closed.
func receive(fd int, b []byte) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall(syscall.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if e == syscall.EINTR {
		e = syscall.EAGAIN
	}
	return int(n), e
}

// transmit writes to a socket that does not block; a closed peer gives an error, not a process signal.
func transmit(fd int, b []byte) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		syscall.MSG_NOSIGNAL|syscall.MSG_DONTWAIT, 0, 0)
	if e == syscall.EINTR {
		e = syscall.EAGAIN
	}
	return int(n), e
}

// hungUp tells whether the peer has closed a socket that nothing was read from yet.
func hungUp(fd int) bool {
	var b [1]byte
	n, _, e := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), 1, syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
	return e == 0 && n == 0 || e != 0 && e != syscall.EAGAIN && e != syscall.EINTR
}

// whyBroken says why a socket is broken.
func whyBroken(fd int) string {
	if e, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ERROR); err == nil && e != 0 {
		return syscall.Errno(e).Error()
	}
	return "closed by the peer"
}

// unread is how many bytes a socket has for us.
func unread(fd int) int {
	var n int32
	_, _, e := syscall.RawSyscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TIOCINQ, uintptr(unsafe.Pointer(&n)))
	if e != 0 {
		return 0
	}
	return int(n)
}

func closeSocket(fd int) { _ = syscall.Close(fd) }

// finish tells the peer that nothing more comes and throws away what it sent, so that closing does not destroy what
// is still on its way to it.
func finish(fd int) {
	_ = syscall.Shutdown(fd, syscall.SHUT_WR)
	var b [4096]byte
	for range 64 {
		if n, e := receive(fd, b[:]); e != 0 || n == 0 {
			break
		}
	}
	_ = syscall.Close(fd)
}

// takeSocket makes a connection's socket ours: a descriptor of our own that does not block, with what the peer's
// configuration asks for. The connection is closed; bytes that it has buffered in the kernel stay.
func takeSocket(c net.Conn, p *Peer) (int, error) {
	defer c.Close()
	sc, ok := c.(syscall.Conn)
	if !ok {
		return -1, &net.OpError{Op: "adopt", Net: c.RemoteAddr().Network(), Addr: c.RemoteAddr(), Err: syscall.ENOTSOCK}
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	var e syscall.Errno
	err = raw.Control(func(s uintptr) {
		var r uintptr
		if r, _, e = syscall.Syscall(syscall.SYS_FCNTL, s, syscall.F_DUPFD_CLOEXEC, 0); e == 0 {
			fd = int(r)
		}
	})
	if err == nil && e != 0 {
		err = os.NewSyscallError("fcntl", e)
	}
	if err != nil {
		return -1, err
	}
	if err = syscall.SetNonblock(fd, true); err != nil {
		_ = syscall.Close(fd)
		return -1, err
	}
	_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	bufferSize(fd, syscall.SO_SNDBUF, p.SendKernel)
	bufferSize(fd, syscall.SO_RCVBUF, p.ReceiveKernel)
	if p.Silence > 0 {
		watchSilence(fd, p.Silence)
	}
	if p.MaxSegment > 0 {
		_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, p.MaxSegment)
	}
	return fd, nil
}

// watchSilence makes the system find out when the machine at the other end is gone: by questions while nothing is under
// way, and by what stays unconfirmed.
func watchSilence(fd, msec int) {
	const questions, userTimeout = 3, 18 // TCP_USER_TIMEOUT
	seconds := max(1, msec/1000/(questions+1))
	_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1)
	_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, seconds)
	_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, seconds)
	_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, questions)
	_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, userTimeout, msec)
}

// bufferSize asks for a kernel buffer. Beyond the system's limit only a privileged process gets it; the rest get what
// the limit allows.
func bufferSize(fd, option, bytes int) {
	if bytes <= 0 {
		return
	}
	force := syscall.SO_SNDBUFFORCE
	if option == syscall.SO_RCVBUF {
		force = syscall.SO_RCVBUFFORCE
	}
	if syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, force, bytes) != nil {
		_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, option, bytes)
	}
}

// reserve takes a range of addresses that becomes memory as it is touched, in huge pages where the system agrees.
func reserve(bytes uintptr) (unsafe.Pointer, error) {
	m, err := syscall.Mmap(-1, 0, int(bytes), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return unsafe.Pointer(&m[0]), nil
}

// adviseHuge asks for huge pages in a range.
func adviseHuge(p unsafe.Pointer, bytes uintptr) {
	_ = syscall.Madvise(unsafe.Slice((*byte)(p), bytes), syscall.MADV_HUGEPAGE)
}

// MachineMemory is the memory of the machine in bytes, 0 if it cannot be known.
func MachineMemory() int64 {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return 0
	}
	return int64(uint64(info.Totalram) * uint64(info.Unit))
}

// lock makes a range of addresses resident for good.
func lock(p unsafe.Pointer, bytes uintptr) error {
	return os.NewSyscallError("mlock", syscall.Mlock(unsafe.Slice((*byte)(p), bytes)))
}

// discard gives the memory behind a range of addresses back to the system; it reads as zeros when touched again.
func discard(p unsafe.Pointer, bytes uintptr) {
	_ = syscall.Madvise(unsafe.Slice((*byte)(p), bytes), syscall.MADV_DONTNEED)
}
