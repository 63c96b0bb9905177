package signal

import "unsafe"

// Operations on a row by its primary key.
const (
	OpReadCommitted uint8 = iota // sees the newest committed row, takes no lock, waits for none
	OpReadShared                 // shared lock until the end of the transaction
	OpReadExclusive              // exclusive lock until the end of the transaction
	OpInsert                     // error 630 if the row exists
	OpUpdate                     // error 626 if it does not
	OpWrite                      // insert or update
	OpDelete                     // error 626 if it does not exist
	OpMax
)

// IsRead tells reads from writes.
func IsRead(op uint8) bool { return op <= OpReadExclusive }

// Flags of an operation.
const (
	// FlagAll: the data are whole images (all non-key columns); without it a column mask comes first.
	FlagAll uint8 = 1 << iota
	// FlagIgnoreError: a failure of this operation leaves its transaction alive (AO_IgnoreError).
	FlagIgnoreError
	// FlagStart: the first operation of its transaction. To an ldm: no other one of its transaction is under way.
	FlagStart
	// FlagExecute: the last operation of a batch: answer with TxConf when all before it are done.
	FlagExecute
	// FlagCommit: with FlagExecute: then commit.
	FlagCommit
	// FlagMarker: within the data nodes: this operation's replicas keep the transaction's outcome. All writes have it that
	// are sent before one that has it is known to be prepared, since any of those may fail without ending its transaction.
	FlagMarker
	// FlagNoWait: error 635 instead of waiting for a lock.
	FlagNoWait
	// FlagAgain: in a ChainReq after a member was lost: the receiver may have carried it out already.
	FlagAgain
)

// KeyReq is one operation of a client on one row. As ReadReq and WriteReq it goes straight to the ldm that has
// the primary replica and is a transaction by itself; as KeyReq it goes to a coordinator. Behind it: the key
// image, then the data section (see package schema for both), each padded to 4 bytes.
//
// Answers: ReadConf (reads), WriteConf (WriteReq), TxConf (KeyReq with FlagExecute), KeyRef, TxRef.
type KeyReq struct {
	Head
	Ref     uint32 // the client's operation, echoed in answers
	Tx      uint32 // the client's transaction number; From and Tx together name a transaction
	Seq     uint32 // with a commit: the session's commit sequence number, from 1; else 0
	Ack     uint32 // the session has heard the outcome of every commit up to this sequence number
	Table   uint16
	Version uint16 // of the table and its map, as the client knows it: an old one is refused with 241
	Frag    uint16
	Op      uint8
	Flags   uint8
	KeyLen  uint16 // bytes
	DataLen uint16 // bytes
}

// KeyReqSize is the fixed part in bytes.
const KeyReqSize = uint32(unsafe.Sizeof(KeyReq{}))

// Key points at the key image.
func (r *KeyReq) Key() unsafe.Pointer { return unsafe.Add(unsafe.Pointer(r), KeyReqSize) }

// Data points at the data section.
func (r *KeyReq) Data() unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(r), KeyReqSize+Pad(uint32(r.KeyLen)))
}

func checkKeyReq(p *KeyReq, n uint32) bool {
	return p.Op < OpMax && n == KeyReqSize+Pad(uint32(p.KeyLen))+Pad(uint32(p.DataLen)) && p.From.Block() == BlockClient
}

// Actions of a TxReq.
const (
	TxExecute  uint32 = iota // answer when what was sent so far is done
	TxCommit                 // then commit
	TxRollback               // abort
)

// TxReq ends a batch or a transaction without a further operation.
type TxReq struct {
	Head
	Tx     uint32
	Action uint32
	Seq    uint32 // with TxCommit: commit sequence number
	Ack    uint32
}

// AckOrd acknowledges outcomes when no request is there to carry the acknowledgement.
type AckOrd struct {
	Head
	Ack uint32
}

// CloseOrd says that a session ended: its transactions are rolled back and its outcomes forgotten.
type CloseOrd struct {
	Head
}

