package schema

import (
	"math/bits"
	"unsafe"
)

// Write is a write section taken apart.
type Write struct {
	Mask   unsafe.Pointer // MaskWords words; nil: all columns
	Values unsafe.Pointer
	Bytes  uint32 // of the values
}

// AsWrite takes a section apart that has been checked: by CheckWrite, here or on another node.
func (l *Layout) AsWrite(p unsafe.Pointer, n uint32, all bool) Write {
	if all || l.MaskWords == 0 {
		return Write{Values: p, Bytes: n}
	}
	return Write{Mask: p, Values: unsafe.Add(p, 4*l.MaskWords), Bytes: n - 4*l.MaskWords}
}

// CheckMask looks at a mask from outside, n bytes; 0 or a code.
func (l *Layout) CheckMask(p unsafe.Pointer, n uint32) (code uint32) {
	switch {
	case n < 4*l.MaskWords:
		return CodeBadLength
	case n > 4*l.MaskWords, n > 0 && *word(p, l.MaskWords-1)&^l.last != 0:
		return CodeTooMuchData
	}
	return 0
}

// CheckInsert says whether a mask (nil: all columns) names every column that cannot be NULL; 0 or CodeMissingNull.
func (l *Layout) CheckInsert(mask unsafe.Pointer) (code uint32) {
	if mask == nil {
		return 0
	}
	for i, m := range l.notNull {
		if m&^*word(mask, uint32(i)) != 0 {
			return CodeMissingNull
		}
	}
	return 0
}

// CheckWrite takes a write section of n bytes from outside apart; with a code it is refused. Whether an insert may leave
// out what the mask leaves out, CheckInsert says.
func (l *Layout) CheckWrite(p unsafe.Pointer, n uint32, all bool) (w Write, code uint32) {
	if !all {
		if n < 4*l.MaskWords {
			return w, CodeBadLength
		}
		if code := l.CheckMask(p, 4*l.MaskWords); code != 0 {
			return w, code
		}
	}
	w = l.AsWrite(p, n, all)
	if w.Mask == nil {
		return w, l.checkImage(w.Values, w.Bytes)
	}
	return w, l.checkValues(w.Mask, w.Values, w.Bytes)
}

// checkNulls looks at null words; mask nil: of all columns.
func (l *Layout) checkNulls(mask, p unsafe.Pointer) (any uint32, code uint32) {
	for i := range l.NullWords {
		m := l.nullMask[i]
		nulls := *word(p, i)
		if mask != nil {
			if nulls&^*word(mask, i) != 0 {
				return 0, CodeTooMuchData
			}
		} else if i == l.MaskWords-1 && nulls&^l.last != 0 {
			return 0, CodeTooMuchData
		}
		if nulls&^m != 0 {
			return 0, CodeNotNull
		}
		any |= nulls
	}
	return any, 0
}

func (l *Layout) checkImage(p unsafe.Pointer, n uint32) (code uint32) {
	switch {
	case n < l.FixedSize+l.VarHead:
		return CodeBadLength
	case n > l.FixedSize+l.VarMax:
		return CodeTooMuchData
	}
	nulls, code := l.checkNulls(nil, p)
	if code != 0 {
		return code
	}
	for _, i := range l.padded {
		c := &l.cols[i]
		if !zero(p, c.off+c.bytes, c.end) {
			return CodeBadLength
		}
	}
	if nulls != 0 {
		for i := range l.NullWords {
			for m := *word(p, i) & l.fixedMask[i]; m != 0; m &= m - 1 {
				c := &l.cols[i*32+uint32(bits.TrailingZeros32(m))]
				if !zero(p, c.off, c.end) {
					return CodeBadLength
				}
			}
		}
	}
	if l.VarCount > 0 {
		return l.checkVarImage(p, unsafe.Add(p, l.FixedSize), n-l.FixedSize)
	}
	return 0
}

