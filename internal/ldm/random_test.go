package ldm_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"runtime/debug"
	"slices"
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/view"
)

var (
	seeds     = flag.Int("seeds", 0, "how many seeds the random test runs for each shape; 0: a few seconds' worth")
	firstSeed = flag.Uint64("first-seed", 1, "where they begin")
)

// TestRandomViews runs transactions of one write on few rows while nodes are killed, at any moment and in the middle of
// changes of the view, come back with nothing and copy their fragments, and hand primaries over; epochs change meanwhile.
// Coordinators are absent: internal/coordinator's random test has them. It expects that
//
//   - a write that was confirmed is there, one that was refused is not, and who asks about one that nobody answered is told
//     what is so,
//   - no row goes back to an older epoch,
//   - at rest all replicas are equal, row ids and what free slots remember included, and nothing is left.
func TestRandomViews(t *testing.T) {
	n := *seeds
	if n == 0 {
		if n = 30; testing.Short() {
			n = 10
		}
	}
	var marks kernel.Marks
	for _, s := range [][3]int{{2, 2, 1}, {3, 3, 2}, {4, 4, 2}, {4, 2, 4}} {
		t.Run(fmt.Sprintf("%d nodes, %d replicas, %d fragments", s[0], s[1], s[2]), func(t *testing.T) {
			for seed := *firstSeed; seed < *firstSeed+uint64(n); seed++ {
				func() {
					defer func() {
						if r := recover(); r != nil {
							t.Fatalf("seed %d: %v\n%s", seed, r, debug.Stack())
						}
					}()
					r := newRandom(t, seed, s[0], s[1], s[2])
					r.marks = &marks
					r.run()
					for _, x := range r.alive() {
						marks.Add(x.env.Marks())
					}
				}()
			}
		})
	}
	if *seeds != 0 || testing.Short() || t.Failed() {
		return
	}
	for _, m := range []kernel.Mark{kernel.MarkThawed, kernel.MarkParkedDropped, kernel.MarkOrphan, kernel.MarkBecameTail, kernel.MarkSentAgain,
		kernel.MarkAgainCommitted, kernel.MarkGhost, kernel.MarkCopyLater, kernel.MarkCopyLaterSent, kernel.MarkOutcomeHeld} {
		if !marks.Has(m) {
			t.Errorf("no run came to the place %q", m)
		}
	}
}

// fate is what a client knows of a write.
type fate uint8

const (
	open fate = iota
	yes
	no
	asked // its primary was lost, and the question is out
)

type randomWrite struct {
	key, stamp uint32
	session    uint16
	seq        uint32
	op         uint8
	at         uint8  // node that it went to
	dynamicID  uint32 // of that
	askedAt    uint8  // node that was asked about it
	lost       bool   // the client knows that the node is lost
	fate       fate
	gci        signal.GCI
}

type randomWorld struct {
	*world
	seed     uint64
	replicas int
	writes   []*randomWrite // by transaction number
	seqs     [5]uint32
	newest   map[uint32]signal.GCI // by key: of confirmed writes

	// The change of the view.
	next      view.View
	attempt   uint32
	phase     int // 0 steady, 1 prepare, 2 commit
	told      [8]bool
	confirmed [8]bool
	known     [8]bool // the client knows that the node is dead
	taken     uint32  // newest view whose takeover is over

	// The change of the epoch.
	epochPhase int     // 0 none, 1 prepare, 2 commit
	inRound    [8]bool // nodes that take part
	epochOwed  [8]bool // … and have not answered
	inEpoch    [8]bool // nodes that have committed an epoch since they came

	marks      *kernel.Marks
	ending     bool
	recovering uint8 // node that comes back, 0 = none
	stage      int   // of it: 0 joins, 1 has its fragments, 2 copies, 3 has copied
}

func newRandom(t *testing.T, seed uint64, nodes, replicas, fragments int) *randomWorld {
	columns := append(slices.Clone(oneWord), schema.Column{Name: "S", Type: schema.Varbinary, Length: 4000, Nullable: true})
	r := &randomWorld{seed: seed, replicas: replicas, newest: map[uint32]signal.GCI{}, taken: 1, writes: []*randomWrite{nil}}
	r.world = newWorld(t, seed, nodes, replicas, fragments, 64, func(uint8) int { return 256 }, columns...)
	for n := 1; n <= nodes; n++ {
		r.inEpoch[n] = true
	}
	r.heard = r.onHeard
	r.answer = r.onAnswer
	r.attempt = 1
	return r
}

