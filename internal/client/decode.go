package client

// From an answer into a program's memory. The answer comes from another process: lengths are checked before anything is
// taken.

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
)

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
