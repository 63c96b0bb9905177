package shell

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
)

// stopOptions reads -a -f -i -n, as far as a command takes them.
func stopOptions(rest []string, allowed string) (o mgmclient.StopOptions, err error) {
	for _, word := range rest {
		letters, isOption := strings.CutPrefix(strings.ToLower(word), "-")
		if !isOption || letters == "" {
			return o, wrong("'%s' is no option; this command takes %s.", word, optionWords(allowed))
		}
		for _, letter := range letters {
			if !strings.ContainsRune(allowed, letter) {
				return o, wrong("There is no option -%c; this command takes %s.", letter, optionWords(allowed))
			}
			switch letter {
			case 'a':
				o.Abort = true
			case 'f':
				o.Force = true
			case 'i':
				o.Initial = true
			case 'n':
				o.NoStart = true
			}
		}
	}
	return o, nil
}

func optionWords(allowed string) string {
	var words []string
	for _, letter := range allowed {
		words = append(words, "-"+string(letter))
	}
	return strings.Join(words, " ")
}

// stop is STOP of some nodes, or of all data nodes.
func (s *Shell) stop(ctx context.Context, nodes []int, rest []string) error {
	o, err := stopOptions(rest, "af")
	if err != nil {
		return err
	}
	c, err := s.connected(ctx)
	if err != nil {
		return err
	}
	const failed = "Shutdown failed."
	if nodes == nil {
		if _, err := c.StopAll(ctx, true, false, o); err != nil {
			return s.failed(failed, codeStop, wordsStop, err)
		}
		s.print("NDB Cluster has shutdown.")
		return nil
	}
	stopped, err := c.Stop(ctx, nodes, o)
	if err != nil {
		return s.failed(failed, codeStop, wordsStop, err)
	}
	for _, id := range nodes {
		s.print("Node %d has shutdown.", id)
	}
	s.leaveServer(stopped)
	return nil
}

// leaveServer ends the session with a server that goes away, so that it need not wait for us.
func (s *Shell) leaveServer(stopped mgmclient.Stopped) {
	if stopped.Disconnect {
		s.print("Disconnecting to allow management server to shutdown.")
		s.Close()
	}
}

// shutdown is SHUTDOWN: all data nodes, then the management server.
func (s *Shell) shutdown(ctx context.Context, rest []string) error {
	if err := none(rest); err != nil {
		return err
	}
	c, err := s.connected(ctx)
	if err != nil {
		return err
	}
	stopped, err := c.StopAll(ctx, true, true, mgmclient.StopOptions{})
	if err != nil {
		return s.failed("Shutdown of NDB Cluster node(s) failed.", codeStop, wordsStop, err)
	}
	s.print("%d NDB Cluster node(s) have shutdown.", stopped.Count)
	s.leaveServer(stopped)
	return nil
}

// restart is RESTART of some nodes, or of all data nodes.
func (s *Shell) restart(ctx context.Context, nodes []int, rest []string) error {
	o, err := stopOptions(rest, "afin")
	if err != nil {
		return err
	}
	c, err := s.connected(ctx)
	if err != nil {
		return err
	}
	if nodes == nil {
		_, err = c.RestartAll(ctx, o)
	} else {
		_, err = c.Restart(ctx, nodes, o)
	}
	if err != nil {
		return s.failed("Restart failed.", codeRestart, wordsRestart, err)
	}
	if nodes == nil {
		s.print("NDB Cluster is being restarted.\nUse ALL STATUS to see the system start-up phases.")
		return nil
	}
	for _, id := range nodes {
		s.print("Node %d is being restarted", id)
	}
	return nil
}

// start is START of some nodes that wait for it, or of all.
func (s *Shell) start(ctx context.Context, nodes []int, rest []string) error {
	if err := none(rest); err != nil {
		return err
	}
	c, err := s.connected(ctx)
	if err != nil {
		return err
	}
	const failed = "Start failed."
	if nodes == nil {
		count, err := c.StartAll(ctx)
		if err != nil {
			return s.failed(failed, codeStart, wordsStart, err)
		}
		if count == 0 {
			return s.failed(failed, codeStart, wordsStart, &mgmclient.Refusal{Text: "No node is waiting to be started"})
		}
		s.print("NDB Cluster is being started.")
		return nil
	}
	var errs []error
	for _, id := range nodes {
		if err := c.Start(ctx, id); err != nil {
			errs = append(errs, s.failed(failed, codeStart, wordsStart, err))
			continue
		}
		s.print("Database node %d is being started.", id)
	}
	return errors.Join(errs...)
}

