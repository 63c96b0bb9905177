package coordinator_test

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

var seeds = flag.Int("seeds", 0, "how many seeds the random test runs for each shape; 0: a few seconds' worth")

var firstSeed = flag.Uint64("first-seed", 1, "where they begin")

// TestRandomLoad runs one-shot writes, reads and transactions of several batches on few rows of a table with columns of
// all sorts, on data nodes of several threads, while epochs change, sessions close, the client fails and comes back, locks
// time out, and pools and data memory run out, at some replicas earlier than at others. Signals travel in order between
// two threads and in any order otherwise. It expects that
//
//   - each transaction ends once,
//   - nobody reads what did not commit, or half of a change,
//   - no increment of a row that was read for it is lost,
//   - the epochs of a row's changes do not go back, at no replica,
//   - at rest all replicas are equal, no record, copy or lock is left, and no memory of rows that were deleted.
func TestRandomLoad(t *testing.T) {
	runLoads(t, []shape{{1, 1, 1, 1, 1, 0}, {1, 1, 3, 2, 2, 0}, {2, 2, 1, 1, 1, 0}, {2, 2, 2, 2, 2, 0}, {4, 2, 2, 2, 1, 0}, {3, 3, 2, 1, 2, 0}, {4, 4, 1, 1, 1, 0}}, false)
}

// runLoads runs a number of seeds for each shape, in which nodes that were killed come back or not, and tells which seldom
// places they came to.
func runLoads(t *testing.T, shapes []shape, returns bool) (marks kernel.Marks) {
	n := *seeds
	if n == 0 {
		n = 40
		if testing.Short() {
			n = 5
		}
	}
	for _, s := range shapes {
		t.Run(fmt.Sprintf("%d nodes, %d replicas, %d threads, %d coordinators, %d ldms", s.nodes, s.replicas, s.threads, s.tcs, s.ldms), func(t *testing.T) {
			for seed := *firstSeed; seed < *firstSeed+uint64(n); seed++ {
				func() {
					defer func() {
						if r := recover(); r != nil {
							t.Fatalf("seed %d: %v\n%s", seed, r, stack())
						}
					}()
					l := newLoad(t, seed, s)
					l.returns = returns
					l.work()
					l.finish()
					for _, sites := range l.sites {
						for _, s := range sites {
							marks.Add(s.env.Marks())
						}
					}
					marks.Add(&l.left)
				}()
			}
		})
	}
	return marks
}

type readValue struct {
	stamp uint32
	by    *clientTx
}

// clientTx is a transaction as the client sees it.
type clientTx struct {
	session   uint16
	num       uint32
	tc        signal.Addr
	stamps    []uint32
	batches   int // that follow
	ended     bool
	committed bool
	unknown   bool        // its session was closed, or the client failed
	counter   uint32      // key that it increments, 0 = none
	whole     bool        // it writes rows of its own, each once, and none of them can fail alone
	keys      []uint32    // that it writes
	at        signal.Addr // where it went: its coordinator, or the ldm of a transaction of one operation
	dynamicID uint32      // of that node
	seq       uint32      // of its commit, 0 = not asked for
	asking    int         // which of its writes it has asked about; -1 = none
	askedAt   signal.Addr
	value     uint32 // of the counter, once read
	haveValue bool
	executed  bool
}

const (
	rowKeys   = 7
	counters0 = 100
	nCounters = 2
)

// text is what stands in S beside a stamp in V.
func text(stamp uint32) []byte {
	n := stamp * 37 % 100
	if stamp%11 == 0 {
		n = stamp * 131 % 4000
	}
	return bytes.Repeat([]byte{byte(stamp)}, int(n))
}

// packedRef in the reference of a read: it asks for columns by a mask.
const packedRef = 1 << 8

