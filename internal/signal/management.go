package signal

import "unsafe"

// Node states as management reports them.
const (
	StateNotStarted uint32 = iota
	StateStarting
	StateStarted
	StateStopping
	StateSingleUser
	StateRestarting
)

// NodeStateRep tells a management server, and each client, how a data node is; sent when a link opens and when something changes.
type NodeStateRep struct {
	Head
	State      uint32 // one of the State constants
	StartPhase uint32 // last completed, while starting
	NodeGroup  uint32 // NoRef: none
	President  uint32 // node id, 0 = not known
	DynamicID  uint32 // order of joining
	Software   uint32
	GCI        [2]uint32
	Connected  [8]uint32 // bitmap of nodes with an open link

	View       uint32  // number of the committed view, 0 = none
	Members    NodeSet // of it
	Serving    NodeSet // of them, those that have all their data
	Hears      NodeSet // data nodes that the sender has heard within the limit
	Arbitrator uint32  // node id, 0 = none
	Single     uint32  // the only client that is let in, 0 = all are
	Pages      uint32  // of 32 KiB, of data and index memory, in use
}

// EventRep reports an event (package event) to the manager, and from there to management servers that asked.
type EventRep struct {
	Head
	Event   uint32
	Node    uint32 // that it happened at
	Args    [8]uint32
	TextLen uint32 // bytes of text that follow
}

// Text is the event's text, often empty.
func (r *EventRep) Text() []byte { return tail(r, 0, r.TextLen) }

// EventSubscribeOrd says which events a management server wants: a level 0..15 for each category.
type EventSubscribeOrd struct {
	Head
	Levels [16]uint8
}

// Flags of a StopReq.
const (
	StopAbort   uint32 = 1 << iota // do not wait for transactions
	StopForce                      // even if the cluster cannot go on
	StopRestart                    // start again
	StopInitial                    // … without its files
	StopNoStart                    // … and wait for a StartOrd
	StopAll                        // the whole cluster stops
)

// StopReq asks a data node to stop or restart. Nodes is the whole set that is asked to stop.
type StopReq struct {
	Head
	Ref   uint32
	Flags uint32
	Nodes [8]uint32
}

// StopConf: the node stops now; its link closes soon.
type StopConf struct {
	Head
	Ref uint32
}

// StopRef refuses.
type StopRef struct {
	Head
	Ref     uint32
	Code    uint32
	TextLen uint32
}

// Text is the reason.
func (r *StopRef) Text() string { return string(tail(r, 0, r.TextLen)) }

// SingleReq lets only one client in (Node), or all again (0). The answer comes when transactions of others have ended.
// The mode is part of the view, so that all members change it at the same place in its course, and who joins knows it:
//
//	mgm --SingleReq--> manager --SingleOrd--> membership --SingleOrd--> president: a view with Single
//	membership --SingleOrd--> manager --SingleOrd--> each tc and ldm; --SingleConf--> mgm
type SingleReq struct {
	Head
	Ref  uint32
	Node uint32
}

// SingleConf answers.
type SingleConf struct {
	Head
	Ref  uint32
	Code uint32
}

// SingleOrd makes coordinators and ldms refuse what does not come from the client Node (299); 0 = let all in. What others
// have open is rolled back if it can be. Each answers the manager with a SingleConf (Ref as here) when nothing of others
// is left with it, at once if Node is 0; a newer SingleOrd takes the place of one that is not answered yet.
// On its way there it is first a wish, then an order, of memberships (SingleReq).
type SingleOrd struct {
	Head
	Ref  uint32
	Node uint32
}

// StartOrd starts a node that was launched with --nostart.
type StartOrd struct{ Head }

// DumpOrd asks a block for a report by number (DUMP).
type DumpOrd struct {
	Head
	Args [16]uint32
	N    uint32
}

// Kinds of reports.
const (
	ReportMemory uint32 = iota
	ReportBackup
)

// ReportReq asks for a report.
type ReportReq struct {
	Head
	Ref  uint32
	Kind uint32
}

// ReportConf of ReportMemory: pages of 32 KiB.
type ReportConf struct {
	Head
	Ref        uint32
	Kind       uint32
	DataPages  uint32
	DataTotal  uint32
	IndexPages uint32
	IndexTotal uint32
}

