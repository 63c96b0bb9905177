package membership

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

// TestScripts runs the documents in testdata: what happens to a cluster, and what its nodes do. The commands:
//
//	cluster nodes=(1,2,3,4) mgm=(49) seed=1 …    starts a cluster; node groups are of two nodes unless group=3
//	do                                           a line each of:
//	  kill 2        the process ends               crash 2    … with its machine: part of what it sent is lost
//	  cut 1 2       the link ends                  hold 1 2   nothing passes from 1 to 2 any more, the link stays
//	  divide 1 2    they and the others cannot reach each other (links stay)       heal   all can again
//	  freeze 2, thaw 2   the process stands still, goes on
//	  launch 2      a new process; link            link       all that can reach each other link
//	  launchslow 2  … that does not finish to copy crashincommit 1   … when one member has its next commit
//	  slow 2        a coordinator does not answer prepares of views; slowly 2: commits; let 2: it answers
//	  lag 2         the president hears that it does not finish an epoch
//	  stop 2 [abort] [force] [restart] [with 3]    asked by the management server
//	  single 51     management wants single user mode (0: its end), of all nodes
//	  run 300ms     time passes
//
// A do prints what became of it: milliseconds since its beginning, the nodes that it is about, and what they did.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var r *rig
		var ids []uint8
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "cluster":
				r, ids = scriptCluster(t, d)
				return r.told(0)
			case "do":
				at := r.net.Now()
				r.log = nil
				for _, line := range strings.Split(d.Input, "\n") {
					r.do(t, ids, strings.Fields(line))
				}
				r.net.Run(0)
				r.safe(ids...)
				return r.told(at)
			}
			t.Fatalf("unknown command %q", d.Cmd)
			return ""
		})
	})
}

func scriptCluster(t *testing.T, d *datadriven.TestData) (*rig, []uint8) {
	seed, group := 1, 2
	var ids, mgms []uint8
	var arbitration string
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "nodes", "mgm":
			for _, v := range a.Vals {
				if a.Key == "nodes" {
					ids = append(ids, nodeOf(t, v))
				} else {
					mgms = append(mgms, nodeOf(t, v))
				}
			}
		case "group":
			group, _ = strconv.Atoi(a.Vals[0])
		case "seed":
			seed, _ = strconv.Atoi(a.Vals[0])
		case "arbitration":
			arbitration = a.Vals[0]
		default:
			t.Fatalf("unknown argument %s", a.Key)
		}
	}
	r := newRig(t, uint64(seed), ids...)
	for i := range r.cfg.Nodes {
		r.cfg.Nodes[i].Group = uint16(i / group)
	}
	r.cfg.Arbitration = map[string]int{"": ArbitrationDefault, "Disabled": ArbitrationDisabled, "WaitExternal": ArbitrationWaitExternal}[arbitration]
	for _, m := range mgms {
		r.cfg.Arbitrators = append(r.cfg.Arbitrators, Arbitrator{m, 1})
		r.addMgmAt(m)
	}
	for _, id := range ids {
		r.launch(id, nil)
	}
	r.linkAll()
	if !r.net.Until(100*ms, r.started(ids...)) {
		t.Fatal("not started")
	}
	r.net.Run(300 * ms)
	return r, ids
}

func nodeOf(t *testing.T, v string) uint8 {
	n, err := strconv.ParseUint(v, 10, 8)
	if err != nil {
		t.Fatal(err)
	}
	return uint8(n)
}

