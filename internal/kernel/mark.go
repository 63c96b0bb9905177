package kernel

// Mark names a place in the code that runs seldom. Blocks say when they are there (Env.Mark); the simulator collects the
// marks of its runs, and a test demands that all have been reached.
type Mark uint8

// Marks. Each has its line in markNames.
const (
	MarkNone Mark = iota
	// MarkTicketNotTaken: an arbitrator did not take a ticket, because it knew a newer one or its view was won.
	MarkTicketNotTaken
	// MarkTicketUnknown: somebody showed an arbitrator a ticket that it did not know, or not any more.
	MarkTicketUnknown
	// MarkTicketUsed: a part of the cluster showed an arbitrator a ticket with which another part had won.
	MarkTicketUsed
	// MarkFreezeRollback: a transaction was rolled back because it used a fragment whose primary moves for too long.
	MarkFreezeRollback
	// MarkDeadlock: a transaction was rolled back because it waited in a circle.
	MarkDeadlock
	// MarkLateAnswer: an ldm answered about an operation that a takeover had finished in another way.
	MarkLateAnswer
	// MarkTakeoverAgain: a view lost a member while a takeover was under way.
	MarkTakeoverAgain
	// MarkTouchedByReport: a primary let an operation go down a chain that its coordinator knew to be broken.
	MarkTouchedByReport
	// MarkAbortUnreported: an operation whose chain lost a member had not reached its primary.
	MarkAbortUnreported
	// MarkCommitDirect: an own transaction that was committing lost a member of a chain.
	MarkCommitDirect
	// MarkTakeoverAborts: nobody had applied anything of a transaction of a lost coordinator.
	MarkTakeoverAborts
	// MarkTakeoverMixed: some had applied their part of a transaction of a lost coordinator, others not.
	MarkTakeoverMixed
	// MarkEpochRunAgain: a new president ran the change to the newest epoch once more.
	MarkEpochRunAgain
	// MarkEpochPulled: in that change some members were in an older epoch than others.
	MarkEpochPulled
	// MarkEpochHeld: the end of a change of the epoch waited for the end of a takeover.
	MarkEpochHeld
	// MarkEpochJoined: a node that joins asked to take part in changes of the epoch.
	MarkEpochJoined
	// MarkCreateFinished: a new president committed a create that may have been committed somewhere.
	MarkCreateFinished
	// MarkCreateUndone: a new president undid a create that some had not prepared.
	MarkCreateUndone
	// MarkDropFinished: a new president finished a drop that had begun.
	MarkDropFinished
	// MarkViewWaitsForTable: a change of a member's state waited until a table was made.
	MarkViewWaitsForTable
	// MarkDropHeld: a drop waited for the end of a takeover before rows were given up.
	MarkDropHeld
	// MarkRequestAgain: a request that a lost president had not begun went to the new one.
	MarkRequestAgain
	// MarkRequestKnown: a request that a lost president had finished was answered by the node that had passed it on.
	MarkRequestKnown
	// MarkTablesTold: a node that joins was told all tables.
	MarkTablesTold
	// MarkTablesAgain: the president was lost meanwhile, and the node began again with the new one.
	MarkTablesAgain
	// MarkDistrust: a node did not hear enough members to be sure of living, and drew no more epochs.
	MarkDistrust
	// MarkStallOver: a node that had not run for a while found that it was still in the cluster.
	MarkStallOver
	// MarkSuspectReturned: a member that was about to be put out was heard again in time.
	MarkSuspectReturned
	// MarkLeaderLost: a member had prepared a view when the one that led the change was lost.
	MarkLeaderLost
	// MarkMemberLostInPrepare: a member was lost while a view with it was being prepared.
	MarkMemberLostInPrepare
	// MarkViewAdopted: a node took a view that another had committed already.
	MarkViewAdopted
	// MarkPartYields: a node saw that a larger part of the cluster, without it, would go on.
	MarkPartYields
	// MarkTwoLeaders: two nodes led a change of the same view.
	MarkTwoLeaders
	// MarkUncertainView: a part had to weigh itself against a view that others might have committed.
	MarkUncertainView
	// MarkArbitWon: a part went on because the arbitrator said so.
	MarkArbitWon
	// MarkArbitLost: a part ended because the arbitrator said so, or nobody was there to ask.
	MarkArbitLost
	// MarkArbitRelay: a leader asked the arbitrator by way of another member.
	MarkArbitRelay
	// MarkArbitChanged: another arbitrator took over, with the old tickets given up first.
	MarkArbitChanged
	// MarkLossInTakeover: a member was lost before the takeover of earlier ones was done.
	MarkLossInTakeover
	// MarkRecoveringOut: a recovering member went out of the view with the one that it copied from.
	MarkRecoveringOut
	// MarkLeaseExpires: a view was held back until a node that was cut off could not rely on the others any more.
	MarkLeaseExpires
	// MarkDiverged: a node found that it had come by other views to where it was than the part that goes on.
	MarkDiverged
	// MarkLaggingOut: a member was put out because it did not finish an epoch, or did not answer.
	MarkLaggingOut
	// MarkThawed: a primary that was to move away stays, since another view is prepared.
	MarkThawed
	// MarkParkedDropped: an ldm dropped a one-shot at its commit point whose sender was lost.
	MarkParkedDropped
	// MarkWaitingDropped: an ldm dropped a waiting operation whose coordinator was lost.
	MarkWaitingDropped
	// MarkQueuedDropped: an ldm dropped what waited below the primary and belonged to a broken chain.
	MarkQueuedDropped
	// MarkOrphan: an ldm lost the replica before it in a one-shot's chain.
	MarkOrphan
	// MarkBecameTail: an ldm lost all replicas behind it in a one-shot's chain and is its commit point.
	MarkBecameTail
	// MarkSentAgain: an ldm sent a one-shot again, to the replica behind a lost one.
	MarkSentAgain
	// MarkAgainUnderWay: a one-shot that came again was under way already.
	MarkAgainUnderWay
	// MarkAgainCommitted: a one-shot that came again was committed already.
	MarkAgainCommitted
	// MarkAgainSeen: a one-shot of a lost client that came again was committed, as its row shows.
	MarkAgainSeen
	// MarkLateChainRefused: a one-shot of a lost primary came to the one that is primary now.
	MarkLateChainRefused
	// MarkLateLinkRefused: an operation of an earlier primary found its row taken at the present one.
	MarkLateLinkRefused
	// MarkLatePrepareDropped: an operation let through before a view that lost a member was dropped below the primary.
	MarkLatePrepareDropped
	// MarkLateStep: a step found its operation gone.
	MarkLateStep
	// MarkStepCut: a step ended where its chain was broken.
	MarkStepCut
	// MarkQueuedBelow: an operation waited below the primary for what an older view had left.
	MarkQueuedBelow
	// MarkGhost: an operation passed a replica that has not copied its row yet.
	MarkGhost
	// MarkCopyRefused: a primary could not serve a copy yet.
	MarkCopyRefused
	// MarkCopyLater: a row that was being changed was passed over in a copy.
	MarkCopyLater
	// MarkCopyLaterSent: … and was sent when it was let go.
	MarkCopyLaterSent
	// MarkCopyLaterGone: … and was gone when it was let go.
	MarkCopyLaterGone
	// MarkCopyHeld: a copy of a row came while the row was held by what an older view had left.
	MarkCopyHeld
	// MarkCopyFailed: a replica could not hold a copy.
	MarkCopyFailed
	// MarkCopyCleared: rows of an unfinished copy were given up.
	MarkCopyCleared
	// MarkCopyDropped: a fragment was dropped while it was copied.
	MarkCopyDropped
	// MarkCopyMoved: a copy began anew since its source was primary no more.
	MarkCopyMoved
	// MarkOutcomeHeld: a question about an outcome had to wait.
	MarkOutcomeHeld
	// MarkProbeTwice: a probe came twice to one operation.
	MarkProbeTwice
	// MarkMax bounds the marks.
	MarkMax
)

