package signal

import "unsafe"

// MaxReplicas is the largest number of replicas of a fragment.
const MaxReplicas = 4

// FragCreateReq makes an ldm hold a replica of a fragment. Behind it: the table definition (schema encoding),
// the same for each fragment; an ldm decodes it once per table. Sent by the own node's dictionary.
type FragCreateReq struct {
	Head
	Ref      uint32
	Table    uint32
	Version  uint32
	Frag     uint32
	Replicas uint32            // how many of the following are used
	Chain    [MaxReplicas]Addr // its home: places, the preferred primary first (package view)
	DefLen   uint32            // bytes of definition that follow
}

// Def is the table definition.
func (r *FragCreateReq) Def() []byte { return tail(r, 0, r.DefLen) }

// FragConf answers create and drop of a fragment. Code 0 = done.
type FragConf struct {
	Head
	Ref   uint32
	Table uint32
	Frag  uint32
	Code  uint32
}

// FragDropReq gives a fragment replica up; the answer comes when all its pages are back in the pool.
type FragDropReq struct {
	Head
	Ref   uint32
	Table uint32
	Frag  uint32
}

// TableOpenReq makes a coordinator know a table: its definition and where its fragments are. Behind it: the
// definition (DefLen bytes, padded), the map of BucketCount uint16 (bucket → fragment), then the home of each fragment:
// MaxReplicas places, the preferred primary first, 0 = none (package view). As TableInfoConf it tells a client the same,
// but with the ldms that hold each fragment now, in the order in which they take a write, instead of places.
type TableOpenReq struct {
	Head
	Ref       uint32
	Table     uint32
	Version   uint32
	Fragments uint32
	Buckets   uint32
	DefLen    uint32
}

// Def is the table definition.
func (r *TableOpenReq) Def() []byte { return tail(r, 0, r.DefLen) }

// Map is bucket → fragment.
func (r *TableOpenReq) Map() []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Add(unsafe.Pointer(r), uint32(unsafe.Sizeof(*r))+Pad(r.DefLen))), r.Buckets)
}

// Chains is fragment → places, MaxReplicas each; ldms in a TableInfoConf.
func (r *TableOpenReq) Chains() []Addr {
	o := uint32(unsafe.Sizeof(*r)) + Pad(r.DefLen) + Pad(2*r.Buckets)
	return unsafe.Slice((*Addr)(unsafe.Add(unsafe.Pointer(r), o)), r.Fragments*MaxReplicas)
}

// TableOpenSize is the size of a whole TableOpenReq in bytes.
func TableOpenSize(def, buckets, fragments uint32) uint32 {
	return uint32(unsafe.Sizeof(TableOpenReq{})) + Pad(def) + Pad(2*buckets) + 4*MaxReplicas*fragments
}

// TableCloseReq makes a coordinator refuse new operations on the table; it answers when no transaction uses it. Those
// that still do after WaitMillis are rolled back. It makes an ldm refuse new transactions of one operation on it, and
// answers when none is under way.
type TableCloseReq struct {
	Head
	Ref        uint32
	Table      uint32
	WaitMillis uint32
}

// TableConf answers open and close. Code 0 = done.
type TableConf struct {
	Head
	Ref   uint32
	Table uint32
	Code  uint32
}

func init() {
	register(NumFragCreateReq, 0, func(p *FragCreateReq, n uint32) bool {
		return n == uint32(unsafe.Sizeof(*p))+Pad(p.DefLen)
	})
	registerAs[FragConf](NumFragCreateConf, "FragCreateConf", 0, nil)
	register[FragDropReq](NumFragDropReq, 0, nil)
	registerAs[FragConf](NumFragDropConf, "FragDropConf", 0, nil)
	register(NumTableOpenReq, 0, func(p *TableOpenReq, n uint32) bool {
		return p.DefLen <= MaxSize && p.Buckets <= MaxSize && p.Fragments <= MaxSize/16 &&
			n == TableOpenSize(p.DefLen, p.Buckets, p.Fragments)
	})
	registerAs[TableConf](NumTableOpenConf, "TableOpenConf", 0, nil)
	register[TableCloseReq](NumTableCloseReq, 0, nil)
	registerAs[TableConf](NumTableCloseConf, "TableCloseConf", 0, nil)
	registerAs[FragDropReq](NumDropStepOrd, "DropStepOrd", 0, nil)
}
