package arbitrator

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/cockroachdb/datadriven"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
)

const self = 49

// world is one arbitrator, and what it says.
type world struct {
	env *kernel.Env
	b   *Block
	out strings.Builder
}

func (w *world) boot(delay int64) {
	now := int64(0)
	if w.env != nil {
		now = w.env.Now()
	}
	w.env = kernel.NewEnv(self, 0, 1, 4096)
	w.env.SetNow(now)
	w.env.Place(signal.BlockArbitrator, 0, 0)
	for n := 1; n < 9; n++ {
		w.env.Via(uint8(n), kernel.Dest(n))
		w.env.Buf(kernel.Dest(n)).Init(256, 1<<20)
	}
	w.b = New(w.env, Config{Delay: delay, Tell: func(s string) { fmt.Fprintf(&w.out, "# %s\n", s) }})
}

// flush prints what is in the buffers.
func (w *world) flush() {
	w.b.Invariants()
	w.env.TakeDirty(func(_ kernel.Dest, b *kernel.Buf) {
		for p := b.Bytes(); len(p) > 0; {
			h := (*signal.Head)(unsafe.Pointer(&p[0]))
			if f := signal.Check(h, signal.PeerMgm, self, h.To.Node()); f != nil {
				panic(f)
			}
			switch h.Num {
			case signal.NumArbitStartConf:
				c := signal.As[signal.ArbitStartConf](h)
				fmt.Fprintf(&w.out, "%s -> %d view=%d turn=%d ticket=%d node=%d%s\n", signal.Name(h.Num), h.To.Node(), c.View, c.Turn, c.Ticket[0], c.Node, code(c.Code))
			default:
				c := signal.As[signal.ArbitChooseConf](h)
				fmt.Fprintf(&w.out, "%s -> %d attempt=%d%s\n", signal.Name(h.Num), h.To.Node(), c.Attempt, code(c.Code))
			}
			p = p[h.Bytes():]
		}
		b.Truncate(0)
	})
}

func code(c uint32) string {
	return [...]string{"", " unknown", " used", " old"}[c]
}

// TestArbitration runs the documents in testdata: what presidents and leaders of parts say to one arbitrator, and what
// it answers. Lines with # are its words for an operator.
func TestArbitration(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := &world{}
		w.boot(0)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.out.Reset()
			if d.Cmd != "do" {
				t.Fatalf("unknown command %q", d.Cmd)
			}
			for _, line := range strings.Split(d.Input, "\n") {
				w.do(t, strings.Fields(line))
			}
			if w.out.Len() == 0 {
				return "nothing\n"
			}
			return w.out.String()
		})
	})
}

func (w *world) do(t *testing.T, f []string) {
	arg := map[string]string{}
	for _, x := range f[1:] {
		k, v, _ := strings.Cut(x, "=")
		arg[k] = v
	}
	n := func(k string) uint32 {
		i, err := strconv.ParseUint(arg[k], 10, 32)
		if err != nil && arg[k] != "" {
			t.Fatal(err)
		}
		return uint32(i)
	}
	from := signal.MakeAddr(uint8(n("from")), signal.BlockMembership, 0)
	switch f[0] {
	case "boot": // the process starts (anew)
		w.boot(int64(n("delay-ms")) * 1e6)
	case "start":
		r := signal.ArbitStartReq{Run: [2]uint32{n("run"), 1}, View: n("view"), Turn: n("turn"), Ticket: [2]uint32{n("ticket")}}
		r.Num, r.From, r.To, r.Len = signal.NumArbitStartReq, from, w.b.self, uint16(unsafe.Sizeof(r)/4)
		w.b.Deliver(&r.Head)
	case "choose":
		r := signal.ArbitChooseReq{Attempt: n("attempt"), Run: [2]uint32{n("run"), 1}, View: n("view"), Turn: n("turn"), Ticket: [2]uint32{n("ticket")}}
		for _, x := range strings.Split(arg["part"], "+") {
			i, err := strconv.Atoi(x)
			if err != nil {
				t.Fatal(err)
			}
			r.Part.Add(uint8(i))
		}
		r.Num, r.From, r.To, r.Len = signal.NumArbitChooseReq, from, w.b.self, uint16(unsafe.Sizeof(r)/4)
		w.b.Deliver(&r.Head)
	case "wait":
		w.env.SetNow(w.env.Now() + int64(n("ms"))*1e6)
		w.env.FireTimers()
		w.env.RunJobs(func(p unsafe.Pointer) { w.b.Deliver((*signal.Head)(p)) }, 1<<20)
	default:
		t.Fatalf("unknown word %q", f[0])
	}
	w.flush()
}
