package signal

import "unsafe"

// States of a member.
const (
	// MemberRecovering: it has no data yet; copies them from its peers. It counts for nothing when parts of the cluster
	// weigh themselves against each other.
	MemberRecovering uint32 = 1 + iota
	// MemberFollowing: it has all data and takes part in every write, but is primary of nothing while a leading member of
	// its group is there.
	MemberFollowing
	// MemberLeading: it may be primary.
	MemberLeading
	memberStates
)

// ViewReq changes who is in the cluster. The same signal runs from the leader of the change to every member to come,
// and there from membership to distribution, dictionary, and each coordinator and ldm. Behind it Count Members, lowest
// dynamic id first: all that matters of a member is in there, its state too, so that every change of who holds what and
// who is primary is a change of the view.
//
//	leader --ViewPrepareReq--> all members to come --ViewReadyConf--> leader
//	leader --ViewCommitReq--> all members          --ViewCommitConf--> president
//
// Prepare. A member cuts its links to those that are members no more; its blocks have heard everything from them when
// they get the prepare. If a member is lost, coordinators and ldms draw no epoch from now on. Where a fragment's primary
// changes though it is alive (it stops, or gives back what it took over), coordinators and the old primary refuse new
// operations on it, and answer when none is left: within FreezeMillis, after which what is left is rolled back.
//
// Commit. The view holds. Ldms take the lost members out of all chains, carry on or undo what was under way with them,
// and report what needs a coordinator's decision (OpRep); coordinators finish it. They confirm when nothing of the lost
// members is left with them; the president then announces the end of the takeover (TakeoverRep).
//
// Whoever is to be a member no more, though it can be asked (it stops, is too slow, or does not hear all others), gets the
// prepare before all others, agrees, and ends.
//
// A prepare may be followed by another prepare with a higher Attempt and other members, instead of a commit: the newest
// counts. The first view of a start is committed without a prepare.
type ViewReq struct {
	Head
	View      uint32    // number of the view: 1 more than the one before it
	Attempt   uint32    // of changing to it; what a membership tells its own blocks has a number of its own, 1 more each time
	President uint32    // the member that has been there longest
	GCI       [2]uint32 // newest epoch that the sender has seen; at a start the first one to come
	Run       [2]uint32 // random number of this run of the cluster
	Chain     uint32    // hash of all views before this one
	Single    uint32    // the only client that is let in, 0 = all are
	Code      uint32    // to a node that is no member: exit status with which it ends
	Gone      NodeSet   // nodes that are members no more and know it: they have agreed to go
	Count     uint32
}

// Members is who is in the view.
func (r *ViewReq) Members() []Member {
	return unsafe.Slice((*Member)(unsafe.Add(unsafe.Pointer(r), unsafe.Sizeof(*r))), r.Count)
}

// ViewReqSize is the size of a whole ViewReq in bytes.
func ViewReqSize(members int) uint32 {
	return uint32(unsafe.Sizeof(ViewReq{})) + uint32(members)*memberSize
}

// FreezeMillis is how long transactions may go on using a fragment whose primary is about to change, milliseconds.
const FreezeMillis = 20

// ViewConf answers both rounds, of blocks to their membership, and the second one of members to the president.
type ViewConf struct {
	Head
	View    uint32 // as asked
	Attempt uint32 // as asked
}

// ViewReadyConf is a member's answer to the leader's ViewPrepareReq.
type ViewReadyConf struct {
	Head
	View    uint32  // as asked
	Attempt uint32  // as asked
	Cut     NodeSet // nodes that the sender has cut off although it heard them: they may not know it, and rely on it for
	Millis  uint32  // … so many milliseconds
}

// TakeoverRep is the president's word to all members, membership's to the own distribution, and this one's to the own
// dictionary and ldms, that nothing of members that were lost up to this view is left anywhere: epochs go on, their node ids
// may be used again, and questions about outcomes are answered.
type TakeoverRep struct {
	Head
	View uint32
}

// HeartbeatRep is sent by each member to each other, HeartbeatIntervalDbDb apart and at once when something in it changes.
type HeartbeatRep struct {
	Head
	View       uint32  // committed at the sender
	Prepared   uint32  // view that its blocks are prepared for and that is not committed; 0 = none
	Hears      NodeSet // data nodes that the sender has heard within the limit, itself too
	ArbitView  uint32  // of the newest ArbitOrd that the sender has taken
	ArbitTurn  uint32
	Arbitrator uint32 // node whose ticket the sender holds; 0 = none
	Ping       uint32 // grows when the sender wants to be answered at once
	Pong       uint32 // newest Ping of the receiver that the sender has seen
}

// ViewCheckReq asks a member what it hears, before the leader decides who is in the next view. A member that answers
// without Refused follows nobody with a lower attempt any more; of equal attempts that of the lower dynamic id counts.
// Attempt 0 only asks.
type ViewCheckReq struct {
	Head
	View    uint32 // the leader's
	Attempt uint32
}

// ViewCheckConf answers; it also refuses a prepare. Behind it: Count Members, the sender's committed view, which may be
// newer than the leader's; PrepareCount Members, the view that it has prepared; and Count NodeSets, what each of its members has last told it
// to hear (in the order of Members; empty = nothing yet).
type ViewCheckConf struct {
	Head
	View      uint32 // committed at the sender
	Attempt   uint32 // as asked
	Refused   uint32 // 1: the sender follows somebody else, whose attempt is Promised
	Promised  uint32
	Chain     uint32 // hash of all views before the committed one
	President uint32 // of the committed view
	Single    uint32 // of the committed view
	Arbiter   uint32 // 1: the sender has a link to the arbitrator
	Hears     NodeSet

	Prepared         uint32 // view that the sender has agreed to and that is not committed; 0 = none
	PrepareAttempt   uint32
	PrepareLeader    uint32
	PreparePresident uint32

	Count        uint32
	PrepareCount uint32
}

