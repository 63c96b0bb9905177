package client

import (
	"fmt"
	"unsafe"

	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
)

// Codec is how a value lies in a program's memory.
type Codec uint8

// Codecs. "The column" is the value's bytes in a row image; Binding.Size the bytes of the field.
const (
	CodecRaw    Codec = iota // the same bytes as the column; Size is the column's
	CodecInt                 // a signed integer of another size than its integer column's, checked when written
	CodecUint                // the same, unsigned
	CodecDouble              // a float64 for a 32-bit column
	CodecBool                // a bool for an 8-bit column
	CodecString              // a Go string, for a character or binary column
	CodecBytes               // a Go []byte, for a character or binary column
	CodecSlice               // a Go slice of a numeric array column's elements, exactly as many as it has
	CodecInline              // a uint32 length and then up to as many bytes as the column may have, for a variable column
)

// Nulls is how a field says NULL.
type Nulls uint8

const (
	NullNever   Nulls = iota // it cannot; a NULL that is read leaves the zero value
	NullPointer              // the field is a pointer, nil for NULL
	NullFlag                 // a bool at Binding.Flag is false for NULL
)

// Binding ties a column to a place in a program's memory.
type Binding struct {
	Column int // of the table
	Off    uintptr
	Size   uint32 // bytes of the field's value, behind the pointer if it is one
	Codec  Codec
	Nulls  Nulls
	Flag   uintptr // NullFlag: where the bool is
}

// step copies one column, or with codec CodecRaw and without NULL any number of columns that lie side by side on both
// sides.
type step struct {
	off    uintptr
	flag   uintptr
	at     uint32 // in the image or the packed values
	bytes  uint32 // of the column, the longest if it varies
	pad    uint32 // bytes with padding
	size   uint32 // of the field
	bit    uint32 // number among the non-key columns
	codec  Codec
	nulls  Nulls
	typ    schema.ColumnType
	signed bool // an integer column with sign
	null   bool // the column may be NULL
	vary   bool
}

// Format is a set of columns of a table bound to places in memory, compiled into copies. It does not change and may be
// shared; it relies on nothing but unsafe pointers at run time.
type Format struct {
	table *Table
	flags uint8 // FlagAll: every non-key column is bound, and whole images travel

	key      []step
	keyFixed uint32 // bytes of the key image if it does not vary
	key8     bool   // the key is 8 bytes side by side in memory, at keyOff
	keyOff   uintptr

	mask     []uint32 // of the bound columns; nil with FlagAll
	fixed    []step
	vari     []step
	fixedLen uint32 // null words and fixed columns, bytes
	varHead  uint32 // FlagAll: bytes of the ends
	plain    bool   // nothing but CodecRaw, no NULL, no padding, nothing variable
	checked  bool   // values must be looked at before they are written
}

// Table is the format's table.
func (f *Format) Table() *Table { return f.table }

// NewFormat compiles bindings. Every key column must be bound; the order does not matter.
func NewFormat(t *Table, bindings []Binding) (*Format, error) {
	f := &Format{table: t}
	by := make([]*Binding, len(t.Def.Columns))
	for i := range bindings {
		b := &bindings[i]
		if b.Column < 0 || b.Column >= len(by) || by[b.Column] != nil {
			return nil, fmt.Errorf("column %d is bound twice or does not exist", b.Column)
		}
		by[b.Column] = b
	}
	l := t.Layout
	words := make([]uint32, l.MaskWords)
	all := true
	for i := range by {
		p := l.Place(i)
		switch {
		case by[i] == nil && p.Key:
			return nil, fmt.Errorf("key column %s is not bound", t.Def.Columns[i].Name)
		case by[i] == nil:
			all = false
		case !p.Key:
			words[p.Index/32] |= 1 << (p.Index % 32)
		}
	}
	if all {
		f.flags = signal.FlagAll
		f.varHead = l.VarHead
	} else {
		f.mask = words
	}
	f.fixedLen = 4 * l.NullWords
	for i := range by {
		if by[i] == nil {
			continue
		}
		s, err := newStep(t, by[i])
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", t.Def.Columns[i].Name, err)
		}
		p := l.Place(i)
		switch {
		case p.Key:
			if s.nulls == NullPointer || s.nulls == NullFlag {
				return nil, fmt.Errorf("column %s: a key column cannot be NULL, so its field cannot", t.Def.Columns[i].Name)
			}
			f.key = append(f.key, s)
		case p.Variable:
			f.vari = append(f.vari, s)
		default:
			s.at = f.fixedLen
			f.fixedLen += s.pad
			f.fixed = append(f.fixed, s)
		}
	}
	f.compile()
	return f, nil
}

