package client

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
)

// slab is memory that bindings point into, with a value for each column, in the manner of package ndb's rows.
type slab struct {
	mem  []uint64
	off  []uint32
	flag []uint32
}

func (s *slab) base() unsafe.Pointer { return unsafe.Pointer(&s.mem[0]) }

// randomTable makes a valid table with every type in it sooner or later.
func randomTable(rng *rand.Rand) *Table {
	kinds := []schema.ColumnType{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17}
	def := &schema.Table{ID: 3, Version: 1, Database: "d", Name: "t", Fragments: 4}
	n := 1 + rng.IntN(40)
	for i := range n {
		c := schema.Column{Name: fmt.Sprint("c", i), Type: kinds[rng.IntN(len(kinds))]}
		if c.Type >= schema.Char || rng.IntN(5) == 0 {
			c.Length = 1 + rng.Uint32N(30)
		}
		if rng.IntN(3) == 0 || i == n-1 {
			c.PrimaryKey = true
			c.DistributionKey = rng.IntN(2) == 0
		} else {
			c.Nullable = rng.IntN(2) == 0
		}
		def.Columns = append(def.Columns, c)
	}
	layout, err := schema.Compile(def)
	if err != nil {
		return randomTable(rng)
	}
	return &Table{Def: def, Layout: layout, id: 3, version: 1, frag: make([]uint16, schema.DistributionBuckets), first: oneMap()}
}

// oneMap is the map of a table with one fragment.
func oneMap() *Map {
	return &Map{chains: []signal.Addr{signal.MakeAddr(1, signal.BlockLDM, 0), 0, 0, 0}}
}

// lay gives each column a place in memory and a random value; the values come back as schema's functions take them:
// nil for NULL.
func lay(rng *rand.Rand, t *Table) (s slab, key [][]byte, values [][]byte, b []Binding) {
	at := uint32(8)
	for i := range t.Def.Columns {
		at += rng.Uint32N(3) * 4
		p := t.Layout.Place(i)
		s.off = append(s.off, at)
		if at += signal.Pad(p.Bytes); p.Variable {
			at += 4
		}
		s.flag = append(s.flag, at)
		at += 4
	}
	s.mem = make([]uint64, at/8+1)
	for i := range t.Def.Columns {
		p := t.Layout.Place(i)
		v := make([]byte, p.Bytes)
		if p.Variable {
			v = v[:rng.Uint32N(p.Bytes+1)]
		}
		for k := range v {
			v[k] = byte(rng.Uint32())
		}
		x := Binding{Column: i, Off: uintptr(s.off[i]), Size: p.Bytes}
		dst := unsafe.Add(s.base(), s.off[i])
		if p.Variable {
			x.Codec = CodecInline
			*(*uint32)(dst) = uint32(len(v))
			dst = unsafe.Add(dst, 4)
		}
		copy(unsafe.Slice((*byte)(dst), len(v)), v)
		if p.Nullable {
			x.Nulls, x.Flag = NullFlag, uintptr(s.flag[i])
			if rng.IntN(2) == 0 {
				v = nil
			} else {
				*(*bool)(unsafe.Add(s.base(), s.flag[i])) = true
			}
		}
		if p.Key {
			key = append(key, v)
		} else {
			values = append(values, v)
		}
		b = append(b, x)
	}
	return s, key, values, b
}