func (l *Layout) checkVarImage(nulls, p unsafe.Pointer, n uint32) (code uint32) {
	start, j := uint32(0), uint32(0)
	for i, m := range l.varMask {
		for ; m != 0; m &= m - 1 {
			bit := m & -m
			end := load16(p, 2*j)
			limit := l.cols[uint32(i)*32+uint32(bits.TrailingZeros32(m))].bytes
			if uint32(i) < l.NullWords && *word(nulls, uint32(i))&bit != 0 {
				limit = 0
			}
			if end < start || end-start > limit {
				return CodeBadLength
			}
			start = end
			j++
		}
	}
	switch size := pad(l.VarHead + start); {
	case n < size:
		return CodeBadLength
	case n > size:
		return CodeTooMuchData
	case !zero(p, l.VarHead+start, n), !zero(p, 2*l.VarCount, l.VarHead):
		return CodeBadLength
	}
	return 0
}

func (l *Layout) checkValues(mask, p unsafe.Pointer, n uint32) (code uint32) {
	at := 4 * l.NullWords
	if n < at {
		return CodeBadLength
	}
	nulls, code := l.checkNulls(mask, p)
	if code != 0 {
		return code
	}
	if size := l.fixedBytes(mask); n-at < size {
		return CodeBadLength
	} else if nulls == 0 && len(l.padded) == 0 {
		at += size
	} else if at, code = l.checkFixedValues(mask, p, at); code != 0 {
		return code
	}
	for i, m := range l.varMask {
		for m &= *word(mask, uint32(i)); m != 0; m &= m - 1 {
			if n-at < 4 {
				return CodeBadLength
			}
			limit := l.cols[uint32(i)*32+uint32(bits.TrailingZeros32(m))].bytes
			if uint32(i) < l.NullWords && *word(p, uint32(i))&(m&-m) != 0 {
				limit = 0
			}
			size := load16(p, at)
			end := pad(at + 2 + size)
			if size > limit || end > n || !zero(p, at+2+size, end) {
				return CodeBadLength
			}
			at = end
		}
	}
	if at != n {
		return CodeTooMuchData
	}
	return 0
}

// checkFixedValues looks at every column of the mask for padding and for NULL that is not zero.
func (l *Layout) checkFixedValues(mask, p unsafe.Pointer, at uint32) (end, code uint32) {
	for i, m := range l.fixedMask {
		for m &= *word(mask, uint32(i)); m != 0; m &= m - 1 {
			c := &l.cols[uint32(i)*32+uint32(bits.TrailingZeros32(m))]
			from := at + c.bytes
			if uint32(i) < l.NullWords && *word(p, uint32(i))&(m&-m) != 0 {
				from = at
			}
			at += c.end - c.off
			if !zero(p, from, at) {
				return 0, CodeBadLength
			}
		}
	}
	return at, 0
}

// run is the first run of adjacent columns in a word of fixed columns: where it is in the fixed image, and the word
// without it.
func (l *Layout) run(i, m uint32) (from, to, rest uint32) {
	s := uint32(bits.TrailingZeros32(m))
	n := uint32(bits.TrailingZeros32(^(m >> s)))
	return l.cols[i*32+s].off, l.cols[i*32+s+n-1].end, m &^ ((1<<n - 1) << s)
}

// fixedBytes is the length of the fixed values of a mask.
func (l *Layout) fixedBytes(mask unsafe.Pointer) (n uint32) {
	for i, m := range l.fixedMask {
		for m &= *word(mask, uint32(i)); m != 0; {
			var from, to uint32
			from, to, m = l.run(uint32(i), m)
			n += to - from
		}
	}
	return n
}

// TouchesVar says whether a mask (nil: all columns) names a variable column.
func (l *Layout) TouchesVar(mask unsafe.Pointer) bool {
	if mask == nil || l.VarCount == 0 {
		return l.VarCount > 0
	}
	for i, m := range l.varMask {
		if m&*word(mask, uint32(i)) != 0 {
			return true
		}
	}
	return false
}

