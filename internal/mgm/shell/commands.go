package shell

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
)

// errUsage is a command that was understood in part; its text says what is wrong.
type errUsage string

func (e errUsage) Error() string { return string(e) }

// wrong makes an errUsage.
func wrong(format string, args ...any) error { return errUsage(fmt.Sprintf(format, args...)) }

// errUnknown is a command that was not understood at all.
var errUnknown = errUsage("")

// dispatch finds out what a line means and does it.
func (s *Shell) dispatch(ctx context.Context, line string) error {
	line = strings.TrimSpace(line)
	line = strings.TrimSpace(strings.TrimRight(line, "; \t"))
	words := strings.Fields(line)
	if len(words) == 0 {
		return nil
	}
	err := s.do(ctx, line, words)
	usage, isUsage := err.(errUsage)
	switch {
	case !isUsage:
		return err
	case usage == errUnknown:
		s.print("Invalid command: %s\nType HELP for help.\n", line)
	default:
		s.print("%s", string(usage))
	}
	return ErrFailed
}

// general are the commands that begin with a word; the first word must be written out, since some end clusters.
var general = map[string]func(s *Shell, ctx context.Context, rest []string) error{
	"HELP":       (*Shell).help,
	"?":          (*Shell).help,
	"SHOW":       (*Shell).show,
	"SHUTDOWN":   (*Shell).shutdown,
	"CLUSTERLOG": (*Shell).clusterlog,
	"CONNECT":    (*Shell).reconnect,
	"QUIT":       (*Shell).leave,
	"BYE":        (*Shell).leave,
	"EXIT":       (*Shell).exit,
	"ENTER":      (*Shell).enterSingleUser,
	"START":      (*Shell).startBackup,
	"ABORT":      (*Shell).abortBackup,
	"CREATE":     (*Shell).createNodegroup,
	"DROP":       (*Shell).dropNodegroup,
	"PURGE":      (*Shell).purge,
	"TLS":        (*Shell).tls,
}

// action is what can be done with nodes; nodes nil means all data nodes.
type action func(s *Shell, ctx context.Context, nodes []int, rest []string) error

// actions stand behind node ids or ALL. Any beginning that means only one of them will do.
var actions = map[string]action{
	"START":      (*Shell).start,
	"STOP":       (*Shell).stop,
	"RESTART":    (*Shell).restart,
	"STATUS":     (*Shell).status,
	"REPORT":     (*Shell).report,
	"CLUSTERLOG": (*Shell).nodeClusterlog,
	"NODELOG":    (*Shell).nodelog,
	"DUMP":       (*Shell).dump,
}

func (s *Shell) do(ctx context.Context, line string, words []string) error {
	first := strings.ToUpper(words[0])
	if first == "PROMPT" {
		// Its text may have any spaces.
		return s.setPrompt(strings.TrimSpace(line[len(words[0]):]))
	}
	if run := general[first]; run != nil {
		return run(s, ctx, words[1:])
	}
	nodes, rest, err := nodeIDs(words)
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		return wrong("A command is missing behind the node ids: START, STOP, RESTART, STATUS, REPORT, CLUSTERLOG, NODELOG or DUMP.")
	}
	name, err := one(rest[0], keys(actions)...)
	if err != nil {
		return err
	}
	return actions[name](s, ctx, nodes, rest[1:])
}

// nodeIDs reads ALL, or node ids separated by blanks or commas, from the beginning of words.
func nodeIDs(words []string) (nodes []int, rest []string, err error) {
	if strings.EqualFold(words[0], "ALL") {
		return nil, words[1:], nil
	}
	for i, word := range words {
		if word[0] < '0' || word[0] > '9' {
			rest = words[i:]
			break
		}
		for id := range strings.FieldsFuncSeq(word, func(r rune) bool { return r == ',' }) {
			n, err := strconv.Atoi(id)
			if err != nil || n < 1 || n > 255 {
				return nil, nil, wrong("Invalid node ID: %s.", id)
			}
			nodes = append(nodes, n)
		}
	}
	if nodes == nil {
		return nil, nil, errUnknown
	}
	return nodes, rest, nil
}

