package schema

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand"
	"reflect"
	"strings"
	"testing"
	"unsafe"
)

func col(name string, t ColumnType, n uint32) Column { return Column{Name: name, Type: t, Length: n} }

func key(c Column) Column { c.PrimaryKey = true; return c }

func dist(c Column) Column { c.PrimaryKey, c.DistributionKey = true, true; return c }

func null(c Column) Column { c.Nullable = true; return c }

func table(cols ...Column) *Table {
	return &Table{ID: 7, Version: 3, Database: "TEST_DB", Name: "TAB0", Columns: cols, Fragments: 2}
}

// flexAsynch's table and a few that have everything.
var tables = map[string]*Table{
	"flexAsynch": table(dist(col("DISTKEY", Unsigned, 1)), key(col("COL0", Unsigned, 1)), col("COL1", Unsigned, 1)),
	"arrays":     table(dist(col("DISTKEY", Unsigned, 1)), key(col("COL0", Unsigned, 1)), col("COL1", Unsigned, 40), col("COL2", Unsigned, 40)),
	"key only":   table(key(col("k", Bigint, 0))),
	"bytes": table(key(col("k", Char, 5)), col("t", Tinyint, 1), null(col("m", Mediumint, 3)), col("c", Binary, 7),
		null(col("d", Double, 1))),
	"variable": table(key(col("k", Unsigned, 1)), null(col("a", Varchar, 20)), col("b", Smallint, 1), col("c", Varbinary, 300),
		null(col("d", Unsigned, 2)), null(col("e", Varchar, 5))),
	"variable key": table(key(col("a", Varchar, 10)), dist(col("b", Varbinary, 40)), dist(col("c", Smallint, 1)), col("v", Float, 1),
		key(col("d", Unsigned, 1))),
	"scattered": table(dist(col("a", Varchar, 10)), key(col("b", Unsigned, 1)), dist(col("c", Smallint, 1)), col("v", Varchar, 9)),
	"fixed pieces": table(dist(col("a", Unsigned, 1)), key(col("b", Unsigned, 1)), dist(col("c", Char, 3)), null(col("v", Varchar, 9)),
		null(col("w", Varchar, 9))),
	"wide": wide(),
}

func wide() *Table {
	t := table(key(col("k", Unsigned, 1)))
	for i := range 200 {
		c := col(fmt.Sprintf("c%d", i), Unsigned, 1)
		switch i % 10 {
		case 3:
			c = col(c.Name, Varchar, 6)
		case 7:
			c = col(c.Name, Tinyint, 2)
		}
		c.Nullable = i%4 == 1 && i < 150
		t.Columns = append(t.Columns, c)
	}
	return t
}