// ApiRegReq introduces a client to a data node's manager; the answer says whether it serves already.
type ApiRegReq struct {
	Head
	Ref     uint32
	Version uint32
}

// ApiRegConf answers; NodeStateRep follows on each change.
type ApiRegConf struct {
	Head
	Ref      uint32
	Version  uint32
	State    uint32
	LDMs     uint32
	TCs      uint32
	Replicas uint32
	Groups   uint32
}

// LinkRep is the runtime's word that the links to a node are up (all of its sockets), or that one went down and all
// were closed. A data node's runtime says it to its membership, about every kind of node, and membership passes it on
// to the manager; elsewhere it goes to the client's connection block. After the LinkDownRep of a client or a management
// server (one whose links were never all up included, when a signal of it may have reached a block) the runtime accepts
// that node id again only after a NodeFreeRep.
type LinkRep struct {
	Head
	Node     uint32
	Kind     uint32 // Peer
	Software uint32
	LDMs     uint32
	TCs      uint32
	Code     uint32 // of a LinkDownRep: 0 closed by peer, 1 closed by us, 2 bad frame, 3 send buffer full
}

// ExitOrd asks the runtime to end the process, after it has flushed what waits in its send buffers.
type ExitOrd struct {
	Head
	Code    uint32 // exit status, one per reason
	Restart uint32 // Stop flags: 0 = stay down
	TextLen uint32
}

// Text is the reason for the log.
func (r *ExitOrd) Text() string { return string(tail(r, 0, r.TextLen)) }

// StatReq asks a coordinator or ldm for its counters; StatConf answers. Used for reports and by the simulator.
type StatReq struct {
	Head
	Ref uint32
}

// StatConf: how many records of each pool are in use, and pages of 32 KiB. The ldms of a node share its data memory:
// the pages in use add up over them, the totals are the node's.
type StatConf struct {
	Head
	Ref                    uint32
	Transactions           uint32
	Operations             uint32
	Copies                 uint32 // bytes
	Outcomes               uint32 // sessions with kept outcomes
	DataPages, DataTotal   uint32
	IndexPages, IndexTotal uint32
}

func init() {
	register[NodeStateRep](NumNodeStateRep, fromData, nil)
	register(NumEventRep, fromData, func(p *EventRep, n uint32) bool {
		return p.TextLen <= 1024 && n == uint32(unsafe.Sizeof(*p))+Pad(p.TextLen)
	})
	register[EventSubscribeOrd](NumEventSubscribeOrd, fromMgm, nil)
	register[StopReq](NumStopReq, fromMgm, nil)
	register[StopConf](NumStopConf, fromData, nil)
	register(NumStopRef, fromData, func(p *StopRef, n uint32) bool {
		return p.TextLen <= 1024 && n == uint32(unsafe.Sizeof(*p))+Pad(p.TextLen)
	})
	register[StartOrd](NumStartOrd, fromMgm, nil)
	register[SingleReq](NumSingleReq, fromMgm, nil)
	register[SingleConf](NumSingleConf, fromData, nil)
	register[SingleOrd](NumSingleOrd, fromData, nil)
	register(NumDumpOrd, fromMgm, func(p *DumpOrd, n uint32) bool { return n == uint32(unsafe.Sizeof(*p)) && p.N <= 16 })
	register[ReportReq](NumReportReq, fromMgm, nil)
	register[ReportConf](NumReportConf, fromData, nil)
	register[ApiRegReq](NumApiRegReq, fromAPI, nil)
	register[ApiRegConf](NumApiRegConf, fromData, nil)
	registerAs[LinkRep](NumLinkUpRep, "LinkUpRep", 0, nil)
	registerAs[LinkRep](NumLinkDownRep, "LinkDownRep", 0, nil)
	register(NumExitOrd, 0, func(p *ExitOrd, n uint32) bool {
		return p.TextLen <= 1024 && n == uint32(unsafe.Sizeof(*p))+Pad(p.TextLen)
	})
	register[StatReq](NumStatReq, 0, nil)
	register[StatConf](NumStatConf, 0, nil)
}