// Apply makes the new images of a row from its old ones and a checked write. oldFixed nil: there is no old row; columns
// that the write does not name become NULL (CheckInsert has allowed that). newFixed may be oldFixed. newVar has room
// for AppliedVar bytes and overlaps nothing else, but if the write does not touch variable columns it may be oldVar.
// It returns the length of the new variable image.
func (l *Layout) Apply(w Write, oldFixed, oldVar unsafe.Pointer, oldVarLen uint32, newFixed, newVar unsafe.Pointer) (newVarLen uint32) {
	if w.Mask == nil {
		move(newFixed, w.Values, l.FixedSize)
		if l.VarCount == 0 {
			return 0
		}
		n := w.Bytes - l.FixedSize
		move(newVar, unsafe.Add(w.Values, l.FixedSize), n)
		return n
	}
	if oldFixed == nil {
		l.InitFixed(newFixed)
		oldVarLen = 0
	} else if newFixed != oldFixed {
		move(newFixed, oldFixed, l.FixedSize)
	}
	for i := range l.NullWords {
		old := word(newFixed, i)
		*old = *old&^*word(w.Mask, i) | *word(w.Values, i)
	}
	p := unsafe.Add(w.Values, 4*l.NullWords)
	for i, m := range l.fixedMask {
		for m &= *word(w.Mask, uint32(i)); m != 0; {
			var from, to uint32
			from, to, m = l.run(uint32(i), m)
			if to-from == 4 {
				*(*uint32)(unsafe.Add(newFixed, from)) = *(*uint32)(p)
			} else {
				move(unsafe.Add(newFixed, from), p, to-from)
			}
			p = unsafe.Add(p, to-from)
		}
	}
	if l.VarCount == 0 {
		return 0
	}
	if oldVarLen > 0 && !l.TouchesVar(w.Mask) {
		if newVar != oldVar {
			move(newVar, oldVar, oldVarLen)
		}
		return oldVarLen
	}
	return l.mergeVar(w.Mask, p, oldVar, oldVarLen, newVar)
}

// InitFixed writes the fixed image of a row in which everything that may be NULL is, and the rest zero.
func (l *Layout) InitFixed(p unsafe.Pointer) {
	clear(unsafe.Slice((*byte)(p), l.FixedSize))
	for i := range l.NullWords {
		*word(p, i) = l.nullMask[i]
	}
}

// oldValue is where value j lies in a variable image, and its length.
func (l *Layout) oldValue(p unsafe.Pointer, n, j uint32) (q unsafe.Pointer, size uint32) {
	if n == 0 {
		return p, 0
	}
	start := uint32(0)
	if j > 0 {
		start = load16(p, 2*(j-1))
	}
	return unsafe.Add(p, l.VarHead+start), load16(p, 2*j) - start
}

// VarValue is value j of a variable image of n bytes.
func (l *Layout) VarValue(p unsafe.Pointer, n, j uint32) (q unsafe.Pointer, size uint32) {
	return l.oldValue(p, n, j)
}

func (l *Layout) mergeVar(mask, values, oldVar unsafe.Pointer, oldVarLen uint32, newVar unsafe.Pointer) uint32 {
	end, j := uint32(0), uint32(0)
	for i, m := range l.varMask {
		given := *word(mask, uint32(i))
		for ; m != 0; m &= m - 1 {
			var q unsafe.Pointer
			var n uint32
			if given&(m&-m) != 0 {
				q, n = unsafe.Add(values, 2), load16(values, 0)
				values = unsafe.Add(values, pad(2+n))
			} else {
				q, n = l.oldValue(oldVar, oldVarLen, j)
			}
			move(unsafe.Add(newVar, l.VarHead+end), q, n)
			end += n
			store16(newVar, 2*j, end)
			j++
		}
	}
	if l.VarCount&1 != 0 {
		store16(newVar, 2*l.VarCount, 0)
	}
	return l.padVar(newVar, end)
}

