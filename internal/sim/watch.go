package sim

import (
	"fmt"

	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/view"
)

// watch sees what the nodes agree on, from the signals that tell their blocks.
type watch struct {
	x     *run
	nodes [signal.MaxDataNode + 1]watched
	// agreed is the members of each view, as the first node to commit it had them.
	agreed []agreement
	lives  [256]int // of arbitrators: the process that took a ticket last
	// settled: there are tables, so that a cluster which begins from nothing has lost something.
	settled bool
	// happened is called when something begins during which a fault is interesting.
	happened func(what moment)
}

// watched is what is known of a data node's present process.
type watched struct {
	life       int
	view       view.View // committed; number 0: none yet
	arbitrator uint8     // as it was told; 0 = nobody
	ticketView uint32    // of its ticket
	ticketLife int       // process of the arbitrator that has the ticket
	stopping   bool      // it was asked to stop
	asked      int64     // when
	// out is when a view without it was committed somewhere else, though it was a member; 0 = never.
	out int64
}

type agreement struct {
	number uint32
	at     int64
	by     uint8
	view   view.View
}

// moment is something during which a fault is interesting.
type moment uint8

const (
	momentPrepare moment = iota // a view is being prepared
	momentView                  // a view was committed
	momentEpoch                 // an epoch change was prepared
	momentSchema                // a table is being created or dropped
	momentCopy                  // a fragment is being copied
	moments
)

// of is what is known of a node's present process.
func (w *watch) of(id uint8) *watched {
	s := &w.nodes[id]
	if p := w.x.net.procs[id]; s.life != p.life {
		*s = watched{life: p.life}
	}
	return s
}

// newest is the newest view that a living node has committed, nil if there is none.
func (w *watch) newest() *view.View {
	var v *view.View
	for _, d := range w.x.cluster.nodes {
		if s := w.of(d.proc.ID); d.proc.alive() && s.view.Number > 0 && (v == nil || s.view.Number > v.Number) {
			v = &s.view
		}
	}
	return v
}

// see looks at a signal that was executed.
func (w *watch) see(h *signal.Head) {
	switch h.Num {
	case signal.NumViewCommitReq:
		if h.To.Block() == signal.BlockDistribution {
			w.committed(signal.As[signal.ViewReq](h))
		}
	case signal.NumViewPrepareReq:
		if h.To.Block() == signal.BlockDistribution {
			w.moment(momentPrepare)
		}
	case signal.NumArbitOrd:
		r := signal.As[signal.ArbitStartConf](h)
		s := w.of(h.To.Node())
		s.arbitrator, s.ticketView, s.ticketLife = uint8(r.Node), r.View, w.lives[r.Node&0xff]
	case signal.NumArbitStartConf:
		if r := signal.As[signal.ArbitStartConf](h); r.Code == 0 {
			s := w.of(h.To.Node())
			w.lives[h.From.Node()] = w.x.net.procs[h.From.Node()].life
			s.arbitrator, s.ticketView, s.ticketLife = h.From.Node(), r.View, w.lives[h.From.Node()]
		}
	case signal.NumEpochPrepareReq:
		if h.From.Node() != h.To.Node() {
			w.moment(momentEpoch)
		}
	case signal.NumSchemaPrepareReq, signal.NumSchemaCommitReq:
		w.moment(momentSchema)
	case signal.NumCopyReq:
		w.moment(momentCopy)
	}
}

func (w *watch) moment(m moment) {
	if w.happened != nil {
		w.happened(m)
	}
}

// committed takes note of a view that a node has committed, and demands that whoever commits a view of that number has
// the same members in it. The first view is agreed on before there is a cluster: an attempt to start may fail at some.
func (w *watch) committed(r *signal.ViewReq) {
	id := r.To.Node()
	s := w.of(id)
	s.view.Take(r.View, r.President, r.Members())
	n := w.x.net
	var old *agreement
	for i := range w.agreed {
		if w.agreed[i].number == r.View {
			old = &w.agreed[i]
		}
	}
	switch {
	case old == nil:
		w.x.stats.Views++
		w.agreed = append(w.agreed, agreement{number: r.View, at: n.now, by: id})
		w.agreed[len(w.agreed)-1].view.Copy(&s.view)
	case sameMembers(&old.view, &s.view) && r.View > 1:
		return
	case r.View == 1 && w.settled && !w.x.o.Chaos.Beyond:
		n.failf("node %d starts a cluster anew with %s: all parts of the one before have ended, though one had to live", id, viewText(&s.view))
	case r.View == 1:
		old.view.Copy(&s.view)
	default:
		n.failf("node %d has committed view %d with %s, and node %d with %s", old.by, r.View, viewText(&old.view), id, viewText(&s.view))
	}
	for _, d := range w.x.cluster.nodes {
		o := w.of(d.proc.ID)
		if d.proc.alive() && o.view.Number > 0 && o.view.Number < r.View && !s.view.Has(d.proc.ID) && o.view.Has(d.proc.ID) && o.out == 0 {
			o.out = n.now
		}
	}
	w.moment(momentView)
}

func sameMembers(a, b *view.View) bool {
	if len(a.Members) != len(b.Members) || a.President != b.President {
		return false
	}
	for i := range a.Members {
		if a.Members[i] != b.Members[i] {
			return false
		}
	}
	return true
}

// viewText prints a view.
func viewText(v *view.View) string {
	s := fmt.Sprintf("%d(", v.Number)
	for i, m := range v.Members {
		if i > 0 {
			s += " "
		}
		s += fmt.Sprint(m.Node) + [...]string{"?", "r", "f", ""}[m.State]
	}
	return s + ")"
}
