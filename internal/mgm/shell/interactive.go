package shell

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/peterh/liner"
)

// Interact reads commands until the end of input or QUIT. At a terminal it has a prompt, history and completion, and a
// command that fails does not count; from a pipe it reads lines as they come, and the error is that of the last command
// that failed.
func (s *Shell) Interact(ctx context.Context, in io.Reader) error {
	defer s.Close()
	if isTerminal(in) {
		s.opts.Watch = true
		s.print("-- Cohort -- Management Client --")
		return s.atTerminal(ctx)
	}
	var failed error
	lines := bufio.NewScanner(in)
	for !s.quit && lines.Scan() {
		if err := s.Execute(ctx, lines.Text()); err != nil {
			failed = err
			if !errors.Is(err, ErrFailed) {
				s.print("%v", err)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if failed != nil {
		return ErrFailed
	}
	return nil
}

func (s *Shell) atTerminal(ctx context.Context) error {
	line := liner.NewLiner()
	defer line.Close()
	line.SetCtrlCAborts(true)
	line.SetCompleter(Complete)
	path := historyPath()
	if f, err := os.Open(path); err == nil {
		line.ReadHistory(f)
		f.Close()
	}
	for !s.quit {
		text, err := line.Prompt(s.prompt)
		if errors.Is(err, io.EOF) || errors.Is(err, liner.ErrPromptAborted) {
			s.print("")
			break
		}
		if err != nil {
			return err
		}
		if strings.TrimSpace(text) != "" {
			line.AppendHistory(text)
		}
		if err := s.Execute(ctx, text); err != nil && !errors.Is(err, ErrFailed) {
			s.print("%v", err)
		}
	}
	// A history that cannot be kept is no reason to fail.
	if f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600); err == nil {
		if _, err := line.WriteHistory(f); err != nil {
			s.print("the history cannot be written to %s: %v", path, err)
		}
		f.Close()
	}
	return nil
}

func historyPath() string {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "."
	}
	return filepath.Join(home, ".ndb_mgm_history")
}

// isTerminal says that somebody types.
func isTerminal(in io.Reader) bool {
	f, ok := in.(*os.File)
	if !ok || f != os.Stdin {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// following are the words that may come after a word.
var following = map[string][]string{
	"CLUSTERLOG": {"INFO", "OFF", "ON", "TOGGLE"},
	"REPORT":     {"BACKUPSTATUS", "EVENTLOG", "LOCKS", "MEMORYUSAGE", "TRANSACTIONS"},
	"NODELOG":    {"DEBUG"},
	"DEBUG":      {"OFF", "ON"},
	"START":      {"BACKUP"},
	"ABORT":      {"BACKUP"},
	"BACKUP":     {"ENCRYPT", "NOWAIT", "SNAPSHOTEND", "SNAPSHOTSTART", "WAIT"},
	"WAIT":       {"COMPLETED", "STARTED"},
	"ENTER":      {"SINGLE"},
	"EXIT":       {"SINGLE"},
	"SINGLE":     {"USER"},
	"USER":       {"MODE"},
	"CREATE":     {"NODEGROUP"},
	"DROP":       {"NODEGROUP"},
	"PURGE":      {"STALE"},
	"STALE":      {"SESSIONS"},
	"TLS":        {"INFO"},
	"ON":         {"ALERT", "ALL", "CRITICAL", "DEBUG", "ERROR", "INFO", "WARNING"},
}

// Complete gives the lines that a line may become, for the completion at a terminal.
func Complete(line string) []string {
	words := strings.Fields(line)
	part := ""
	if len(words) > 0 && !strings.HasSuffix(line, " ") {
		part = words[len(words)-1]
		words = words[:len(words)-1]
	}
	var choices []string
	switch {
	case len(words) == 0:
		choices = append(keys(general), "ALL", "PROMPT")
		choices = slices.DeleteFunc(choices, func(c string) bool { return c == "?" })
	case isNodes(words):
		choices = keys(actions)
	case strings.EqualFold(words[0], "HELP"):
		choices = keys(topics)
	default:
		last := strings.ToUpper(words[len(words)-1])
		if last == "OFF" || last == "TOGGLE" {
			last = "ON"
		}
		choices = following[last]
	}
	slices.Sort(choices)
	head := line[:len(line)-len(part)]
	var lines []string
	for _, c := range choices {
		if strings.HasPrefix(c, strings.ToUpper(part)) {
			lines = append(lines, head+c+" ")
		}
	}
	return lines
}

// isNodes says that words are node ids only, or ALL.
func isNodes(words []string) bool {
	_, rest, err := nodeIDs(words)
	return err == nil && len(rest) == 0
}

// Once does one command and gives its error, after printing it if it has not been.
func (s *Shell) Once(ctx context.Context, line string, errs io.Writer, name string) error {
	defer s.Close()
	err := s.Execute(ctx, line)
	if err != nil && !errors.Is(err, ErrFailed) {
		fmt.Fprintf(errs, "%s: %v\n", name, err)
	}
	return err
}
