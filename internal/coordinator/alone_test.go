package coordinator_test

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/cockroachdb/datadriven"

	"github.com/cohortdb/cohort/internal/coordinator"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/view"
)

// TestAlone runs the documents in testdata/alone: a coordinator at node 1 whose ldms, client and membership are the
// script, so that it meets every order of signals that a takeover can bring, likely or not. Operations are named by letters
// in the order of their prepares, and those of lost coordinators as the script likes.
func TestAlone(t *testing.T) {
	files, err := filepath.Glob("testdata/alone/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no documents: ", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			var a *alone
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				if d.Cmd == "coordinator" {
					a = newAlone(t, d)
					return fmt.Sprintf("fragments at %v\n", a.homes)
				}
				a.t = t
				a.out.Reset()
				for _, line := range strings.Split(d.Input, "\n") {
					if line = strings.TrimSpace(line); line != "" {
						a.do(strings.Fields(line))
					}
				}
				if a.out.Len() == 0 {
					return "nothing\n"
				}
				return a.out.String()
			})
		})
	}
}

// sentOp is an operation as the ldms know it.
type sentOp struct {
	tc, client signal.Addr
	ref, seq   uint32
	frag       uint16
	direct     uint32 // of the newest step
}

type alone struct {
	t     *testing.T
	env   *kernel.Env
	tc    *coordinator.Block
	view  view.View
	next  view.View
	turn  uint32
	homes [][]signal.Addr
	ops   map[string]*sentOp
	names int
	out   strings.Builder
}

func newAlone(t *testing.T, d *datadriven.TestData) *alone {
	nodes, replicas, tcs := 4, 2, 1
	d.MaybeScanArgs(t, "nodes", &nodes)
	d.MaybeScanArgs(t, "replicas", &replicas)
	e := kernel.NewEnv(1, 0, 1, 4096)
	for _, b := range []uint8{signal.BlockTC, signal.BlockLDM, signal.BlockDictionary, signal.BlockDistribution, signal.BlockMembership, signal.BlockManager} {
		e.Place(b, 0, 0)
	}
	for n := 2; n < 256; n++ {
		e.Via(uint8(n), kernel.Dest(n))
		e.Buf(kernel.Dest(n)).Init(256, 1<<20)
	}
	a := &alone{t: t, env: e, ops: map[string]*sentOp{}}
	a.tc = coordinator.New(e, coordinator.Config{MaxTransactions: 16, MaxOperations: 32, MaxTables: 8, Sessions: 8})
	a.view.Take(1, 1, members(nodes, replicas, tcs, 1))
	groups := nodes / replicas
	for f := range groups * 2 {
		var home []signal.Addr
		for r := range replicas {
			home = append(home, signal.MakeAddr(uint8(f%groups*replicas+(f/groups+r)%replicas+1), signal.BlockLDM, 0))
		}
		a.homes = append(a.homes, home)
	}
	self := signal.MakeAddr(1, signal.BlockTC, 0)
	putView(e, []signal.Addr{self}, signal.NumViewCommitReq, &a.view, 1)
	def := &schema.Table{ID: 3, Version: 1, Database: "d", Name: "t", Columns: oneWord, Fragments: uint32(len(a.homes))}
	b, err := def.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	o := (*signal.TableOpenReq)(e.Put(self, signal.MakeAddr(1, signal.BlockDictionary, 0), signal.NumTableOpenReq,
		signal.TableOpenSize(uint32(len(b)), 0, uint32(len(a.homes)))))
	o.Ref, o.Table, o.Version, o.Fragments, o.Buckets, o.DefLen = 0, 3, 1, uint32(len(a.homes)), 0, uint32(len(b))
	copy(o.Def(), b)
	clear(o.Chains())
	for f, h := range a.homes {
		copy(o.Chains()[f*signal.MaxReplicas:], h)
	}
	for _, num := range []uint16{signal.NumEpochPrepareReq, signal.NumEpochCommitReq} {
		kernel.Send[signal.EpochReq](e, self, distribution(1), num).GCI = [2]uint32{1, 0}
	}
	a.settle()
	a.out.Reset()
	return a
}

