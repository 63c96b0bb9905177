package sim

import (
	"fmt"
	"strings"
)

// Wanted is what a caller fixes of a run; the seed decides the rest. Zero values are left to the seed.
type Wanted struct {
	DataNodes int
	Replicas  int
	// VirtualTime is how long the load lasts, in nanoseconds of virtual time; 0 means defaultVirtualTime.
	VirtualTime int64
	// Transactions is about how many the load runs; 0 means defaultTransactions.
	Transactions int
	// Faults that may happen. Schedule, if not nil, is what happens instead of what the seed draws.
	Faults   faultSet
	Schedule []fault
}

const (
	defaultVirtualTime  = 60 * second
	defaultTransactions = 20_000
)

// Options are all that a run depends on besides its random streams.
type Options struct {
	Seed        uint64
	DataNodes   int
	Replicas    int
	VirtualTime int64 // nanoseconds

	// Threads holds each data node's layout.
	Threads []Layout
	// OtherThreads: a data node may come back with another layout.
	OtherThreads bool
	// PartitionsPerNode, and so on, are parameters of the configuration.
	PartitionsPerNode  int
	EpochMillis        int // TimeBetweenEpochs; 0: an epoch ends with a global checkpoint alone
	CheckpointMillis   int // TimeBetweenGlobalCheckpoints
	LockTimeoutMillis  int // TransactionDeadlockDetectionTimeout
	InactiveMillis     int // TransactionInactiveTimeout
	MaxTransactions    int // MaxNoOfConcurrentTransactions
	MaxOperations      int // MaxNoOfConcurrentOperations
	DataMemoryMegabyte int
	CopyKilobyte       int // memory for pending changes, less than the configuration would give

	Managers int // management servers
	Clients  int // API nodes
	Sessions int // of each
	// InvariantsEvery: every block is examined after so many signals; 0 = only at the end.
	InvariantsEvery int

	Weather Weather
	Load    LoadOptions
	Chaos   ChaosOptions
	Drift   []int64 // of each data node's clock, in millionths
}

// wait is how long a client waits for an answer, ns; 0 = for ever.
func (o *Options) wait() int64 {
	if o.Chaos.Faults&^(faultsDelay|faultsDrift) == 0 && o.Chaos.Schedule == nil {
		return 0
	}
	return 10 * second
}

// Layout is what the configuration says about the threads of a data node.
type Layout struct {
	Combined int // threads that each do everything; 0: a ThreadConfig names threads for roles
	// Threads of a ThreadConfig by role. Roles without threads share those that receive.
	Main, Recv, TC, LDM int
}

func (l Layout) String() string {
	if l.Combined > 0 {
		return fmt.Sprint(l.Combined)
	}
	return fmt.Sprintf("main%d+recv%d+tc%d+ldm%d", l.Main, l.Recv, l.TC, l.LDM)
}

func drawLayout(r *Random) Layout {
	if r.Chance(1, 2) {
		return Layout{Combined: r.Between(1, maxCombined)}
	}
	return Layout{Main: r.Between(0, 1), Recv: r.Between(1, 2), TC: r.Between(0, 2), LDM: r.Between(0, 3)}
}

// maxCombined is the largest number of threads that do everything: as many CPUs as the simulated machines have.
const maxCombined = 4

// config is the layout's part of a configuration.
func (l Layout) config() string {
	if l.Combined > 0 {
		return fmt.Sprintf("AutomaticThreadConfig=1\nNumCPUs=%d\n", l.Combined)
	}
	return fmt.Sprintf("ThreadConfig=main={count=%d},recv={count=%d},tc={count=%d},ldm={count=%d},rep={count=0}\n", l.Main, l.Recv, l.TC, l.LDM)
}

// LoadOptions say what the clients do.
type LoadOptions struct {
	Transactions int // in all
	Accounts     int // of the bank
	Registers    int // rows that everybody reads, increments and writes
	Private      int // rows of each session that nobody else writes
	Churned      int // keys that everybody inserts and deletes
	Ring         int // rows of the ring
	Twins        int // pairs of rows that hold the same
	Atomic       int // registers whose history is kept
	// HotOf in 16 transactions on registers and accounts choose among the first few.
	HotOf int
	// DisorderOf in 16 transactions take their locks in random order: then they may deadlock.
	DisorderOf int
	// Most operations in a transaction.
	Operations int
	// LargeBytes is the longest variable value; Dense: most are long, so that memory may run out.
	LargeBytes int
	Dense      bool
	// Schema changes during the load: a table is created, used and dropped so many times.
	SchemaChanges int
	// Weights of the kinds of transactions, in the order of the kinds table.
	Weights [kindsDrawn]int
	Streams int // of transactions in each session
	// Reopened: so many times during the load a session is closed with what is under way, and opened anew.
	Reopened int
	// Cuts: so many times a link between a client and a data node is cut, and opened anew.
	Cuts int
}

