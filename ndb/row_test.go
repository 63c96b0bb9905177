package ndb

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cohortdb/cohort/internal/ndberror"
)

// everyDef is a table with a column of every type.
func everyDef() TableDef {
	return TableDef{Database: "d", Name: "every", Columns: []Column{
		{Name: "k1", Type: TypeVarchar, Length: 20, Key: true},
		{Name: "k2", Type: TypeInt16, Key: true, Dist: true},
		{Name: "i8", Type: TypeInt8, Nullable: true},
		{Name: "u8", Type: TypeUint8, Nullable: true},
		{Name: "i16", Type: TypeInt16},
		{Name: "u16", Type: TypeUint16},
		{Name: "i24", Type: TypeInt24},
		{Name: "u24", Type: TypeUint24},
		{Name: "i32", Type: TypeInt32},
		{Name: "u32", Type: TypeUint32},
		{Name: "i64", Type: TypeInt64},
		{Name: "u64", Type: TypeUint64},
		{Name: "f", Type: TypeFloat},
		{Name: "d", Type: TypeDouble},
		{Name: "c", Type: TypeChar, Length: 5},
		{Name: "vc", Type: TypeVarchar, Length: 300},
		{Name: "b", Type: TypeBinary, Length: 5},
		{Name: "vb", Type: TypeVarbinary, Length: 10, Nullable: true},
		{Name: "w", Type: TypeUint32, Length: 4},
	}}
}

