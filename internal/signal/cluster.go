package signal

import "unsafe"

// MaxDataNode is the highest number that a data node may have.
const MaxDataNode = 144

// PeerRep tells another data node's membership how the sender is: when their link comes up, and when something that
// the start depends on changes.
type PeerRep struct {
	Head
	State uint32    // one of the Peer constants below
	Group uint32    // node group
	LDMs  uint32    // ldm instances
	TCs   uint32    // coordinators
	Heard uint32    // number of the receiver's newest StartReq that the sender has seen; 0 = none
	GCI   [2]uint32 // newest epoch that the sender has seen
	Links NodeSet   // data nodes that the sender has a link to
	Run   [2]uint32 // of the cluster that the sender runs in
	View  uint32    // committed at the sender
}

// How a data node is, as its peers need to know it.
const (
	PeerHeld     = iota // waits for a StartOrd
	PeerReady           // ready to start
	PeerBusy            // takes part in an attempt to start, or is just leaving one
	PeerStarted         // started
	PeerStopping        // stops because somebody asked for it
	peerStates
)

// Member is a data node of the cluster as the nodes have agreed on it.
type Member struct {
	Node      uint32
	DynamicID uint32 // order of joining, from 1
	Group     uint32
	LDMs      uint32
	TCs       uint32
	State     uint32 // one of the Member constants
}

const memberSize = uint32(unsafe.Sizeof(Member{}))

// StartReq proposes who starts together. From the president's membership to every member's; behind it Count Members,
// lowest dynamic id first. The blocks of the own node hear what was agreed by a ViewCommitReq.
//
//	president --StartReq--> all members --StartConf--> president     (or StartRef)
//	president --PhaseReq--> all members --PhaseConf--> president     for each start phase that has work
type StartReq struct {
	Head
	President uint32
	Attempt   uint32    // number of this attempt of this president
	GCI       [2]uint32 // the first epoch to come
	Run       [2]uint32 // random number of this run of the cluster
	Count     uint32
}

// Members is who starts together.
func (r *StartReq) Members() []Member {
	return unsafe.Slice((*Member)(unsafe.Add(unsafe.Pointer(r), unsafe.Sizeof(*r))), r.Count)
}

// StartReqSize is the size of a whole StartReq in bytes.
func StartReqSize(members int) uint32 {
	return uint32(unsafe.Sizeof(StartReq{})) + uint32(members)*memberSize
}

// StartConf: the sender takes part. StartRef: not now; Code is one of the StartRef constants.
type StartConf struct {
	Head
	President uint32 // as asked
	Attempt   uint32 // as asked
	Code      uint32 // of a StartRef
}

// Reasons to refuse a StartReq.
const (
	StartRefLinks = 1 + iota // the sender has no link to one of the members; it reports again when that changes
	StartRefBusy             // the sender starts with another president already
	StartRefState            // the sender is not ready to start
)

// PhaseReq runs a start phase: from the president to every member, and there from membership to the block that has
// something to do in it. Phase 0 goes only to the own node's blocks: forget the attempt, for the start begins again.
type PhaseReq struct {
	Head
	President uint32
	Attempt   uint32
	Phase     uint32
}

// PhaseConf: the phase is done at the sender.
type PhaseConf struct {
	Head
	President uint32
	Attempt   uint32
	Phase     uint32
	Code      uint32 // 0, or why the sender cannot go on
}

// JoinRef refuses a data node that comes to a cluster which cannot take it; it ends with the reason.
type JoinRef struct {
	Head
	Code    uint32
	TextLen uint32
}

// Text is the reason for an operator.
func (r *JoinRef) Text() string { return string(tail(r, 0, r.TextLen)) }

// Codes of a JoinRef.
const (
	JoinRefOut    = 1 + iota // the others went on without the newcomer, which does not know it: it has to start again
	JoinRefConfig            // its configuration is another one
)

// ClusterStopReq asks the president to stop the whole cluster in order.
//
//	manager --StopReq--> membership --ClusterStopReq--> president
//	president --StopStepReq--> all members --StopStepConf--> president     first StopDrain, then StopExit (no answer)
type ClusterStopReq struct {
	Head
	Flags uint32 // Stop flags
}

// StopStepReq is a step of a planned stop of the cluster.
type StopStepReq struct {
	Head
	Step  uint32
	Flags uint32 // Stop flags
	Code  uint32 // exit status: why the cluster stops
	Node  uint32 // node that is the reason, 0 = none
}

// StopStepConf answers StopDrain: nothing runs at the sender any more.
type StopStepConf struct {
	Head
	Step uint32
}

// Steps of a planned stop.
const (
	StopDrain = 1 + iota // admit nothing, let transactions end
	StopExit             // end the process
)

