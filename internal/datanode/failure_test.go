package datanode

import (
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
)

// settled tells whether these nodes serve clients in a view of just them, and nothing is left of the others.
func (c *cluster) settled(ids ...uint8) func() bool {
	return func() bool {
		for _, id := range ids {
			d := c.nodes[id].Distribution
			if c.states[id] != signal.StateStarted || d.Takeover() || len(d.View().Members) != len(ids) {
				return false
			}
			for _, o := range ids {
				if d.View().State(o) != signal.MemberLeading {
					return false
				}
			}
		}
		return true
	}
}

// check reads rows where they are now: all that were acknowledged have to be there.
func (c *cluster) check(at uint8, acked map[uint64]uint32, what string) {
	c.t.Helper()
	c.net.Run(0) // ldms commit a view when they come to it
	if a := c.ask(func() { c.named(at, signal.NumTableInfoReq) }); a.num != signal.NumTableInfoConf {
		c.t.Fatalf("%s: node %d does not know the table: %+v", what, at, a)
	}
	for k := range uint64(1000) {
		v, there := acked[k]
		if !there {
			continue
		}
		a := c.ask(func() { c.key(signal.NumReadReq, signal.OpReadCommitted, signal.FlagAll, k, 0, 0) })
		if a.num != signal.NumReadConf || len(a.data) < 4 || *(*uint32)(unsafe.Pointer(&a.data[0])) != v {
			c.t.Fatalf("%s: row %d is %s %+v, want %d", what, k, signal.Name(a.num), a, v)
		}
	}
}

// A data node dies in the middle of everything. The others go on with every row that was acknowledged, make tables, and
// take the node in when it comes back; then its peer dies, and the rows are still there, in the copies that it has made.
func TestANodeIsLostAndComesBack(t *testing.T) {
	for _, shape := range [][2]int{{4, 2}, {3, 3}, {4, 4}} {
		for seed := uint64(1); seed <= 6; seed++ {
			c := newCluster(t, seed, shape[0], shape[1]).start()
			c.client()
			c.createTable(1)
			sent := map[uint64]uint32{}
			for i := range uint64(60) {
				num, flags := signal.NumWriteReq, signal.FlagAll
				if i%3 == 1 {
					num, flags = signal.NumKeyReq, signal.FlagAll|signal.FlagStart|signal.FlagExecute|signal.FlagCommit
				}
				c.key(num, signal.OpInsert, flags, i, uint32(i)*7, uint32(i)+1)
				sent[uint64(uint32(i)+1000*(uint32(i)+1))] = uint32(i)
			}
			for range c.net.Rand(600) {
				c.net.Step(c.net.Now())
			}
			victim := uint8(1 + seed%uint64(shape[0]))
			def := schema.Table{Database: "db", Name: "u", Columns: []schema.Column{{Name: "k", Type: schema.Bigunsigned, PrimaryKey: true}}}
			body, err := def.AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			q := (*signal.TableCreateReq)(c.put(signal.MakeAddr(1+victim%uint8(shape[0]), signal.BlockDictionary, 0), signal.NumTableCreateReq,
				uint32(unsafe.Sizeof(signal.TableCreateReq{}))+uint32(len(body))))
			q.Ref, q.DefLen = 2, uint32(len(body))
			copy(q.Def(), body)
			for range c.net.Rand(200) {
				c.net.Step(c.net.Now())
			}
			c.net.Kill(victim)
			var others []uint8
			for id := uint8(1); int(id) <= shape[0]; id++ {
				if id != victim {
					others = append(others, id)
				}
			}
			if !c.net.Until(5*second, c.settled(others...)) {
				t.Fatalf("%v seed %d: the others do not go on without node %d: %v", shape, seed, victim, c.net)
			}
			acked := map[uint64]uint32{}
			created := func() bool {
				for _, a := range c.answers {
					if a.num == signal.NumTableCreateConf && a.ref == 2 {
						return true
					}
				}
				return false
			}
			if !c.net.Until(second, created) {
				t.Fatalf("%v seed %d: a table is not created while node %d is lost", shape, seed, victim)
			}
			for _, a := range c.answers {
				switch a.num {
				case signal.NumWriteConf:
					acked[uint64(a.ref)] = a.ref * 7
				case signal.NumTxConf:
					k := sent[uint64(a.ref)]
					acked[uint64(k)] = k * 7
				}
			}
			c.check(others[0], acked, "after the loss")
			before := c.nodes[others[0]].Distribution.Epoch()
			c.net.Run(200 * millisecond)
			if c.nodes[others[0]].Distribution.Epoch() < before+1 {
				t.Fatalf("%v seed %d: epochs do not go on", shape, seed)
			}
			c.nodes[victim] = nil
			c.boot(victim)
			all := append(append([]uint8(nil), others...), victim)
			if !c.net.Until(10*second, c.settled(all...)) {
				t.Fatalf("%v seed %d: node %d does not come back: %v", shape, seed, victim, c.net)
			}
			if n := c.events[victim]; n[event.NRCopyDict] != 1 || n[event.NRCopyFragsStarted] != 1 || n[event.NRCopyFragsCompleted] != 1 {
				t.Fatalf("node %d reports %v", victim, n)
			}
			c.check(victim, acked, "after the return")

			peer := uint8((int(victim-1)/shape[1])*shape[1] + int(victim)%shape[1] + 1)
			c.net.Kill(peer)
			var rest []uint8
			for _, id := range all {
				if id != peer {
					rest = append(rest, id)
				}
			}
			if !c.net.Until(5*second, c.settled(rest...)) {
				t.Fatalf("%v seed %d: the others do not go on without node %d: %v", shape, seed, peer, c.net)
			}
			c.check(victim, acked, "after the loss of the peer")
			if a := c.ask(func() { c.named(victim, signal.NumTableDropReq) }); a.num != signal.NumTableDropConf {
				t.Fatalf("%+v", a)
			}
		}
	}
}

// A node group is lost: the others end with the reason. So do all of a cluster with one replica, and the one that is left
// of two without an arbitrator.
func TestAClusterThatCannotGoOn(t *testing.T) {
	for _, s := range []struct {
		nodes, replicas int
		lost            []uint8
		code            uint32
	}{
		{2, 1, []uint8{2}, exitcode.NodeLost},
		{4, 1, []uint8{1}, exitcode.NodeLost},
		{4, 2, []uint8{3, 4}, exitcode.NodeLost},
		{2, 2, []uint8{1}, exitcode.Arbitration},
	} {
		for seed := uint64(1); seed <= 5; seed++ {
			c := newCluster(t, seed, s.nodes, s.replicas).start()
			c.client()
			c.createTable(1)
			for i := range uint64(30) {
				c.key(signal.NumWriteReq, signal.OpInsert, signal.FlagAll, i, 1, uint32(i)+1)
			}
			for range c.net.Rand(300) {
				c.net.Step(c.net.Now())
			}
			var lost signal.NodeSet
			for _, id := range s.lost {
				lost.Add(id)
				c.net.Kill(id)
			}
			if !c.net.Until(5*second, c.all(func(id uint8) bool { return lost.Has(id) || c.exits[id] != nil })) {
				t.Fatalf("%+v seed %d: the others go on: %v", s, seed, c.net)
			}
			for id := uint8(1); int(id) <= s.nodes; id++ {
				if !lost.Has(id) && c.exits[id].Code != s.code {
					t.Fatalf("%+v seed %d: node %d ends with %d", s, seed, id, c.exits[id].Code)
				}
			}
		}
	}
}
