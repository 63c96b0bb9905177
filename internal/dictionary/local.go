package dictionary

// This node's part in a schema transaction: a list of jobs for the own ldms and coordinators, a few under way at once.
//
//	prepare of a create:  FragCreateReq for each fragment replica here, then TableOpenReq to each coordinator
//	commit of a create:   clients are told of the table from now on
//	abort of a create:    TableCloseReq to each coordinator that opened it, then FragDropReq for each that was made
//	prepare of a drop:    clients are not told of it any more; TableCloseReq to each coordinator and ldm
//	commit of a drop:     FragDropReq for each fragment replica here
//
// | signal                | resting                        | a list is being worked through |
// | SchemaPrepareReq      | begin, or answer               | never                          |
// | SchemaCommitReq       | commit, or begin, or answer    | never                          |
// | SchemaAbortReq        | begin, or answer               | never                          |
// | SchemaStateReq        | answer                         | answer at its end              |
// | answer of ldm or tc   | never                          | next job                       |
//
// What is only answered was done for a president that was lost, or never heard of. A request of a node that is not the
// president is stale in every state.

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
)

// job is one thing that an ldm or a coordinator of this node does for a table.
type job struct {
	at   signal.Addr
	frag uint32 // of an ldm's job
	made bool   // done by a create and not undone
}

// list is what is to be done with the jobs.
type list uint8

const (
	// resting: nothing is under way.
	resting list = iota
	// creating: fragments, then coordinators.
	creating
	// closing: coordinators.
	closing
	// giving: fragments are given up.
	giving
)

// local is the node's part.
type local struct {
	doing list
	table uint32
	jobs  []job // fragments first, then coordinators, then ldms as such
	frags int   // how many of the jobs are fragments
	tcs   int   // how many of the jobs are fragments and coordinators; the rest are ldms that close the table
	next  int   // job that comes next
	owed  int   // jobs under way
	code  uint32
	after list   // what follows: giving after closing, when a create is undone
	conf  uint16 // the answer to the president; 0 = none, the table is being forgotten
	tx    schemaTx
}

// schemaTx is the newest schema transaction that this node has heard of.
type schemaTx struct {
	ref      uint32
	kind     uint32
	table    uint32
	version  uint32
	step     uint32 // one of signal's Schema constants: what has ended here
	code     uint32 // with which it has ended
	alone    bool   // it only told this node what it had missed
	asker    signal.Addr
	askerRef uint32
	name     string // of the table, when it is known
}

// stepOf is the step that a request asks for.
func stepOf(num uint16) uint32 {
	switch num {
	case signal.NumSchemaPrepareReq:
		return signal.SchemaPrepared
	case signal.NumSchemaCommitReq:
		return signal.SchemaCommitted
	}
	return signal.SchemaAborted
}

// stepAnswer is the answer to each step.
var stepAnswer = [...]uint16{signal.SchemaPrepared: signal.NumSchemaPrepareConf, signal.SchemaCommitted: signal.NumSchemaCommitConf,
	signal.SchemaAborted: signal.NumSchemaAbortConf}

func (b *Block) onSchemaReq(r *signal.SchemaReq) {
	if !b.begun() || r.From.Node() != b.view.President {
		b.Stale++
		return
	}
	l := &b.local
	if l.doing != resting || b.part == signal.PartNone && r.Alone == 0 {
		invariant.Failf("%s while %d jobs are under way", signal.Format(&r.Head), l.owed)
	}
	x := &l.tx
	invariant.That(r.Ref >= x.ref, "the numbers of schema transactions grow")
	step := stepOf(r.Num)
	*x = schemaTx{ref: r.Ref, kind: r.Kind, table: r.Table, version: r.Version, step: step, alone: r.Alone == 1, asker: r.Asker, askerRef: r.AskerRef}
	if int(r.Table) >= len(b.tables) { // of a president that may have more of them
		b.schemaConf(stepAnswer[step], codeTables)
		return
	}
	t := &b.tables[r.Table]
	x.name = t.name
	mine := t.state != free && t.version == r.Version
	switch {
	case r.Kind == signal.SchemaCreate && step == signal.SchemaPrepared:
		b.prepareCreate(t, r)
	case r.Kind == signal.SchemaCreate && step == signal.SchemaCommitted:
		if invariant.That(mine && t.state != dropping, "what was prepared is committed"); t.state == preparing {
			t.state = ready
			b.names[t.name] = r.Table
			l.jobs, l.next = l.jobs[:0], 0
			b.outcome(0)
		}
		b.schemaConf(signal.NumSchemaCommitConf, 0)
	case step == signal.SchemaAborted && mine && t.state == preparing:
		l.code = r.Code
		b.undo(signal.NumSchemaAbortConf)
	case step == signal.SchemaAborted:
		b.outcome(r.Code)
		b.schemaConf(signal.NumSchemaAbortConf, 0)
	case !mine: // it was dropped for a lost president, or before this node joined
		invariant.That(t.version == r.Version, "what is dropped was there")
		b.schemaConf(stepAnswer[step], 0)
	case step == signal.SchemaPrepared && t.state == ready:
		t.state = dropping
		b.listJobs(r.Table)
		b.start(closing, resting, signal.NumSchemaPrepareConf)
	case step == signal.SchemaPrepared:
		b.schemaConf(signal.NumSchemaPrepareConf, 0)
	default:
		invariant.That(t.state == dropping, "what was closed is given up")
		b.start(giving, resting, signal.NumSchemaCommitConf)
	}
}

