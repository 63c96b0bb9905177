package sim

import (
	"encoding/binary"
	"unsafe"

	"github.com/cohortdb/cohort/internal/client"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
)

// checkEpochs demands that every replica of every row carries the newest epoch that a client was told for a change of
// it: whoever copies only newer rows relies on that.
func checkEpochs(x *run) {
	for _, c := range x.load.model.cells {
		f := x.load.opened[tableKey{x.apis[0], c.rel}]
		if f == nil || c.rel.name == passingName {
			continue
		}
		if x.rowEpochs(c, f); x.net.failure != nil {
			return
		}
	}
}

func (x *run) rowEpochs(c *cell, f *formats) {
	t := f[wholeRow].Table()
	var r row
	c.setKey(&r)
	frag, _, e := f[wholeRow].Place(unsafe.Pointer(&r))
	key, err := c.key(t)
	if e != nil || err != nil {
		x.net.failf("%v has no place: %v %v", c, e, err)
		return
	}
	p, n := unsafe.Pointer(unsafe.SliceData(key)), uint32(len(key))
	want := max(c.gci, c.gciB)
	if len(c.doubts) > 0 {
		want = 0 // not known
	}
	for _, a := range t.Chain(frag) {
		h, _ := x.cluster.fragment(a, uint32(t.ID()), uint32(frag)).Find(schema.Hash(p, n), p, n)
		switch {
		case (h != nil) != c.final.present:
			x.net.failf("%v is at %v: %v, but a client reads that it is there: %v", c, a, h != nil, c.final.present)
			return
		case h != nil && want != 0 && h.GCI() != want:
			x.net.failf("%v has epoch %v at %v, but its newest change was acknowledged with %v", c, signal.GCI(h.GCI()), a, signal.GCI(want))
			return
		}
	}
}

// key is the key image of a cell.
func (c *cell) key(t *client.Table) ([]byte, error) {
	switch c.rel.shape {
	case shapeAccount:
		return t.Layout.AppendKey(nil, binary.LittleEndian.AppendUint32(nil, uint32(c.id)))
	case shapeRegister:
		return t.Layout.AppendKey(nil, binary.LittleEndian.AppendUint64(nil, c.id))
	}
	return t.Layout.AppendKey(nil, binary.LittleEndian.AppendUint32(nil, uint32(c.id/3)), []byte(c.name))
}
