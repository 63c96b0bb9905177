package sim

// happening is something that happens at a moment: a route's first signal arrives, a thread has its turn or a timer, or a
// function is called.
type happening struct {
	at    int64
	seq   uint64
	route *route
	turn  *Thread
	timer *Thread
	call  func()
}

// eventHeap is a binary heap, earliest first; equal times in the order in which they were pushed.
type eventHeap []happening

func (e *happening) before(o *happening) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

func (n *Network) push(e happening) {
	n.seq++
	e.seq = n.seq
	h := append(n.events, e)
	for i := len(h) - 1; i > 0; {
		p := (i - 1) / 2
		if !h[i].before(&h[p]) {
			break
		}
		h[i], h[p] = h[p], h[i]
		i = p
	}
	n.events = h
}

func (n *Network) pop() happening {
	h := n.events
	top := h[0]
	last := len(h) - 1
	h[0] = h[last]
	h[last] = happening{}
	h = h[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			break
		}
		if c+1 < last && h[c+1].before(&h[c]) {
			c++
		}
		if !h[c].before(&h[i]) {
			break
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
	n.events = h
	return top
}
