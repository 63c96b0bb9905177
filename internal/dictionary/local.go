package dictionary

// This node's part in a schema transaction: a list of jobs for the own ldms and coordinators, a few under way at once.
//
//	prepare of a create:  FragCreateReq for each fragment replica here, then TableOpenReq to each coordinator
//	commit of a create:   clients are told of the table from now on
//	abort of a create:    TableCloseReq to each coordinator that opened it, then FragDropReq for each that was made
//	prepare of a drop:    clients are not told of it any more; TableCloseReq to each coordinator and ldm
//	commit of a drop:     FragDropReq for each fragment replica here
//
// | signal                | resting            | a list is being worked through |
// | SchemaPrepareReq      | begin              | never                          |
// | SchemaCommitReq       | commit, or begin   | never                          |
// | SchemaAbortReq        | begin              | never                          |
// | answer of ldm or tc   | never              | next job                       |
//
// A request of a node that is not the president of the present attempt to start is stale in every state.

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
	ref   uint32 // of the schema transaction
	kind  uint32 // of the schema transaction
}

func (b *Block) onSchemaReq(r *signal.SchemaReq) {
	if !b.begun() || r.From.Node() != b.view.President {
		b.Stale++
		return
	}
	l := &b.local
	if l.doing != resting || int(r.Table) >= len(b.tables) {
		invariant.Failf("%s while %d jobs are under way", signal.Format(&r.Head), l.owed)
	}
	t := &b.tables[r.Table]
	l.ref, l.kind = r.Ref, r.Kind
	switch {
	case r.Num == signal.NumSchemaPrepareReq && r.Kind == signal.SchemaCreate:
		b.prepareCreate(t, r)
	case r.Num == signal.NumSchemaCommitReq && r.Kind == signal.SchemaCreate:
		invariant.That(t.state == preparing, "what was prepared is committed")
		t.state = ready
		b.names[t.name] = r.Table
		l.jobs, l.next = l.jobs[:0], 0
		b.schemaConf(signal.NumSchemaCommitConf, 0)
	case r.Num == signal.NumSchemaAbortReq:
		invariant.That(t.state == preparing, "what was prepared is undone")
		b.undo(signal.NumSchemaAbortConf)
	case r.Num == signal.NumSchemaPrepareReq:
		invariant.That(t.state == ready && t.version == r.Version, "what is dropped is there")
		t.state = dropping
		b.listJobs(r.Table)
		b.start(closing, resting, signal.NumSchemaPrepareConf)
	default:
		invariant.That(t.state == dropping, "what was closed is given up")
		b.start(giving, resting, signal.NumSchemaCommitConf)
	}
}

func (b *Block) schemaConf(num uint16, code uint32) {
	c := kernel.Send[signal.SchemaConf](b.env, signal.MakeAddr(b.view.President, signal.BlockDictionary, 0), b.self, num)
	c.Ref, c.Code = b.local.ref, code
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
	if b.forget {
		b.forgetTables()
		return
	}
	b.schemaConf(l.conf, l.code)
	l.code = 0
}

// forgetTables gives up every table, one after the other, and then confirms that the attempt to start is forgotten.
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
	b.forget, l.code = false, 0
	b.phaseConf(&b.phase)
}

func (l *local) invariants() {
	if (l.doing == resting) != (l.owed == 0) || l.next > len(l.jobs) {
		invariant.Failf("in list %d, %d jobs are under way", l.doing, l.owed)
	}
}
