package flexasynch

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/cohortdb/cohort/ndb"
)

// Limits of options.
const (
	threadsMax     = 384
	parallelMax    = 1024
	roundsMax      = 1 << 24
	loopsMax       = 1 << 20
	operationsMax  = 1000
	attributesMin  = 2
	attributesMax  = 511
	wordsMax       = 1000
	extraReadsMax  = 10000
	connectionsMax = 64
	loadFactorMin  = 40
	loadFactorMax  = 99
	tablesMax      = 128
	indexesMax     = 16
	tableMax       = 1 << 20
	secondsMax     = 100000
	cpusMax        = 1024
)

// task is what a run does.
type task uint8

const (
	allPhases   task = iota
	onlyInsert       // rows of an existing standard table, as many as a phase has
	onlyRead         // for a time
	onlyUpdate       // for a time
	onlyDelete       // as many as a phase has
	createTable      // nothing but that
	dropTable        // nothing but that
)

// locality says which rows a thread works on.
type locality uint8

const (
	everywhere   locality = 0
	ownNode      locality = 1 // rows whose primary is on the thread's own node
	nodesInTurn  locality = 2 // each transaction on the next node
	randomNode   locality = 3 // each transaction on a random node
	localityLast          = int(randomNode)
)

// settings are what the command line asks for.
type settings struct {
	threads     int
	parallel    int // transactions in flight per thread
	rounds      int // of parallel transactions, in a phase, for each thread
	loops       int // 0: for ever
	operations  int // of a transaction
	attributes  int // columns COL0 to COL(attributes-1)
	words       int // of 32 bits, of each column beyond COL0
	extraReads  int // read passes after each read pass
	connections int
	loadFactor  int // without effect

	simple        bool // reads with a short shared lock
	dirty         bool // committed reads
	write         bool // writes in place of inserts and updates
	record        bool // record-style
	standard      bool // standard table name
	table         int  // number of the standard table
	noCreateTable bool
	noLogging     bool
	noHint        bool
	local         locality
	send          ndb.SendMode
	tables        int
	indexes       int
	task          task
	throughTC     bool

	// The second driver.
	definers     bool // on
	definerCount int  // 0: one
	immediate    bool // executors run what there is, without waiting for a full batch
	receiveCPUs  []int
	definerCPUs  []int
	executorCPUs []int

	warmup, execution, cooldown time.Duration // of single-phase reads and updates

	connect  string // connect string; empty: from the environment
	jsonFile string // empty: none
	nodePIDs []int  // processes of the data nodes
	help     bool
}

func defaults() *settings {
	return &settings{
		threads: 1, parallel: 32, rounds: 500, loops: 1, operations: 1, attributes: 25, words: 1, connections: 1,
		loadFactor: 80, tables: 1, warmup: 10 * time.Second, execution: 30 * time.Second, cooldown: 10 * time.Second,
	}
}

// option is one word of the command line.
type option struct {
	name  string // without dash
	value string // word for its value in the help; empty: a bare name
	help  string
	set   func(s *settings, value string) error
}

// optionGroup is options under a heading of the help.
type optionGroup struct {
	heading string
	options []option
}

// number is an option with a whole number.
func number(name, help string, low, high int, field func(*settings) *int) option {
	return option{name, "N", help, func(s *settings, value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < low || n > high {
			return fmt.Errorf("%q is not a number from %d to %d", value, low, high)
		}
		*field(s) = n
		return nil
	}}
}

// switchOn is a bare option.
func switchOn(name, help string, set func(*settings)) option {
	return option{name, "", help, func(s *settings, _ string) error { set(s); return nil }}
}

// seconds is an option with a time.
func seconds(name, help string, low int, field func(*settings) *time.Duration) option {
	return option{name, "S", help, func(s *settings, value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < low || n > secondsMax {
			return fmt.Errorf("%q is not a number of seconds from %d to %d", value, low, secondsMax)
		}
		*field(s) = time.Duration(n) * time.Second
		return nil
	}}
}

// only is one of the options that choose a single thing to do.
func only(name, help string, t task) option {
	return option{name, "", help, func(s *settings, _ string) error {
		if s.task != allPhases && s.task != t {
			return errors.New("only one of -insert, -read, -update, -delete, -create_table and -drop_table can be done in a run")
		}
		s.task, s.standard = t, true
		return nil
	}}
}

// cpus is an option with a list of CPUs.
func cpus(name, help string, field func(*settings) *[]int) option {
	return option{name, "LIST", help, func(s *settings, value string) error {
		list, err := parseCPUs(value)
		*field(s) = list
		return err
	}}
}

