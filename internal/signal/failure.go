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

func init() {
	register[NodeFailRep](NumNodeFailRep, 0, nil)
	register[NodeFailConf](NumNodeFailConf, 0, nil)
}
