package config

import (
	"strings"

	"github.com/cohortdb/cohort/internal/invariant"
)

// ThreadKind is a type of thread that ThreadConfig can name.
type ThreadKind int

const (
	ThreadMain     ThreadKind = iota // membership, distribution, dictionary
	ThreadLDM                        // local data managers
	ThreadTC                         // transaction coordinators
	ThreadRecv                       // receives from sockets
	ThreadSend                       // sends to sockets
	ThreadRep                        // event streams
	ThreadIO                         // files
	ThreadQuery                      // committed reads beside the LDM threads
	ThreadRecover                    // helps LDM threads in a restart
	ThreadWatchdog                   // looks after the other threads
	ThreadIdxBld                     // builds ordered indexes in a restart
	threadKinds
)

// threadRules are the name of each kind, how many there may be, and, for kinds of threads that Cohort does not have
// as such, why naming them changes nothing.
var threadRules = [threadKinds]struct {
	name     string
	min, max int
	because  string
}{
	ThreadMain:     {"main", 0, 1, ""},
	ThreadLDM:      {"ldm", 0, 332, ""},
	ThreadTC:       {"tc", 0, 128, ""},
	ThreadRecv:     {"recv", 1, 64, ""},
	ThreadSend:     {"send", 0, 64, ""},
	ThreadRep:      {"rep", 0, 1, ""},
	ThreadIO:       {"io", 1, 1, "no thread is set aside for files"},
	ThreadQuery:    {"query", 0, 332, "committed reads go straight to the LDM that owns the row"},
	ThreadRecover:  {"recover", 0, 332, becauseRecovery},
	ThreadWatchdog: {"watchdog", 1, 1, becauseWatchdog},
	ThreadIdxBld:   {"idxbld", 0, 1, becauseRecovery},
}

// String gives the name that ThreadConfig uses.
func (k ThreadKind) String() string {
	if k < 0 || k >= threadKinds {
		return "?"
	}
	return threadRules[k].name
}

// ThreadSpec is one entry of a ThreadConfig.
type ThreadSpec struct {
	Kind  ThreadKind
	Count int
	// What is bound to what is read and kept, but Cohort leaves threads to the system's scheduler.
	CPUBind, CPUSet  []int // CPU numbers
	Exclusive        bool  // the CPUs are to be used by nothing else
	Realtime, NoSend bool
	SpinTime         int // µs
	Priority         int // 0 to 10
	HasPriority      bool
}

// ThreadConfig is a ThreadConfig parameter taken apart.
type ThreadConfig struct {
	Specs    []ThreadSpec // in the order of the text
	Warnings []string     // what has no effect, one sentence each
}

// Count gives the number of threads of a kind that the text asks for. A kind that it does not name has as many as
// NDB starts: one each of main, LDM, receive, replication and I/O thread, and none of the others.
func (t *ThreadConfig) Count(k ThreadKind) int {
	n, named := 0, false
	for _, s := range t.Specs {
		if s.Kind == k {
			n, named = n+s.Count, true
		}
	}
	if named {
		return n
	}
	switch k {
	case ThreadMain, ThreadLDM, ThreadRecv, ThreadRep, ThreadIO, ThreadWatchdog:
		return 1
	}
	return 0
}

// Counts gives the threads that a layout is made of.
func (t *ThreadConfig) Counts() ThreadCounts {
	return ThreadCounts{
		Main: t.Count(ThreadMain), LDM: t.Count(ThreadLDM), TC: t.Count(ThreadTC),
		Recv: t.Count(ThreadRecv), Send: t.Count(ThreadSend), Rep: t.Count(ThreadRep),
	}
}

// ParseThreadConfig reads a list of thread types with their parameters, as in
//
//	main,ldm={count=2,cpubind=1,2},recv={count=1},send,tc={count=2},rep,io
//
// An entry without count is as many threads as cpubind lists CPUs, else one. A type may have several entries, which
// add up. Errors say what is wrong and what would be right.
func ParseThreadConfig(s string) (*ThreadConfig, error) {
	t, c := parseThreadConfig(s)
	if c.text != "" {
		return nil, &Error{Problem{Parameter: "ThreadConfig", Text: c.text, Suggestion: c.suggestion}}
	}
	return t, nil
}

