package client

// From a program's memory into a request: measure first, which may refuse, then the key image and data in place.

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
)

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