// settle lets the coordinator do all it can, and prints what it sent.
func (a *alone) settle() {
	for a.env.Jobs() {
		a.env.RunJobs(func(p unsafe.Pointer) {
			h := (*signal.Head)(p)
			if h.To.Block() != signal.BlockTC {
				a.sent(h)
				return
			}
			a.tc.Deliver(h)
			a.tc.Invariants()
		}, 1)
	}
	a.env.TakeDirty(func(_ kernel.Dest, b *kernel.Buf) {
		for in := b.Bytes(); len(in) > 0; {
			h := (*signal.Head)(unsafe.Pointer(&in[0]))
			if f := signal.Check(h, signal.PeerData, 1, h.To.Node()); f != nil {
				a.t.Fatal(f)
			}
			a.sent(h)
			in = in[h.Bytes():]
		}
		b.Consume(b.Len())
	})
}

func (a *alone) nameOf(tc signal.Addr, ref, seq uint32) (string, *sentOp) {
	for name, o := range a.ops {
		if o.tc == tc && o.ref == ref && o.seq == seq {
			return name, o
		}
	}
	a.t.Fatalf("a signal about operation %d of record %d at %v, which is unknown", seq, ref, tc)
	return "", nil
}

func (a *alone) sent(h *signal.Head) {
	to := strings.TrimSuffix(h.To.String(), ".0")
	switch h.Num {
	case signal.NumPrepareReq:
		r := signal.As[signal.PrepareReq](h)
		name := string(rune('a' + a.names))
		a.names++
		a.ops[name] = &sentOp{tc: r.Tc, client: r.Client, ref: r.TcRef, seq: r.Seq, frag: r.Frag}
		marker := ""
		if r.Flags&signal.FlagMarker != 0 {
			marker = " with the marker"
		}
		fmt.Fprintf(&a.out, "PrepareReq %s -> %s%s\n", name, to, marker)
	case signal.NumCommitReq, signal.NumCompleteReq, signal.NumAbortReq:
		s := signal.As[signal.Step](h)
		name, o := a.nameOf(s.Tc, s.TcRef, s.OpSeq)
		o.direct = s.Direct
		fmt.Fprintf(&a.out, "%s %s -> %s record %d", signal.Name(h.Num), name, to, s.OpRef)
		if s.Direct != 0 {
			fmt.Fprintf(&a.out, " direct %d", s.Direct)
		}
		if h.Num == signal.NumCommitReq {
			fmt.Fprintf(&a.out, " epoch=%v commit %d", signal.JoinGCI(s.GCI), s.Seq)
		}
		a.out.WriteByte('\n')
	case signal.NumWaitProbeOrd:
		p := signal.As[signal.ProbeOrd](h)
		name, _ := a.nameOf(signal.MakeAddr(1, signal.BlockTC, 0), p.TcRef, p.OpSeq)
		fmt.Fprintf(&a.out, "WaitProbeOrd %s -> %s record %d, of client %d transaction %d, %d hops\n", name, to, p.OpRef, p.Client.Instance(), p.Tx, p.Hops)
	case signal.NumTxConf:
		c := signal.As[signal.TxConf](h)
		fmt.Fprintf(&a.out, "TxConf tx=%d", c.Tx)
		if c.Committed != 0 {
			fmt.Fprintf(&a.out, " committed epoch=%v", signal.JoinGCI(c.GCI))
		}
		a.out.WriteByte('\n')
	case signal.NumTxRef:
		c := signal.As[signal.TxRef](h)
		fmt.Fprintf(&a.out, "TxRef tx=%d error=%d\n", c.Tx, c.Code)
	case signal.NumViewPrepareConf, signal.NumViewCommitConf:
		c := signal.As[signal.ViewConf](h)
		fmt.Fprintf(&a.out, "%s view %d attempt %d\n", signal.Name(h.Num), c.View, c.Attempt)
	case signal.NumSingleConf:
		fmt.Fprintf(&a.out, "SingleConf %d\n", signal.As[signal.SingleConf](h).Ref)
	case signal.NumListConf:
		c := signal.As[signal.ListConf](h)
		fmt.Fprintf(&a.out, "ListConf of %d blocks, %d lines left out\n", c.Blocks, c.Left)
		for _, l := range c.Transactions() {
			state := [...]string{"", "active", "committing", "completing", "aborting", "taken over"}[l.State]
			fmt.Fprintf(&a.out, "  client %d tx=%d %s, %d operations, %d wait, %d ms old, idle for %d ms\n", l.Client.Node(), l.Tx, state, l.Operations, l.Waiting,
				l.AgeMillis, l.IdleMillis)
		}
	case signal.NumEpochCommitConf, signal.NumEpochPrepareConf, signal.NumTableOpenConf:
	default:
		fmt.Fprintf(&a.out, "%s -> %s\n", signal.Name(h.Num), to)
	}
}

