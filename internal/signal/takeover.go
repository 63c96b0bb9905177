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
// member when a view without a lost member is committed.
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
