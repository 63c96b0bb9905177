package ndb

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"github.com/cohortdb/cohort/internal/client"
)

// Record is a Go struct bound to a table. Its methods define operations as those of Tx do; values are taken from the
// struct at once, and a read writes into the struct when its batch is done: it must stay where it is until then.
type Record[T any] struct {
	t        *Table
	format   *client.Format
	bindings []client.Binding
}

// Bind compiles the binding of T: a struct whose exported fields name columns by the tag `ndb:"NAME"`; a field without the
// tag is left alone, and an embedded struct's fields count as T's. Every key column must be bound. A column that is not
// bound is neither read nor changed; an insert leaves it NULL, or fails with 839 if it cannot be.
//
// Fields may be integers and floats (of another size than the column's: checked when written), bool for 8-bit
// columns; string, []byte and [N]byte for character and binary columns; [N]T and []T for arrays of numbers; for a column
// that may be NULL a pointer to any of these, or sql.Null of them (or any struct {V T; Valid bool}). A NULL that is read
// into a field that cannot say so is the zero value. Slices that are read into keep their room where it suffices.
func Bind[T any](t *Table) (*Record[T], error) {
	typ := reflect.TypeFor[T]()
	if typ.Kind() != reflect.Struct {
		return nil, fmt.Errorf("ndb: %v is no struct: a record is bound to a struct", typ)
	}
	bindings, err := bindStruct(nil, t, typ, 0)
	if err != nil {
		return nil, fmt.Errorf("ndb: %v: %w", typ, err)
	}
	return newRecord[T](t, bindings)
}

func newRecord[T any](t *Table, bindings []client.Binding) (*Record[T], error) {
	f, err := client.NewFormat(t.core, bindings)
	if err != nil {
		return nil, fmt.Errorf("ndb: %v and table %s: %w", reflect.TypeFor[T](), t.Name(), err)
	}
	return &Record[T]{t: t, format: f, bindings: bindings}, nil
}

// bindStruct adds the bindings of a struct's fields.
func bindStruct(out []client.Binding, t *Table, typ reflect.Type, base uintptr) ([]client.Binding, error) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, tagged := f.Tag.Lookup("ndb")
		if f.Anonymous && !tagged && f.Type.Kind() == reflect.Struct {
			var err error
			if out, err = bindStruct(out, t, f.Type, base+f.Offset); err != nil {
				return nil, err
			}
			continue
		}
		if !tagged || name == "-" {
			continue
		}
		if !f.IsExported() {
			return nil, fmt.Errorf("field %s has a tag but is not exported", f.Name)
		}
		col := t.Column(name)
		if col < 0 {
			return nil, fmt.Errorf("field %s: table %s has no column %q", f.Name, t.Name(), name)
		}
		b, err := bindField(t.columns[col], f.Type)
		if err != nil {
			return nil, fmt.Errorf("field %s: column %s: %w", f.Name, name, err)
		}
		b.Column, b.Off, b.Flag = col, base+f.Offset, b.Flag+base+f.Offset
		out = append(out, b)
	}
	return out, nil
}

// bindField finds out how a type holds a column's values.
func bindField(c Column, typ reflect.Type) (b client.Binding, err error) {
	switch {
	case typ.Kind() == reflect.Pointer:
		b.Nulls = client.NullPointer
		typ = typ.Elem()
	case typ.Kind() == reflect.Struct && typ.NumField() == 2 && typ.Field(0).Name == "V" && typ.Field(1).Name == "Valid" &&
		typ.Field(1).Type.Kind() == reflect.Bool:
		b.Nulls, b.Flag = client.NullFlag, typ.Field(1).Offset
		typ = typ.Field(0).Type
	}
	if b.Nulls != client.NullNever && !c.Nullable {
		return b, fmt.Errorf("it cannot be NULL: use %v itself", typ)
	}
	b.Size = uint32(typ.Size())
	number, size, signed := c.Type <= TypeDouble, elementSize(c.Type), kindSigned>>c.Type&1 != 0
	float := kindFloat>>c.Type&1 != 0
	one := c.Length <= 1
	wrong := fmt.Errorf("a field of type %v cannot hold %v", typ, describe(c))
	switch typ.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if !signed || !one {
			return b, wrong
		}
		if b.Codec = client.CodecInt; b.Size == size {
			b.Codec = client.CodecRaw
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if signed || float || !number || !one {
			return b, wrong
		}
		if b.Codec = client.CodecUint; b.Size == size {
			b.Codec = client.CodecRaw
		}
	case reflect.Float32, reflect.Float64:
		if !float || !one || b.Size < size {
			return b, wrong
		}
		if b.Codec = client.CodecDouble; b.Size == size {
			b.Codec = client.CodecRaw
		}
	case reflect.Bool:
		if !number || size != 1 || !one {
			return b, wrong
		}
		b.Codec = client.CodecBool
	case reflect.String:
		if number {
			return b, wrong
		}
		b.Codec = client.CodecString
	case reflect.Array:
		n, e := typ.Len(), typ.Elem()
		if number && (n != max(c.Length, 1) || !holds(c, e)) || !number && (e.Kind() != reflect.Uint8 || n != c.Length || kindVariable>>c.Type&1 != 0) {
			return b, wrong
		}
		b.Codec = client.CodecRaw
	case reflect.Slice:
		switch e := typ.Elem(); {
		case !number && e.Kind() == reflect.Uint8:
			b.Codec = client.CodecBytes
		case number && holds(c, e):
			b.Codec, b.Size = client.CodecSlice, uint32(e.Size())
		default:
			return b, wrong
		}
	default:
		return b, wrong
	}
	return b, nil
}

