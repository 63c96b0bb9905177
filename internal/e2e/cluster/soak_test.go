package cluster

import (
	"flag"
	"fmt"
	"math/rand"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	soakTime = flag.Duration("soak", 12*time.Second, "how long the soak lasts")
	soakSeed = flag.Int64("soak.seed", 0, "what decides about failures; 0: the time")
	soakOnly = flag.String("soak.only", "", "only failures with this in their name")
	soakNode = flag.Int("soak.victim", 0, "only this data node fails, so that the others run long; 0: any")
	soakGap  = flag.Duration("soak.every", 2*time.Second, "time from one failure to the next")
)

// soak is a cluster on which somebody inflicts one failure after the other.
type soak struct {
	*Cluster
	bank   *Bank
	random *rand.Rand
	count  map[string]int
	worst  map[string]time.Duration // longest gap
	back   map[string]time.Duration // longest time until all was well again
	memory map[int][]int64          // resident bytes of each node, after each failure; of the test itself at 0
}

// TestSoak lets a bank work while nodes are killed, hang and are cut off, until time is up. Each failure is one that the
// cluster must survive, and the next one comes when all nodes are back.
func TestSoak(t *testing.T) {
	kind := Any
	if *soakTime >= time.Minute {
		kind = Namespaces // the long form is not to be had without
	}
	seed := *soakSeed
	if seed == 0 {
		seed = time.Now().UnixNano()
	}
	t.Logf("-soak.seed=%d", seed)
	s := &soak{Cluster: Start(t, Options{DataNodes: 4, Servers: 2, Network: kind}), random: rand.New(rand.NewSource(seed)), count: map[string]int{},
		worst: map[string]time.Duration{}, back: map[string]time.Duration{}, memory: map[int][]int64{}}
	s.bank = s.NewBank(8)
	s.bank.Goes(1000)
	t.Logf("without failures: longest gap %v", s.bank.Gap())
	next := time.NewTicker(*soakGap)
	defer next.Stop()
	for end := time.Now().Add(*soakTime); time.Now().Before(end); <-next.C {
		s.fail()
		s.measure()
		if w := s.bank.Wrong(); len(w) > 0 {
			break // Close says what
		}
	}
	for _, what := range slices.Sorted(mapKeys(s.count)) {
		t.Logf("%-28s %4d times, longest gap %6v, all well again after %6v at most", what, s.count[what],
			s.worst[what].Round(time.Millisecond), s.back[what].Round(time.Millisecond))
	}
	s.bank.Close()
	s.judgeMemory()
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// pick chooses one.
func (s *soak) pick(some []int) int { return some[s.random.Intn(len(some))] }

// failure is something that may happen to a cluster: inflict does it to a node, what that returns mends it.
type failure struct {
	name    string
	weight  int
	inflict func(s *soak, victim int) (mend func())
}

var failures = []failure{
	{"killed", 50, func(s *soak, victim int) func() {
		s.Kill(victim)
		return s.relaunch(victim)
	}},
	{"killed, one of each group", 10, func(s *soak, victim int) func() {
		other := (victim+1)%len(s.data) + 1 // of the other group
		s.Kill(victim)
		s.Kill(other)
		return s.relaunch(victim, other)
	}},
	{"killed, after a server", 10, func(s *soak, victim int) func() {
		server := s.pick(s.servers)
		s.Kill(server)
		s.AwaitArbitrator()
		s.Kill(victim)
		return s.relaunch(server, victim)
	}},
	{"stood still", 8, func(s *soak, victim int) func() { // as long as it takes to be put out, more or less
		s.PauseFor(victim, time.Duration(100+s.random.Intn(1400))*time.Millisecond)
		return s.AwaitAll
	}},
	{"hung", 8, func(s *soak, victim int) func() {
		s.Pause(victim)
		s.AwaitOut(victim)
		return func() { s.Resume(victim) }
	}},
	{"unplugged", 6, func(s *soak, victim int) func() {
		s.Unplug(victim, true)
		s.AwaitOut(victim)
		return func() { s.Unplug(victim, false) }
	}},
	{"cut off", 8, func(s *soak, victim int) func() {
		others := slices.DeleteFunc(slices.Clone(s.data), func(n int) bool { return n == victim })
		s.Cut([]int{victim}, others, true)
		s.AwaitOut(victim)
		return func() { s.Cut([]int{victim}, others, false) }
	}},
}

// relaunch starts nodes whose processes have ended.
func (s *soak) relaunch(nodes ...int) func() {
	return func() {
		for _, n := range nodes {
			s.Launch(n)
		}
	}
}

// choose picks a kind of failure, by weight.
func (s *soak) choose() failure {
	all := 0
	for _, f := range failures {
		all += f.weight
	}
	for {
		k := s.random.Intn(all)
		for _, f := range failures {
			if k -= f.weight; k < 0 && strings.Contains(f.name, *soakOnly) {
				return f
			} else if k < 0 {
				break
			}
		}
	}
}

// fail inflicts one failure and waits until all is well again.
func (s *soak) fail() {
	s.t.Helper()
	f, victim := s.choose(), s.pick(s.data)
	if *soakNode != 0 {
		victim = *soakNode
	}
	s.bank.Gap()
	began := time.Now()
	over := s.Upset("node %d: %s", victim, f.name)
	mend := f.inflict(s, victim)
	s.bank.Goes(200)
	gap := s.bank.Gap()
	s.worst[f.name] = max(s.worst[f.name], gap)
	mend()
	s.AwaitAll()
	s.AwaitArbitrator()
	over()
	took := time.Since(began)
	s.count[f.name]++
	s.back[f.name] = max(s.back[f.name], took)
	s.bank.Goes(200)
	s.t.Logf("%s node %d %s: longest gap %v, well again after %v", began.Format("15:04:05.000"), victim, f.name, gap.Round(time.Millisecond), took.Round(time.Millisecond))
}

// measure notes how much memory everybody has.
func (s *soak) measure() {
	for n, p := range s.runs {
		s.memory[n] = append(s.memory[n], p.Memory())
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s.memory[0] = append(s.memory[0], int64(m.HeapAlloc))
}

// judgeMemory compares the last third with the first: what a process keeps must not grow.
func (s *soak) judgeMemory() {
	s.t.Helper()
	var report []string
	for _, n := range append([]int{0}, slices.Concat(s.data, s.servers)...) {
		all := s.memory[n]
		k := len(all) / 3
		if k == 0 {
			continue
		}
		first, last := slices.Max(all[:k]), slices.Max(all[len(all)-k:])
		report = append(report, fmt.Sprintf("%d: %d MB, %d MB", n, first>>20, last>>20))
		if len(all) >= 12 && last > first+first/4+16<<20 {
			s.t.Errorf("the memory of node %d (0: the clients) grows from %d MB to %d MB", n, first>>20, last>>20)
		}
	}
	s.t.Logf("memory by node (0: the clients), first and last third: %s", strings.Join(report, "; "))
}
