package signal

// EpochReq runs an epoch change: as EpochPrepareReq nobody who has answered may draw an epoch any more until the
// EpochCommitReq, after which everybody draws the new one. The same signals run from the president's
// distribution block to every node's, and from there to each coordinator and ldm of the node.
//
//	president --EpochPrepareReq--> all --EpochPrepareConf--> president
//	president --EpochCommitReq--> all --EpochCommitConf--> president   (when nothing of the old epoch is left)
type EpochReq struct {
	Head
	GCI [2]uint32 // the new epoch
}

// EpochConf answers both. In an EpochCommitConf: every transaction of an older epoch is complete at the sender.
type EpochConf struct {
	Head
	GCI [2]uint32 // as asked
}

// EpochStateReq is a new president's question how far each member is with the epochs. Whoever has not committed the
// president's view yet answers when it has.
//
// Epochs go on from the newest that anybody has prepared: the change to it runs once more, and members that are further
// answer each round at once. So all end in the same epoch, wherever the last president was lost.
type EpochStateReq struct {
	Head
	View uint32 // the president's
}

// EpochStateConf answers.
type EpochStateConf struct {
	Head
	View uint32    // as asked
	GCI  [2]uint32 // newest epoch that is committed at the sender
	Next [2]uint32 // newest that is prepared
	Busy uint32    // 1: the change to Next has not ended at the sender
	Part uint32    // one of the Part constants
}

// How a member takes part in what the president leads: changes of the epoch, schema transactions.
const (
	PartNone   uint32 = iota // not at all: it is joining, and not that far
	PartComing               // it has asked to, and does from the next one on
	PartFull
	partEnd
)

// EpochJoinReq asks the president to let the sender, which is joining, take part in changes of the epoch from the next one
// on.
type EpochJoinReq struct {
	Head
	GCI [2]uint32 // newest epoch that the sender has seen, in an attempt to start
}

func init() {
	registerAs[EpochReq](NumEpochPrepareReq, "EpochPrepareReq", fromData, nil)
	registerAs[EpochConf](NumEpochPrepareConf, "EpochPrepareConf", fromData, nil)
	registerAs[EpochReq](NumEpochCommitReq, "EpochCommitReq", fromData, nil)
	registerAs[EpochConf](NumEpochCommitConf, "EpochCommitConf", fromData, nil)
	register[EpochStateReq](NumEpochStateReq, fromData, nil)
	register(NumEpochStateConf, fromData, func(p *EpochStateConf, n uint32) bool {
		return n == FixedSize(NumEpochStateConf) && p.Busy <= 1 && p.Part < partEnd
	})
	register[EpochJoinReq](NumEpochJoinReq, fromData, nil)
}
