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

func init() {
	registerAs[EpochReq](NumEpochPrepareReq, "EpochPrepareReq", fromData, nil)
	registerAs[EpochConf](NumEpochPrepareConf, "EpochPrepareConf", fromData, nil)
	registerAs[EpochReq](NumEpochCommitReq, "EpochCommitReq", fromData, nil)
	registerAs[EpochConf](NumEpochCommitConf, "EpochCommitConf", fromData, nil)
}