func compile(t testing.TB, d *Table) *Layout {
	t.Helper()
	l, err := Compile(d)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestValidate(t *testing.T) {
	id := key(col("k", Unsigned, 1))
	many := func(n int) (c []Column) {
		c = append(c, id)
		for i := 1; i < n; i++ {
			c = append(c, col(fmt.Sprint("c", i), Unsigned, 1))
		}
		return c
	}
	keys := func(n int) (c []Column) {
		for i := range n {
			c = append(c, key(col(fmt.Sprint("k", i), Unsigned, 1)))
		}
		return c
	}
	for _, c := range []struct {
		what string
		code uint32
		t    *Table
	}{
		{"512 columns", 0, table(many(512)...)},
		{"513 columns", CodeInvalidTable, table(many(513)...)},
		{"no column", CodeInvalidTable, table()},
		{"no key", CodeInvalidTable, table(col("a", Int, 1))},
		{"32 key columns", 0, table(keys(32)...)},
		{"33 key columns", CodeKeyTooLong, table(keys(33)...)},
		{"key of 3072 bytes", 0, table(key(col("k", Char, 3072)))},
		{"key of 3073 bytes", CodeKeyTooLong, table(key(col("k", Char, 3073)))},
		{"key of 3070 variable bytes", 0, table(key(col("k", Varchar, 3070)))},
		{"key of 3071 variable bytes", CodeKeyTooLong, table(key(col("k", Varchar, 3071)))},
		{"row of 30000 bytes", 0, table(id, col("a", Unsigned, 7499))},
		{"row of 30004 bytes", CodeRowTooBig, table(id, col("a", Unsigned, 7500))},
		{"variable row of 30000 bytes", 0, table(id, col("a", Varchar, 29992))},
		{"variable row of 30004 bytes", CodeRowTooBig, table(id, col("a", Varchar, 29993))},
		{"column of 30001 bytes", CodeArrayTooLong, table(id, col("a", Char, 30001))},
		{"column of 2^32 bytes", CodeArrayTooLong, table(id, col("a", Bigint, 1<<29))},
		{"char without length", CodeArrayLength, table(id, col("a", Char, 0))},
		{"nullable key", CodeNullableKey, table(null(id))},
		{"distribution key outside", CodeInvalidTable, table(id, Column{Name: "a", Type: Int, DistributionKey: true})},
		{"twice", CodeDuplicateColumn, table(id, id)},
		{"no column name", CodeColumnName, table(id, col("", Int, 1))},
		{"long column name", CodeColumnName, table(id, col(strings.Repeat("x", 193), Int, 1))},
		{"type 0", CodeInvalidTable, table(id, col("a", 0, 1))},
		{"blob", CodeInvalidTable, table(id, col("a", 20, 1))},
		{"type 99", CodeInvalidTable, table(id, col("a", 99, 1))},
		{"no name", CodeTableName, &Table{Database: "d", Columns: many(1)}},
		{"no database", CodeTableName, &Table{Name: "t", Columns: many(1)}},
		{"zero in name", CodeTableName, &Table{Name: "t\x00", Database: "d", Columns: many(1)}},
		{"line end in name", CodeTableName, &Table{Name: "t\n", Database: "d", Columns: many(1)}},
		{"escape in database", CodeTableName, &Table{Name: "t", Database: "\x1b[2J", Columns: many(1)}},
		{"no UTF-8", CodeTableName, &Table{Name: "t\xff", Database: "d", Columns: many(1)}},
		{"C1 control", CodeTableName, &Table{Name: "t\u009b", Database: "d", Columns: many(1)}},
		{"slash", CodeTableName, &Table{Name: "b/c", Database: "a", Columns: many(1)}},
		{"slash in database", CodeTableName, &Table{Name: "c", Database: "a/b", Columns: many(1)}},
		{"letters beyond ASCII", 0, &Table{Name: "größe", Database: "数据", Columns: many(1)}},
		{"control in column", CodeColumnName, table(id, col("a\r", Int, 1))},
		{"id", CodeInvalidTable, &Table{ID: MaxTableID, Name: "t", Database: "d", Columns: many(1)}},
		{"fragments", CodeTooManyFragments, &Table{Fragments: 3841, Name: "t", Database: "d", Columns: many(1)}},
	} {
		err := c.t.Validate()
		var e *Error
		if code := uint32(0); errors.As(err, &e) {
			if code = e.Code; code != c.code {
				t.Errorf("%s: %v, should be error %d", c.what, err, c.code)
			}
		} else if err != nil || c.code != 0 {
			t.Errorf("%s: %v, should be error %d", c.what, err, c.code)
		}
	}
}

func TestColumnTypes(t *testing.T) {
	for n := range types {
		if types[n].name == "" {
			continue
		}
		got, err := ParseColumnType(strings.ToUpper(types[n].name))
		if got != ColumnType(n) || (err == nil) != (types[n].size > 0) {
			t.Errorf("%s is %v, %v", types[n].name, got, err)
		}
	}
	if _, err := ParseColumnType("Datetime"); err == nil || !strings.Contains(err.Error(), "not supported yet") {
		t.Error(err)
	}
	if _, err := ParseColumnType("nonsense"); err == nil || !strings.Contains(err.Error(), "Varbinary") {
		t.Error(err)
	}
	if s := ColumnType(200).String(); s != "type 200" {
		t.Error(s)
	}
}

func TestTableSurvivesEncoding(t *testing.T) {
	for name, d := range tables {
		b, err := d.AppendBinary([]byte("xyz"))
		if err != nil {
			t.Fatal(err)
		}
		b = b[3:]
		got, err := DecodeTable(b)
		if err != nil || !reflect.DeepEqual(got, d) {
			t.Fatalf("%s: %v\n%v\n%v", name, err, got, d)
		}
		for n := range b {
			if _, err := DecodeTable(b[:n]); err == nil {
				t.Fatalf("%s: %d bytes of %d are enough", name, n, len(b))
			}
		}
		if _, err := DecodeTable(append(b, 0, 0, 0, 0)); err == nil {
			t.Fatal("bytes too many")
		}
	}
	if _, err := table().AppendBinary(nil); err == nil {
		t.Fatal("an invalid table was encoded")
	}
	b, _ := tables["bytes"].AppendBinary(nil)
	b[0] = 2
	if _, err := DecodeTable(b); err == nil || !strings.Contains(err.Error(), "format 2") {
		t.Fatal(err)
	}
}

func ptr(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// aligned is room for n bytes between fences.
func aligned(n uint32) []byte {
	w := make([]uint64, n/8+4)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), len(w)*8)
	for i := range b {
		b[i] = 0xfe
	}
	return b[8 : 8+n]
}

