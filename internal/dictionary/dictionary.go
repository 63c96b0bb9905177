// Package dictionary holds the tables: created and dropped everywhere or nowhere [DBDICT].
//
// A Block is one node's. It owns the definition of each table, its map (bucket → fragment) and its homes (fragment →
// places), and tells clients about them. It holds no row and executes no operation: fragment replicas are the ldms',
// coordinators get what they need to know of a table by TableOpenReq.
//
// Any node takes a client's request. The president carries requests out one at a time, in the order of their coming, as
// schema transactions (president.go): all nodes prepare, then all commit, or all undo; each node's part is in local.go.
// A table is told to clients at its commit, and by then every coordinator and ldm of the cluster knows it, so that a
// client may use it through any node as soon as it hears of it.
//
// Failures (view.go): a lost member is not waited for. A new president asks all others what they know of what was under
// way, and finishes it: a create that may have been committed anywhere is committed everywhere, any other is undone; a drop
// that has begun is finished. Then it takes requests again: each node answers those that it had passed on to the lost president
// if it knows what became of them, and sends it the rest, of which nothing has happened. A client notices nothing but
// the time. A drop gives no rows up before the end of a takeover, which may still need the fragments.
//
// Joining (join.go): the president tells a node that joins every table, while no schema transaction runs; from then on the
// node takes part in them. If either is lost in between, the node forgets what it was told and begins again.
//
// Bounds: MaxTables tables and MaxAttributes columns; queueMax requests that wait at the president and as many that were
// passed on to it (701 beyond that); windowMax requests under way to the own ldms. A client that vanishes
// leaves its request behind; it is carried out, and nobody is told.
//
// Invariants (checked by Invariants): a name belongs to at most one table that is ready; at most one schema transaction
// is under way; ids are given lowest first, and a version is never 0 and never the one before it; the numbers of schema
// transactions grow, across presidents too.
//
// Read next: president.go, local.go, requests.go, view.go, join.go.
package dictionary

import (
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/view"
)

// Codes of NDB's that the dictionary gives.
const (
	codeDropping     = 283 // the table is being dropped
	codeBusy         = 701 // too many schema operations wait
	codeTables       = 707 // MaxNoOfTables
	codeAttributes   = 708 // MaxNoOfAttributes
	codeStarting     = 711 // the cluster is not started
	codeExists       = 721 // there is a table of that name
	codeNoTable      = 723 // there is none
	codeNodeFailure  = signal.CodeNodeFailure
	codeBadStructure = 4005 // a client that breaks the protocol
)

const (
	queueMax = 64
	// windowMax is how many requests to the own ldms are under way at once: each carries the whole definition.
	windowMax = 16
	// defMax bounds a definition in bytes; schema's own limits keep it below.
	defMax = 128 << 10
	// listMax is the size of one answer to a TableListReq, in bytes of entries.
	listMax = 32 << 10
	// typeUserTable is NDB's number for the type of a schema object that is a table.
	typeUserTable = 2
)

// Config is what the block is made with.
type Config struct {
	MaxTables     int // MaxNoOfTables
	MaxAttributes int // MaxNoOfAttributes: columns of all tables together
	// CloseWait is how long transactions may go on using a table that is being dropped, milliseconds.
	CloseWait uint32
}

// tableState is how far a table is at this node.
type tableState uint8

const (
	// free: no table has the id.
	free tableState = iota
	// preparing: being created; clients do not see it yet.
	preparing
	// ready: clients use it.
	ready
	// dropping: clients do not see it any more.
	dropping
)

// table is what the node knows of a table.
type table struct {
	state   tableState
	version uint32 // of the newest table with this id; kept while the id is free
	name    string // "database/table"
	def     []byte
	columns int
	logging bool
	buckets []uint16
	homes   []signal.Addr // places, signal.MaxReplicas for each fragment (package view)
}

