package sim

// checkMoney demands that what all accounts hold is what they held at first.
func checkMoney(x *run) {
	n, l := x.net, x.load
	sum := int64(0)
	for _, c := range l.accounts {
		sum += int64(c.final.amount)
	}
	if want := int64(len(l.accounts)) * initialAmount; sum != want {
		n.failf("all accounts hold %d at the end, and must hold %d", sum, want)
	}
}
