package signal

import "unsafe"

// Kinds of schema transactions.
const (
	SchemaCreate = 1 + iota
	SchemaDrop
	schemaKinds
)

// CodeNodeFailure is NDB's code for a schema transaction that ended with the loss of a node.
const CodeNodeFailure = 786

// SchemaReq is a step of a schema transaction, from the president's dictionary to every member's. Behind the prepare
// of a create: definition (padded), map (padded), homes, as in TableOpenReq; behind all others nothing.
//
//	client --TableCreateReq--> any node --TableCreateReq--> president
//	president --SchemaPrepareReq--> all members --SchemaPrepareConf--> president
//	president --SchemaCommitReq--> all members --SchemaCommitConf--> president      (or SchemaAbortReq and …Conf)
//	president --TableCreateConf--> any node --TableCreateConf--> client
//
// A member that has done a step already, for a president that was lost, answers at once.
type SchemaReq struct {
	Head
	Ref       uint32 // number of the schema transaction, from 1; it grows, across presidents too
	Kind      uint32 // SchemaCreate or SchemaDrop
	Table     uint32
	Version   uint32
	Asker     Addr   // the dictionary that has passed the request on to the president, 0 = none
	AskerRef  uint32 // its number of the request
	Alone     uint32 // 1: a table that is there already is told to a member that joins
	Code      uint32 // of an abort: why; CodeNodeFailure: the president was lost, the request goes to the new one
	Fragments uint32
	Buckets   uint32
	DefLen    uint32
}

// Def is the table definition.
func (r *SchemaReq) Def() []byte { return tail(r, 0, r.DefLen) }

// Map is bucket → fragment.
func (r *SchemaReq) Map() []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Add(unsafe.Pointer(r), uint32(unsafe.Sizeof(*r))+Pad(r.DefLen))), r.Buckets)
}

// Chains is fragment → places, MaxReplicas each.
func (r *SchemaReq) Chains() []Addr {
	o := uint32(unsafe.Sizeof(*r)) + Pad(r.DefLen) + Pad(2*r.Buckets)
	return unsafe.Slice((*Addr)(unsafe.Add(unsafe.Pointer(r), o)), r.Fragments*MaxReplicas)
}

// SchemaReqSize is the size of a whole SchemaReq in bytes.
func SchemaReqSize(def, buckets, fragments uint32) uint32 {
	return uint32(unsafe.Sizeof(SchemaReq{})) + Pad(def) + Pad(2*buckets) + 4*MaxReplicas*fragments
}

// SchemaConf answers each step.
type SchemaConf struct {
	Head
	Ref  uint32
	Code uint32 // 0, or the error code that a prepare ended with
}

// SchemaStateReq is a new president's question what each member knows of the newest schema transaction. Whoever has not
// committed the president's view yet, or is working on a step, answers when that is over.
//
//	president --SchemaStateReq--> all members --SchemaStateConf--> president
//	steps of the transaction that was under way
//	president --SchemaGoOrd--> all members: send your requests
type SchemaStateReq struct {
	Head
	View uint32 // the president's
}

// SchemaStateConf answers.
type SchemaStateConf struct {
	Head
	View     uint32 // as asked
	Ref      uint32 // of the newest schema transaction that the sender has seen; 0 = none
	Kind     uint32 // of it; 0 with Ref 0
	Table    uint32
	Version  uint32
	Step     uint32 // one of the Schema constants: what has ended at the sender
	Code     uint32 // of a prepare that has ended at the sender: 0, or the error code
	Alone    uint32 // 1: it only told the sender what it had missed
	Part     uint32 // PartNone or PartFull
	Asker    Addr   // … of it
	AskerRef uint32
}

// How far a member is with a schema transaction.
const (
	SchemaPrepared  uint32 = 1 + iota // its part is made, or could not be, or its table is closed
	SchemaCommitted                   // the table is there, or given up
	SchemaAborted                     // the create is undone
	schemaSteps
)

// SchemaGoOrd tells members that nothing is left of what the last president had begun: the new one takes requests.
type SchemaGoOrd struct {
	Head
	View uint32
}

// SchemaJoinReq asks the president to tell the sender, which is joining, all tables, and to let it take part in schema
// transactions from then on.
//
//	new member --SchemaJoinReq--> president
//	president --SchemaPrepareReq, SchemaCommitReq (Alone)--> new member --…Conf--> president     for each table
//	president --SchemaJoinConf--> new member
type SchemaJoinReq struct{ Head }

// SchemaJoinConf answers. Behind it, Count words: for each id that is free now but was used, id<<16 | version of the
// last table that had it. With a Code there are none.
type SchemaJoinConf struct {
	Head
	Code  uint32 // 0, or the error code with which the sender refused a table
	Table uint32 // which one
	Count uint32
}

// Versions is id<<16 | version.
func (r *SchemaJoinConf) Versions() []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Add(unsafe.Pointer(r), unsafe.Sizeof(*r))), r.Count)
}

// SchemaJoinConfSize is the size of a whole SchemaJoinConf in bytes.
func SchemaJoinConfSize(versions uint32) uint32 {
	return uint32(unsafe.Sizeof(SchemaJoinConf{})) + 4*versions
}

func checkSchema(p *SchemaReq, n uint32) bool {
	return p.DefLen <= MaxSize && p.Buckets <= MaxSize && p.Fragments <= MaxSize/16 && p.Alone <= 1 &&
		n == SchemaReqSize(p.DefLen, p.Buckets, p.Fragments) && (p.Kind == SchemaCreate || p.Kind == SchemaDrop)
}

func init() {
	registerAs(NumSchemaPrepareReq, "SchemaPrepareReq", fromData, checkSchema)
	registerAs[SchemaConf](NumSchemaPrepareConf, "SchemaPrepareConf", fromData, nil)
	registerAs(NumSchemaCommitReq, "SchemaCommitReq", fromData, checkSchema)
	registerAs[SchemaConf](NumSchemaCommitConf, "SchemaCommitConf", fromData, nil)
	registerAs(NumSchemaAbortReq, "SchemaAbortReq", fromData, checkSchema)
	registerAs[SchemaConf](NumSchemaAbortConf, "SchemaAbortConf", fromData, nil)
	register[SchemaStateReq](NumSchemaStateReq, fromData, nil)
	register(NumSchemaStateConf, fromData, func(p *SchemaStateConf, n uint32) bool {
		return n == FixedSize(NumSchemaStateConf) && p.Kind < schemaKinds && p.Step < schemaSteps && p.Alone <= 1 && p.Part < partEnd &&
			(p.Ref == 0) == (p.Kind == 0) && (p.Ref == 0) == (p.Step == 0)
	})
	register[SchemaGoOrd](NumSchemaGoOrd, fromData, nil)
	register[SchemaJoinReq](NumSchemaJoinReq, fromData, nil)
	register(NumSchemaJoinConf, fromData, func(p *SchemaJoinConf, n uint32) bool {
		return p.Count <= MaxSize/4 && n == SchemaJoinConfSize(p.Count)
	})
}
