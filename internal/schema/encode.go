package schema

import (
	"encoding/binary"
)

// A table definition in bytes, little endian, as signals and files carry it:
//
//	u32 version of the format (1)
//	u32 bytes of the whole
//	u32 id, u32 version, u32 flags (bit 0 logging), u32 fragments, u32 columns
//	name of the database, name of the table
//	per column: u32 length, u8 type, u8 flags (bits 0 nullable, 1 primary key, 2 distribution key), name
//	zeros to a multiple of 4
//
// A name is u16 length and bytes.
const (
	formatVersion = 1
	fixedHeader   = 28 // bytes

	flagLogging         = 1
	flagNullable        = 1
	flagPrimaryKey      = 2
	flagDistributionKey = 4
)

// AppendBinary appends the encoded definition, a multiple of 4 bytes.
func (t *Table) AppendBinary(b []byte) ([]byte, error) {
	if err := t.Validate(); err != nil {
		return b, err
	}
	start := len(b)
	le := binary.LittleEndian
	flags := uint32(0)
	if t.Logging {
		flags |= flagLogging
	}
	for _, v := range []uint32{formatVersion, 0, t.ID, t.Version, flags, t.Fragments, uint32(len(t.Columns))} {
		b = le.AppendUint32(b, v)
	}
	b = appendName(b, t.Database)
	b = appendName(b, t.Name)
	for i := range t.Columns {
		c := &t.Columns[i]
		b = le.AppendUint32(b, c.Length)
		b = append(b, byte(c.Type), c.flags())
		b = appendName(b, c.Name)
	}
	for (len(b)-start)&3 != 0 {
		b = append(b, 0)
	}
	le.PutUint32(b[start+4:], uint32(len(b)-start))
	return b, nil
}

func (c *Column) flags() (f byte) {
	if c.Nullable {
		f |= flagNullable
	}
	if c.PrimaryKey {
		f |= flagPrimaryKey
	}
	if c.DistributionKey {
		f |= flagDistributionKey
	}
	return f
}

func appendName(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint16(b, uint16(len(s))), s...)
}

// reader takes fields from the front of b; when b is too short it fails for good and gives zeros.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if len(r.b) < n {
		r.bad, r.b = true, nil
		return nil
	}
	f := r.b[:n]
	r.b = r.b[n:]
	return f
}

func (r *reader) u8() uint8 {
	if f := r.take(1); f != nil {
		return f[0]
	}
	return 0
}

func (r *reader) u32() uint32 {
	if f := r.take(4); f != nil {
		return binary.LittleEndian.Uint32(f)
	}
	return 0
}

func (r *reader) name() string {
	f := r.take(2)
	if f == nil {
		return ""
	}
	return string(r.take(int(binary.LittleEndian.Uint16(f))))
}

// DecodeTable reads what AppendBinary wrote, no byte more or less, and validates it. The bytes may come from anywhere.
func DecodeTable(b []byte) (*Table, error) {
	r := reader{b: b}
	if v := r.u32(); v != formatVersion {
		return nil, refuse(CodeInvalidTable, "table definition of format %d: this program reads format %d", v, formatVersion)
	}
	if n := r.u32(); int(n) != len(b) || n%4 != 0 {
		return nil, refuse(CodeInvalidTable, "table definition of %d bytes says that it has %d", len(b), n)
	}
	t := &Table{ID: r.u32(), Version: r.u32()}
	flags := r.u32()
	t.Logging = flags&flagLogging != 0
	t.Fragments = r.u32()
	n := r.u32()
	if r.bad || n > MaxColumns || flags&^flagLogging != 0 {
		return nil, refuse(CodeInvalidTable, "table definition is damaged in its head")
	}
	t.Database, t.Name = r.name(), r.name()
	if n > 0 {
		t.Columns = make([]Column, n)
	}
	for i := range t.Columns {
		c := &t.Columns[i]
		c.Length = r.u32()
		c.Type = ColumnType(r.u8())
		f := r.u8()
		c.Nullable, c.PrimaryKey, c.DistributionKey = f&flagNullable != 0, f&flagPrimaryKey != 0, f&flagDistributionKey != 0
		c.Name = r.name()
		if r.bad || f != c.flags() {
			return nil, refuse(CodeInvalidTable, "table definition is damaged in column %d", i)
		}
	}
	if len(r.b) > 3 {
		return nil, refuse(CodeInvalidTable, "table definition has %d bytes too many", len(r.b))
	}
	for _, z := range r.b {
		if z != 0 {
			return nil, refuse(CodeInvalidTable, "table definition ends in bytes that are not zero")
		}
	}
	if err := t.Validate(); err != nil {
		return nil, err
	}
	return t, nil
}
