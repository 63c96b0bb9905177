package ldm

import "unsafe"

// OperationBytes is what an operation record takes, bytes, its place in the pool's free list included: for the sum of a
// node's memory.
const OperationBytes = int64(unsafe.Sizeof(operation{})) + 4