func TestRowsOfEveryType(t *testing.T) {
	f := newFake(t, 2, 2)
	c := f.connect(Options{})
	table := mustTable(t, c, everyDef())
	s := mustSession(t, c, SessionOptions{})
	defer s.Close()
	ctx := context.Background()
	col := table.Column
	r := table.NewRow()
	commit := func(define func(tx *Tx) *Op) error {
		tx := mustBegin(t, s)
		defer tx.Close()
		define(tx)
		return tx.Commit(ctx)
	}
	key := func(r *Row) {
		r.SetString(col("k1"), "key")
		r.SetInt(col("K2"), -3) // names are found whatever their case
	}
	key(r)
	r.SetInt(col("i8"), -128)
	r.SetUint(col("u8"), 255)
	r.SetInt(col("i16"), math.MinInt16)
	r.SetUint(col("u16"), math.MaxUint16)
	r.SetInt(col("i24"), -1<<23)
	r.SetUint(col("u24"), 1<<24-1)
	r.SetInt(col("i32"), math.MinInt32)
	r.SetUint(col("u32"), math.MaxUint32)
	r.SetInt(col("i64"), math.MinInt64)
	r.SetUint(col("u64"), math.MaxUint64)
	r.SetFloat(col("f"), 0.5)
	r.SetFloat(col("d"), math.Pi)
	r.SetString(col("c"), "ab")
	r.SetString(col("vc"), strings.Repeat("x", 300))
	r.SetBytes(col("b"), []byte{1, 2, 3})
	r.SetWords(col("w"), []uint32{1, 2, 3, 4})
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	if n := r.Node(); n != table.FragmentNodes(r.Fragment())[0] || n == 0 {
		t.Error(n, r.Fragment())
	}
	if err := commit(func(tx *Tx) *Op { return tx.Insert(r) }); err != nil {
		t.Fatal(err)
	}
	in := table.NewRow()
	key(in)
	if err := commit(func(tx *Tx) *Op { return tx.Read(in, Committed) }); err != nil {
		t.Fatal(err)
	}
	if in.Int(col("i8")) != -128 || in.Uint(col("u8")) != 255 || in.Int(col("i16")) != math.MinInt16 || in.Uint(col("u16")) != math.MaxUint16 ||
		in.Int(col("i24")) != -1<<23 || in.Uint(col("u24")) != 1<<24-1 || in.Int(col("i32")) != math.MinInt32 || in.Uint(col("u32")) != math.MaxUint32 ||
		in.Int(col("i64")) != math.MinInt64 || in.Uint(col("u64")) != math.MaxUint64 || in.Float(col("f")) != 0.5 || in.Float(col("d")) != math.Pi ||
		string(in.Bytes(col("c"))) != "ab   " || len(in.Bytes(col("vc"))) != 300 || string(in.Bytes(col("b"))) != "\x01\x02\x03\x00\x00" ||
		!in.IsNull(col("vb")) || in.Bytes(col("vb")) != nil || in.Words(col("w"))[3] != 4 || string(in.Bytes(col("k1"))) != "key" {
		t.Error("a value came back changed")
	}

	// Only what was set is updated, and only what is wanted is read.
	up := table.NewRow()
	key(up)
	up.SetNull(col("i8"))
	up.SetBytes(col("vb"), []byte{7, 8})
	if err := commit(func(tx *Tx) *Op { return tx.Update(up) }); err != nil {
		t.Fatal(err)
	}
	some, err := table.NewRowOf("i8", "vb", "u8")
	if err != nil {
		t.Fatal(err)
	}
	key(some)
	some.SetUint(col("u32"), 77)
	if err := commit(func(tx *Tx) *Op { return tx.Read(some, Exclusive) }); err != nil {
		t.Fatal(err)
	}
	if !some.IsNull(col("i8")) || string(some.Bytes(col("vb"))) != "\x07\x08" || some.Uint(col("u8")) != 255 || some.Uint(col("u32")) != 77 {
		t.Error("not the columns that were asked for")
	}
	if _, err := table.NewRowOf("nope"); err == nil {
		t.Error("a column that does not exist")
	}
	up.Reset()
	key(up)
	if err := commit(func(tx *Tx) *Op { return tx.Insert(up) }); !errors.Is(err, ErrDuplicate) {
		t.Error(err)
	}
	up.SetInt(col("k2"), 4)
	if err := commit(func(tx *Tx) *Op { return tx.Insert(up) }); CodeOf(err) != 839 { // columns that cannot be NULL are missing
		t.Error(err)
	}
	if err := commit(func(tx *Tx) *Op { return tx.Write(r) }); err != nil {
		t.Error(err)
	}
	if err := commit(func(tx *Tx) *Op { return tx.Delete(r) }); err != nil {
		t.Error(err)
	}
	if err := commit(func(tx *Tx) *Op { return tx.Delete(r) }); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

func TestSettersSayWhatIsWrong(t *testing.T) {
	f := newFake(t, 1, 1)
	c := f.connect(Options{})
	table := mustTable(t, c, everyDef())
	s := mustSession(t, c, SessionOptions{})
	defer s.Close()
	col := table.Column
	for name, x := range map[string]struct {
		set  func(r *Row)
		code int
	}{
		"no such column":        {func(r *Row) { r.SetUint(99, 1) }, ndberror.NotOfTable},
		"below zero":            {func(r *Row) { r.SetUint(col("nope"), 1) }, ndberror.NotOfTable},
		"another kind":          {func(r *Row) { r.SetUint(col("i32"), 1) }, ndberror.NotOfTable},
		"a large u8":            {func(r *Row) { r.SetUint(col("u8"), 256) }, ndberror.ValueTooLong},
		"a large u32":           {func(r *Row) { r.SetUint(col("u32"), 1<<32) }, ndberror.ValueTooLong},
		"a large i24":           {func(r *Row) { r.SetInt(col("i24"), 1<<23) }, ndberror.ValueTooLong},
		"a small i24":           {func(r *Row) { r.SetInt(col("i24"), -1<<23-1) }, ndberror.ValueTooLong},
		"an array":              {func(r *Row) { r.SetUint(col("w"), 1) }, ndberror.ValueTooLong},
		"a short array":         {func(r *Row) { r.SetWords(col("w"), []uint32{1}) }, ndberror.ValueTooLong},
		"a long string":         {func(r *Row) { r.SetString(col("c"), "123456") }, ndberror.ValueTooLong},
		"a long variable one":   {func(r *Row) { r.SetBytes(col("vb"), make([]byte, 11)) }, ndberror.ValueTooLong},
		"NULL where none is":    {func(r *Row) { r.SetNull(col("i64")) }, ndberror.NullNotAllowed},
		"a float in an integer": {func(r *Row) { r.SetFloat(col("i64"), 1) }, ndberror.NotOfTable},
	} {
		r := table.NewRow()
		r.SetInt(col("k2"), 1)
		x.set(r)
		if CodeOf(r.Err()) != x.code {
			t.Errorf("%s: %v", name, r.Err())
		}
		tx := mustBegin(t, s)
		op := tx.Insert(r)
		if err := tx.Commit(context.Background()); CodeOf(err) != x.code || CodeOf(op.Err()) != x.code {
			t.Errorf("%s: %v %v", name, err, op.Err())
		}
		tx.Close()
		if r.Uint(99) != 0 || r.Int(-1) != 0 || r.Float(col("c")) != 0 || r.Bytes(col("d")) != nil || r.Words(col("vc")) != nil || !r.IsNull(99) {
			t.Error("a value of a column that is not, or of another kind")
		}
	}
}

func TestStructsThatCannotBeBound(t *testing.T) {
	f := newFake(t, 1, 1)
	c := f.connect(Options{})
	table := mustTable(t, c, everyDef())
	fails := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s was bound", what)
		}
	}
	type keys struct {
		K1 string `ndb:"k1"`
		K2 int16  `ndb:"k2"`
	}
	_, err := Bind[int](table)
	fails("no struct", err)
	_, err = Bind[struct {
		K1 string `ndb:"k1"`
	}](table)
	fails("half a key", err)
	_, err = Bind[struct {
		keys
		X int `ndb:"nope"`
	}](table)
	fails("a column that is not", err)
	_, err = Bind[struct {
		keys
		x int32 `ndb:"i32"`
	}](table)
	fails("a field that is not exported", err)
	_, err = Bind[struct {
		keys
		X uint32 `ndb:"i32"`
	}](table)
	fails("an unsigned field for a signed column", err)
	_, err = Bind[struct {
		keys
		X *int32 `ndb:"i32"`
	}](table)
	fails("a pointer to what cannot be NULL", err)
	_, err = Bind[struct {
		keys
		X [3]uint32 `ndb:"w"`
	}](table)
	fails("a short array", err)
	_, err = Bind[struct {
		keys
		X float32 `ndb:"d"`
	}](table)
	fails("a float for a double", err)
	_, err = Bind[struct {
		keys
		X bool `ndb:"i16"`
	}](table)
	fails("a bool of 16 bits", err)
	_, err = Bind[struct {
		keys
		X string `ndb:"i16"`
	}](table)
	fails("a string for a number", err)
	_, err = Bind[struct {
		keys
		X map[string]int `ndb:"vc"`
	}](table)
	fails("a map", err)
	_, err = Bind[struct {
		keys
		X, Y int32 `ndb:"i32"`
	}](table)
	fails("two fields for a column", err)
	_, err = Bind[struct {
		keys
		X [5]byte `ndb:"vb"`
	}](table)
	fails("an array of bytes for a variable column", err)
	_, err = Bind[struct {
		keys
		X []int64 `ndb:"w"`
	}](table)
	fails("a slice of other elements", err)
	good, err := Bind[struct {
		keys
		B    [5]byte  `ndb:"b"`
		C    []byte   `ndb:"c"`
		W    []uint32 `ndb:"w"`
		Skip int      `ndb:"-"`
		Free int
	}](table)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := good.Only("vb"); err == nil {
		t.Error("a column without a field")
	}
	if good.Table() != table {
		t.Error("another table")
	}
}

