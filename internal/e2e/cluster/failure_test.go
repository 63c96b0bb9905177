package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cohortdb/cohort/internal/e2e"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
)

// starts counts how often a node has said that it is started.
func (c *Cluster) starts(node int) int {
	text, err := os.ReadFile(c.Run(node).log)
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.Count(string(text), ": Started (")
}

// awaitRestart waits until a node has started once more than before, and is started, in the process that it had.
func (c *Cluster) awaitRestart(node, before int) {
	c.t.Helper()
	e2e.Eventually(c.t, fmt.Sprintf("node %d starts again by itself", node), func() bool {
		c.mustRun(node)
		return c.starts(node) > before && c.Started(node)
	})
}

func TestAKilledNodeComesBackUnderLoad(t *testing.T) {
	c := Start(t, Options{})
	b := c.NewBank(8)
	for _, victim := range []int{2, 1, 2} {
		b.Goes(100)
		b.Gap()
		over := c.Upset("node %d was killed", victim)
		c.Kill(victim)
		b.Goes(100)
		t.Logf("node %d killed: longest gap %v", victim, b.Gap())
		c.Launch(victim)
		c.AwaitStarted()
		over()
	}
	b.Goes(100)
	b.Close()
}

func TestAHungNodeIsPutOutAndComesBackByItself(t *testing.T) {
	c := Start(t, Options{})
	b := c.NewBank(8)
	for _, victim := range []int{2, 1} {
		b.Goes(100)
		b.Gap()
		before := c.starts(victim)
		over := c.Upset("node %d hung", victim)
		c.Pause(victim)
		c.AwaitOut(victim)
		b.Goes(100)
		t.Logf("node %d hung: longest gap %v", victim, b.Gap())
		c.Resume(victim)
		c.awaitRestart(victim, before)
		over()
	}
	b.Goes(100)
	b.Close()
}

// A node that stands still for about as long as it takes to be put out either goes on or comes back, and tells clients
// nothing that is not so.
func TestANodeThatStandsStillForAMoment(t *testing.T) {
	c := Start(t, Options{})
	b := c.NewBank(8)
	for i, d := range []time.Duration{300, 700, 800, 900, 1000, 1100, 1200} {
		b.Goes(100)
		over := c.Upset("node %d stood still", 1+i%2)
		c.PauseFor(1+i%2, d*time.Millisecond)
		b.Goes(100)
		c.AwaitAll()
		c.AwaitArbitrator()
		over()
	}
	b.Goes(100)
	b.Close()
}

// Two data nodes that do not reach each other: one of them goes on, the other ends and comes back when it can. A management
// server dies shortly before, and one while a node is out.
func TestOfTwoNodesCutFromEachOtherOneGoesOn(t *testing.T) {
	c := Start(t, Options{Servers: 2})
	b := c.NewBank(8)
	for round, server := range c.servers {
		b.Goes(100)
		b.Gap()
		before := map[int]int{1: c.starts(1), 2: c.starts(2)}
		c.Kill(server)
		c.AwaitArbitrator()
		over := c.Upset("nodes 1 and 2 were cut from each other")
		if round == 0 {
			c.Cut([]int{1}, []int{2}, true)
		} else {
			c.Block(1, 2, true) // one way only
		}
		b.Goes(100)
		t.Logf("cut: longest gap %v", b.Gap())
		var out int
		e2e.Eventually(t, "one of the nodes is out", func() bool {
			s := c.Status()
			out = 0
			for _, n := range c.data {
				if s != nil && s[n] != mgmclient.Started {
					out += n
				}
			}
			return out != 0
		})
		if out == 3 {
			t.Fatal("both nodes are out")
		}
		c.Launch(server)
		c.Kill(c.servers[1-round])
		b.Goes(100)
		if c.starts(3-out) != before[3-out] {
			t.Fatalf("node %d did not go on, nor did node %d", 3-out, out)
		}
		c.Cut([]int{1}, []int{2}, false)
		c.awaitRestart(out, before[out])
		over()
		c.Launch(c.servers[1-round])
		c.AwaitArbitrator()
		b.Goes(100)
	}
	b.Goes(100)
	b.Close()
}

// A host that is off the network altogether: its node cannot ask a management server either, and does not give up.
func TestANodeWithoutANetworkComesBackByItself(t *testing.T) {
	for _, kind := range []Kind{Any, Proxies} {
		c := Start(t, Options{Network: kind, Settings: []string{"ArbitrationTimeout=1000"}})
		b := c.NewBank(8)
		b.Goes(100)
		b.Gap()
		before := c.starts(1)
		over := c.Upset("node 1 was unplugged")
		c.Unplug(1, true)
		c.AwaitOut(1)
		b.Goes(100)
		t.Logf("unplugged: longest gap %v", b.Gap())
		e2e.Eventually(t, "node 1 starts anew", func() bool { return strings.Contains(c.Run(1).tail(1<<20), "starts anew: ") })
		c.Unplug(1, false)
		c.awaitRestart(1, before)
		over()
		b.Goes(100)
		b.Close()
	}
}

