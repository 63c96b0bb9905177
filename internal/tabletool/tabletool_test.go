package tabletool

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/cohortdb/cohort/internal/options"
	"github.com/cohortdb/cohort/ndb"
)

type program = func(name string, args []string, stdin io.Reader, stdout, stderr io.Writer) int

func call(f program, args ...string) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	status = f("tool", args, nil, &out, &err)
	return status, out.String(), err.String()
}

func TestTheListOfTables(t *testing.T) {
	tables := []ndb.TableName{
		{ID: 10, Version: 1, Database: "TEST_DB", Name: "TAB0", NoLogging: true},
		{ID: 11, Version: 1, Database: "bank", Name: "account"},
	}
	want := "" +
		"id    type                 state    logging database     schema   name\n" +
		"10    UserTable            Online   No      TEST_DB      def      TAB0\n" +
		"11    UserTable            Online   Yes     bank         def      account\n"
	if got := list(tables, "", false, false); got != want {
		t.Errorf("%s", got)
	}
	want = "'11'\t'UserTable'\t'Online'\t'Yes'\t'bank'\t'def'\t'account'\n"
	if got := list(tables, "bank", true, false); got != want {
		t.Errorf("%s", got)
	}
	want = "" +
		"id    type                 state    logging name\n" +
		"10    UserTable            Online   No      TAB0\n"
	if got := list(tables, "TEST_DB", false, true); got != want {
		t.Errorf("%s", got)
	}
}

func TestADescription(t *testing.T) {
	d := description{name: "account", version: 3, fragments: 8, noLogging: true, columns: []ndb.Column{
		{Name: "bank", Type: ndb.TypeUint32, Key: true, Dist: true},
		{Name: "id", Type: ndb.TypeUint64, Key: true},
		{Name: "note", Type: ndb.TypeVarchar, Length: 20, Nullable: true},
		{Name: "history", Type: ndb.TypeVarbinary, Length: 1000},
		{Name: "code", Type: ndb.TypeChar, Length: 4},
		{Name: "words", Type: ndb.TypeUint32, Length: 8},
	}}
	want := `-- account --
Version: 3
Fragment type: HashMapPartition
Logged table: no
Temporary table: no
Number of attributes: 6
Number of primary keys: 2
PartitionCount: 8
FragmentCount: 8
HashMap: 3840 buckets
-- Attributes --
bank Unsigned PRIMARY KEY DISTRIBUTION KEY AT=FIXED ST=MEMORY
id Bigunsigned PRIMARY KEY AT=FIXED ST=MEMORY
note Varchar(20) NULL AT=SHORT_VAR ST=MEMORY
history Varbinary(1000) NOT NULL AT=MEDIUM_VAR ST=MEMORY
code Char(4) NOT NULL AT=FIXED ST=MEMORY
words Unsigned [8] NOT NULL AT=FIXED ST=MEMORY
-- Indexes --
PRIMARY KEY(bank, id) - UniqueHashIndex

`
	if got := d.String(); got != want {
		t.Errorf("%s", got)
	}
	d.columns[0].Dist = false
	if got := d.String(); !strings.Contains(got, "\nid Bigunsigned PRIMARY KEY DISTRIBUTION KEY ") {
		t.Errorf("without a distribution key of its own: %s", got)
	}
}

func TestEveryTypeHasAName(t *testing.T) {
	for kind := ndb.TypeInt8; kind <= ndb.TypeVarbinary; kind++ {
		if name := typeName(ndb.Column{Type: kind}); strings.HasPrefix(name, "Type") {
			t.Errorf("type %d is called %s", kind, name)
		}
	}
}

func TestFaultsAreToldAndFail(t *testing.T) {
	for _, c := range []struct {
		name   string
		f      program
		args   string
		status int
		says   string
	}{
		{"show", ShowTables, "loose", options.StatusUsage, `"loose" is no option`},
		{"show", ShowTables, "--nonsense", options.StatusUsage, "nonsense"},
		{"desc", Desc, "", options.StatusUsage, "no table is named"},
		{"drop", DropTable, "-d x", options.StatusUsage, "no table is named"},
	} {
		status, stdout, stderr := call(c.f, strings.Fields(c.args)...)
		if status != c.status || stdout != "" || !strings.HasPrefix(stderr, "tool: ") || !strings.Contains(stderr, c.says) {
			t.Errorf("%s %s: status %d, %q, %q", c.name, c.args, status, stdout, stderr)
		}
	}
}

func TestHelp(t *testing.T) {
	for _, f := range []program{ShowTables, Desc, DropTable} {
		if status, stdout, stderr := call(f, "--help"); status != 0 || stderr != "" || !strings.Contains(stdout, "Examples:") {
			t.Errorf("status %d, %q, %q", status, stdout, stderr)
		}
	}
}
