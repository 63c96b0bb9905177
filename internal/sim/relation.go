package sim

import (
	"bytes"
	"fmt"
	"unsafe"

	"github.com/cohortdb/cohort/internal/client"
	"github.com/cohortdb/cohort/internal/schema"
)

// The tables of the load. All have the same columns in the load's eyes: a key, a version, an amount, the tag of the
// write that set them, and a second part with a tag of its own. What else is in a row follows from the tags, so that
// a row of two writes, or of half a write, shows.
//
//	account    4-byte key, fixed columns
//	register   8-byte key, fixed columns, one that may be NULL
//	mixed      distribution key and a variable key, variable columns that may be NULL
//	passing    as mixed; created and dropped while the load runs

// relation is a table of the load.
type relation struct {
	name  string // database/table
	shape shape
	large int // bytes of the longest blob
	dense bool
}

type shape uint8

const (
	shapeAccount shape = iota
	shapeRegister
	shapeMixed
)

const (
	fillBytes = 17
	noteBytes = 30
	nameBytes = 24
)

// def is the definition.
func (r *relation) def() *schema.Table {
	t := &schema.Table{Database: "sim", Name: r.name[len("sim/"):], Logging: true}
	key := func(name string, typ schema.ColumnType, length uint32, dist bool) {
		t.Columns = append(t.Columns, schema.Column{Name: name, Type: typ, Length: length, PrimaryKey: true, DistributionKey: dist})
	}
	col := func(name string, typ schema.ColumnType, length uint32, null bool) {
		t.Columns = append(t.Columns, schema.Column{Name: name, Type: typ, Length: length, Nullable: null})
	}
	switch r.shape {
	case shapeAccount:
		key("id", schema.Unsigned, 0, false)
	case shapeRegister:
		key("id", schema.Bigunsigned, 0, false)
	case shapeMixed:
		key("place", schema.Unsigned, 0, true)
		key("name", schema.Varchar, nameBytes, false)
	}
	col("version", schema.Unsigned, 0, false)
	col("amount", schema.Int, 0, false)
	col("tag", schema.Unsigned, 0, false)
	if r.shape != shapeAccount {
		col("fill", schema.Binary, fillBytes, false)
		col("tagb", schema.Unsigned, 0, true)
	}
	if r.shape == shapeMixed {
		col("note", schema.Varchar, noteBytes, true)
		col("blob", schema.Varbinary, uint32(r.large), true)
	}
	return t
}

// row is a row in memory, bound to the columns of each table.
type row struct {
	id      uint64
	place   uint32
	short   uint32 // the key of shapeAccount
	name    string
	version uint32
	amount  int32
	tag     uint32
	fill    [fillBytes]byte
	hasB    bool
	hasNote bool
	tagB    uint32
	note    []byte
	blob    []byte
}

// part says which columns an operation names.
type part uint8

const (
	wholeRow part = iota
	partA         // version, amount, tag, fill
	partB         // the rest
	parts
)

// formats binds the columns of a table, for each part.
type formats [parts]*client.Format

func (r *relation) bind(t *client.Table) (f formats, err error) {
	column := map[string]int{}
	for i, c := range t.Def.Columns {
		column[c.Name] = i
	}
	var x row
	raw := func(name string, off, size uintptr) client.Binding {
		return client.Binding{Column: column[name], Off: off, Size: uint32(size), Codec: client.CodecRaw}
	}
	var key, a, b []client.Binding
	switch r.shape {
	case shapeAccount:
		key = append(key, raw("id", unsafe.Offsetof(x.short), 4))
	case shapeRegister:
		key = append(key, raw("id", unsafe.Offsetof(x.id), 8))
	case shapeMixed:
		key = append(key, raw("place", unsafe.Offsetof(x.place), 4),
			client.Binding{Column: column["name"], Off: unsafe.Offsetof(x.name), Size: uint32(unsafe.Sizeof(x.name)), Codec: client.CodecString})
	}
	a = append(a, raw("version", unsafe.Offsetof(x.version), 4), raw("amount", unsafe.Offsetof(x.amount), 4), raw("tag", unsafe.Offsetof(x.tag), 4))
	if r.shape != shapeAccount {
		a = append(a, raw("fill", unsafe.Offsetof(x.fill), fillBytes))
		n := raw("tagb", unsafe.Offsetof(x.tagB), 4)
		n.Nulls, n.Flag = client.NullFlag, unsafe.Offsetof(x.hasB)
		b = append(b, n)
	}
	if r.shape == shapeMixed {
		text := func(name string, off, flag uintptr) {
			b = append(b, client.Binding{Column: column[name], Off: off, Size: uint32(unsafe.Sizeof(x.note)), Codec: client.CodecBytes,
				Nulls: client.NullFlag, Flag: flag})
		}
		text("note", unsafe.Offsetof(x.note), unsafe.Offsetof(x.hasNote))
		text("blob", unsafe.Offsetof(x.blob), unsafe.Offsetof(x.hasB))
	}
	join := func(lists ...[]client.Binding) *client.Format {
		if err != nil {
			return nil
		}
		var all []client.Binding
		for _, l := range lists {
			all = append(all, l...)
		}
		var g *client.Format
		g, err = client.NewFormat(t, all)
		return g
	}
	f[wholeRow], f[partA] = join(key, a, b), join(key, a)
	if r.shape != shapeAccount {
		f[partB] = join(key, b)
	}
	return f, err
}

