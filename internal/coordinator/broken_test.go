package coordinator_test

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// TestBrokenClients sends what a link lets through and no sane client would say: transactions that share numbers, begin
// twice, go on after their end or at another coordinator, commits far outside of the window, sections of every length,
// tables, fragments and ldms that are somewhere else or nowhere. Whatever becomes of its transactions, the nodes live, and
// when the client is gone its replicas are equal and nothing is left of it.
func TestBrokenClients(t *testing.T) {
	for _, s := range []shape{{1, 1, 1, 1, 1, 0}, {2, 2, 2, 2, 2, 0}, {3, 3, 2, 1, 2, 0}, {4, 2, 2, 2, 1, 0}} {
		n := *seeds
		if n == 0 {
			n = 30
		}
		for seed := *firstSeed; seed < *firstSeed+uint64(n); seed++ {
			func() {
				defer func() {
					if r := recover(); r != nil {
						t.Fatalf("%+v, seed %d: %v\n%s", s, seed, r, stack())
					}
				}()
				l := newLoad(t, seed, s)
				for range 150 {
					l.nonsense()
					for range l.rng.IntN(8) {
						l.step()
					}
					if l.rng.IntN(20) == 0 {
						l.epoch()
					}
					if l.rng.IntN(60) == 0 {
						l.pass(1e9)
					}
				}
				l.failClient()
				l.rest()
				l.atRest()
				l.compare()
			}()
		}
	}
}

// nonsense sends one signal.
func (l *load) nonsense() {
	rng := l.rng
	pick := func(of ...uint32) uint32 { return of[rng.IntN(len(of))] }
	from := signal.MakeAddr(clientNode, signal.BlockClient, uint16(pick(0, 1, 1, 1, 2, 65535)))
	node, tc := uint8(1+rng.IntN(l.shape.nodes)), rng.IntN(3) > 0
	to := signal.MakeAddr(node, signal.BlockLDM, uint16(rng.IntN(l.shape.ldms)))
	if tc {
		to = signal.MakeAddr(node, signal.BlockTC, uint16(rng.IntN(l.shape.tcs)))
	}
	tx, seq, ack := pick(1, 1, 1, 2, 3), pick(0, 1, 2, 3, 4, 2049, 1<<31, ^uint32(0)), pick(0, 0, 0, 1, 2, ^uint32(0))
	switch k := rng.IntN(20); {
	case k == 0:
		kernel.Send[signal.CloseOrd](l.client, to, from, signal.NumCloseOrd)
	case k == 1:
		kernel.Send[signal.AckOrd](l.client, to, from, signal.NumAckOrd).Ack = ack
	case k == 2 && !tc:
		r := kernel.Send[signal.OutcomeReq](l.client, to, from, signal.NumOutcomeReq)
		*r = signal.OutcomeReq{Head: r.Head, Tx: tx, Seq: seq}
	case k < 7 && tc:
		r := kernel.Send[signal.TxReq](l.client, to, from, signal.NumTxReq)
		r.Tx, r.Action, r.Seq, r.Ack = tx, uint32(rng.IntN(3)), seq, ack
	default:
		l.nonsenseKey(to, from, tc, tx, seq, ack)
	}
}

// nonsenseKey sends an operation.
func (l *load) nonsenseKey(to, from signal.Addr, tc bool, tx, seq, ack uint32) {
	rng := l.rng
	num, op := uint16(signal.NumKeyReq), uint8(rng.IntN(int(signal.OpMax)))
	if !tc {
		num = signal.NumWriteReq
		if rng.IntN(4) == 0 {
			num = signal.NumReadReq
		}
	}
	key := uint32(rng.IntN(3))
	frag := uint32(rng.IntN(len(l.chains) + 1))
	if rng.IntN(4) > 0 { // mostly where it belongs
		if frag = l.frag(key); !tc {
			to = l.primary(key)
		}
	}
	flags := uint8(rng.IntN(256))
	if tc && rng.IntN(2) == 0 {
		flags |= signal.FlagStart
	}
	data := l.section(op, &flags, uint32(1+rng.IntN(200)), false)
	switch rng.IntN(12) {
	case 0:
		data = data[:rng.IntN(len(data)+1)]
	case 1:
		data = append(data, make([]byte, rng.IntN(70))...)
	case 2:
		flags ^= signal.FlagAll
	case 3:
		for range 3 {
			if len(data) > 0 {
				data[rng.IntN(min(len(data), 40))] = byte(rng.IntN(256))
			}
		}
	}
	keyLen := uint32(4)
	if rng.IntN(16) == 0 {
		keyLen = []uint32{0, 1, 3, 5, 8, 3072, 65535}[rng.IntN(7)]
	}
	size := signal.KeyReqSize + signal.Pad(keyLen) + signal.Pad(uint32(len(data)))
	p := l.client.Put(to, from, num, size)
	clear(unsafe.Slice((*byte)(unsafe.Add(p, signal.HeadSize)), size-signal.HeadSize))
	r := (*signal.KeyReq)(p)
	r.Ref, r.Tx, r.Seq, r.Ack, r.Table, r.Version, r.Frag, r.Op, r.Flags = uint32(rng.IntN(3)), tx, seq, ack, 3, 1, uint16(frag), op, flags
	if rng.IntN(20) == 0 {
		r.Table, r.Version = uint16([]int{0, 3, 7, 8, 65535}[rng.IntN(5)]), uint16(rng.IntN(3))
	}
	r.KeyLen, r.DataLen = uint16(keyLen), uint16(len(data))
	if keyLen >= 4 {
		*(*uint32)(r.Key()) = key
	}
	copy(unsafe.Slice((*byte)(r.Data()), len(data)), data)
	if f := signal.Check(&r.Head, signal.PeerAPI, clientNode, to.Node()); f != nil {
		panic(fmt.Sprint("the test sends what no link lets through: ", f))
	}
}