// Block is the dictionary of one node.
type Block struct {
	env  *kernel.Env
	cfg  Config
	self signal.Addr

	tables     []table           // by id
	names      map[string]uint32 // "database/table" → id of a table that is ready or being dropped
	attributes int               // columns of all tables

	view    view.View // who is in the cluster; nobody before the start
	part    uint32    // PartNone until the own node has been told all tables, PartFull then
	settled bool      // nothing is left of what a lost president had begun: the present one takes requests
	over    takeover

	lead     leader    // the president's part
	local    local     // this node's part in the schema transaction
	forwards []request // that wait for the president
	forget   forgetting
	phase    signal.PhaseReq // phase 0 or 4, while its answer is owed
	joining  bool            // phase 4: the president tells this node all tables

	// Stale counts signals that came too late to matter.
	Stale uint64
}

// forgetting is why every table of the node goes.
type forgetting uint8

const (
	// keeps: it does not.
	keeps forgetting = iota
	// forgetsAttempt: an attempt to start was given up.
	forgetsAttempt
	// forgetsTold: the president was lost while it told this node its tables.
	forgetsTold
)

// New makes the block.
func New(env *kernel.Env, cfg Config) *Block {
	invariant.That(cfg.MaxTables > 0 && cfg.MaxTables <= schema.MaxTableID, "there is room for tables, and ids for all")
	return &Block{env: env, cfg: cfg, self: signal.MakeAddr(env.Node(), signal.BlockDictionary, 0),
		tables: make([]table, cfg.MaxTables), names: map[string]uint32{}, forwards: make([]request, queueMax)}
}

// Deliver executes one signal.
func (b *Block) Deliver(h *signal.Head) {
	switch h.Num {
	case signal.NumTableInfoReq:
		b.onTableInfoReq(signal.As[signal.TableNameReq](h))
	case signal.NumTableListReq:
		b.onTableListReq(signal.As[signal.TableListReq](h))
	case signal.NumTableCreateReq:
		b.onTableCreateReq(signal.As[signal.TableCreateReq](h))
	case signal.NumTableDropReq:
		b.onTableDropReq(signal.As[signal.TableNameReq](h))
	case signal.NumTableCreateConf, signal.NumTableDropConf:
		b.onTableDone(signal.As[signal.TableDone](h))
	case signal.NumTableRef:
		b.onTableRef(signal.As[signal.TableRef](h))
	case signal.NumPlaceConf:
		b.onPlaceConf(signal.As[signal.PlaceConf](h))
	case signal.NumSchemaPrepareReq, signal.NumSchemaCommitReq, signal.NumSchemaAbortReq:
		b.onSchemaReq(signal.As[signal.SchemaReq](h))
	case signal.NumSchemaPrepareConf, signal.NumSchemaCommitConf, signal.NumSchemaAbortConf:
		b.onSchemaConf(signal.As[signal.SchemaConf](h))
	case signal.NumFragCreateConf, signal.NumFragDropConf:
		r := signal.As[signal.FragConf](h)
		b.onJobDone(r.Ref, r.Code, h.Num)
	case signal.NumTableOpenConf, signal.NumTableCloseConf:
		r := signal.As[signal.TableConf](h)
		b.onJobDone(r.Ref, r.Code, h.Num)
	case signal.NumSchemaStateReq:
		b.onSchemaStateReq(signal.As[signal.SchemaStateReq](h))
	case signal.NumSchemaStateConf:
		b.onSchemaStateConf(signal.As[signal.SchemaStateConf](h))
	case signal.NumSchemaGoOrd:
		b.onSchemaGoOrd(signal.As[signal.SchemaGoOrd](h))
	case signal.NumSchemaJoinReq:
		b.onSchemaJoinReq(signal.As[signal.SchemaJoinReq](h))
	case signal.NumSchemaJoinConf:
		b.onSchemaJoinConf(signal.As[signal.SchemaJoinConf](h))
	case signal.NumViewPrepareReq:
		b.onViewPrepareReq(signal.As[signal.ViewReq](h))
	case signal.NumViewCommitReq:
		b.onViewCommitReq(signal.As[signal.ViewReq](h))
	case signal.NumTakeoverRep:
		b.onTakeoverRep(signal.As[signal.TakeoverRep](h))
	case signal.NumPhaseReq:
		b.onPhaseReq(signal.As[signal.PhaseReq](h))
	case signal.NumNodeFailRep:
		b.onNodeFailRep(signal.As[signal.NodeFailRep](h))
	default:
		invariant.Failf("the dictionary has no handler for %s", signal.Format(h))
	}
}

