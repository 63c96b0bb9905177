package membership

// A planned stop of the cluster:
//
//	manager --StopReq--> membership --ClusterStopReq--> president
//	president --StopStepReq(drain)--> all members: each tc and ldm --DrainReq / DrainConf--; --StopStepConf--> president
//	president --StopStepReq(exit)--> all members --ExitOrd--> runtime
//
// A node that is stopped alone, by force, drains and exits without asking; the others then lose it.

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

const (
	sizeofJoinRef = unsafe.Sizeof(signal.JoinRef{})
	sizeofStopRef = unsafe.Sizeof(signal.StopRef{})
	sizeofExitOrd = unsafe.Sizeof(signal.ExitOrd{})
)

// codeStopRefused is NDB's "stop failed".
const codeStopRefused = 2002

// stopping is what is under way when the node or the cluster stops.
type stopping struct {
	flags   uint32
	code    uint32 // exit status
	reason  string
	owed    int            // coordinators and ldms that are not drained
	ref     uint32         // of the DrainReqs that are out
	alone   bool           // only this node stops
	waiting signal.NodeSet // president: members that are not drained
	leading bool           // president: the steps of a stop are under way
	exiting bool           // president: the last step was sent
}

// onStopReq hears that somebody wants the node to stop. From is the management server, whose request the manager
// passed on as it was.
func (b *Block) onStopReq(r *signal.StopReq) {
	nodes := signal.NodeSet(r.Nodes)
	force := r.Flags&(signal.StopForce|signal.StopAbort) != 0
	all := r.Flags&signal.StopAll != 0 || nodes.Covers(&b.memberSet)
	if b.state == started && r.Flags&signal.StopAll == 0 && !force {
		b.stopRef(r, "stopping node "+listOf(&nodes)+" would end the cluster, since taking over a node's part is not supported yet: stop the whole cluster, or use force")
		return
	}
	c := kernel.Send[signal.StopConf](b.env, r.From, b.self, signal.NumStopConf)
	c.Ref = r.Ref
	switch {
	case b.state < started:
		b.exit(exitcode.Done, restartFlags(r.Flags), "stopped before it had started, as management asked")
	case b.state > started:
		b.Stale++
	case all:
		s := kernel.Send[signal.ClusterStopReq](b.env, peerAt(b.president), b.self, signal.NumClusterStopReq)
		s.Flags = r.Flags
	default:
		b.stop = stopping{flags: r.Flags, code: exitcode.Done, reason: "stopped by force, as management asked", alone: true}
		b.drain(event.StopScopeNode)
		b.tellPeers()
	}
}

func (b *Block) stopRef(r *signal.StopReq, text string) {
	s := (*signal.StopRef)(b.env.Put(r.From, b.self, signal.NumStopRef, uint32(sizeofStopRef)+signal.Pad(uint32(len(text)))))
	s.Ref, s.Code, s.TextLen = r.Ref, codeStopRefused, uint32(len(text))
	kernel.PutBytes(tailOf(s), text)
}

// restartFlags is what ExitOrd tells the runtime: nothing, or how to start again.
func restartFlags(flags uint32) uint32 {
	if flags&signal.StopRestart == 0 {
		return 0
	}
	return flags & (signal.StopRestart | signal.StopInitial | signal.StopNoStart)
}

// onClusterStopReq makes the president stop the cluster.
func (b *Block) onClusterStopReq(r *signal.ClusterStopReq) {
	if b.state != started || !b.isPresident() || b.stop.leading {
		b.Stale++
		return
	}
	b.stopAll(r.Flags, exitcode.Done, 0)
}

// onLagRep hears that a member does not finish an epoch.
func (b *Block) onLagRep(r *signal.LagRep) {
	if b.state != started || !b.isPresident() || b.stop.leading {
		b.Stale++
		return
	}
	b.stopAll(signal.StopAll|signal.StopAbort, exitcode.Lagging, r.Node)
}

// stopAll begins to lead the cluster to its end.
func (b *Block) stopAll(flags, code, node uint32) {
	b.stop.leading, b.stop.waiting = true, b.memberSet
	b.stop.flags, b.stop.code = flags, code
	for _, m := range b.members {
		b.step(uint8(m.Node), signal.StopDrain, flags, code, node)
	}
	b.env.Tick(b.self, b.cfg.DrainTimeout+second, tickMembers, 0, 0)
}

func (b *Block) step(n uint8, step, flags, code, node uint32) {
	s := kernel.Send[signal.StopStepReq](b.env, peerAt(n), b.self, signal.NumStopStepReq)
	s.Step, s.Flags, s.Code, s.Node = step, flags, code, node
}

