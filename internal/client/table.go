package client

import (
	"unsafe"

	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
)

// Table is a table as a data node described it: its definition, and where its fragments are. It does not change; when
// the cluster says that it is old (241), it is asked for anew.
type Table struct {
	Def    *schema.Table
	Layout *schema.Layout

	id, version uint16
	frag        []uint16      // by distribution bucket
	primary     []signal.Addr // by fragment: the ldm of the primary
	chains      []signal.Addr // by fragment, MaxReplicas each
}

// ID and Version are the table's number and version.
func (t *Table) ID() int { return int(t.id) }

// Version is the version of definition and map.
func (t *Table) Version() int { return int(t.version) }

// Fragments is the number of fragments.
func (t *Table) Fragments() int { return len(t.primary) }

// Primary is the ldm that has the primary replica of a fragment.
func (t *Table) Primary(fragment int) signal.Addr { return t.primary[fragment] }

// Chain are the ldms that hold a fragment, primary first.
func (t *Table) Chain(fragment int) []signal.Addr {
	c := t.chains[fragment*signal.MaxReplicas : (fragment+1)*signal.MaxReplicas]
	for i, a := range c {
		if a == 0 {
			return c[:i]
		}
	}
	return c
}

// place finds the fragment of a key image.
func (t *Table) place(key unsafe.Pointer, n uint32) (frag uint16, primary signal.Addr) {
	frag = t.frag[schema.DistributionBucket(t.Layout.DistributionHash(key, n))]
	return frag, t.primary[frag]
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
	t.chains = append(t.chains, r.Chains()...)
	for i, a := range t.chains {
		first := i%signal.MaxReplicas == 0
		if a == 0 && !first {
			continue
		}
		if a.Node() == 0 || a.Block() != signal.BlockLDM {
			return nil
		}
		if first {
			t.primary = append(t.primary, a)
		}
	}
	return t
}