func fences(t testing.TB, b []byte) {
	t.Helper()
	if len(b) == 0 {
		return
	}
	for i := -8; i < 0; i++ {
		if *(*byte)(unsafe.Add(ptr(b), i)) != 0xfe || *(*byte)(unsafe.Add(ptr(b), len(b)-i-1)) != 0xfe {
			t.Fatal("written outside")
		}
	}
}

func randomValue(r *rand.Rand, c *Column) []byte {
	n := c.Bytes()
	if c.Type.Variable() {
		n = uint32(r.Intn(int(n) + 1))
	}
	b := make([]byte, n)
	r.Read(b)
	return b
}

// row is a row as its column values; nil is NULL.
type row [][]byte

func rowColumns(d *Table) (c []*Column) {
	for i := range d.Columns {
		if !d.Columns[i].PrimaryKey {
			c = append(c, &d.Columns[i])
		}
	}
	return c
}

func randomRow(r *rand.Rand, d *Table) (v row) {
	for _, c := range rowColumns(d) {
		if c.Nullable && r.Intn(3) == 0 {
			v = append(v, nil)
		} else {
			v = append(v, randomValue(r, c))
		}
	}
	return v
}

// image is the row as one write of all columns, which is also its images.
func image(t testing.TB, l *Layout, v row) []byte {
	t.Helper()
	b, err := l.AppendWrite(aligned(l.ValuesMax)[:0], nil, v)
	if err != nil {
		t.Fatal(err)
	}
	if _, code := l.CheckWrite(ptr(b), uint32(len(b)), true); code != 0 {
		t.Fatalf("code %d for a good image", code)
	}
	return b
}

func pick(v row, cols []uint32) (p row) {
	p = row{}
	for _, c := range cols {
		p = append(p, v[c])
	}
	return p
}