// one finds the choice that a word begins.
func one(word string, choices ...string) (string, error) {
	word = strings.ToUpper(word)
	var found []string
	for _, c := range choices {
		if c == word {
			return c, nil
		}
		if strings.HasPrefix(c, word) {
			found = append(found, c)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", errUnknown
	}
	return "", wrong("%s may mean %s: write more of it.", word, strings.Join(found, ", "))
}

// none says that nothing may follow a command.
func none(rest []string) error {
	if len(rest) > 0 {
		return wrong("'%s' is one word too many.", rest[0])
	}
	return nil
}

func (s *Shell) leave(_ context.Context, rest []string) error {
	if err := none(rest); err != nil {
		return err
	}
	s.quit = true
	return nil
}

// exit is EXIT or EXIT SINGLE USER MODE.
func (s *Shell) exit(ctx context.Context, rest []string) error {
	if len(rest) == 0 {
		return s.leave(ctx, rest)
	}
	if !isPhrase(rest, "SINGLE", "USER", "MODE") {
		return errUnknown
	}
	c, err := s.connected(ctx)
	if err != nil {
		return err
	}
	if err := c.ExitSingleUser(ctx); err != nil {
		return s.failed("Exiting single user mode failed.", codeExitSingle, wordsExitSingle, err)
	}
	s.print("Exiting single user mode in progress.\nUse ALL STATUS or SHOW to see when single user mode has been exited.")
	return nil
}

func (s *Shell) enterSingleUser(ctx context.Context, rest []string) error {
	if len(rest) != 4 || !isPhrase(rest[:3], "SINGLE", "USER", "MODE") {
		return errUnknown
	}
	node, err := number(rest[3], 255)
	if err != nil {
		return err
	}
	c, err := s.connected(ctx)
	if err != nil {
		return err
	}
	if err := c.EnterSingleUser(ctx, node); err != nil {
		return s.failed(fmt.Sprintf("Entering single user mode for node %d failed.", node), codeEnterSingle, wordsEnterSingle, err)
	}
	s.print("Single user mode entered\nAccess is granted for API node %d only.", node)
	return nil
}

// isPhrase says that words are exactly those of a phrase.
func isPhrase(words []string, phrase ...string) bool {
	if len(words) != len(phrase) {
		return false
	}
	for i, w := range words {
		if !strings.EqualFold(w, phrase[i]) {
			return false
		}
	}
	return true
}

func number(word string, most int) (int, error) {
	n, err := strconv.Atoi(word)
	if err != nil || n < 0 || n > most {
		return 0, wrong("'%s' is not a number from 0 to %d.", word, most)
	}
	return n, nil
}

// setPrompt is PROMPT [text].
func (s *Shell) setPrompt(text string) error {
	s.prompt = DefaultPrompt
	if text != "" {
		s.prompt = strings.Trim(text, `"'`) + " "
	}
	return nil
}

// reconnect is CONNECT [connectstring].
func (s *Shell) reconnect(ctx context.Context, rest []string) error {
	if len(rest) > 0 {
		target, err := config.ParseConnectString(strings.Join(rest, ","))
		if err != nil {
			return wrong("%v", err)
		}
		s.opts.Target = target
	}
	_, err := s.connect(ctx)
	return err
}

func (s *Shell) purge(ctx context.Context, rest []string) error {
	if !isPhrase(rest, "STALE", "SESSIONS") {
		return errUnknown
	}
	c, err := s.connected(ctx)
	if err != nil {
		return err
	}
	purged, err := c.PurgeStaleSessions(ctx)
	if err != nil {
		return s.failed("", codeUsage, wordsUsage, err)
	}
	if purged == "" {
		s.print("No sessions purged")
	} else {
		s.print("Purged sessions with node id's: %s", purged)
	}
	return nil
}

func (s *Shell) tls(_ context.Context, rest []string) error {
	if !isPhrase(rest, "INFO") {
		return errUnknown
	}
	s.print("The connection is not encrypted. TLS is not supported yet.")
	return nil
}

// createNodegroup is CREATE NODEGROUP id,id,…
func (s *Shell) createNodegroup(ctx context.Context, rest []string) error {
	if len(rest) < 2 || !strings.EqualFold(rest[0], "NODEGROUP") {
		return errUnknown
	}
	nodes, tail, err := nodeIDs(rest[1:])
	if err != nil || len(tail) > 0 || nodes == nil {
		return wrong("CREATE NODEGROUP needs node ids: CREATE NODEGROUP 3,4")
	}
	c, err := s.connected(ctx)
	if err != nil {
		return err
	}
	group, err := c.CreateNodegroup(ctx, nodes)
	if err != nil {
		return s.failedInCluster(err)
	}
	s.print("Nodegroup %d created", group)
	return nil
}

// dropNodegroup is DROP NODEGROUP ng.
func (s *Shell) dropNodegroup(ctx context.Context, rest []string) error {
	if len(rest) != 2 || !strings.EqualFold(rest[0], "NODEGROUP") {
		return errUnknown
	}
	group, err := number(rest[1], 65535)
	if err != nil {
		return err
	}
	c, err := s.connected(ctx)
	if err != nil {
		return err
	}
	if err := c.DropNodegroup(ctx, group); err != nil {
		return s.failedInCluster(err)
	}
	s.print("Node group %d dropped", group)
	return nil
}

// failedInCluster prints an error that has a number of the record API: the number, the reason and its class.
func (s *Shell) failedInCluster(err error) error {
	refusal, ok := err.(*mgmclient.Refusal)
	if !ok {
		return err
	}
	class := "Permanent error: Application error"
	if refusal.Code == codeNotImplemented {
		class = "Permanent error: Function not implemented"
	}
	s.print("* %5d: Error", refusal.Code)
	s.print("*        %d: %s: %s", refusal.Code, refusal.Text, class)
	return ErrFailed
}

// codeNotImplemented is NDB's number for what a version cannot do.
const codeNotImplemented = 4003
