package schema

import "encoding/binary"

// The functions of this file put sections together from the values of single columns, with all checks. They are for
// tools and tests and for what happens rarely; who writes many rows compiles its own copying from Place.

// AppendKey appends the key image of the values of the key columns, in column order.
func (l *Layout) AppendKey(b []byte, values ...[]byte) ([]byte, error) {
	if len(values) != len(l.key) {
		return b, refuse(CodeBadLength, "%d key values: the table has %d key columns", len(values), len(l.key))
	}
	out := b
	for i, v := range values {
		k := &l.key[i]
		if uint32(len(v)) > k.bytes || !k.variable && uint32(len(v)) != k.bytes {
			return b, refuse(CodeBadLength, "key value %d has %d bytes: the column has %d", i, len(v), k.bytes)
		}
		if k.variable {
			out = binary.LittleEndian.AppendUint16(out, uint16(len(v)))
		}
		out = append(out, v...)
		out = appendPadding(out, len(b))
	}
	return out, nil
}

// appendPadding appends zeros to a multiple of 4 bytes from `start` on.
func appendPadding(b []byte, start int) []byte {
	for (len(b)-start)&3 != 0 {
		b = append(b, 0)
	}
	return b
}

// AppendWrite appends the write section for the non-key columns in `columns` (numbers among the non-key columns,
// ascending; a nil value is NULL); with columns nil that of all columns, in order.
func (l *Layout) AppendWrite(b []byte, columns []uint32, values [][]byte) ([]byte, error) {
	all := columns == nil
	if all {
		columns = make([]uint32, l.Columns)
		for i := range columns {
			columns[i] = uint32(i)
		}
	}
	if len(values) != len(columns) {
		return b, refuse(CodeBadLength, "%d values for %d columns", len(values), len(columns))
	}
	mask := make([]uint32, l.MaskWords)
	nulls := make([]uint32, l.MaskWords)
	var fixed, ends, vari []byte
	for i, col := range columns {
		v := values[i]
		if col >= l.Columns || i > 0 && col <= columns[i-1] {
			return b, refuse(CodeTooMuchData, "column %d: columns must exist, and ascend", col)
		}
		c := &l.cols[col]
		mask[col/32] |= 1 << (col % 32)
		if v == nil {
			if l.nullMask[col/32]>>(col%32)&1 == 0 {
				return b, refuse(CodeNotNull, "column %d cannot be NULL", col)
			}
			nulls[col/32] |= 1 << (col % 32)
			if !c.variable {
				v = make([]byte, c.bytes)
			}
		}
		switch {
		case uint32(len(v)) > c.bytes || !c.variable && uint32(len(v)) != c.bytes:
			return b, refuse(CodeBadLength, "value of column %d has %d bytes: the column has %d", col, len(v), c.bytes)
		case !c.variable:
			fixed = appendPadding(append(fixed, v...), 0)
		case all:
			vari = append(vari, v...)
			ends = binary.LittleEndian.AppendUint16(ends, uint16(len(vari)))
		default:
			vari = binary.LittleEndian.AppendUint16(vari, uint16(len(v)))
			vari = appendPadding(append(vari, v...), 0)
		}
	}
	if !all {
		b = appendWords(b, mask)
	}
	b = appendWords(b, nulls[:l.NullWords])
	b = append(b, fixed...)
	b = append(b, appendPadding(ends, 0)...)
	return append(b, appendPadding(vari, 0)...), nil
}

func appendWords(b []byte, w []uint32) []byte {
	for _, x := range w {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}