// ReadConf carries the columns that a read asked for: whole images with FlagAll, else packed values. It comes
// from the ldm, also when a coordinator runs the transaction.
type ReadConf struct {
	Head
	Ref     uint32
	Tx      uint32
	DataLen uint32 // bytes that follow, padded to 4
}

// ReadConfSize is the fixed part in bytes.
const ReadConfSize = uint32(unsafe.Sizeof(ReadConf{}))

// Data points at the columns.
func (r *ReadConf) Data() unsafe.Pointer { return unsafe.Add(unsafe.Pointer(r), ReadConfSize) }

// WriteConf says that a WriteReq committed.
type WriteConf struct {
	Head
	Ref uint32
	Tx  uint32
	GCI [2]uint32
}

// KeyRef says that an operation failed. From an ldm it ends a ReadReq or WriteReq; from a coordinator the
// transaction lives on (FlagIgnoreError), otherwise a TxRef comes instead.
type KeyRef struct {
	Head
	Ref  uint32
	Tx   uint32
	Code uint32
}

// TxConf answers an execute: every operation of the batch is done or has had its KeyRef. Reads are complete
// when their ReadConf has come too, which may be later, from another node.
type TxConf struct {
	Head
	Tx        uint32
	Batch     uint32 // operations answered by this conf
	Committed uint32 // 1: the transaction has committed and ended
	GCI       [2]uint32
}

// TxRef says that the transaction was aborted and has ended.
type TxRef struct {
	Head
	Tx   uint32
	Code uint32
	Ref  uint32 // the operation that caused it, or NoRef
}

// NoRef stands for no record.
const NoRef = ^uint32(0)

// OutcomeReq asks what became of a commit after its coordinator, or the primary of its only write, was lost. It goes to
// the ldm that has the primary of the transaction's first write now; if that says OutcomeNone and errors of the first
// write were ignored (FlagIgnoreError), to that of the next write: one of those that did not fail knows. The answer comes when that is decided: when the
// lost member is out of the view, and nothing of it is left at the ldm.
type OutcomeReq struct {
	Head
	Tx        uint32
	Seq       uint32
	Node      uint32 // the lost member
	DynamicID uint32 // … as the client knew it, so that one that has come back is not taken for it
	Table     uint16
	Frag      uint16
}

// OutcomeConf: Known is one of the Outcome constants; with OutcomeCommitted the epoch.
type OutcomeConf struct {
	Head
	Tx    uint32
	Seq   uint32
	Known uint32
	GCI   [2]uint32
}

// Answers of an OutcomeConf.
const (
	OutcomeNone      uint32 = iota // it was not committed, and never will be
	OutcomeCommitted               // in the epoch GCI
	OutcomeElsewhere               // the fragment's primary is not here: ask for the table's map, and there
)

func init() {
	registerAs(NumReadReq, "ReadReq", fromAPI, checkKeyReq)
	registerAs(NumWriteReq, "WriteReq", fromAPI, checkKeyReq)
	register(NumKeyReq, fromAPI, checkKeyReq)
	register(NumTxReq, fromAPI, func(p *TxReq, n uint32) bool {
		return n == uint32(unsafe.Sizeof(*p)) && p.Action <= TxRollback && p.From.Block() == BlockClient
	})
	register[AckOrd](NumAckOrd, fromAPI, nil)
	register[CloseOrd](NumCloseOrd, fromAPI, nil)
	register(NumReadConf, fromData, func(p *ReadConf, n uint32) bool { return n == ReadConfSize+Pad(p.DataLen) })
	register[WriteConf](NumWriteConf, fromData, nil)
	register[KeyRef](NumKeyRef, fromData, nil)
	register[TxConf](NumTxConf, fromData, nil)
	register[TxRef](NumTxRef, fromData, nil)
	register[OutcomeReq](NumOutcomeReq, fromAPI|fromData, nil)
	register[OutcomeConf](NumOutcomeConf, fromData, nil)
}