// section is the data section of an operation. V and S are written together, always: with stamp in V and what belongs to
// it in S. counts: the stamp is what the row counts, so it must be written.
func (l *load) section(op uint8, flags *uint8, stamp uint32, counts bool) []byte {
	v, s := binary.LittleEndian.AppendUint32(nil, stamp), text(stamp)
	var n []byte
	if stamp%3 != 0 {
		n = v
	}
	var columns []uint32
	var values [][]byte
	switch {
	case op == signal.OpDelete:
		return nil
	case signal.IsRead(op):
		if *flags |= signal.FlagAll; l.rng.IntN(2) == 0 {
			return nil
		}
		*flags &^= signal.FlagAll
		return binary.LittleEndian.AppendUint32(nil, 7)
	case l.rng.IntN(3) == 0:
		*flags |= signal.FlagAll
		values = [][]byte{v, n, s}
	case !counts && l.rng.IntN(4) == 0:
		columns, values = []uint32{1}, [][]byte{n}
	case l.rng.IntN(2) == 0:
		columns, values = []uint32{0, 2}, [][]byte{v, s}
	default:
		columns, values = []uint32{0, 1, 2}, [][]byte{v, n, s}
	}
	b, err := l.layout.AppendWrite(nil, columns, values)
	if err != nil {
		l.t.Fatal(err)
	}
	return b
}

// send sends one operation.
func (l *load) send(num uint16, to signal.Addr, x *clientTx, ref, seq uint32, op, flags uint8, key, stamp uint32) {
	data := l.section(op, &flags, stamp, x.counter != 0)
	if signal.IsRead(op) && flags&signal.FlagAll == 0 {
		ref |= packedRef
	}
	if !signal.IsRead(op) && stamp != 0 && x.counter == 0 {
		x.stamps = append(x.stamps, stamp)
		l.fate[stamp] = x
	}
	n := uint32(len(data))
	r := (*signal.KeyReq)(l.client.Put(to, signal.MakeAddr(clientNode, signal.BlockClient, x.session), num, signal.KeyReqSize+4+signal.Pad(n)))
	r.Ref, r.Tx, r.Seq, r.Ack, r.Table, r.Version, r.Frag, r.Op, r.Flags = ref, x.num, seq, l.heard[slot(x.session)], 3, 1, uint16(l.frag(key)), op, flags
	r.KeyLen, r.DataLen = 4, uint16(n)
	*(*uint32)(r.Key()) = key
	copy(unsafe.Slice((*byte)(r.Data()), n), data)
	if m := l.view.Member(to.Node()); m != nil {
		x.dynamicID = m.DynamicID
	}
	if x.at = to; !signal.IsRead(op) {
		x.keys = append(x.keys, key)
	}
	x.seq = max(x.seq, seq)
}

func (l *load) newTx(session uint16) *clientTx {
	l.lastTx++
	x := &clientTx{session: session, num: l.lastTx, asking: -1}
	l.txs[[2]uint32{uint32(session), x.num}] = x
	return x
}

// acknowledge lets sessions for which nothing is under way say so with their next request.
func (l *load) acknowledge() {
	var busy [5]bool
	for _, x := range l.txs {
		busy[slot(x.session)] = busy[slot(x.session)] || !x.ended
	}
	for s := range busy {
		if !busy[s] {
			l.heard[s] = l.seqs[s]
		}
	}
}

func (l *load) seq(session uint16) uint32 { s := slot(session); l.seqs[s]++; return l.seqs[s] }

// slot is which of four sessions that are open at a time one is. Where nodes fail, a session that was closed is followed by
// one with another number: the end of the old one may reach an ldm behind an outcome of the new one.
func slot(session uint16) uint16 { return (session-1)%4 + 1 }

// session chooses an open one.
func (l *load) session() uint16 { return l.nth(1 + l.rng.IntN(4)) }

func (l *load) nth(slot int) uint16 { return uint16(slot) + 4*l.closed[slot] }

// batch sends a few operations of a transaction to its coordinator.
func (l *load) batch(x *clientTx, start bool) {
	n := 1 + l.rng.IntN(4)
	for i := range n {
		fl, q := uint8(0), uint32(0)
		if l.rng.IntN(3) > 0 {
			fl |= signal.FlagIgnoreError
		}
		if l.rng.IntN(6) == 0 {
			fl |= signal.FlagNoWait
		}
		if start && i == 0 {
			fl |= signal.FlagStart
		}
		if i == n-1 {
			fl |= signal.FlagExecute
			if x.batches == 0 {
				fl |= signal.FlagCommit
				q = l.seq(x.session)
			}
		}
		l.stamp++
		op, key := uint8(l.rng.IntN(int(signal.OpMax))), uint32(l.rng.IntN(rowKeys))
		if x.whole {
			l.fresh++
			op, key, fl = signal.OpInsert, l.fresh, fl&^signal.FlagIgnoreError
		}
		l.send(signal.NumKeyReq, x.tc, x, uint32(i), q, op, fl, key, l.stamp)
	}
}

