package coordinator_test

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/coordinator"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/ldm"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
	"github.com/cohortdb/cohort/internal/view"
)

// bench is one data node of one thread, driven as a runtime would: windows of 16 requests with touch-ahead. The row is
// flexAsynch's: 8 bytes of key, 4 of value.
type bench struct {
	env *kernel.Env
	tc  *coordinator.Block
	ldm *ldm.Block
	win [16][16]uint32 // requests of a window
	num uint32
}

func newBench(b testing.TB) *bench {
	e := kernel.NewEnv(1, 0, 1, 1<<18)
	for _, blk := range []uint8{signal.BlockTC, signal.BlockLDM, signal.BlockDictionary, signal.BlockDistribution, signal.BlockManager} {
		e.Place(blk, 0, 0)
	}
	e.Via(clientNode, clientNode)
	e.Buf(clientNode).Init(1<<20, 1<<24)
	r, src := store.NewLocalSource(256<<20, 2<<20, false)
	cr, csrc := store.NewLocalSource(8<<20, 256<<10, false)
	x := &bench{env: e, tc: coordinator.New(e, coordinator.Config{MaxTransactions: 16384, MaxOperations: 32768, MaxTables: 8, Sessions: 8}),
		ldm: ldm.New(e, ldm.Config{Arena: store.NewArena(r, src), Copies: store.NewCopyPool(store.NewArena(cr, csrc)),
			MaxOperations: 32768, MaxTables: 8, Sessions: 8, LockTimeout: 1e9})}
	def := &schema.Table{ID: 3, Version: 1, Database: "d", Name: "t", Fragments: 1, Columns: []schema.Column{
		{Name: "DISTKEY", Type: schema.Unsigned, PrimaryKey: true, DistributionKey: true},
		{Name: "COL0", Type: schema.Unsigned, PrimaryKey: true}, {Name: "COL1", Type: schema.Unsigned}}}
	d, err := def.AppendBinary(nil)
	if err != nil {
		b.Fatal(err)
	}
	dict := signal.MakeAddr(1, signal.BlockDictionary, 0)
	ldmAddr, tcAddr := signal.MakeAddr(1, signal.BlockLDM, 0), signal.MakeAddr(1, signal.BlockTC, 0)
	e.Place(signal.BlockMembership, 0, 0)
	var v view.View
	v.Take(1, 1, members(1, 1, 1, 1))
	putView(e, []signal.Addr{ldmAddr, tcAddr}, signal.NumViewCommitReq, &v, 1)
	f := (*signal.FragCreateReq)(e.Put(ldmAddr, dict, signal.NumFragCreateReq, uint32(unsafe.Sizeof(signal.FragCreateReq{}))+signal.Pad(uint32(len(d)))))
	f.Ref, f.Table, f.Version, f.Frag, f.Replicas, f.DefLen = 0, 3, 1, 0, 1, uint32(len(d))
	f.Chain = [signal.MaxReplicas]signal.Addr{ldmAddr}
	copy(f.Def(), d)
	o := (*signal.TableOpenReq)(e.Put(tcAddr, dict, signal.NumTableOpenReq, signal.TableOpenSize(uint32(len(d)), 0, 1)))
	o.Ref, o.Table, o.Version, o.Fragments, o.Buckets, o.DefLen = 0, 3, 1, 1, 0, uint32(len(d))
	o.Chains()[0] = ldmAddr
	for _, num := range []uint16{signal.NumEpochPrepareReq, signal.NumEpochCommitReq} {
		for _, a := range []signal.Addr{ldmAddr, tcAddr} {
			kernel.Send[signal.EpochReq](e, a, dict, num).GCI = [2]uint32{0, 1}
		}
	}
	e.RunJobs(x.deliver, 1<<30)
	return x
}

func (x *bench) deliver(p unsafe.Pointer) {
	h := (*signal.Head)(p)
	switch h.To.Block() {
	case signal.BlockTC:
		x.tc.Deliver(h)
	case signal.BlockLDM:
		x.ldm.Deliver(h)
	}
}

