// Package waiter is ndb_waiter: it waits until data nodes are in a state.
//
// It asks a management server again and again, through restarts of that server too, and prints a line whenever a node's
// state is a new one. It changes nothing. Invariant: Wait returns nil only if one answer of a server had every node that
// is waited for in the state.
//
// Read next: mgmclient, whose Status it asks for.
package waiter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
)

// Options say what to wait for.
type Options struct {
	Target config.ConnectString
	State  mgmclient.Status
	Wait   []int // nodes to wait for; empty: all data nodes
	Not    []int // data nodes not to wait for
	Out    io.Writer
	// Pause is the time between two questions.
	Pause time.Duration
}

// Wait waits until the context ends.
func Wait(ctx context.Context, o Options) error {
	w := &waiting{Options: o, said: map[int]mgmclient.Status{}}
	defer w.close()
	for {
		done, err := w.ask(ctx)
		if done || isFinal(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return w.timeout(err)
		case <-time.After(o.Pause):
		}
	}
}

// waiting is a Wait under way.
type waiting struct {
	Options
	client *mgmclient.Client
	said   map[int]mgmclient.Status // newest printed state of each node
	begun  bool                     // the line that says what is waited for is printed
	last   *mgmclient.ClusterStatus
}

// final is an error that time will not mend.
type final struct{ error }

func isFinal(err error) bool {
	var f final
	return errors.As(err, &f)
}

func (w *waiting) close() {
	if w.client != nil {
		w.client.Close()
	}
}

// ask asks once; done says that all nodes are in the state.
func (w *waiting) ask(ctx context.Context) (done bool, err error) {
	if w.client == nil || !w.client.Alive() {
		if w.client, err = mgmclient.ConnectTo(ctx, w.Target, mgmclient.Options{Name: "ndb_waiter"}); err != nil {
			return false, err
		}
	}
	status, err := w.client.Status(ctx, config.DataNode)
	if err != nil {
		return false, err
	}
	nodes, err := w.chosen(status)
	if err != nil {
		return false, final{err}
	}
	w.last = &mgmclient.ClusterStatus{}
	done = true
	for _, n := range nodes {
		w.last.Nodes = append(w.last.Nodes, *n)
		if w.said[n.ID] != n.Status {
			w.said[n.ID] = n.Status
			fmt.Fprintf(w.Out, "Node %d: %s\n", n.ID, n.Status)
		}
		done = done && n.Status == w.State
	}
	if !done && !w.begun {
		w.begun = true
		fmt.Fprintf(w.Out, "Waiting for cluster enter state %s\n", w.State)
	}
	return done, nil
}

// chosen are the nodes to wait for.
func (w *waiting) chosen(status *mgmclient.ClusterStatus) ([]*mgmclient.NodeStatus, error) {
	for _, id := range append(slices.Clone(w.Wait), w.Not...) {
		if status.Node(id) == nil {
			return nil, fmt.Errorf("there is no data node %d in the configuration: correct the list of nodes", id)
		}
	}
	var nodes []*mgmclient.NodeStatus
	for i := range status.Nodes {
		n := &status.Nodes[i]
		if (len(w.Wait) == 0 || slices.Contains(w.Wait, n.ID)) && !slices.Contains(w.Not, n.ID) {
			nodes = append(nodes, n)
		}
	}
	if len(nodes) == 0 {
		return nil, errors.New("no data node is left to wait for: correct the lists of nodes")
	}
	return nodes, nil
}

// timeout says what was still missing. err is why the last question had no answer, if it had none.
func (w *waiting) timeout(err error) error {
	if w.last == nil {
		return fmt.Errorf("timeout: %w", err)
	}
	var missing []string
	for i := range w.last.Nodes {
		if n := &w.last.Nodes[i]; n.Status != w.State {
			missing = append(missing, fmt.Sprintf("node %d: %s", n.ID, n.Status))
		}
	}
	return fmt.Errorf("timeout while waiting for state %s (%s): look at the logs of these nodes, or wait longer with --timeout", w.State, strings.Join(missing, ", "))
}
