package signal

// States of an operation as an ldm reports it.
const (
	OpWaiting  uint32 = 1 + iota // in a row's queue; it holds nothing
	OpPrepared                   // it holds its lock
	OpApplied                    // its change is the row's state; it holds its lock
	opStates
)

// OpRep is an ldm's report of an operation that needs a coordinator's decision after members were lost: one whose
// coordinator is lost (sent to the coordinator that takes over, the president's instance Tc.Instance() modulo its
// coordinators), or one on a fragment of a node group that lost a member (sent to its own coordinator). From is the ldm.
//
//	ldm --OpRep…, OpEndRep--> coordinator --CommitReq, CompleteReq, AbortReq (Direct)--> ldm --…Conf (Direct)--> coordinator
//
// Every operation whose coordinator is no member any more is reported again in each view that lost a member; one that
// waits is not reported but dropped, since its transaction cannot have committed and it holds nothing. An operation of
// a member's coordinator that waits stays in its queue, and is undone by an AbortReq of the usual kind, so that what the
// primary may have passed on meanwhile is undone too. A backup does not report what its primary has let through in this
// view already (PrepareReq.View): nothing is wrong with that. So a coordinator that has all reports knows of a living
// primary which has reported nothing that it had not executed the operation before this view.
//
// Of a row's replicas the primary of the new view is the last that hears of a Direct complete or abort: all others have
// let the row go when it lets somebody else in.
type OpRep struct {
	Head
	View   uint32
	Tc     Addr // its coordinator, lost or not
	TcRef  uint32
	OpSeq  uint32 // the coordinator's number of the operation (PrepareReq.Seq)
	Client Addr
	Tx     uint32
	OpRef  uint32 // record at the sender
	State  uint32 // one of the constants above
	Write  uint32 // 1: it changes the row
	Marker uint32 // 1: its replicas keep the transaction's outcome
	Seq    uint32 // of an applied one: the client's commit sequence number
	GCI    [2]uint32
	Table  uint16
	Frag   uint16
}

// OpEndRep follows an ldm's last OpRep of a view; every ldm of every member sends one to every coordinator of every
// member when it commits a view that lost a member. A coordinator waits for those of nodes that were members before, too:
// one that has just come has nothing to report, and does not know that anybody was lost.
type OpEndRep struct {
	Head
	View uint32
}

func init() {
	register(NumOpRep, fromData, func(p *OpRep, n uint32) bool {
		return n == FixedSize(NumOpRep) && p.State >= OpWaiting && p.State < opStates
	})
	register[OpEndRep](NumOpEndRep, fromData, nil)
}
