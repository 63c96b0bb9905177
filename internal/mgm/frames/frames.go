// Package frames reads and writes signals on a plain connection: the links of a management server, which carry little,
// need none of a data node's event loops.
//
// It owns the buffer of one connection and knows no signal's meaning. It never checks more than that a frame is whole;
// the receiver checks the rest (signal.Check) because only it knows who is at the other end. Invariants: every frame
// begins on a word boundary; a buffer never grows beyond the largest signal; a frame is good until the next is read.
package frames

import (
	"errors"
	"io"
	"net"
	"time"
	"unsafe"

	"github.com/cohortdb/cohort/internal/signal"
)

// Reader cuts a stream into signals.
type Reader struct {
	in   io.Reader
	buf  []byte
	from int // first byte not given out
	to   int // end of what was read
}

// room is where a buffer begins; it grows to the largest signal when one comes.
const room = 16 << 10

// NewReader reads frames from in, after the bytes that were read already.
func NewReader(in io.Reader, already []byte) *Reader {
	r := &Reader{in: in, buf: aligned(max(room, len(already)))}
	r.to = copy(r.buf, already)
	return r
}

// aligned makes n bytes, rounded up to words, that begin on a word boundary.
func aligned(n int) []byte {
	words := make([]uint32, (n+3)/4)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*4)
}

// Next gives the next frame; it is good until the following call. A clean end is io.EOF.
func (r *Reader) Next() (*signal.Head, error) {
	for {
		n, fault := signal.Whole(r.buf[r.from:r.to])
		if fault != nil {
			return nil, fault
		}
		if n > 0 {
			h := (*signal.Head)(unsafe.Pointer(&r.buf[r.from]))
			r.from += int(n)
			return h, nil
		}
		if r.from > 0 {
			r.to = copy(r.buf, r.buf[r.from:r.to])
			r.from = 0
		}
		if r.to == len(r.buf) {
			bigger := aligned(max(signal.MaxSize, len(r.buf)))
			copy(bigger, r.buf[:r.to])
			r.buf = bigger
		}
		got, err := r.in.Read(r.buf[r.to:])
		r.to += got
		if err != nil && got == 0 {
			if errors.Is(err, io.EOF) && r.to > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

// Make makes the bytes of a signal: the fixed part, which fill completes, and a text behind it.
func Make[T any](num uint16, to, from signal.Addr, text string, fill func(*T)) []byte {
	var z T
	size := uint32(unsafe.Sizeof(z))
	b := aligned(int(size + signal.Pad(uint32(len(text)))))
	h := Head(b)
	h.Len, h.Num, h.To, h.From = uint16(len(b)/4), num, to, from
	copy(b[size:], text)
	if fill != nil {
		fill((*T)(unsafe.Pointer(h)))
	}
	return b
}

// As reads a checked frame as its layout.
func As[T any](h *signal.Head) *T { return (*T)(unsafe.Pointer(h)) }

// Head is the head of a whole frame that Make or Copy gave.
func Head(b []byte) *signal.Head { return (*signal.Head)(unsafe.Pointer(unsafe.SliceData(b))) }

// Copy keeps a frame beyond the next one.
func Copy(h *signal.Head) []byte {
	b := aligned(int(h.Bytes()))
	copy(b, unsafe.Slice((*byte)(unsafe.Pointer(h)), h.Bytes()))
	return b
}

// sendMax is how long a peer may take to read a signal: they are few and small.
const sendMax = 5 * time.Second

// Send writes the bytes of a signal.
func Send(conn net.Conn, b []byte) error {
	if err := conn.SetWriteDeadline(time.Now().Add(sendMax)); err != nil {
		return err
	}
	_, err := conn.Write(b)
	return err
}