func (r *randomWorld) failf(format string, args ...any) {
	r.t.Fatalf("seed %d: %s", r.seed, fmt.Sprintf(format, args...))
}

const randomKeys = 8

func (r *randomWorld) run() {
	for range 40 { // rows that no test is about, so that copies take a few runs
		r.write(signal.OpInsert, 100+uint32(r.rng.IntN(60)))
		r.settle()
	}
	if r.seed%3 == 0 { // chains in which the next primary is not the second
		for n := 2; n < r.replicas; n++ {
			if r.phase == 0 {
				r.begin(r.with(&r.view, uint8(n), signal.MemberFollowing))
			}
			for r.step() || r.machine(true) {
			}
		}
	}
	for range 400 {
		if r.rng.IntN(2) == 0 {
			r.action()
		}
		if r.rng.IntN(12) == 0 { // a slow link
			clear(r.held)
			if k := r.pairs[r.rng.IntN(len(r.pairs))]; k[0] != k[1] && r.rng.IntN(3) > 0 {
				r.held[k] = true
			}
		}
		for range r.rng.IntN(12) {
			r.step()
		}
		r.machine(false)
	}
	r.ending = true
	clear(r.held)
	for i := 0; ; i++ { // everybody comes back, everything ends
		if i > 10_000 {
			r.failf("it does not come to rest: phase %d, epoch %d, recovering %d in %d", r.phase, r.epochPhase, r.recovering, r.stage)
		}
		if r.step() || r.machine(true) {
			continue
		}
		if len(r.alive()) < len(r.sites)-1 || r.view.ServingSet() != r.view.Set() {
			r.comeBack()
			continue
		}
		due := int64(-1)
		for _, s := range r.alive() {
			if d, ok := s.env.NextTimer(); ok && (due < 0 || d-s.env.Now() < due) {
				due = d - s.env.Now()
			}
		}
		if due < 0 {
			break
		}
		r.pass(max(due, 1))
	}
	r.atRest()
	r.compare()
	r.compareSlots()
	r.judge()
}

func (r *randomWorld) action() {
	what := r.rng.IntN(30)
	if r.seed%3 == 0 && r.rng.IntN(20) == 0 {
		what = 4
	}
	switch what {
	case 0:
		for range r.rng.IntN(6) {
			r.write(signal.OpInsert+uint8(r.rng.IntN(4)), uint32(r.rng.IntN(randomKeys)))
		}
		for range r.rng.IntN(10) {
			r.step()
		}
		r.killOne()
	case 1, 2, 3:
		r.comeBack()
	case 4:
		if r.phase == 0 && r.recovering == 0 {
			m := r.view.Members[r.rng.IntN(len(r.view.Members))]
			r.begin(r.with(&r.view, uint8(m.Node), signal.MemberFollowing+uint32(r.rng.IntN(2))))
		}
	case 5, 6, 7:
		if r.epochPhase == 0 && r.phase == 0 && r.taken == r.view.Number {
			r.gci++
			r.epochRound(1)
		}
	case 8:
		r.pass(5e6)
	default:
		ops := []uint8{signal.OpInsert, signal.OpUpdate, signal.OpWrite, signal.OpDelete, signal.OpReadCommitted}
		r.write(ops[r.rng.IntN(len(ops))], uint32(r.rng.IntN(randomKeys)))
	}
}

func (r *randomWorld) write(op uint8, key uint32) {
	to := r.primary(key)
	if to == 0 || r.known[to.Node()] {
		return
	}
	x := &randomWrite{key: key, stamp: uint32(len(r.writes)), session: uint16(1 + r.rng.IntN(4)), op: op, at: to.Node(), dynamicID: r.view.Member(to.Node()).DynamicID}
	r.writes = append(r.writes, x)
	var data []byte
	switch {
	case signal.IsRead(op):
		r.oneShot(to, x.session, x.stamp, 0, op, signal.FlagAll, key, nil)
		return
	case op != signal.OpDelete:
		columns, values := []uint32{0}, [][]byte{word(x.stamp)}
		if r.rng.IntN(3) > 0 {
			columns, values = []uint32{0, 1}, append(values, slices.Repeat([]byte{byte(x.stamp)}, r.rng.IntN(3000)))
		}
		b, err := r.layout.AppendWrite(nil, columns, values)
		if err != nil {
			r.t.Fatal(err)
		}
		data = b
	}
	r.seqs[x.session]++
	x.seq = r.seqs[x.session]
	r.oneShot(to, x.session, x.stamp, x.seq, op, 0, key, data)
}

