package sim

import (
	"fmt"
	"strings"
)

// checkAnswered demands that every transaction has ended: called when the load has been at rest for long enough.
func checkAnswered(n *Network, l *load) {
	if l.begun == l.ended {
		return
	}
	var list []string
	for _, x := range l.slots {
		if t := x.t; t != nil && len(list) < 5 {
			var ops []string
			for _, a := range t.actions[t.round:] {
				ops = append(ops, fmt.Sprintf("%s of %v", opNames[a.op], a.cell))
			}
			list = append(list, fmt.Sprintf("%v waits since %s for batch %d: %s", t, ns(t.asked), t.rounds, strings.Join(ops, ", ")))
		}
	}
	n.failf("%d transactions were never answered: %s", l.begun-l.ended, strings.Join(list, "; "))
}
