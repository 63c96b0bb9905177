package signal

import "unsafe"

// ListReq asks for a list of what is open at a node. The manager passes it on as it is, so that each block answers the
// management server itself.
//
//	mgm --ListReq--> manager --ListReq--> each tc (ListTransactions) or ldm (ListLocks) --ListConf--> mgm
type ListReq struct {
	Head
	Ref  uint32
	Kind uint32 // one of the List constants
	Most uint32 // lines that a block gives at most, 1..ListMost; those that wait, and have waited longest, first
}

// What can be listed.
const (
	ListTransactions = 1 + iota // of a coordinator: its open transactions
	ListLocks                   // of an ldm: locks that somebody waits for, who holds them and who waits
)

// ListMost bounds the lines of a ListConf.
const ListMost = 1000

// ListConf answers: one from each block. Behind it Count TransactionLines or LockLines.
type ListConf struct {
	Head
	Ref    uint32
	Kind   uint32
	Blocks uint32 // blocks of the node that answer this ListReq
	Left   uint32 // lines beyond Most
	Count  uint32
}

// TransactionLine is an open transaction at its coordinator (From of the ListConf).
type TransactionLine struct {
	Client     Addr
	Tx         uint32
	State      uint32 // one of the TxIs constants
	Operations uint32 // that it has
	Waiting    uint32 // … of them, those that wait for a lock
	AgeMillis  uint32 // since its first operation
	IdleMillis uint32 // since its client has last said something
}

// States of a TransactionLine.
const (
	TxIsActive     = 1 + iota // its client may go on
	TxIsCommitting            // past its commit point, or just before it
	TxIsCompleting            // committed; its locks are being released
	TxIsAborting
	TxIsTakenOver // its coordinator was lost; this one finishes it
)

// LockLine is an operation that holds a lock which another one waits for, or that waits.
type LockLine struct {
	Client  Addr
	Tx      uint32
	Tc      Addr // its coordinator; 0 = a transaction of one operation, which has none
	Table   uint16
	Frag    uint16
	Row     uint32 // row id; NoRef = the row does not exist yet
	Mode    uint16 // LockIsShared or LockIsExclusive
	Waits   uint16 // 1: it waits; 0: it holds
	Millis  uint32 // how long
	AheadTx uint32 // of a waiting one: transaction number of the one directly ahead of it
	Ahead   Addr   // … and its client
}

// Modes of a LockLine.
const (
	LockIsShared    = 1
	LockIsExclusive = 2
)

// Transactions are the lines of a ListTransactions.
func (r *ListConf) Transactions() []TransactionLine { return lines[TransactionLine](r) }

// Locks are the lines of a ListLocks.
func (r *ListConf) Locks() []LockLine { return lines[LockLine](r) }

func lines[T any](r *ListConf) []T {
	if r.Count == 0 {
		return nil // what would follow may be another object's
	}
	return unsafe.Slice((*T)(unsafe.Add(unsafe.Pointer(r), unsafe.Sizeof(*r))), r.Count)
}

// ListConfSize is the size of a whole ListConf with lines of T, in bytes.
func ListConfSize[T TransactionLine | LockLine](count int) uint32 {
	var z T
	return uint32(unsafe.Sizeof(ListConf{})) + uint32(count)*uint32(unsafe.Sizeof(z))
}

func init() {
	register(NumListReq, fromMgm, func(p *ListReq, n uint32) bool {
		return n == uint32(unsafe.Sizeof(*p)) && (p.Kind == ListTransactions || p.Kind == ListLocks) && p.Most >= 1 && p.Most <= ListMost
	})
	register(NumListConf, fromData, func(p *ListConf, n uint32) bool {
		if p.Count > ListMost {
			return false
		}
		switch p.Kind {
		case ListTransactions:
			return n == ListConfSize[TransactionLine](int(p.Count))
		case ListLocks:
			return n == ListConfSize[LockLine](int(p.Count))
		}
		return false
	})
}