// onStopStepReq runs a step of the stop.
func (b *Block) onStopStepReq(r *signal.StopStepReq) {
	if r.From.Node() != b.president || b.state != started && b.state != draining {
		b.Stale++
		return
	}
	if r.Step == signal.StopExit {
		b.exit(b.stop.code, restartFlags(b.stop.flags), b.stop.reason)
		return
	}
	if b.state == draining {
		invariant.That(b.stop.alone, "a cluster stops once")
		b.stop.alone = false // it answers the president instead of going by itself
		return
	}
	b.stop.flags, b.stop.code, b.stop.alone = r.Flags, r.Code, false
	b.stop.reason = "stopped with the cluster, as management asked"
	if r.Code == exitcode.Lagging {
		var set signal.NodeSet
		set.Add(uint8(r.Node))
		b.stop.reason = "node " + listOf(&set) + " did not finish an epoch in time, so the cluster stops: see whether its machine is overloaded, or raise TimeBetweenEpochsTimeout"
	}
	b.drain(event.StopScopeCluster)
}

// drain lets no new transaction begin and waits, with a bound, until those under way have ended.
func (b *Block) drain(scope uint32) {
	b.report(event.NDBStopStarted, scope)
	b.become(draining)
	b.stop.ref++
	abort := uint32(0)
	bound := b.cfg.DrainTimeout
	if b.stop.flags&signal.StopAbort != 0 {
		abort, bound = 1, min(bound, tellTime)
	}
	b.workers(func(a signal.Addr) {
		r := kernel.Send[signal.DrainReq](b.env, a, b.self, signal.NumDrainReq)
		r.Ref, r.Abort = b.stop.ref, abort
		b.stop.owed++
	})
	b.env.Tick(b.self, bound, tickDrain, 0, 0)
}

func (b *Block) onDrainConf(r *signal.DrainConf) {
	if b.state != draining || r.Ref != b.stop.ref || b.stop.owed == 0 {
		b.Stale++
		return
	}
	if b.stop.owed--; b.stop.owed == 0 {
		b.drained()
	}
}

func (b *Block) onDrainTimeout() {
	if b.state == draining && b.stop.owed > 0 {
		b.stop.owed = 0
		b.drained()
	}
}

// drained goes on after the transactions have ended.
func (b *Block) drained() {
	if b.stop.alone {
		b.exit(b.stop.code, restartFlags(b.stop.flags), b.stop.reason)
		return
	}
	c := kernel.Send[signal.StopStepConf](b.env, peerAt(b.president), b.self, signal.NumStopStepConf)
	c.Step = signal.StopDrain
}

func (b *Block) onStopStepConf(r *signal.StopStepConf) {
	n := r.From.Node()
	if !b.stop.leading || !b.stop.waiting.Has(n) {
		b.Stale++
		return
	}
	b.stop.waiting.Remove(n)
	b.lastStep()
}

// onMemberStopped hears, while the cluster stops, that a member's process has ended.
func (b *Block) onMemberStopped(n uint8) {
	switch {
	case b.stop.leading:
		b.stop.waiting.Remove(n)
		b.lastStep()
	case n == b.president && !b.stop.alone: // it is gone before it could tell us to go
		b.exit(b.stop.code, restartFlags(b.stop.flags), b.stop.reason)
	}
}

func (b *Block) onMembersTimeout() {
	if b.stop.leading {
		b.stop.waiting = signal.NodeSet{}
		b.lastStep()
	}
}

// lastStep ends everybody when everybody is drained.
func (b *Block) lastStep() {
	if !b.stop.waiting.Empty() || b.stop.exiting {
		return
	}
	b.stop.exiting = true
	for _, m := range b.members {
		b.step(uint8(m.Node), signal.StopExit, b.stop.flags, b.stop.code, 0)
	}
}

// exit asks the runtime to end the process.
func (b *Block) exit(code, restart uint32, reason string) {
	action := uint32(event.StopActionStop)
	if restart != 0 {
		action = event.StopActionRestart
	}
	if code == exitcode.Done {
		b.report(event.NDBStopCompleted, action, 0)
	} else {
		phase := b.phase
		if b.state >= started {
			phase = event.PhaseStarted
		}
		b.reportText(event.NDBStopForced, reason, action, 0, code, phase, 0)
	}
	b.lead.waiting, b.stop.waiting, b.forgetting = signal.NodeSet{}, signal.NodeSet{}, 0
	b.become(ended)
	e := (*signal.ExitOrd)(b.env.Put(b.at(signal.BlockRuntime), b.self, signal.NumExitOrd, uint32(sizeofExitOrd)+signal.Pad(uint32(len(reason)))))
	e.Code, e.Restart, e.TextLen = code, restart, uint32(len(reason))
	kernel.PutBytes(tailOf(e), reason)
}

// tailOf is where the section behind a fixed struct begins.
func tailOf[T any](p *T) unsafe.Pointer { return unsafe.Add(unsafe.Pointer(p), unsafe.Sizeof(*p)) }

// listOf writes node numbers, "1,2", for a message.
func listOf(s *signal.NodeSet) string {
	var t []byte
	for n := s.Next(0); n != 0; n = s.Next(n) {
		if len(t) > 0 {
			t = append(t, ',')
		}
		if n >= 100 {
			t = append(t, '0'+n/100)
		}
		if n >= 10 {
			t = append(t, '0'+n/10%10)
		}
		t = append(t, '0'+n%10)
	}
	return string(t)
}
