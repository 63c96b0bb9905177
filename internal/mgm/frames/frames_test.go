package frames

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/cohortdb/cohort/internal/signal"
)

func TestFramesComeOutWholeHoweverTheyArrive(t *testing.T) {
	to, from := signal.MakeAddr(49, signal.BlockMgm, 0), signal.MakeAddr(1, signal.BlockManager, 0)
	long := string(bytes.Repeat([]byte("x"), 200_000))
	var stream []byte
	stream = append(stream, Make(signal.NumStopConf, to, from, "", func(c *signal.StopConf) { c.Ref = 7 })...)
	stream = append(stream, Make(signal.NumEventRep, to, from, "why", func(e *signal.EventRep) { e.TextLen = 3 })...)
	stream = append(stream, Make[signal.StartOrd](signal.NumStartOrd, to, from, long, nil)...)
	stream = append(stream, Make(signal.NumStopConf, to, from, "", func(c *signal.StopConf) { c.Ref = 9 })...)
	for name, in := range map[string]io.Reader{
		"in one piece": bytes.NewReader(stream), "byte by byte": iotest.OneByteReader(bytes.NewReader(stream)),
		"in halves": iotest.HalfReader(bytes.NewReader(stream)), "with the end in the last piece": iotest.DataErrReader(bytes.NewReader(stream)),
	} {
		r := NewReader(in, nil)
		next := func() *signal.Head {
			t.Helper()
			h, err := r.Next()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return h
		}
		if c := As[signal.StopConf](next()); c.Ref != 7 {
			t.Errorf("%s: ref %d", name, c.Ref)
		}
		h := next()
		kept := Copy(h)
		if e := As[signal.EventRep](h); string(e.Text()) != "why" || signal.Check(h, signal.PeerData, 1, 49) != nil {
			t.Errorf("%s: %s", name, signal.Format(h))
		}
		if h = next(); int(h.Bytes()) != signal.HeadSize+len(long) {
			t.Errorf("%s: %d bytes", name, h.Bytes())
		}
		if c := As[signal.StopConf](next()); c.Ref != 9 {
			t.Errorf("%s: ref %d", name, c.Ref)
		}
		if e := As[signal.EventRep](Head(kept)); string(e.Text()) != "why" {
			t.Errorf("%s: a kept frame changed", name)
		}
		if _, err := r.Next(); err != io.EOF {
			t.Errorf("%s: at the end %v", name, err)
		}
	}
	already := NewReader(bytes.NewReader(stream[20:]), stream[:20])
	if h, err := already.Next(); err != nil || As[signal.StopConf](h).Ref != 7 {
		t.Errorf("after what was read already: %v", err)
	}
	cut := NewReader(bytes.NewReader(stream[:len(stream)-1]), nil)
	var err error
	for err == nil {
		_, err = cut.Next()
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut: %v", err)
	}
	var fault *signal.Fault
	if _, err := NewReader(bytes.NewReader(make([]byte, 100)), nil).Next(); !errors.As(err, &fault) {
		t.Errorf("a frame of no length: %v", err)
	}
}
