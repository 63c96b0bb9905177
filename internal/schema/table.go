package schema

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of a table.
const (
	MaxTableID    = 20320 // ids are below
	MaxColumns    = 512
	MaxKeyColumns = 32
	MaxKeyBytes   = 3072  // of the longest key image
	MaxRowBytes   = 30000 // of the longest key, fixed and variable image together
	MaxNameBytes  = 192   // of a database, table or column: 64 characters of 3 bytes
)

// ColumnType is what one element of a column is. The numbers are part of the encoding of tables.
type ColumnType uint8

const (
	Tinyint        ColumnType = 1  // 8 bits, signed
	Tinyunsigned   ColumnType = 2  // 8 bits
	Smallint       ColumnType = 3  // 16 bits, signed
	Smallunsigned  ColumnType = 4  // 16 bits
	Mediumint      ColumnType = 5  // 24 bits, signed
	Mediumunsigned ColumnType = 6  // 24 bits
	Int            ColumnType = 7  // 32 bits, signed
	Unsigned       ColumnType = 8  // 32 bits
	Bigint         ColumnType = 9  // 64 bits, signed
	Bigunsigned    ColumnType = 10 // 64 bits
	Float          ColumnType = 11 // IEEE 754, 32 bits
	Double         ColumnType = 12 // IEEE 754, 64 bits
	Char           ColumnType = 14 // exactly Length bytes of text
	Varchar        ColumnType = 15 // up to Length bytes of text
	Binary         ColumnType = 16 // exactly Length bytes
	Varbinary      ColumnType = 17 // up to Length bytes
)

// types is indexed by ColumnType. Types without a size have a number and a name, and come later.
var types = [...]struct {
	name string
	size uint32 // bytes of an element
}{
	1: {"Tinyint", 1}, 2: {"Tinyunsigned", 1}, 3: {"Smallint", 2}, 4: {"Smallunsigned", 2}, 5: {"Mediumint", 3},
	6: {"Mediumunsigned", 3}, 7: {"Int", 4}, 8: {"Unsigned", 4}, 9: {"Bigint", 8}, 10: {"Bigunsigned", 8},
	11: {"Float", 4}, 12: {"Double", 8}, 13: {"Olddecimal", 0}, 14: {"Char", 1}, 15: {"Varchar", 1}, 16: {"Binary", 1},
	17: {"Varbinary", 1}, 18: {"Datetime", 0}, 19: {"Date", 0}, 20: {"Blob", 0}, 21: {"Text", 0}, 22: {"Bit", 0},
	23: {"Longvarchar", 0}, 24: {"Longvarbinary", 0}, 25: {"Time", 0}, 26: {"Year", 0}, 27: {"Timestamp", 0},
	28: {"Olddecimalunsigned", 0}, 29: {"Decimal", 0}, 30: {"Decimalunsigned", 0}, 31: {"Time2", 0}, 32: {"Datetime2", 0},
	33: {"Timestamp2", 0},
}

func (t ColumnType) String() string {
	if int(t) < len(types) && types[t].name != "" {
		return types[t].name
	}
	return "type " + itoa(uint32(t))
}

// ParseColumnType knows the names of types, in any case.
func ParseColumnType(name string) (ColumnType, error) {
	for t := range types {
		if types[t].name != "" && strings.EqualFold(types[t].name, name) {
			return ColumnType(t), ColumnType(t).supported()
		}
	}
	return 0, refuse(CodeInvalidTable, "there is no column type %q: use one of %s", name, typeNames())
}

func (t ColumnType) supported() error {
	switch {
	case t.Size() > 0:
		return nil
	case int(t) < len(types) && types[t].name != "":
		return refuse(CodeInvalidTable, "column type %v is not supported yet: use one of %s", t, typeNames())
	}
	return refuse(CodeInvalidTable, "there is no column type with number %d: use one of %s", t, typeNames())
}

func typeNames() string {
	var n []string
	for _, t := range types {
		if t.size > 0 {
			n = append(n, t.name)
		}
	}
	return strings.Join(n, ", ")
}

// Size is the bytes of one element; 0 for a type that is not supported.
func (t ColumnType) Size() uint32 {
	if int(t) < len(types) {
		return types[t].size
	}
	return 0
}

// Variable says whether values have a length of their own.
func (t ColumnType) Variable() bool { return t == Varchar || t == Varbinary }

// bytesType says whether Length counts bytes and must be given.
func (t ColumnType) bytesType() bool { return t >= Char && t <= Varbinary }