// Any write on any row gives the row that it should give, and any read of it the values that it should; what is read
// can be written.
func TestApplyAndProject(t *testing.T) {
	for name, d := range tables {
		t.Run(name, func(t *testing.T) {
			l := compile(t, d)
			r := rand.New(rand.NewSource(1))
			for range 400 {
				old := randomRow(r, d)
				oldImage := image(t, l, old)
				oldFixed, oldVar := oldImage[:l.FixedSize], oldImage[l.FixedSize:]
				insert := r.Intn(4) == 0
				update := randomRow(r, d)
				cols := []uint32{}
				for i := range update {
					if r.Intn(3) == 0 || insert && !rowColumns(d)[i].Nullable {
						cols = append(cols, uint32(i))
					}
				}
				if r.Intn(5) == 0 {
					cols = nil
				}
				want := append(row(nil), old...)
				if insert {
					want = make(row, len(old))
				}
				given := update
				if cols != nil {
					given = pick(update, cols)
				}
				for i, v := range given {
					if cols == nil {
						want[i] = v
					} else {
						want[cols[i]] = v
					}
				}
				s, err := l.AppendWrite(aligned(l.ValuesMax + 4*l.MaskWords)[:0], cols, given)
				if err != nil {
					t.Fatal(err)
				}
				w, code := l.CheckWrite(ptr(s), uint32(len(s)), cols == nil)
				if code != 0 || insert && l.CheckInsert(w.Mask) != 0 {
					t.Fatalf("code %d for a good write", code)
				}
				of, ov, on := ptr(oldFixed), ptr(oldVar), uint32(len(oldVar))
				if insert {
					of, ov, on = nil, nil, 0
				}
				nf := aligned(l.FixedSize)
				inPlace := !insert && r.Intn(2) == 0
				if inPlace {
					copy(nf, oldFixed)
					of = ptr(nf)
				}
				size := l.AppliedVar(w, ov, on)
				nv := aligned(size)
				if n := l.Apply(w, of, ov, on, ptr(nf), ptr(nv)); n != size {
					t.Fatalf("Apply made %d bytes, AppliedVar said %d", n, size)
				}
				fences(t, nf)
				fences(t, nv)
				wantImage := image(t, l, want)
				if got := append(append([]byte(nil), nf...), nv...); !bytes.Equal(got, wantImage) {
					t.Fatalf("columns %v, insert %v:\n%x\nshould be\n%x", cols, insert, got, wantImage)
				}
				if !insert && !l.TouchesVar(w.Mask) && w.Mask != nil && !bytes.Equal(nv, oldVar) {
					t.Fatal("TouchesVar")
				}

				// read
				mask := unsafe.Pointer(nil)
				var words []uint32
				if r.Intn(5) > 0 && l.MaskWords > 0 {
					words = make([]uint32, l.MaskWords)
					cols = []uint32{}
					for i := range want {
						if r.Intn(2) == 0 {
							words[i/32] |= 1 << (i % 32)
							cols = append(cols, uint32(i))
						}
					}
					mask = unsafe.Pointer(&words[0])
					if code := l.CheckMask(mask, 4*l.MaskWords); code != 0 {
						t.Fatal(code)
					}
				} else {
					cols = nil
				}
				out := aligned(l.ProjectSize(mask, ptr(nv), uint32(len(nv))))
				if n := l.Project(mask, ptr(nf), ptr(nv), uint32(len(nv)), ptr(out)); n != uint32(len(out)) || n > l.ValuesMax {
					t.Fatalf("Project wrote %d bytes of %d", n, len(out))
				}
				fences(t, out)
				picked := want
				if cols != nil {
					picked = pick(want, cols)
				}
				wantOut, err := l.AppendWrite(nil, cols, picked)
				if err != nil {
					t.Fatal(err)
				}
				if cols != nil {
					wantOut = wantOut[4*l.MaskWords:]
				}
				if !bytes.Equal(out, wantOut) {
					t.Fatalf("read %v:\n%x\nshould be\n%x", cols, out, wantOut)
				}
				for i := range d.Columns {
					if p := l.Place(i); !p.Key && p.Variable {
						q, n := l.VarValue(ptr(nv), uint32(len(nv)), p.VarIndex)
						if !bytes.Equal(unsafe.Slice((*byte)(q), n), want[p.Index]) {
							t.Fatal("VarValue")
						}
					}
				}
			}
		})
	}
}

func randomKey(r *rand.Rand, d *Table) (v [][]byte) {
	for i := range d.Columns {
		if c := &d.Columns[i]; c.PrimaryKey {
			v = append(v, randomValue(r, c))
		}
	}
	return v
}

func TestKeyAndDistribution(t *testing.T) {
	for name, d := range tables {
		t.Run(name, func(t *testing.T) {
			l := compile(t, d)
			// the distribution image is the key image of a table with just these columns
			var cols []Column
			for _, c := range d.Columns {
				if c.DistributionKey {
					cols = append(cols, c)
				}
			}
			if cols == nil {
				for _, c := range d.Columns {
					if c.PrimaryKey {
						cols = append(cols, c)
					}
				}
			}
			dl := compile(t, table(cols...))
			r := rand.New(rand.NewSource(2))
			for range 200 {
				v := randomKey(r, d)
				k, err := l.AppendKey(aligned(l.KeyMax)[:0], v...)
				if err != nil || uint32(len(k)) > l.KeyMax || l.KeyFixed > 0 && uint32(len(k)) != l.KeyFixed {
					t.Fatal(err, len(k))
				}
				if code := l.CheckKey(ptr(k), uint32(len(k))); code != 0 {
					t.Fatalf("code %d for a good key %x", code, k)
				}
				for n := range uint32(len(k)) {
					if l.CheckKey(ptr(k), n) == 0 {
						t.Fatalf("%d bytes of %d are enough", n, len(k))
					}
				}
				var dv [][]byte
				i := 0
				for _, c := range d.Columns {
					if c.PrimaryKey {
						for _, x := range cols {
							if x.Name == c.Name {
								dv = append(dv, v[i])
							}
						}
						i++
					}
				}
				img, err := dl.AppendKey(nil, dv...)
				if err != nil {
					t.Fatal(err)
				}
				h := l.DistributionHash(ptr(k), uint32(len(k)))
				if h != Hash(ptr(img), uint32(len(img))) {
					t.Fatal("the hash of the distribution image differs")
				}
				if b := DistributionBucket(h); b >= DistributionBuckets {
					t.Fatal(b)
				}
			}
		})
	}
	l := compile(t, tables["bytes"])
	k, _ := l.AppendKey(nil, []byte("abcde"))
	k[7] = 1
	if code := l.CheckKey(ptr(k), 8); code != CodeBadLength {
		t.Errorf("padding that is not zero: code %d", code)
	}
	if _, err := l.AppendKey(nil, []byte("abcd")); err == nil {
		t.Error("a short value of a fixed column")
	}
}