// padVar pads a variable image whose values end at `end`; it returns its length.
func (l *Layout) padVar(p unsafe.Pointer, end uint32) uint32 {
	n := pad(l.VarHead + end)
	for at := l.VarHead + end; at < n; at++ {
		*(*byte)(unsafe.Add(p, at)) = 0
	}
	return n
}

// AppliedVar is the length of the variable image that Apply will make.
func (l *Layout) AppliedVar(w Write, oldVar unsafe.Pointer, oldVarLen uint32) uint32 {
	switch {
	case l.VarCount == 0:
		return 0
	case w.Mask == nil:
		return w.Bytes - l.FixedSize
	case oldVarLen > 0 && !l.TouchesVar(w.Mask):
		return oldVarLen
	}
	values := unsafe.Add(w.Values, 4*l.NullWords+l.fixedBytes(w.Mask))
	end, j := uint32(0), uint32(0)
	for i, m := range l.varMask {
		given := *word(w.Mask, uint32(i))
		for ; m != 0; m &= m - 1 {
			n := uint32(0)
			if given&(m&-m) != 0 {
				n = load16(values, 0)
				values = unsafe.Add(values, pad(2+n))
			} else {
				_, n = l.oldValue(oldVar, oldVarLen, j)
			}
			end += n
			j++
		}
	}
	return pad(l.VarHead + end)
}

// Project writes the values of a mask (nil: all columns) at dst, which has room for ProjectSize bytes; it returns their
// length.
func (l *Layout) Project(mask, fixed, vari unsafe.Pointer, varLen uint32, dst unsafe.Pointer) uint32 {
	if mask == nil {
		if l.FixedSize == 4 {
			*(*uint32)(dst) = *(*uint32)(fixed)
		} else {
			move(dst, fixed, l.FixedSize)
		}
		if l.VarCount > 0 {
			move(unsafe.Add(dst, l.FixedSize), vari, varLen)
		}
		return l.FixedSize + varLen
	}
	for i := range l.NullWords {
		*word(dst, i) = *word(fixed, i) & *word(mask, i)
	}
	p := unsafe.Add(dst, 4*l.NullWords)
	for i, m := range l.fixedMask {
		for m &= *word(mask, uint32(i)); m != 0; {
			var from, to uint32
			from, to, m = l.run(uint32(i), m)
			if to-from == 4 {
				*(*uint32)(p) = *(*uint32)(unsafe.Add(fixed, from))
			} else {
				move(p, unsafe.Add(fixed, from), to-from)
			}
			p = unsafe.Add(p, to-from)
		}
	}
	if l.VarCount > 0 {
		p = l.projectVar(mask, vari, varLen, p)
	}
	return uint32(uintptr(p) - uintptr(dst))
}

func (l *Layout) projectVar(mask, vari unsafe.Pointer, varLen uint32, p unsafe.Pointer) unsafe.Pointer {
	j := uint32(0)
	for i, m := range l.varMask {
		wanted := *word(mask, uint32(i))
		for ; m != 0; m &= m - 1 {
			if wanted&(m&-m) != 0 {
				q, n := l.oldValue(vari, varLen, j)
				end := pad(2 + n)
				*(*uint32)(unsafe.Add(p, end-4)) = 0 // the padding; what belongs there of the value follows
				store16(p, 0, n)
				move(unsafe.Add(p, 2), q, n)
				p = unsafe.Add(p, end)
			}
			j++
		}
	}
	return p
}

// ProjectSize is the length of what Project will write.
func (l *Layout) ProjectSize(mask, vari unsafe.Pointer, varLen uint32) uint32 {
	if mask == nil {
		return l.FixedSize + varLen
	}
	size := 4*l.NullWords + l.fixedBytes(mask)
	j := uint32(0)
	for i, m := range l.varMask {
		wanted := *word(mask, uint32(i))
		for ; m != 0; m &= m - 1 {
			if wanted&(m&-m) != 0 {
				_, n := l.oldValue(vari, varLen, j)
				size += pad(2 + n)
			}
			j++
		}
	}
	return size
}
