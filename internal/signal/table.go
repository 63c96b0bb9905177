package signal

import "unsafe"

// MaxName bounds database and table names in bytes.
const MaxName = 255

// TableNameReq names a table: TableInfoReq asks for its definition and map, TableDropReq drops it. Any data node
// takes it; the president acts. Behind it: "database/table", padded.
type TableNameReq struct {
	Head
	Ref     uint32
	NameLen uint32 // bytes
}

// Name is "database/table".
func (r *TableNameReq) Name() []byte { return tail(r, 0, r.NameLen) }

// TableInfoConf carries definition, map and chains of a table, laid out as in TableOpenReq.
type TableInfoConf = TableOpenReq

// TableRef refuses a request about a table.
type TableRef struct {
	Head
	Ref  uint32
	Code uint32
}

// TableCreateReq creates a table. Behind it: the definition (schema encoding), padded. Fragments 0 in the
// definition means the default number.
type TableCreateReq struct {
	Head
	Ref    uint32
	DefLen uint32
}

// Def is the table definition.
func (r *TableCreateReq) Def() []byte { return tail(r, 0, r.DefLen) }

// TableDone answers create and drop.
type TableDone struct {
	Head
	Ref     uint32
	Table   uint32
	Version uint32
}

// TableListReq asks for the names of tables with an id above After.
type TableListReq struct {
	Head
	Ref   uint32
	After uint32 // table id + 1 of the last one seen; 0 = from the start
}

// TableListConf lists tables: Count entries, each {id uint32, version uint32, flags uint32, name length uint32,
// name padded}; More = 1 when there are further ones.
type TableListConf struct {
	Head
	Ref     uint32
	Count   uint32
	More    uint32
	BodyLen uint32
}

// Body is the entries.
func (r *TableListConf) Body() []byte { return tail(r, 0, r.BodyLen) }

func checkName(p *TableNameReq, n uint32) bool {
	return p.NameLen >= 1 && p.NameLen <= 2*MaxName+1 && n == uint32(unsafe.Sizeof(*p))+Pad(p.NameLen)
}

func init() {
	both := uint8(fromAPI | fromData)
	registerAs(NumTableInfoReq, "TableInfoReq", both, checkName)
	registerAs(NumTableInfoConf, "TableInfoConf", fromData, func(p *TableOpenReq, n uint32) bool {
		return p.DefLen <= MaxSize && p.Buckets <= MaxSize && p.Fragments <= MaxSize/16 &&
			n == TableOpenSize(p.DefLen, p.Buckets, p.Fragments)
	})
	register[TableRef](NumTableRef, fromData, nil)
	register(NumTableCreateReq, both, func(p *TableCreateReq, n uint32) bool {
		return p.DefLen <= MaxSize && n == uint32(unsafe.Sizeof(*p))+Pad(p.DefLen)
	})
	registerAs[TableDone](NumTableCreateConf, "TableCreateConf", fromData, nil)
	registerAs(NumTableDropReq, "TableDropReq", both, checkName)
	registerAs[TableDone](NumTableDropConf, "TableDropConf", fromData, nil)
	register[TableListReq](NumTableListReq, both, nil)
	register(NumTableListConf, fromData, func(p *TableListConf, n uint32) bool {
		return p.BodyLen <= MaxSize && n == uint32(unsafe.Sizeof(*p))+Pad(p.BodyLen)
	})
}
