// Package schema says what a table is and how its rows become bytes. [NDB: the table definitions of DBDICT, the
// attribute layout of DBTUP]
//
// It owns the definition of tables (Table, its checks, its encoding) and, compiled from that once per table, a Layout,
// which everybody who touches rows works with: clients, coordinators, LDMs. It never keeps a row, allocates per
// operation, or does I/O.
//
// # Bytes of a row
//
// In memory and in signals alike; little endian, everything a multiple of 4 bytes, nothing needs more than 4-byte
// alignment.
//
//	key image      the primary key columns in column order. A fixed type: its value, padded to 4 bytes. A variable
//	               type: u16 length, bytes, padded to 4. Padding is zero, so equal keys have equal bytes.
//	fixed image    null bitmap (if a column outside of the key may be NULL: a bit per non-key column, as many words
//	               as reach the last nullable one; set = NULL), then the fixed non-key columns in order, each padded
//	               to 4 bytes. A NULL column is zero.
//	variable image (if there are variable non-key columns) for each its end, u16, counted from the end of these
//	               ends; the ends padded to 4; then the bytes, one after the other, padded to 4. NULL is empty.
//
// CHAR and BINARY are fixed, VARCHAR and VARBINARY variable. A column of n elements is n values in a row.
//
// # Operations
//
// Columns of an operation are named by a mask: bitmap words with a bit per non-key column, in column order; the unused
// bits are zero. "All columns" is a flag of the operation, without a mask. Values of the columns of a mask
// travel so:
//
//	null words     as in the fixed image (if it has any); bits of other columns are zero
//	fixed values   of the fixed columns of the mask, in column order, padded as in the fixed image
//	var values     of the variable columns of the mask, in column order: u16 length, bytes, padded to 4
//
// and of all columns as fixed image and variable image. A write section is the mask words and the values; what a read
// gives is the values. So what a read gives can be written, and Apply turns either into images.
//
// # Trust
//
// CheckKey, CheckWrite and CheckMask look at what came from a client; everything else relies on them. They answer with
// codes that clients know, and no input makes them read outside of its bytes.
//
// Next: table.go, encode.go, layout.go, row.go.
package schema

import (
	"fmt"
	"unsafe"

	"github.com/cohortdb/cohort/internal/rowhash"
)

// Codes that the cluster's clients know.
const (
	CodeInvalidTable     = 703  // the definition contradicts itself, or is not supported
	CodeColumnName       = 704  // missing, too long, or of bytes that no name has
	CodeTableName        = 705  // missing, too long, or of bytes that no name has
	CodeDuplicateColumn  = 720  // two columns of one name
	CodeArrayLength      = 736  // length 0 for a type that needs one
	CodeArrayTooLong     = 737  // one column is longer than a row may be
	CodeRowTooBig        = 738  // the row may get longer than MaxRowBytes
	CodeKeyTooLong       = 739  // the key may get longer than MaxKeyBytes, or has too many columns
	CodeNullableKey      = 740  // a primary key column may be NULL
	CodeTooManyFragments = 1224 // more than there are hash map buckets

	CodeTooMuchData = 823  // a section holds more than its columns need, or names columns that do not exist
	CodeMissingNull = 839  // an insert leaves out a column that cannot be NULL
	CodeNotNull     = 840  // NULL for a column that cannot be NULL
	CodeBadLength   = 4209 // a value is too long, or a section too short for its columns, or padding is not zero
)

// Error is a refusal of a definition.
type Error struct {
	Code   uint32
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("schema: %s (error %d)", e.Reason, e.Code) }

func refuse(code uint32, format string, args ...any) error {
	return &Error{Code: code, Reason: fmt.Sprintf(format, args...)}
}

// Hash is the hash of a key image or distribution image of n bytes: the same on every node.
func Hash(p unsafe.Pointer, n uint32) uint64 { return rowhash.Hash(p, n) }

// DistributionBuckets is the number of buckets of the distribution hash map.
const DistributionBuckets = rowhash.DistributionBuckets

// DistributionBucket is the bucket, 0 to DistributionBuckets-1, of the hash of a distribution image.
func DistributionBucket(hash uint64) uint32 { return rowhash.DistributionBucket(hash) }