func newStep(t *Table, b *Binding) (step, error) {
	c := &t.Def.Columns[b.Column]
	p := t.Layout.Place(b.Column)
	s := step{off: b.Off, flag: b.Flag, bytes: p.Bytes, pad: signal.Pad(p.Bytes), size: b.Size, bit: p.Index,
		codec: b.Codec, nulls: b.Nulls, typ: c.Type, null: p.Nullable, vary: p.Variable}
	integer := c.Type >= schema.Tinyint && c.Type <= schema.Bigunsigned
	s.signed = integer && c.Type%2 == 1
	text := c.Type >= schema.Char && c.Type <= schema.Varbinary
	one := !text && c.Length <= 1
	ok := false
	switch b.Codec {
	case CodecRaw:
		ok = !p.Variable && b.Size == p.Bytes
	case CodecInt:
		ok = integer && one && s.signed
	case CodecUint:
		ok = integer && one && !s.signed
	case CodecDouble:
		ok = c.Type == schema.Float && one
	case CodecBool:
		ok = integer && one && p.Bytes == 1
	case CodecString, CodecBytes:
		ok = text
	case CodecSlice:
		ok = !text && p.Bytes%max(b.Size, 1) == 0
	case CodecInline:
		ok = p.Variable
	}
	if !ok {
		return s, fmt.Errorf("a field of that type cannot hold %v", c.Type)
	}
	return s, nil
}

// compile merges steps and finds out what may be left away.
func (f *Format) compile() {
	f.keyFixed = f.table.Layout.KeyFixed
	if f.keyFixed != 0 {
		at := uint32(0)
		for i := range f.key {
			f.key[i].at = at
			at += f.key[i].pad
		}
		f.key = merge(f.key)
		if k := &f.key[0]; len(f.key) == 1 && k.codec == CodecRaw && k.bytes == 8 {
			f.key8, f.keyOff = true, k.off
		}
	}
	f.fixed = merge(f.fixed)
	f.plain = len(f.vari) == 0 && f.table.Layout.NullWords == 0
	for i := range f.fixed {
		s := &f.fixed[i]
		f.plain = f.plain && s.codec == CodecRaw && s.nulls == NullNever && s.bytes == s.pad
		f.checked = f.checked || s.codec != CodecRaw || s.nulls != NullNever
	}
}

func merge(steps []step) []step {
	var out []step
	for _, s := range steps {
		if n := len(out); n > 0 {
			p := &out[n-1]
			if p.codec == CodecRaw && s.codec == CodecRaw && p.nulls == NullNever && s.nulls == NullNever && !p.null && !s.null &&
				p.bytes == p.pad && p.off+uintptr(p.bytes) == s.off && p.at+p.bytes == s.at {
				p.bytes += s.bytes
				p.pad += s.pad
				p.size = p.bytes
				continue
			}
		}
		out = append(out, s)
	}
	return out
}

func move(dst, src unsafe.Pointer, n uint32) {
	switch n {
	case 4:
		*(*uint32)(dst) = *(*uint32)(src)
	case 8:
		*(*[2]uint32)(dst) = *(*[2]uint32)(src)
	default:
		copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
	}
}

func zero(p unsafe.Pointer, n uint32) { clear(unsafe.Slice((*byte)(p), n)) }

// Place finds the fragment of the row whose key is in row, and the ldm that had its primary when the table was looked up.
func (f *Format) Place(row unsafe.Pointer) (fragment int, primary signal.Addr, err *ndberror.Error) {
	frag := uint16(0)
	if f.key8 {
		frag = f.table.fragment(unsafe.Add(row, f.keyOff), 8)
	} else {
		var key [schema.MaxKeyBytes/8 + 1]uint64
		n, code := f.putKey(row, unsafe.Pointer(&key))
		if code != 0 {
			return 0, 0, ndberror.Get(int(code))
		}
		frag = f.table.fragment(unsafe.Pointer(&key), n)
	}
	return int(frag), f.table.first.primary(frag), nil
}
