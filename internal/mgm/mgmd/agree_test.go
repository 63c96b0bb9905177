package mgmd_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/configstore"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/mgmd"
	"github.com/cohortdb/cohort/internal/mgm/mgmtest"
)

// stored is a pair of servers whose configurations lie on disk.
type stored struct {
	*mgmtest.Pair
	t      *testing.T
	stores [2]*configstore.Store
}

func storedPair(t *testing.T) *stored {
	t.Helper()
	p := &stored{t: t}
	for i := range p.stores {
		st, err := configstore.Open(t.TempDir(), 49+i)
		if err != nil {
			t.Fatal(err)
		}
		p.stores[i] = st
	}
	p.Pair = mgmtest.StartPair(t, mgmtest.TwoServers, func(o *mgmd.Options) {
		o.Store = p.stores[o.NodeID-49]
		if err := mgmd.Store(o.Store, o.Config, false); err != nil {
			t.Fatal(err)
		}
	})
	return p
}

// again starts a server from what it has stored.
func (p *stored) again(i int) *mgmtest.Server {
	p.t.Helper()
	return p.Again(p.t, i, p.onDisk(i), func(o *mgmd.Options) { o.Store = p.stores[i] })
}

func (p *stored) onDisk(i int) *config.Config {
	p.t.Helper()
	raw, _, err := p.stores[i].Load()
	if err != nil {
		p.t.Fatal(err)
	}
	c, err := config.UnmarshalBinary(raw)
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// with is the pair's configuration with another API node.
func (p *stored) with(id int) *config.Config {
	return mgmtest.Parse(p.t, p.Ini+fmt.Sprintf("[API]\nNodeId=%d\n", id))
}

// uses waits until a server uses, and has stored, a generation, and gives it.
func (p *stored) uses(i int, generation uint32) *config.Config {
	p.t.Helper()
	c := p.Servers[i].Connect()
	defer c.Close()
	var got *config.Config
	mgmtest.Until(p.t, fmt.Sprintf("server %d has generation %d", 49+i, generation), func() bool {
		var err error
		if got, err = c.GetConfig(mgmtest.Context(p.t), 0); err != nil {
			p.t.Fatal(err)
		}
		return got.Generation == generation
	})
	if disk := p.onDisk(i); disk.Generation != generation || len(config.Diff(disk, got)) > 0 {
		p.t.Fatalf("server %d uses generation %d and has stored %d", 49+i, generation, disk.Generation)
	}
	return got
}

func TestAChangeIsMadeAtBothServersOrAtNone(t *testing.T) {
	p := storedPair(t)
	ctx := mgmtest.Context(t)
	if err := p.Servers[1].Connect().SetConfig(ctx, p.with(60)); err != nil {
		t.Fatal(err)
	}
	for i := range p.Servers {
		if p.uses(i, 2).Node(60) == nil {
			t.Fatalf("server %d has another configuration 2", 49+i)
		}
		p.Servers[i].Logged("Configuration 2: [API] 60 NodeId: none -> 60 (needs node restart)")
	}
	// A node that runs at the other server keeps its place.
	n := p.Servers[1].Connect()
	take(t, n, mgmclient.NodeIDRequest{Type: api, NodeID: 60})
	err := p.Servers[0].Connect().SetConfig(ctx, p.with(61))
	if err == nil || err.Error() != "Management server 50 refused: Node 60 runs and has no place in the new configuration; stop it first; the configuration stays as it is" {
		t.Fatal(err)
	}
	p.uses(0, 2)
	p.uses(1, 2)
	n.Close()
	word(t, p.Servers[1], 60, mgmclient.NoContact)
	// Both must be there.
	p.Servers[1].Kill()
	word(t, p.Servers[0], 50, mgmclient.NoContact)
	err = p.Servers[0].Connect().SetConfig(ctx, p.with(61))
	if err == nil || !strings.HasPrefix(err.Error(), "A change of the configuration needs all management servers, and node 50 cannot be used (") {
		t.Fatal(err)
	}
	p.uses(0, 2)
	// But not one that the change takes away.
	without := mgmtest.Parse(t, strings.Replace(p.Ini, "[NDB_MGMD]\nNodeId=50\nPortNumber="+mgmtest.Port(p.Listeners[1])+"\n", "", 1))
	if err := p.Servers[0].Connect().SetConfig(ctx, without); err != nil {
		t.Fatal(err)
	}
	p.uses(0, 3)
}

// A server that missed a change fetches it, whether it starts or has only lost the other one.
func TestTheOlderConfigurationGivesWay(t *testing.T) {
	p := storedPair(t)
	p.Servers[0].Kill()
	newer := p.with(60)
	newer.Generation = 2
	if err := mgmd.Store(p.stores[0], newer, false); err != nil {
		t.Fatal(err)
	}
	p.again(0)
	if p.uses(1, 2).Node(60) == nil {
		t.Fatal("another configuration 2")
	}
	p.Servers[1].Logged("Configuration 2 was fetched from the management server at 127.0.0.1:")
	p.Met(t)
	if err := p.Servers[1].Connect().SetConfig(mgmtest.Context(t), p.with(61)); err != nil {
		t.Fatal(err)
	}
	p.uses(0, 3)
}

// A change whose maker dies half way is made nowhere, and is in nobody's way.
func TestAPreparedChangeDiesWithItsMaker(t *testing.T) {
	p := storedPair(t)
	p.Servers[1].Kill()
	word(t, p.Servers[0], 50, mgmclient.NoContact)
	maker := p.Servers[0].Dial()
	raw, err := p.with(60).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	hello := "mgmd hello\nnode: 50\nversion: 256\ncluster: test\ngeneration: 1\ndigest: 0\n\n"
	if got := maker.Say(hello); !strings.Contains(got, "result: Ok") {
		t.Fatalf("%q", got)
	}
	newer, err := config.UnmarshalBinary(raw)
	if err != nil {
		t.Fatal(err)
	}
	newer.Generation = 2
	if raw, err = newer.MarshalBinary(); err != nil {
		t.Fatal(err)
	}
	prepare := mgmd.PrepareRequest(1, raw)
	if got := maker.Say(prepare); got != "mgmd prepare reply\nresult: Ok\n\n" {
		t.Fatalf("%q", got)
	}
	if got := maker.Say(prepare); !strings.Contains(got, "Another change of the configuration is under way, made by management server 50") {
		t.Fatalf("%q", got)
	}
	if err := p.Servers[0].Connect().SetConfig(mgmtest.Context(t), p.with(61)); err == nil || !strings.Contains(err.Error(), "Another change") {
		t.Fatal(err)
	}
	if got := maker.Say("mgmd commit\ngeneration: 3\n\n"); !strings.Contains(got, "Configuration 3 was not prepared here") {
		t.Fatalf("%q", got)
	}
	maker.Close()
	p.again(1)
	p.Met(t)
	p.uses(0, 1)
	mgmtest.Until(t, "changes can be made again", func() bool {
		return p.Servers[0].Connect().SetConfig(mgmtest.Context(t), p.with(62)) == nil
	})
	p.uses(1, 2)
}

// Two changes at once: both servers end with the same configuration, and no more than one of the two was made.
func TestChangesAtBothServersAtOnce(t *testing.T) {
	p := storedPair(t)
	for round := range 5 {
		var all sync.WaitGroup
		for i, s := range p.Servers {
			c := s.Connect()
			all.Go(func() { c.SetConfig(mgmtest.Context(t), p.with(60+2*round+i)) }) // either may be refused
		}
		all.Wait()
		agreed(t, p, nil)
	}
}

// agreed waits until both servers have the same configuration and gives it; it must be one of some, if there are any.
func agreed(t *testing.T, p *stored, some []*config.Config) *config.Config {
	t.Helper()
	var got [2]*config.Config
	mgmtest.Until(t, "the servers agree", func() bool {
		for i, s := range p.Servers {
			c := s.Connect()
			defer c.Close()
			var err error
			if got[i], err = c.GetConfig(mgmtest.Context(t), 0); err != nil {
				t.Fatal(err)
			}
		}
		return got[0].Generation == got[1].Generation
	})
	if changes := config.Diff(got[0], got[1]); len(changes) > 0 {
		t.Fatalf("generation %d twice: %v", got[0].Generation, changes)
	}
	for _, c := range some {
		if len(config.Diff(c, got[0])) == 0 {
			return got[0]
		}
	}
	if some != nil {
		t.Fatal("neither the old nor the new configuration")
	}
	return got[0]
}

// Either server is killed at any moment of a change. When both are back they have the same configuration, the old or the
// new one, and the new one if that was told to whoever asked for it.
func TestKilledInTheMiddleOfAChange(t *testing.T) {
	p := storedPair(t)
	draw := rand.New(rand.NewPCG(3, 4))
	before := p.onDisk(0)
	for round := range 12 {
		after := p.with(60 + round)
		maker, victim := round%2, draw.IntN(2)
		c := p.Servers[maker].Connect()
		made := make(chan error, 1)
		go func() { made <- c.SetConfig(mgmtest.Context(t), after) }()
		for range 1 << draw.IntN(16) { // not until something has happened: any moment will do
			runtime.Gosched()
		}
		p.Servers[victim].Kill()
		err := <-made
		p.again(victim)
		p.Met(t)
		now := agreed(t, p, []*config.Config{before, after})
		if err == nil && len(config.Diff(now, after)) > 0 {
			t.Fatalf("round %d: told that the change was made, and it was not", round)
		}
		before = now
	}
}

// Two servers that were kept apart have one generation with two contents: the younger one ends and says what to do.
func TestTheYoungerOfTwoThatDifferEnds(t *testing.T) {
	p := &mgmtest.Pair{Ini: mgmtest.TwoServers}
	for i, name := range []string{"PORT49", "PORT50"} {
		p.Listeners[i] = mgmtest.Listen(t)
		p.Ini = strings.ReplaceAll(p.Ini, name, mgmtest.Port(p.Listeners[i]))
	}
	for i, ini := range []string{p.Ini, p.Ini + "[API]\nNodeId=60\n"} {
		c := mgmtest.Parse(t, ini)
		c.Generation = 4
		p.Servers[i] = mgmtest.StartOn(t, p.Listeners[i], c, 49+i)
	}
	<-p.Servers[1].Ended // equally old: the higher id
	if err := p.Servers[1].Err; err == nil || !strings.HasPrefix(err.Error(), "configuration mismatch: management servers 49 and 50 have different configurations of generation 4: ") {
		t.Fatal(err)
	}
	if err := p.Servers[0].Connect().CheckConnection(mgmtest.Context(t)); err != nil {
		t.Fatal(err)
	}
}

// What a server starts with while others run.
func TestChooseWhileOthersRun(t *testing.T) {
	ini := strings.NewReplacer("PORT49", "1001", "PORT50", "1002").Replace(mgmtest.TwoServers)
	parse := func(text string, generation uint32) *config.Config {
		c := mgmtest.Parse(t, text)
		c.Generation = generation
		return c
	}
	other := ini + "[API]\nNodeId=60\n"
	running := func(text string, generation uint32) []mgmd.Running {
		return []mgmd.Running{{Node: 49, Where: "mgm1:1186", Config: parse(text, generation)}}
	}
	nameless := strings.Replace(ini, "Name=test\n", "", 1)
	for name, c := range map[string]struct {
		start      mgmd.Start
		stored     *config.Config
		generation uint32 // that it starts with; 0: it does not
		change     bool
		warn, fail string
	}{
		"the same file":                   {start: mgmd.Start{File: parse(ini, 0), Running: running(ini, 3)}, generation: 3},
		"the same file, no name in it":    {start: mgmd.Start{File: parse(nameless, 0), Running: running(ini, 3)}, generation: 3},
		"another file":                    {start: mgmd.Start{File: parse(other, 0), Running: running(ini, 3)}, fail: "configuration mismatch: the configuration file differs from configuration 3, with which management server 49 at mgm1:1186 runs, in 1 points"},
		"another file and --reload":       {start: mgmd.Start{File: parse(other, 0), Reload: true, Running: running(ini, 3)}, generation: 3, change: true},
		"another file and --initial":      {start: mgmd.Start{File: parse(other, 0), Initial: true, Running: running(ini, 3)}, stored: parse(other, 9), generation: 3, change: true},
		"no file":                         {start: mgmd.Start{Running: running(ini, 3)}, generation: 3},
		"another cluster's file":          {start: mgmd.Start{File: parse(strings.Replace(ini, "Name=test", "Name=x", 1), 0), Running: running(ini, 3)}, fail: "is of cluster test, and this one would be of cluster x"},
		"stored, older":                   {start: mgmd.Start{Running: running(other, 3)}, stored: parse(ini, 2), generation: 3},
		"stored, the same":                {start: mgmd.Start{Running: running(ini, 3)}, stored: parse(ini, 3), generation: 3},
		"stored, newer":                   {start: mgmd.Start{Running: running(ini, 3)}, stored: parse(other, 4), generation: 4},
		"stored, different":               {start: mgmd.Start{Running: running(ini, 3)}, stored: parse(other, 3), fail: "configuration mismatch: the stored configuration differs"},
		"stored, and another file":        {start: mgmd.Start{File: parse(other, 0), Running: running(ini, 3)}, stored: parse(ini, 3), generation: 3, warn: "the configuration file differs from the stored configuration 3"},
		"another cluster's stored":        {start: mgmd.Start{Running: running(ini, 3)}, stored: parse(strings.Replace(ini, "Name=test", "Name=x", 1), 3), fail: "would be of cluster x"},
		"no place in it":                  {start: mgmd.Start{Own: 51, Running: running(ini, 3)}, fail: "node 51 is no management server in configuration 3"},
		"nobody answers, and --reload":    {start: mgmd.Start{File: parse(other, 0), Reload: true}, stored: parse(ini, 3), fail: "needs all management servers, and node 49 does not answer"},
		"nobody answers, and --initial":   {start: mgmd.Start{File: parse(other, 0), Initial: true}, stored: parse(ini, 3), generation: 4},
		"two clusters answer":             {start: mgmd.Start{File: parse(ini, 0), Running: append(running(ini, 3), running(strings.Replace(ini, "Name=test", "Name=x", 1), 3)...)}, fail: "management servers of two clusters answer"},
		"the newest of those that answer": {start: mgmd.Start{Running: append(running(ini, 3), running(other, 5)...)}, generation: 5},
	} {
		t.Run(name, func(t *testing.T) {
			st, err := configstore.Open(t.TempDir(), 50)
			if err != nil {
				t.Fatal(err)
			}
			if c.stored != nil {
				if err := mgmd.Store(st, c.stored, false); err != nil {
					t.Fatal(err)
				}
			}
			if c.start.Store = st; c.start.Own == 0 {
				c.start.Own = 50
			}
			ch, err := c.start.Choose()
			if c.fail != "" {
				if err == nil || !strings.Contains(err.Error(), c.fail) {
					t.Fatal(err)
				}
				return
			}
			if err != nil || ch.Config.Generation != c.generation || (ch.Change != nil) != c.change || (c.warn == "") != (len(ch.Warn) == 0) ||
				c.warn != "" && !strings.HasPrefix(ch.Warn[0], c.warn) {
				t.Fatalf("%+v, %v", ch, err)
			}
			if _, sequence, err := st.Load(); err != nil || sequence != c.generation {
				t.Fatalf("stored is %d, %v", sequence, err)
			}
		})
	}
	if a, b := mgmd.NewName(parse(nameless, 0)), mgmd.NewName(parse(nameless, 0)); a != b {
		t.Errorf("two servers that are started with the same configuration come to the names %s and %s", a, b)
	}
}
