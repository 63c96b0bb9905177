package schema

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/rowhash"
)

// Layout is a table compiled for work with rows. It does not change after Compile and may be shared.
type Layout struct {
	KeyFixed  uint32 // bytes of the key image if all key columns are fixed, else 0
	KeyMax    uint32 // bytes of the longest key image
	FixedSize uint32 // bytes of the fixed image
	VarCount  uint32 // variable non-key columns
	VarHead   uint32 // bytes of the ends at the start of a variable image
	VarMax    uint32 // bytes of the longest variable image
	Columns   uint32 // non-key columns
	MaskWords uint32 // words of a mask
	NullWords uint32 // words of the null bitmap
	ValuesMax uint32 // bytes of the longest values section of any mask

	// DistWhole: the distribution key is the whole primary key, so its hash is the hash of the key.
	DistWhole bool
	// DistLen > 0: the distribution image is that many bytes at DistOff of the key image.
	DistOff, DistLen uint32

	places []Place     // by table column
	key    []keyColumn // in column order
	cols   []rowColumn // non-key, in column order
	// bitmaps over non-key columns, MaskWords words each
	fixedMask, varMask, nullMask, notNull []uint32
	last                                  uint32   // bits of the last mask word that mean something
	padded                                []uint32 // fixed non-key columns with padding
	keyPlain                              bool     // any KeyFixed bytes are a key: no lengths, no padding
	distRange                             bool     // the distribution columns follow each other in the key
	distFrom, distTo                      uint32
}

// Place says where a column of the table is.
type Place struct {
	Key      bool
	Variable bool
	Nullable bool
	Index    uint32 // among the key columns, or among the non-key columns: its bit in masks and null bitmap
	Off      uint32 // of a fixed column: in the fixed image, or in the key image if no variable column is before it
	Bytes    uint32 // of a value, the longest if it varies
	VarIndex uint32 // of a variable non-key column: its number among these
}

type keyColumn struct {
	bytes    uint32
	size     uint32 // padded; 0 = variable
	dist     bool
	offset   uint32 // in the key image; only meaningful before the first variable column
	variable bool
}

type rowColumn struct {
	off      uint32 // in the fixed image
	end      uint32 // off and padded size
	bytes    uint32
	variable bool
}

func pad(n uint32) uint32 { return (n + 3) &^ 3 }

// Compile makes the layout of a table, or says why the table is not valid.
func Compile(t *Table) (*Layout, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	l := &Layout{}
	l.place(t)
	return l, nil
}

// place lays the columns of a table out. Column and name limits hold; sizes may still be too large.
func (l *Layout) place(t *Table) {
	l.places = make([]Place, len(t.Columns))
	marked, fixedKey := false, true
	for i := range t.Columns {
		c := &t.Columns[i]
		p := &l.places[i]
		*p = Place{Key: c.PrimaryKey, Variable: c.Type.Variable(), Nullable: c.Nullable, Bytes: c.Bytes()}
		if c.PrimaryKey {
			p.Index, p.Off = uint32(len(l.key)), l.KeyMax
			k := keyColumn{bytes: p.Bytes, size: pad(p.Bytes), offset: l.KeyMax, variable: p.Variable, dist: c.DistributionKey}
			if p.Variable {
				k.size, fixedKey = 0, false
				l.KeyMax += pad(2 + p.Bytes)
			} else {
				l.KeyMax += k.size
			}
			l.key = append(l.key, k)
			marked = marked || c.DistributionKey
			continue
		}
		p.Index = l.Columns
		l.Columns++
		if c.Nullable {
			l.NullWords = p.Index/32 + 1
		}
	}
	if fixedKey {
		l.KeyFixed, l.keyPlain = l.KeyMax, true
		for i := range l.key {
			l.keyPlain = l.keyPlain && l.key[i].bytes == l.key[i].size
		}
	}
	l.placeRow()
	l.placeDistribution(marked)
}

func (l *Layout) placeRow() {
	l.MaskWords = (l.Columns + 31) / 32
	l.last = ^uint32(0) >> (31 & -l.Columns)
	words := make([]uint32, 4*l.MaskWords)
	n := l.MaskWords
	l.fixedMask, l.varMask, l.nullMask, l.notNull = words[:n:n], words[n:2*n:2*n], words[2*n:3*n:3*n], words[3*n:]
	l.FixedSize = 4 * l.NullWords
	l.cols = make([]rowColumn, l.Columns)
	bytes, packed := uint32(0), 4*l.NullWords
	for i := range l.places {
		p := &l.places[i]
		if p.Key {
			continue
		}
		w, bit := p.Index/32, uint32(1)<<(p.Index%32)
		if p.Nullable {
			l.nullMask[w] |= bit
		} else {
			l.notNull[w] |= bit
		}
		c := &l.cols[p.Index]
		*c = rowColumn{off: l.FixedSize, end: l.FixedSize, bytes: p.Bytes, variable: p.Variable}
		if p.Variable {
			l.varMask[w] |= bit
			p.VarIndex = l.VarCount
			l.VarCount++
			bytes += p.Bytes
			packed += pad(2 + p.Bytes)
			continue
		}
		l.fixedMask[w] |= bit
		p.Off = l.FixedSize
		l.FixedSize += pad(p.Bytes)
		packed += pad(p.Bytes)
		c.end = l.FixedSize
		if p.Bytes%4 != 0 {
			l.padded = append(l.padded, p.Index)
		}
	}
	if l.VarCount > 0 {
		l.VarHead = pad(2 * l.VarCount)
		l.VarMax = l.VarHead + pad(bytes)
	}
	l.ValuesMax = max(packed, l.FixedSize+l.VarMax)
}

