package client

import (
	"slices"
	"unsafe"

	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
)

// Table is a table as a data node described it: its definition, and where its fragments are. It does not change. Where
// the fragments are now is in the View, which has a newer Map when the cluster has changed; when the cluster says that the
// definition is old (241), the table is asked for anew.
type Table struct {
	Def    *schema.Table
	Layout *schema.Layout

	id, version uint16
	frag        []uint16 // by distribution bucket
	first       *Map     // as it was when the table was looked up
}

// Map is where the fragments of a table are. It does not change.
type Map struct {
	table, version uint16
	chains         []signal.Addr // by fragment, MaxReplicas each: the ldms that hold it, primary first, 0 = none
}

// ID and Version are the table's number and version.
func (t *Table) ID() int { return int(t.id) }

// Version is the version of definition and map.
func (t *Table) Version() int { return int(t.version) }

// Fragments is the number of fragments.
func (t *Table) Fragments() int { return len(t.first.chains) / signal.MaxReplicas }

// Primary is the ldm that had the primary replica of a fragment when the table was looked up.
func (t *Table) Primary(fragment int) signal.Addr { return t.first.primary(uint16(fragment)) }

// Chain are the ldms that held a fragment when the table was looked up, primary first.
func (t *Table) Chain(fragment int) []signal.Addr { return t.first.chain(uint16(fragment)) }

// fragment finds the fragment of a key image.
func (t *Table) fragment(key unsafe.Pointer, n uint32) uint16 {
	return t.frag[schema.DistributionBucket(t.Layout.DistributionHash(key, n))]
}

func (m *Map) primary(frag uint16) signal.Addr { return m.chains[uint(frag)*signal.MaxReplicas] }

// chain is who holds a fragment.
func (m *Map) chain(frag uint16) []signal.Addr {
	c := m.chains[uint(frag)*signal.MaxReplicas : (uint(frag)+1)*signal.MaxReplicas]
	for i, a := range c {
		if a == 0 {
			return c[:i]
		}
	}
	return c
}

// holds tells whether a node holds a fragment.
func (m *Map) holds(frag uint16, node uint8) bool {
	for _, a := range m.chain(frag) {
		if a.Node() == node {
			return true
		}
	}
	return false
}

// same tells whether two maps say the same about the same table.
func (m *Map) same(o *Map) bool {
	return m.table == o.table && m.version == o.version && slices.Equal(m.chains, o.chains)
}

// newTable makes a table of a data node's answer; nil if the answer contradicts itself.
func newTable(r *signal.TableInfoConf) *Table {
	if r.Fragments == 0 || r.Buckets != schema.DistributionBuckets || r.Table > 0xffff {
		return nil
	}
	def, err := schema.DecodeTable(append([]byte(nil), r.Def()...))
	if err != nil || def.ID != r.Table {
		return nil
	}
	layout, err := schema.Compile(def)
	if err != nil {
		return nil
	}
	t := &Table{Def: def, Layout: layout, id: uint16(r.Table), version: uint16(r.Version)}
	t.frag = append(t.frag, r.Map()...)
	for _, f := range t.frag {
		if uint32(f) >= r.Fragments {
			return nil
		}
	}
	t.first = &Map{table: t.id, version: t.version, chains: append([]signal.Addr(nil), r.Chains()...)}
	for i, a := range t.first.chains {
		switch {
		case a == 0: // the end of the chain, or of one that has no replica now
		case a.Node() == 0 || a.Block() != signal.BlockLDM:
			return nil
		case i%signal.MaxReplicas != 0 && t.first.chains[i-1] == 0:
			return nil
		}
	}
	return t
}