// optionGroups is every option.
var optionGroups = []optionGroup{
	{"How much", []option{
		number("t", "threads, 1 to 384 (default 1)", 1, threadsMax, func(s *settings) *int { return &s.threads }),
		number("p", "transactions in flight per thread, 1 to 1024 (default 32)", 1, parallelMax, func(s *settings) *int { return &s.parallel }),
		number("o", "rounds of -p transactions per thread in one phase (default 500)", 1, roundsMax, func(s *settings) *int { return &s.rounds }),
		number("l", "loops over all phases; 0 for ever (default 1)", 0, loopsMax, func(s *settings) *int { return &s.loops }),
		number("c", "operations per transaction, 1 to 1000 (default 1)", 1, operationsMax, func(s *settings) *int { return &s.operations }),
		number("r", "extra read passes after each read pass (default 0)", 0, extraReadsMax, func(s *settings) *int { return &s.extraReads }),
		number("con", "cluster connections, 1 to 64, each with a node id of its own;\nthread i uses connection i mod N (default 1)", 1, connectionsMax, func(s *settings) *int { return &s.connections }),
	}},
	{"Rows and tables", []option{
		number("a", "attributes, 2 to 511, COL0 counts (default 25)", attributesMin, attributesMax, func(s *settings) *int { return &s.attributes }),
		number("s", "size of each attribute beyond COL0 in 32-bit words, 1 to 1000 (default 1)", 1, wordsMax, func(s *settings) *int { return &s.words }),
		number("num_tables", "tables, 1 to 128; transactions take them in turn (default 1)", 1, tablesMax, func(s *settings) *int { return &s.tables }),
		number("num_indexes", "ordered indexes per table: only 0 is supported yet (default 0)", 0, indexesMax, func(s *settings) *int { return &s.indexes }),
		switchOn("temp", "a table without logging", func(s *settings) { s.noLogging = true }),
		switchOn("n", "the standard table name, TAB0", func(s *settings) { s.standard = true }),
		{"table", "K", "the standard table TABK (implies -n)", func(s *settings, value string) error {
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 || n > tableMax {
				return fmt.Errorf("%q is not a number from 0 to %d", value, tableMax)
			}
			s.table, s.standard = n, true
			return nil
		}},
		switchOn("no_table_create", "use existing tables, and leave them", func(s *settings) { s.noCreateTable = true }),
		number("load_factor", "40 to 99; accepted for compatibility, without effect (default 80)", loadFactorMin, loadFactorMax, func(s *settings) *int { return &s.loadFactor }),
	}},
	{"How operations are done", []option{
		switchOn("ndbrecord", "record-style: whole rows; reads are committed reads", func(s *settings) { s.record = true }),
		switchOn("simple", "reads with a short shared lock, each in a transaction of its own", func(s *settings) { s.simple = true }),
		switchOn("dirty", "committed reads", func(s *settings) { s.dirty = true }),
		switchOn("write", "writes (insert or update) in place of inserts and updates", func(s *settings) { s.write = true }),
		switchOn("no_hint", "no distribution hint: coordinators round robin", func(s *settings) { s.noHint = true }),
		{"local", "N", "only rows whose primary is on: 1 the thread's own node, 2 each node\nin turn, 3 a random node", func(s *settings, value string) error {
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > localityLast {
				return fmt.Errorf("%q is not 1, 2 or 3", value)
			}
			s.local = locality(n)
			return nil
		}},
		switchOn("adaptive", "send at the adaptive moment (the default)", func(s *settings) { s.send = ndb.SendAdaptive }),
		switchOn("force", "send at once", func(s *settings) { s.send = ndb.SendForce }),
		switchOn("non_adaptive", "send every 10 ms", func(s *settings) { s.send = ndb.SendLazy }),
		switchOn("through-tc", "writes go through a transaction coordinator, also where a shorter path\nwould do (an addition, for measurements)", func(s *settings) { s.throughTC = true }),
	}},
	{"One thing only, on the standard table", []option{
		only("create_table", "create the tables", createTable),
		only("insert", "insert, once over all keys", onlyInsert),
		only("read", "read for a time", onlyRead),
		only("update", "update for a time", onlyUpdate),
		only("delete", "delete, once over all keys", onlyDelete),
		only("drop_table", "drop the tables", dropTable),
		seconds("warmup_time", "seconds before counting begins, for -read and -update (default 10)", 0, func(s *settings) *time.Duration { return &s.warmup }),
		seconds("execution_time", "seconds that are counted (default 30)", 1, func(s *settings) *time.Duration { return &s.execution }),
		seconds("cooldown_time", "seconds after that (default 10)", 0, func(s *settings) *time.Duration { return &s.cooldown }),
	}},
	{"The second driver", []option{
		switchOn("new", "definer threads make batches sorted by data node, -t executor\nthreads run them", func(s *settings) { s.definers = true }),
		number("d", "definer threads, 1 to 384 (default 1)", 1, threadsMax, func(s *settings) *int { return &s.definerCount }),
		switchOn("immediate", "executors run what there is, without waiting for a full batch", func(s *settings) { s.immediate = true }),
		cpus("receive_cpus", "CPUs of the connections' receiver threads, such as 0,2-3", func(s *settings) *[]int { return &s.receiveCPUs }),
		cpus("definer_cpus", "CPUs of the definer threads", func(s *settings) *[]int { return &s.definerCPUs }),
		cpus("executor_cpus", "CPUs of the executor threads", func(s *settings) *[]int { return &s.executorCPUs }),
	}},
	{"Cluster and figures", []option{
		{"ndb-connectstring", "S", "where the management servers are\n(default $NDB_CONNECTSTRING, else localhost:1186)", func(s *settings, value string) error {
			s.connect = value
			return nil
		}},
		{"json", "FILE", "write the figures to this file", func(s *settings, value string) error {
			s.jsonFile = value
			return nil
		}},
		{"node-pids", "LIST", "process ids of the data nodes, for their CPU time\n(default $COHORT_DATA_NODE_PIDS, which cohort up --run sets)", func(s *settings, value string) (err error) {
			s.nodePIDs, err = parsePIDs(value)
			return err
		}},
		switchOn("help", "this text", func(s *settings) { s.help = true }),
	}},
}

