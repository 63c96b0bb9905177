package ldm

// Copies of fragments to recovering members (signal's copy.go): the form of what travels. copy_source.go is the primary's
// side, copy_target.go the new replica's.
//
// A run is a sequence of entries of whole words, in the order of row ids, or a single one that is sent when a row that
// was skipped is let go. An entry:
//
//	id       4  row id; of free slots the first; of an outcome the session
//	GCI      8  of the row's last change; of free slots: of the delete that they remember; of the commit
//	key      4  bytes of the key image; freeSlots: these slots are free; anOutcome: this is one
//	n        4  bytes of the variable image; of free slots how many they are; of an outcome the commit sequence number
//	key image, padded to whole words; fixed image; variable image         (of a row)
//	4           up to which number the session has heard of its commits   (of an outcome)
//
// What no entry tells of remembers nothing and holds no row. Outcomes come last: those which the primary's ldm keeps and
// whose clients may still ask about them. By then all writes that do not come down to the new replica have ended.

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/outcome"
	"github.com/cohortdb/cohort/internal/rowhash"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
)

// entryHead begins an entry.
type entryHead struct {
	id  store.RowID
	gci [2]uint32
	key uint32
	n   uint32
}

const (
	entryHeadSize = uint32(unsafe.Sizeof(entryHead{}))
	freeSlots     = ^uint32(0)
	anOutcome     = freeSlots - 1
	outcomeBytes  = entryHeadSize + 4
	runBytes      = 32 << 10 // a run is at most that long, but for one long row
	runSteps      = 4096     // … and looks at that many slots at most
	runWindow     = 4        // runs that may be under way
)

// appendRow appends a row's entry.
func (f *fragment) appendRow(run []byte, r *store.RowHead, id store.RowID) []byte {
	key, keyLen := f.rows.Key(r)
	v := committed(f, r)
	h := entryHead{id: id, gci: [2]uint32{r.GCILo, r.GCIHi}, key: keyLen, n: v.nvars}
	run = append(run, unsafe.Slice((*byte)(unsafe.Pointer(&h)), entryHeadSize)...)
	run = append(run, unsafe.Slice((*byte)(key), signal.Pad(keyLen))...)
	run = append(run, unsafe.Slice((*byte)(v.fixed), f.layout.FixedSize)...)
	return append(run, unsafe.Slice((*byte)(v.vars), v.nvars)...)
}

// rowEntryBytes is the length of a row's entry.
func (f *fragment) rowEntryBytes(r *store.RowHead) int {
	_, keyLen := f.rows.Key(r)
	_, nvars := f.rows.Var(r)
	return int(entryHeadSize + signal.Pad(keyLen) + f.layout.FixedSize + nvars)
}

func appendFree(run []byte, id store.RowID, n uint32, gci uint64) []byte {
	h := entryHead{id: id, gci: signal.GCI(gci).Words(), key: freeSlots, n: n}
	return append(run, unsafe.Slice((*byte)(unsafe.Pointer(&h)), entryHeadSize)...)
}

func appendOutcome(run []byte, o *outcome.Outcome) []byte {
	h := entryHead{id: uint32(o.Session), gci: o.GCI, key: anOutcome, n: o.Seq}
	run = append(run, unsafe.Slice((*byte)(unsafe.Pointer(&h)), entryHeadSize)...)
	return append(run, unsafe.Slice((*byte)(unsafe.Pointer(&o.Ack)), 4)...)
}

// Codes of a run that no replica sends.
const codeBadRun = 4005

// install puts a run's entries in place; 0 or a code. What arrives is checked as if it came from a stranger: the replica
// that takes it will be trusted like the one that it came from.
func (b *Block) install(f *fragment, body []byte, count uint32) uint32 {
	for ; count > 0; count-- {
		if len(body) < int(entryHeadSize) {
			return codeBadRun
		}
		h := *(*entryHead)(unsafe.Pointer(&body[0]))
		body = body[entryHeadSize:]
		if h.key == freeSlots {
			if code := b.installFree(f, &h); code != 0 {
				return code
			}
			continue
		}
		if h.key == anOutcome {
			session := signal.Addr(h.id)
			if len(body) < 4 || session.Block() != signal.BlockClient {
				return codeBadRun
			}
			if n := session.Node(); !b.gone[n] && b.changed[n] < f.target.ref && b.outcomes.Admit(session, *(*uint32)(unsafe.Pointer(&body[0]))) {
				b.outcomes.Record(session, h.n, h.gci)
			}
			body = body[4:]
			continue
		}
		fixed := uint64(f.layout.FixedSize)
		if uint64(h.key) > uint64(len(body)) || uint64(h.n) > uint64(len(body)) || uint64(signal.Pad(h.key))+fixed+uint64(h.n) > uint64(len(body)) {
			return codeBadRun
		}
		key, data := unsafe.Pointer(unsafe.SliceData(body)), unsafe.Pointer(unsafe.SliceData(body[signal.Pad(h.key):]))
		if f.layout.CheckKey(key, h.key) != 0 {
			return codeBadRun
		}
		if _, code := f.layout.CheckWrite(data, f.layout.FixedSize+h.n, true); code != 0 {
			return codeBadRun
		}
		if code := b.installRow(f, &h, request{key: key, keyLen: h.key, data: data, dataLen: f.layout.FixedSize + h.n}); code != 0 {
			return code
		}
		body = body[uint64(signal.Pad(h.key))+fixed+uint64(h.n):]
	}
	if len(body) != 0 {
		return codeBadRun
	}
	return 0
}

// installRow makes a row what its copy says. A row that is held here is held by something that an older view has left,
// and that has ended at the primary already: its end here leads to the same.
func (b *Block) installRow(f *fragment, h *entryHead, q request) uint32 {
	r, ok := f.rows.CheckedRow(h.id)
	switch {
	case !ok:
		code := uint32(0)
		if r, code = f.rows.InsertAt(h.id, rowhash.Hash(q.key, q.keyLen), q.key, q.keyLen, 0); code != 0 {
			return code
		}
	case r.Lock != 0:
		b.env.Mark(kernel.MarkCopyHeld)
		return 0
	default:
		if key, n := f.rows.Key(r); !sameBytes(key, n, q.key, q.keyLen) {
			return codeBadRun
		}
	}
	n := b.compute(f, signal.FlagAll, version{}, &q, f.rows.Fixed(r))
	if f.layout.HasVar() {
		if code := f.rows.SetVar(r, unsafe.Pointer(&b.work[0]), n); code != 0 {
			if !ok {
				f.rows.Remove(rowhash.Hash(q.key, q.keyLen), h.id, r.GCI())
			}
			return code
		}
	}
	r.GCILo, r.GCIHi = h.gci[0], h.gci[1]
	f.rows.UpdateSum(r)
	b.copier.rows++
	b.copier.bytes += uint64(entryHeadSize + h.key + q.dataLen)
	return 0
}

// installFree makes slots free, and remember what they do at the primary.
func (b *Block) installFree(f *fragment, h *entryHead) uint32 {
	gci := uint64(signal.JoinGCI(h.gci))
	for k := uint32(0); k < h.n && k < store.PageSize; k++ {
		r, ok := f.rows.CheckedRow(h.id + k)
		switch {
		case !ok:
		case r.Lock != 0:
			b.env.Mark(kernel.MarkCopyHeld)
		default:
			return codeBadRun // the primary had it deleted here, or has not yet let that pass
		}
	}
	if !f.rows.Forget(h.id, h.n, gci) {
		return codeBadRun
	}
	return 0
}