func (r *randomWorld) onAnswer(h *signal.Head) {
	if h.Num == signal.NumOutcomeConf {
		c := signal.As[signal.OutcomeConf](h)
		switch x := r.writes[c.Tx]; {
		case x.fate != asked || x.seq != c.Seq:
			r.failf("an answer about write %d, which nobody has asked", c.Tx)
		case c.Known == signal.OutcomeElsewhere:
			x.fate = open // it asks again
		case c.Known == signal.OutcomeCommitted:
			r.committed(x, signal.JoinGCI(c.GCI))
		default:
			x.fate = no
		}
		return
	}
	tx := *(*uint32)(unsafe.Add(unsafe.Pointer(h), signal.HeadSize+4))
	x := r.writes[tx]
	switch h.Num {
	case signal.NumWriteConf:
		if x.fate != open {
			r.failf("write %d is confirmed, and had fate %d", tx, x.fate)
		}
		r.committed(x, signal.JoinGCI(signal.As[signal.WriteConf](h).GCI))
	case signal.NumKeyRef:
		x.fate = no
	case signal.NumReadConf:
		c := signal.As[signal.ReadConf](h)
		if v := binary.LittleEndian.Uint32(unsafe.Slice((*byte)(c.Data()), c.DataLen)[4*r.layout.NullWords:]); r.writes[v].fate == no || r.writes[v].key != x.key {
			r.failf("a read of row %d sees write %d of row %d, which was refused: %v", x.key, v, r.writes[v].key, r.writes[v].fate == no)
		}
	}
}

func (r *randomWorld) committed(x *randomWrite, gci signal.GCI) {
	x.fate, x.gci = yes, gci
	r.newest[x.key] = max(r.newest[x.key], gci)
}

// judge compares what clients were told with what there is.
func (r *randomWorld) judge() {
	for tx, x := range r.writes[1:] {
		if !signal.IsRead(x.op) && (x.fate == open || x.fate == asked) {
			r.failf("nobody has said what became of write %d of row %d at node %d", tx+1, x.key, x.at)
		}
	}
	rows := r.world.compare()
	for key, v := range rows {
		if r.writes[v].fate != yes || r.writes[v].key != key {
			r.failf("row %d is of write %d of row %d with fate %d", key, v, r.writes[v].key, r.writes[v].fate)
		}
		if r.writes[v].gci < r.newest[key] {
			r.failf("row %d is of write %d in epoch %v, and one in %v was confirmed", key, v, r.writes[v].gci, r.newest[key])
		}
	}
}

// compareSlots compares what free slots remember: a replica may remember more than another, never less than the deletes
// of its page's rows that are gone.
func (r *randomWorld) compareSlots() {
	for f, home := range r.homes {
		for key := range uint32(200) {
			if r.frag(key) != uint32(f) {
				continue
			}
			last := (*randomWrite)(nil)
			for _, x := range r.writes[1:] {
				if x.key == key && x.fate == yes && (last == nil || x.gci >= last.gci) {
					last = x
				}
			}
			if last == nil || last.op != signal.OpDelete {
				continue
			}
			for _, p := range home {
				rows := r.sites[p.Node()].ldm.Fragment(tableID, uint32(f))
				newest := uint64(0)
				for id := uint32(0); ; {
					s, ok := rows.NextSlots(id)
					if !ok {
						break
					}
					id = s.First + s.N
					newest = max(newest, s.GCI)
					if s.Used {
						newest = max(newest, rows.Row(s.First).GCI())
					}
				}
				if newest < uint64(last.gci) {
					r.failf("nothing at node %d remembers that row %d was deleted in epoch %v", p.Node(), key, last.gci)
				}
			}
		}
	}
}

// killOne ends a node if its group has another one that serves. What it has sent is lost from some point on.
func (r *randomWorld) killOne() {
	s := r.alive()[r.rng.IntN(len(r.alive()))]
	if s.id != r.recovering {
		others := 0
		for _, m := range r.view.Members {
			if m.Group == r.groupOf(s.id) && m.Node != uint32(s.id) && m.State >= signal.MemberFollowing && !r.sites[m.Node].dead {
				others++
			}
		}
		if others == 0 {
			return
		}
	}
	r.end(s.id)
	if r.recovering != 0 && r.groupOf(r.recovering) == r.groupOf(s.id) && r.recovering != s.id {
		r.end(r.recovering) // its source may be gone
	}
	if r.recovering != 0 && r.sites[r.recovering].dead {
		r.recovering = 0
	}
}

