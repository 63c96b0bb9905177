package coordinator

import (
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
)

func (b *Block) bucket(client signal.Addr, num uint32) *uint32 {
	x := (uint64(client)<<32 | uint64(num)) * 0x9E3779B97F4A7C15
	return &b.buckets[x>>32&uint64(len(b.buckets)-1)]
}

// sessionHashes is a power of two.
const sessionHashes = 4096

// sessionHash chooses the counter of open transactions that a session shares with a few others.
func sessionHash(client signal.Addr) uint32 {
	return uint32(client) * 0x9E3779B1 / (1 << 32 / sessionHashes)
}

// find is the open transaction of a client with that number, or None.
func (b *Block) find(client signal.Addr, num uint32) (uint32, *transaction) {
	for i := *b.bucket(client, num); i != pool.None; {
		t := b.txs.At(i)
		if t.client == client && t.num == num {
			return i, t
		}
		i = t.hashNext
	}
	return pool.None, nil
}

// begin makes the record of a new transaction; nil when there is none left.
func (b *Block) begin(client signal.Addr, num uint32) (uint32, *transaction) {
	i, t := b.txs.Seize()
	if t == nil {
		return i, nil
	}
	p := b.bucket(client, num)
	*t = transaction{client: client, num: num, head: pool.None, tail: pool.None, hashNext: *p, heldNext: pool.None,
		failRef: signal.NoRef, began: uint32(b.env.Now() >> beganShift)}
	*p = i
	b.clients[client.Node()].open++
	b.sessions[sessionHash(client)]++
	return i, t
}

// end releases a transaction and its operations.
func (b *Block) end(i uint32, t *transaction) {
	p := b.bucket(t.client, t.num)
	for *p != i {
		invariant.That(*p != pool.None, "an open transaction is in its hash chain")
		p = &b.txs.At(*p).hashNext
	}
	*p = t.hashNext
	for o := t.head; o != pool.None; {
		x := b.ops.At(o)
		next := x.next
		b.tables[x.table].users--
		b.ops.Release(o)
		o = next
	}
	node, bits := t.client.Node(), t.bits
	b.sessions[sessionHash(t.client)]--
	b.txs.Release(i)
	if bits&(txFreeze|txTouched) != 0 {
		b.untie(bits)
	}
	c := &b.clients[node]
	c.open--
	if b.closing != 0 || c.failing || b.stopping || b.single.asker != 0 { // somebody waits for ends
		b.closeTables()
		b.clientDone(node)
		b.stopDone()
		b.singleDone()
	}
}
