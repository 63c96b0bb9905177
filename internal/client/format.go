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

// measure writes the key image to key and says how long it and the data section of an operation are, or why the values
// in row cannot be used.
func (f *Format) measure(row, key unsafe.Pointer, kind uint8) (keyLen, dataLen, code uint32) {
	if f.key8 {
		keyLen = 8
		*(*[2]uint32)(key) = *(*[2]uint32)(unsafe.Add(row, f.keyOff))
	} else if keyLen, code = f.putKey(row, key); code != 0 {
		return 0, 0, code
	}
	switch {
	case signal.IsRead(kind):
		return keyLen, 4 * uint32(len(f.mask)), 0
	case kind == signal.OpDelete:
		return keyLen, 0, 0
	}
	dataLen = 4*uint32(len(f.mask)) + f.fixedLen
	if f.checked {
		if code = f.check(row); code != 0 {
			return 0, 0, code
		}
	}
	if len(f.vari) > 0 || f.varHead > 0 {
		n, code := f.varSize(row)
		return keyLen, dataLen + n, code
	}
	return keyLen, dataLen, 0
}

// putKey writes the key image.
func (f *Format) putKey(row, key unsafe.Pointer) (n, code uint32) {
	if f.keyFixed != 0 {
		for i := range f.key {
			s := &f.key[i]
			dst := unsafe.Add(key, s.at)
			if s.codec == CodecRaw && s.bytes == s.pad {
				move(dst, unsafe.Add(row, s.off), s.bytes)
				continue
			}
			if code := s.check(row); code != 0 {
				return 0, code
			}
			zero(unsafe.Add(dst, s.pad-4), 4)
			s.put(dst, unsafe.Add(row, s.off))
		}
		return f.keyFixed, 0
	}
	for i := range f.key {
		s := &f.key[i]
		if code := s.check(row); code != 0 {
			return 0, code
		}
		src := unsafe.Add(row, s.off)
		if !s.vary {
			zero(unsafe.Add(key, n+s.pad-4), 4)
			s.put(unsafe.Add(key, n), src)
			n += s.pad
			continue
		}
		p, m := s.bytesOf(src)
		end := signal.Pad(2 + m)
		zero(unsafe.Add(key, n+end-4), 4)
		*(*uint16)(unsafe.Add(key, n)) = uint16(m)
		move(unsafe.Add(key, n+2), p, m)
		n += end
	}
	return n, 0
}

// check looks at every value that is to be written.
func (f *Format) check(row unsafe.Pointer) uint32 {
	for i := range f.fixed {
		if s := &f.fixed[i]; s.codec != CodecRaw || s.nulls != NullNever {
			if code := s.check(row); code != 0 {
				return code
			}
		}
	}
	return 0
}

// value is where a field's value is; nil for NULL.
func (s *step) value(row unsafe.Pointer) unsafe.Pointer {
	p := unsafe.Add(row, s.off)
	switch s.nulls {
	case NullPointer:
		return *(*unsafe.Pointer)(p)
	case NullFlag:
		if !*(*bool)(unsafe.Add(row, s.flag)) {
			return nil
		}
	}
	return p
}

// check says whether a field's value fits its column.
func (s *step) check(row unsafe.Pointer) uint32 {
	p := s.value(row)
	if p == nil {
		if s.null {
			return 0
		}
		return ndberror.NullNotAllowed
	}
	switch s.codec {
	case CodecInt:
		v, top := loadInt(p, s.size), int64(1)<<(8*s.bytes-1)
		if s.bytes < 8 && (v >= top || v < -top) {
			return ndberror.ValueTooLong
		}
	case CodecUint:
		if s.bytes < 8 && loadUint(p, s.size)>>(8*s.bytes) != 0 {
			return ndberror.ValueTooLong
		}
	case CodecSlice:
		if uint32(len(*(*[]byte)(p)))*s.size != s.bytes {
			return ndberror.ValueTooLong
		}
	case CodecString, CodecBytes, CodecInline:
		if _, n := s.bytesOf(p); n > s.bytes {
			return ndberror.ValueTooLong
		}
	}
	return 0
}

