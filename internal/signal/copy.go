package signal

import "unsafe"

// CopyReq asks the primary of a fragment to let the sender's replica, at a recovering member, catch up. From then on the
// primary puts the sender behind itself in the chain of every write it lets through, and sends it the rows in the order
// of their ids, on the same way as those writes, so that the two keep their order:
//
//	new replica --CopyReq--> primary --CopyRowsOrd…--> new replica --CopyAckOrd…--> primary
//	                         (or CopyRef: not now, Code says why; ask again a little later)
//
// The replica executes a write on a row that it has, and an insert; any other it lets pass without effect, since the
// row's copy is still to come: the primary sends no row while a write on it is under way.
type CopyReq struct {
	Head
	Ref     uint32 // of this request, echoed in all that belongs to it
	Table   uint32
	Version uint32
	Frag    uint32
	GCI     [2]uint32 // only what is newer; 0 = everything
}

// CopyRef refuses, or ends a copy that cannot go on.
type CopyRef struct {
	Head
	Ref   uint32
	Table uint32
	Frag  uint32
	Code  uint32
}

// CopyRowsOrd carries rows: Count entries in BodyLen bytes, in the form that package ldm describes.
type CopyRowsOrd struct {
	Head
	Ref     uint32
	Table   uint32
	Frag    uint32
	Run     uint32 // number of this run, from 1
	Last    uint32 // 1: nothing is left to copy
	Count   uint32
	BodyLen uint32
}

// Body is the entries.
func (r *CopyRowsOrd) Body() []byte { return tail(r, 0, r.BodyLen) }

// CopyAckOrd tells the primary that a run is in place, so that it may send another. As CopyStepOrd an ldm tells itself to
// go on with a copy.
type CopyAckOrd struct {
	Head
	Ref   uint32
	Table uint32
	Frag  uint32
	Run   uint32
	Code  uint32 // not 0: the replica cannot hold it; the copy is over
}

// CopyStartReq is the distribution's word to the ldms of its recovering node to copy their fragments, those that are
// created later too; the answer comes when all that are there are complete.
type CopyStartReq struct {
	Head
	Ref uint32
}

// CopyStartConf answers.
type CopyStartConf struct {
	Head
	Ref   uint32
	Code  uint32 // not 0: it cannot be done, the node must give up
	Rows  [2]uint32
	Bytes [2]uint32
}

func init() {
	register[CopyReq](NumCopyReq, fromData, nil)
	register[CopyRef](NumCopyRef, fromData, nil)
	register(NumCopyRowsOrd, fromData, func(p *CopyRowsOrd, n uint32) bool {
		return p.BodyLen <= MaxSize && n == uint32(unsafe.Sizeof(*p))+Pad(p.BodyLen)
	})
	registerAs[CopyAckOrd](NumCopyAckOrd, "CopyAckOrd", fromData, nil)
	registerAs[CopyAckOrd](NumCopyStepOrd, "CopyStepOrd", 0, nil)
	register[CopyStartReq](NumCopyStartReq, 0, nil)
	register[CopyStartConf](NumCopyStartConf, 0, nil)
}