// Members is the sender's committed view.
func (r *ViewCheckConf) Members() []Member {
	return unsafe.Slice((*Member)(unsafe.Add(unsafe.Pointer(r), unsafe.Sizeof(*r))), r.Count)
}

// PrepareMembers is the view that the sender has prepared.
func (r *ViewCheckConf) PrepareMembers() []Member {
	return unsafe.Slice((*Member)(unsafe.Add(unsafe.Pointer(r), ViewCheckConfSize(int(r.Count), 0)-r.Count*nodeSetSize)), r.PrepareCount)
}

// Rows is whom each of Members hears.
func (r *ViewCheckConf) Rows() []NodeSet {
	return unsafe.Slice((*NodeSet)(unsafe.Add(unsafe.Pointer(r), uint32(unsafe.Sizeof(*r))+(r.Count+r.PrepareCount)*memberSize)), r.Count)
}

const nodeSetSize = uint32(unsafe.Sizeof(NodeSet{}))

// ViewCheckConfSize is the size of a whole ViewCheckConf in bytes.
func ViewCheckConfSize(members, prepared int) uint32 {
	return uint32(unsafe.Sizeof(ViewCheckConf{})) + uint32(members)*(memberSize+nodeSetSize) + uint32(prepared)*memberSize
}

// ViewRefOrd tells members that their part of the cluster cannot go on: they end with the reason, and start again.
type ViewRefOrd struct {
	Head
	Code    uint32 // exit status
	TextLen uint32
}

// Text is the reason for an operator.
func (r *ViewRefOrd) Text() string { return string(tail(r, 0, r.TextLen)) }

// GateOrd makes coordinators and ldms of the own node stop (Shut 1) or go on (0) drawing epochs, because the node does
// not know any more whether it is still in the cluster. It is independent of epoch changes and of view changes.
type GateOrd struct {
	Head
	Shut uint32
}

// LinkCloseOrd is membership's word to the runtime to close all links to a node; LinkDownRep follows as for any other end
// of a link, at once if there is none any more.
type LinkCloseOrd struct {
	Head
	Node uint32
}

// HeardReq asks the runtime when it last heard anything of each data node. It answers when every thread has taken in
// what had arrived at its sockets when the question came: a node that was stalled thus finds out what its peers have
// sent meanwhile before it judges them.
type HeardReq struct {
	Head
	Ref uint32
}

// HeardConf answers.
type HeardConf struct {
	Head
	Ref   uint32
	Stall uint32                  // longest time, in milliseconds, that a thread of the own node did not run since the last answer
	Age   [MaxDataNode + 1]uint32 // by node: milliseconds since something came; NoRef = no link
}

// StallRep is the runtime's word to membership that the node did not run for a while (it was stopped, or starved). Until
// the TrustOrd that answers, the runtime takes in nothing from clients.
type StallRep struct {
	Head
	Millis uint32
}

// TrustOrd answers a StallRep: the node knows again that it is in the cluster.
type TrustOrd struct{ Head }

func checkView(p *ViewReq, n uint32) bool {
	return p.President >= 1 && p.President <= MaxDataNode && p.Count >= 1 && p.Count <= MaxDataNode &&
		n == ViewReqSize(int(p.Count)) && membersFit(p.Members())
}

func membersFit(members []Member) bool {
	for _, m := range members {
		if m.Node < 1 || m.Node > MaxDataNode || m.Group > 0xffff || m.LDMs < 1 || m.LDMs > 0xffff || m.TCs < 1 ||
			m.TCs > 0xffff || m.State < 1 || m.State >= memberStates {
			return false
		}
	}
	return true
}

func init() {
	registerAs(NumViewPrepareReq, "ViewPrepareReq", fromData, checkView)
	registerAs[ViewConf](NumViewPrepareConf, "ViewPrepareConf", fromData, nil)
	registerAs(NumViewCommitReq, "ViewCommitReq", fromData, checkView)
	register[ViewReadyConf](NumViewReadyConf, fromData, nil)
	registerAs[ViewConf](NumViewCommitConf, "ViewCommitConf", fromData, nil)
	register[TakeoverRep](NumTakeoverRep, fromData, nil)
	register[HeartbeatRep](NumHeartbeatRep, fromData, nil)
	register[ViewCheckReq](NumViewCheckReq, fromData, nil)
	register(NumViewCheckConf, fromData, func(p *ViewCheckConf, n uint32) bool {
		return p.Count <= MaxDataNode && p.PrepareCount <= MaxDataNode && n == ViewCheckConfSize(int(p.Count), int(p.PrepareCount)) &&
			membersFit(p.Members()) && membersFit(p.PrepareMembers())
	})
	register(NumViewRefOrd, fromData, func(p *ViewRefOrd, n uint32) bool {
		return p.TextLen <= 1024 && n == uint32(unsafe.Sizeof(*p))+Pad(p.TextLen)
	})
	register[GateOrd](NumGateOrd, 0, nil)
	register[LinkCloseOrd](NumLinkCloseOrd, 0, nil)
	register[HeardReq](NumHeardReq, 0, nil)
	register[HeardConf](NumHeardConf, 0, nil)
	register[StallRep](NumStallRep, 0, nil)
	register[TrustOrd](NumTrustOrd, 0, nil)
}
