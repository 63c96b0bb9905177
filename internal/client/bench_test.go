package client

import (
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// echo answers every request in the buffers at once, without checks: what is measured is the session.
type echo struct {
	g   *rig
	out []uint32
}

func (e *echo) run() {
	g := e.g
	g.s.Settle()
	g.env.TakeDirty(e.buf)
}

func (e *echo) buf(_ kernel.Dest, b *kernel.Buf) {
	raw := b.Bytes()
	n := uint32(len(raw))
	if cap(e.out) < len(raw)/4+64 {
		e.out = make([]uint32, len(raw)/2)
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&e.out[:1][0])), n), raw) // the session may define more meanwhile
	b.Truncate(0)
	base := unsafe.Pointer(&e.out[:1][0])
	var conf [8]uint32
	for o := uint32(0); o < n; {
		r := (*signal.KeyReq)(unsafe.Add(base, o))
		o += r.Bytes()
		switch r.Num {
		case signal.NumReadReq:
			var x struct {
				signal.ReadConf
				v [2]uint32
			}
			x.Num, x.From, x.Ref, x.Tx, x.DataLen = signal.NumReadConf, r.To, r.Ref, r.Tx, 8
			e.g.s.Deliver(&x.Head)
		case signal.NumWriteReq:
			x := (*signal.WriteConf)(unsafe.Pointer(&conf))
			x.Num, x.From, x.Ref, x.Tx = signal.NumWriteConf, r.To, r.Ref, r.Tx
			e.g.s.Deliver(&x.Head)
		case signal.NumKeyReq:
			if r.Flags&signal.FlagCommit == 0 {
				continue
			}
			x := (*signal.TxConf)(unsafe.Pointer(&conf))
			x.Num, x.From, x.Tx, x.Committed = signal.NumTxConf, r.To, r.Tx, 1
			e.g.s.Deliver(&x.Head)
		}
	}
}

func benchmark(b *testing.B, o TxOptions, define func(g *rig, tx *Tx, r *row)) {
	g := newRig(b, even, func(c *Config) { c.MaxTransactions, c.MaxOperations = 512, 1024 })
	g.hook = func(tx *Tx) { tx.Release() }
	e := &echo{g: g}
	rows := make([]row, 512)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; {
		for k := 0; k < 512 && i < b.N; k++ {
			tx := g.s.Begin(o)
			rows[k].a, rows[k].b = uint32(i), uint32(i)
			define(g, tx, &rows[k])
			tx.Commit()
			i++
		}
		e.run()
	}
}

func BenchmarkRead(b *testing.B) {
	benchmark(b, TxOptions{}, func(g *rig, tx *Tx, r *row) { g.row.Read(tx, ptr(r), signal.OpReadCommitted) })
}

func BenchmarkWrite(b *testing.B) {
	benchmark(b, TxOptions{}, func(g *rig, tx *Tx, r *row) { g.row.Update(tx, ptr(r)) })
}

func BenchmarkWriteCoordinated(b *testing.B) {
	benchmark(b, TxOptions{Coordinate: true}, func(g *rig, tx *Tx, r *row) { g.row.Update(tx, ptr(r)) })
}