func parseThreadConfig(s string) (*ThreadConfig, complaint) {
	t := &ThreadConfig{}
	rest := strings.TrimSpace(s)
	if rest == "" {
		return nil, complaint{"is empty", "write thread types, as in main,ldm={count=2},recv,rep"}
	}
	for {
		var name, body string
		end := strings.IndexAny(rest, ",={}")
		if end < 0 {
			end = len(rest)
		}
		name, rest = strings.TrimSpace(rest[:end]), strings.TrimSpace(rest[end:])
		hasBody := strings.HasPrefix(rest, "=")
		if hasBody {
			rest = strings.TrimSpace(rest[1:])
			closing := strings.IndexByte(rest, '}')
			if !strings.HasPrefix(rest, "{") || closing < 0 {
				return nil, complaint{"has no braces around what follows " + clip(name+"="), "write " + name + "={count=N}"}
			}
			body, rest = rest[1:closing], strings.TrimSpace(rest[closing+1:])
		}
		spec, c := parseThreadSpec(name, body, hasBody)
		if c.text != "" {
			return nil, c
		}
		t.Specs = append(t.Specs, spec)
		if rest == "" {
			break
		}
		if rest[0] != ',' {
			return nil, complaint{"has " + clip(rest) + " after the entry " + clip(name), "write a comma between entries"}
		}
		rest = strings.TrimSpace(rest[1:])
	}
	return t, t.check()
}

// check bounds the number of threads of each kind and notes what has no effect.
func (t *ThreadConfig) check() complaint {
	for k := ThreadKind(0); k < threadKinds; k++ {
		rule, n, named, bound := threadRules[k], t.Count(k), false, false
		for _, s := range t.Specs {
			if s.Kind == k {
				named = true
				bound = bound || len(s.CPUBind)+len(s.CPUSet)+s.SpinTime > 0 || s.Realtime || s.NoSend || s.HasPriority
			}
		}
		if n < rule.min || n > rule.max {
			return complaint{"asks for " + itoa(n) + " " + rule.name + " threads, and there may be " + itoa(rule.min) + " to " + itoa(rule.max), "change the count"}
		}
		if named && rule.because != "" {
			t.Warnings = append(t.Warnings, rule.name+" has no effect, because "+rule.because)
		} else if bound {
			t.Warnings = append(t.Warnings, "CPUs, priority, spinning and sending of "+rule.name+" have no effect, because "+becauseCPUs)
		}
	}
	return complaint{}
}

// parseThreadSpec reads one entry: a name and what stands between its braces.
func parseThreadSpec(name, body string, hasBody bool) (ThreadSpec, complaint) {
	spec := ThreadSpec{Kind: -1}
	var names []string
	for k := ThreadKind(0); k < threadKinds; k++ {
		names = append(names, k.String())
		if strings.EqualFold(k.String(), name) {
			spec.Kind = k
		}
	}
	if spec.Kind < 0 {
		if name == "" {
			return spec, complaint{"has an entry without a thread type", "write one of " + strings.Join(names, ", ")}
		}
		return spec, complaint{"has " + clip(name) + ", which is no thread type", didYouMean(name, names, "write one of "+strings.Join(names, ", "))}
	}
	if !hasBody {
		spec.Count = 1
		return spec, complaint{}
	}
	hasCount := false
	for rest := strings.TrimSpace(body); rest != ""; {
		key, value, after := nextThreadParameter(rest)
		rest = after
		if c := spec.assign(name, key, value, &hasCount); c.text != "" {
			return spec, c
		}
	}
	switch cpus := len(spec.CPUBind); {
	case !hasCount:
		spec.Count = max(1, cpus)
	case cpus != 0 && cpus != spec.Count:
		return spec, complaint{"asks for " + itoa(spec.Count) + " " + name + " threads bound to " + itoa(cpus) + " CPUs", "list one CPU for each thread in cpubind, or use cpuset"}
	}
	return spec, complaint{}
}

