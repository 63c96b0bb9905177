package coordinator

import "unsafe"

// What a record takes, bytes, its place in the pool's free list included: for the sum of a node's memory.
const (
	TransactionBytes = int64(unsafe.Sizeof(transaction{})) + 4 + 8 // and its share of the hash table
	OperationBytes   = int64(unsafe.Sizeof(operation{})) + 4
)
