package ldm

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
)

type opState uint8

const (
	// executing: the operation is inside a handler.
	executing opState = iota
	// waiting: in the queue of a row; its request is kept in stash.
	waiting
	// holding: it holds its lock, its change is pending, and somebody else says what becomes of it: the coordinator,
	// or for a one-shot write the next replica of the chain.
	holding
	// parked: a one-shot write at its commit point waits for the end of an epoch change, its request in stash.
	parked
	// ready: as parked, but executed already: it holds its lock and commits as soon as it may draw.
	ready
)

// operation is one operation's record at one replica.
type operation struct {
	frag   *fragment
	image  unsafe.Pointer // pending fixed image in the copy pool, or nil
	stash  unsafe.Pointer // the request, in the copy pool, or nil
	vref   store.VarRef   // pending variable part that is not the row's yet
	due    int64          // waiting: when error 266 comes, ns
	client signal.Addr
	tx     uint32      // client, tx and tc name the transaction
	ref    uint32      // the client's operation
	seq    uint32      // one-shot: commit sequence; else the coordinator\'s number of the operation
	tc     signal.Addr // 0: one-shot
	tcRef  uint32
	prev   signal.Addr // the replica before in the chain; at the primary 0
	prevOp uint32      // its record
	first  uint32      // record at the primary
	id     store.RowID
	up     uint32 // the operation before it on the same row
	down   uint32 // the one behind it
	rear   uint32 // of the first one on a row: the last one
	wNext  uint32 // list of all waiting operations, or of the parked ones
	wPrev  uint32
	op     uint8
	flags  uint8
	state  opState
	parity uint8 // epoch generation of a chain
	// write: it changes the row; exclusive: it keeps others from locking it; exists: whether the row exists after it;
	// imaged: its change is in image and vref (else in the slot, or it deletes); newPart: vref is to be swapped in;
	// applied: its transaction's changes to the row are the row's state; hidden: the row was deleted by them and left
	// the index; waited: a WaitRep was sent.
	write, exclusive, exists, imaged, newPart, applied, hidden, waited bool
}

// same tells whether two operations are of one transaction. A one-shot is a transaction by itself; and what counts of
// the others is the coordinator too, so that a client which gives one number to two transactions shares no lock.
func (o *operation) same(p *operation) bool {
	return o == p || o.tc != 0 && o.tc == p.tc && o.client == p.client && o.tx == p.tx
}

func (o *operation) oneShot() bool { return o.tc == 0 }

// request is what an operation asks for, in place in its signal or in its stash.
type request struct {
	key, data       unsafe.Pointer
	keyLen, dataLen uint32
}

// keep copies a signal into the copy pool, to be executed later. False: no room.
func (b *Block) keep(o *operation, h *signal.Head) bool {
	n := h.Bytes()
	if n > store.MaxCopy {
		return false
	}
	p := b.copies.Seize(n)
	if p == nil {
		return false
	}
	copy(unsafe.Slice((*byte)(p), n), unsafe.Slice((*byte)(unsafe.Pointer(h)), n))
	o.stash = p
	return true
}

// drop gives up what an operation has in the copy pool and in the variable space.
func (b *Block) drop(o *operation) {
	if o.stash != nil {
		b.copies.Release(o.stash)
		o.stash = nil
	}
	if o.image != nil {
		b.copies.Release(o.image)
		o.image = nil
	}
	if o.newPart {
		o.frag.rows.FreeVar(o.vref)
		o.newPart = false
	}
}

// free releases the record of an operation that is in no list.
func (b *Block) free(i uint32, o *operation) {
	b.drop(o)
	f := o.frag
	f.ops--
	if o.oneShot() && o.prev == 0 {
		f.oneShots--
		b.oneShots--
	}
	client := o.client
	if o.oneShot() {
		b.shots[client.Node()]--
	}
	b.ops.Release(i)
	if f.table.closing {
		b.closeTable(f.table)
	}
	if b.nfailing > 0 {
		b.clientDone(client.Node())
	}
	b.stopDone()
}

// seize makes a record for an operation on a fragment; nil when there is none left.
func (b *Block) seize(f *fragment) (uint32, *operation) {
	i, o := b.ops.Seize()
	if o == nil {
		return i, nil
	}
	*o = operation{frag: f, id: store.NoRow, up: pool.None, down: pool.None, wNext: pool.None, wPrev: pool.None,
		tcRef: signal.NoRef, prevOp: signal.NoRef, first: signal.NoRef}
	f.ops++
	return i, o
}
