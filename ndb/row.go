package ndb

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/cohortdb/cohort/internal/client"
	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/signal"
)

// Row is a row of a table without a Go struct: values are set and read by column index. Numbers lie side by side as in a
// request, so that it travels by one copy.
type Row struct {
	t       *Table
	slots   []slot     // of every column
	format  *rowFormat // the columns that are read
	mem     []uint64
	base    unsafe.Pointer // of mem
	set     []uint64       // bits of the columns that were set since Reset
	some    *rowFormat     // of the columns that were set when it was last needed …
	someSet []uint64       // … which were these
	err     error          // of a setter: the next operation fails with it
}

// rowFormat is how rows of a table lie in memory, and the copies of some of its columns.
type rowFormat struct {
	client *client.Format
	slots  []slot
	size   uint32 // bytes of a row in memory
}

// slot is where a column lies in a row's memory.
type slot struct {
	off   uint32 // of the value; of a variable column: a uint32 length, then the bytes
	flag  uint32 // of a bool that is false for NULL; 0: the column cannot be NULL
	bytes uint32 // of the value, the longest if it varies
	kind  uint64 // one bit: 1 << Type
}

// newRowFormat lays the table's columns out and compiles the copies of those whose bits are in set (nil: all) and of the key.
func newRowFormat(t *Table, set []uint64) (*rowFormat, error) {
	f := &rowFormat{slots: make([]slot, len(t.columns))}
	l := t.core.Layout
	for i := range t.columns {
		f.slots[i].bytes, f.slots[i].kind = l.Place(i).Bytes, 1<<t.columns[i].Type
	}
	at := uint32(8) // 0 is nowhere
	place := func(key, variable bool) {
		for i := range t.columns {
			p := l.Place(i)
			if p.Key != key || p.Variable != variable {
				continue
			}
			f.slots[i].off = at
			if at += signal.Pad(p.Bytes); variable {
				at += 4
			}
		}
	}
	place(true, false)
	place(false, false)
	place(true, true)
	place(false, true)
	for i := range t.columns {
		if t.columns[i].Nullable {
			f.slots[i].flag = at
			at++
		}
	}
	f.size = at
	var bindings []client.Binding
	for i := range t.columns {
		p := l.Place(i)
		if !p.Key && set != nil && set[i/64]>>(i%64)&1 == 0 {
			continue
		}
		b := client.Binding{Column: i, Off: uintptr(f.slots[i].off), Size: p.Bytes, Codec: client.CodecRaw}
		if p.Variable {
			b.Codec = client.CodecInline
		}
		if f.slots[i].flag != 0 {
			b.Nulls, b.Flag = client.NullFlag, uintptr(f.slots[i].flag)
		}
		bindings = append(bindings, b)
	}
	var err error
	f.client, err = client.NewFormat(t.core, bindings)
	return f, err
}

// formatFor is the format of the columns in set.
func (t *Table) formatFor(set []uint64) *rowFormat {
	if t.isAll(set) {
		return t.all
	}
	name := string(unsafe.Slice((*byte)(unsafe.Pointer(&set[0])), 8*len(set)))
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.formats[name]
	if f == nil {
		f, _ = newRowFormat(t, set) // what holds for all columns holds for some of them
		t.formats[name] = f
	}
	return f
}

func (t *Table) isAll(set []uint64) bool {
	for i := range t.columns {
		if !t.columns[i].Key && set[i/64]>>(i%64)&1 == 0 {
			return false
		}
	}
	return true
}

// NewRow makes an empty row of the table.
func (t *Table) NewRow() *Row {
	words := (len(t.columns) + 63) / 64
	r := &Row{t: t, slots: t.all.slots, format: t.all, set: make([]uint64, words), mem: make([]uint64, (t.all.size+7)/8)}
	r.base = unsafe.Pointer(&r.mem[0])
	return r
}

