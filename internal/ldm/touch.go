package ldm

// Touch-ahead: before a runtime executes a window of signals it asks where each will look first, prefetches all these
// lines at once, and then the rows behind them. The cache misses of the window overlap instead of following each
// other. A hint: it changes no result, and whatever a signal holds it reads nothing but what is there.

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/rowhash"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
)

// Aim is where a signal will look first: an address to prefetch (nil: nothing useful). If it is a bucket of the hash
// index, rows and hash are set, and rows.RowPtr(hash) is the second address, once the first has come.
func (b *Block) Aim(h *signal.Head) (p unsafe.Pointer, rows *store.Fragment, hash uint64) {
	switch h.Num {
	case signal.NumReadReq, signal.NumWriteReq, signal.NumKeyReq:
		r := signal.As[signal.KeyReq](h)
		if f := b.Fragment(uint32(r.Table), uint32(r.Frag)); f != nil {
			hash = rowhash.Hash(r.Key(), uint32(r.KeyLen)&^3)
			return f.BucketPtr(hash), f, hash
		}
	case signal.NumPrepareReq, signal.NumChainReq:
		r := signal.As[signal.PrepareReq](h)
		f := b.Fragment(uint32(r.Table), uint32(r.Frag))
		switch {
		case f == nil:
		case r.RowID != signal.NoRef && r.Op == signal.OpUpdate:
			if row, ok := f.CheckedRow(r.RowID); ok {
				return unsafe.Pointer(row), nil, 0
			}
		default:
			hash = rowhash.Hash(r.Key(), uint32(r.KeyLen)&^3)
			return f.BucketPtr(hash), f, hash
		}
	case signal.NumCommitReq, signal.NumCompleteReq:
		return b.rowOf(signal.As[signal.Step](h).OpRef)
	case signal.NumChainConf:
		return b.rowOf(signal.As[signal.ChainConf](h).OpRef)
	}
	return nil, nil, 0
}

// rowOf is the row that an operation is on.
func (b *Block) rowOf(ref uint32) (unsafe.Pointer, *store.Fragment, uint64) {
	o := b.ops.Find(ref)
	if o == nil || o.id == store.NoRow {
		return nil, nil, 0
	}
	if row, ok := o.frag.rows.CheckedRow(o.id); ok {
		return unsafe.Pointer(row), nil, 0
	}
	return nil, nil, 0
}
