// Package store is the memory of one LDM instance: pages out of a region, fragment replicas with their rows and
// primary key hash index, and copies for pending changes.
//
// It owns the pages that its arenas took and everything in them. It never locks, starts a goroutine, reads a clock
// or keeps a Go pointer in a page: an arena and all fragments on it belong to one thread. It does not know columns
// (package schema does) or transactions (package ldm does): a row is a header, a key image, a fixed image and a
// variable part, and its lock word is the caller's.
//
// # Memory
//
// The runtime reserves a contiguous Region (DataMemory) once; chunks of it (2 MiB) go to the arenas of all LDM
// instances through a ChunkSource, and come back as soon as all their 32 KiB pages are free. The limit is exact:
// the last chunk may be short, and a page is either used by a fragment or free. What a page held before is
// unknown (never zero), and nothing here relies on it.
//
// # Rows
//
// A row lives in a slot of a fixed-size page and never moves. RowID = logical page << bits | slot; a primary chooses
// it (Insert), the other replicas take exactly that slot (InsertAt), so it is the same everywhere. In the slot:
//
//	RowHead   16 bytes   GCI of the last change, lock word, checksum
//	key image            if all key columns are fixed: Layout.KeyFixed bytes
//	fixed image          Layout.FixedSize bytes
//	VarRef     8 bytes   if there is a variable part
//
// The variable part lies in a page of its own kind: the variable image, behind the key image (with its length before
// it) if the key varies in length. It moves when its row's is changed, and only then.
//
// A RowID has 32 bits: it can name 2.1 to 4.3 thousand million rows in a fragment, by the number of slots of a page
// (2.4 for flexAsynch's 28-byte rows).
// Variable parts that change their length all the time use about four fifths of their pages.
//
// A freed slot keeps the GCI of the delete in its header, and a page that was given back leaves the newest of these
// with its logical number (SlotGCI), because a node that catches up must learn of deletes.
//
// # The life of a row
//
// An insert: Find says no; Insert takes a slot, writes the key, puts it into the index and sets the lock word. The
// caller writes the fixed image through Fixed, the variable one with SetVar, and ends with SetGCI, UpdateSum and its
// lock word 0. Insert leaves the GCI of the slot's last delete in place until SetGCI: an insert that is rolled back
// is Remove(h, id, row.GCI()).
//
// An update: write into Fixed, SetVar (or, where the commit must not fail for want of memory, NewVar when it is
// prepared and SwapVar when it commits, FreeVar when it does not), SetGCI, UpdateSum.
//
// A delete: Remove; or Unindex at commit, which hides the row but keeps its slot, and FreeSlot at complete.
//
// A *RowHead, and what Fixed and Key of a fixed key return, stays valid until the slot is freed; what Var and Key of
// a variable key return, until the row's variable part is changed.
//
// # Touch-ahead
//
// With many operations at hand, take BucketPtr for 16 of them, Prefetch16, RowPtr for the same 16, PrefetchRows16,
// then execute: the cache misses of the 16 overlap. It changes no result.
//
// # Invariants
//
//   - Every page of an arena is free or belongs to exactly one fragment or copy pool; counters say which.
//   - Every indexed row has exactly one entry, in the chain of its bucket; a tag in use has its top bit set, so an
//     emptied entry never matches.
//   - An operation that fails for want of memory has changed nothing.
//   - An empty fragment holds no page.
//
// Next: fragment.go for the interface, index.go for the hash index, slots.go for pages of slots, varpart.go for the
// variable parts, arena.go and region.go for where pages come from, copypool.go for pending changes.
package store

// Codes that the cluster's clients know.
const (
	CodeNoMemory     = 827 // DataMemory is used up
	CodeFragmentFull = 889 // the fragment has as many pages as a RowID can name
	CodeRowIDTaken   = 899 // the slot that a replica was told to take is in use
	CodeCorrupt      = 896 // the row's checksum does not match
	CodeNoCopies     = 233 // the memory for pending changes is used up
)
