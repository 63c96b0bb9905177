package client

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/signal"
)

// State of a transaction.
type State uint8

const (
	free State = iota
	// Defining: nothing is awaited; operations may be defined.
	Defining
	// Executing: answers of a batch are awaited; afterwards the transaction is Defining, or Ended if it failed.
	Executing
	// Committing: answers are awaited; afterwards the transaction is Ended.
	Committing
	// Asking: the node that was to say what became of the commit is lost; others are asked. Afterwards it is Ended, or
	// Committing again until its rows have come.
	Asking
	// RollingBack: the coordinator's word is awaited; afterwards the transaction is Ended.
	RollingBack
	// Ended: committed, rolled back, or its outcome is unknown; Err says which.
	Ended
)

// What of a coordinator or ldm is awaited, in Tx.awaits.
const (
	awaitsTC     uint8 = 1 << iota // a TxConf or TxRef
	awaitsDirect                   // a WriteConf or KeyRef to a WriteReq
	awaitsCommit                   // with awaitsTC: this batch is followed by a commit of its own, once its reads have come
)

// Tx is a transaction.
type Tx struct {
	s          *Session
	next       *Tx // in the free list
	head, tail *Op
	err        *ndberror.Error
	deadline   int64 // while something is awaited
	num        uint32
	index      uint32
	tc         signal.Addr // the coordinator, 0 while there is none
	reads      uint32      // rows that are awaited
	straight   uint32      // of these: asked for directly
	seq        uint32      // of its commit, once that is sent and writes something
	gci        [2]uint32
	before     *Op   // the last operation of the batches that are over
	question   *Op   // Asking: the write whose fragment is asked about
	rowsBy     int64 // not 0: rows may have been lost; those that are missing then, when all else is over, are
	lostID     uint32
	lost       uint8 // Asking: the node that was lost, and its dynamic id; 0 = nothing of the transaction is left anywhere
	asked      uint8 // Asking: the node whose answer is awaited; 0 = none, ask again when something has changed
	refused    uint8 // Asking: the node that said last that the fragment's primary is elsewhere
	node       uint8 // where its first operation went
	state      State
	awaits     uint8
	started    bool // the coordinator was sent something
	batch      bool // the coordinator was sent operations that no execute or commit has followed yet
	writes     bool // an operation through the coordinator writes
	opts       TxOptions
}

// Index tells transactions of a session apart: it is below MaxTransactions.
func (t *Tx) Index() int { return int(t.index) }

// Session is the transaction's session.
func (t *Tx) Session() *Session { return t.s }

// State is where the transaction is.
func (t *Tx) State() State { return t.state }

// Busy tells whether something is awaited.
func (t *Tx) Busy() bool { return t.state >= Executing && t.state <= RollingBack }

// Err is what made the transaction fail, nil while all is well.
func (t *Tx) Err() *ndberror.Error { return t.err }

// GCI is the epoch of the commit, 0 if there was none.
func (t *Tx) GCI() uint64 { return uint64(signal.JoinGCI(t.gci)) }

// Node is the data node of the coordinator, or where the transaction goes without one; 0 before its first operation.
func (t *Tx) Node() int { return int(t.node) }

// Coordinated tells whether a coordinator has the transaction.
func (t *Tx) Coordinated() bool { return t.tc != 0 }

// Head is the first operation, in the order of their definition; Next of an Op the one after it.
func (t *Tx) Head() *Op { return t.head }

// fail keeps the first error.
func (t *Tx) fail(e *ndberror.Error) {
	if t.err == nil {
		t.err = e
	}
}

// States of an operation.
const (
	opDefined uint8 = iota // its request is built, or it could not be
	opSent                 // a row or the word of an ldm is awaited
	opDone
)

// Op is an operation of a transaction.
type Op struct {
	tx     *Tx
	next   *Op // of the transaction; in the free list when num is 0
	err    *ndberror.Error
	format *Format
	row    unsafe.Pointer // where a read's columns go
	num    uint32         // its transaction's number, 0 while the record is free
	index  uint32
	node   uint8 // of the row's primary
	kind   uint8 // signal.Op…
	flags  uint8 // FlagIgnoreError, FlagNoWait
	state  uint8
	direct bool // went to an ldm without a coordinator
	frag   uint16
}

// Err is the operation's own error, once its batch is over.
func (o *Op) Err() *ndberror.Error { return o.err }

// Next is the operation that was defined after this one.
func (o *Op) Next() *Op { return o.next }

// Tx is the operation's transaction.
func (o *Op) Tx() *Tx { return o.tx }

// Kind is what the operation does: one of signal's Op constants.
func (o *Op) Kind() uint8 { return o.kind }

// IgnoreError lets the transaction live on if this operation fails for its row. It must be said before anything else
// is done with the transaction.
func (o *Op) IgnoreError() { o.flag(signal.FlagIgnoreError) }

// NoWait makes the operation fail with 635 where it would wait for a lock. It must be said before anything else is
// done with the transaction.
func (o *Op) NoWait() { o.flag(signal.FlagNoWait) }

func (o *Op) flag(f uint8) {
	t := o.tx
	if t == nil || o.err != nil {
		return
	}
	s := t.s
	switch {
	case s.open == o:
		o.flags |= f
		s.openReq().Flags |= f
	case o.direct && o.state == opSent && t.state == Defining:
		o.flags |= f
	default:
		t.fail(ndberror.Get(ndberror.TooLate))
	}
}