func (r *randomWorld) end(n uint8) {
	r.marks.Add(r.sites[n].env.Marks())
	r.kill(n)
	r.cut(n, func(queued int) int { return r.rng.IntN(queued + 1) })
	r.known[n] = false
	r.epochOwed[n], r.inEpoch[n], r.inRound[n] = false, false, false
}

// comeBack lets a dead node that is in no view come back.
func (r *randomWorld) comeBack() {
	if r.phase != 0 || r.taken != r.view.Number {
		return
	}
	if r.recovering != 0 {
		if n := r.recovering; r.stage == 0 && r.inEpoch[n] {
			r.stage = 1
			kernel.Send[signal.CopyStartReq](r.sites[n].env, at(n, signal.BlockLDM), at(n, signal.BlockDistribution), signal.NumCopyStartReq).Ref = 1
		} else if r.stage == 2 {
			r.begin(r.with(&r.view, n, signal.MemberFollowing))
		} else if r.stage == 0 && r.epochPhase == 0 {
			r.gci++
			r.epochRound(1)
		}
		return
	}
	for _, m := range r.view.Members {
		if m.State == signal.MemberFollowing && (r.ending || r.seed%3 != 0 && r.rng.IntN(2) == 0) {
			r.begin(r.with(&r.view, uint8(m.Node), signal.MemberLeading))
			return
		}
	}
	for _, s := range r.sites[1:] {
		if s.dead && !r.view.Has(s.id) && r.known[s.id] {
			for _, k := range r.pairs {
				if k[0] == s.id || k[1] == s.id {
					r.queues[k] = nil
				}
			}
			r.known[s.id] = false
			r.sites[s.id] = r.newSite(s.id, len(r.sites)-1, 256)
			r.recovering, r.stage = s.id, 0
			r.begin(r.with(&r.view, s.id, signal.MemberRecovering))
			return
		}
	}
}

func (r *randomWorld) begin(next view.View) {
	r.attempt++
	r.next, r.phase, r.told, r.confirmed = next, 1, [8]bool{}, [8]bool{}
}

// machine takes the change of the view, and what else the cluster does by itself, a little further. It tells whether it did
// anything.
func (r *randomWorld) machine(must bool) (did bool) {
	maybe := func() bool { return must || r.rng.IntN(6) == 0 }
	dead := func(of *view.View) bool {
		for _, m := range of.Members {
			if r.sites[m.Node].dead {
				return true
			}
		}
		return false
	}
	r.drain()
	switch {
	case r.phase == 0 && dead(&r.view) && maybe():
		r.begin(r.without(&r.view))
		did = true
	case r.phase == 1 && dead(&r.next): // a new attempt: states as in the committed view, but for who joins
		r.begin(r.without(&r.view))
		if r.recovering != 0 && !r.view.Has(r.recovering) {
			r.end(r.recovering)
			r.recovering = 0
		}
		did = true
	case r.phase == 2 && dead(&r.next) && maybe(): // first everybody gets what some may have
		r.commitAll()
		r.begin(r.without(&r.view))
		did = true
	}
	heardAll := func(to uint8) bool {
		for n := uint8(1); int(n) < len(r.sites); n++ {
			if r.sites[n].dead && len(r.queues[[2]uint8{n, to}]) > 0 {
				return false
			}
		}
		return true
	}
	for n := uint8(1); int(n) < len(r.sites); n++ {
		if r.sites[n].dead && !r.known[n] && len(r.queues[[2]uint8{n, clientNode}]) == 0 && maybe() {
			r.lostNode(n)
			did = true
		}
	}
	all := true
	for _, m := range r.next.Members {
		n := uint8(m.Node)
		if r.phase == 0 {
			break
		}
		if !r.told[n] && maybe() && (r.phase == 2 || heardAll(n)) {
			did = true
			r.tellOne(n)
		}
		all = all && r.confirmed[n]
	}
	switch {
	case r.phase == 1 && all:
		r.phase, r.told, r.confirmed = 2, [8]bool{}, [8]bool{}
		did = true
		if r.recovering != 0 && r.view.Has(r.recovering) && r.next.Serving(r.recovering) {
			r.recovering = 0
		}
	case r.phase == 2 && all:
		r.taken, r.phase = r.next.Number, 0
		r.takeoverOver(&r.next)
		did = true
	}
	if r.phase == 2 && r.view.Number != r.next.Number { // clients learn of it when all have it
		told := true
		for _, m := range r.next.Members {
			told = told && r.told[m.Node]
		}
		if told {
			r.view.Copy(&r.next)
			did = true
		}
	}
	did = maybe() && r.ask() || did
	return r.epochGoesOn() || did
}