// coordinator chooses one.
func (l *load) coordinator() signal.Addr {
	ns := slices.DeleteFunc(l.alive(), func(n uint8) bool { return !l.serves(n) })
	return signal.MakeAddr(ns[l.rng.IntN(len(ns))], signal.BlockTC, uint16(l.rng.IntN(l.shape.tcs)))
}

func (l *load) begin() {
	l.acknowledge()
	key := uint32(l.rng.IntN(rowKeys))
	what := l.rng.IntN(10)
	if what >= 8 {
		l.fresh++
		key = l.fresh
	}
	if (what < 4 || what == 8) && l.sites[l.primary(key).Node()][0].dead {
		return // no link, and nowhere else to go yet
	}
	x := l.newTx(l.session())
	l.stamp++
	switch what {
	case 8:
		x.whole = true
		l.send(signal.NumWriteReq, l.primary(key), x, 0, l.seq(x.session), signal.OpInsert, 0, key, l.stamp)
	case 9:
		x.whole, x.tc = true, l.coordinator()
		l.batch(x, true)
	case 0, 1, 2:
		l.send(signal.NumWriteReq, l.primary(key), x, 0, l.seq(x.session), signal.OpInsert+uint8(l.rng.IntN(4)), 0, key, l.stamp)
	case 3:
		l.send(signal.NumReadReq, l.primary(key), x, 0, 0, signal.OpReadCommitted, 0, key, 0)
	case 4:
		x.counter = counters0 + uint32(l.rng.IntN(nCounters))
		x.tc = l.coordinator()
		l.send(signal.NumKeyReq, x.tc, x, 0, 0, signal.OpReadExclusive, signal.FlagStart|signal.FlagExecute|signal.FlagIgnoreError, x.counter, 0)
	default:
		x.tc = l.coordinator()
		x.batches = l.rng.IntN(3)
		l.batch(x, true)
		if l.rng.IntN(12) == 0 {
			l.end(x, signal.TxRollback)
		}
	}
}

func (l *load) end(x *clientTx, action uint32) {
	r := kernel.Send[signal.TxReq](l.client, x.tc, signal.MakeAddr(clientNode, signal.BlockClient, x.session), signal.NumTxReq)
	r.Tx, r.Action, r.Seq, r.Ack = x.num, action, 0, l.heard[slot(x.session)]
	if action == signal.TxCommit {
		r.Seq = l.seq(x.session)
		x.seq = r.Seq
	}
}

// answer is the client hearing something.
func (l *load) answer(h *signal.Head) {
	num := *(*uint32)(unsafe.Add(unsafe.Pointer(h), signal.HeadSize)) // TxConf and TxRef
	switch h.Num {
	case signal.NumWriteConf, signal.NumReadConf, signal.NumKeyRef:
		num = *(*uint32)(unsafe.Add(unsafe.Pointer(h), signal.HeadSize+4))
	}
	x := l.txs[[2]uint32{uint32(h.To.Instance()), num}]
	if x == nil || x.unknown || h.Num != signal.NumOutcomeConf && x.asking >= 0 {
		return
	}
	over := func(committed bool) {
		if x.ended {
			l.t.Fatalf("seed %d: transaction %d ends twice, the second time with %s", l.seed, x.num, signal.Format(h))
		}
		x.ended, x.committed = true, committed
		if committed && x.counter != 0 {
			l.counters[x.counter]++
		}
	}
	switch h.Num {
	case signal.NumWriteConf:
		over(true)
	case signal.NumReadConf:
		if l.row(x, (*signal.ReadConf)(unsafe.Pointer(h))); h.From.Block() == signal.BlockLDM && x.tc == 0 {
			over(false)
		}
	case signal.NumKeyRef:
		if h.From.Block() == signal.BlockLDM {
			over(false)
		}
	case signal.NumOutcomeConf:
		if c := (*signal.OutcomeConf)(unsafe.Pointer(h)); x.asking < 0 || c.Seq != x.seq || c.From != x.askedAt {
			return
		} else if c.Known == signal.OutcomeCommitted {
			over(true)
		} else {
			if c.Known == signal.OutcomeNone {
				x.asking++
			}
			l.ask(x)
		}
	case signal.NumTxRef:
		if c := (*signal.TxRef)(unsafe.Pointer(h)); !x.ended || c.Code != 0 {
			over(false)
		}
	case signal.NumTxConf:
		c := (*signal.TxConf)(unsafe.Pointer(h))
		if c.Committed == 1 {
			over(true)
			return
		}
		if x.ended {
			return
		}
		x.executed = true
		l.goOn(x)
	}
}