// epochSignalsMax bounds what epoch changes may cost in a run, in signals.
const epochSignalsMax = 400_000

// slowEpochs makes epochs long enough for the length of the run.
func (o *Options) slowEpochs() {
	each := 0 // signals of an epoch change
	for _, l := range o.Threads {
		blocks := 2 * l.Combined
		if l.Combined == 0 {
			blocks = max(l.TC, l.Recv) + max(l.LDM, l.Recv)
		}
		each += 4 * (blocks + 1)
	}
	least := int(o.VirtualTime / int64(epochSignalsMax/each) / millisecond)
	if o.EpochMillis > 0 {
		o.EpochMillis = max(o.EpochMillis, least)
	}
	o.CheckpointMillis = max(o.CheckpointMillis, least)
}

// Draw draws the options of a run from its seed.
func Draw(seed uint64, w Wanted) Options {
	r := NewRandom(seed).Sub("options")
	o := Options{Seed: seed, VirtualTime: w.VirtualTime}
	if o.VirtualTime == 0 {
		o.VirtualTime = defaultVirtualTime
	}
	o.drawShape(r.Sub("shape"), w)
	o.drawParameters(r.Sub("parameters"))
	o.slowEpochs()
	o.Weather = drawWeather(r.Sub("weather"))
	o.drawLoad(r.Sub("load"), w)
	o.Chaos = drawChaos(r.Sub("faults"), w.Faults, o.VirtualTime)
	o.Chaos.Schedule = w.Schedule
	if o.Chaos.Faults.has(faultsDrift) {
		d := r.Sub("drift")
		for range o.DataNodes {
			o.Drift = append(o.Drift, int64(d.Between(-200, 200)))
		}
	}
	o.InvariantsEvery = Pick(r.Sub("invariants"), 20, 200, 2000, 2000)
	return o
}

// drawShape draws nodes, groups and threads.
func (o *Options) drawShape(r *Random, w Wanted) {
	groups := r.Between(1, 2)
	o.Replicas, o.DataNodes = w.Replicas, w.DataNodes
	switch {
	case o.Replicas == 0 && o.DataNodes == 0:
		o.Replicas = Pick(r, 1, 2, 2, 2, 3, 4)
		o.DataNodes = groups * o.Replicas
	case o.Replicas == 0:
		o.Replicas = r.Between(1, 4)
		for o.DataNodes%o.Replicas != 0 {
			o.Replicas--
		}
	case o.DataNodes == 0:
		o.DataNodes = groups * o.Replicas
	}
	same := r.Chance(1, 2) // the same layout everywhere, as it mostly is
	for i := range o.DataNodes {
		l := drawLayout(r)
		if same && i > 0 {
			l = o.Threads[0]
		}
		o.Threads = append(o.Threads, l)
	}
	o.Managers = r.Between(1, 2)
	o.OtherThreads = r.Chance(1, 2)
	o.Clients = r.Between(1, 3)
	o.Sessions = r.Between(1, 6)
	if o.Clients*o.Sessions < 4 {
		o.Sessions = 4
	}
}

func (o *Options) drawParameters(r *Random) {
	o.PartitionsPerNode = r.Between(1, 4)
	o.EpochMillis = Pick(r, 0, 1, 5, 10, 100, 100, 1000)
	o.CheckpointMillis = Pick(r, 20, 200, 1000, 2000)
	o.LockTimeoutMillis = Pick(r, 50, 50, 100, 100, 500, 1200)
	o.InactiveMillis = Pick(r, 1000, 5000, 60_000)
	o.MaxTransactions = Pick(r, 32, 32, 64, 1024)
	o.MaxOperations = max(Pick(r, 32, 64, 256, 8192), o.MaxTransactions)
	o.DataMemoryMegabyte = Pick(r, 3, 4, 8)
	o.CopyKilobyte = Pick(r, 512, 1024, 4096)
}

