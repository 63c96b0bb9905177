package coordinator

import (
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// table is what a coordinator knows of a table.
type table struct {
	primary   []signal.Addr // by fragment; nil when the table is not open
	version   uint16
	closing   bool
	users     uint32 // operations in open transactions
	closeFrom signal.Addr
	closeRef  uint32
}

func (b *Block) onTableOpenReq(r *signal.TableOpenReq) {
	code := uint32(0)
	switch {
	case int(r.Table) >= len(b.tables):
		code = codeNoTable
	default:
		t := &b.tables[r.Table]
		primary := make([]signal.Addr, r.Fragments)
		chains := r.Chains()
		for i := range primary {
			primary[i] = chains[i*signal.MaxReplicas]
		}
		*t = table{primary: primary, version: uint16(r.Version), users: t.users}
	}
	b.tableConf(r.From, signal.NumTableOpenConf, r.Ref, r.Table, code)
}

func (b *Block) onTableCloseReq(r *signal.TableCloseReq) {
	if int(r.Table) >= len(b.tables) || b.tables[r.Table].primary == nil {
		b.tableConf(r.From, signal.NumTableCloseConf, r.Ref, r.Table, 0)
		return
	}
	t := &b.tables[r.Table]
	t.closing, t.closeFrom, t.closeRef = true, r.From, r.Ref
	b.epoch.closing++
	b.closeTables()
}

// closeTables answers closes that nothing stands in the way of any more.
func (b *Block) closeTables() {
	if b.epoch.closing == 0 {
		return
	}
	for i := range b.tables {
		if t := &b.tables[i]; t.closing && t.users == 0 {
			b.tableConf(t.closeFrom, signal.NumTableCloseConf, t.closeRef, uint32(i), 0)
			*t = table{}
			b.epoch.closing--
		}
	}
}

func (b *Block) tableConf(to signal.Addr, num uint16, ref, table, code uint32) {
	c := kernel.Send[signal.TableConf](b.env, to, b.self, num)
	c.Ref, c.Table, c.Code = ref, table, code
}

// usable gives the error code for an operation on a table, 0 when all is well.
func (b *Block) usable(id, version, frag uint16) uint32 {
	if int(id) >= len(b.tables) {
		return codeNoTable
	}
	t := &b.tables[id]
	switch {
	case t.primary == nil:
		return codeNoTable
	case t.version != version:
		return codeOldVersion
	case t.closing:
		return codeDropping
	case int(frag) >= len(t.primary):
		return codeProtocol
	}
	return 0
}