func TestCheckWriteCodes(t *testing.T) {
	d := table(key(col("k", Unsigned, 1)), null(col("n", Tinyint, 1)), col("f", Unsigned, 1), col("v", Varchar, 4), null(col("w", Varchar, 4)))
	l := compile(t, d)
	good := row{{7}, {1, 2, 3, 4}, []byte("abc"), nil}
	img := image(t, l, good)
	if l.FixedSize != 12 || len(img) != 12+4+4 {
		t.Fatal(l.FixedSize, len(img))
	}
	upd := func(mask uint32, w ...uint32) []byte { return appendWords(appendWords(nil, []uint32{mask}), w) }
	edit := func(at int, b byte) []byte {
		c := append(aligned(0), img...)
		c[at] = b
		return c
	}
	for _, c := range []struct {
		what string
		code uint32
		all  bool
		s    []byte
	}{
		{"good", 0, true, img},
		{"short", CodeBadLength, true, img[:16]},
		{"no variable image", CodeBadLength, true, img[:12]},
		{"empty", CodeBadLength, true, nil},
		{"long", CodeTooMuchData, true, append(append([]byte(nil), img...), 0, 0, 0, 0)},
		{"not null is null", CodeNotNull, true, edit(0, 8|2)},
		{"bit of no column", CodeTooMuchData, true, edit(0, 8|16)},
		{"null with a value", CodeBadLength, true, edit(0, 8|1)},
		{"padding of a number", CodeBadLength, true, edit(5, 1)},
		{"ends descend", CodeBadLength, true, edit(14, 2)},
		{"null with bytes", CodeBadLength, true, edit(14, 4)},
		{"value too long", CodeBadLength, true, edit(12, 5)},
		{"padding of the bytes", CodeBadLength, true, edit(19, 1)},
		{"masked", 0, false, upd(2, 0, 9)},
		{"nothing", 0, false, upd(0, 0)},
		{"no mask", CodeBadLength, false, nil},
		{"no null words", CodeBadLength, false, upd(2)},
		{"no value", CodeBadLength, false, upd(2, 0)},
		{"value too many", CodeTooMuchData, false, upd(2, 0, 9, 9)},
		{"no such column", CodeTooMuchData, false, upd(16|2, 0, 9)},
		{"null for not null", CodeNotNull, false, upd(2, 2, 0)},
		{"null of another column", CodeTooMuchData, false, upd(2, 1, 9)},
		{"null", 0, false, upd(1, 1, 0)},
		{"null with a value", CodeBadLength, false, upd(1, 1, 9)},
		{"padding", CodeBadLength, false, upd(1, 0, 0x100)},
		{"variable", 0, false, upd(4, 0, 2|'a'<<16|'b'<<24)},
		{"variable with padding", CodeBadLength, false, upd(4, 0, 1|'a'<<16|'b'<<24)},
		{"variable too long", CodeBadLength, false, upd(4, 0, 5|'a'<<16, 0)},
		{"variable cut", CodeBadLength, false, upd(4, 0, 4|'a'<<16)},
		{"variable missing", CodeBadLength, false, upd(4, 0)},
		{"variable null with bytes", CodeBadLength, false, upd(8, 8, 1|'a'<<16)},
		{"variable null", 0, false, upd(8, 8, 0)},
	} {
		s := append(aligned(64)[:0], c.s...)
		if _, code := l.CheckWrite(ptr(s), uint32(len(s)), c.all); code != c.code {
			t.Errorf("%s: code %d, should be %d", c.what, code, c.code)
		}
	}
	m := []uint32{2}
	if code := l.CheckInsert(unsafe.Pointer(&m[0])); code != CodeMissingNull {
		t.Errorf("insert without v: code %d", code)
	}
	m[0] = 6
	if code := l.CheckInsert(unsafe.Pointer(&m[0])); code != 0 {
		t.Errorf("insert with all that is needed: code %d", code)
	}
	for n, want := range map[uint32]uint32{0: CodeBadLength, 4: 0, 8: CodeTooMuchData} {
		if code := l.CheckMask(ptr(upd(6, 0)), n); code != want {
			t.Errorf("mask of %d bytes: code %d", n, code)
		}
	}
}