func (b *Block) schemaConf(num uint16, code uint32) {
	c := kernel.Send[signal.SchemaConf](b.env, signal.MakeAddr(b.view.President, signal.BlockDictionary, 0), b.self, num)
	b.local.tx.code = code
	c.Ref, c.Code = b.local.tx.ref, code
}

// outcome notes what has become of the transaction for the request that this node had passed on, in case the president
// is lost before it says so. Nothing is noted of a create that was undone because a president was lost: the request goes
// to the new one.
func (b *Block) outcome(code uint32) {
	x := &b.local.tx
	if x.asker.Node() != b.env.Node() || code == codeNodeFailure || int(x.askerRef) >= len(b.forwards) {
		return
	}
	if f := &b.forwards[x.askerRef]; f.busy && f.sent {
		f.known, f.code, f.table, f.version = true, code, x.table, x.version
	}
}

// prepareCreate takes a table's definition and makes its fragments.
func (b *Block) prepareCreate(t *table, r *signal.SchemaReq) {
	invariant.That(t.state == free, "a new table gets a free id")
	def, err := schema.DecodeTable(r.Def())
	if err != nil {
		invariant.Failf("the president sends a definition that is not valid: %v", err)
	}
	*t = table{state: preparing, version: r.Version, name: def.Database + "/" + def.Name, columns: len(def.Columns), logging: def.Logging,
		def: append([]byte(nil), r.Def()...), buckets: append([]uint16(nil), r.Map()...), homes: append([]signal.Addr(nil), r.Chains()...)}
	b.local.tx.name = t.name
	b.attributes += t.columns
	b.listJobs(r.Table)
	b.start(creating, resting, signal.NumSchemaPrepareConf)
}

// listJobs lists the replicas of a table's fragments that lie here, the coordinators, and the ldms, which have to close a
// table that is dropped. Every job counts as made unless a create has yet to do it.
func (b *Block) listJobs(id uint32) {
	l, t := &b.local, &b.tables[id]
	l.table, l.jobs = id, l.jobs[:0]
	for i, p := range t.homes {
		if p != 0 && p.Node() == b.env.Node() {
			at := signal.MakeAddr(p.Node(), signal.BlockLDM, p.Instance()%uint16(b.env.Instances(signal.BlockLDM)))
			l.jobs = append(l.jobs, job{at: at, frag: uint32(i / signal.MaxReplicas), made: t.state != preparing})
		}
	}
	l.frags = len(l.jobs)
	for i := range b.env.Instances(signal.BlockTC) {
		l.jobs = append(l.jobs, job{at: signal.MakeAddr(b.env.Node(), signal.BlockTC, uint16(i)), made: t.state != preparing})
	}
	l.tcs = len(l.jobs)
	for i := range b.env.Instances(signal.BlockLDM) {
		l.jobs = append(l.jobs, job{at: signal.MakeAddr(b.env.Node(), signal.BlockLDM, uint16(i)), made: t.state != preparing})
	}
}

// undo takes back what a create has made here.
func (b *Block) undo(conf uint16) { b.start(closing, giving, conf) }

// start works through the jobs.
func (b *Block) start(do, after list, conf uint16) {
	l := &b.local
	l.doing, l.after, l.conf, l.next, l.owed = do, after, conf, 0, 0
	if do == creating {
		l.code = 0
	}
	b.more()
}

