package ldm

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
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
	// parked: a one-shot write at its commit point waits until it may draw an epoch, its request in stash.
	parked
	// ready: as parked, but executed already: it holds its lock and commits as soon as it may draw.
	ready
)

// below is who comes after a replica in a chain, next first, 0 = none.
type below = [signal.MaxReplicas - 1]signal.Addr

// operation is one operation's record at one replica.
type operation struct {
	frag   *fragment
	image  unsafe.Pointer // pending fixed image in the copy pool, or nil
	stash  unsafe.Pointer // the request, in the copy pool, or nil
	vref   store.VarRef   // pending variable part that is not the row's yet
	since  int64          // when it came, ns
	client signal.Addr
	tx     uint32      // client, tx and tc name the transaction
	ref    uint32      // the client's operation
	seq    uint32      // one-shot: commit sequence; else the coordinator's number of the operation
	tc     signal.Addr // 0: one-shot
	tcRef  uint32
	prev   signal.Addr // the replica before in the chain; at the primary 0
	prevOp uint32      // its record
	first  uint32      // record at the primary
	rest   below       // the chain behind this replica; it stays as the primary made it, but for members that are lost
	view   uint32      // the primary's view when it let the operation through; 0 = it has not yet
	gci    [2]uint32   // applied, with a coordinator: its epoch
	cseq   uint32      // applied, with a coordinator: the client's commit sequence number
	id     store.RowID
	up     uint32 // the operation before it on the same row; of a ghost: in the list of ghosts
	down   uint32 // the one behind it
	rear   uint32 // of the first one on a row: the last one
	wNext  uint32 // list of the operations that wait at their primary, or of the parked ones
	wPrev  uint32
	probes uint32 // waiting: probes for deadlocks that were sent for it
	op     uint8
	flags  uint8
	state  opState
	parity uint8 // epoch generation of a chain
	// write: it changes the row; exclusive: it keeps others from locking it; exists: whether the row exists after it;
	// imaged: its change is in image and vref (else in the slot, or it deletes); newPart: vref is to be swapped in;
	// applied: its transaction's changes to the row are the row's state; hidden: the row was deleted by them and left
	// the index; waited: a WaitRep was sent.
	write, exclusive, exists, imaged, newPart, applied, hidden, waited bool
	// ghost: the row is still to be copied to this replica, so the operation passes without effect on it, and is in no
	// row's list; cut: the replica before it is lost: nobody hears its answers; left: it is one of those that must end
	// before the takeover of a view is done here.
	ghost, cut, left bool
}

// same tells whether two operations are of one transaction. A one-shot is a transaction by itself; and what counts of
// the others is the coordinator too, so that a client which gives one number to two transactions shares no lock.
func (o *operation) same(p *operation) bool {
	return o == p || o.tc != 0 && o.tc == p.tc && o.client == p.client && o.tx == p.tx
}

func (o *operation) oneShot() bool { return o.tc == 0 }

// tail tells whether nobody comes behind this replica.
func (o *operation) tail() bool { return o.rest[0] == 0 }

// row is the row that a holding operation is on, nil for a ghost.
func (o *operation) row() *store.RowHead {
	if o.ghost {
		return nil
	}
	return o.frag.rows.Row(o.id)
}

// haunt makes an operation a ghost: its row is still to be copied to this replica.
func (b *Block) haunt(i uint32, o *operation) {
	b.env.Mark(kernel.MarkGhost)
	f := o.frag
	o.ghost, o.state, o.up, o.down = true, holding, pool.None, f.ghosts
	if f.ghosts != pool.None {
		b.ops.At(f.ghosts).up = i
	}
	f.ghosts = i
}

// unhaunt takes an operation out of the ghosts.
func (b *Block) unhaunt(o *operation) {
	if o.up == pool.None {
		o.frag.ghosts = o.down
	} else {
		b.ops.At(o.up).down = o.down
	}
	if o.down != pool.None {
		b.ops.At(o.down).up = o.up
	}
	o.up, o.down = pool.None, pool.None
}

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

func (b *Block) dropStash(o *operation) {
	if o.stash != nil {
		b.copies.Release(o.stash)
		o.stash = nil
	}
}

// drop gives up what an operation has in the copy pool and in the variable space.
func (b *Block) drop(o *operation) {
	b.dropStash(o)
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
	if o.oneShot() {
		b.shots[o.client.Node()]--
		if o.prev == 0 {
			f.oneShots--
			b.oneShots--
		}
	}
	if o.left {
		b.left--
	}
	b.ops.Release(i)
	if b.awaited {
		b.freed(f)
	}
}

// freed answers whoever waits until operations have ended: one has, on f.
func (b *Block) freed(f *fragment) {
	b.awaited = b.prepare.from != 0 // those below that go on waiting say so again
	b.closeTables()
	if b.nfailing > 0 {
		for n := range b.failing {
			b.clientDone(uint8(n))
		}
	}
	b.stopDone()
	b.singleDone()
	if f.frozen && f.ops == 0 {
		b.prepareDone()
	}
	b.takeoverDone()
}

// seize makes a record for an operation on a fragment; nil when there is none left.
func (b *Block) seize(f *fragment) (uint32, *operation) {
	i, o := b.ops.Seize()
	if o == nil {
		return i, nil
	}
	*o = operation{} // and then field by field: the compiler would make the whole record twice
	o.frag, o.since = f, b.env.Now()
	o.id, o.up, o.down, o.wNext, o.wPrev = store.NoRow, pool.None, pool.None, pool.None, pool.None
	o.tcRef, o.prevOp, o.first = signal.NoRef, signal.NoRef, signal.NoRef
	f.ops++
	return i, o
}
