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

// asking is a request about a table that is under way at a client.
type asking struct{ answer func(*ndberror.Error) }

// ask sends a request about a table. answer is called once: with what the cluster says, or with "answer lost" when the
// client is killed meanwhile.
func (a *api) ask(answer func(*ndberror.Error), send func(done func(*ndberror.Error))) {
	q := &asking{answer}
	a.asked = append(a.asked, q)
	a.onConn(func() {
		send(func(e *ndberror.Error) {
			for i := range a.asked {
				if a.asked[i] == q {
					a.asked = append(a.asked[:i], a.asked[i+1:]...)
					answer(e)
					return
				}
			}
		})
	})
}

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
		l.create(l.apis[l.random.Int(len(l.apis))], p.rel, false, func() {
			l.openEverywhere(p.rel, func() { l.passing = p })
			l.net.at(l.net.now+l.random.Exponential(pause), func() {
				l.passing = nil
				l.drop(l.apis[l.random.Int(len(l.apis))], p.rel, false, func() {
					l.model.stats.Tables++
					l.changeSchema(times-1, pause, done)
				})
			})
		})
	})
}

// again does something about a table a little later, at a client that lives by then.
func (l *load) again(f func()) { l.net.at(l.net.now+100*millisecond, f) }

// create creates a table. A refusal for want of memory is tried again: rows take and give back pages all the time.
// unknown: an attempt before had an unknown outcome, so the table may be there.
func (l *load) create(a *api, r *relation, unknown bool, done func()) {
	if a.down {
		l.again(func() { l.create(a, r, unknown, done) })
		return
	}
	a.ask(func(e *ndberror.Error) {
		switch {
		case e == nil, unknown && e.Code == ndberror.TableExists:
			done()
		case mayRepeat(e) || e.Class == ndberror.ClassSpace || l.lost(e):
			l.again(func() { l.create(a, r, unknown || l.lost(e), done) })
		default:
			l.net.failf("node %d: creating %s failed: %v", a.id, r.name, e)
		}
	}, func(done func(*ndberror.Error)) { a.conn.CreateTable(r.def(), schemaTimeout, done) })
}

// drop drops a table.
func (l *load) drop(a *api, r *relation, unknown bool, done func()) {
	if a.down {
		l.again(func() { l.drop(a, r, unknown, done) })
		return
	}
	a.ask(func(e *ndberror.Error) {
		switch {
		case e == nil, unknown && e.Code == ndberror.NoSuchTable:
			done()
		case mayRepeat(e) || l.lost(e):
			l.again(func() { l.drop(a, r, unknown || l.lost(e), done) })
		default:
			l.net.failf("node %d: dropping %s failed: %v", a.id, r.name, e)
		}
	}, func(done func(*ndberror.Error)) { a.conn.DropTable(r.name, schemaTimeout, done) })
}

// lost tells whether an error leaves open whether a request about a table was carried out, because of what was done to
// the cluster.
func (l *load) lost(e *ndberror.Error) bool {
	return l.model.disturbed && e.Class == ndberror.ClassUnknownResult
}

// open makes an API node know a table.
func (l *load) open(a *api, r *relation, done func()) {
	if a.proc.dead {
		if r.name == passingName {
			done() // it will not know it
			return
		}
		l.again(func() { l.open(a, r, done) })
		return
	}
	var t *client.Table
	a.ask(func(e *ndberror.Error) {
		switch {
		case e == nil:
			f, err := r.bind(t)
			if err != nil {
				l.net.failf("node %d: binding %s failed: %v", a.id, r.name, err)
				return
			}
			l.opened[tableKey{a, r}] = &f
			done()
		case r.name == passingName && e.Class == ndberror.ClassSchema:
			done() // dropped meanwhile
		case mayRepeat(e) || l.lost(e):
			l.again(func() { l.open(a, r, done) })
		default:
			l.net.failf("node %d: looking %s up failed: %v", a.id, r.name, e)
		}
	}, func(done func(*ndberror.Error)) {
		a.conn.TableInfo(r.name, schemaTimeout, func(x *client.Table, e *ndberror.Error) {
			t = x
			done(e)
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