// window sends 16 operations on keys k(0) … k(15) and executes them.
func (x *bench) window(num uint16, op, flags uint8, k func(i uint32) uint32) {
	dl := uint32(4)
	if signal.IsRead(op) || op == signal.OpDelete {
		dl = 0
	}
	to := signal.MakeAddr(1, signal.BlockLDM, 0)
	if num == signal.NumKeyReq {
		to = signal.MakeAddr(1, signal.BlockTC, 0)
	}
	for i := range x.win {
		x.num++
		r := (*signal.KeyReq)(unsafe.Pointer(&x.win[i][0]))
		r.Len, r.Num, r.To, r.From = uint16((signal.KeyReqSize+8+dl)/4), num, to, signal.MakeAddr(clientNode, signal.BlockClient, 1)
		r.Ref, r.Tx, r.Seq, r.Ack, r.Table, r.Version, r.Frag, r.Op, r.Flags = x.num, x.num, x.num, x.num-1, 3, 1, 0, op, flags|signal.FlagAll
		if dl == 0 && op != signal.OpDelete {
			r.Seq = 0
		}
		r.KeyLen, r.DataLen = 8, uint16(dl)
		key := k(uint32(i))
		*(*[2]uint32)(r.Key()) = [2]uint32{key, key}
		if dl > 0 {
			*(*uint32)(r.Data()) = key
		}
	}
	var p [16]unsafe.Pointer
	var f [16]*store.Fragment
	var h [16]uint64
	for i := range x.win {
		p[i], f[i], h[i] = x.ldm.Aim((*signal.Head)(unsafe.Pointer(&x.win[i][0])))
	}
	store.Prefetch16(&p)
	for i := range f {
		if f[i] != nil {
			p[i] = f[i].RowPtr(h[i])
		}
	}
	store.PrefetchRows16(&p)
	for i := range x.win {
		x.deliver(unsafe.Pointer(&x.win[i][0]))
		x.env.RunJobs(x.deliver, 1<<30)
	}
	b := x.env.Buf(clientNode)
	if b.Len() < 16*16 {
		panic(fmt.Sprint("answers: ", b.Len()))
	}
	b.Consume(b.Len())
	x.env.TakeDirty(func(kernel.Dest, *kernel.Buf) {})
}

// BenchmarkBlocks: what an operation costs in coordinator and ldm, without sockets: ns per operation over 2 million
// rows in random order.
func BenchmarkBlocks(b *testing.B) {
	x := newBench(b)
	const rows = 2 << 20
	for i := uint32(0); i < rows; i += 16 {
		x.window(signal.NumWriteReq, signal.OpInsert, 0, func(j uint32) uint32 { return i + j })
	}
	one := signal.FlagStart | signal.FlagExecute | signal.FlagCommit
	for _, c := range []struct {
		name      string
		num       uint16
		op, flags uint8
	}{
		{"read", signal.NumReadReq, signal.OpReadCommitted, 0},
		{"update", signal.NumWriteReq, signal.OpUpdate, 0},
		{"tc-read", signal.NumKeyReq, signal.OpReadCommitted, one},
		{"tc-locking-read", signal.NumKeyReq, signal.OpReadExclusive, one},
		{"tc-update", signal.NumKeyReq, signal.OpUpdate, one},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			at := uint32(1)
			for i := 0; i < b.N; i += 16 {
				x.window(c.num, c.op, c.flags, func(uint32) uint32 {
					at = (at*1664525 + 1013904223) % rows
					return at
				})
			}
		})
	}
}

// TestNoAllocation: an operation allocates nothing in coordinator, ldm and store.
func TestNoAllocation(t *testing.T) {
	x := newBench(t)
	at := uint32(0)
	next := func(uint32) uint32 { at++; return at % 4096 }
	one := signal.FlagStart | signal.FlagExecute | signal.FlagCommit
	for range 256 {
		x.window(signal.NumWriteReq, signal.OpInsert, 0, next)
	}
	for _, c := range []struct {
		name      string
		num       uint16
		op, flags uint8
	}{
		{"committed read", signal.NumReadReq, signal.OpReadCommitted, 0},
		{"one-shot update", signal.NumWriteReq, signal.OpUpdate, 0},
		{"one-shot write", signal.NumWriteReq, signal.OpWrite, 0},
		{"read of a coordinator", signal.NumKeyReq, signal.OpReadCommitted, one},
		{"locking read", signal.NumKeyReq, signal.OpReadExclusive, one},
		{"update of a coordinator", signal.NumKeyReq, signal.OpUpdate, one},
		{"delete of a coordinator", signal.NumKeyReq, signal.OpDelete, one},
		{"insert of a coordinator", signal.NumKeyReq, signal.OpInsert, one},
		{"one-shot delete", signal.NumWriteReq, signal.OpDelete, 0},
		{"one-shot insert", signal.NumWriteReq, signal.OpInsert, 0},
	} {
		if n := testing.AllocsPerRun(255, func() { x.window(c.num, c.op, c.flags, next) }); n != 0 {
			t.Errorf("%s: %v allocations in 16 operations", c.name, n)
		}
	}
}