// A client whose machine is gone is lost although its links never close, and with it its locks and its node id.
func TestAClientWithoutANetworkIsLost(t *testing.T) {
	c := Start(t, Options{Hosts: 1, Clients: 1, Settings: []string{"HeartbeatIntervalDbApi=500"}})
	if _, ok := c.net.(*namespaces); !ok {
		t.Log("NOT TESTED: behind a proxy the system sees another machine than the client's")
		return
	}
	p := launch(t, firstClient, filepath.Join(c.dir, "client.log"), c.net.command(firstClient), "flexAsynch", "--ndb-connectstring="+c.ConnectString(), "-temp", "-l", "0", "-t", "1", "-p", "8", "-o", "10", "-a", "2")
	t.Cleanup(func() { p.signal(t, syscall.SIGKILL); <-p.done })
	word := func(text string) func() bool {
		return func() bool {
			if p.Ended() {
				t.Fatalf("the client ended: %v\n%s", p.State(), p.tail(2000))
			}
			return strings.Contains(c.Run(1).tail(1<<20), text) && strings.Contains(c.Run(2).tail(1<<20), text)
		}
	}
	e2e.Eventually(t, "rounds of the client", func() bool { return strings.Contains(p.tail(1<<20), "insert") })
	c.Unplug(firstClient, true)
	e2e.Eventually(t, "the end of the client's links", word("link to node 60 closed: connection timed out"))
	b := c.NewBank(1) // with the node id that was the client's
	b.Goes(100)
	b.Close()
}

func TestOneNodeOfEachGroupMayDieAtOnce(t *testing.T) {
	c := Start(t, Options{DataNodes: 4, Servers: 2})
	b := c.NewBank(8)
	for round, victims := range [][]int{{2, 3}, {1, 4}} {
		b.Goes(100)
		b.Gap()
		if round == 1 {
			c.Kill(c.servers[0])
			c.AwaitArbitrator()
		}
		over := c.Upset("nodes %v were killed", victims)
		for _, v := range victims {
			c.Kill(v)
		}
		b.Goes(100)
		t.Logf("nodes %v killed: longest gap %v", victims, b.Gap())
		for _, v := range victims {
			c.Launch(v)
		}
		c.AwaitStarted()
		c.AwaitArbitrator()
		over()
	}
	b.Goes(100)
	b.Close()
}

// A restart that an operator asks for costs clients at most a temporary error, and no time.
func TestAPlannedRestartHasNoGap(t *testing.T) {
	c := Start(t, Options{})
	b := c.NewBank(8)
	for _, node := range []int{2, 1} {
		b.Goes(500)
		t.Logf("before: longest gap %v", b.Gap())
		before := c.starts(node)
		over := c.Upset("node %d was restarted", node)
		c.Management("restart", func(ctx context.Context, m *mgmclient.Client) error {
			_, err := m.Restart(ctx, []int{node}, mgmclient.StopOptions{})
			return err
		})
		c.awaitRestart(node, before)
		over()
		gap := b.Gap()
		t.Logf("node %d restarted: longest gap %v", node, gap)
		if gap > time.Second {
			t.Errorf("nothing was done for %v", gap)
		}
	}
	b.Goes(100)
	b.Close()
}

// Logs that cannot be written keep no node from working, nor from starting.
func TestAFullDiskEndsNoNode(t *testing.T) {
	c := Start(t, Options{Disk: 1 << 20, Servers: 1})
	b := c.NewBank(4)
	for _, n := range c.data {
		f, err := os.Create(filepath.Join(c.Dir(n), "filler"))
		if err != nil {
			t.Fatal(err)
		}
		for chunk := make([]byte, 4096); err == nil; {
			_, err = f.Write(chunk)
		}
		f.Close()
	}
	over := c.Upset("node 2 was killed")
	c.Kill(2)
	b.Goes(200)
	c.Launch(2)
	c.AwaitStarted()
	over()
	b.Goes(200)
	b.Close()
}

// A slow network is no failure.
func TestPacketsThatComeLateAreNoFailure(t *testing.T) {
	c := Start(t, Options{Network: Proxies})
	b := c.NewBank(8)
	for _, d := range []time.Duration{10 * time.Millisecond, 0, 50 * time.Millisecond, 0} {
		c.Delay(1, 2, d)
		c.Delay(2, 1, d)
		b.Goes(50)
	}
	if !c.Started() {
		t.Error("a node was put out")
	}
	b.Close()
}

// Nodes that get too little of the processor, and are sent more than they can do, are late and not dead.
func TestBusyNodesAreNotPutOut(t *testing.T) {
	c := Start(t, Options{DataNodes: 4, Settings: []string{"DataMemory=200M", "MaxNoOfConcurrentTransactions=8192", "MaxNoOfConcurrentOperations=65536"}})
	load := launch(t, firstClient, filepath.Join(c.dir, "client.log"), nil, "flexAsynch", "--ndb-connectstring="+c.ConnectString(),
		"-ndbrecord", "-temp", "-t", "8", "-p", "256", "-o", "40", "-a", "4", "-l", "1")
	t.Cleanup(func() { load.signal(t, syscall.SIGKILL); <-load.done })
	for range 4 * runtime.NumCPU() { // others want the processor too
		go func() {
			for !load.Ended() {
			}
		}()
	}
	select {
	case <-load.done:
	case <-time.After(2 * e2e.Patience):
		t.Fatalf("the load does not end:\n%s", load.tail(2000))
	}
	if !load.State().Success() {
		t.Errorf("%v\n%s", load.State(), load.tail(2000))
	}
	for _, n := range c.data {
		if log := c.Run(n).tail(1 << 20); c.starts(n) != 1 || strings.Contains(log, "declared dead") {
			t.Errorf("node %d:\n%s", n, log)
		}
	}
}
