package noded

import (
	"strings"
	"unsafe"

	"github.com/cohortdb/cohort/internal/datanode"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/exitcode"
	"github.com/cohortdb/cohort/internal/host"
	"github.com/cohortdb/cohort/internal/signal"
)

const (
	// warmMost is how much free data memory is kept resident, so that threads seldom wait for the system to find some;
	// of a small data memory it is warmShare. Copies need less.
	warmMost   = 64 << 20
	warmShare  = 8
	warmCopies = 4 << 20
)

// limits turns the configuration into the node's limits and threads.
func (p *process) limits() (err error) {
	if p.config, err = datanode.FromConfig(p.mgm.conf, p.mgm.id); err != nil {
		return fail(exitcode.Config, "%v", err)
	}
	var noWait []int
	for n := p.noWait.Next(0); n != 0; n = p.noWait.Next(n) {
		noWait = append(noWait, int(n))
	}
	if err := p.config.NoWait(noWait); err != nil {
		return fail(exitcode.Config, "--nowait-nodes: %v", err)
	}
	p.config.Membership.NoStart = p.noStart
	if p.layout, err = datanode.LayoutFor(&p.config, p.multi, cpus()); err != nil {
		return fail(exitcode.Config, "%v", err)
	}
	items := datanode.MemorySum(&p.config, &p.layout)
	p.log.info("memory, of which data memory is taken from the system as it is used:\n%s", strings.TrimSuffix(datanode.Describe(items), "\n"))
	return p.fits(host.MachineMemory())
}

// fits compares what rows and copies may take with the memory of the machine (0: not known). More of it than there is
// cannot be locked: the attempt would bring the machine down.
func (p *process) fits(machine int64) error {
	bytes := p.config.DataMemory + p.config.CopyMemory
	switch {
	case machine == 0 || bytes <= machine:
	case p.config.LockMemory:
		return fail(exitcode.Memory, "data memory and copies of rows take %d MB, which LockPagesInMainMemory takes at once, and this machine has %d MB: "+
			"lower DataMemory, or set LockPagesInMainMemory=0", bytes>>20, machine>>20)
	default:
		p.log.warning("data memory and copies of rows may take %d MB, and this machine has %d MB: the system will end this process "+
			"or others before DataMemory is full; lower DataMemory", bytes>>20, machine>>20)
	}
	return nil
}

// reserve reserves the memory for rows and copies.
func (p *process) reserve() (m datanode.Memory, err error) {
	for _, part := range []struct {
		bytes  int64
		warm   int64
		memory **host.Memory
	}{{p.config.DataMemory, warmMost, &p.data}, {p.config.CopyMemory, warmCopies, &p.copies}} {
		if *part.memory, err = host.NewMemory(uint64(part.bytes), uint64(min(part.warm, part.bytes/warmShare))); err != nil {
			return m, fail(exitcode.Memory, "%v: lower DataMemory or MaxNoOfConcurrentOperations", err)
		}
		if p.config.LockMemory {
			p.log.info("touches and locks %d MB of memory", part.bytes>>20)
			if err := (*part.memory).Lock(); err != nil {
				return m, fail(exitcode.Memory, "%v: raise the limit of locked memory (ulimit -l), or set LockPagesInMainMemory=0", err)
			}
		}
	}
	return datanode.Memory{Data: p.data.Region(), DataSource: p.data, Copies: p.copies.Region(), CopiesSource: p.copies}, nil
}

// build puts the node together.
func (p *process) build() (*host.Host, error) {
	memory, err := p.reserve()
	if err != nil {
		return nil, err
	}
	seed := host.NewSecret()
	envs := datanode.NewEnvs(p.config.Node, &p.layout, uint64(seed[0])|uint64(seed[1])<<32)
	node := datanode.New(p.config, p.layout, memory, envs)
	var threads []host.Thread
	for _, t := range node.Threads {
		threads = append(threads, host.Thread{Env: t.Env, Deliver: t.Deliver, Touch: t.Touch})
	}
	h, err := host.New(host.Config{Node: p.config.Node, Threads: threads, Main: p.layout.Main, Receivers: p.layout.Receivers,
		LDMs: len(p.layout.LDMs), TCs: len(p.layout.TCs), Name: signal.NameHash(p.mgm.conf.Name), Secret: p.mgm.secret,
		Peers: p.peers(), Listener: p.listener, SendTotal: p.conf.Int("TotalSendBufferMemory"),
		StallLimit: stallLimit(p.conf.Int("HeartbeatIntervalDbDb")),
		TraceDir:   p.dataDir(), TracesKept: int(min(p.conf.Int("MaxNoOfSavedMessages"), 1<<16)), Log: p.log.info, Observe: p.observe})
	if err != nil {
		return nil, fail(exitcode.Network, "%v", err)
	}
	return h, nil
}

// stallLimit is how long a thread may not run, in ns, before the node doubts that it is still in the cluster: the others
// give it up after four heartbeats, it doubts a little before the third.
func stallLimit(heartbeat int64) int64 {
	return min(heartbeat, 1<<32) * 1_000_000 * 11 / 4
}

// observe sees what the node reports about itself.
func (p *process) observe(h *signal.Head) {
	switch h.Num {
	case signal.NumEventRep:
		r := (*signal.EventRep)(unsafe.Pointer(h))
		e := event.Event{Type: event.Type(min(r.Event, 1<<16-1)), Node: uint8(r.Node), Args: r.Args, Text: string(r.Text())}
		p.log.event(&e)
	case signal.NumNodeStateRep:
		if r := (*signal.NodeStateRep)(unsafe.Pointer(h)); r.State == signal.StateStarted && !p.started {
			p.started = true
			go tuneGo()
		}
	}
}
