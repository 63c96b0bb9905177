package signal

// ProbeOrd looks for a cycle of transactions that wait for each other. An ldm sends one for a waiting operation to the
// coordinator of each that the operation waits for (as ProbeOrd); that coordinator passes it on to the ldm of each other
// operation of its transaction that waits (as WaitProbeOrd); that ldm to the coordinators of those which that waits for.
// The operation that the probe names may wait too, in front of others: what it waits for the ldm has looked at already.
// If it comes back to the transaction that it began with, there is a cycle, and that transaction is rolled back (274).
// It is dropped at a transaction of higher rank (client, number), so that one probe of a cycle comes back.
//
//	ldm --ProbeOrd--> tc --WaitProbeOrd--> ldm --ProbeOrd--> tc …
type ProbeOrd struct {
	Head
	Tc     Addr // coordinator of the transaction that it began with
	Client Addr // … its client
	Tx     uint32
	TcRef  uint32 // operation that it is about now: its coordinator's record
	OpSeq  uint32 // … and number
	OpRef  uint32 // WaitProbeOrd: its record at the ldm
	Hops   uint32 // so far; it is dropped at MaxProbeHops
	Round  uint32 // when it began, milliseconds of the ldm where it did: it passes a waiting operation once, by whatever ways it comes
}

// MaxProbeHops bounds the way of a probe.
const MaxProbeHops = 128

func init() {
	registerAs[ProbeOrd](NumProbeOrd, "ProbeOrd", fromData, nil)
	registerAs[ProbeOrd](NumWaitProbeOrd, "WaitProbeOrd", fromData, nil)
}
