package signal

// NodeFailRep tells the blocks of a node that another node is gone: data node, client or management server. A
// coordinator rolls its client's transactions back, an ldm forgets its outcomes; each answers when nothing of the
// failed node is left with it, so that its node id may be used again.
type NodeFailRep struct {
	Head
	Node uint32
	Kind uint32 // Peer
}

// NodeFailConf answers.
type NodeFailConf struct {
	Head
	Node uint32
}

// NodeFreeRep is membership's word to the runtime (BlockRuntime of the own node) that nothing of a failed node is left:
// its node id may link again. Until then the runtime answers RefuseTaken.
type NodeFreeRep struct {
	Head
	Node uint32
}

// NodeUpRep tells the ldms of a node that a client's links are up again: its outcomes are kept from now on.
type NodeUpRep struct {
	Head
	Node uint32
}

// DrainReq makes a coordinator or an ldm refuse new transactions (code 280); it answers when none is open there. With
// Abort it rolls back (code 270) what has not reached its commit point, instead of waiting for it.
type DrainReq struct {
	Head
	Ref   uint32
	Abort uint32
}

// DrainConf answers.
type DrainConf struct {
	Head
	Ref uint32
}

func init() {
	register[NodeFreeRep](NumNodeFreeRep, 0, nil)
	register[NodeUpRep](NumNodeUpRep, 0, nil)
	register[DrainReq](NumDrainReq, 0, nil)
	register[DrainConf](NumDrainConf, 0, nil)
	register[NodeFailRep](NumNodeFailRep, 0, nil)
	register[NodeFailConf](NumNodeFailConf, 0, nil)
}
