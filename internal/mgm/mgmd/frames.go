package mgmd

import (
	"errors"
	"io"
	"net"
	"time"
	"unsafe"

	"github.com/cohortdb/cohort/internal/signal"
)

// frames cuts a link's stream into signals. Its buffer begins on a word boundary and frames are whole words, so that
// every frame can be read in place.
type frames struct {
	in   io.Reader
	buf  []byte
	from int // first byte not given out
	to   int // end of what was read
}

// frameRoom is where a link's buffer begins; it grows to the largest signal when one comes.
const frameRoom = 16 << 10

// newFrames reads frames from in, after the bytes that were read already.
func newFrames(in io.Reader, already []byte) *frames {
	f := &frames{in: in, buf: aligned(max(frameRoom, len(already)))}
	f.to = copy(f.buf, already)
	return f
}

// aligned makes n bytes, rounded up to words, that begin on a word boundary.
func aligned(n int) []byte {
	words := make([]uint32, (n+3)/4)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*4)
}

// next gives the next frame; it is good until the following call. A clean end is io.EOF.
func (f *frames) next() (*signal.Head, error) {
	for {
		n, fault := signal.Whole(f.buf[f.from:f.to])
		if fault != nil {
			return nil, fault
		}
		if n > 0 {
			h := (*signal.Head)(unsafe.Pointer(&f.buf[f.from]))
			f.from += int(n)
			return h, nil
		}
		if f.from > 0 {
			f.to = copy(f.buf, f.buf[f.from:f.to])
			f.from = 0
		}
		if f.to == len(f.buf) {
			bigger := aligned(min(2*len(f.buf), signal.MaxSize))
			copy(bigger, f.buf[:f.to])
			f.buf = bigger
		}
		got, err := f.in.Read(f.buf[f.to:])
		f.to += got
		if err != nil && got == 0 {
			if errors.Is(err, io.EOF) && f.to > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

// frame makes the bytes of a signal: the fixed part, which fill completes, and a text behind it.
func frame[T any](num uint16, to, from signal.Addr, text string, fill func(*T)) []byte {
	var z T
	size := uint32(unsafe.Sizeof(z))
	b := aligned(int(size + signal.Pad(uint32(len(text)))))
	h := (*signal.Head)(unsafe.Pointer(unsafe.SliceData(b)))
	h.Len, h.Num, h.To, h.From = uint16(len(b)/4), num, to, from
	copy(b[size:], text)
	if fill != nil {
		fill((*T)(unsafe.Pointer(unsafe.SliceData(b))))
	}
	return b
}

// as reads a checked frame as its layout.
func as[T any](h *signal.Head) *T { return (*T)(unsafe.Pointer(h)) }

// sendMax is how long a peer may take to read a signal of the server: they are few and small.
const sendMax = 5 * time.Second

func send(conn net.Conn, b []byte) error {
	if err := conn.SetWriteDeadline(time.Now().Add(sendMax)); err != nil {
		return err
	}
	_, err := conn.Write(b)
	return err
}

// bytesOf are the bytes of a whole frame.
func bytesOf(h *signal.Head) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(h)), h.Bytes()) }