func TestTablesOfTheCluster(t *testing.T) {
	f := newFake(t, 2, 1)
	c := f.connect(Options{})
	ctx := context.Background()
	table := mustTable(t, c, accountDef())
	if _, err := c.CreateTable(ctx, accountDef()); !errors.Is(err, ErrTableExists) {
		t.Error(err)
	}
	if again, err := c.Table(ctx, "bank", "account"); err != nil || again != table {
		t.Error(err, again)
	}
	if table.Database() != "bank" || table.Name() != "account" || len(table.Columns()) != 10 || !table.NoLogging() || table.Fragments() != 4 ||
		table.Column("BRANCH") != 1 || table.Column("nope") != -1 || table.ID() != 1 || table.Version() != 1 || table.FragmentNodes(9) != nil {
		t.Errorf("%+v", table)
	}
	other := accountDef()
	other.Name = "other"
	mustTable(t, c, other)
	all, err := c.Tables(ctx)
	if err != nil || len(all) != 2 || all[0].Name != "account" || all[1].Name != "other" || all[0].Database != "bank" || !all[0].NoLogging {
		t.Error(all, err)
	}
	if _, err := c.Table(ctx, "bank", "nope"); !errors.Is(err, ErrNoSuchTable) {
		t.Error(err)
	}
	if err := c.DropTable(ctx, "bank", "nope"); !errors.Is(err, ErrNoSuchTable) {
		t.Error(err)
	}
	if err := c.DropTable(ctx, "bank", "account"); err != nil {
		t.Error(err)
	}
	if _, err := c.Table(ctx, "bank", "account"); !errors.Is(err, ErrNoSuchTable) {
		t.Error(err)
	}
	bad := accountDef()
	bad.Columns[0].Nullable = true
	if _, err := c.CreateTable(ctx, bad); CodeOf(err) != 740 || !strings.Contains(err.Error(), "ID") {
		t.Error(err)
	}
	// A table that was dropped and made anew: its old handle is refused, and looking it up gives the new one.
	old := mustBind[account](t, mustTable(t, c, accountDef()))
	s := mustSession(t, c, SessionOptions{})
	defer s.Close()
	peer := f.connect(Options{})
	if err := peer.DropTable(ctx, "bank", "account"); err != nil {
		t.Fatal(err)
	}
	mustTable(t, peer, accountDef())
	if err := old.Put(ctx, s, &account{}); !errors.Is(err, ErrOldTable) {
		t.Error(err)
	}
	fresh, err := c.Table(ctx, "bank", "account")
	if err != nil || fresh.ID() == old.Table().ID() {
		t.Fatal(err)
	}
	if err := mustBind[account](t, fresh).Put(ctx, s, &account{}); err != nil {
		t.Error(err)
	}
}