func TestPlaces(t *testing.T) {
	l := compile(t, tables["flexAsynch"])
	if l.KeyFixed != 8 || l.FixedSize != 4 || l.HasVar() || l.DistOff != 0 || l.DistLen != 4 || l.DistWhole || l.NullWords != 0 {
		t.Errorf("%+v", l)
	}
	l = compile(t, tables["variable"])
	for i, want := range []Place{
		{Key: true, Bytes: 4},
		{Variable: true, Nullable: true, Index: 0, Bytes: 20},
		{Index: 1, Off: 4, Bytes: 2},
		{Variable: true, Index: 2, Bytes: 300, VarIndex: 1},
		{Nullable: true, Index: 3, Off: 8, Bytes: 8},
		{Variable: true, Nullable: true, Index: 4, Bytes: 5, VarIndex: 2},
	} {
		if p := l.Place(i); p != want {
			t.Errorf("column %d: %+v, should be %+v", i, p, want)
		}
	}
	if l.FixedSize != 16 || l.VarHead != 8 || l.VarMax != 8+pad(325) {
		t.Error(l.FixedSize, l.VarHead, l.VarMax)
	}
}

func TestNothingAllocates(t *testing.T) {
	for name, d := range tables {
		l := compile(t, d)
		r := rand.New(rand.NewSource(3))
		k, _ := l.AppendKey(nil, randomKey(r, d)...)
		img := image(t, l, randomRow(r, d))
		cols := []uint32{}
		vals := row{}
		for i, v := range randomRow(r, d) {
			if i%2 == 0 {
				cols, vals = append(cols, uint32(i)), append(vals, v)
			}
		}
		s, err := l.AppendWrite(nil, cols, vals)
		if err != nil {
			t.Fatal(err)
		}
		nf, nv, out := aligned(l.FixedSize), aligned(l.VarMax), aligned(l.ValuesMax)
		mask := make([]uint32, l.MaskWords+1)
		if n := testing.AllocsPerRun(100, func() {
			l.CheckKey(ptr(k), uint32(len(k)))
			l.DistributionHash(ptr(k), uint32(len(k)))
			w, code := l.CheckWrite(ptr(s), uint32(len(s)), false)
			if code != 0 || l.CheckInsert(w.Mask) != 0 && l.CheckInsert(w.Mask) != CodeMissingNull {
				t.Fatal(code)
			}
			l.CheckWrite(ptr(img), uint32(len(img)), true)
			vl := uint32(len(img)) - l.FixedSize
			l.AppliedVar(w, ptr(img[l.FixedSize:]), vl)
			vl = l.Apply(w, ptr(img), ptr(img[l.FixedSize:]), vl, ptr(nf), ptr(nv))
			l.ProjectSize(unsafe.Pointer(&mask[0]), ptr(nv), vl)
			l.Project(unsafe.Pointer(&mask[0]), ptr(nf), ptr(nv), vl, ptr(out))
			l.Project(nil, ptr(nf), ptr(nv), vl, ptr(out))
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// tableFrom makes a valid table of the bytes of a fuzzer.
func tableFrom(b []byte) *Table {
	t := table()
	for i := 0; i+1 < len(b) && i < 80; i += 2 {
		typ := ColumnType(b[i]%17 + 1)
		if typ.Size() == 0 {
			typ = Varchar
		}
		c := col(fmt.Sprint("c", i), typ, uint32(b[i+1]>>3)+1)
		c.PrimaryKey = i == 0 || b[i]&0x80 != 0 && i < 40
		c.DistributionKey = c.PrimaryKey && b[i]&0x40 != 0
		c.Nullable = !c.PrimaryKey && b[i+1]&4 != 0
		t.Columns = append(t.Columns, c)
	}
	if len(t.Columns) == 0 {
		t.Columns = []Column{key(col("k", Unsigned, 1))}
	}
	return t
}

func FuzzDecodeTable(f *testing.F) {
	for _, d := range tables {
		b, _ := d.AppendBinary(nil)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := DecodeTable(b)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Code == 0 {
				t.Fatal("an error without code")
			}
			return
		}
		again, err := d.AppendBinary(nil)
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("decoded, but encoded again it differs: %v", err)
		}
		if _, err := Compile(d); err != nil {
			t.Fatal(err)
		}
	})
}

// Whatever section comes: it is refused, or it is applied within its bounds and gives a row that is itself a good section.
func FuzzSections(f *testing.F) {
	f.Add([]byte{8, 8, 15, 44}, []byte{1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 65, 0}, false)
	f.Add([]byte{15, 80, 8, 8, 15, 44, 2, 9, 16, 20}, []byte{0, 0, 0, 0, 1, 0, 0, 0}, true)
	f.Fuzz(func(t *testing.T, def, section []byte, all bool) {
		d := tableFrom(def)
		l, err := Compile(d)
		if err != nil {
			return
		}
		s := aligned(uint32(len(section)))
		copy(s, section)
		n := uint32(len(s))
		if l.CheckKey(ptr(s), n) == 0 {
			l.DistributionHash(ptr(s), n)
		}
		w, code := l.CheckWrite(ptr(s), n, all)
		if code != 0 {
			return
		}
		old := image(t, l, randomRow(rand.New(rand.NewSource(4)), d))
		of, ov, on := ptr(old), ptr(old[l.FixedSize:]), uint32(len(old))-l.FixedSize
		if l.CheckInsert(w.Mask) == 0 && len(def)%2 == 0 {
			of, ov, on = nil, nil, 0
		}
		nf := aligned(l.FixedSize)
		nv := aligned(l.AppliedVar(w, ov, on))
		l.Apply(w, of, ov, on, ptr(nf), ptr(nv))
		fences(t, nf)
		fences(t, nv)
		img := append(append(aligned(l.ValuesMax)[:0], nf...), nv...)
		if _, code := l.CheckWrite(ptr(img), uint32(len(img)), true); code != 0 {
			t.Fatalf("the new image is refused: %d\n%x", code, img)
		}
		out := aligned(l.ProjectSize(w.Mask, ptr(nv), uint32(len(nv))))
		l.Project(w.Mask, ptr(nf), ptr(nv), uint32(len(nv)), ptr(out))
		fences(t, out)
		if !bytes.Equal(out, unsafe.Slice((*byte)(w.Values), w.Bytes)) {
			t.Fatalf("what was written is not what is read:\n%x\n%x", out, s)
		}
	})
}

var sink uint32

func BenchmarkProject(b *testing.B) {
	d := table(key(col("k", Unsigned, 1)))
	for i := range 25 {
		d.Columns = append(d.Columns, col(fmt.Sprint("c", i), Unsigned, 1))
	}
	l, err := Compile(d)
	if err != nil {
		b.Fatal(err)
	}
	src, dst := aligned(l.FixedSize), aligned(l.ValuesMax)
	for name, m := range map[string]uint32{"all by mask": 1<<25 - 1, "one": 4, "every second": 0x555555} {
		b.Run(name, func(b *testing.B) {
			mask := []uint32{m}
			for range b.N {
				sink += l.Project(unsafe.Pointer(&mask[0]), ptr(src), nil, 0, ptr(dst))
			}
		})
	}
	b.Run("all", func(b *testing.B) {
		for range b.N {
			sink += l.Project(nil, ptr(src), nil, 0, ptr(dst))
		}
	})
	fx := compile(b, tables["flexAsynch"])
	b.Run("flexAsynch: check key, hashes, check and apply", func(b *testing.B) {
		k, v := aligned(8), aligned(4)
		for i := range b.N {
			*(*uint32)(ptr(k)) = uint32(i)
			if fx.CheckKey(ptr(k), 8) != 0 {
				b.Fatal("key")
			}
			sink += uint32(Hash(ptr(k), 8) + fx.DistributionHash(ptr(k), 8))
			w, code := fx.CheckWrite(ptr(v), 4, true)
			if code != 0 {
				b.Fatal(code)
			}
			sink += fx.Apply(w, ptr(dst), nil, 0, ptr(dst), nil)
		}
	})
	b.Run("check and apply one", func(b *testing.B) {
		s := binary.LittleEndian.AppendUint64(nil, 4)
		for range b.N {
			w, _ := l.CheckWrite(ptr(s), 8, false)
			sink += l.Apply(w, ptr(src), nil, 0, ptr(src), nil)
		}
	})
}
