package coordinator_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/cockroachdb/datadriven"

	"github.com/cohortdb/cohort/internal/coordinator"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/ldm"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/store"
)

// TestTraces runs the documents in testdata: what a few data nodes and a client do to each other, signal by signal.
// `go test ./internal/coordinator -run TestTraces -rewrite` writes what happens now.
func TestTraces(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no traces: ", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			s := &script{}
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				s.t = t
				switch d.Cmd {
				case "cluster":
					return s.cluster(d)
				case "do":
					s.out.Reset()
					for _, line := range strings.Split(d.Input, "\n") {
						s.do(strings.Fields(line))
					}
					if s.out.Len() == 0 {
						return "nothing\n"
					}
					return s.out.String()
				}
				t.Fatalf("unknown command %q", d.Cmd)
				return ""
			})
		})
	}
}

type script struct {
	t    *testing.T
	w    *world
	out  strings.Builder
	seqs map[int]uint32
	last map[uint32]uint32 // transaction → its commit's sequence number
	left int               // signals of stop's kind that are still to be delivered
	stop string            // … name and receiver, as printed
}

func (s *script) cluster(d *datadriven.TestData) string {
	nodes, replicas := 1, 1
	operations, transactions, maxWrites, inactive, pages, node := 256, 64, 0, 0, 0, 0
	d.MaybeScanArgs(s.t, "nodes", &nodes)
	d.MaybeScanArgs(s.t, "replicas", &replicas)
	d.MaybeScanArgs(s.t, "operations", &operations)
	d.MaybeScanArgs(s.t, "transactions", &transactions)
	d.MaybeScanArgs(s.t, "max-writes", &maxWrites)
	d.MaybeScanArgs(s.t, "inactive-ms", &inactive)
	d.MaybeScanArgs(s.t, "pages-at-2", &pages) // of data memory, at node 2
	s.w = newWorld(s.t, 1, nodes, replicas, func(tc *coordinator.Config, l *ldm.Config) {
		tc.MaxOperations, l.MaxOperations, tc.MaxTransactions = operations, operations, transactions
		tc.MaxWrites, tc.InactiveTimeout, tc.InactiveCheck = maxWrites, int64(inactive)*1e6, 10e6
		if node++; node == 2 && pages > 0 {
			r, src := store.NewLocalSource(uint64(pages)*store.PageSize, store.PageSize, true)
			l.Arena = store.NewArena(r, src)
		}
	}, oneWord...)
	s.w.rng = rand.New(rand.NewPCG(1, 1))
	s.w.inOrder = true
	s.seqs, s.last = map[int]uint32{}, map[uint32]uint32{}
	s.w.local = d.HasArg("local")
	s.w.trace = func(h *signal.Head) { s.sent(h) }
	return fmt.Sprintf("%d nodes, fragments at %v\n", nodes, s.w.chains)
}

// sent prints a signal between nodes; in some documents those within a node too.
func (s *script) sent(h *signal.Head) {
	name := func(a signal.Addr) string {
		if a.Node() == clientNode {
			return fmt.Sprintf("c%d", a.Instance())
		}
		return strings.TrimSuffix(a.String(), ".0")
	}
	if s.stop == signal.Name(h.Num)+" "+name(h.To) {
		s.left--
	}
	extra := ""
	switch h.Num {
	case signal.NumOpRep:
		r := (*signal.OpRep)(unsafe.Pointer(h))
		extra = fmt.Sprintf(" tx=%d %s", r.Tx, [...]string{"", "waits", "prepared", "applied"}[r.State])
		if r.Write == 0 {
			extra += " read"
		}
	case signal.NumCommitReq, signal.NumCompleteReq, signal.NumAbortReq:
		if (*signal.Step)(unsafe.Pointer(h)).Direct != 0 {
			extra = " direct"
		}
	case signal.NumCommitConf, signal.NumCompleteConf, signal.NumAbortConf:
		if (*signal.StepConf)(unsafe.Pointer(h)).Direct != 0 {
			extra = " direct"
		}
	case signal.NumOutcomeConf:
		c := (*signal.OutcomeConf)(unsafe.Pointer(h))
		extra = fmt.Sprintf(" tx=%d %s", c.Tx, [...]string{"is not committed", "is committed", "elsewhere"}[c.Known])
		if c.Known == signal.OutcomeCommitted {
			extra += fmt.Sprintf(" epoch=%v", signal.JoinGCI(c.GCI))
		}
	case signal.NumTxConf:
		c := (*signal.TxConf)(unsafe.Pointer(h))
		extra = fmt.Sprintf(" tx=%d batch=%d", c.Tx, c.Batch)
		if c.Committed == 1 {
			extra += fmt.Sprintf(" committed epoch=%v", signal.JoinGCI(c.GCI))
		}
	case signal.NumWriteConf:
		c := (*signal.WriteConf)(unsafe.Pointer(h))
		extra = fmt.Sprintf(" tx=%d epoch=%v", c.Tx, signal.JoinGCI(c.GCI))
	case signal.NumKeyRef:
		c := (*signal.KeyRef)(unsafe.Pointer(h))
		extra = fmt.Sprintf(" tx=%d error=%d", c.Tx, c.Code)
	case signal.NumTxRef:
		c := (*signal.TxRef)(unsafe.Pointer(h))
		extra = fmt.Sprintf(" tx=%d error=%d", c.Tx, c.Code)
	case signal.NumReadConf:
		c := (*signal.ReadConf)(unsafe.Pointer(h))
		extra = fmt.Sprintf(" tx=%d value=%d", c.Tx, *(*uint32)(c.Data()))
	case signal.NumPrepareRef:
		extra = fmt.Sprintf(" error=%d", (*signal.PrepareRef)(unsafe.Pointer(h)).Code)
	case signal.NumChainRef:
		extra = fmt.Sprintf(" error=%d", (*signal.ChainRef)(unsafe.Pointer(h)).Code)
	case signal.NumEpochPrepareReq, signal.NumEpochPrepareConf, signal.NumEpochCommitReq, signal.NumEpochCommitConf, signal.NumOpEndRep,
		signal.NumViewPrepareReq, signal.NumViewPrepareConf, signal.NumViewCommitReq, signal.NumTakeoverRep, signal.NumTickOrd:
		return
	}
	fmt.Fprintf(&s.out, "%s %s -> %s%s\n", name(h.From), signal.Name(h.Num), name(h.To), extra)
}

