package noded

import (
	"context"
	"net"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/host"
	"github.com/cohortdb/cohort/internal/signal"
)

const (
	// A link's SendBufferMemory is how much may wait before requests are held back. Beyond it there is room for the
	// answers to what is already under way: for a client before it is cut, and more for a data node, whose loss would
	// stop the cluster.
	clientExtra = 16 << 20
	dataExtra   = 256 << 20
	// sendMax keeps a send buffer below what a Buf can hold.
	sendMax = 1 << 30
)

// peers says what the runtime needs to know of each other node.
func (p *process) peers() (all [256]host.Peer) {
	for _, n := range p.mgm.conf.Nodes {
		if n.ID == p.mgm.id || n.Type == config.DataNode && n.NodeGroup == config.NoNodeGroup {
			continue
		}
		l := p.mgm.conf.Link(p.mgm.id, n.ID)
		soft := int(min(l.Int("SendBufferMemory"), sendMax/2))
		o := host.Peer{SendSoft: soft, SendHard: min(soft+clientExtra, sendMax), ReadBytes: int(l.Int("ReceiveBufferMemory")), SendKernel: int(l.Int("TCP_SND_BUF_SIZE")),
			ReceiveKernel: int(l.Int("TCP_RCV_BUF_SIZE")), MaxSegment: int(l.Int("TCP_MAXSEG_SIZE")),
			Silence: int(min(4*p.conf.Int("HeartbeatIntervalDbApi"), 1<<31-1))}
		switch n.Type {
		case config.DataNode:
			o.Kind, o.SendHard, o.Silence = signal.PeerData, min(soft+dataExtra, sendMax), 0
			if n.ID < p.mgm.id {
				o.Dial = func(ctx context.Context) (net.Conn, error) { return p.mgm.dialData(ctx, n.ID) }
			}
		case config.ManagementNode:
			o.Kind = signal.PeerMgm
			o.Dial = func(ctx context.Context) (net.Conn, error) { return p.mgm.dialServer(ctx, n.ID) }
		default:
			o.Kind = signal.PeerAPI
		}
		all[n.ID] = o
	}
	return all
}
