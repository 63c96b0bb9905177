package coordinator

import (
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/pool"
	"github.com/cohortdb/cohort/internal/signal"
)

// table is what a coordinator knows of a table.
type table struct {
	primary   []signal.Addr // by fragment: where operations go, 0 = nowhere for now; nil when the table is not open
	homes     []signal.Addr // fragment → places of its home, MaxReplicas each
	version   uint16
	closing   bool
	users     uint32 // operations in open transactions
	closeFrom signal.Addr
	closeRef  uint32
	closeNum  uint32 // tells this close from earlier ones of the same id
}

func (b *Block) onTableOpenReq(r *signal.TableOpenReq) {
	code := uint32(0)
	switch {
	case int(r.Table) >= len(b.tables):
		code = codeNoTable
	default:
		t := &b.tables[r.Table]
		*t = table{primary: make([]signal.Addr, r.Fragments), homes: append([]signal.Addr(nil), r.Chains()...), version: uint16(r.Version), users: t.users}
		b.resolve(t)
	}
	b.tableConf(r.From, signal.NumTableOpenConf, r.Ref, r.Table, code)
}

func (b *Block) onTableCloseReq(r *signal.TableCloseReq) {
	if int(r.Table) >= len(b.tables) || b.tables[r.Table].primary == nil {
		b.tableConf(r.From, signal.NumTableCloseConf, r.Ref, r.Table, 0)
		return
	}
	t := &b.tables[r.Table]
	b.closes++
	t.closing, t.closeFrom, t.closeRef, t.closeNum = true, r.From, r.Ref, b.closes
	b.closing++
	if t.users > 0 {
		b.env.Tick(b.self, int64(r.WaitMillis)*1_000_000, tickClose, r.Table, b.closes)
	}
	b.closeTables()
}

// closeNow rolls back what still uses a table whose close has waited long enough: a client that leaves its transaction
// open does not keep a table from being dropped.
func (b *Block) closeNow(id, num uint32) {
	if t := &b.tables[id]; !t.closing || t.closeNum != num {
		return
	}
	for i := uint32(0); i < b.txs.High(); i++ {
		if t := b.txs.Find(i); t != nil && (t.state == active || t.state == held) && b.uses(t, uint16(id)) {
			b.abort(i, t, codeDropping, signal.NoRef)
		}
	}
}

// uses tells whether a transaction has an operation on a table.
func (b *Block) uses(t *transaction, id uint16) bool {
	for oi := t.head; oi != pool.None; {
		o := b.ops.At(oi)
		if o.table == id {
			return true
		}
		oi = o.next
	}
	return false
}

// closeTables answers closes that nothing stands in the way of any more.
func (b *Block) closeTables() {
	if b.closing == 0 {
		return
	}
	for i := range b.tables {
		if t := &b.tables[i]; t.closing && t.users == 0 {
			b.tableConf(t.closeFrom, signal.NumTableCloseConf, t.closeRef, uint32(i), 0)
			*t = table{}
			b.closing--
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
	case t.primary[frag] == 0:
		return codeMoving
	}
	return 0
}