// bytesOf is a string's, slice's or inline value's bytes.
func (s *step) bytesOf(p unsafe.Pointer) (unsafe.Pointer, uint32) {
	switch s.codec {
	case CodecString:
		v := *(*string)(p)
		return unsafe.Pointer(unsafe.StringData(v)), uint32(min(len(v), 1<<31))
	case CodecInline:
		return unsafe.Add(p, 4), *(*uint32)(p)
	}
	v := *(*[]byte)(p)
	return unsafe.Pointer(unsafe.SliceData(v)), uint32(min(len(v), 1<<31))
}

func loadInt(p unsafe.Pointer, size uint32) int64 {
	switch size {
	case 1:
		return int64(*(*int8)(p))
	case 2:
		return int64(*(*int16)(p))
	case 4:
		return int64(*(*int32)(p))
	}
	return *(*int64)(p)
}

func loadUint(p unsafe.Pointer, size uint32) uint64 {
	switch size {
	case 1:
		return uint64(*(*uint8)(p))
	case 2:
		return uint64(*(*uint16)(p))
	case 4:
		return uint64(*(*uint32)(p))
	}
	return *(*uint64)(p)
}

// put writes a checked value into a fixed column whose padding is zero already.
func (s *step) put(dst, p unsafe.Pointer) {
	switch s.codec {
	case CodecRaw:
		move(dst, p, s.bytes)
	case CodecInt, CodecUint:
		v := loadUint(p, s.size)
		if s.codec == CodecInt {
			v = uint64(loadInt(p, s.size))
		}
		for i := range s.bytes {
			*(*byte)(unsafe.Add(dst, i)) = byte(v >> (8 * i))
		}
	case CodecDouble:
		*(*float32)(dst) = float32(*(*float64)(p))
	case CodecBool:
		*(*byte)(dst) = 0
		if *(*bool)(p) {
			*(*byte)(dst) = 1
		}
	case CodecSlice:
		move(dst, unsafe.Pointer(unsafe.SliceData(*(*[]byte)(p))), s.bytes)
	case CodecString, CodecBytes:
		q, n := s.bytesOf(p)
		move(dst, q, n)
		fill := byte(0)
		if s.typ == schema.Char {
			fill = ' '
		}
		for ; n < s.bytes; n++ {
			*(*byte)(unsafe.Add(dst, n)) = fill
		}
	}
}

// varSize is the length of the variable part of a write.
func (f *Format) varSize(row unsafe.Pointer) (n, code uint32) {
	for i := range f.vari {
		s := &f.vari[i]
		if code = s.check(row); code != 0 {
			return 0, code
		}
		m := uint32(0)
		if p := s.value(row); p != nil {
			_, m = s.bytesOf(p)
		}
		if f.mask != nil {
			m = signal.Pad(2 + m)
		}
		n += m
	}
	if f.mask == nil {
		n = signal.Pad(f.varHead + n)
	}
	return n, 0
}

// data writes the data section of an operation, n bytes as measure said.
func (f *Format) data(row, dst unsafe.Pointer, kind uint8, n uint32) {
	for _, w := range f.mask {
		*(*uint32)(dst) = w
		dst = unsafe.Add(dst, 4)
	}
	if signal.IsRead(kind) {
		return
	}
	if f.plain {
		for i := range f.fixed {
			s := &f.fixed[i]
			move(unsafe.Add(dst, s.at), unsafe.Add(row, s.off), s.bytes)
		}
		return
	}
	n -= 4 * uint32(len(f.mask))
	zero(dst, n)
	for i := range f.fixed {
		s := &f.fixed[i]
		if p := s.value(row); p != nil {
			s.put(unsafe.Add(dst, s.at), p)
		} else {
			setNull(dst, s.bit)
		}
	}
	if len(f.vari) > 0 {
		f.varData(row, dst)
	}
}

func setNull(nulls unsafe.Pointer, bit uint32) {
	*(*uint32)(unsafe.Add(nulls, bit/32*4)) |= 1 << (bit % 32)
}

func isNull(nulls unsafe.Pointer, bit uint32) bool {
	return *(*uint32)(unsafe.Add(nulls, bit/32*4))>>(bit%32)&1 != 0
}