// What a format writes is what schema's own functions put together of the same values, and what a data node projects
// from that comes back.
func TestFormatsAgreeWithTheSchema(t *testing.T) {
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		tab := randomTable(rng)
		l := tab.Layout
		s, keyValues, values, bindings := lay(rng, tab)

		var bound []Binding
		var columns []uint32 // numbers among the non-key columns
		var chosen [][]byte
		all := rng.IntN(3) == 0
		for _, b := range bindings {
			p := l.Place(b.Column)
			if !p.Key && !all && rng.IntN(2) == 0 {
				continue
			}
			bound = append(bound, b)
			if !p.Key {
				columns = append(columns, p.Index)
				chosen = append(chosen, values[p.Index])
			}
		}
		rng.Shuffle(len(bound), func(i, j int) { bound[i], bound[j] = bound[j], bound[i] })
		f, err := NewFormat(tab, bound)
		if err != nil {
			t.Fatal(seed, err)
		}
		whole := f.flags&signal.FlagAll != 0
		if whole {
			columns = nil
		} else if columns == nil {
			columns = []uint32{}
		}
		wantKey, err := l.AppendKey(nil, keyValues...)
		if err != nil {
			t.Fatal(seed, err)
		}
		want, err := l.AppendWrite(nil, columns, chosen)
		if err != nil {
			t.Fatal(seed, err)
		}

		key := make([]uint64, schema.MaxKeyBytes/8+1)
		for i := range key {
			key[i] = 0xa5a5a5a5a5a5a5a5 // buffers are not clean
		}
		keyLen, dataLen, code := f.measure(s.base(), unsafe.Pointer(&key[0]), signal.OpInsert)
		if code != 0 {
			t.Fatal(seed, code)
		}
		if got := unsafe.Slice((*byte)(unsafe.Pointer(&key[0])), keyLen); !bytes.Equal(got, wantKey) {
			t.Fatalf("seed %d: key\n%x, want\n%x", seed, got, wantKey)
		}
		data := bytes.Repeat([]byte{0xa5}, int(dataLen)+8)
		f.data(s.base(), unsafe.Pointer(&data[0]), signal.OpInsert, dataLen)
		if !bytes.Equal(data[:dataLen], want) || data[dataLen] != 0xa5 {
			t.Fatalf("seed %d: data\n%x, want\n%x", seed, data[:dataLen], want)
		}
		w, code := l.CheckWrite(unsafe.Pointer(&data[0]), dataLen, whole)
		if code != 0 {
			t.Fatal(seed, code)
		}

		// The row as a data node has it after an insert, read back into other memory.
		fixed, vari := make([]byte, l.FixedSize+4), make([]byte, l.VarMax+8)
		n := l.Apply(w, nil, nil, 0, unsafe.Pointer(&fixed[0]), unsafe.Pointer(&vari[0]))
		ask := make([]byte, 4*l.MaskWords+4)
		_, askLen, _ := f.measure(s.base(), unsafe.Pointer(&key[0]), signal.OpReadCommitted)
		f.data(s.base(), unsafe.Pointer(&ask[0]), signal.OpReadCommitted, askLen)
		mask := unsafe.Pointer(&ask[0])
		answer := make([]byte, l.ValuesMax+8)
		if whole {
			mask = nil
		} else if code := l.CheckMask(mask, askLen); code != 0 {
			t.Fatal(seed, code)
		}
		answered := l.Project(mask, unsafe.Pointer(&fixed[0]), unsafe.Pointer(&vari[0]), n, unsafe.Pointer(&answer[0]))
		back := slab{mem: make([]uint64, len(s.mem)), off: s.off, flag: s.flag}
		for i := range back.mem {
			back.mem[i] = rng.Uint64()&0x0101010101010101 | 2
		}
		if code := f.take(unsafe.Pointer(&answer[0]), answered, back.base()); code != 0 {
			t.Fatal(seed, code)
		}
		for _, b := range bound {
			p := l.Place(b.Column)
			if p.Key {
				continue
			}
			v := values[p.Index]
			got := unsafe.Add(back.base(), s.off[b.Column])
			size := p.Bytes
			if p.Variable {
				size = *(*uint32)(got)
				got = unsafe.Add(got, 4)
			}
			if p.Nullable && *(*bool)(unsafe.Add(back.base(), s.flag[b.Column])) == (v == nil) {
				t.Fatalf("seed %d: column %d: NULL is lost", seed, b.Column)
			}
			if v != nil && !bytes.Equal(unsafe.Slice((*byte)(got), size), v) {
				t.Fatalf("seed %d: column %d: %x, want %x", seed, b.Column, unsafe.Slice((*byte)(got), size), v)
			}
		}

		// What a broken node sends is refused or taken, but never leads astray.
		for range 20 {
			m := rng.Uint32N(uint32(len(answer)))
			bad := append([]byte(nil), answer[:m&^3]...)
			for range 3 {
				if len(bad) > 0 {
					bad[rng.IntN(len(bad))] = byte(rng.Uint32())
				}
			}
			bad = append(bad, 0, 0, 0, 0)[:len(bad):len(bad)]
			if len(bad) == 0 {
				bad = make([]byte, 0, 4)
			}
			f.take(unsafe.Pointer(unsafe.SliceData(bad)), uint32(len(bad)), back.base())
		}
	}
}

