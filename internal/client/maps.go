package client

// Where fragments are changes while the cluster runs: nodes are lost and come back, primaries move. Definitions stay, and
// so do the Tables and Formats that programs hold; a newer Map goes to the sessions with the View.
//
// A map is asked for anew, in the background, when a data node has refused an operation that it would have had to take by
// the map (1204), when a node comes back, and whenever a program looks the table up. A node that is asked may not have
// heard of the change yet: while the answer is the map that was contradicted, the question is repeated after a growing
// pause, and sessions send that table's operations through coordinators, who know better.

import (
	"slices"

	"github.com/cohortdb/cohort/internal/ndberror"
)

const (
	maxFetching = 8           // maps that are asked for at once
	leastPause  = 2_000_000   // between two questions about a table, nanoseconds: at first …
	mostPause   = 100_000_000 // … and at most
	maxSame     = 10          // answers after which a map is believed though it was contradicted
	mapTimeout  = 5_000_000_000
)

// known is a table that was looked up.
type known struct {
	m     *Map
	name  string // database/table
	want  bool   // it is to be asked for
	doubt bool   // … because it was contradicted
	asked bool   // … and is
	same  int    // answers that were no news
	due   int64  // not before
	pause int64
}

// Refresh asks for a newer map in place of one that a data node has contradicted. The Env's Now has been set.
func (c *Conn) Refresh(m *Map) {
	k := c.at(m.table)
	if k == nil || k.m != m { // there is a newer one already
		return
	}
	if !k.doubt {
		k.want, k.doubt, k.same, k.pause = true, true, 0, leastPause
	}
	c.fetchMaps()
}

// refreshAll asks for the maps of all tables.
func (c *Conn) refreshAll() {
	for _, k := range c.known {
		if k != nil && !k.want {
			k.want, k.pause = true, leastPause
		}
	}
	c.fetchMaps()
}

func (c *Conn) at(id uint16) *known {
	if int(id) < len(c.known) {
		return c.known[id]
	}
	return nil
}

// Due is when Tick has something to do beyond what it is called for every 100 ms; false: nothing.
func (c *Conn) Due() (at int64, ok bool) {
	if c.fetching < maxFetching && len(c.view.near) > 0 {
		for _, k := range c.known {
			if k != nil && k.want && !k.asked && (!ok || k.due < at) {
				at, ok = k.due, true
			}
		}
	}
	if c.leaving > 0 {
		for i := range c.said {
			if out := c.said[i].outAt; out != 0 && (!ok || out < at) {
				at, ok = out, true
			}
		}
	}
	return at, ok
}

// fetchMaps asks for the maps that are wanted.
func (c *Conn) fetchMaps() {
	for _, k := range c.known {
		if c.fetching == maxFetching || len(c.view.near) == 0 {
			return
		}
		if k == nil || !k.want || k.asked || k.due > c.env.Now() {
			continue
		}
		k.asked = true
		c.fetching++
		c.TableInfo(k.name, mapTimeout, func(t *Table, e *ndberror.Error) { c.fetched(k, t, e) })
	}
}

// fetched hears the answer to a question of fetchMaps. learn has seen it.
func (c *Conn) fetched(k *known, t *Table, e *ndberror.Error) {
	k.asked = false
	c.fetching--
	k.due = c.env.Now() + k.pause
	switch {
	case e != nil && e.Class == ndberror.ClassSchema, t != nil && t.id != k.m.table: // it is gone; whoever uses it will be told so
		k.want, k.doubt = false, false
		if c.at(k.m.table) == k {
			c.known[k.m.table] = nil
			c.publish(k.m.table, nil)
		}
		return
	case e != nil:
	case !k.doubt || c.at(k.m.table) != k:
		k.want = false
		return
	default:
		if k.same++; k.same == maxSame {
			m := *k.m
			k.m, k.want, k.doubt = &m, false, false
			c.publish(m.table, &m)
			return
		}
	}
	k.pause = min(2*k.pause, mostPause)
}

// learn takes note of a table that a data node has described.
func (c *Conn) learn(t *Table) {
	for int(t.id) >= len(c.known) {
		c.known = append(c.known, nil)
	}
	k := c.known[t.id]
	switch {
	case k == nil || k.m.version != t.version:
		c.known[t.id] = &known{m: t.first, name: t.Def.Database + "/" + t.Def.Name}
		if k != nil {
			c.publish(t.id, t.first)
		}
	case k.m.same(t.first):
		t.first = k.m
	default:
		k.m, k.want, k.doubt = t.first, false, false
		c.publish(t.id, t.first)
	}
}

// publish puts a map into a new view; nil takes it out.
func (c *Conn) publish(id uint16, m *Map) {
	if c.view.mapAt(id) == m {
		return
	}
	v := *c.view
	v.maps = slices.Clone(v.maps)
	for int(id) >= len(v.maps) {
		v.maps = append(v.maps, nil)
	}
	v.maps[id] = m
	c.view = &v
}