// varData writes the variable part: an image, or packed values. It was zeroed.
func (f *Format) varData(row, dst unsafe.Pointer) {
	at, end := f.fixedLen, uint32(0)
	for i := range f.vari {
		s := &f.vari[i]
		q, m := unsafe.Pointer(nil), uint32(0)
		if p := s.value(row); p != nil {
			q, m = s.bytesOf(p)
		} else {
			setNull(dst, s.bit)
		}
		if f.mask == nil {
			if m > 0 { // else it may be the end of the memory
				move(unsafe.Add(dst, f.fixedLen+f.varHead+end), q, m)
			}
			end += m
			*(*uint16)(unsafe.Add(dst, f.fixedLen+2*uint32(i))) = uint16(end)
			continue
		}
		*(*uint16)(unsafe.Add(dst, at)) = uint16(m)
		move(unsafe.Add(dst, at+2), q, m)
		at += signal.Pad(2 + m)
	}
}

// take writes what a read gave into the program's memory; the code says that it does not fit the columns.
func (f *Format) take(src unsafe.Pointer, n uint32, row unsafe.Pointer) uint32 {
	if f.plain {
		if n != f.fixedLen {
			return ndberror.BadAnswer
		}
		for i := range f.fixed {
			s := &f.fixed[i]
			move(unsafe.Add(row, s.off), unsafe.Add(src, s.at), s.bytes)
		}
		return 0
	}
	if n < f.fixedLen || len(f.vari) == 0 && n != f.fixedLen {
		return ndberror.BadAnswer
	}
	hasNulls := f.table.Layout.NullWords > 0
	if len(f.vari) > 0 {
		if code := f.takeVar(src, n, row, hasNulls); code != 0 {
			return code
		}
	}
	for i := range f.fixed {
		s := &f.fixed[i]
		if hasNulls && s.null && isNull(src, s.bit) {
			s.setNull(row)
			continue
		}
		s.get(s.room(row), unsafe.Add(src, s.at), s.bytes)
	}
	return 0
}

// takeVar first checks that the variable values lie within what came, then takes them.
func (f *Format) takeVar(src unsafe.Pointer, n uint32, row unsafe.Pointer, hasNulls bool) uint32 {
	at, end := f.fixedLen, uint32(0)
	empty := f.mask == nil && n == f.fixedLen // a row whose variable image was never written
	if f.mask == nil && !empty && n < f.fixedLen+f.varHead {
		return ndberror.BadAnswer
	}
	for i := range f.vari {
		s := &f.vari[i]
		p, m := unsafe.Pointer(nil), uint32(0)
		switch {
		case empty:
		case f.mask == nil:
			e := uint32(*(*uint16)(unsafe.Add(src, f.fixedLen+2*uint32(i))))
			if e < end || f.fixedLen+f.varHead+e > n {
				return ndberror.BadAnswer
			}
			if m = e - end; m > 0 { // else it may be the end of the memory
				p = unsafe.Add(src, f.fixedLen+f.varHead+end)
			}
			end = e
		default:
			if at+4 > n {
				return ndberror.BadAnswer
			}
			m = uint32(*(*uint16)(unsafe.Add(src, at)))
			if at+signal.Pad(2+m) > n {
				return ndberror.BadAnswer
			}
			p = unsafe.Add(src, at+2)
			at += signal.Pad(2 + m)
		}
		if m > s.bytes {
			return ndberror.BadAnswer
		}
		if hasNulls && s.null && isNull(src, s.bit) {
			s.setNull(row)
			continue
		}
		s.get(s.room(row), p, m)
	}
	return 0
}

// setNull makes a field say NULL.
func (s *step) setNull(row unsafe.Pointer) {
	p := unsafe.Add(row, s.off)
	switch s.nulls {
	case NullPointer:
		*(*unsafe.Pointer)(p) = nil
		return
	case NullFlag:
		*(*bool)(unsafe.Add(row, s.flag)) = false
	}
	switch s.codec {
	case CodecString:
		*(*string)(p) = ""
	case CodecBytes:
		*(*[]byte)(p) = nil
	case CodecSlice: // its elements may be of any size: only the length may be changed
		v := *(*[]byte)(p)
		*(*[]byte)(p) = v[:0]
	case CodecInline:
		*(*uint32)(p) = 0
	default:
		zero(p, s.size)
	}
}