// LeaveReq asks for a planned stop of single nodes. Nodes is all that are asked to stop with the sender.
//
//	manager --StopReq--> membership --LeaveReq(LeaveHand)--> president --LeaveConf--> membership      or LeaveRef
//	a view in which the node follows; it drains its coordinators
//	membership --LeaveReq(LeaveGo)--> all members; a view without the node
type LeaveReq struct {
	Head
	Nodes NodeSet
	Flags uint32 // Stop flags
	Step  uint32 // one of the Leave constants
}

// Steps of a node that leaves.
const (
	LeaveHand  = 1 + iota // may it go? then it hands its primaries over
	LeaveGo               // it leads nothing any more and wants to be out of the view
	LeaveAgain            // a new president hears that the sender hands its primaries over, as another one has agreed to
)

// LeaveConf: the president has begun to hand the sender's primaries over.
type LeaveConf struct{ Head }

// LeaveRef refuses.
type LeaveRef struct {
	Head
	Code    uint32
	TextLen uint32
}

// Text is the reason for an operator.
func (r *LeaveRef) Text() string { return string(tail(r, 0, r.TextLen)) }

// LagRep is the distribution's word to its membership that a node does not finish an epoch.
type LagRep struct {
	Head
	Node   uint32
	GCI    [2]uint32
	Millis uint32 // waited so far
}

// EpochRep is the distribution's word to its manager which epoch is the newest that was committed.
type EpochRep struct {
	Head
	GCI [2]uint32
}

// PlaceReq asks the own node's distribution where the fragments of a new table go.
type PlaceReq struct {
	Head
	Ref       uint32
	Table     uint32
	Fragments uint32 // 0 = the default number
}

// PlaceConf answers. Behind it: the map of Buckets uint16 (bucket → fragment, padded), then the home of each fragment:
// MaxReplicas places, the preferred primary first, 0 = none (package view says what a place is). With a Code both counts are 0.
type PlaceConf struct {
	Head
	Ref       uint32
	Code      uint32 // 0, or an error code
	Fragments uint32
	Buckets   uint32
}

// Map is bucket → fragment.
func (r *PlaceConf) Map() []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Add(unsafe.Pointer(r), unsafe.Sizeof(*r))), r.Buckets)
}

// Chains is fragment → places, MaxReplicas each.
func (r *PlaceConf) Chains() []Addr {
	o := uint32(unsafe.Sizeof(*r)) + Pad(2*r.Buckets)
	return unsafe.Slice((*Addr)(unsafe.Add(unsafe.Pointer(r), o)), r.Fragments*MaxReplicas)
}

// PlaceConfSize is the size of a whole PlaceConf in bytes.
func PlaceConfSize(buckets, fragments uint32) uint32 {
	return uint32(unsafe.Sizeof(PlaceConf{})) + Pad(2*buckets) + 4*MaxReplicas*fragments
}

func checkMembers(p *StartReq, n uint32) bool {
	if p.Count < 1 || p.Count > MaxDataNode || n != StartReqSize(int(p.Count)) {
		return false
	}
	return membersFit(p.Members()) && p.President >= 1 && p.President <= MaxDataNode
}

func init() {
	register[PeerRep](NumPeerRep, fromData, func(p *PeerRep, n uint32) bool {
		return n == uint32(unsafe.Sizeof(*p)) && p.LDMs >= 1 && p.LDMs <= 0xffff && p.TCs >= 1 && p.TCs <= 0xffff && p.State < peerStates
	})
	register(NumStartReq, fromData, checkMembers)
	registerAs[StartConf](NumStartConf, "StartConf", fromData, nil)
	registerAs[StartConf](NumStartRef, "StartRef", fromData, nil)
	register[PhaseReq](NumPhaseReq, fromData, nil)
	register[PhaseConf](NumPhaseConf, fromData, nil)
	register(NumJoinRef, fromData, func(p *JoinRef, n uint32) bool {
		return p.TextLen <= 1024 && n == uint32(unsafe.Sizeof(*p))+Pad(p.TextLen)
	})
	register[ClusterStopReq](NumClusterStopReq, fromData, nil)
	register[StopStepReq](NumStopStepReq, fromData, nil)
	register[StopStepConf](NumStopStepConf, fromData, nil)
	register[LeaveReq](NumLeaveReq, fromData, nil)
	register[LeaveConf](NumLeaveConf, fromData, nil)
	register(NumLeaveRef, fromData, func(p *LeaveRef, n uint32) bool {
		return p.TextLen <= 1024 && n == uint32(unsafe.Sizeof(*p))+Pad(p.TextLen)
	})
	register[LagRep](NumLagRep, 0, nil)
	register[EpochRep](NumEpochRep, 0, nil)
	register[PlaceReq](NumPlaceReq, 0, nil)
	register(NumPlaceConf, 0, func(p *PlaceConf, n uint32) bool {
		return p.Buckets <= MaxSize && p.Fragments <= MaxSize/16 && n == PlaceConfSize(p.Buckets, p.Fragments)
	})
}