// goOn continues a transaction whose batch was executed.
func (l *load) goOn(x *clientTx) {
	switch {
	case x.counter == 0 && x.batches > 0 && l.rng.IntN(8) > 0:
		x.batches--
		l.batch(x, false)
	case x.counter == 0 && l.rng.IntN(3) == 0:
		l.end(x, signal.TxRollback)
	case x.counter == 0:
		l.end(x, signal.TxCommit)
	case !x.executed:
	case !x.haveValue: // there is no such row, or it has not come yet: then nothing is done this time
		x.executed = false
		l.end(x, signal.TxRollback)
	default:
		x.executed = false
		l.send(signal.NumKeyReq, x.tc, x, 1, l.seq(x.session), signal.OpUpdate, signal.FlagExecute|signal.FlagCommit, x.counter, x.value+1)
	}
}

// row takes a row that was read.
func (l *load) row(x *clientTx, c *signal.ReadConf) {
	b := unsafe.Slice((*byte)(c.Data()), c.DataLen)
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	nulls, v, n := word(0), word(1), word(2)
	// Both forms have a word with the length of S next; behind it (FlagAll) or in it (mask) begin its bytes.
	size := int(binary.LittleEndian.Uint16(b[12:]))
	s, packed := b[16:], c.Ref&packedRef != 0
	if packed {
		s = b[14:]
	}
	if len(s) < size {
		l.t.Fatalf("seed %d: transaction %d reads %d bytes of S, and there are %d", l.seed, x.num, size, len(s))
	}
	s = s[:size]
	if nulls&^7 != 0 || nulls&2 != 0 && n != 0 || nulls&1 != 0 || !bytes.Equal(s, text(v)) {
		l.t.Fatalf("seed %d: transaction %d reads half of a change: stamp %d, nulls %x, S has %d bytes, packed %v", l.seed, x.num, v, nulls, size, packed)
	}
	if x.counter != 0 {
		x.value, x.haveValue = v, true
		return
	}
	l.reads = append(l.reads, readValue{v, x})
}

// lose makes transactions of a session (0: all) unknown.
func (l *load) lose(session uint16) {
	for _, x := range l.txs {
		if (session == 0 || x.session == session) && !x.ended {
			x.unknown, x.ended = true, true
			if x.counter != 0 {
				l.maybe[x.counter]++
			}
		}
	}
}

func (l *load) closeSession(s uint16) {
	l.lose(s)
	l.seqs[slot(s)], l.heard[slot(s)] = 0, 0
	if l.shape.kills > 0 {
		l.closed[slot(s)]++
	}
	l.blocks(func(a signal.Addr) {
		kernel.Send[signal.CloseOrd](l.client, a, signal.MakeAddr(clientNode, signal.BlockClient, s), signal.NumCloseOrd)
	})
}

// failClient cuts the client's links: what was on its way is lost.
func (l *load) failClient() {
	l.lose(0)
	clear(l.seqs[:])
	clear(l.heard[:])
	l.drain(clientNode<<8, signal.PeerAPI, l.client)
	for _, k := range l.pairs {
		if k[0] == clientNode<<8 || k[1] == clientNode<<8 {
			l.queues[k] = nil
		}
	}
	l.blocks(func(a signal.Addr) {
		l.failing[a] = true
		r := kernel.Send[signal.NodeFailRep](l.sites[a.Node()][0].env, a, signal.MakeAddr(a.Node(), signal.BlockDictionary, 0), signal.NumNodeFailRep)
		r.Node, r.Kind = clientNode, uint32(signal.PeerAPI)
	})
}

// clientIsBack tells every ldm so; its links open when all have heard it.
func (l *load) clientIsBack() {
	l.blocks(func(a signal.Addr) {
		if a.Block() == signal.BlockLDM {
			e := l.sites[a.Node()][0].env
			kernel.Send[signal.NodeUpRep](e, a, signal.MakeAddr(a.Node(), signal.BlockDictionary, 0), signal.NumNodeUpRep).Node = clientNode
			l.ups[a] = true
		}
	})
}