var markNames = [MarkMax]string{
	MarkNone:           "none",
	MarkTicketNotTaken: "ticket not taken",
	MarkTicketUnknown:  "ticket unknown",
	MarkTicketUsed:     "ticket used",

	MarkFreezeRollback: "freeze rolled back", MarkDeadlock: "deadlock found", MarkLateAnswer: "late answer", MarkTakeoverAgain: "takeover again",
	MarkTouchedByReport: "touched by its primary's report", MarkAbortUnreported: "touched and not reported", MarkCommitDirect: "commit finished directly",
	MarkTakeoverAborts: "takeover aborts", MarkTakeoverMixed: "takeover with mixed states",
	MarkEpochRunAgain:       "epoch run again",
	MarkEpochPulled:         "epoch pulled forward",
	MarkEpochHeld:           "epoch held by a takeover",
	MarkEpochJoined:         "epoch joined",
	MarkCreateFinished:      "create finished by a new president",
	MarkCreateUndone:        "create undone by a new president",
	MarkDropFinished:        "drop finished by a new president",
	MarkViewWaitsForTable:   "view waits for a table",
	MarkDropHeld:            "drop held by a takeover",
	MarkRequestAgain:        "schema request sent to a new president",
	MarkRequestKnown:        "schema request answered for a lost president",
	MarkTablesTold:          "tables told to a new node",
	MarkTablesAgain:         "tables told again by a new president",
	MarkDistrust:            "node distrusts itself",
	MarkStallOver:           "trust regained after a stall",
	MarkSuspectReturned:     "suspect returned in time",
	MarkLeaderLost:          "leader lost in prepare",
	MarkMemberLostInPrepare: "member lost in prepare",
	MarkViewAdopted:         "newer view adopted",
	MarkPartYields:          "part yields to the larger side",
	MarkTwoLeaders:          "two leaders of a change",
	MarkUncertainView:       "weighed against an uncertain view",
	MarkArbitWon:            "arbitration won",
	MarkArbitLost:           "arbitration lost",
	MarkArbitRelay:          "arbitrator asked by way of a member",
	MarkArbitChanged:        "another arbitrator",
	MarkLossInTakeover:      "loss during a takeover",
	MarkRecoveringOut:       "recovering member out with its source",
	MarkLeaseExpires:        "node cut off before it knew",
	MarkDiverged:            "node in a view of its own",
	MarkLaggingOut:          "lagging member put out",

	// Ldms.
	MarkThawed:             "a primary stays after all",
	MarkParkedDropped:      "parked one-shot dropped",
	MarkWaitingDropped:     "waiting operation dropped",
	MarkQueuedDropped:      "queued operation dropped",
	MarkOrphan:             "orphan",
	MarkBecameTail:         "became the tail",
	MarkSentAgain:          "one-shot sent again",
	MarkAgainUnderWay:      "again: under way",
	MarkAgainCommitted:     "again: committed",
	MarkAgainSeen:          "again: seen in the row",
	MarkLateChainRefused:   "late one-shot refused",
	MarkLateLinkRefused:    "late operation refused",
	MarkLatePrepareDropped: "late prepare dropped",
	MarkLateStep:           "late step",
	MarkStepCut:            "step at a broken chain",
	MarkQueuedBelow:        "queued below the primary",
	MarkGhost:              "ghost",
	MarkCopyRefused:        "copy refused",
	MarkCopyLater:          "row copied later",
	MarkCopyLaterSent:      "row let go and copied",
	MarkCopyLaterGone:      "row gone when let go",
	MarkCopyHeld:           "copy of a held row",
	MarkCopyFailed:         "copy failed",
	MarkCopyCleared:        "copy cleared",
	MarkCopyDropped:        "copy of a dropped fragment",
	MarkCopyMoved:          "copy moved",
	MarkOutcomeHeld:        "outcome held",
	MarkProbeTwice:         "probe twice",
}

func (m Mark) String() string { return markNames[m] }

// Marks is a set of marks.
type Marks [4]uint64

// Add puts all of o into the set.
func (s *Marks) Add(o *Marks) {
	for i := range s {
		s[i] |= o[i]
	}
}

// Has tells whether a mark was reached.
func (s *Marks) Has(m Mark) bool { return s[m/64]>>(m%64)&1 != 0 }

// Mark says that a seldom place was reached.
func (e *Env) Mark(m Mark) { e.marks[m/64] |= 1 << (m % 64) }

// Marks is what this thread's blocks have reached.
func (e *Env) Marks() *Marks { return &e.marks }
