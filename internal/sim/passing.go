package sim

import (
	"github.com/cohortdb/cohort/internal/client"
	"github.com/cohortdb/cohort/internal/ndberror"
)

// passing is a table that is created while the load runs, used by everybody, and dropped with transactions on it.
type passing struct {
	rel   *relation
	cells []*cell
}

const passingName = "sim/passing"

// schemaTimeout is how long a client waits for an answer about a table, ns.
const schemaTimeout = 60 * second

// changeSchema creates, uses and drops the passing table times times, with random pauses of about pause.
func (l *load) changeSchema(times int, pause int64, done func()) {
	if times == 0 || l.phase != phaseLoad {
		done()
		return
	}
	l.net.at(l.net.now+l.random.Exponential(pause), func() {
		p := &passing{rel: &relation{name: passingName, shape: shapeMixed, large: l.o.LargeBytes}}
		for i := range 50 {
			p.cells = append(p.cells, l.model.cell(p.rel, uint64(i), classChurn))
		}
		l.create(l.apis[l.random.Int(len(l.apis))], p.rel, func() {
			l.openEverywhere(p.rel, func() { l.passing = p })
			l.net.at(l.net.now+l.random.Exponential(pause), func() {
				l.passing = nil
				l.drop(l.apis[l.random.Int(len(l.apis))], p.rel, func() {
					l.model.stats.Tables++
					l.changeSchema(times-1, pause, done)
				})
			})
		})
	})
}

// create creates a table. A refusal for want of memory is tried again: rows take and give back pages all the time.
func (l *load) create(a *api, r *relation, done func()) {
	a.onConn(func() {
		a.conn.CreateTable(r.def(), schemaTimeout, func(e *ndberror.Error) {
			switch {
			case e == nil:
				done()
			case mayRepeat(e) || e.Class == ndberror.ClassSpace:
				l.net.at(l.net.now+100*millisecond, func() { l.create(a, r, done) })
			default:
				l.net.failf("node %d: creating %s failed: %v", a.proc.ID, r.name, e)
			}
		})
	})
}

// drop drops a table.
func (l *load) drop(a *api, r *relation, done func()) {
	a.onConn(func() {
		a.conn.DropTable(r.name, schemaTimeout, func(e *ndberror.Error) {
			switch {
			case e == nil:
				done()
			case mayRepeat(e):
				l.net.at(l.net.now+100*millisecond, func() { l.drop(a, r, done) })
			default:
				l.net.failf("node %d: dropping %s failed: %v", a.proc.ID, r.name, e)
			}
		})
	})
}

// open makes an API node know a table.
func (l *load) open(a *api, r *relation, done func()) {
	a.onConn(func() {
		a.conn.TableInfo(r.name, schemaTimeout, func(t *client.Table, e *ndberror.Error) {
			switch {
			case e == nil:
				f, err := r.bind(t)
				if err != nil {
					l.net.failf("node %d: binding %s failed: %v", a.proc.ID, r.name, err)
					return
				}
				l.opened[tableKey{a, r}] = &f
				done()
			case mayRepeat(e):
				l.net.at(l.net.now+100*millisecond, func() { l.open(a, r, done) })
			case r.name == passingName && e.Class == ndberror.ClassSchema:
				done() // dropped meanwhile
			default:
				l.net.failf("node %d: looking %s up failed: %v", a.proc.ID, r.name, e)
			}
		})
	})
}

// openEverywhere makes every API node know a table.
func (l *load) openEverywhere(r *relation, done func()) {
	left := len(l.apis)
	for _, a := range l.apis {
		l.open(a, r, func() {
			if left--; left == 0 {
				done()
			}
		})
	}
}

// onConn runs f on the thread of the connection.
func (a *api) onConn(f func()) {
	a.net.onThread(a.proc.Threads[0], f)
}

// mayRepeat tells whether a request about a table may be sent again: nobody has carried it out.
func mayRepeat(e *ndberror.Error) bool {
	return e.Class.Temporary() || e.Code == ndberror.ClusterNotReady
}
