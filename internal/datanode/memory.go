package datanode

import (
	"fmt"
	"strings"

	"github.com/cohortdb/cohort/internal/coordinator"
	"github.com/cohortdb/cohort/internal/ldm"
	"github.com/cohortdb/cohort/internal/outcome"
	"github.com/cohortdb/cohort/internal/store"
)

// Memory is where the node's rows and their copies lie; the runtime provides it. Several threads take chunks from one
// source, so a source of a node with more than one thread is safe for that.
type Memory struct {
	Data, Copies             *store.Region
	DataSource, CopiesSource store.ChunkSource
}

// Item is one part of the memory that a node may use.
type Item struct {
	Name  string
	Bytes int64
}

const (
	// tableBytes is a table in the dictionary with its map and the chains of some dozen fragments, and what coordinators and
	// ldms keep of it.
	tableBytes = 20 << 10
	// threadBytes is what a thread has apart from its blocks: buffers for signals to other threads and of sockets.
	threadBytes = 8 << 20
	// goBytes is the program itself, and the reserve of Go's collector.
	goBytes = 64 << 20
)

// MemorySum is the memory that the node may use, by what for. What is marked "at most" is taken only as it is needed, as
// are data memory and copies.
func MemorySum(c *Config, l *Layout) []Item {
	tcs, ldms := int64(len(l.TCs)), int64(len(l.LDMs))
	return []Item{
		{"data memory: rows and indexes", c.DataMemory},
		{"copies of rows with pending changes", c.CopyMemory},
		{fmt.Sprintf("coordinators (%d): transactions", tcs), tcs * int64(c.MaxTransactions) * coordinator.TransactionBytes},
		{fmt.Sprintf("coordinators (%d): operations", tcs), tcs * int64(c.MaxOperations) * coordinator.OperationBytes},
		{fmt.Sprintf("ldms (%d): operations", ldms), ldms * int64(c.MaxLocalOperations) * ldm.OperationBytes},
		{fmt.Sprintf("outcomes of %d sessions, at most", c.Sessions), int64(c.Sessions) * (ldms*outcome.RingBytes + tcs*outcome.AckBytes)},
		{fmt.Sprintf("%d tables, at most", c.Dictionary.MaxTables), int64(c.Dictionary.MaxTables) * tableBytes},
		{"send buffers, at most", c.SendMemory},
		{fmt.Sprintf("threads (%d)", l.Threads), int64(l.Threads) * threadBytes},
		{"program", goBytes},
	}
}

// Total is the sum of items in bytes.
func Total(items []Item) int64 {
	sum := int64(0)
	for _, i := range items {
		sum += i.Bytes
	}
	return sum
}

// Describe prints items and their sum, a line each.
func Describe(items []Item) string {
	var s strings.Builder
	for _, i := range append(items[:len(items):len(items)], Item{"sum", Total(items)}) {
		fmt.Fprintf(&s, "%12d KB  %s\n", i.Bytes>>10, i.Name)
	}
	return s.String()
}