// NewRowOf makes an empty row of which a read reads only the named columns; the others keep their values.
func (t *Table) NewRowOf(columns ...string) (*Row, error) {
	r := t.NewRow()
	set := make([]uint64, len(r.set))
	for _, name := range columns {
		i := t.Column(name)
		if i < 0 {
			return nil, fmt.Errorf("ndb: table %s has no column %s", t.Name(), name)
		}
		set[i/64] |= 1 << (i % 64)
	}
	r.format = t.formatFor(set)
	return r, nil
}

// Table is the row's table.
func (r *Row) Table() *Table { return r.t }

// Reset forgets all values and the error of a setter.
func (r *Row) Reset() {
	clear(r.mem)
	clear(r.set)
	r.err = nil
}

// Err is the error of the first setter that failed since Reset. An operation with the row fails with it too.
func (r *Row) Err() error { return r.err }

// Fragment is the number of the fragment of the row whose key is in r; -1 if the key is not valid.
func (r *Row) Fragment() int {
	f, _, err := r.t.all.client.Place(r.base)
	if err != nil {
		return -1
	}
	return f
}

// Node is the data node to which operations on the row go whose key is in r: that of the row's primary, or one that
// stands in for it. 0 if the key is not valid, or no node that has the row takes transactions.
func (r *Row) Node() int {
	f, _, err := r.t.all.client.Place(r.base)
	if err != nil {
		return 0
	}
	return r.t.node(f)
}

// at begins the setting of a column: where its value goes, or nil after an error.
func (r *Row) at(col int, kinds uint64) (unsafe.Pointer, *slot) {
	if uint(col) >= uint(len(r.slots)) || kinds&r.slots[col].kind == 0 {
		r.bad(col, ndberror.NotOfTable, "no column of that kind")
		return nil, nil
	}
	s := &r.slots[col]
	r.set[uint(col)/64] |= 1 << (uint(col) % 64)
	if s.flag != 0 {
		*(*bool)(unsafe.Add(r.base, s.flag)) = true
	}
	return unsafe.Add(r.base, s.off), s
}

// Kinds of columns, as bits of Type.
const (
	kindSigned   = 1<<TypeInt8 | 1<<TypeInt16 | 1<<TypeInt24 | 1<<TypeInt32 | 1<<TypeInt64
	kindUnsigned = 1<<TypeUint8 | 1<<TypeUint16 | 1<<TypeUint24 | 1<<TypeUint32 | 1<<TypeUint64
	kindFloat    = 1<<TypeFloat | 1<<TypeDouble
	kindVariable = 1<<TypeVarchar | 1<<TypeVarbinary
	kindText     = 1<<TypeChar | 1<<TypeBinary | kindVariable
	kindWords    = 1<<TypeInt32 | 1<<TypeUint32 | 1<<TypeFloat
	kindAny      = ^uint64(0)
)

//go:noinline
func (r *Row) bad(col, code int, text string) {
	if r.err == nil {
		name := fmt.Sprintf("column %d", col)
		if col >= 0 && col < len(r.t.columns) {
			name = "column " + r.t.columns[col].Name
		}
		r.err = fmt.Errorf("ndb: %s of table %s: %s: %w", name, r.t.Name(), text, ErrorOf(code))
	}
}

// SetUint sets an unsigned column. A value that does not fit, or a column of another kind, makes the operation fail; so
// it is with the other setters.
func (r *Row) SetUint(col int, v uint64) {
	p, s := r.at(col, kindUnsigned)
	switch {
	case p == nil:
	case s.bytes == 4 && v>>32 == 0:
		*(*uint32)(p) = uint32(v)
	default:
		r.putInt(col, p, v, s.bytes >= 8 || v>>(8*s.bytes) == 0)
	}
}

