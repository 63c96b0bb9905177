// Package signal holds the addresses of blocks and every signal that travels between them: its number, its
// layout in bytes, how it prints, and how it is checked when it comes from another node.
//
// A signal is written once, in place, into the outgoing buffer of its destination, and read in place. Its
// layout is the Go struct's: little endian, every field 4-aligned or smaller, no 64-bit field (a GCI is two
// words, low first), so that struct layout and wire layout agree on every little-endian 64-bit machine. A
// signal means the same between blocks of a thread, threads of a node, and nodes. Variable parts ("sections":
// a key, row data, a table definition) follow the fixed struct, each padded to 4 bytes.
//
// The bytes of a signal die when its handler returns: whoever wants to keep something copies it. The
// simulator overwrites them to prove that nobody kept them.
//
// Names end in Req (please do), Conf (done), Ref (refused, with an error code), Rep (it happened, no answer
// expected) and Ord (do, no answer expected).
//
// The package never sends anything and knows no block's insides. Read next: kernel, which delivers signals.
package signal

import (
	"fmt"
	"reflect"
	"strings"
	"unsafe"
)

// Head starts every signal. Len counts 4-byte words, the head included.
type Head struct {
	Len, Num uint16
	To, From Addr
}

const (
	// HeadSize is the size of a Head in bytes.
	HeadSize = 12
	// MaxSize is the largest signal in bytes, head and sections included.
	MaxSize = 0xffff * 4
)

// Bytes is the length of the whole signal in bytes.
func (h *Head) Bytes() uint32 { return uint32(h.Len) * 4 }

// As reads a signal in place as T, whose number the caller has looked at.
func As[T any](h *Head) *T { return (*T)(unsafe.Pointer(h)) }

// Pad rounds a section's length up to whole words.
func Pad(n uint32) uint32 { return (n + 3) &^ 3 }

// GCI is a global checkpoint index: high word the global checkpoint, low word the micro-checkpoint (epoch).
type GCI uint64

// Words splits a GCI for a signal, low word first.
func (g GCI) Words() [2]uint32 { return [2]uint32{uint32(g), uint32(g >> 32)} }

// JoinGCI is the inverse of Words.
func JoinGCI(w [2]uint32) GCI { return GCI(w[0]) | GCI(w[1])<<32 }

func (g GCI) String() string { return fmt.Sprintf("%d/%d", uint32(g>>32), uint32(g)) }

// Who may send a signal over a link. Signals that stay within a node carry none of these.
const (
	fromData = 1 << iota // data nodes
	fromAPI              // API and SQL nodes
	fromMgm              // management servers
)

// info describes a signal number.
type info struct {
	name  string
	size  uint32       // of the fixed struct, bytes
	typ   reflect.Type // for printing
	from  uint8        // who may send it over a link
	check func(p unsafe.Pointer, n uint32) bool
}

var table [NumMax]info

// register enters a signal in the table; each file of layouts does so in an init, so that number, layout, rights
// and check of a signal stand beside it. check may be nil when the fixed struct is all there is.
func register[T any](num uint16, from uint8, check func(p *T, n uint32) bool) {
	var z T
	t := reflect.TypeOf(z)
	if table[num].name != "" {
		panic("signal: number " + fmt.Sprint(num) + " is used twice: " + t.Name())
	}
	size := uint32(unsafe.Sizeof(z))
	if size%4 != 0 || unsafe.Alignof(z) > 4 {
		panic("signal: " + t.Name() + " is not made of 4-byte words")
	}
	e := info{name: t.Name(), size: size, typ: t, from: from}
	if check == nil {
		e.check = func(_ unsafe.Pointer, n uint32) bool { return n == size }
	} else {
		e.check = func(p unsafe.Pointer, n uint32) bool { return n >= size && check((*T)(p), n) }
	}
	table[num] = e
}

// registerAs enters num as another number with the layout of T, under a name of its own.
func registerAs[T any](num uint16, name string, from uint8, check func(p *T, n uint32) bool) {
	register(num, from, check)
	table[num].name = name
}

// Name is the name of a signal number, "signal 99" for an unknown one.
func Name(num uint16) string {
	if int(num) < len(table) && table[num].name != "" {
		return table[num].name
	}
	return fmt.Sprintf("signal %d", num)
}

