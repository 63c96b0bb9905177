package membership

// What a lost link means.
//
//	client or management server: every block that may know it --NodeFailRep / NodeFailConf--, then NodeFreeRep
//	data node, before the start:  an attempt with it is given up
//	data node, afterwards:        the blocks are told, then the process ends
//	data node, in a planned stop: it has stopped

import (
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// failure is what is being forgotten of a node.
type failure struct {
	busy bool
	owed int // blocks that have not answered
}

func (b *Block) onLinkDownRep(r *signal.LinkRep) {
	n := uint8(r.Node)
	b.toManager(&r.Head)
	switch signal.Peer(r.Kind) {
	case signal.PeerData:
		b.onDataNodeLost(n)
	case signal.PeerAPI:
		b.onClientLost(n)
	default: // no block keeps anything of a management server but the manager, which has been told
		b.free(n)
	}
}

func (b *Block) free(n uint8) {
	r := kernel.Send[signal.NodeFreeRep](b.env, b.at(signal.BlockRuntime), b.self, signal.NumNodeFreeRep)
	r.Node = uint32(n)
}

// onClientLost makes every block forget a client.
func (b *Block) onClientLost(n uint8) {
	if b.fail[n].busy { // its remaining sockets went down while it was being forgotten
		b.Stale++
		return
	}
	b.forget(n, signal.PeerAPI)
}

// forget tells the blocks that a node is gone.
func (b *Block) forget(n uint8, kind signal.Peer) {
	f := &b.fail[n]
	*f = failure{busy: true}
	tell := func(a signal.Addr) {
		r := kernel.Send[signal.NodeFailRep](b.env, a, b.self, signal.NumNodeFailRep)
		r.Node, r.Kind = uint32(n), uint32(kind)
	}
	b.workers(func(a signal.Addr) {
		tell(a)
		f.owed++
	})
	tell(b.at(signal.BlockDictionary))
	f.owed++
	if kind == signal.PeerData {
		tell(b.at(signal.BlockDistribution)) // which has nothing to wait for
	}
}

func (b *Block) onNodeFailConf(r *signal.NodeFailConf) {
	n := uint8(r.Node)
	f := &b.fail[n]
	if !f.busy {
		b.Stale++
		return
	}
	if f.owed--; f.owed > 0 {
		return
	}
	f.busy = false
	if n > signal.MaxDataNode || !b.configured.Has(n) {
		b.free(n)
		return
	}
	b.report(event.NodeFailCompleted, uint32(n), uint32(b.node))
	if b.state == failing && !b.busyWithDataNode() {
		b.exit(b.stop.code, 0, b.stop.reason)
	}
}

func (b *Block) busyWithDataNode() bool {
	for n := b.configured.Next(0); n != 0; n = b.configured.Next(n) {
		if b.fail[n].busy {
			return true
		}
	}
	return false
}

// onDataNodeLost acts on the end of the links to a data node.
func (b *Block) onDataNodeLost(n uint8) {
	if !b.links.Has(n) {
		b.Stale++
		return
	}
	b.links.Remove(n)
	stopped := b.peers[n].known && b.peers[n].state == signal.PeerStopping
	b.peers[n] = peer{group: b.peers[n].group}
	b.free(n)
	if !b.memberSet.Has(n) {
		b.tryStart() // it may have been the one whose number was lowest
		return
	}
	switch b.state {
	case starting:
		b.leave()
	case started, failing:
		b.onMemberLost(n, stopped)
	case draining:
		b.onMemberStopped(n)
	}
}

// onMemberLost ends the node, and with it the cluster.
func (b *Block) onMemberLost(n uint8, byForce bool) {
	b.report(event.NodeFailReport, uint32(n), 0)
	b.forget(n, signal.PeerData)
	if b.state == failing {
		return
	}
	set := signal.NodeSet{}
	set.Add(n)
	b.stop.code, b.stop.reason = exitcode.NodeLost, "node "+listOf(&set)+" was lost; takeover of a lost data node is not supported yet, so the cluster stops: start all data nodes together"
	if byForce {
		b.stop.code, b.stop.reason = exitcode.StoppedByForce, "node "+listOf(&set)+" was stopped by force; takeover is not supported yet, so the cluster stops: start all data nodes together"
	}
	b.become(failing)
	b.env.Tick(b.self, tellTime, tickFailing, 0, 0)
}

func (b *Block) onFailingTimeout() {
	if b.state == failing {
		b.exit(b.stop.code, 0, b.stop.reason)
	}
}