// tellOne gives a node the round of the view's change that is under way.
func (r *randomWorld) tellOne(n uint8) {
	r.told[n] = true
	num := uint16(signal.NumViewPrepareReq)
	if r.phase == 2 {
		num = signal.NumViewCommitReq
	}
	r.tellView(n, num, &r.next, r.attempt)
	if r.phase == 2 && n == r.recovering && r.stage == 0 && !r.view.Has(n) {
		r.createFragments(n)
	}
}

// commitAll gives the commit of the view to all that have not got it.
func (r *randomWorld) commitAll() {
	for _, m := range r.next.Members {
		if n := uint8(m.Node); !r.told[n] && !r.sites[n].dead {
			r.tellOne(n)
		}
	}
	r.view.Copy(&r.next)
}

// ask asks about writes whose node is lost.
func (r *randomWorld) ask() (did bool) {
	for tx, x := range r.writes {
		if x == nil || signal.IsRead(x.op) || x.fate != open || !x.lost {
			continue
		}
		to := r.primary(x.key)
		if to == 0 || r.sites[to.Node()].dead {
			continue
		}
		q := kernel.Send[signal.OutcomeReq](r.client, to, signal.MakeAddr(clientNode, signal.BlockClient, x.session), signal.NumOutcomeReq)
		*q = signal.OutcomeReq{Head: q.Head, Tx: uint32(tx), Seq: x.seq, Node: uint32(x.at), DynamicID: x.dynamicID, Table: tableID, Frag: uint16(r.frag(x.key))}
		x.fate, x.askedAt = asked, to.Node()
		did = true
	}
	return did
}

// lostNode is the client hearing that a node is gone.
func (r *randomWorld) lostNode(n uint8) {
	r.known[n] = true
	for _, x := range r.writes[1:] {
		if x.at == n && x.fate == open {
			x.lost = true
		}
		if x.fate == asked && x.askedAt == n {
			x.fate = open
		}
	}
}

// epochRound begins a round of a change of the epoch.
func (r *randomWorld) epochRound(phase int) {
	r.epochPhase = phase
	for _, s := range r.alive() {
		if phase == 1 {
			r.inRound[s.id] = r.view.Has(s.id)
		}
		if r.inRound[s.id] {
			r.epochOwed[s.id] = true
			num := []uint16{signal.NumEpochPrepareReq, signal.NumEpochCommitReq}[phase-1]
			kernel.Send[signal.EpochReq](s.env, at(s.id, signal.BlockLDM), at(s.id, signal.BlockDistribution), num).GCI = r.gci.Words()
		}
	}
}

// epochGoesOn takes the change of the epoch further when all have answered. It does not end before a takeover does.
func (r *randomWorld) epochGoesOn() (did bool) {
	if r.epochPhase == 0 || slices.Contains(r.epochOwed[:], true) {
		return false
	}
	switch {
	case r.epochPhase == 1:
		r.epochRound(2)
	case r.phase != 0 || r.taken != r.view.Number:
		return false
	default:
		r.epochPhase = 0
		for n := range r.inRound {
			r.inEpoch[n] = r.inEpoch[n] || r.inRound[n]
		}
	}
	return true
}

func (r *randomWorld) onHeard(s *site, h *signal.Head) {
	switch h.Num {
	case signal.NumViewPrepareConf, signal.NumViewCommitConf:
		c := signal.As[signal.ViewConf](h)
		if c.View == r.next.Number && c.Attempt == r.attempt && (h.Num == signal.NumViewCommitConf) == (r.phase == 2) {
			r.confirmed[s.id] = true
		}
	case signal.NumEpochPrepareConf, signal.NumEpochCommitConf:
		if (h.Num == signal.NumEpochCommitConf) == (r.epochPhase == 2) {
			r.epochOwed[s.id] = false
		}
	case signal.NumCopyStartConf:
		if c := signal.As[signal.CopyStartConf](h); c.Code != 0 {
			r.failf("node %d cannot copy: %d", s.id, c.Code)
		}
		r.stage = 2
	}
}
