package host

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cohortdb/cohort/internal/signal"
)

// traceSignals is how many signals of a thread are remembered for the case that it breaks.
const traceSignals = 1024

// trace remembers the heads of the last signals of a thread: two stores per signal.
type trace struct {
	n    uint32
	head [traceSignals]signal.Head
}

func (t *trace) put(h *signal.Head) {
	t.head[t.n%traceSignals] = *h
	t.n++
}

// each calls f for the remembered heads, oldest first.
func (t *trace) each(f func(h *signal.Head)) {
	n := min(t.n, traceSignals)
	for i := t.n - n; i != t.n; i++ {
		f(&t.head[i%traceSignals])
	}
}

// traceName picks the file for the next trace of a node: a free number up to kept, else that of the oldest.
func traceName(dir string, node uint8, kept int) string {
	var oldest string
	var when time.Time
	for i := 1; i <= kept; i++ {
		name := filepath.Join(dir, fmt.Sprintf("ndb_%d_trace.log.%d", node, i))
		f, err := os.Stat(name)
		if err != nil {
			return name
		}
		if oldest == "" || f.ModTime().Before(when) {
			oldest, when = name, f.ModTime()
		}
	}
	return oldest
}

// writeTrace writes what is known about a broken thread into a file.
func writeTrace(name string, node uint8, thread int, reason string, stack []byte, t *trace) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	fmt.Fprintf(w, "%s node %d thread %d\n%s\n\n%s\nLast signals, oldest first:\n",
		time.Now().Format(time.RFC3339), node, thread, reason, stack)
	t.each(func(h *signal.Head) {
		fmt.Fprintf(w, "%s %v -> %v, %d bytes\n", signal.Name(h.Num), h.From, h.To, h.Bytes())
	})
	err = w.Flush()
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}
