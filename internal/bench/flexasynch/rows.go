package flexasynch

import (
	"fmt"

	"github.com/cohortdb/cohort/ndb"
)

const database = "TEST_DB"

// Columns of the table by index. The columns from firstValue on hold values.
const (
	colDistKey = 0
	colCol0    = 1
	firstValue = 2
)

// A row's key is (DISTKEY, COL0): a running number, and the thread that owns the row. So threads never meet, however
// far their numbers run.

// kind is what an operation does.
type kind uint8

const (
	insert kind = iota
	update
	remove
	read
	kinds
)

var kindNames = [kinds]string{insert: "insert", update: "update", remove: "delete", read: "read"}

func (k kind) String() string { return kindNames[k] }

// A value tells when it was written, its generation, and by its first word where it belongs. All words of a row are its
// generation, except the first word of COL1: that is the generation mixed with the key. So a row that is old, torn, or
// another row's is noticed with one comparison per column.

// generationMax bounds generations, so that a wrong word is unlikely to look like one.
const generationMax = 1 << 20

// stamp is the first word of COL1.
func stamp(key, owner, generation uint32) uint32 {
	return generation ^ (key*0x9E3779B1 + owner*0x85EBCA77)
}

// insertGeneration and updateGeneration are what a loop writes. Generation 0 is never written.
func insertGeneration(loop int) uint32 { return uint32(loop)*2%(generationMax-2) + 1 }
func updateGeneration(loop int) uint32 { return insertGeneration(loop) + 1 }

// tableNames are the names of the run's tables. unique tells runs apart that do not use standard names.
func (s *settings) tableNames(unique uint32) []string {
	names := make([]string, s.tables)
	for i := range names {
		if s.standard {
			names[i] = fmt.Sprintf("TAB%d", s.table+i)
		} else {
			names[i] = fmt.Sprintf("TAB%d_%d", i, unique)
		}
	}
	return names
}

// definition is a table of the run.
func (s *settings) definition(name string) ndb.TableDef {
	def := ndb.TableDef{Database: database, Name: name, NoLogging: s.noLogging, Columns: []ndb.Column{
		{Name: "DISTKEY", Type: ndb.TypeUint32, Key: true, Dist: true},
		{Name: "COL0", Type: ndb.TypeUint32, Key: true},
	}}
	for i := 1; i < s.attributes; i++ {
		def.Columns = append(def.Columns, ndb.Column{Name: fmt.Sprintf("COL%d", i), Type: ndb.TypeUint32, Length: s.words})
	}
	return def
}
