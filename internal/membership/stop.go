package membership

// A planned stop of the cluster:
//
//	manager --StopReq--> membership --ClusterStopReq--> president
//	president --StopStepReq(drain)--> all members: each tc and ldm --DrainReq / DrainConf--; --StopStepConf--> president
//	president --StopStepReq(exit)--> all members --ExitOrd--> runtime
//
// While the cluster stops no view changes: a member that is lost has stopped.
//
// | signal            | started, stopping, joining | draining               | others |
// | ClusterStopReq    | president: begin           | stale                  | stale  |
// | StopStepReq drain | drain                      | stale                  | stale  |
// | StopStepReq exit  | exit                       | exit                   | stale  |
// | StopStepConf      | president: count           | president: count       | stale  |
// | DrainConf         | leave.go                   | count                  | stale  |

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/exitcode"
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

// clusterStop is what is under way when the cluster stops.
type clusterStop struct {
	flags   uint32
	code    uint32 // exit status
	reason  string
	owed    int            // coordinators and ldms that are not drained, of a planned stop of any kind
	ref     uint32         // of the DrainReqs that are out
	waiting signal.NodeSet // president: members that are not drained
	leading bool           // president: the steps of a stop are under way
	exiting bool           // president: the last step was sent
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
	if b.state != started && b.state != stopping || !b.isPresident() || b.stop.leading {
		b.Stale++
		return
	}
	b.stopAll(r.Flags, exitcode.Done, 0)
}

// onLagRep hears that a member does not finish an epoch: it is put out, or ends by itself if it is the own one. If the
// others cannot go on without it the cluster stops, rather than wait for ever.
func (b *Block) onLagRep(r *signal.LagRep) {
	n := uint8(r.Node)
	if b.state != started && b.state != stopping || !b.isPresident() || b.stop.leading || !b.view.Has(n) || b.peers[n].lags {
		b.Stale++
		return
	}
	set := b.view.Set()
	if !b.serves(set, n) || set.Count() == 1 {
		b.stopAll(signal.StopAll|signal.StopAbort, exitcode.Lagging, r.Node)
		return
	}
	one := signal.NodeSet{}
	one.Add(n)
	b.putOutLate(one, "did not finish epoch "+number(r.GCI[1])+"/"+number(r.GCI[0])+" within "+number(r.Millis)+" ms")
	if b.state != ended {
		b.act()
	}
}

// stopAll begins to lead the cluster to its end.
func (b *Block) stopAll(flags, code, node uint32) {
	b.stop.leading, b.stop.waiting = true, b.view.Set()
	b.stop.flags, b.stop.code = flags, code
	b.lead.rest()
	for _, m := range b.view.Members {
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
	if r.From.Node() != b.view.President || !b.active() && b.state != draining {
		b.Stale++
		return
	}
	if r.Step == signal.StopExit {
		b.exit(b.stop.code, restartFlags(b.stop.flags), b.stop.reason)
		return
	}
	if b.state == draining {
		b.Stale++
		return
	}
	b.stop.flags, b.stop.code = r.Flags, r.Code
	b.stop.reason = "stopped with the cluster, as management asked"
	if r.Code == exitcode.Lagging {
		var set signal.NodeSet
		set.Add(uint8(r.Node))
		b.stop.reason = "node " + listOf(&set) + " did not finish an epoch in time, so the cluster stops: see whether its machine is overloaded, or raise TimeBetweenEpochsTimeout"
	}
	b.leave.stage = leaveNone
	b.lead.rest()
	b.join.unconfirmed = signal.NodeSet{}
	b.report(event.NDBStopStarted, event.StopScopeCluster)
	b.become(draining)
	b.openGates()
	b.drain(b.stop.flags, true)
}

// drain lets no new transaction begin and waits, with a bound, until those under way have ended; at the ldms too if
// nobody goes on after it.
func (b *Block) drain(flags uint32, all bool) {
	b.stop.ref++
	b.stop.owed = 0
	abort := uint32(0)
	bound := b.cfg.DrainTimeout
	if flags&signal.StopAbort != 0 {
		abort, bound = 1, min(bound, tellTime)
	}
	b.workers(func(a signal.Addr) {
		if !all && a.Block() != signal.BlockTC {
			return
		}
		r := kernel.Send[signal.DrainReq](b.env, a, b.self, signal.NumDrainReq)
		r.Ref, r.Abort = b.stop.ref, abort
		b.stop.owed++
	})
	b.env.Tick(b.self, bound, tickDrain, b.stop.ref, 0)
}

func (b *Block) onDrainConf(r *signal.DrainConf) {
	if r.Ref != b.stop.ref || b.stop.owed == 0 {
		b.Stale++
		return
	}
	if b.stop.owed--; b.stop.owed == 0 {
		b.drained()
	}
}

func (b *Block) onDrainTimeout(ref uint32) {
	if ref == b.stop.ref && b.stop.owed > 0 {
		b.stop.owed = 0
		b.drained()
	}
}

// drained goes on after the transactions have ended.
func (b *Block) drained() {
	if b.state != draining {
		b.leaveDrained()
		return
	}
	c := kernel.Send[signal.StopStepConf](b.env, peerAt(b.view.President), b.self, signal.NumStopStepConf)
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
	case n == b.view.President: // it is gone before it could tell us to go
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
	for _, m := range b.view.Members {
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
	b.begin.waiting, b.stop.waiting, b.join.unconfirmed, b.forgetting = signal.NodeSet{}, signal.NodeSet{}, signal.NodeSet{}, 0
	b.lead.rest()
	b.become(ended)
	if len(reason) > 1000 {
		reason = reason[:1000]
	}
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

// number writes a number for a message.
func number(n uint32) string {
	var t [10]byte
	i := len(t)
	for {
		i--
		t[i] = byte('0' + n%10)
		if n /= 10; n == 0 {
			return string(t[i:])
		}
	}
}
