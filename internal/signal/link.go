package signal

// Hello opens a link: the first frame from the side that dialled. The answer is a HelloConf or a HelloRef,
// after which either side closes or signals flow.
//
//	dialler --Hello--> listener --HelloConf--> dialler
type Hello struct {
	Head
	Magic    uint32    // HelloMagic
	Version  uint32    // of the wire protocol: WireVersion
	Software uint32    // major<<16 | minor<<8 | build of the program
	Node     uint32    // the dialler's node id
	Kind     uint32    // the dialler's Peer kind
	Socket   uint32    // which of the listener's sockets this is for, 0..sockets-1
	Peer     uint32    // the node id that the dialler expects to reach
	Name     [2]uint32 // hash of the cluster's name: links between different clusters are refused
	Secret   [2]uint32 // of the dialler's run: tells two runs of one node id apart
	Sockets  uint32    // links that a data node that dials can serve: the fewer of both sides' are opened; 0 = as many as the listener wants
	LDMs     uint32    // ldm instances of the dialler, when it is a data node
	TCs      uint32    // coordinators of the dialler, when it is a data node
}

// HelloConf accepts a link.
type HelloConf struct {
	Head
	Version  uint32 // of the wire protocol that both will use
	Software uint32
	Node     uint32 // the listener's node id
	Sockets  uint32 // links that the listener wants: one per receiving thread, or the Sockets of a Hello where that is fewer
	LDMs     uint32 // ldm instances of the listener
	TCs      uint32 // coordinators of the listener
	Secret   [2]uint32
}

// HelloRef refuses a link; the listener closes it afterwards.
type HelloRef struct {
	Head
	Code    uint32 // one of the Refuse constants
	TextLen uint32 // bytes of text that follow
}

// Text says why, for an operator.
func (r *HelloRef) Text() string { return string(tail(r, 0, r.TextLen)) }

const (
	// HelloMagic is "CHRT" in memory order.
	HelloMagic = 0x54524843
	// WireVersion is the version of the frames described by this package.
	WireVersion = 1
)

// Reasons to refuse a link.
const (
	RefuseVersion  = 1 + iota // the wire protocols differ
	RefuseCluster             // another cluster's name
	RefuseNode                // no such node id in the configuration, or of another kind
	RefuseTaken               // a live link has this node id already
	RefuseNotReady            // the listener is not yet or no longer taking links of this kind
	RefuseMeant               // the dialler meant another node
	RefuseSocket              // no such socket
)

func init() {
	all := uint8(fromData | fromAPI | fromMgm)
	register[Hello](NumHello, all, nil)
	register[HelloConf](NumHelloConf, all, nil)
	register(NumHelloRef, all, func(p *HelloRef, n uint32) bool {
		return p.TextLen <= 1024 && n == uint32(HeadSize+8)+Pad(p.TextLen)
	})
}

// NameHash is how a cluster's name stands in a Hello: its 64-bit FNV-1a, low word first.
func NameHash(name string) [2]uint32 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(name); i++ {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return [2]uint32{uint32(h), uint32(h >> 32)}
}