// holds tells whether an element of that type has the bytes of the column's.
func holds(c Column, e reflect.Type) bool {
	switch e.Kind() {
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return kindSigned>>c.Type&1 != 0 && uint32(e.Size()) == elementSize(c.Type)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return kindUnsigned>>c.Type&1 != 0 && uint32(e.Size()) == elementSize(c.Type)
	case reflect.Float32, reflect.Float64:
		return kindFloat>>c.Type&1 != 0 && uint32(e.Size()) == elementSize(c.Type)
	}
	return false
}

func describe(c Column) string {
	if c.Length > 1 || c.Type > TypeDouble {
		return fmt.Sprintf("%v(%d)", c.Type, c.Length)
	}
	return c.Type.String()
}

// Only is the record without the columns that are not named; key columns stay. Read and Update of it leave the others
// alone.
func (r *Record[T]) Only(columns ...string) (*Record[T], error) {
	var want []int
	for _, name := range columns {
		i := r.t.Column(name)
		if !slices.ContainsFunc(r.bindings, func(b client.Binding) bool { return b.Column == i }) {
			return nil, fmt.Errorf("ndb: %v has no field for a column %q", reflect.TypeFor[T](), name)
		}
		want = append(want, i)
	}
	var bindings []client.Binding
	for _, b := range r.bindings {
		if r.t.columns[b.Column].Key || slices.Contains(want, b.Column) {
			bindings = append(bindings, b)
		}
	}
	return newRecord[T](r.t, bindings)
}

// Table is the record's table.
func (r *Record[T]) Table() *Table { return r.t }

// Node is the data node to which operations on the row go whose key is in row: that of the row's primary, or one that
// stands in for it. 0 if the key is not valid, or no node that has the row takes transactions.
func (r *Record[T]) Node(row *T) int {
	f, _, err := r.format.Place(unsafe.Pointer(row))
	if err != nil {
		return 0
	}
	return r.t.node(f)
}

// Fragment is the number of the fragment of the row whose key is in row; -1 if the key is not valid.
func (r *Record[T]) Fragment(row *T) int {
	f, _, err := r.format.Place(unsafe.Pointer(row))
	if err != nil {
		return -1
	}
	return f
}

// Read defines a read by the key in row.
func (r *Record[T]) Read(tx *Tx, row *T, mode ReadMode) *Op {
	tx.s.acquire()
	return (*Op)(r.format.Read(tx.core, unsafe.Pointer(row), uint8(mode)))
}

// Insert defines an insert of the bound columns: error 630 if the row exists.
func (r *Record[T]) Insert(tx *Tx, row *T) *Op {
	tx.s.acquire()
	return (*Op)(r.format.Insert(tx.core, unsafe.Pointer(row)))
}

// Update defines an update of the bound columns: error 626 if the row does not exist.
func (r *Record[T]) Update(tx *Tx, row *T) *Op {
	tx.s.acquire()
	return (*Op)(r.format.Update(tx.core, unsafe.Pointer(row)))
}

// Write defines an insert or update of the bound columns.
func (r *Record[T]) Write(tx *Tx, row *T) *Op {
	tx.s.acquire()
	return (*Op)(r.format.Write(tx.core, unsafe.Pointer(row)))
}

// Delete defines a delete by the key in row: error 626 if the row does not exist.
func (r *Record[T]) Delete(tx *Tx, row *T) *Op {
	tx.s.acquire()
	return (*Op)(r.format.Delete(tx.core, unsafe.Pointer(row)))
}

// Get reads one committed row in a transaction of its own: ErrNotFound if there is none.
func (r *Record[T]) Get(ctx context.Context, s *Session, row *T) error {
	return s.once(ctx, func(tx *Tx) { r.Read(tx, row, Committed) })
}

// Put writes one row (insert or update) in a transaction of its own.
func (r *Record[T]) Put(ctx context.Context, s *Session, row *T) error {
	return s.once(ctx, func(tx *Tx) { r.Write(tx, row) })
}

// Remove deletes one row in a transaction of its own: ErrNotFound if there is none.
func (r *Record[T]) Remove(ctx context.Context, s *Session, row *T) error {
	return s.once(ctx, func(tx *Tx) { r.Delete(tx, row) })
}

// once commits what define defines.
func (s *Session) once(ctx context.Context, define func(*Tx)) error {
	tx, err := s.Begin()
	if err != nil {
		return err
	}
	defer tx.Close()
	define(tx)
	return tx.Commit(ctx)
}

// elementSize is the bytes of one value of a type.
func elementSize(t Type) uint32 {
	switch t {
	case TypeInt8, TypeUint8:
		return 1
	case TypeInt16, TypeUint16:
		return 2
	case TypeInt24, TypeUint24:
		return 3
	case TypeInt64, TypeUint64, TypeDouble:
		return 8
	case TypeInt32, TypeUint32, TypeFloat:
		return 4
	}
	return 1
}
