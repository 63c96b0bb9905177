package flexasynch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"
)

const (
	program = "flexAsynch"

	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130

	// gcPercent lets the small heap grow before it is collected: a collection is worth nothing here.
	gcPercent = 400
)

var errInterrupted = errors.New("interrupted")

// Main runs flexAsynch and returns its exit status.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(interrupts)
	go func() {
		select {
		case <-interrupts:
			cancel(errInterrupted)
		case <-ctx.Done():
		}
	}()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	return start(ctx, args, stdout, stderr, connect)
}

// start is Main with a way to connect.
func start(ctx context.Context, args []string, stdout, stderr io.Writer,
	connect func(context.Context, *settings, func(string, ...any)) (cluster, error)) int {
	note := func(format string, args ...any) { fmt.Fprintf(stderr, program+": "+format+"\n", args...) }
	s, err := parse(args)
	if err != nil {
		note("%v", err)
		usage(stderr)
		return exitUsage
	}
	if s.help {
		usage(stdout)
		return 0
	}
	books, why := newAccounting("/proc", s.nodePIDs, os.Getenv(environmentPIDs))
	if why != "" && (s.jsonFile != "" || s.nodePIDs != nil) {
		note("no CPU figures of the data nodes: %s", why)
	}
	r := &run{s: s, out: stdout, note: note, connect: connect, wait: wait, unique: uint32(time.Now().UnixMilli()), books: books}
	if isTerminal(stderr) {
		r.watched = stderr
	}
	err = r.do(ctx)
	if err == nil || errors.Is(err, errFailed) || errors.Is(err, errInterrupted) {
		if failed := r.report(append([]string{program}, args...)); failed != nil {
			note("the figures cannot be written: %v", failed)
			err = errors.Join(err, failed)
		}
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errInterrupted):
		note("interrupted")
		return exitInterrupted
	}
	note("%v", err)
	return exitFailed
}

// report writes the file of --json.
func (r *run) report(command []string) error {
	if r.s.jsonFile == "" {
		return nil
	}
	return newReport(command, &r.all, len(r.books.pids) > 0).write(r.s.jsonFile)
}

// wait waits for a time or the end of ctx.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
