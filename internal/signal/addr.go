package signal

import "fmt"

// Addr names a block of a node: node number in bits 24–31, block in bits 16–23, instance in bits 0–15.
// The instance of a coordinator or an ldm counts from 0 within its node; that of a client is its session.
type Addr uint32

// MakeAddr builds an address. node is 1..255, block one of the Block constants, instance 0..65535.
func MakeAddr(node uint8, block uint8, instance uint16) Addr {
	return Addr(uint32(node)<<24 | uint32(block)<<16 | uint32(instance))
}

// Node is the node number, 0 only in the zero Addr.
func (a Addr) Node() uint8 { return uint8(a >> 24) }

// Block is the block number.
func (a Addr) Block() uint8 { return uint8(a >> 16) }

// Instance is the number of the block's instance within its node.
func (a Addr) Instance() uint16 { return uint16(a) }

func (a Addr) String() string {
	b := a.Block()
	name := "block" + fmt.Sprint(b)
	if int(b) < len(blockNames) && blockNames[b] != "" {
		name = blockNames[b]
	}
	return fmt.Sprintf("%d:%s.%d", a.Node(), name, a.Instance())
}

// Blocks. NDB's names in brackets.
const (
	// BlockMembership knows who is in the cluster and runs the steps of a start [QMGR, NDBCNTR].
	BlockMembership uint8 = 1
	// BlockDistribution knows which node holds which fragment and runs the epochs [DBDIH].
	BlockDistribution uint8 = 2
	// BlockDictionary holds the tables [DBDICT].
	BlockDictionary uint8 = 3
	// BlockManager is the face of a data node towards management: events, stop, reports [CMVMI].
	BlockManager uint8 = 4
	// BlockTC is a transaction coordinator [DBTC].
	BlockTC uint8 = 5
	// BlockLDM is a local data manager [DBLQH, DBTUP, DBACC].
	BlockLDM uint8 = 6
	// BlockClient is a session of the record API; its instance is the session number, 0 the connection itself.
	BlockClient uint8 = 16
	// BlockMgm is a management server.
	BlockMgm uint8 = 17
	// BlockRuntime is what runs the node: it takes ExitOrd, NodeFreeRep, and every NodeStateRep and EventRep of the node.
	BlockRuntime uint8 = 18
	// BlockArbitrator decides, at a management server or client, which part of a divided cluster goes on.
	BlockArbitrator uint8 = 19

	// MaxBlocks bounds block numbers.
	MaxBlocks = 32
)

var blockNames = [MaxBlocks]string{
	BlockMembership: "membership", BlockDistribution: "distribution", BlockDictionary: "dictionary",
	BlockManager: "manager", BlockTC: "tc", BlockLDM: "ldm", BlockClient: "client", BlockMgm: "mgm", BlockRuntime: "runtime", BlockArbitrator: "arbitrator",
}
