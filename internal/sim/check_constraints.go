package sim

// checkRing demands that all rows of the ring are one ring.
func checkRing(x *run) {
	ring := x.load.ring
	at := 0
	for i := range ring {
		at = int(ring[at].final.amount)
		if at < 0 || at >= len(ring) || at == 0 && i < len(ring)-1 {
			x.net.failf("of %d rows of the ring %d are in it at the end", len(ring), i+1)
			return
		}
	}
	if at != 0 {
		x.net.failf("the ring of %d rows does not come back to where it begins", len(ring))
	}
}

// checkTwin demands that both rows of each pair hold the same.
func checkTwin(x *run) {
	twins := x.load.twins
	for i := 0; i < len(twins); i += 2 {
		if a, b := twins[i], twins[i+1]; a.final.amount != b.final.amount {
			x.net.failf("%v holds %d at the end and %v holds %d, and they must hold the same", a, a.final.amount, b, b.final.amount)
		}
	}
}