func (b *Block) isPresident() bool { return b.view.President == b.env.Node() }

// begun tells whether the own node has agreed with others who is in the cluster.
func (b *Block) begun() bool { return len(b.view.Members) > 0 }

// running tells whether the own node knows all tables and may take requests to change them.
func (b *Block) running() bool { return b.part == signal.PartFull && b.forget == keeps }

// onPhaseReq runs a start phase: in 4 the tables are ready (at a start of the cluster there are none, for nothing was kept
// from an earlier run; a node that joins is told them by the president); in 0 an attempt to start is forgotten, with
// tables that a node may have made that was started a moment before the others.
func (b *Block) onPhaseReq(r *signal.PhaseReq) {
	switch r.Phase {
	case 0:
		b.view.Clear()
		b.forget, b.phase = forgetsAttempt, *r
		b.part, b.settled, b.joining = signal.PartNone, false, false
		b.over = takeover{}
		b.lead = leader{next: b.lead.next}
		clear(b.forwards)
		b.forgetTables()
	case 4:
		invariant.That(b.begun(), "members are agreed before phase 4")
		b.phase = *r
		if b.part == signal.PartFull {
			b.phaseConf(0)
			return
		}
		if !b.joining {
			b.joining = true
			b.askTables()
		}
	default:
		invariant.Failf("the dictionary has nothing to do in phase %d", r.Phase)
	}
}

// phaseConf answers the phase.
func (b *Block) phaseConf(code uint32) {
	c := kernel.Send[signal.PhaseConf](b.env, signal.MakeAddr(b.env.Node(), signal.BlockMembership, 0), b.self, signal.NumPhaseConf)
	c.President, c.Attempt, c.Phase, c.Code = b.phase.President, b.phase.Attempt, b.phase.Phase, code
}

// onNodeFailRep hears that a client is gone: nobody waits for its answers any more. What a lost data node means is said
// by a change of the view.
func (b *Block) onNodeFailRep(r *signal.NodeFailRep) {
	n := uint8(r.Node)
	if signal.Peer(r.Kind) != signal.PeerData {
		b.orphan(n)
	}
	c := kernel.Send[signal.NodeFailConf](b.env, r.From, b.self, signal.NumNodeFailConf)
	c.Node = uint32(n)
}

// lookup finds a table by its name.
func (b *Block) lookup(name []byte) (uint32, *table) {
	id, ok := b.names[string(name)]
	if !ok {
		return 0, nil
	}
	return id, &b.tables[id]
}

func (b *Block) report(t event.Type, text string, args ...uint32) {
	e := event.New(b.env.Node(), t, args...).WithText(text)
	b.env.Report(b.self, &e)
}

// Invariants checks the block as a whole; it is called between signals.
func (b *Block) Invariants() {
	named, columns := 0, 0
	for i := range b.tables {
		t := &b.tables[i]
		columns += t.columns
		switch t.state {
		case free:
			invariant.That(t.def == nil && t.columns == 0, "a free id has no definition")
		case preparing:
			if b.local.table != uint32(i) {
				invariant.Failf("table %d is being prepared by nobody", i)
			}
		case ready, dropping:
			named++
			if id, ok := b.names[t.name]; !ok || id != uint32(i) {
				invariant.Failf("table %d is not found by its name %q", i, t.name)
			}
		}
		if t.state != free && t.version == 0 {
			invariant.Failf("table %d has version 0", i)
		}
	}
	if b.part == signal.PartFull && !b.begun() {
		invariant.Failf("a node that is in no cluster takes part")
	}
	if named != len(b.names) || columns != b.attributes {
		invariant.Failf("%d names of %d tables, %d columns counted as %d", len(b.names), named, columns, b.attributes)
	}
	b.lead.invariants(b)
	b.local.invariants()
}
