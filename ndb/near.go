package ndb

import (
	"context"
	"net"
	"os"
	"time"
)

// nearness tells how far hosts are: the same host before others.
type nearness struct {
	name  string
	local map[string]bool // addresses of this host
}

func newNearness() *nearness {
	n := &nearness{local: map[string]bool{}}
	n.name, _ = os.Hostname()
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok {
			n.local[ip.IP.String()] = true
		}
	}
	return n
}

// distance of a host: 0 this one, 1 another.
func (n *nearness) distance(host string) uint32 {
	if host == "" || host == "localhost" || host == n.name || n.local[host] {
		return 0
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return 0
	}
	return 1
}

// lazyEvery is how often SendLazy's requests are written.
const lazyEvery = 10 * time.Millisecond

// startLazy starts the background writer of lazy sends, once.
func (c *Conn) startLazy() {
	if c.lazy.Swap(true) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Load().closed {
		return
	}
	c.start(func() { c.writeLazily(c.ctx) })
}

func (c *Conn) writeLazily(ctx context.Context) {
	t := time.NewTicker(lazyEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		for _, l := range c.state.Load().links {
			if l != nil {
				c.writeQueued(l)
			}
		}
	}
}
