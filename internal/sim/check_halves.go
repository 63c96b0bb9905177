package sim

// checkLiving demands, of each transaction that wrote and was acknowledged, that the node which said so could know that it
// is in the cluster: it must not have been put out by a view that others had committed before the transaction began.
// Together with the demand that views of one number are the same (watch.go), two parts of a cluster never both live.
func checkLiving(x *run, t *txn) {
	if t.by == 0 || x.net.procs[t.by] == nil || int(t.by) > len(x.cluster.nodes) {
		return
	}
	if w := x.watch.of(t.by); w.out != 0 && t.begun > w.out {
		v := x.watch.newest()
		x.net.failf("%v began at %s and was committed by node %d, which was put out at %s; the newest view is %s: two parts of the cluster live",
			t, ns(t.begun), t.by, ns(w.out), viewText(v))
	}
}
