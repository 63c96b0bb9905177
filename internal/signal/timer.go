package signal

// TickOrd is a block's own timer: it sends it to itself with a delay and gets it back. It never leaves its thread.
type TickOrd struct {
	Head
	Kind uint32 // the block's own numbering
	A, B uint32 // whatever the block wants back
}

func init() { register[TickOrd](NumTickOrd, 0, nil) }
