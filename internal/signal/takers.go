package signal

// takers says which blocks take each signal that may come over a link. A block gets nothing else from other nodes, so
// that a client which sends a signal of the right shape to the wrong block breaks its link, not a node. The signals of
// a link's handshake are for whoever holds the link; he gives none of them to a block.
var takers = []struct {
	blocks []uint8
	nums   []uint16
}{
	{[]uint8{BlockLDM}, []uint16{NumReadReq, NumWriteReq, NumPrepareReq, NumCommitReq, NumCompleteReq, NumAbortReq, NumChainReq, NumChainConf, NumChainRef,
		NumOutcomeReq, NumCopyReq, NumCopyRef, NumCopyRowsOrd, NumCopyAckOrd, NumWaitProbeOrd}},
	{[]uint8{BlockTC}, []uint16{NumKeyReq, NumTxReq, NumPrepareConf, NumPrepareRef, NumWaitRep, NumCommitConf, NumCompleteConf, NumAbortConf,
		NumOpRep, NumOpEndRep, NumProbeOrd}},
	{[]uint8{BlockTC, BlockLDM}, []uint16{NumAckOrd, NumCloseOrd}},
	{[]uint8{BlockClient}, []uint16{NumReadConf, NumWriteConf, NumKeyRef, NumTxConf, NumTxRef, NumOutcomeConf,
		NumTableInfoConf, NumTableListConf, NumApiRegConf}},
	{[]uint8{BlockDistribution}, []uint16{NumEpochPrepareReq, NumEpochPrepareConf, NumEpochCommitReq, NumEpochCommitConf,
		NumEpochStateReq, NumEpochStateConf, NumEpochJoinReq}},
	{[]uint8{BlockDictionary}, []uint16{NumTableInfoReq, NumTableListReq, NumTableCreateReq, NumTableDropReq,
		NumSchemaPrepareReq, NumSchemaPrepareConf, NumSchemaCommitReq, NumSchemaCommitConf, NumSchemaAbortReq, NumSchemaAbortConf,
		NumSchemaStateReq, NumSchemaStateConf, NumSchemaGoOrd, NumSchemaJoinReq, NumSchemaJoinConf}},
	{[]uint8{BlockClient, BlockDictionary}, []uint16{NumTableRef, NumTableCreateConf, NumTableDropConf}},
	{[]uint8{BlockManager}, []uint16{NumEventSubscribeOrd, NumStopReq, NumStartOrd, NumDumpOrd, NumReportReq, NumApiRegReq, NumSingleReq, NumListReq}},
	{[]uint8{BlockMgm}, []uint16{NumEventRep, NumStopConf, NumStopRef, NumReportConf, NumSingleConf, NumListConf}},
	{[]uint8{BlockClient, BlockMgm}, []uint16{NumNodeStateRep}},
	{[]uint8{BlockMembership}, []uint16{NumPeerRep, NumStartReq, NumStartConf, NumStartRef, NumPhaseReq, NumPhaseConf, NumJoinRef,
		NumClusterStopReq, NumStopStepReq, NumStopStepConf, NumViewPrepareReq, NumViewPrepareConf, NumViewReadyConf, NumViewCommitReq, NumViewCommitConf,
		NumTakeoverRep, NumHeartbeatRep, NumViewCheckReq, NumViewCheckConf, NumViewRefOrd, NumArbitStartConf, NumArbitOrd,
		NumArbitChooseConf, NumArbitChooseRef, NumLeaveReq, NumLeaveConf, NumLeaveRef, NumSingleOrd}},
	{[]uint8{BlockArbitrator}, []uint16{NumArbitStartReq}},
	{[]uint8{BlockArbitrator, BlockMembership}, []uint16{NumArbitChooseReq}},
}

// takenBy has, for each signal, a bit for each block that takes it from a link.
var takenBy [NumMax]uint32

func init() {
	for _, t := range takers {
		for _, num := range t.nums {
			for _, b := range t.blocks {
				takenBy[num] |= 1 << b
			}
		}
	}
}

// handshake tells the signals that open a link.
func handshake(num uint16) bool { return num >= NumHello && num <= NumHelloRef }