func (a *alone) do(f []string) {
	arg := map[string]string{}
	for _, x := range f[1:] {
		k, v, _ := strings.Cut(x, "=")
		arg[k] = v
	}
	n := func(k string, def int) int {
		if v, ok := arg[k]; ok {
			i, err := strconv.Atoi(v)
			if err != nil {
				a.t.Fatal(err)
			}
			return i
		}
		return def
	}
	has := func(k string) bool { _, ok := arg[k]; return ok }
	self, ms := signal.MakeAddr(1, signal.BlockTC, 0), signal.MakeAddr(1, signal.BlockMembership, 0)
	client := signal.MakeAddr(uint8(n("client", clientNode)), signal.BlockClient, 1)
	ldm := signal.MakeAddr(uint8(n("from", 1)), signal.BlockLDM, 0)
	op := func() *sentOp {
		o := a.ops[f[1]]
		if o == nil {
			a.t.Fatalf("operation %s is unknown", f[1])
		}
		return o
	}
	switch f[0] {
	case "key": // an operation of the client
		r := (*signal.KeyReq)(a.env.Put(self, client, signal.NumKeyReq, signal.KeyReqSize+8))
		*r = signal.KeyReq{Head: r.Head, Ref: 7, Tx: uint32(n("tx", 1)), Table: 3, Version: 1, Frag: uint16(n("frag", 0)), Op: opNames[f[1]], Flags: signal.FlagAll,
			KeyLen: 4, DataLen: 4}
		for flag, bit := range map[string]uint8{"start": signal.FlagStart, "execute": signal.FlagExecute, "commit": signal.FlagExecute | signal.FlagCommit,
			"ignore": signal.FlagIgnoreError} {
			if has(flag) {
				r.Flags |= bit
			}
		}
		if r.Seq = uint32(n("seq", 0)); has("commit") && r.Seq == 0 {
			r.Seq = 1
		}
		*(*[2]uint32)(r.Key()) = [2]uint32{}
	case "commit", "rollback":
		r := kernel.Send[signal.TxReq](a.env, self, client, signal.NumTxReq)
		r.Tx, r.Action, r.Seq, r.Ack = uint32(n("tx", 1)), signal.TxCommit, 1, 0
		if f[0] == "rollback" {
			r.Action, r.Seq = signal.TxRollback, 0
		}
	case "prepared":
		c := kernel.Send[signal.PrepareConf](a.env, self, ldm, signal.NumPrepareConf)
		c.TcRef, c.OpSeq, c.First, c.Tail = op().ref, op().seq, uint32(n("first", 1)), uint32(n("tail", 2))
	case "refused":
		c := kernel.Send[signal.PrepareRef](a.env, self, ldm, signal.NumPrepareRef)
		c.TcRef, c.OpSeq, c.Code, c.First = op().ref, op().seq, uint32(n("code", 626)), signal.NoRef
		if has("first") {
			c.First = uint32(n("first", 0))
		}
	case "waits":
		c := kernel.Send[signal.WaitRep](a.env, self, ldm, signal.NumWaitRep)
		c.TcRef, c.Seq, c.First = op().ref, op().seq, uint32(n("first", 1))
	case "committed", "completed", "aborted": // answers to steps; direct: to the newest direct one, unless given
		num := map[string]uint16{"committed": signal.NumCommitConf, "completed": signal.NumCompleteConf, "aborted": signal.NumAbortConf}[f[0]]
		c := kernel.Send[signal.StepConf](a.env, self, ldm, num)
		c.TcRef, c.OpSeq, c.Direct = op().ref, op().seq, 0
		if has("direct") {
			c.Direct = op().direct
			if arg["direct"] != "" {
				c.Direct = uint32(n("direct", 0))
			}
		}
	case "foreign": // an operation of a coordinator that will be lost
		a.ops[f[1]] = &sentOp{tc: signal.MakeAddr(uint8(n("tc", 2)), signal.BlockTC, 0), client: client, ref: uint32(n("ref", 1)), seq: uint32(n("seq", 1)),
			frag: uint16(n("frag", 0))}
	case "report":
		o := op()
		r := kernel.Send[signal.OpRep](a.env, self, ldm, signal.NumOpRep)
		*r = signal.OpRep{Head: r.Head, View: uint32(n("view", int(a.newest()))), Tc: o.tc, TcRef: o.ref, OpSeq: o.seq, Client: o.client, Tx: uint32(n("tx", 1)),
			OpRef: uint32(n("record", 1)), State: signal.OpPrepared, Write: uint32(n("write", 1)), Table: 3, Frag: o.frag}
		switch {
		case has("applied"):
			r.State, r.GCI, r.Seq = signal.OpApplied, [2]uint32{uint32(n("epoch", 1)), 0}, uint32(n("commit", 5))
		case has("waiting"):
			r.State = signal.OpWaiting
		}
	case "end": // of reports, of the ldms of these nodes
		for _, x := range strings.Split(f[1], ",") {
			node, err := strconv.Atoi(x)
			if err != nil {
				a.t.Fatal(err)
			}
			kernel.Send[signal.OpEndRep](a.env, self, signal.MakeAddr(uint8(node), signal.BlockLDM, 0), signal.NumOpEndRep).View = uint32(n("view", int(a.newest())))
		}
	case "prepare-view":
		a.change(arg)
		putView(a.env, []signal.Addr{self}, signal.NumViewPrepareReq, &a.next, a.turn)
	case "commit-view":
		a.view.Copy(&a.next)
		putView(a.env, []signal.Addr{self}, signal.NumViewCommitReq, &a.next, a.turn)
	case "gate":
		kernel.Send[signal.GateOrd](a.env, self, ms, signal.NumGateOrd).Shut = uint32(n("shut", 0))
	case "epoch":
		num := uint16(signal.NumEpochPrepareReq)
		if has("commit") {
			num = signal.NumEpochCommitReq
		}
		kernel.Send[signal.EpochReq](a.env, self, distribution(1), num).GCI = [2]uint32{uint32(n("gci", 2)), 0}
	case "single":
		r := kernel.Send[signal.SingleOrd](a.env, self, signal.MakeAddr(1, signal.BlockManager, 0), signal.NumSingleOrd)
		r.Ref, r.Node = uint32(n("ref", 1)), uint32(n("client", 0))
	case "list":
		r := kernel.Send[signal.ListReq](a.env, self, signal.MakeAddr(60, signal.BlockMgm, 0), signal.NumListReq)
		r.Ref, r.Kind, r.Most = 1, signal.ListTransactions, uint32(n("most", 10))
	case "probe": // about an operation, begun by a transaction of client's session
		p := kernel.Send[signal.ProbeOrd](a.env, self, ldm, signal.NumProbeOrd)
		*p = signal.ProbeOrd{Head: p.Head, Tc: signal.MakeAddr(uint8(n("tc", 1)), signal.BlockTC, 0), Client: client, Tx: uint32(n("tx", 1)), TcRef: op().ref,
			OpSeq: op().seq, Hops: uint32(n("hops", 0))}
	case "pass":
		a.env.SetNow(a.env.Now() + int64(n("ms", 1))*1e6)
		a.env.FireTimers()
	case "rest":
		a.settle()
		fmt.Fprintf(&a.out, "%d transactions, %d operations\n", a.tc.Transactions(), a.tc.Operations())
	default:
		a.t.Fatalf("unknown line %q", strings.Join(f, " "))
	}
	a.settle()
}

func (a *alone) newest() uint32 { return max(a.view.Number, a.next.Number) }

// change makes the next view: without lost=…, and with following=… and leading=….
func (a *alone) change(arg map[string]string) {
	in := func(list string, m signal.Member) bool {
		for _, x := range strings.Split(arg[list], ",") {
			if x == fmt.Sprint(m.Node) {
				return true
			}
		}
		return false
	}
	var ms []signal.Member
	for _, m := range a.view.Members {
		if in("lost", m) {
			continue
		}
		if in("following", m) {
			m.State = signal.MemberFollowing
		}
		if in("leading", m) {
			m.State = signal.MemberLeading
		}
		ms = append(ms, m)
	}
	a.turn++
	a.next.Take(a.view.Number+1, ms[0].Node, ms)
}