func TestFieldsOfGoTypes(t *testing.T) {
	def := &schema.Table{ID: 3, Database: "d", Name: "t", Fragments: 1, Columns: []schema.Column{
		{Name: "k", Type: schema.Varchar, Length: 20, PrimaryKey: true},
		{Name: "n", Type: schema.Int, PrimaryKey: true},
		{Name: "c", Type: schema.Char, Length: 6, PrimaryKey: true},
		{Name: "i", Type: schema.Smallint, Nullable: true},
		{Name: "u", Type: schema.Mediumunsigned, Nullable: true},
		{Name: "s", Type: schema.Varchar, Length: 5, Nullable: true},
		{Name: "f", Type: schema.Float},
		{Name: "b", Type: schema.Binary, Length: 5},
		{Name: "w", Type: schema.Unsigned, Length: 3, Nullable: true},
		{Name: "o", Type: schema.Tinyint},
		{Name: "p", Type: schema.Bigint, Nullable: true},
	}}
	layout, err := schema.Compile(def)
	if err != nil {
		t.Fatal(err)
	}
	tab := &Table{Def: def, Layout: layout, frag: make([]uint16, schema.DistributionBuckets), first: oneMap()}
	type fields struct {
		k string
		n int64
		c string
		i *int32
		u uint64
		s *string
		f float64
		b []byte
		w []uint32
		o bool
		p *int64
	}
	var z fields
	bind := []Binding{
		{Column: 0, Off: unsafe.Offsetof(z.k), Size: 16, Codec: CodecString},
		{Column: 1, Off: unsafe.Offsetof(z.n), Size: 8, Codec: CodecInt},
		{Column: 2, Off: unsafe.Offsetof(z.c), Size: 16, Codec: CodecString},
		{Column: 3, Off: unsafe.Offsetof(z.i), Size: 4, Codec: CodecInt, Nulls: NullPointer},
		{Column: 4, Off: unsafe.Offsetof(z.u), Size: 8, Codec: CodecUint},
		{Column: 5, Off: unsafe.Offsetof(z.s), Size: 16, Codec: CodecString, Nulls: NullPointer},
		{Column: 6, Off: unsafe.Offsetof(z.f), Size: 8, Codec: CodecDouble},
		{Column: 7, Off: unsafe.Offsetof(z.b), Size: 24, Codec: CodecBytes},
		{Column: 8, Off: unsafe.Offsetof(z.w), Size: 4, Codec: CodecSlice},
		{Column: 9, Off: unsafe.Offsetof(z.o), Size: 1, Codec: CodecBool},
		{Column: 10, Off: unsafe.Offsetof(z.p), Size: 8, Codec: CodecRaw, Nulls: NullPointer},
	}
	f := mustFormat(t, tab, bind...)
	round := func(in fields) (out fields, code uint32) {
		key := make([]uint64, 64)
		keyLen, n, code := f.measure(unsafe.Pointer(&in), unsafe.Pointer(&key[0]), signal.OpInsert)
		if code != 0 {
			return out, code
		}
		if code := layout.CheckKey(unsafe.Pointer(&key[0]), keyLen); code != 0 {
			t.Fatal(code)
		}
		data := make([]byte, n+4)
		f.data(unsafe.Pointer(&in), unsafe.Pointer(&data[0]), signal.OpInsert, n)
		if _, code := layout.CheckWrite(unsafe.Pointer(&data[0]), n, true); code != 0 {
			t.Fatal(code)
		}
		return out, f.take(unsafe.Pointer(&data[0]), n, unsafe.Pointer(&out))
	}
	i, text, big := int32(-32768), "hello", int64(-1)<<63
	in := fields{k: "key", n: -7, c: "ab", i: &i, u: 1<<24 - 1, s: &text, f: 1.5, b: []byte{1, 2}, w: []uint32{7, 8, 9}, o: true, p: &big}
	out, code := round(in)
	if code != 0 || *out.i != i || out.u != in.u || *out.s != text || out.f != 1.5 || string(out.b) != "\x01\x02\x00\x00\x00" ||
		len(out.w) != 3 || out.w[2] != 9 || !out.o || *out.p != big {
		t.Fatalf("%d %+v", code, out)
	}
	in.i, in.s, in.p = nil, nil, nil
	if out, code = round(in); code != 0 || out.i != nil || out.s != nil || out.p != nil {
		t.Fatalf("%d %+v", code, out)
	}
	long := "hello!"
	tooBig, i32 := int32(32768), int32(0)
	for name, c := range map[string]struct {
		change func(*fields)
		code   uint32
	}{
		"a long key":        {func(x *fields) { x.k = strings.Repeat("x", 21) }, ndberror.ValueTooLong},
		"a key that is big": {func(x *fields) { x.n = 1 << 31 }, ndberror.ValueTooLong},
		"a long char":       {func(x *fields) { x.c = "1234567" }, ndberror.ValueTooLong},
		"a big integer":     {func(x *fields) { x.i = &tooBig }, ndberror.ValueTooLong},
		"a big unsigned":    {func(x *fields) { x.u = 1 << 24 }, ndberror.ValueTooLong},
		"a long string":     {func(x *fields) { x.s = &long }, ndberror.ValueTooLong},
		"a long binary":     {func(x *fields) { x.b = make([]byte, 6) }, ndberror.ValueTooLong},
		"a short array":     {func(x *fields) { x.w = x.w[:2] }, ndberror.ValueTooLong},
		"a long array":      {func(x *fields) { x.w = make([]uint32, 4) }, ndberror.ValueTooLong},
		"nothing wrong":     {func(x *fields) { x.i = &i32 }, 0},
	} {
		x := in
		c.change(&x)
		if _, code := round(x); code != c.code {
			t.Errorf("%s: code %d", name, code)
		}
	}
	// What is read keeps the room that is there.
	room := make([]uint32, 0, 3)
	got := fields{w: room, b: make([]byte, 0, 8)}
	in.w = []uint32{1, 2, 3}
	key, data := make([]uint64, 64), make([]byte, 256)
	_, n, _ := f.measure(unsafe.Pointer(&in), unsafe.Pointer(&key[0]), signal.OpInsert)
	f.data(unsafe.Pointer(&in), unsafe.Pointer(&data[0]), signal.OpInsert, n)
	if c := testing.AllocsPerRun(10, func() { f.take(unsafe.Pointer(&data[0]), n, unsafe.Pointer(&got)) }); c != 0 || &got.w[0] != &room[:1][0] {
		t.Errorf("%v allocations", c)
	}
}