// dump is DUMP number…
func (s *Shell) dump(ctx context.Context, nodes []int, rest []string) error {
	if len(rest) == 0 {
		return wrong("DUMP needs a number: 1 DUMP 1000")
	}
	var args []uint32
	var shown []string
	for _, word := range rest {
		n, err := strconv.ParseUint(word, 0, 32)
		if err != nil {
			return wrong("'%s' is not a number from 0 to 4294967295.", word)
		}
		args = append(args, uint32(n))
		shown = append(shown, fmt.Sprintf("0x%08x", n))
	}
	c, nodes, err := s.dataNodes(ctx, nodes)
	if err != nil {
		return err
	}
	s.print("Sending dump signal with data:\n%s", strings.Join(shown, " "))
	var errs []error
	for _, id := range nodes {
		if err := c.Dump(ctx, id, args); err != nil {
			errs = append(errs, s.failed("", codeUsage, wordsUsage, err))
		}
	}
	return errors.Join(errs...)
}

// dataNodes turns "all" into the connected data nodes.
func (s *Shell) dataNodes(ctx context.Context, nodes []int) (*mgmclient.Client, []int, error) {
	c, err := s.connected(ctx)
	if err != nil || nodes != nil {
		return c, nodes, err
	}
	status, err := c.Status(ctx, config.DataNode)
	if err != nil {
		return nil, nil, err
	}
	for i := range status.Nodes {
		if status.Nodes[i].IsConnected() {
			nodes = append(nodes, status.Nodes[i].ID)
		}
	}
	return c, nodes, nil
}

// startBackup is START BACKUP [id] [ENCRYPT [PASSWORD='…']] [SNAPSHOTSTART | SNAPSHOTEND] [NOWAIT | WAIT STARTED | WAIT COMPLETED].
func (s *Shell) startBackup(ctx context.Context, rest []string) error {
	if len(rest) == 0 || !strings.EqualFold(rest[0], "BACKUP") {
		return errUnknown
	}
	b, err := backupOptions(rest[1:])
	if err != nil {
		return err
	}
	c, err := s.connected(ctx)
	if err != nil {
		return err
	}
	if b.Wait == waitCompleted {
		s.print("Waiting for completed, this may take several minutes")
	}
	id, err := c.StartBackup(ctx, b)
	if err != nil {
		return s.failed("Backup failed", codeStartBackup, wordsStartBackup, err)
	}
	s.print("Backup %d started", id)
	return nil
}

// What START BACKUP may wait for.
const (
	waitNot       = 0
	waitStarted   = 1
	waitCompleted = 2
)

func backupOptions(rest []string) (mgmclient.Backup, error) {
	b := mgmclient.Backup{Wait: waitCompleted}
	for i := 0; i < len(rest); i++ {
		word := strings.ToUpper(rest[i])
		next := ""
		if i+1 < len(rest) {
			next = rest[i+1]
		}
		switch {
		case word == "NOWAIT":
			b.Wait = waitNot
		case word == "WAIT" && strings.EqualFold(next, "STARTED"):
			b.Wait = waitStarted
			i++
		case word == "WAIT" && strings.EqualFold(next, "COMPLETED"):
			b.Wait = waitCompleted
			i++
		case word == "SNAPSHOTSTART":
			b.Snapshot = 1
		case word == "SNAPSHOTEND":
			b.Snapshot = 0
		case word == "ENCRYPT":
			b.Encrypted = true
			if name, value, found := strings.Cut(next, "="); found && strings.EqualFold(name, "PASSWORD") {
				b.Password = strings.Trim(value, `"'`)
				i++
			}
		case i == 0 && word[0] >= '0' && word[0] <= '9':
			n, err := strconv.ParseUint(word, 10, 32)
			if err != nil || n == 0 {
				return b, wrong("Invalid backup id: %s.", word)
			}
			b.ID = uint32(n)
		default:
			return b, wrong("'%s' is no part of START BACKUP; HELP BACKUP shows what is.", rest[i])
		}
	}
	return b, nil
}

// abortBackup is ABORT BACKUP id.
func (s *Shell) abortBackup(ctx context.Context, rest []string) error {
	if len(rest) != 2 || !strings.EqualFold(rest[0], "BACKUP") {
		return errUnknown
	}
	id, err := strconv.ParseUint(rest[1], 10, 32)
	if err != nil {
		return wrong("Invalid backup id: %s.", rest[1])
	}
	c, err := s.connected(ctx)
	if err != nil {
		return err
	}
	if err := c.AbortBackup(ctx, uint32(id)); err != nil {
		return s.failed(fmt.Sprintf("Abort of backup %d failed", id), codeAbortBackup, wordsAbortBackup, err)
	}
	s.print("Abort of backup %d ordered", id)
	return nil
}
