package signal

// ArbitStartReq makes a management server or client the arbitrator: it keeps the ticket, and forgets any older one.
//
//	president --ArbitStartReq--> arbitrator --ArbitStartConf--> president --ArbitOrd--> all members
//	leader of a part --ArbitChooseReq--> arbitrator --ArbitChooseConf--> leader      or ArbitChooseRef
//
// Two parts must never show good tickets to two arbitrators, nor one part an old and another a new ticket. So the
// president first tells the members of a ticket that comes next with the same arbitrator (ArbitOrd, Code
// ArbitNext: they hold both), and makes them all give the old one up, which their heartbeats confirm, before it asks
// another arbitrator. After a decision the arbitrator takes tickets only from the part that won.
type ArbitStartReq struct {
	Head
	Run    [2]uint32 // random number of this run of the cluster
	View   uint32
	Turn   uint32 // number of the ticket within the view
	Ticket [2]uint32
}

// ArbitStartConf answers; ArbitOrd tells the members who arbitrates, with which ticket (Node 0: nobody).
type ArbitStartConf struct {
	Head
	View   uint32
	Turn   uint32
	Code   uint32 // 0, or one of the ArbitRef constants
	Node   uint32
	Ticket [2]uint32
}

// ArbitChooseReq asks for the right to go on as Part. The arbitrator gives it to the first that shows the ticket. A
// leader without a link to the arbitrator sends it by way of another member of its part, which passes the answer back.
type ArbitChooseReq struct {
	Head
	Attempt uint32
	Run     [2]uint32
	View    uint32
	Turn    uint32
	Ticket  [2]uint32
	Part    NodeSet
}

// ArbitChooseConf grants (ArbitChooseConf) or refuses (ArbitChooseRef) it.
type ArbitChooseConf struct {
	Head
	Attempt uint32 // as asked
	Code    uint32 // of a Ref
}

// Reasons to refuse.
const (
	ArbitRefUnknown = 1 + iota // no such ticket: it is an old one, or the arbitrator was started anew
	ArbitRefUsed               // another part was faster
	ArbitRefOld                // a start for a view older than the newest known
)

// ArbitNext is the Code of an ArbitOrd whose ticket is about to replace the one of the same arbitrator.
const ArbitNext = 100

func init() {
	register[ArbitStartReq](NumArbitStartReq, fromData, nil)
	registerAs[ArbitStartConf](NumArbitStartConf, "ArbitStartConf", fromMgm|fromAPI, nil)
	registerAs[ArbitStartConf](NumArbitOrd, "ArbitOrd", fromData, nil)
	register[ArbitChooseReq](NumArbitChooseReq, fromData, nil)
	registerAs[ArbitChooseConf](NumArbitChooseConf, "ArbitChooseConf", fromMgm|fromAPI|fromData, nil)
	registerAs[ArbitChooseConf](NumArbitChooseRef, "ArbitChooseRef", fromMgm|fromAPI|fromData, nil)
}