func TestExecuteAndRollbackAsync(t *testing.T) {
	f := newFake(t, 2, 2)
	c := f.connect(Options{})
	accounts := mustBind[account](t, mustTable(t, c, accountDef()))
	s := mustSession(t, c, SessionOptions{MaxTransactions: 4})
	defer s.Close()
	ctx := context.Background()
	for i := range uint32(3) {
		if err := accounts.Put(ctx, s, &account{ID: i, Balance: int64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	ended := 0
	committed := func(tx *Tx) {
		if tx.Err() != nil || tx.GCI() == 0 {
			t.Error(tx.Err())
		}
		ended++
	}
	rows := make([]account, 3)
	var ops [3]*Op
	read := func(tx *Tx) { // in a function, the transaction goes on
		i := tx.Tag
		if tx.Err() != nil || ops[i].Err() != nil || rows[i].Balance != int64(i) {
			t.Error(tx.Err(), ops[i].Err(), rows[i])
		}
		rows[i].Balance += 100
		accounts.Update(tx, &rows[i])
		if i == 1 {
			tx.RollbackAsync(func(tx *Tx) {
				if tx.Err() != nil {
					t.Error(tx.Err())
				}
				ended++
			})
			return
		}
		tx.CommitAsync(committed)
		if err := tx.Execute(ctx); err == nil {
			t.Error("a function may not wait")
		}
	}
	for i := range rows {
		tx := mustBegin(t, s)
		tx.Tag = uint64(i)
		rows[i].ID = uint32(i)
		ops[i] = accounts.Read(tx, &rows[i], Exclusive)
		tx.ExecuteAsync(read)
	}
	if _, err := s.SendPoll(SendAdaptive, time.Minute, 6); err != nil || ended != 3 || s.Pending() != 0 {
		t.Fatal(err, ended, s.Pending())
	}
	for i, want := range []int64{100, 1, 102} {
		a := account{ID: uint32(i)}
		if err := accounts.Get(ctx, s, &a); err != nil || a.Balance != want {
			t.Error(i, a.Balance, err)
		}
	}
	// An empty transaction, and one whose values cannot be, are over without an answer; their functions are called all the same.
	empty, bad := mustBegin(t, s), mustBegin(t, s)
	codes := []int{}
	note := func(tx *Tx) { codes = append(codes, CodeOf(tx.Err())) }
	empty.CommitAsync(note)
	accounts.Insert(bad, &account{Small: 1 << 30})
	bad.CommitAsync(note)
	if n, err := s.PollFor(time.Minute, 2); n != 2 || err != nil || len(codes) != 2 || codes[0] != 0 || codes[1] != ndberror.ValueTooLong {
		t.Error(n, err, codes)
	}
	// All records are back.
	for range 4 {
		defer mustBegin(t, s).Close()
	}
	if _, err := s.Begin(); CodeOf(err) != ndberror.TooManyTx {
		t.Error(err)
	}
}

func TestTheAsynchronousPathDoesNotAllocate(t *testing.T) {
	for _, sessions := range []int{1, 2} { // the caller reads; the receiver reads
		f := newFake(t, 2, 2)
		c := f.connect(Options{})
		accounts := mustBind[account](t, mustTable(t, c, accountDef()))
		table := accounts.Table()
		s := mustSession(t, c, SessionOptions{})
		defer s.Close()
		if sessions == 2 {
			defer mustSession(t, c, SessionOptions{}).Close()
		}
		const n = 64
		rows, raw := make([]account, n), make([]*Row, n)
		failed := 0
		done := func(tx *Tx) {
			if tx.Err() != nil {
				failed++
			}
		}
		for i := range raw {
			raw[i] = table.NewRow()
		}
		col := table.Column("BALANCE")
		batch := func() {
			for i := range rows {
				tx, err := s.Begin()
				if err != nil {
					t.Fatal(err)
				}
				rows[i].ID = uint32(i)
				switch i % 3 {
				case 0:
					accounts.Write(tx, &rows[i])
				case 1:
					accounts.Write(tx, &rows[i])
					accounts.Read(tx, &rows[i], Shared).IgnoreError()
				default:
					raw[i].SetUint(0, uint64(i-2)) // the row was written in an earlier batch
					raw[i].SetUint(1, 0)
					tx.Read(raw[i], Committed)
				}
				raw[i].SetInt(col, 1)
				tx.CommitAsync(done)
			}
			if _, err := s.Poll(context.Background(), n); err != nil {
				t.Fatal(err)
			}
		}
		batch()
		failed = 0
		f.quiet.Store(true) // the fake data nodes run in this process: they must not allocate either
		batch()
		if got := testing.AllocsPerRun(20, batch); got != 0 {
			t.Errorf("%d sessions: %v allocations in %d transactions", sessions, got, n)
		}
		f.quiet.Store(false)
		if failed != 0 {
			t.Errorf("%d transactions failed", failed)
		}
	}
}

func TestMisuse(t *testing.T) {
	f := newFake(t, 1, 1)
	c := f.connect(Options{})
	accounts := mustBind[account](t, mustTable(t, c, accountDef()))
	s := mustSession(t, c, SessionOptions{MaxTransactions: 2, MaxOperations: 2})
	defer s.Close()
	ctx := context.Background()
	tx := mustBegin(t, s)
	accounts.Write(tx, &account{ID: 1})
	called := 0
	tx.CommitAsync(func(*Tx) { called++ })
	tx.CommitAsync(func(*Tx) { called += 10 }) // under way: no effect
	if err := tx.Commit(ctx); !errors.Is(err, ErrTxEnded) {
		t.Error(err)
	}
	if op := accounts.Write(tx, &account{ID: 2}); op.IgnoreError().NoWait().Err() == nil {
		t.Error("an operation on a transaction that is being committed")
	}
	if _, err := s.Poll(ctx, 1); err != nil || called != 1 {
		t.Error(err, called)
	}
	tx = mustBegin(t, s)
	for i := range uint32(3) {
		accounts.Write(tx, &account{ID: i})
	}
	if err := tx.Commit(ctx); CodeOf(err) != ndberror.TooManyOperations {
		t.Error(err)
	}
	tx.Close()
	tx.Close()
	if _, err := c.NewSession(SessionOptions{MaxTransactions: 1 << 20}); err == nil {
		t.Error("too many transactions")
	}
	if ErrorOf(0) != nil || CodeOf(nil) != 0 || CodeOf(ctx.Err()) != 0 || CodeOf(errors.New("x")) != -1 || CodeOf(ErrorOf(626)) != 626 {
		t.Error("codes")
	}
	if tx := mustBegin(t, s); tx.Rollback(ctx) != nil || tx.Commit(ctx) == nil || tx.Session() != s || s.Conn() != c || c.NodeID() == 0 {
		t.Error("an empty transaction")
	} else {
		tx.Close()
	}
}
