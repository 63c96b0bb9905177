package datanode

import (
	"testing"
	"unsafe"

	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/view"
)

// Nodes die and come back at random moments, also while others come back, under writes and schema changes. As long as
// the cluster can go on it does: in the end all nodes serve, with every row that was acknowledged, and the same tables.
func TestNodesDieAndComeBackAllTheTime(t *testing.T) {
	for seed := uint64(1); seed <= 8; seed++ {
		shape := [][2]int{{4, 2}, {3, 3}}[seed%2]
		c := newCluster(t, seed, shape[0], shape[1]).start()
		c.client()
		c.createTable(1)
		var ids []uint8
		for id := uint8(1); int(id) <= shape[0]; id++ {
			ids = append(ids, id)
		}
		key := uint32(0)
		names := []string{"u", "v", "w"}
		traffic := func(n int) {
			for range n {
				switch c.net.Rand(12) {
				case 0: // a coordinator's
					key++
					c.key(signal.NumKeyReq, signal.OpInsert, signal.FlagAll|signal.FlagStart|signal.FlagExecute|signal.FlagCommit, uint64(key), key*7, key)
				case 1, 2:
					key++
					c.key(signal.NumWriteReq, signal.OpInsert, signal.FlagAll, uint64(key), key*7, key)
				case 3:
					if c.net.Rand(8) == 0 {
						c.schemaChange(ids[c.net.Rand(len(ids))], names[c.net.Rand(len(names))], c.net.Rand(2) == 0)
					}
				}
				for range c.net.Rand(6) {
					c.net.Step(c.net.Now() + millisecond)
				}
			}
		}
		// survives tells whether the cluster goes on without a node.
		survives := func(without uint8) bool {
			for _, o := range ids {
				if o == without || c.net.Nodes[o].Dead() || c.states[o] != signal.StateStarted {
					continue
				}
				d := c.nodes[o].Distribution
				part := d.View().Set()
				part.Remove(without)
				return !d.Takeover() && d.View().Weigh(&part) == view.Lives
			}
			return false
		}
		refresh := func() {
			for _, id := range ids {
				if !c.net.Nodes[id].Dead() && c.states[id] == signal.StateStarted {
					c.named(id, signal.NumTableInfoReq)
					return
				}
			}
		}
		for range 6 {
			traffic(60)
			victim := ids[c.net.Rand(len(ids))]
			dead := 0
			for _, id := range ids {
				if c.net.Nodes[id].Dead() {
					dead++
				}
			}
			if !c.net.Nodes[victim].Dead() && dead == 0 && survives(victim) {
				c.net.Kill(victim)
			}
			traffic(40)
			c.net.Run(int64(c.net.Rand(50)) * millisecond)
			refresh()
			traffic(40)
			for _, id := range ids { // a process that has ended starts again when the others have forgotten it
				if c.net.Nodes[id].Dead() && c.net.Rand(3) > 0 && c.forgotten(id) {
					c.boot(id)
				}
			}
			c.net.Run(int64(c.net.Rand(100)) * millisecond)
			refresh()
		}
		for range 100 {
			all := true
			for _, id := range ids {
				if c.net.Nodes[id].Dead() && c.forgotten(id) {
					c.boot(id)
				}
				all = all && !c.net.Nodes[id].Dead()
			}
			if c.net.Run(100 * millisecond); all && c.settled(ids...)() {
				break
			}
		}
		if !c.settled(ids...)() {
			t.Fatalf("seed %d: not all come back: %v", seed, c.net)
		}
		acked := map[uint64]uint32{}
		for _, a := range c.answers {
			switch a.num {
			case signal.NumWriteConf:
				acked[uint64(a.ref)] = a.ref * 7
			case signal.NumTxConf:
				k := a.ref / 1001
				acked[uint64(k)] = k * 7
			}
		}
		for _, id := range ids {
			c.check(id, acked, "in the end")
		}
		if len(acked) < int(key)/3 {
			t.Fatalf("seed %d: only %d of %d writes were acknowledged", seed, len(acked), key)
		}
	}
}

// forgotten tells whether nobody alive counts a node as a member any more.
func (c *cluster) forgotten(id uint8) bool {
	for o, n := range c.nodes {
		if n != nil && !c.net.Nodes[o].Dead() && (n.Distribution.View().Has(id) || n.Distribution.Takeover()) {
			return false
		}
	}
	return true
}

// schemaChange asks a node to make or drop a table.
func (c *cluster) schemaChange(at uint8, name string, create bool) {
	if create {
		def := schema.Table{Database: "db", Name: name, Columns: []schema.Column{{Name: "k", Type: schema.Bigunsigned, PrimaryKey: true}}}
		body, err := def.AppendBinary(nil)
		if err != nil {
			c.t.Fatal(err)
		}
		q := (*signal.TableCreateReq)(c.put(signal.MakeAddr(at, signal.BlockDictionary, 0), signal.NumTableCreateReq, uint32(unsafe.Sizeof(signal.TableCreateReq{}))+signal.Pad(uint32(len(body)))))
		q.Ref, q.DefLen = 2, uint32(len(body))
		copy(q.Def(), body)
		return
	}
	q := (*signal.TableNameReq)(c.put(signal.MakeAddr(at, signal.BlockDictionary, 0), signal.NumTableDropReq, uint32(unsafe.Sizeof(signal.TableNameReq{}))+4))
	q.Ref, q.NameLen = 2, 4
	copy(q.Name(), "db/"+name)
}
