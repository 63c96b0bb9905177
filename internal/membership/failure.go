package membership

// What a lost link means.
//
//	client or management server: every block that may know it --NodeFailRep / NodeFailConf--, then NodeFreeRep
//	data node, in an attempt to start:  the attempt is given up; NodeFreeRep when the own blocks have forgotten it
//	data node that is a member:         a change of the view; NodeFreeRep at the TakeoverRep of a view without it
//	data node, in a planned stop:       it has stopped
//	any other data node:                NodeFreeRep at once: no block knows anything of it
//
// A member whose link has ended is lost for good: what it sent may have been lost too. Should a link to it come up again
// before the view changes, that makes no difference.

import (
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// failure is what is being forgotten of a node.
type failure struct {
	busy bool   // of a client: blocks have been told
	owed int    // … that have not answered
	out  uint32 // of a data node: the view that put it out, until it is free
	late bool   // of a data node: free when the attempt to start is forgotten
}

func (b *Block) onLinkDownRep(r *signal.LinkRep) {
	n := uint8(r.Node)
	kind := signal.Peer(r.Kind)
	b.toManager(&r.Head)
	switch kind {
	case signal.PeerData:
		b.onDataNodeLost(n)
	case signal.PeerAPI:
		b.outer.Remove(n)
		b.onClientLost(n)
		b.outerChanged(n)
	default: // no block keeps anything of a management server but the manager, which has been told
		b.outer.Remove(n)
		b.free(n)
		b.outerChanged(n)
	}
}

func (b *Block) free(n uint8) {
	r := kernel.Send[signal.NodeFreeRep](b.env, b.at(signal.BlockRuntime), b.self, signal.NumNodeFreeRep)
	r.Node = uint32(n)
}

// onClientLost makes every block forget a client.
func (b *Block) onClientLost(n uint8) {
	f := &b.fail[n]
	if f.busy { // its remaining sockets went down while it was being forgotten
		b.Stale++
		return
	}
	*f = failure{busy: true}
	tell := func(a signal.Addr) {
		r := kernel.Send[signal.NodeFailRep](b.env, a, b.self, signal.NumNodeFailRep)
		r.Node, r.Kind = uint32(n), uint32(signal.PeerAPI)
		f.owed++
	}
	b.workers(tell)
	tell(b.at(signal.BlockDictionary))
}

func (b *Block) onNodeFailConf(r *signal.NodeFailConf) {
	n := uint8(r.Node)
	f := &b.fail[n]
	if !f.busy {
		b.Stale++
		return
	}
	if f.owed--; f.owed == 0 {
		f.busy = false
		b.free(n)
	}
}

// onDataNodeLost acts on the end of the links to a data node.
func (b *Block) onDataNodeLost(n uint8) {
	cut := b.mem.cutting.Has(n)
	b.mem.cutting.Remove(n)
	b.mem.parting.Remove(n)
	if !b.links.Has(n) {
		if !cut {
			b.Stale++
		}
		b.prepareOn()
		return
	}
	b.links.Remove(n)
	member := b.view.Has(n)
	forced := b.peers[n].state == signal.PeerStopping
	b.peers[n] = peer{group: b.peers[n].group, lost: member, forced: forced}
	switch {
	case b.state == leaving, b.state == starting && member && b.mayGiveUp():
		b.fail[n].late = true
		b.giveUp()
		return
	case b.state == draining:
		b.onMemberStopped(n)
		return
	case !member && b.fail[n].out == 0:
		b.free(n)
	}
	if !b.active() {
		if b.state <= waiting {
			b.tellPeers()
			b.tryStart() // it may have been the one whose number was lowest
		}
		return
	}
	b.prepareOn()
	b.heardChanged()
}

// freeLost frees the ids of data nodes that a view up to the given one put out.
func (b *Block) freeLost(view uint32) {
	for n := b.configured.Next(0); n != 0; n = b.configured.Next(n) {
		if f := &b.fail[n]; f.out != 0 && f.out <= view && !b.view.Has(n) {
			f.out = 0
			b.report(event.NodeFailCompleted, uint32(n), uint32(b.node))
			b.free(n)
		}
	}
}
