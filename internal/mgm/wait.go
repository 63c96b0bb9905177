package mgm

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/waiter"
	"github.com/cohortdb/cohort/internal/options"
)

// waiterOptions are the command line of ndb_waiter.
type waiterOptions struct {
	connect    string
	timeout    int
	noContact  bool
	notStarted bool
	singleUser bool
	wait, not  []int
}

func waiterSet(o *waiterOptions) *options.Set {
	set := options.New("[options] [CONNECTSTRING | NODE …]", "Waits until data nodes are started, or in another state. The status is 0 if they are.")
	connectOptions(set, &o.connect)
	set.Int(&o.timeout, "timeout,t", "SECONDS", "how long to wait (120)", 0, 1<<30)
	set.Bool(&o.noContact, "no-contact,n", "wait for NO_CONTACT: all are gone")
	set.Bool(&o.notStarted, "not-started", "wait for NOT_STARTED: all wait to be started")
	set.Bool(&o.singleUser, "single-user", "wait for single user mode")
	set.Func("wait-nodes,w", "ID,ID,…", "wait for these data nodes only", func(v string) error { return nodeList(&o.wait, v) })
	set.Func("nowait-nodes", "ID,ID,…", "do not wait for these", func(v string) error { return nodeList(&o.not, v) })
	set.Example("ndb_waiter --timeout=30")
	set.Example("ndb_waiter -c mgm1 --no-contact --wait-nodes=3,4")
	return set
}

// nodeList adds a list of node ids to nodes, or nothing if it is not one.
func nodeList(nodes *[]int, list string) error {
	var more []int
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > 255 {
			return fmt.Errorf("%q is not a node id from 1 to 255", word)
		}
		more = append(more, n)
	}
	*nodes = append(*nodes, more...)
	return nil
}

// state is the state to wait for.
func (o *waiterOptions) state() (mgmclient.Status, error) {
	state, chosen := mgmclient.Started, 0
	for s, asked := range map[mgmclient.Status]bool{mgmclient.NoContact: o.noContact, mgmclient.NotStarted: o.notStarted, mgmclient.SingleUser: o.singleUser} {
		if asked {
			state = s
			chosen++
		}
	}
	if chosen > 1 {
		return "", fmt.Errorf("--no-contact, --not-started and --single-user exclude each other: use one")
	}
	return state, nil
}

// MainWaiter is the program ndb_waiter.
func MainWaiter(name string, args []string, _ io.Reader, stdout, stderr io.Writer) int {
	o := &waiterOptions{timeout: 120}
	rest, status, done := parse(waiterSet(o), name, args, stdout, stderr)
	if done {
		return status
	}
	usage := func(err error) int {
		complain(stderr, name, err)
		return exitUsage
	}
	// Node ids may stand behind the options as well; anything else there is a connect string.
	for len(rest) > 0 && nodeList(&o.wait, rest[len(rest)-1]) == nil {
		rest = rest[:len(rest)-1]
	}
	where, err := target(o.connect, rest)
	if err != nil {
		return usage(err)
	}
	state, err := o.state()
	if err != nil {
		return usage(err)
	}
	if len(o.wait) > 0 && len(o.not) > 0 {
		return usage(fmt.Errorf("--wait-nodes and --nowait-nodes exclude each other: use one"))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(o.timeout)*time.Second)
	defer cancel()
	err = waiter.Wait(ctx, waiter.Options{Target: where, State: state, Wait: o.wait, Not: o.not, Out: stdout, Pause: 100 * time.Millisecond})
	if err != nil {
		complain(stderr, name, err)
		return exitFailed
	}
	return exitDone
}
