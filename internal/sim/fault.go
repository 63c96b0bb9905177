package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// fault is something that is done to a node or a wire at a moment. A list of faults is written as a schedule:
//
//	kill 2 for 1.5s @4.2s         node 2 is killed (SIGKILL), and started again after 1.5 s; without "for" it stays down
//	kill 2,4 for 1.5s @4.2s       both at once
//	pause 3 for 600ms @5s         node 3 is stopped (SIGSTOP) and goes on after 600 ms
//	cut 1-3 for 2s @7s            nothing gets from 1 to 3 or back for 2 s
//	cut 1>3 for 2s @7s            nothing gets from 1 to 3
//	split 1,2,199|3,4 for 2s @7s  every way between the two sides is cut
//	reset 1-3 @8s                 the links between 1 and 3 are closed; they may be opened again at once
//	slow 1>3 by 20ms for 5s @9s   signals from 1 to 3 take about so much longer
//	stop 2 for 3s @10s            node 2 is asked to stop; it is started again 3 s later
//	restart 2 @10s                node 2 is asked to restart
//	start 2 @12s                  node 2 is started if it is down
//	heal @13s                     all that lasts ends, and all nodes that are down are started
//
// Nodes are data nodes, management servers and clients alike, where that makes sense.
type fault struct {
	at   int64 // virtual time, ns
	kind faultKind
	a, b []uint8 // nodes; two sides, or two ends
	dur  int64   // how long it lasts, ns; 0 = for ever, or for a moment
	by   int64   // how much slower, ns
}

type faultKind uint8

const (
	faultKill faultKind = iota
	faultPause
	faultCut
	faultOneWay
	faultSplit
	faultReset
	faultSlow
	faultStop
	faultRestart
	faultStart
	faultHeal
	faultKinds
)

var faultNames = [faultKinds]string{"kill", "pause", "cut", "cut", "split", "reset", "slow", "stop", "restart", "start", "heal"}

func (f fault) String() string {
	s := faultNames[f.kind]
	if f.kind != faultHeal {
		s += " " + nodeList(f.a)
	}
	switch f.kind {
	case faultCut, faultReset:
		s += "-" + nodeList(f.b)
	case faultOneWay, faultSlow:
		s += ">" + nodeList(f.b)
	case faultSplit:
		s += "|" + nodeList(f.b)
	}
	if f.by > 0 {
		s += " by " + time.Duration(f.by).String()
	}
	if f.dur > 0 {
		s += " for " + time.Duration(f.dur).String()
	}
	return s + " @" + time.Duration(f.at).String()
}

func nodeList(ids []uint8) string {
	var s []string
	for _, id := range ids {
		s = append(s, strconv.Itoa(int(id)))
	}
	return strings.Join(s, ",")
}

// scheduleText writes a schedule; parseSchedule reads it.
func scheduleText(list []fault) string {
	var s []string
	for _, f := range list {
		s = append(s, f.String())
	}
	return strings.Join(s, "; ")
}

func parseSchedule(text string) ([]fault, error) {
	list := []fault{}
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == '\n' }) {
		if part = strings.TrimSpace(part); part == "" || part[0] == '#' {
			continue
		}
		f, err := parseFault(part)
		if err != nil {
			return nil, fmt.Errorf("%q is no fault: %w", part, err)
		}
		list = append(list, f)
	}
	return list, nil
}

func parseFault(text string) (f fault, err error) {
	what, when, found := strings.Cut(text, "@")
	words := strings.Fields(what)
	if found && len(words) == 1 && words[0] == faultNames[faultHeal] {
		f.kind = faultHeal
		f.at, err = parseTime(when)
		return f, err
	}
	if !found || len(words) < 2 {
		return f, fmt.Errorf("write what, to whom and when, as in kill 2 for 1s @4.2s")
	}
	if f.at, err = parseTime(when); err != nil {
		return f, err
	}
	kind := -1
	for k, name := range faultNames {
		if name == words[0] && kind < 0 {
			kind = k
		}
	}
	if kind < 0 {
		return f, fmt.Errorf("there is no %q", words[0])
	}
	f.kind = faultKind(kind)
	sides := words[1]
	ends, want := []string{sides}, 1
	switch f.kind {
	case faultCut:
		want = 2
		if ends = strings.Split(sides, "-"); strings.Contains(sides, ">") {
			f.kind, ends = faultOneWay, strings.Split(sides, ">")
		}
	case faultReset:
		ends, want = strings.Split(sides, "-"), 2
	case faultSlow:
		ends, want = strings.Split(sides, ">"), 2
	case faultSplit:
		ends, want = strings.Split(sides, "|"), 2
	}
	if len(ends) != want {
		return f, fmt.Errorf("%q is not as many nodes as it takes", sides)
	}
	if f.a, err = parseNodes(ends[0]); err == nil && want == 2 {
		f.b, err = parseNodes(ends[1])
	}
	for rest := words[2:]; err == nil && len(rest) > 0; rest = rest[2:] {
		if len(rest) < 2 {
			return f, fmt.Errorf("what comes after %q is missing", rest[0])
		}
		switch rest[0] {
		case "for":
			f.dur, err = parseTime(rest[1])
		case "by":
			f.by, err = parseTime(rest[1])
		default:
			return f, fmt.Errorf("%q means nothing here", rest[0])
		}
	}
	return f, err
}

func parseNodes(text string) ([]uint8, error) {
	var ids []uint8
	for _, s := range strings.Split(text, ",") {
		n, err := strconv.ParseUint(s, 10, 8)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%q is no node", s)
		}
		ids = append(ids, uint8(n))
	}
	return ids, nil
}

func parseTime(text string) (int64, error) {
	d, err := time.ParseDuration(strings.TrimSpace(text))
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is no time: write it as 1.5s", strings.TrimSpace(text))
	}
	return int64(d), nil
}

// faultSet is a set of kinds of faults as the command line names them.
type faultSet uint16

const (
	faultsDelay      faultSet = 1 << iota // random delays and orders, which every run has
	faultsKill                            // data nodes are killed
	faultsPause                           // nodes are stopped for a while
	faultsCut                             // links break, are cut, the network is split
	faultsOneWay                          // … in one direction only
	faultsSlow                            // links become slow
	faultsArbitrator                      // management servers are killed
	faultsRestart                         // nodes that are down come back under load
	faultsStop                            // nodes are asked to stop or restart
	faultsDrift                           // clocks run at different rates
	faultsClient                          // clients are killed
	faultsAll        faultSet = 1<<iota - 1
)

var faultSetNames = [...]string{"delay", "kill", "pause", "cut", "oneway", "slow", "arbitrator", "restart", "stop", "drift", "client"}

func (s faultSet) has(f faultSet) bool { return s&f != 0 }

func (s faultSet) String() string {
	if s == faultsAll {
		return "all"
	}
	var names []string
	for i, name := range faultSetNames {
		if s>>i&1 != 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ",")
}

func parseFaults(text string) (s faultSet, err error) {
next:
	for _, word := range strings.Split(text, ",") {
		switch word = strings.TrimSpace(word); word {
		case "all":
			s |= faultsAll
			continue
		case "none":
			continue
		}
		for i, name := range faultSetNames {
			if name == word {
				s |= 1 << i
				continue next
			}
		}
		return 0, fmt.Errorf("there is no fault %q: choose among %s, all, none", word, strings.Join(faultSetNames[:], ", "))
	}
	return s, nil
}