// room is where a field's value goes; a nil pointer gets something to point at.
func (s *step) room(row unsafe.Pointer) unsafe.Pointer {
	p := unsafe.Add(row, s.off)
	switch s.nulls {
	case NullFlag:
		*(*bool)(unsafe.Add(row, s.flag)) = true
	case NullPointer:
		q := (*unsafe.Pointer)(p)
		if *q == nil {
			switch s.codec {
			case CodecString:
				*q = unsafe.Pointer(new(string))
			case CodecBytes, CodecSlice:
				*q = unsafe.Pointer(new([]byte))
			default: // no pointers in it: words that are aligned for anything
				*q = unsafe.Pointer(unsafe.SliceData(make([]uint64, (s.size+7)/8)))
			}
		}
		return *q
	}
	return p
}

// get reads n bytes of a column into a field.
func (s *step) get(p, src unsafe.Pointer, n uint32) {
	switch s.codec {
	case CodecRaw:
		move(p, src, s.bytes)
	case CodecInt, CodecUint:
		v := uint64(0)
		for i := range s.bytes {
			v |= uint64(*(*byte)(unsafe.Add(src, i))) << (8 * i)
		}
		if s.codec == CodecInt {
			v = uint64(int64(v<<(64-8*s.bytes)) >> (64 - 8*s.bytes))
		}
		storeUint(p, s.size, v)
	case CodecDouble:
		*(*float64)(p) = float64(*(*float32)(src))
	case CodecBool:
		*(*bool)(p) = *(*byte)(src) != 0
	case CodecSlice:
		s.getSlice(p, src)
	case CodecInline:
		*(*uint32)(p) = n
		move(unsafe.Add(p, 4), src, n)
	case CodecString:
		b := unsafe.Slice((*byte)(src), n)
		if s.typ == schema.Char {
			for len(b) > 0 && b[len(b)-1] == ' ' {
				b = b[:len(b)-1]
			}
		}
		if *(*string)(p) != string(b) {
			*(*string)(p) = string(b)
		}
	case CodecBytes:
		v := *(*[]byte)(p)
		*(*[]byte)(p) = append(v[:0], unsafe.Slice((*byte)(src), n)...)
	}
}

// getSlice fills a slice of elements of s.size bytes; it is made anew where it has not enough room.
func (s *step) getSlice(p, src unsafe.Pointer) {
	n := int(s.bytes / s.size)
	if v := *(*[]byte)(p); cap(v) >= n { // capacity and length count elements, whatever their size
		*(*[]byte)(p) = v[:n]
	} else {
		m := make([]uint64, (s.bytes+7)/8)
		*(*[]byte)(p) = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(m))), n)
	}
	move(unsafe.Pointer(unsafe.SliceData(*(*[]byte)(p))), src, s.bytes)
}

func storeUint(p unsafe.Pointer, size uint32, v uint64) {
	switch size {
	case 1:
		*(*uint8)(p) = uint8(v)
	case 2:
		*(*uint16)(p) = uint16(v)
	case 4:
		*(*uint32)(p) = uint32(v)
	default:
		*(*uint64)(p) = v
	}
}

// Place finds the fragment of the row whose key is in row, and the ldm that has its primary.
func (f *Format) Place(row unsafe.Pointer) (fragment int, primary signal.Addr, err *ndberror.Error) {
	if f.key8 {
		frag, primary := f.table.place(unsafe.Add(row, f.keyOff), 8)
		return int(frag), primary, nil
	}
	var key [schema.MaxKeyBytes/8 + 1]uint64
	n, code := f.putKey(row, unsafe.Pointer(&key))
	if code != 0 {
		return 0, 0, ndberror.Get(int(code))
	}
	frag, primary := f.table.place(unsafe.Pointer(&key), n)
	return int(frag), primary, nil
}