// SetInt sets a signed column.
func (r *Row) SetInt(col int, v int64) {
	if p, s := r.at(col, kindSigned); p != nil {
		r.putInt(col, p, uint64(v), s.bytes >= 8 || v < 1<<(8*s.bytes-1) && v >= -1<<(8*s.bytes-1))
	}
}

func (r *Row) putInt(col int, p unsafe.Pointer, v uint64, fits bool) {
	n := r.slots[col].bytes
	if !fits || n > 8 {
		r.bad(col, ndberror.ValueTooLong, "the value does not fit")
		return
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	copy(unsafe.Slice((*byte)(p), n), b[:n])
}

// SetFloat sets a float or double column.
func (r *Row) SetFloat(col int, v float64) {
	p, s := r.at(col, kindFloat)
	switch {
	case p == nil:
	case s.kind == 1<<TypeFloat && s.bytes == 4:
		*(*uint32)(p) = math.Float32bits(float32(v))
	case s.kind == 1<<TypeDouble && s.bytes == 8:
		binary.LittleEndian.PutUint64(unsafe.Slice((*byte)(p), 8), math.Float64bits(v))
	default:
		r.bad(col, ndberror.NotOfTable, "the column is an array")
	}
}

// SetBytes sets a character or binary column; what a column of fixed length is longer is filled.
func (r *Row) SetBytes(col int, v []byte) {
	p, s := r.at(col, kindText)
	if p == nil {
		return
	}
	if len(v) > int(s.bytes) {
		r.bad(col, ndberror.ValueTooLong, fmt.Sprintf("a value of %d bytes, where %d fit", len(v), s.bytes))
		return
	}
	if s.kind&kindVariable != 0 {
		*(*uint32)(p) = uint32(len(v))
		copy(unsafe.Slice((*byte)(unsafe.Add(p, 4)), s.bytes), v)
		return
	}
	fill := byte(0)
	if s.kind == 1<<TypeChar {
		fill = ' '
	}
	b := unsafe.Slice((*byte)(p), s.bytes)
	for i := copy(b, v); i < len(b); i++ {
		b[i] = fill
	}
}

// SetString is SetBytes for a string.
func (r *Row) SetString(col int, v string) {
	r.SetBytes(col, unsafe.Slice(unsafe.StringData(v), len(v)))
}

// SetWords sets a column of 32-bit values, as many as it has.
func (r *Row) SetWords(col int, v []uint32) {
	p, s := r.at(col, kindWords)
	if p == nil {
		return
	}
	if uint32(4*len(v)) != s.bytes {
		r.bad(col, ndberror.ValueTooLong, fmt.Sprintf("%d values for %d", len(v), s.bytes/4))
		return
	}
	copy(unsafe.Slice((*uint32)(p), len(v)), v)
}

// SetNull sets a column to NULL.
func (r *Row) SetNull(col int) {
	p, s := r.at(col, kindAny)
	switch {
	case p == nil:
	case s.flag == 0:
		r.bad(col, ndberror.NullNotAllowed, "it cannot be NULL")
	default:
		*(*bool)(unsafe.Add(r.base, s.flag)) = false
	}
}

// IsNull tells whether a column is NULL.
func (r *Row) IsNull(col int) bool {
	if uint(col) >= uint(len(r.slots)) {
		return true
	}
	s := &r.slots[col]
	return s.flag != 0 && !*(*bool)(unsafe.Add(r.base, s.flag))
}

// value is where a column's value is; nil if it is NULL or of another kind.
func (r *Row) value(col int, kinds uint64) (unsafe.Pointer, *slot) {
	if uint(col) >= uint(len(r.slots)) || kinds&r.slots[col].kind == 0 || r.IsNull(col) {
		return nil, nil
	}
	return unsafe.Add(r.base, r.slots[col].off), &r.slots[col]
}

// integer is the first 8 bytes of a value, or as many as it has.
func integer(p unsafe.Pointer, s *slot) uint64 {
	var b [8]byte
	copy(b[:], unsafe.Slice((*byte)(p), min(s.bytes, 8)))
	return binary.LittleEndian.Uint64(b[:])
}

// Uint is the value of an unsigned column, of an array its first ones; 0 if it is NULL, or the column is of another
// kind. So it is with the others.
func (r *Row) Uint(col int) uint64 {
	p, s := r.value(col, kindUnsigned)
	switch {
	case p == nil:
		return 0
	case s.bytes == 4:
		return uint64(*(*uint32)(p))
	}
	return integer(p, s)
}

// Int is the value of a signed column.
func (r *Row) Int(col int) int64 {
	p, s := r.value(col, kindSigned)
	if p == nil {
		return 0
	}
	shift := 64 - 8*min(s.bytes, 8)
	return int64(integer(p, s)<<shift) >> shift
}

// Float is the value of a float or double column.
func (r *Row) Float(col int) float64 {
	p, s := r.value(col, kindFloat)
	switch {
	case p == nil:
		return 0
	case s.kind == 1<<TypeFloat:
		return float64(math.Float32frombits(*(*uint32)(p)))
	}
	return math.Float64frombits(integer(p, s))
}

// Bytes is the value of a character or binary column with all its padding; it is valid until the row changes.
func (r *Row) Bytes(col int) []byte {
	p, s := r.value(col, kindText)
	switch {
	case p == nil:
		return nil
	case s.kind&kindVariable != 0:
		return unsafe.Slice((*byte)(unsafe.Add(p, 4)), *(*uint32)(p))
	}
	return unsafe.Slice((*byte)(p), s.bytes)
}

// Words is the value of a column of 32-bit values; it is valid until the row changes.
func (r *Row) Words(col int) []uint32 {
	p, s := r.value(col, kindWords)
	if p == nil {
		return nil
	}
	return unsafe.Slice((*uint32)(p), s.bytes/4)
}

// written is the format of the columns that were set.
func (r *Row) written() *client.Format {
	if r.some == nil || !slices.Equal(r.someSet, r.set) {
		r.some = r.t.formatFor(r.set)
		r.someSet = append(r.someSet[:0], r.set...)
	}
	return r.some.client
}

// define defines an operation with the row.
func (t *Tx) define(r *Row, f *client.Format, kind uint8) *Op {
	t.s.acquire()
	if r.err != nil {
		return (*Op)(t.core.Refuse(CodeOf(r.err)))
	}
	switch kind {
	case signal.OpInsert:
		return (*Op)(f.Insert(t.core, r.base))
	case signal.OpUpdate:
		return (*Op)(f.Update(t.core, r.base))
	case signal.OpWrite:
		return (*Op)(f.Write(t.core, r.base))
	case signal.OpDelete:
		return (*Op)(f.Delete(t.core, r.base))
	}
	return (*Op)(f.Read(t.core, r.base, kind))
}

// Read defines a read of the row whose key is in r; its other columns are there when the batch is done. r must not be
// used for another read before.
func (t *Tx) Read(r *Row, mode ReadMode) *Op {
	return t.define(r, r.format.client, uint8(mode))
}

// Insert defines an insert of the columns that were set since Row.Reset, the others being NULL: error 630 if the row
// exists, 839 if a column that cannot be NULL was not set.
func (t *Tx) Insert(r *Row) *Op { return t.define(r, r.written(), signal.OpInsert) }

// Update defines an update of the columns that were set since Row.Reset: error 626 if the row does not exist.
func (t *Tx) Update(r *Row) *Op { return t.define(r, r.written(), signal.OpUpdate) }

// Write defines an insert or update of the columns that were set since Row.Reset.
func (t *Tx) Write(r *Row) *Op { return t.define(r, r.written(), signal.OpWrite) }

// Delete defines a delete: error 626 if the row does not exist.
func (t *Tx) Delete(r *Row) *Op { return t.define(r, r.t.all.client, signal.OpDelete) }
