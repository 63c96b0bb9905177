package signal

import "math/bits"

// NodeSet is a set of node numbers 1..255, as signals carry it: node n is bit n%32 of word n/32.
type NodeSet [8]uint32

// Add puts a node into the set.
func (s *NodeSet) Add(node uint8) { s[node/32] |= 1 << (node % 32) }

// Remove takes a node out.
func (s *NodeSet) Remove(node uint8) { s[node/32] &^= 1 << (node % 32) }

// Has tells whether the node is in the set.
func (s *NodeSet) Has(node uint8) bool { return s[node/32]>>(node%32)&1 != 0 }

// Count is how many nodes are in the set.
func (s *NodeSet) Count() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount32(w)
	}
	return n
}

// Empty tells whether no node is in the set.
func (s *NodeSet) Empty() bool { return *s == NodeSet{} }

// Covers tells whether every node of o is in s.
func (s *NodeSet) Covers(o *NodeSet) bool {
	for i := range s {
		if o[i]&^s[i] != 0 {
			return false
		}
	}
	return true
}

// Minus is s without the nodes of o.
func (s *NodeSet) Minus(o *NodeSet) NodeSet {
	r := *s
	for i := range r {
		r[i] &^= o[i]
	}
	return r
}

// Next is the lowest node above after that is in the set, 0 when there is none: for n := s.Next(0); n != 0; n = s.Next(n).
func (s *NodeSet) Next(after uint8) uint8 {
	for n := int(after) + 1; n < 256; {
		w := s[n/32] >> (n % 32)
		if w == 0 {
			n = (n/32 + 1) * 32
			continue
		}
		return uint8(n + bits.TrailingZeros32(w))
	}
	return 0
}