// do does one line of a script.
func (r *rig) do(t *testing.T, ids []uint8, words []string) {
	var nodes []uint8
	for _, w := range words[1:] {
		if n, err := strconv.ParseUint(w, 10, 8); err == nil {
			nodes = append(nodes, uint8(n))
		}
	}
	every := slices.Clone(ids)
	for _, a := range r.cfg.Arbitrators {
		every = append(every, a.ID)
	}
	switch words[0] {
	case "kill":
		r.net.Kill(nodes[0])
	case "crash":
		r.net.Crash(nodes[0])
	case "cut":
		r.net.Cut(nodes[0], nodes[1])
	case "hold":
		r.hold(nodes[0], nodes[1])
	case "divide":
		for _, a := range every {
			for _, b := range every {
				if slices.Contains(nodes, a) != slices.Contains(nodes, b) {
					r.hold(a, b)
				}
			}
		}
	case "heal":
		for _, a := range every {
			for _, b := range every {
				if a < b {
					r.rejoin(a, b)
				}
			}
		}
	case "freeze":
		r.freeze(nodes[0])
	case "thaw":
		r.thaw(nodes[0])
	case "launch":
		if slices.Contains(ids, nodes[0]) {
			r.launch(nodes[0], nil)
		} else {
			r.addMgmAt(nodes[0])
		}
		r.linkAll()
	case "launchslow":
		r.launch(nodes[0], nil).holdPhase = phaseCopy
		r.linkAll()
	case "crashincommit": // when it has sent the commit of a view, and one member has it
		president := nodes[0]
		got := func() (n int) {
			for _, id := range ids {
				if x := r.n[id]; id != president && !r.net.Nodes[id].Dead() && len(x.seen) > 0 && x.seen[len(x.seen)-1] == r.n[president].b.view.Number && len(x.seen) > 1 {
					n++
				}
			}
			return n
		}
		if !r.net.Until(1000*ms, func() bool { return got() == 1 }) {
			t.Fatal("no commit")
		}
		r.net.Crash(president)
	case "link":
		r.linkAll()
	case "slow":
		r.n[nodes[0]].holdPrepare = true
	case "slowly":
		r.n[nodes[0]].holdCommit = true
	case "let":
		r.letGo(nodes[0])
	case "lag":
		p := r.n[ids[0]].b.view.President
		for _, id := range ids {
			if !r.net.Nodes[id].Dead() {
				p = r.n[id].b.view.President
			}
		}
		l := kernel.Send[signal.LagRep](r.net.Nodes[p].Env, signal.MakeAddr(p, signal.BlockMembership, 0), signal.MakeAddr(p, signal.BlockDistribution, 0), signal.NumLagRep)
		l.Node, l.GCI, l.Millis = uint32(nodes[0]), [2]uint32{3, 7}, 4000
	case "stop":
		flags := uint32(0)
		for _, w := range words[1:] {
			flags |= map[string]uint32{"abort": signal.StopAbort, "force": signal.StopForce, "restart": signal.StopRestart}[w]
		}
		stopReq(r, nodes[0], flags, nodes...)
	case "single":
		for _, id := range ids {
			if !r.net.Nodes[id].Dead() {
				o := kernel.Send[signal.SingleOrd](r.net.Nodes[id].Env, signal.MakeAddr(id, signal.BlockMembership, 0), signal.MakeAddr(id, signal.BlockManager, 0), signal.NumSingleOrd)
				o.Ref, o.Node = 0, uint32(nodes[0])
			}
		}
	case "run":
		n, err := strconv.Atoi(strings.TrimSuffix(words[1], "ms"))
		if err != nil {
			t.Fatal(err)
		}
		r.net.Run(int64(n) * ms)
	default:
		t.Fatalf("unknown line %q", words)
	}
}

// told is what happened since a time, one line for each thing at each moment, with the nodes that it happened to.
func (r *rig) told(since int64) string {
	type group struct {
		line
		nodes []int
	}
	var groups []group
next:
	for _, l := range r.log {
		for i := range groups {
			if g := &groups[i]; g.at == l.at && g.text == l.text {
				g.nodes = append(g.nodes, int(l.node))
				continue next
			}
		}
		groups = append(groups, group{l, []int{int(l.node)}})
	}
	slices.SortStableFunc(groups, func(a, b group) int { return int(a.at/ms - b.at/ms) })
	var s strings.Builder
	for _, g := range groups {
		slices.Sort(g.nodes)
		nodes := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(slices.Compact(g.nodes))), ","), "[]")
		fmt.Fprintf(&s, "%4d %s: %s\n", (g.at-since)/ms, nodes, g.text)
	}
	return s.String()
}