func (o *Options) drawLoad(r *Random, w Wanted) {
	l := &o.Load
	l.Transactions = w.Transactions
	if l.Transactions == 0 {
		l.Transactions = defaultTransactions
	}
	l.Accounts = r.Between(2, 24)
	l.Registers = r.Between(2, 60)
	l.Private = r.Between(1, 20)
	l.Churned = r.Between(2, 200)
	l.Ring = r.Between(5, 16)
	l.Twins = r.Between(1, 6)
	l.Atomic = r.Between(2, 8)
	l.HotOf = r.Int(17)
	l.DisorderOf = Pick(r, 0, 0, 1, 1, 16)
	l.Operations = r.Between(2, 20)
	l.LargeBytes = Pick(r, 20, 200, 2000, 8000, 25_000)
	l.Dense = r.Chance(1, 8)
	l.SchemaChanges = r.Between(0, 6)
	l.Reopened = Pick(r, 0, 0, 3, 30)
	l.Cuts = Pick(r, 0, 0, 2, 20)
	l.Streams = Pick(r, 1, 1, 2, 4)
	if r.Chance(1, 8) { // a crowd, which the smallest pools cannot take in
		l.Streams = max(48/(o.Clients*o.Sessions), 4)
	}
	for o.Clients*o.Sessions*l.Streams < 8 { // or a few that wait would bring the load to a halt
		l.Streams *= 2
	}
	for i := range l.Weights {
		l.Weights[i] = Pick(r, 0, 1, 1, 2, 8)
	}
	l.Weights[r.Int(len(l.Weights))] = 4 // at least one kind
	if l.Dense {                         // much data, little memory
		l.LargeBytes = 25_000
		l.Churned = r.Between(400, 800)
		l.Weights[kindChurn] = 8
		o.DataMemoryMegabyte, o.PartitionsPerNode = 2, r.Between(1, 2)
	}
}

// String prints the options of a run, for a reader of its trace.
func (o Options) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d data nodes, %d replicas, threads %v, %d partitions per node, %d clients of %d sessions, %s\n",
		o.Seed, o.DataNodes, o.Replicas, o.Threads, o.PartitionsPerNode, o.Clients, o.Sessions, ns(o.VirtualTime))
	fmt.Fprintf(&b, "epochs every %d ms, checkpoints every %d ms, lock timeout %d ms, inactive timeout %d ms, %d transactions, %d operations, %d MB, %d KB of copies\n",
		o.EpochMillis, o.CheckpointMillis, o.LockTimeoutMillis, o.InactiveMillis, o.MaxTransactions, o.MaxOperations, o.DataMemoryMegabyte, o.CopyKilobyte)
	fmt.Fprintf(&b, "weather %v\nload %+v\n", o.Weather, o.Load)
	c := &o.Chaos
	fmt.Fprintf(&b, "faults %v every %s, biased 1/%d, early %v, down %s, long %s, drift %v ppm", c.Faults, ns(c.Interval), c.Biased, c.Early, ns(c.Down),
		ns(c.Long), o.Drift)
	return b.String()
}

// configText is the config.ini that the options stand for, so that a run starts where a real cluster does.
func (o Options) configText() string {
	var b strings.Builder
	fmt.Fprintf(&b, `[SYSTEM]
Name=simulated

[NDBD DEFAULT]
NoOfReplicas=%d
Diskless=1
DataMemory=%dM
PartitionsPerNode=%d
TimeBetweenEpochs=%d
TimeBetweenGlobalCheckpoints=%d
TransactionDeadlockDetectionTimeout=%d
TransactionInactiveTimeout=%d
MaxNoOfConcurrentTransactions=%d
MaxNoOfConcurrentOperations=%d
`, o.Replicas, o.DataMemoryMegabyte, o.PartitionsPerNode, o.EpochMillis, o.CheckpointMillis, o.LockTimeoutMillis, o.InactiveMillis,
		o.MaxTransactions, o.MaxOperations)
	for i := range o.Managers {
		fmt.Fprintf(&b, "\n[NDB_MGMD]\nNodeId=%d\nHostName=localhost\nPortNumber=%d\n", firstManager-i, 1186+i)
	}
	for i, l := range o.Threads {
		fmt.Fprintf(&b, "\n[NDBD]\nNodeId=%d\nHostName=localhost\n%s", i+1, l.config())
	}
	for i := range o.Clients {
		fmt.Fprintf(&b, "\n[API]\nNodeId=%d\n", firstClient+i)
	}
	return b.String()
}

// Node ids: data nodes from 1, clients from firstClient, management servers from firstManager downwards.
const (
	firstClient  = 200
	firstManager = 199
)