func (l *load) work() {
	for k := range uint32(nCounters) {
		x := l.newTx(l.nth(1))
		x.counter = counters0 + k
		l.send(signal.NumWriteReq, l.primary(x.counter), x, 0, l.seq(x.session), signal.OpInsert, 0, x.counter, 0)
	}
	l.rest()
	l.counters = map[uint32]uint32{}
	loops := 60
	if l.returns {
		loops = 150
	}
	for i := range loops {
		if !l.away() {
			l.begin()
		}
		if l.shape.kills > 0 && i > 10 {
			l.fail()
		}
		for range l.rng.IntN(30) {
			l.step()
		}
		switch l.rng.IntN(40) {
		case 0:
			if !l.away() {
				l.closeSession(l.session())
			}
		case 1:
			if !l.away() && l.rng.IntN(2) == 0 {
				l.failClient()
			}
		case 2:
			l.pass(1e9)
		}
		if l.rng.IntN(3) == 0 {
			l.epoch()
		}
	}
	l.rest()
}

// wholeOrNot checks the rows of a transaction that has some of its own.
func (l *load) wholeOrNot(x *clientTx, rows map[uint32]uint32) {
	in := 0
	for _, k := range x.keys {
		if _, ok := rows[k]; ok {
			in++
		}
	}
	if x.whole && (in != 0 && in != len(x.keys) || !x.unknown && x.committed != (in > 0)) {
		l.t.Fatalf("seed %d: transaction %d of session %d has %d of its %d rows; committed %v, unknown %v", l.seed, x.num, x.session, in, len(x.keys), x.committed, x.unknown)
	}
}

func (l *load) finish() {
	if l.stage != steady || l.phase != 0 {
		l.t.Fatalf("seed %d: the change to view %d does not end (%d), or that of the epoch (%d); %v owe an answer", l.seed, l.next.Number, l.stage, l.phase, l.owes)
	}
	for _, x := range l.txs {
		if !x.ended {
			l.t.Fatalf("seed %d: transaction %d of session %d does not end (%d batches left)", l.seed, x.num, x.session, x.batches)
		}
	}
	for _, r := range l.reads {
		if w := l.fate[r.stamp]; w == nil || w != r.by && !w.committed && !w.unknown {
			l.t.Fatalf("seed %d: transaction %d reads stamp %d of a transaction that did not commit", l.seed, r.by.num, r.stamp)
		}
	}
	l.atRest()
	rows := l.compare()
	for k := range uint32(nCounters) {
		v, in := rows[counters0+k]
		if least, most := l.counters[counters0+k], l.counters[counters0+k]+l.maybe[counters0+k]; in && (v < least || v > most) || !in && most > 0 && least > 0 {
			l.t.Fatalf("seed %d: counter %d is %d after %d to %d increments", l.seed, k, v, least, most)
		}
	}
	// Delete everything: no memory may be left.
	for _, x := range l.txs {
		l.wholeOrNot(x, rows)
	}
	for s := range uint16(4) {
		l.closeSession(l.nth(int(s) + 1))
	}
	l.rest()
	var keys []uint32
	for k := range rows {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		x := l.newTx(l.nth(1))
		l.send(signal.NumWriteReq, l.primary(k), x, 0, l.seq(x.session), signal.OpDelete, 0, k, 0)
		if l.rest(); !x.committed {
			l.t.Fatalf("seed %d: row %d is not deleted", l.seed, k)
		}
	}
	l.atRest()
	if left := l.compare(); len(left) > 0 {
		l.t.Fatalf("seed %d: %d rows are left", l.seed, len(left))
	}
	for f, c := range l.chains {
		for _, a := range c {
			if !l.serves(a.Node()) {
				continue
			}
			fr := l.siteOf(a).ldms[a.Instance()].Fragment(3, uint32(f))
			if r, v, _ := fr.Pages(); r+v > 0 || fr.Rows() != 0 {
				l.t.Fatalf("seed %d: fragment %d at %v is empty and has %d pages of rows, %d of variable parts, %d rows indexed", l.seed, f, a, r, v, fr.Rows())
			}
		}
	}
}