// hasB tells whether the table has the second part.
func (r *relation) hasB() bool { return r.shape != shapeAccount }

// keyName is the second key column of a row of shapeMixed; its length varies.
func (r *relation) keyName(id uint64) string {
	if r.shape != shapeMixed {
		return ""
	}
	return fmt.Sprintf("%d%s", id, "----------"[:mix(id)%11])
}

// setKey makes x the row of a key.
func (c *cell) setKey(x *row) {
	x.id, x.short, x.place, x.name = c.id, uint32(c.id), uint32(c.id/3), c.name
}

// value is what a row holds, in the load's eyes.
type value struct {
	present bool
	version uint32
	amount  int32
	tag     uint32
	hasB    bool
	tagB    uint32
}

// put writes a value's columns.
func (r *relation) put(x *row, v value) {
	x.version, x.amount, x.tag = v.version, v.amount, v.tag
	x.fill = fillOf(v.tag)
	x.hasB, x.tagB = v.hasB, v.tagB
	if r.shape != shapeMixed {
		return
	}
	if x.hasNote = v.hasB && v.tagB%5 != 0; x.hasNote {
		x.note = bytesOf(x.note, uint64(v.tagB), int(mix(uint64(v.tagB))%(noteBytes+1)))
	}
	if v.hasB {
		x.blob = bytesOf(x.blob, ^uint64(v.tagB), r.blobLen(v.tagB))
	}
}

// blobLen is the length of a blob: most are short, but in a dense table.
func (r *relation) blobLen(tag uint32) int {
	n := int(mix(uint64(tag)*7+1) % uint64(r.large+1))
	if tag%4 != 0 && !r.dense {
		n %= 40
	}
	return n
}

// get reads a value, and says what contradicts itself in the columns that p names.
func (r *relation) get(x *row, p part) (v value, wrong string) {
	v.present = true
	if p != partB {
		v.version, v.amount, v.tag = x.version, x.amount, x.tag
		if r.shape != shapeAccount && x.fill != fillOf(x.tag) {
			return v, fmt.Sprintf("tag %d with filling %x", x.tag, x.fill)
		}
	}
	if p == partA || r.shape == shapeAccount {
		return v, ""
	}
	v.hasB, v.tagB = x.hasB, x.tagB
	if !x.hasB {
		v.tagB = 0
	}
	if r.shape != shapeMixed {
		return v, ""
	}
	var want row
	r.put(&want, v)
	switch {
	case want.hasNote != x.hasNote || want.hasNote && !bytes.Equal(want.note, x.note):
		return v, fmt.Sprintf("second tag %d (set: %v) with note %q (set: %v)", x.tagB, x.hasB, x.note, x.hasNote)
	case x.hasB && !bytes.Equal(want.blob, x.blob):
		return v, fmt.Sprintf("second tag %d with another one's blob of %d bytes", x.tagB, len(x.blob))
	}
	return v, ""
}

func fillOf(tag uint32) (f [fillBytes]byte) {
	h := mix(uint64(tag) + 1)
	for i := range f {
		f[i] = byte(h >> (i % 8 * 8))
	}
	return f
}

func bytesOf(b []byte, seed uint64, n int) []byte {
	b = b[:0]
	for h := mix(seed); len(b) < n; h = mix(h + 1) {
		for i := 0; i < 8 && len(b) < n; i++ {
			b = append(b, byte(h>>(8*i)))
		}
	}
	return b
}
