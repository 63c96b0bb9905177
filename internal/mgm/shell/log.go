package shell

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
)

// clusterlog is CLUSTERLOG {ON | OFF | TOGGLE} [severity…] and CLUSTERLOG INFO.
func (s *Shell) clusterlog(ctx context.Context, rest []string) error {
	if len(rest) == 0 {
		return wrong("CLUSTERLOG needs one of ON, OFF, TOGGLE, INFO.")
	}
	what, err := one(rest[0], "ON", "OFF", "TOGGLE", "INFO")
	if err == errUnknown {
		return wrong("CLUSTERLOG knows ON, OFF, TOGGLE and INFO, not '%s'.", rest[0])
	}
	if err != nil {
		return err
	}
	if what == "INFO" {
		if err := none(rest[1:]); err != nil {
			return err
		}
		return s.clusterlogInfo(ctx)
	}
	return s.setClusterlog(ctx, map[string]int{"ON": 1, "OFF": 0, "TOGGLE": -1}[what], rest[1:])
}

func (s *Shell) clusterlogInfo(ctx context.Context) error {
	c, err := s.connected(ctx)
	if err != nil {
		return err
	}
	on, passes, err := c.LogFilter(ctx)
	if err != nil {
		return s.failed("", codeUsage, wordsUsage, err)
	}
	if !on {
		s.print("Cluster logging is disabled.")
		return nil
	}
	line := "Severities enabled: "
	for severity := event.Debug; severity <= event.Alert; severity++ {
		if passes[severity] {
			line += severity.String() + " "
		}
	}
	s.print("%s", line)
	return nil
}

// allSeverities is the protocol's number for all severities at once.
const allSeverities = 7

func (s *Shell) setClusterlog(ctx context.Context, change int, words []string) error {
	var severities []int
	for _, word := range words {
		if strings.EqualFold(word, "ALL") {
			severities = append(severities, allSeverities)
			continue
		}
		severity, ok := event.ParseSeverity(word)
		if !ok {
			return wrong("Invalid severity level: %s. Use ALERT, CRITICAL, ERROR, WARNING, INFO, DEBUG or ALL.", word)
		}
		severities = append(severities, int(severity))
	}
	if severities == nil {
		severities = []int{0} // the switch of the whole log
	}
	c, err := s.connected(ctx)
	if err != nil {
		return err
	}
	for _, severity := range severities {
		if err := c.SetLogFilter(ctx, severity, change); err != nil {
			return s.failed("", codeUsage, wordsUsage, err)
		}
	}
	on, passes, err := c.LogFilter(ctx)
	if err != nil {
		return s.failed("", codeUsage, wordsUsage, err)
	}
	state := map[bool]string{true: "enabled", false: "disabled"}
	for _, severity := range severities {
		switch severity {
		case 0:
			s.print("Cluster logging is %s.", state[on])
		case allSeverities:
			s.print("ALL severities %s", state[passes[event.Alert]])
		default:
			s.print("%s %s", event.Severity(severity), state[passes[event.Severity(severity)]])
		}
	}
	return nil
}

// nodeClusterlog is CLUSTERLOG category=level… of some nodes.
func (s *Shell) nodeClusterlog(ctx context.Context, nodes []int, rest []string) error {
	if len(rest) == 0 {
		return wrong("CLUSTERLOG needs CATEGORY=LEVEL, for example 1 CLUSTERLOG STARTUP=8")
	}
	type setting struct {
		category event.Category
		level    uint8
	}
	var settings []setting
	for _, word := range rest {
		name, value, found := strings.Cut(word, "=")
		category, known := event.ParseCategory(name)
		level, err := strconv.ParseUint(value, 10, 8)
		switch {
		case !found || !known:
			return wrong("'%s' is not CATEGORY=LEVEL; the categories are STARTUP, SHUTDOWN, STATISTICS, CHECKPOINT, NODERESTART, CONNECTION, "+
				"INFO, ERROR, CONGESTION, DEBUG, BACKUP, SCHEMA.", word)
		case err != nil || level > event.LevelMax:
			return wrong("Invalid level: %s. Use a number from 0 to %d.", value, event.LevelMax)
		}
		settings = append(settings, setting{category, uint8(level)})
	}
	c, err := s.connected(ctx)
	if err != nil {
		return err
	}
	if nodes == nil {
		status, err := c.Status(ctx, config.DataNode)
		if err != nil {
			return err
		}
		for i := range status.Nodes {
			nodes = append(nodes, status.Nodes[i].ID)
		}
	}
	var errs []error
	for _, id := range nodes {
		for _, set := range settings {
			if err := c.SetLogLevel(ctx, id, set.category, set.level); err != nil {
				errs = append(errs, s.failed("", codeUsage, wordsUsage, err))
				continue
			}
			s.print("Executing CLUSTERLOG %s=%d on node %d OK!", set.category, set.level, id)
		}
	}
	return errors.Join(errs...)
}

// nodelog is NODELOG DEBUG {ON | OFF}.
func (s *Shell) nodelog(_ context.Context, _ []int, rest []string) error {
	if len(rest) != 2 || !strings.EqualFold(rest[0], "DEBUG") || !strings.EqualFold(rest[1], "ON") && !strings.EqualFold(rest[1], "OFF") {
		return wrong("NODELOG needs DEBUG ON or DEBUG OFF.")
	}
	s.print("NODELOG is not supported yet: data nodes have no debug log. See their events with ALL CLUSTERLOG DEBUG=15.")
	return ErrFailed
}