func (l *Layout) placeDistribution(marked bool) {
	if !marked {
		for i := range l.key {
			l.key[i].dist = true
		}
	}
	n := uint32(0)
	for i := range l.key {
		if !l.key[i].dist {
			continue
		}
		if n == 0 {
			l.distFrom = uint32(i)
		}
		l.distTo = uint32(i) + 1
		n++
	}
	l.DistWhole = n == uint32(len(l.key))
	l.distRange = n == l.distTo-l.distFrom
	if !l.distRange {
		return
	}
	length := uint32(0)
	for i := range l.key[:l.distTo] {
		k := &l.key[i]
		if k.variable {
			return
		}
		if k.dist {
			length += k.size
		}
	}
	l.DistOff, l.DistLen = l.key[l.distFrom].offset, length
}

// Place is where column i of the table is.
func (l *Layout) Place(i int) Place { return l.places[i] }

// HasVar says whether there is a variable image.
func (l *Layout) HasVar() bool { return l.VarCount > 0 }

func load16(p unsafe.Pointer, at uint32) uint32 { return uint32(*(*uint16)(unsafe.Add(p, at))) }

func store16(p unsafe.Pointer, at, v uint32) { *(*uint16)(unsafe.Add(p, at)) = uint16(v) }

// word is word i of a mask or bitmap.
func word(p unsafe.Pointer, i uint32) *uint32 { return (*uint32)(unsafe.Add(p, 4*i)) }

func move(dst, src unsafe.Pointer, n uint32) {
	copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
}

// zero says whether all bytes from a to b are zero; short ranges.
func zero(p unsafe.Pointer, a, b uint32) bool {
	for ; a < b; a++ {
		if *(*byte)(unsafe.Add(p, a)) != 0 {
			return false
		}
	}
	return true
}

// CheckKey looks at n bytes from outside that should be a key image; 0 or a code.
func (l *Layout) CheckKey(p unsafe.Pointer, n uint32) (code uint32) {
	if l.KeyFixed != 0 && n != l.KeyFixed {
		return CodeBadLength
	}
	if l.keyPlain {
		return 0
	}
	at := uint32(0)
	for i := range l.key {
		k := &l.key[i]
		start, bytes := at, k.bytes
		if k.variable {
			if n-at < 4 {
				return CodeBadLength
			}
			if start, bytes = at+2, load16(p, at); bytes > k.bytes {
				return CodeBadLength
			}
		}
		end := pad(start + bytes)
		if end > n || !zero(p, start+bytes, end) {
			return CodeBadLength
		}
		at = end
	}
	if at != n {
		return CodeTooMuchData
	}
	return 0
}

// next is where the key column after k, which starts at `at`, starts.
func (k *keyColumn) next(p unsafe.Pointer, at uint32) uint32 {
	if k.variable {
		return pad(at + 2 + load16(p, at))
	}
	return at + k.size
}

// DistributionHash is the hash of the distribution image within a key image of n bytes.
func (l *Layout) DistributionHash(p unsafe.Pointer, n uint32) uint64 {
	switch {
	case l.DistWhole:
		return rowhash.Hash(p, n)
	case l.DistLen > 0:
		return rowhash.Hash(unsafe.Add(p, l.DistOff), l.DistLen)
	case l.distRange:
		at := uint32(0)
		for i := range l.key[:l.distFrom] {
			at = l.key[i].next(p, at)
		}
		end := at
		for i := l.distFrom; i < l.distTo; i++ {
			end = l.key[i].next(p, end)
		}
		return rowhash.Hash(unsafe.Add(p, at), end-at)
	}
	return l.scatteredHash(p)
}

// scatteredHash gathers the distribution columns first. No sensible table needs it.
func (l *Layout) scatteredHash(p unsafe.Pointer) uint64 {
	var image [MaxKeyBytes]byte
	at, n := uint32(0), uint32(0)
	for i := range l.key {
		k := &l.key[i]
		end := k.next(p, at)
		if k.dist {
			move(unsafe.Pointer(&image[n]), unsafe.Add(p, at), end-at)
			n += end - at
		}
		at = end
	}
	return rowhash.Hash(unsafe.Pointer(&image), n)
}