func TestBindingsThatCannotBe(t *testing.T) {
	tab := testTable(t, 1)
	k := []Binding{{Column: 0, Size: 4}, {Column: 1, Off: 4, Size: 4}}
	for name, b := range map[string][]Binding{
		"no key":           {{Column: 2, Size: 4}},
		"half a key":       k[:1],
		"twice":            append(k[:2:2], k[0]),
		"no such column":   append(k[:2:2], Binding{Column: 4, Size: 4}),
		"below zero":       append(k[:2:2], Binding{Column: -1, Size: 4}),
		"another size":     append(k[:2:2], Binding{Column: 2, Size: 8}),
		"a sign":           append(k[:2:2], Binding{Column: 2, Size: 8, Codec: CodecInt}),
		"a string":         append(k[:2:2], Binding{Column: 2, Size: 16, Codec: CodecString}),
		"a bool":           append(k[:2:2], Binding{Column: 2, Size: 1, Codec: CodecBool}),
		"a double":         append(k[:2:2], Binding{Column: 2, Size: 8, Codec: CodecDouble}),
		"a slice of bytes": append(k[:2:2], Binding{Column: 2, Size: 3, Codec: CodecSlice}),
		"a variable one":   append(k[:2:2], Binding{Column: 2, Size: 4, Codec: CodecInline}),
		"a key with NULL":  {{Column: 0, Size: 4, Nulls: NullPointer}, k[1]},
	} {
		if _, err := NewFormat(tab, b); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestColumnsSideBySideAreOneCopy(t *testing.T) {
	g := newRig(t, even)
	if len(g.row.fixed) != 1 || !g.row.plain || !g.row.key8 || len(g.row.key) != 1 {
		t.Errorf("%+v", g.row)
	}
	if len(g.wide.fixed) != 1 || !g.wide.plain || g.wide.mask == nil {
		t.Errorf("%+v", g.wide)
	}
}

func BenchmarkFormat25Columns(b *testing.B) {
	def := &schema.Table{ID: 3, Database: "d", Name: "t", Fragments: 1, Columns: []schema.Column{{Name: "k", Type: schema.Unsigned, PrimaryKey: true}}}
	bind := []Binding{{Column: 0, Size: 4}}
	for i := range 25 {
		def.Columns = append(def.Columns, schema.Column{Name: fmt.Sprint(i), Type: schema.Unsigned})
		bind = append(bind, Binding{Column: 1 + i, Off: uintptr(4 + 4*i), Size: 4})
	}
	layout, _ := schema.Compile(def)
	f, err := NewFormat(&Table{Def: def, Layout: layout}, bind)
	if err != nil {
		b.Fatal(err)
	}
	var in, out [26]uint32
	b.Run("data", func(b *testing.B) {
		for range b.N {
			f.data(unsafe.Pointer(&in), unsafe.Pointer(&out), signal.OpInsert, 100)
		}
	})
	b.Run("take", func(b *testing.B) {
		for range b.N {
			f.take(unsafe.Pointer(&out), 100, unsafe.Pointer(&in))
		}
	})
}
