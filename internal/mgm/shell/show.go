package shell

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/version"
)

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// stateWords are the states as people read them.
var stateWords = map[mgmclient.Status]string{
	mgmclient.Unknown: "unknown state", mgmclient.NoContact: "not connected", mgmclient.NotStarted: "not started", mgmclient.Starting: "starting",
	mgmclient.Started: "started", mgmclient.ShuttingDown: "shutting down", mgmclient.Restarting: "restarting",
	mgmclient.SingleUser: "single user mode", mgmclient.Resume: "resuming", mgmclient.Connected: "connected",
}

// show is SHOW: every node, by type.
func (s *Shell) show(ctx context.Context, rest []string) error {
	if err := none(rest); err != nil {
		return err
	}
	c, err := s.connected(ctx)
	if err != nil {
		return err
	}
	status, err := c.Status(ctx)
	if err != nil {
		return s.failed("", codeUsage, wordsUsage, err)
	}
	conf, err := c.GetConfig(ctx, 0)
	if err != nil {
		return s.failed("", codeUsage, wordsUsage, err)
	}
	state, err := c.ClusterState(ctx)
	if err != nil {
		return s.failed("", codeUsage, wordsUsage, err)
	}
	s.print("Cluster Configuration\n---------------------")
	president := status.President()
	for _, t := range []struct {
		t    config.NodeType
		name string
	}{{config.DataNode, "ndbd(NDB)"}, {config.ManagementNode, "ndb_mgmd(MGM)"}, {config.APINode, "mysqld(API)"}} {
		nodes := status.OfType(t.t)
		s.print("[%s]\t%d node(s)", t.name, len(nodes))
		for _, n := range nodes {
			s.print("%s", nodeLine(n, conf.Node(n.ID), n.ID == president))
		}
		s.print("")
	}
	for _, danger := range state.Dangers {
		s.print("Warning: %s", danger)
	}
	return nil
}

// nodeLine is a node's line of SHOW.
func nodeLine(n *mgmclient.NodeStatus, conf *config.Node, president bool) string {
	if n.Status == mgmclient.NoContact {
		host := "any host"
		if conf != nil && conf.HostName != "" {
			host = conf.HostName
		}
		return fmt.Sprintf("id=%d (not connected, accepting connect from %s)", n.ID, host)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "id=%d\t", n.ID)
	if n.Address != "" {
		fmt.Fprintf(&b, "@%s  ", n.Address)
	}
	b.WriteString("(" + version.Text(n.Version))
	if n.Type == config.DataNode {
		if n.Status != mgmclient.Started {
			b.WriteString(", " + stateWords[n.Status])
		}
		if n.NodeGroup != mgmclient.NoPlace {
			if n.NodeGroup == config.NoNodeGroup {
				b.WriteString(", no nodegroup")
			} else {
				fmt.Fprintf(&b, ", Nodegroup: %d", n.NodeGroup)
			}
		}
		if president {
			b.WriteString(", *")
		}
	}
	return b.String() + ")"
}

// status is STATUS of some nodes.
func (s *Shell) status(ctx context.Context, nodes []int, rest []string) error {
	if err := none(rest); err != nil {
		return err
	}
	c, err := s.connected(ctx)
	if err != nil {
		return err
	}
	status, err := c.Status(ctx)
	if err != nil {
		return s.failed("", codeUsage, wordsUsage, err)
	}
	if nodes == nil {
		for _, n := range status.OfType(config.DataNode) {
			nodes = append(nodes, n.ID)
		}
	}
	for _, id := range nodes {
		n := status.Node(id)
		if n == nil {
			s.print("%d: Node not found", id)
			err = ErrFailed
			continue
		}
		s.print("%s", statusLine(n))
	}
	return err
}

func statusLine(n *mgmclient.NodeStatus) string {
	line := fmt.Sprintf("Node %d: %s", n.ID, stateWords[n.Status])
	if n.Status == mgmclient.Starting {
		line += fmt.Sprintf(" (Last completed phase %d)", n.StartPhase)
		if n.CopyTotal > 0 {
			line += fmt.Sprintf(" (copied %d of %d MB)", n.CopyDone, n.CopyTotal)
		}
	}
	if n.Version != 0 {
		line += " (" + version.Text(n.Version) + ")"
	}
	return line
}

// reportKinds are what REPORT knows; the lists of what is open are no events and have 0.
var reportKinds = map[string]event.Type{"BACKUPSTATUS": event.BackupStatus, "MEMORYUSAGE": event.MemoryUsage, "EVENTLOG": event.SavedEvent,
	"TRANSACTIONS": 0, "LOCKS": 0}

// report is REPORT {BACKUPSTATUS | MEMORYUSAGE | EVENTLOG | TRANSACTIONS | LOCKS} of some nodes.
func (s *Shell) report(ctx context.Context, nodes []int, rest []string) error {
	if len(rest) != 1 {
		return wrong("REPORT needs one of BackupStatus, MemoryUsage, EventLog, Transactions, Locks.")
	}
	kind, err := one(rest[0], keys(reportKinds)...)
	if err != nil {
		return wrong("REPORT knows BackupStatus, MemoryUsage, EventLog, Transactions and Locks, not '%s'.", rest[0])
	}
	c, err := s.connected(ctx)
	if err != nil {
		return err
	}
	switch kind {
	case "TRANSACTIONS":
		all, left, err := c.Transactions(ctx, nodes, linesMax)
		return listing(s, all, left, err, "no transaction is open", func(t mgmclient.Transaction) uint8 { return t.Node })
	case "LOCKS":
		all, left, err := c.Locks(ctx, nodes, linesMax)
		return listing(s, all, left, err, "nobody waits for a lock", func(l mgmclient.Lock) uint8 { return l.Where.Node })
	}
	events, err := c.DumpEvents(ctx, reportKinds[kind], nodes)
	if err != nil {
		return s.failed(reportFailed, codeUsage, wordsUsage, err)
	}
	for _, d := range events {
		if d.Seconds != 0 {
			s.print("%s %s", time.Unix(int64(d.Seconds), 0).Format("2006-01-02 15:04:05"), d.Event)
		} else {
			s.print("%s", d.Event)
		}
	}
	return nil
}

const reportFailed = "Report failed."

// linesMax is how many lines of a list a block of a node gives.
const linesMax = 100

// listing prints a list of what is open.
func listing[T fmt.Stringer](s *Shell, all []T, left int, err error, empty string, node func(T) uint8) error {
	if err != nil {
		return s.failed(reportFailed, codeUsage, wordsUsage, err)
	}
	for _, line := range all {
		s.print("Node %d: %v", node(line), line)
	}
	switch {
	case left > 0:
		s.print("… and %d more", left)
	case len(all) == 0:
		s.print("Of these nodes %s.", empty)
	}
	return nil
}
