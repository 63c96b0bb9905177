package signal

import "unsafe"

// PrepareReq asks an ldm to execute and lock one operation; it runs from the coordinator to the primary and on
// down the chain of backups. As ChainReq it carries a transaction of one write from replica to replica: the
// last one (the tail) is its commit point. Behind it: key image and data section, as in KeyReq.
//
//	tc --PrepareReq--> primary --PrepareReq--> backup --PrepareConf--> tc
//	client --WriteReq--> primary --ChainReq--> tail --ChainConf--> primary --WriteConf--> client
type PrepareReq struct {
	Head
	OpRef   uint32 // operation record of the sending ldm; of the coordinator when it comes from there
	TcRef   uint32 // operation record of the coordinator; NoRef in a ChainReq
	Tc      Addr   // coordinator; in a ChainReq the primary's ldm
	Client  Addr
	Ref     uint32 // the client's operation
	Tx      uint32
	Seq     uint32 // of a ChainReq: commit sequence number; from a coordinator: tells operations that had its record apart
	Ack     uint32
	Table   uint16
	Version uint16
	Frag    uint16
	Op      uint8 // between replicas OpWrite has become OpInsert or OpUpdate
	Flags   uint8
	RowID   uint32 // between replicas: the slot that the primary chose
	First   uint32 // between replicas: operation record at the primary
	// View is, between replicas, the primary's committed view when it let the operation through; it is passed on as it
	// is. A replica whose fragment's node group has lost a member in a later view drops a coordinator's operation without
	// an answer: the primary has reported it in that view (OpRep), or is lost, so that the coordinator undoes it.
	View uint32
	// Down is, between replicas, who comes after the receiver, next first, 0 = none: the primary decides it.
	Down    [MaxReplicas - 1]Addr
	KeyLen  uint16
	DataLen uint16
}

// PrepareReqSize is the fixed part in bytes.
const PrepareReqSize = uint32(unsafe.Sizeof(PrepareReq{}))

// Key points at the key image.
func (r *PrepareReq) Key() unsafe.Pointer { return unsafe.Add(unsafe.Pointer(r), PrepareReqSize) }

// Data points at the data section.
func (r *PrepareReq) Data() unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(r), PrepareReqSize+Pad(uint32(r.KeyLen)))
}

func checkPrepareReq(p *PrepareReq, n uint32) bool {
	return p.Op < OpMax && n == PrepareReqSize+Pad(uint32(p.KeyLen))+Pad(uint32(p.DataLen))
}

// PrepareConf comes from the tail: the operation is prepared at every replica.
type PrepareConf struct {
	Head
	TcRef uint32
	OpSeq uint32 // PrepareReq.Seq
	First uint32 // operation record at the primary; NoRef when none was kept (a committed read)
	Tail  uint32 // operation record at the sender
}

// PrepareRef: the operation failed at the sender and left nothing there. When a backup refuses, the
// primary's part is undone by the coordinator's abort.
type PrepareRef struct {
	Head
	TcRef uint32
	OpSeq uint32 // PrepareReq.Seq
	Code  uint32
	First uint32 // operation record at the primary that an abort must undo, or NoRef
}

// WaitRep tells the coordinator that an operation waits for a row lock, and under which record. It can be overtaken
// by all that comes from further down the chain, even by the end of the transaction: so it says whom it means.
type WaitRep struct {
	Head
	TcRef uint32
	First uint32
	Seq   uint32 // of the PrepareReq
}

// Step is a step of commit, complete or abort. CommitReq and CompleteReq enter at the tail and run up the
// chain to the primary, which answers the coordinator; AbortReq enters at the primary and runs down, and the
// last replica answers.
type Step struct {
	Head
	OpRef uint32 // the receiver's operation record; in an AbortReq between replicas the sender's
	OpSeq uint32 // the coordinator's number of the operation (PrepareReq.Seq); with Tc and TcRef it tells whether the record is still the one that is meant
	TcRef uint32
	Tc    Addr      // the operation's coordinator; of an AbortReq the last replica answers it
	GCI   [2]uint32 // CommitReq
	Seq   uint32    // CommitReq: the client's commit sequence number; an operation with FlagMarker keeps the outcome
	Ack   uint32
	RowID uint32 // AbortReq between replicas: finds the operation by its row
	// Direct is not 0 in a step of a takeover: the receiver carries it out for itself, passes nothing on, and answers From,
	// whatever it finds; Tc, TcRef and OpSeq are then those of the operation's own coordinator, lost or not. It is twice the
	// number of the view, 1 more if the sender has taken the operation over.
	Direct uint32
	Table  uint16
	Frag   uint16
}

// StepConf answers a chain of steps.
type StepConf struct {
	Head
	TcRef  uint32
	OpSeq  uint32 // as asked
	Direct uint32 // as asked
}

// ChainConf: committed from the sender down to the tail, in this epoch.
type ChainConf struct {
	Head
	OpRef uint32
	GCI   [2]uint32
}

// ChainRef: a replica could not take the write; nothing was committed.
type ChainRef struct {
	Head
	OpRef uint32
	Code  uint32
}

func init() {
	register(NumPrepareReq, fromData, checkPrepareReq)
	registerAs(NumChainReq, "ChainReq", fromData, checkPrepareReq)
	register[PrepareConf](NumPrepareConf, fromData, nil)
	register[PrepareRef](NumPrepareRef, fromData, nil)
	register[WaitRep](NumWaitRep, fromData, nil)
	registerAs[Step](NumCommitReq, "CommitReq", fromData, nil)
	registerAs[Step](NumCompleteReq, "CompleteReq", fromData, nil)
	registerAs[Step](NumAbortReq, "AbortReq", fromData, nil)
	registerAs[StepConf](NumCommitConf, "CommitConf", fromData, nil)
	registerAs[StepConf](NumCompleteConf, "CompleteConf", fromData, nil)
	registerAs[StepConf](NumAbortConf, "AbortConf", fromData, nil)
	register[ChainConf](NumChainConf, fromData, nil)
	register[ChainRef](NumChainRef, fromData, nil)
}
