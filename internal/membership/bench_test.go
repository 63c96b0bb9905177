package membership

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// BenchmarkHeartbeats is what a node does in one heartbeat interval (250 ms) while all is well: two looks at who was heard,
// a heartbeat to each other member with its answer, and theirs.
func BenchmarkHeartbeats(b *testing.B) {
	for _, n := range []uint8{2, 8, 48} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var ids []uint8
			for i := uint8(1); i <= n; i++ {
				ids = append(ids, i)
			}
			r := newRig(&testing.T{}, 1, ids...)
			r.up()
			r.net.Run(100 * ms)
			x, kn := r.n[1], r.net.Nodes[1]
			var heard signal.HeardConf
			var beat signal.HeartbeatRep
			for b.Loop() {
				for range 2 {
					x.b.onHearTick()
					heard.Ref = x.b.hear.ref
					x.b.onHeardConf(&heard)
				}
				for _, id := range ids[1:] {
					beat = signal.HeartbeatRep{Head: signal.Head{Len: uint16(unsafe.Sizeof(beat) / 4), Num: signal.NumHeartbeatRep, From: peerAt(id), To: x.b.self},
						View: 1, Hears: x.b.view.Set(), ArbitView: x.b.arb.view, ArbitTurn: x.b.arb.turn, Ping: x.b.hear.ping, Pong: x.b.hear.ping}
					x.b.onHeartbeatRep(&beat)
				}
				kn.Env.TakeDirty(func(_ kernel.Dest, q *kernel.Buf) { q.Consume(q.Len()) })
				kn.Env.RunJobs(func(unsafe.Pointer) {}, 1<<30)
			}
		})
	}
}
