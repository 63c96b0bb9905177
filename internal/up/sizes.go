package up

import "fmt"

const (
	mib = 1 << 20

	// dataMemoryMax suffices for every command of NDB users' benchmark notes: 4.8 million rows of flexAsynch with
	// two attributes take about 200 MB at each of two nodes, 256,000 rows of 4 KB about 1 GB.
	dataMemoryMax = 2000 * mib
	dataMemoryMin = 64 * mib

	// One client program may have threads × transactions of each under way, all at one node: 12 × 400 and 8 × 512 are
	// usual. An operation's record is small, so there are several for each transaction.
	concurrentTransactions = 16384
	concurrentOperations   = 65536
)

// machine is what the sizes are chosen from.
type machine struct {
	cpus   int
	memory uint64 // bytes that the processes of this machine, or of this container, may take together; 0: unknown
}

// sizes are what one data node may take.
type sizes struct {
	dataMemory    uint64 // bytes
	multiThreaded bool
	cpus          int // for a multi-threaded node's loops
}

// choose gives each of n data nodes its share: half of the memory, and of the CPUs one share more than there are
// nodes, because clients run here too.
func (m machine) choose(n int) sizes {
	s := sizes{dataMemory: dataMemoryMax}
	if m.memory > 0 {
		share := m.memory / 2 / uint64(n) / (32 * mib) * (32 * mib)
		s.dataMemory = min(max(share, dataMemoryMin), dataMemoryMax)
	}
	s.multiThreaded = m.cpus/n > 2
	s.cpus = max(m.cpus/(n+1), 2)
	return s
}

// megabytes writes a number of bytes as a configuration file has it.
func megabytes(bytes uint64) string { return fmt.Sprintf("%dM", bytes/mib) }