// nextThreadParameter cuts KEY=VALUE off; a value that is a list of numbers goes on over its commas.
func nextThreadParameter(s string) (key, value, rest string) {
	key, s, _ = strings.Cut(s, "=")
	end := 0
	for end < len(s) {
		i := strings.IndexByte(s[end:], ',')
		if i < 0 {
			end = len(s)
			break
		}
		end += i
		if next := strings.TrimLeft(s[end+1:], " \t"); next == "" || next[0] < '0' || next[0] > '9' {
			break
		}
		end++
	}
	value = strings.TrimSpace(s[:end])
	rest = strings.TrimSpace(strings.TrimPrefix(s[end:], ","))
	return strings.TrimSpace(key), value, rest
}

// threadKeys are the parameters of an entry, for suggestions.
var threadKeys = []string{"count", "cpubind", "cpubind_exclusive", "cpuset", "cpuset_exclusive", "realtime", "nosend", "spintime", "thread_prio"}

// assign takes over one parameter of an entry.
func (s *ThreadSpec) assign(name, key, text string, hasCount *bool) complaint {
	number := func(most int) (int, complaint) {
		n, ok := parseDigits(text, most)
		if !ok {
			return 0, complaint{"has " + key + "=" + clip(text) + " for " + name, "write a number of 0 to " + itoa(most)}
		}
		return n, complaint{}
	}
	var c complaint
	var n int
	switch fold(key) {
	case "count":
		s.Count, c = number(threadRules[s.Kind].max)
		*hasCount = true
	case "cpubind", "cpubind_exclusive":
		s.CPUBind, c = parseCPUs(text, 65535)
		s.Exclusive = s.Exclusive || fold(key) == "cpubind_exclusive"
	case "cpuset", "cpuset_exclusive":
		s.CPUSet, c = parseCPUs(text, 65535)
		s.Exclusive = s.Exclusive || fold(key) == "cpuset_exclusive"
	case "realtime":
		n, c = number(1)
		s.Realtime = n == 1
	case "nosend":
		n, c = number(1)
		s.NoSend = n == 1
	case "spintime":
		s.SpinTime, c = number(9000)
	case "thread_prio":
		s.Priority, c = number(10)
		s.HasPriority = true
	default:
		return complaint{"has " + clip(key) + " for " + name + ", which is no parameter of a thread", didYouMean(key, threadKeys, "write one of "+strings.Join(threadKeys, ", "))}
	}
	return c
}

// ThreadSource says which parameter decides about the threads of a data node.
type ThreadSource int

const (
	ThreadsUnset     ThreadSource = iota // none is set: the process decides from its CPUs
	ThreadsAutomatic                     // AutomaticThreadConfig
	ThreadsConfig                        // ThreadConfig
	ThreadsMax                           // MaxNoOfExecutionThreads
)

// ThreadCounts are the threads of a data node by what they do.
type ThreadCounts struct{ Main, LDM, TC, Recv, Send, Rep int }

// Total is the number of threads.
func (c ThreadCounts) Total() int { return c.Main + c.LDM + c.TC + c.Recv + c.Send + c.Rep }

// ThreadLayout is what a data node's configuration says about its threads.
type ThreadLayout struct {
	Source ThreadSource
	CPUs   int           // for ThreadsAutomatic: CPUs to plan for, 0 for those that the process may use
	Counts ThreadCounts  // for ThreadsConfig and ThreadsMax
	Config *ThreadConfig // for ThreadsConfig
}

// ThreadLayout gives what the configuration of a data node says about its threads when it runs as ndbmtd:
// AutomaticThreadConfig wins over ThreadConfig, and that over MaxNoOfExecutionThreads. (An ndbd has one thread.)
func (n *Node) ThreadLayout() ThreadLayout {
	switch {
	case n.Bool("AutomaticThreadConfig"):
		return ThreadLayout{Source: ThreadsAutomatic, CPUs: int(n.Int("NumCPUs"))}
	case n.String("ThreadConfig") != "":
		t, err := ParseThreadConfig(n.String("ThreadConfig"))
		if err != nil {
			invariant.Failf("a configuration in use has a ThreadConfig that reads: %v", err)
		}
		return ThreadLayout{Source: ThreadsConfig, Counts: t.Counts(), Config: t}
	case n.Int("MaxNoOfExecutionThreads") != 0:
		return ThreadLayout{Source: ThreadsMax, Counts: ExecutionThreads(int(n.Int("MaxNoOfExecutionThreads")))}
	}
	return ThreadLayout{Source: ThreadsUnset}
}