// Peer is the kind of node at the other end of a link.
type Peer uint8

// Kinds of peers.
const (
	PeerData Peer = fromData
	PeerAPI  Peer = fromAPI
	PeerMgm  Peer = fromMgm
)

// Fault says why a frame from a link was refused.
type Fault struct {
	Reason string
	Num    uint16
	Len    uint32
}

func (f *Fault) Error() string {
	return fmt.Sprintf("bad frame: %s (%s, %d bytes)", f.Reason, Name(f.Num), f.Len)
}

// Whole reports the length in bytes of the frame at the start of b, or 0 when b does not hold it whole yet.
// It returns a Fault for a length that no signal can have.
func Whole(b []byte) (uint32, *Fault) {
	if len(b) < HeadSize {
		return 0, nil
	}
	h := (*Head)(unsafe.Pointer(unsafe.SliceData(b)))
	n := h.Bytes()
	if n < HeadSize {
		return 0, &Fault{"shorter than a head", h.Num, n}
	}
	if uint32(len(b)) < n {
		return 0, nil
	}
	return n, nil
}

// CheckHead examines what the head of a frame says, before the rest has come: the number, the length, whether such a
// peer may send it, and both node numbers.
func CheckHead(h *Head, kind Peer, peer, self uint8) *Fault {
	n := h.Bytes()
	if h.Num >= NumMax || table[h.Num].check == nil {
		return &Fault{"unknown number", h.Num, n}
	}
	e := &table[h.Num]
	switch {
	case e.from&uint8(kind) == 0:
		return &Fault{"not for such a peer to send", h.Num, n}
	case n < e.size:
		return &Fault{"too short", h.Num, n}
	case h.From.Node() != peer:
		return &Fault{"sent in another node's name", h.Num, n}
	case h.To.Node() != self:
		return &Fault{"meant for another node", h.Num, n}
	case !handshake(h.Num) && takenBy[h.Num]>>(h.To.Block()&(MaxBlocks-1))&1 == 0:
		return &Fault{"not for such a block", h.Num, n}
	}
	return nil
}

// Check examines one whole frame from a link before any block sees it: its head, and whether its sections fit. peer is
// the node at the other end, self the receiver.
func Check(h *Head, kind Peer, peer, self uint8) *Fault {
	if f := CheckHead(h, kind, peer, self); f != nil {
		return f
	}
	if n := h.Bytes(); !table[h.Num].check(unsafe.Pointer(h), n) {
		return &Fault{"sections do not fit", h.Num, n}
	}
	return nil
}

// CheckLayout examines a signal that stays within its node: number, length, sections.
func CheckLayout(h *Head) *Fault {
	n := h.Bytes()
	switch {
	case h.Num >= NumMax || table[h.Num].check == nil:
		return &Fault{"unknown number", h.Num, n}
	case n < table[h.Num].size:
		return &Fault{"too short", h.Num, n}
	case !table[h.Num].check(unsafe.Pointer(h), n):
		return &Fault{"sections do not fit", h.Num, n}
	}
	return nil
}

// FixedSize is the size of a signal without its sections in bytes, 0 for an unknown number.
func FixedSize(num uint16) uint32 {
	if num >= NumMax {
		return 0
	}
	return table[num].size
}

// Format prints a signal for traces: name, addresses, fields. One that is shorter than its fields is printed without
// them. It is slow.
func Format(h *Head) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s %v -> %v", Name(h.Num), h.From, h.To)
	if int(h.Num) < len(table) && table[h.Num].typ != nil && h.Bytes() >= table[h.Num].size {
		v := reflect.NewAt(table[h.Num].typ, unsafe.Pointer(h)).Elem()
		for i := 1; i < v.NumField(); i++ {
			fmt.Fprintf(&s, " %s=%v", v.Type().Field(i).Name, v.Field(i).Interface())
		}
	}
	if x := h.Bytes() - min(h.Bytes(), table[h.Num%NumMax].size); x > 0 {
		fmt.Fprintf(&s, " +%d bytes", x)
	}
	return s.String()
}

// tail returns the n bytes that follow the fixed struct T at offset off behind it.
func tail[T any](p *T, off, n uint32) []byte {
	if n == 0 { // where it would begin may be the end of the memory
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(p), uint32(unsafe.Sizeof(*p))+off)), n)
}