// findOption looks a name up; '-' and '_' in it are the same.
func findOption(name string) *option {
	name = strings.ReplaceAll(name, "-", "_")
	for g := range optionGroups {
		for i := range optionGroups[g].options {
			if o := &optionGroups[g].options[i]; strings.ReplaceAll(o.name, "-", "_") == name {
				return o
			}
		}
	}
	return nil
}

// parse reads a command line: names behind one dash or two, a value as the next word or behind '='.
func parse(args []string) (*settings, error) {
	s := defaults()
	for i := 0; i < len(args); i++ {
		arg := args[i]
		name, value, hasValue := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
		if name == "?" || name == "h" {
			name = "help"
		}
		o := findOption(name)
		switch {
		case !strings.HasPrefix(arg, "-") || o == nil:
			return nil, fmt.Errorf("there is no option %q", arg)
		case o.value == "" && hasValue:
			return nil, fmt.Errorf("option -%s takes no value", o.name)
		case o.value != "" && !hasValue:
			if i++; i == len(args) {
				return nil, fmt.Errorf("option -%s needs a value: -%s %s", o.name, o.name, o.value)
			}
			value = args[i]
		}
		if err := o.set(s, value); err != nil {
			return nil, fmt.Errorf("option -%s: %w", o.name, err)
		}
	}
	if s.help {
		return s, nil
	}
	return s, s.settle()
}

// settle refuses what does not fit together.
func (s *settings) settle() error {
	if !s.definers {
		switch {
		case s.definerCount > 0:
			return errors.New("-d is for the second driver: add -new")
		case s.immediate:
			return errors.New("-immediate is for the second driver: add -new")
		case s.receiveCPUs != nil || s.definerCPUs != nil || s.executorCPUs != nil:
			return errors.New("CPU lists are for the second driver: add -new")
		}
	}
	s.definerCount = max(s.definerCount, 1)
	if keys := int64(s.rounds) * int64(s.parallel) * int64(s.operations); keys > math.MaxUint32/2 {
		return fmt.Errorf("-o, -p and -c make %d rows for each thread, more than 2147483647: lower one of them", keys)
	}
	return nil
}

// timed tells whether the run is a single phase that runs for a time.
func (s *settings) timed() bool { return s.task == onlyRead || s.task == onlyUpdate }

// parseCPUs reads a list such as 0,2-3.
func parseCPUs(text string) ([]int, error) {
	var list []int
	for _, part := range strings.Split(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		low, err := strconv.Atoi(first)
		high := low
		if err == nil && isRange {
			high, err = strconv.Atoi(last)
		}
		if err != nil || low < 0 || high < low || high >= cpusMax {
			return nil, fmt.Errorf("%q is not a list of CPUs such as 0,2-3, with numbers below %d", text, cpusMax)
		}
		for n := low; n <= high; n++ {
			list = append(list, n)
		}
	}
	return list, nil
}

// parsePIDs reads a list of process ids.
func parsePIDs(text string) ([]int, error) {
	var list []int
	for _, part := range strings.Split(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a list of process ids such as 101,102", text)
		}
		list = append(list, n)
	}
	return list, nil
}
