package signal

// Signal numbers. A number is never reused for another layout: links between versions rely on it.
const (
	_ uint16 = iota

	// Links (link.go).
	NumHello
	NumHelloConf
	NumHelloRef

	// Operations of clients (operation.go).
	NumReadReq   // client → ldm: committed read, no coordinator
	NumWriteReq  // client → ldm: a transaction of one write, no coordinator
	NumKeyReq    // client → tc: an operation of a transaction
	NumTxReq     // client → tc: execute, commit or roll back without a further operation
	NumAckOrd    // client → tc, ldm: acknowledges outcomes
	NumCloseOrd  // client → tc, ldm: a session ended
	NumReadConf  // ldm → client: the row
	NumWriteConf // ldm → client: committed
	NumKeyRef    // ldm, tc → client: an operation failed
	NumTxConf    // tc → client: executed, or committed
	NumTxRef     // tc → client: the transaction was aborted
	NumOutcomeReq
	NumOutcomeConf

	// Transactions between coordinators and ldms (transaction.go).
	NumPrepareReq
	NumPrepareConf
	NumPrepareRef
	NumWaitRep
	NumCommitReq
	NumCommitConf
	NumCompleteReq
	NumCompleteConf
	NumAbortReq
	NumAbortConf
	NumChainReq
	NumChainConf
	NumChainRef

	// Epochs (epoch.go).
	NumEpochPrepareReq
	NumEpochPrepareConf
	NumEpochCommitReq
	NumEpochCommitConf
	NumEpochStateReq  // new president's distribution → members' distributions: how far are you
	NumEpochStateConf // back
	NumEpochJoinReq   // joining member's distribution → president's: let me take part

	// Timers of blocks (timer.go).
	NumTickOrd

	// Fragments of tables at an ldm and tables at a coordinator (fragment.go).
	NumFragCreateReq
	NumFragCreateConf
	NumFragDropReq
	NumFragDropConf
	NumTableOpenReq
	NumTableOpenConf
	NumTableCloseReq
	NumTableCloseConf
	NumDropStepOrd

	// Tables for clients (table.go).
	NumTableInfoReq
	NumTableInfoConf
	NumTableRef
	NumTableCreateReq
	NumTableCreateConf
	NumTableDropReq
	NumTableDropConf
	NumTableListReq
	NumTableListConf

	// Node failures (failure.go).
	NumNodeFailRep
	NumNodeFailConf
	NumNodeFreeRep
	NumNodeUpRep
	NumDrainReq
	NumDrainConf

	// Management (management.go).
	NumNodeStateRep
	NumEventRep
	NumEventSubscribeOrd
	NumStopReq
	NumStopConf
	NumStopRef
	NumStartOrd
	NumDumpOrd
	NumReportReq
	NumReportConf
	NumApiRegReq
	NumApiRegConf
	NumLinkUpRep
	NumLinkDownRep
	NumExitOrd
	NumStatReq
	NumStatConf

	// Membership, distribution and dictionary among data nodes (cluster.go).
	NumPeerRep          // membership → membership: how the sender is
	NumStartReq         // president → members: start together
	NumStartConf        // member → president
	NumStartRef         // member → president
	NumPhaseReq         // president → members, membership → own blocks: run a start phase
	NumPhaseConf        // back
	NumJoinRef          // member of a running cluster → newcomer
	NumClusterStopReq   // membership → president: stop the cluster
	NumStopStepReq      // president → members
	NumStopStepConf     // member → president
	NumLeaveReq         // membership → president: the sender wants to stop alone
	NumLeaveConf        // back
	NumLeaveRef         // back
	NumLagRep           // distribution → membership: a node does not finish an epoch
	NumEpochRep         // distribution → manager: the newest epoch
	NumPlaceReq         // dictionary → distribution: where do fragments go
	NumPlaceConf        // distribution → dictionary
	NumSchemaPrepareReq // president's dictionary → members' dictionaries
	NumSchemaPrepareConf
	NumSchemaCommitReq
	NumSchemaCommitConf
	NumSchemaAbortReq
	NumSchemaAbortConf
	NumSchemaStateReq // new president's dictionary → members' dictionaries: what do you know
	NumSchemaStateConf
	NumSchemaGoOrd    // new president's dictionary → members' dictionaries: send your requests
	NumSchemaJoinReq  // joining member's dictionary → president's: tell me all tables
	NumSchemaJoinConf // back

	// Views of the cluster (view.go).
	NumViewPrepareReq  // leader → members, membership → own blocks
	NumViewPrepareConf // block → membership
	NumViewReadyConf   // member → leader
	NumViewCommitReq   // leader → members, membership → own blocks
	NumViewCommitConf
	NumTakeoverRep   // president → members, membership → distribution
	NumHeartbeatRep  // member → members
	NumViewCheckReq  // leader → members
	NumViewCheckConf // back
	NumViewRefOrd    // leader → members
	NumGateOrd       // membership → tc, ldm
	NumLinkCloseOrd  // membership → runtime
	NumHeardReq      // membership → runtime
	NumHeardConf     // back
	NumStallRep      // runtime → membership
	NumTrustOrd      // membership → runtime

	// Takeover of transactions (takeover.go).
	NumOpRep    // ldm → tc
	NumOpEndRep // ldm → tc

	// Copies of fragments (copy.go).
	NumCopyReq       // ldm → ldm
	NumCopyRef       // back
	NumCopyRowsOrd   // back
	NumCopyAckOrd    // ldm → ldm
	NumCopyStartReq  // distribution → ldm
	NumCopyStartConf // back
	NumCopyStepOrd   // ldm → itself

	// Arbitration (arbitration.go).
	NumArbitStartReq
	NumArbitStartConf
	NumArbitOrd // president → members
	NumArbitChooseReq
	NumArbitChooseConf
	NumArbitChooseRef

	// Deadlocks (deadlock.go).
	NumProbeOrd     // ldm → tc
	NumWaitProbeOrd // tc → ldm

	// Single user mode (management.go).
	NumSingleReq  // mgm → manager
	NumSingleConf // back
	NumSingleOrd  // manager → membership → president → view → membership → manager → tc, ldm

	// Lists for operators (list.go).
	NumListReq  // mgm → manager → tc or ldm
	NumListConf // tc, ldm → mgm

	// NumMax bounds the numbers.
	NumMax
)