func (s *script) do(f []string) {
	if len(f) == 0 {
		return
	}
	arg := map[string]string{}
	for _, x := range f[1:] {
		k, v, _ := strings.Cut(x, "=")
		arg[k] = v
	}
	n := func(k string, def int) int {
		if v, ok := arg[k]; ok {
			i, err := strconv.Atoi(v)
			if err != nil {
				s.t.Fatal(err)
			}
			return i
		}
		return def
	}
	has := func(k string) bool { _, ok := arg[k]; return ok }
	w := s.w
	c := n("c", 1)
	from := signal.MakeAddr(clientNode, signal.BlockClient, uint16(c))
	tx := uint32(n("tx", 1))
	tc := signal.MakeAddr(uint8(tx%uint32(len(w.nodes)-1)+1), signal.BlockTC, 0)
	seq := func() uint32 { s.seqs[c]++; s.last[tx] = s.seqs[c]; return s.seqs[c] }
	switch f[0] {
	case "insert", "update", "write", "delete", "read":
		num, q := uint16(signal.NumWriteReq), uint32(0)
		if f[0] == "read" {
			num = signal.NumReadReq
		} else {
			q = seq()
		}
		w.op(num, uint16(c), 0, tx, q, opNames[f[0]], 0, uint32(n("key", 0)), uint32(n("val", 0)))
	case "tx", "more":
		ops := strings.Split(arg["ops"], ",")
		for i, o := range ops {
			p := strings.Split(o+":0:0", ":")
			key, _ := strconv.Atoi(p[1])
			val, _ := strconv.Atoi(p[2])
			fl, q := uint8(0), uint32(0)
			if i == 0 && f[0] == "tx" {
				fl |= signal.FlagStart
			}
			if has("ignore") {
				fl |= signal.FlagIgnoreError
			}
			if has("nowait") {
				fl |= signal.FlagNoWait
			}
			if i == len(ops)-1 && (has("commit") || has("execute")) {
				fl |= signal.FlagExecute
				if has("commit") {
					fl |= signal.FlagCommit
					q = seq()
				}
			}
			w.op(signal.NumKeyReq, uint16(c), uint32(i), tx, q, opNames[p[0]], fl, uint32(key), uint32(val))
		}
	case "commit", "rollback":
		r := kernel.Send[signal.TxReq](w.client, tc, from, signal.NumTxReq)
		r.Tx, r.Action, r.Seq, r.Ack = tx, signal.TxCommit, 0, 0
		if f[0] == "rollback" {
			r.Action = signal.TxRollback
		} else {
			r.Seq = seq()
		}
	case "run":
		for w.step() {
		}
		w.viewAnswered()
		for w.step() {
		}
	case "until": // a signal reaches a block, as often as n says
		s.stop, s.left = f[1]+" "+f[2], n("n", 1)
		for s.left > 0 && w.step() {
		}
		if s.stop = ""; s.left > 0 {
			s.t.Fatalf("%s does not reach %s", f[1], f[2])
		}
	case "hold", "serve": // what is on its way from a node to another stays there, or goes on
		var k [2]uint8
		if _, err := fmt.Sscanf(f[1], "%d>%d", &k[0], &k[1]); err != nil {
			s.t.Fatal(err)
		}
		w.held[k] = f[0] == "hold"
	case "kill": // what is on its way from it arrives, but for that to the nodes it names
		w.kill(uint8(n("node", 1)))
		for _, x := range strings.Split(arg["lost-to"], ",") {
			if to, err := strconv.Atoi(x); err == nil {
				w.drop(uint8(n("node", 1)), uint8(to))
			}
		}
	case "prepare-view":
		states := map[uint8]uint32{}
		for k, state := range map[string]uint32{"following": signal.MemberFollowing, "leading": signal.MemberLeading} {
			if has(k) {
				states[uint8(n(k, 0))] = state
			}
		}
		w.change(states)
	case "commit-view":
		w.commitView()
	case "view": // from the prepare to the end of the takeover
		w.change(nil)
		for w.step() {
		}
		if !w.viewAnswered() {
			s.t.Fatal("the prepare of the view is not answered")
		}
		w.commitView()
		for w.step() {
		}
		if !w.viewAnswered() {
			s.t.Fatal("the commit of the view is not answered")
		}
		for w.step() {
		}
	case "outcome": // of a transaction's commit that a node had a part in
		key := uint32(n("key", 0)) % uint32(w.frags)
		to := w.view.Primary(w.chains[key])
		r := kernel.Send[signal.OutcomeReq](w.client, to, from, signal.NumOutcomeReq)
		*r = signal.OutcomeReq{Head: r.Head, Tx: tx, Seq: s.last[tx], Node: uint32(n("node", 1)), DynamicID: uint32(n("node", 1)), Table: 3, Frag: uint16(key)}
	case "wait":
		ms := int64(n("ms", 1000))
		for _, n := range w.alive() {
			x := w.nodes[n]
			x.env.SetNow(x.env.Now() + ms*1e6)
			x.env.FireTimers()
		}
		for w.step() {
		}
	case "prepare-epoch":
		w.holdEpoch = true
		w.epoch()
	case "commit-epoch":
		w.holdEpoch = false
		w.commitEpoch()
	case "close":
		for i := 1; i < len(w.nodes); i++ {
			kernel.Send[signal.CloseOrd](w.client, signal.MakeAddr(uint8(i), signal.BlockTC, 0), from, signal.NumCloseOrd)
			kernel.Send[signal.CloseOrd](w.client, signal.MakeAddr(uint8(i), signal.BlockLDM, 0), from, signal.NumCloseOrd)
		}
	case "client-fails", "drain", "close-table":
		for i, x := range w.nodes[1:] {
			me := signal.MakeAddr(uint8(i+1), signal.BlockDictionary, 0)
			for _, b := range []uint8{signal.BlockTC, signal.BlockLDM} {
				to := signal.MakeAddr(uint8(i+1), b, 0)
				switch f[0] {
				case "drain":
					r := kernel.Send[signal.DrainReq](x.env, to, me, signal.NumDrainReq)
					r.Ref, r.Abort = 0, 0
					if has("abort") {
						r.Abort = 1
					}
				case "close-table":
					r := kernel.Send[signal.TableCloseReq](x.env, to, me, signal.NumTableCloseReq)
					r.Ref, r.Table, r.WaitMillis = 0, 3, uint32(n("wait-ms", 100000))
				default:
					r := kernel.Send[signal.NodeFailRep](x.env, to, me, signal.NumNodeFailRep)
					r.Node, r.Kind = clientNode, uint32(signal.PeerAPI)
				}
			}
		}
	case "drop":
		for fr, chain := range w.chains {
			for _, a := range chain {
				r := kernel.Send[signal.FragDropReq](w.nodes[a.Node()].env, a, signal.MakeAddr(a.Node(), signal.BlockDictionary, 0), signal.NumFragDropReq)
				r.Ref, r.Table, r.Frag = 0, 3, uint32(fr)
			}
		}
	case "rows":
		fmt.Fprintf(&s.out, "rows %v\n", w.compare())
	case "rest":
		w.atRest()
		outcomes := 0
		for _, x := range w.nodes[1:] {
			if x.dead {
				continue
			}
			outcomes += x.tc.Sessions() + x.ldm.Sessions()
		}
		fmt.Fprintf(&s.out, "at rest, outcomes kept for %d sessions\n", outcomes)
	default:
		s.t.Fatalf("unknown line %q", strings.Join(f, " "))
	}
}

var opNames = map[string]uint8{"read": signal.OpReadCommitted, "shared": signal.OpReadShared, "exclusive": signal.OpReadExclusive,
	"insert": signal.OpInsert, "update": signal.OpUpdate, "write": signal.OpWrite, "delete": signal.OpDelete}
