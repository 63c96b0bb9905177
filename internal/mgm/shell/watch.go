package shell

import (
	"context"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
)

// watcher prints what happens to nodes while an operator works.
type watcher struct {
	stream *mgmclient.EventStream
	done   chan struct{}
}

// watchLevels are what an operator at a terminal wants to see unasked.
func watchLevels() event.Levels {
	var l event.Levels
	l[event.CategoryBackup] = event.LevelMax
	l[event.CategoryStartup] = 1
	l[event.CategoryShutdown] = 1
	return l
}

// watch starts a watcher on a session of its own; nil if the server does not give one.
func (s *Shell) watch(ctx context.Context, c *mgmclient.Client) *watcher {
	another, err := c.Another(ctx)
	if err != nil {
		return nil
	}
	stream, err := another.ListenEvents(ctx, watchLevels())
	if err != nil {
		another.Close()
		return nil
	}
	w := &watcher{stream: stream, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for {
			e, err := stream.Next()
			if err != nil {
				return // the session itself will notice
			}
			s.print("%s", e)
		}
	}()
	return w
}

func (w *watcher) stop() {
	w.stream.Close()
	<-w.done
}
