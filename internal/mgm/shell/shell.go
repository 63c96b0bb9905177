// Package shell is the management client ndb_mgm: it reads commands as operators of NDB know them, has them done by a
// management server, and prints what NDB's client prints.
//
// It owns the grammar of the commands, the texts, the help, and the interactive session with its history and completion.
// It decides nothing about a cluster; what a server refuses it passes on with the server's reason. It never ends the
// process. Invariants: a command that was not understood does nothing; every command says whether it worked, and the
// answer goes to the same place, so that scripts can read it.
//
// Read next: commands.go (the grammar), show.go and stop.go (what the most used ones print), interactive.go.
package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
)

// Options are how a shell reaches its server.
type Options struct {
	Target     config.ConnectString
	Retries    int           // tries of the whole connect string after the first
	RetryDelay time.Duration // pause between them
	Out        io.Writer     // everything that commands print
	// Watch prints what happens to nodes while the session goes on, as an operator at a terminal wants it.
	Watch bool
}

// Shell is one session of an operator.
type Shell struct {
	opts   Options
	client *mgmclient.Client
	used   time.Time // when the client last answered
	prompt string
	quit   bool

	mu      sync.Mutex // of what is printed: commands and the watcher take turns
	watcher *watcher
}

// DefaultPrompt is what an interactive session asks with.
const DefaultPrompt = "ndb_mgm> "

// New makes a shell; it connects when the first command needs it.
func New(o Options) *Shell { return &Shell{opts: o, prompt: DefaultPrompt} }

// Close ends the session.
func (s *Shell) Close() {
	if s.watcher != nil {
		s.watcher.stop()
		s.watcher = nil
	}
	if s.client != nil {
		s.client.Close()
		s.client = nil
	}
}

// print prints a line or several.
func (s *Shell) print(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.opts.Out, format+"\n", args...)
}

// commandMax is how long a command may take; stopping a large cluster takes longest.
const commandMax = 5 * time.Minute

// freshFor is how long a session is trusted without asking: a server closes those that say nothing for long.
const freshFor = 10 * time.Second

// connected gives a living session, opening one if need be.
func (s *Shell) connected(ctx context.Context) (*mgmclient.Client, error) {
	if s.client != nil && s.client.Alive() {
		if time.Since(s.used) < freshFor || s.client.CheckConnection(ctx) == nil {
			s.used = time.Now()
			return s.client, nil
		}
	}
	return s.connect(ctx)
}

// connect opens a session, whatever was open before.
func (s *Shell) connect(ctx context.Context) (*mgmclient.Client, error) {
	s.Close()
	c, err := mgmclient.ConnectTo(ctx, s.opts.Target, mgmclient.Options{Name: "ndb_mgm", Retries: s.opts.Retries, RetryDelay: s.opts.RetryDelay})
	if err != nil {
		return nil, err
	}
	s.client, s.used = c, time.Now()
	s.print("Connected to Management Server at: %s", c.Addr())
	if s.opts.Watch {
		s.watcher = s.watch(ctx, c)
	}
	return c, nil
}

// ErrFailed says that a command did not work and has said why where it prints.
var ErrFailed = errors.New("the command failed")

// Execute does one command. An error other than ErrFailed has not been printed.
func (s *Shell) Execute(ctx context.Context, line string) error {
	ctx, cancel := context.WithTimeout(ctx, commandMax)
	defer cancel()
	return s.dispatch(ctx, line)
}

// failed prints why a request to the server did not work: what failed, NDB's number and words for it, and the reason.
func (s *Shell) failed(what string, code int, words string, err error) error {
	var refusal *mgmclient.Refusal
	if !errors.As(err, &refusal) {
		return err
	}
	if what != "" {
		s.print("%s", what)
	}
	s.print("* %5d: %s", code, words)
	s.print("*        %s", refusal.Text)
	return ErrFailed
}

// NDB's numbers for what fails in management, with their words.
const (
	codeStart, wordsStart             = 2001, "Start failed"
	codeStop, wordsStop               = 2002, "Stop failed"
	codeRestart, wordsRestart         = 2003, "Restart failed"
	codeStartBackup, wordsStartBackup = 3001, "Could not start backup"
	codeAbortBackup, wordsAbortBackup = 3002, "Could not abort backup"
	codeEnterSingle, wordsEnterSingle = 4001, "Could not enter single user mode"
	codeExitSingle, wordsExitSingle   = 4002, "Could not exit single user mode"
	codeUsage, wordsUsage             = 5001, "Usage error"
)
