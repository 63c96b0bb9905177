package flexasynch

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

const (
	progressAfter = 2 * time.Second        // a shorter phase shows none
	progressEvery = 250 * time.Millisecond // while it is shown
	progressWidth = 40
)

// isTerminal tells whether somebody watches.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// watch shows a bar of a phase's progress on a terminal until the function that it gives is called. done counts
// transactions, of which there are total; after is time.After.
func watch(w io.Writer, what string, done *atomic.Int64, total int64, after func(time.Duration) <-chan time.Time) (end func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		next, shown := after(progressAfter), false
		for {
			select {
			case <-stop:
				if shown {
					fmt.Fprint(w, "\r\x1b[K")
				}
				return
			case <-next:
				fmt.Fprint(w, "\r"+bar(what, done.Load(), total))
				next, shown = after(progressEvery), true
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}

// bar is what is shown.
func bar(what string, done, total int64) string {
	done = min(done, total)
	filled := int(done * progressWidth / max(total, 1))
	return fmt.Sprintf("%s [%s%s] %d %%", what, strings.Repeat("#", filled), strings.Repeat(" ", progressWidth-filled), done*100/max(total, 1))
}