// Column is a column of a table.
type Column struct {
	Name            string
	Type            ColumnType
	Length          uint32 // elements; bytes for Char, Varchar, Binary, Varbinary. 0 is 1 element
	Nullable        bool   // not for key columns
	PrimaryKey      bool
	DistributionKey bool // part of what decides where the row lives; if no column says so, the whole primary key is
}

// Bytes is the length of a value of the column, the longest if it varies.
func (c *Column) Bytes() uint32 { return c.Type.Size() * max(c.Length, 1) }

// Table is the definition of a table.
type Table struct {
	ID        uint32 // given by the dictionary, below MaxTableID
	Version   uint32 // given by the dictionary; grows when the id is used again or the table is altered
	Database  string
	Name      string
	Columns   []Column
	Logging   bool   // rows are logged and checkpointed; without it the table is empty after a system restart
	Fragments uint32 // fixed when the table is created; 0 until the dictionary has chosen
}

// Validate says what is wrong with a definition, as an *Error with the code for the client.
func (t *Table) Validate() error {
	if t.ID >= MaxTableID {
		return refuse(CodeInvalidTable, "table id %d: ids are below %d", t.ID, MaxTableID)
	}
	if t.Fragments > DistributionBuckets {
		return refuse(CodeTooManyFragments, "%d fragments: at most %d", t.Fragments, DistributionBuckets)
	}
	if !goodName(t.Name) || !goodName(t.Database) || strings.Contains(t.Name+t.Database, "/") {
		return refuse(CodeTableName, "database %q, table %q: a name has 1 to %d bytes of UTF-8, no control character and no slash",
			t.Database, t.Name, MaxNameBytes)
	}
	if n := len(t.Columns); n == 0 || n > MaxColumns {
		return refuse(CodeInvalidTable, "%d columns: a table has 1 to %d", n, MaxColumns)
	}
	names := make(map[string]struct{}, len(t.Columns))
	keys := 0
	for i := range t.Columns {
		c := &t.Columns[i]
		if err := c.validate(); err != nil {
			return err
		}
		if _, twice := names[c.Name]; twice {
			return refuse(CodeDuplicateColumn, "two columns are called %q", c.Name)
		}
		names[c.Name] = struct{}{}
		if c.PrimaryKey {
			keys++
		}
	}
	if keys == 0 {
		return refuse(CodeInvalidTable, "table %s has no primary key: mark one column or more", t.Name)
	}
	if keys > MaxKeyColumns {
		return refuse(CodeKeyTooLong, "%d primary key columns: at most %d", keys, MaxKeyColumns)
	}
	key, row := t.sizes()
	if key > MaxKeyBytes {
		return refuse(CodeKeyTooLong, "the primary key can take %d bytes: at most %d", key, MaxKeyBytes)
	}
	if key+row > MaxRowBytes {
		return refuse(CodeRowTooBig, "a row can take %d bytes: at most %d", key+row, MaxRowBytes)
	}
	return nil
}

func (c *Column) validate() error {
	if !goodName(c.Name) {
		return refuse(CodeColumnName, "column %q: a name has 1 to %d bytes of UTF-8, no control character", c.Name, MaxNameBytes)
	}
	if err := c.Type.supported(); err != nil {
		e := err.(*Error)
		return refuse(e.Code, "column %s: %s", c.Name, e.Reason)
	}
	switch {
	case c.Type.bytesType() && c.Length == 0:
		return refuse(CodeArrayLength, "column %s: %v needs a length of 1 or more", c.Name, c.Type)
	case c.Length > MaxRowBytes/c.Type.Size():
		return refuse(CodeArrayTooLong, "column %s: %v of length %d: at most %d", c.Name, c.Type, c.Length, MaxRowBytes/c.Type.Size())
	case c.PrimaryKey && c.Nullable:
		return refuse(CodeNullableKey, "column %s: a primary key column cannot be nullable", c.Name)
	case c.DistributionKey && !c.PrimaryKey:
		return refuse(CodeInvalidTable, "column %s: a distribution key column must be part of the primary key", c.Name)
	}
	return nil
}

// goodName: names go into logs and onto terminals as they are.
func goodName(s string) bool {
	return s != "" && len(s) <= MaxNameBytes && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// sizes is the longest key image, and the longest fixed and variable image together.
func (t *Table) sizes() (key, row uint32) {
	l := Layout{}
	l.place(t)
	return l.KeyMax, l.FixedSize + l.VarMax
}

func itoa(n uint32) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}