// more sends what the window has room for, and ends the list when nothing is left.
func (b *Block) more() {
	l := &b.local
	end := len(l.jobs)
	if l.doing == creating {
		end = l.tcs
	}
	for l.next < end && l.owed < windowMax {
		i := l.next
		j := &l.jobs[i]
		isFrag := i < l.frags
		if l.doing == creating && (l.code != 0 || i == l.frags && l.owed > 0) {
			break // something failed; or coordinators wait until all fragments are there
		}
		l.next++
		if l.doing != creating && (isFrag == (l.doing == closing) || !j.made) {
			continue
		}
		switch {
		case l.doing == creating && isFrag:
			b.putFragCreate(uint32(i))
		case l.doing == creating:
			b.putOpen(j.at, signal.NumTableOpenReq, uint32(i), l.table)
		case l.doing == closing:
			r := kernel.Send[signal.TableCloseReq](b.env, j.at, b.self, signal.NumTableCloseReq)
			r.Ref, r.Table, r.WaitMillis = uint32(i), l.table, b.cfg.CloseWait
		case l.doing == giving:
			r := kernel.Send[signal.FragDropReq](b.env, j.at, b.self, signal.NumFragDropReq)
			r.Ref, r.Table, r.Frag = uint32(i), l.table, j.frag
		}
		l.owed++
	}
	if l.owed > 0 {
		return
	}
	if l.after != resting {
		b.start(l.after, resting, l.conf)
		return
	}
	b.listDone()
}

func (b *Block) putFragCreate(i uint32) {
	l, t := &b.local, &b.tables[b.local.table]
	j := &l.jobs[i]
	size := uint32(unsafe.Sizeof(signal.FragCreateReq{}))
	r := (*signal.FragCreateReq)(b.env.Put(j.at, b.self, signal.NumFragCreateReq, size+signal.Pad(uint32(len(t.def)))))
	r.Ref, r.Table, r.Version, r.Frag, r.DefLen = i, l.table, t.version, j.frag, uint32(len(t.def))
	copy(r.Chain[:], t.homes[j.frag*signal.MaxReplicas:])
	r.Replicas = 0
	for _, a := range r.Chain {
		if a != 0 {
			r.Replicas++
		}
	}
	kernel.PutBytes(unsafe.Add(unsafe.Pointer(r), size), t.def)
}

// onJobDone hears an ldm or a coordinator.
func (b *Block) onJobDone(ref, code uint32, num uint16) {
	l := &b.local
	if l.doing == resting || int(ref) >= l.next || l.owed == 0 {
		invariant.Failf("%s for job %d of %d, in list %d", signal.Name(num), ref, len(l.jobs), l.doing)
	}
	l.owed--
	switch {
	case l.doing != creating:
		invariant.That(code == 0, "giving up does not fail")
		l.jobs[ref].made = false
	case code == 0:
		l.jobs[ref].made = true
	case l.code == 0:
		l.code = code
	}
	b.more()
}

// listDone answers the president, or goes on forgetting.
func (b *Block) listDone() {
	l := &b.local
	was, t := l.doing, &b.tables[l.table]
	l.doing = resting
	if was == giving {
		if t.state == dropping || t.state == ready {
			delete(b.names, t.name)
		}
		b.attributes -= t.columns
		*t = table{version: t.version}
		l.jobs, l.next = l.jobs[:0], 0
	}
	if b.forget != keeps {
		b.forgetTables()
		return
	}
	code := l.code
	l.code = 0
	if was == giving {
		b.outcome(code)
	}
	if l.conf != signal.NumSchemaPrepareConf { // the code of an abort says why to us, not to the president
		code = 0
	}
	b.schemaConf(l.conf, code)
	b.answerAsker()
}

// forgetTables gives up every table, one after the other.
func (b *Block) forgetTables() {
	l := &b.local
	if l.doing != resting {
		return // goes on when the list is done
	}
	if b.tables[l.table].state == preparing { // first, since the jobs say what of it was made
		b.undo(0)
		return
	}
	for i := range b.tables {
		if b.tables[i].state != free {
			b.listJobs(uint32(i)) // a table that is being dropped may be closed already: closing again does no harm
			b.undo(0)
			return
		}
	}
	why := b.forget
	b.forget, l.code = keeps, 0
	if why == forgetsAttempt {
		b.phaseConf(0)
		return
	}
	b.answerAsker()
	b.askTables()
}

func (l *local) invariants() {
	if (l.doing == resting) != (l.owed == 0) || l.next > len(l.jobs) {
		invariant.Failf("in list %d, %d jobs are under way", l.doing, l.owed)
	}
}
