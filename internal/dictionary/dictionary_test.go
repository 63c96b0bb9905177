package dictionary

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/kernel/kerneltest"
	"github.com/cohortdb/cohort/internal/schema"
	"github.com/cohortdb/cohort/internal/signal"
)

// Whoever hears that a table was created can use it at once through any node: each dictionary tells of it, each
// coordinator has it open, each fragment is there.
func TestACreatedTableIsUsableAtOnceEverywhere(t *testing.T) {
	for nodes := 1; nodes <= 4; nodes++ {
		for at := 1; at <= nodes; at++ {
			for seed := uint64(1); seed <= 10; seed++ {
				r := newRig(t, seed, nodes).start()
				r.client(51)
				a := r.ask(func() { r.create(51, uint8(at), 7, definition("t", 3)) })
				if a.num != signal.NumTableCreateConf || a.ref != 7 || a.table != 0 || a.version != 1 {
					t.Fatalf("%+v", a)
				}
				for _, id := range r.ids { // as things stand at this very moment
					x := r.n[id]
					if len(x.open) != tcs || len(x.frags) != 2*nodes {
						t.Fatalf("node %d: %d coordinators know it, %d fragments", id, len(x.open), len(x.frags))
					}
				}
				for _, id := range r.ids {
					i := r.ask(func() { r.named(51, id, signal.NumTableInfoReq, 8, "db/t") })
					def, err := schema.DecodeTable(i.def)
					if i.num != signal.NumTableInfoConf || i.ref != 8 || i.table != 0 || i.version != 1 || err != nil || def.Name != "t" || !def.Logging ||
						int(def.Fragments) != 2*nodes || i.buckets != schema.DistributionBuckets || len(i.chains) != 2*nodes*signal.MaxReplicas {
						t.Fatalf("%+v %v", i, err)
					}
				}
				d := r.ask(func() { r.named(51, uint8(at), signal.NumTableDropReq, 9, "db/t") })
				if d.num != signal.NumTableDropConf || d.ref != 9 {
					t.Fatalf("%+v", d)
				}
				r.empty()
				if r.n[1].events != 2 {
					t.Fatalf("%d events", r.n[1].events)
				}
			}
		}
	}
}

// Two nodes are asked for the same name at once: one gets it. Other names do not disturb each other.
func TestTwoNodesCreateAtOnce(t *testing.T) {
	for seed := uint64(1); seed <= 50; seed++ {
		r := newRig(t, seed, 3).start()
		r.client(51)
		r.client(52)
		r.create(51, 2, 1, definition("same", 2))
		r.create(52, 3, 2, definition("same", 3))
		r.create(51, 1, 3, definition("other", 2))
		r.net.Run(ms)
		made, refused := 0, 0
		ids := map[uint32]bool{}
		for _, a := range r.answers {
			if a.num == signal.NumTableCreateConf {
				made++
				ids[a.table] = true
			} else if a.code == codeExists && a.ref != 3 {
				refused++
			}
		}
		if made != 2 || refused != 1 || len(ids) != 2 || len(r.answers) != 3 {
			t.Fatalf("seed %d: %+v", seed, r.answers)
		}
	}
}

// An ldm or a coordinator somewhere cannot make its part: everything is undone everywhere, and the next try works.
func TestAFailedCreateLeavesNothing(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		for _, at := range []signal.Addr{signal.MakeAddr(1, signal.BlockLDM, 0), signal.MakeAddr(3, signal.BlockLDM, 1), signal.MakeAddr(2, signal.BlockTC, 1), signal.MakeAddr(1, signal.BlockTC, 0)} {
			r := newRig(t, seed, 3).start()
			r.client(51)
			r.failAt, r.failNow = at, 827
			if a := r.ask(func() { r.create(51, 2, 1, definition("t", 3)) }); a.num != signal.NumTableRef || a.code != 827 || a.ref != 1 {
				t.Fatalf("%v: %+v", at, a)
			}
			r.empty()
			if a := r.ask(func() { r.named(51, 2, signal.NumTableInfoReq, 2, "db/t") }); a.code != codeNoTable {
				t.Fatalf("%+v", a)
			}
			r.failAt = 0
			if a := r.ask(func() { r.create(51, 2, 3, definition("t", 3)) }); a.num != signal.NumTableCreateConf || a.version != 2 {
				t.Fatalf("%v: %+v", at, a)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	bad := func(f func([]byte)) []byte {
		b := definition("x", 2)
		f(b)
		return b
	}
	for _, c := range []struct {
		name string
		def  []byte
		code uint32
	}{
		{"garbage", []byte{1, 2, 3, 4, 5, 6, 7, 8}, schema.CodeInvalidTable},
		{"nothing", nil, schema.CodeInvalidTable},
		{"length", bad(func(b []byte) { b[4]++ }), schema.CodeInvalidTable},
		{"too many fragments", bad(func(b []byte) { binary.LittleEndian.PutUint32(b[20:], 5000) }), schema.CodeTooManyFragments},
		{"attributes", definition("x", 41), codeAttributes},
		{"too long", make([]byte, defMax+4), codeBadStructure},
	} {
		r := newRig(t, 1, 2).start()
		r.client(51)
		for _, at := range []uint8{1, 2} {
			if a := r.ask(func() { r.create(51, at, 5, c.def) }); a.num != signal.NumTableRef || a.code != c.code || a.ref != 5 {
				t.Errorf("%s: %+v", c.name, a)
			}
		}
		r.empty()
	}
	r := newRig(t, 1, 2)
	r.client(51)
	for _, f := range []func(){
		func() { r.create(51, 1, 5, definition("t", 2)) },
		func() { r.named(51, 2, signal.NumTableDropReq, 5, "db/t") },
		func() { r.named(51, 2, signal.NumTableInfoReq, 5, "db/t") },
	} {
		if a := r.ask(f); a.code != codeStarting {
			t.Errorf("before the start: %+v", a)
		}
	}
	r.start()
	if a := r.ask(func() { r.named(51, 2, signal.NumTableDropReq, 5, "db/t") }); a.code != codeNoTable {
		t.Errorf("%+v", a)
	}
	r.noPlace = schema.CodeTooManyFragments
	if a := r.ask(func() { r.create(51, 2, 5, definition("t", 2)) }); a.code != schema.CodeTooManyFragments {
		t.Errorf("%+v", a)
	}
	r.empty()
}

// Ids are used again lowest first, each time with another version; no more than MaxTables at once.
func TestIdsAndVersions(t *testing.T) {
	r := newRig(t, 1, 2).start()
	r.client(51)
	for i := range uint32(8) {
		if a := r.ask(func() { r.create(51, 2, 1, definition(fmt.Sprint("t", i), 2)) }); a.table != i || a.version != 1 {
			t.Fatalf("%+v", a)
		}
	}
	if a := r.ask(func() { r.create(51, 1, 1, definition("t9", 2)) }); a.code != codeTables {
		t.Fatalf("%+v", a)
	}
	for _, name := range []string{"db/t5", "db/t2"} {
		r.ask(func() { r.named(51, 1, signal.NumTableDropReq, 1, name) })
	}
	for i, want := range []uint32{2, 5} {
		if a := r.ask(func() { r.create(51, 2, 1, definition(fmt.Sprint("n", i), 2)) }); a.table != want || a.version != 2 {
			t.Fatalf("%+v", a)
		}
	}
	for id := range r.ids {
		r.n[id+1].b.tables[7].version = 0xffff
	}
	r.ask(func() { r.named(51, 1, signal.NumTableDropReq, 1, "db/t7") })
	if a := r.ask(func() { r.create(51, 2, 1, definition("last", 2)) }); a.table != 7 || a.version != 1 {
		t.Fatalf("after version 65535: %+v", a)
	}
}

// A drop waits for the transactions that use the table; meanwhile nobody is told of it, and who asks for the name again
// waits for the end of the drop.
func TestADropWaitsForTransactions(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		r := newRig(t, seed, 3).start()
		r.client(51)
		r.ask(func() { r.create(51, 1, 1, definition("t", 2)) })
		r.n[2].hold = true
		r.named(51, 3, signal.NumTableDropReq, 2, "db/t")
		r.net.Run(ms)
		r.create(51, 2, 3, definition("t", 4))
		r.net.Run(10 * ms)
		if len(r.answers) != 1 {
			t.Fatalf("%+v", r.answers)
		}
		for _, id := range r.ids {
			if a := r.ask(func() { r.named(51, id, signal.NumTableInfoReq, 4, "db/t") }); a.code != codeDropping {
				t.Fatalf("%+v", a)
			}
			if len(r.n[id].frags) == 0 {
				t.Fatal("fragments are gone while a transaction uses them")
			}
		}
		r.answers = nil
		r.release(2)
		r.net.Run(ms)
		if len(r.answers) != 2 || r.answers[0].num != signal.NumTableDropConf || r.answers[1].num != signal.NumTableCreateConf || r.answers[1].version != 2 {
			t.Fatalf("%+v", r.answers)
		}
	}
}

// A table is dropped while it is being created: the drop comes after.
func TestADropDuringACreate(t *testing.T) {
	for seed := uint64(1); seed <= 30; seed++ {
		for steps := 0; steps < 60; steps += 7 {
			r := newRig(t, seed, 2).start()
			r.client(51)
			r.create(51, 1, 1, definition("t", 2))
			for range steps {
				r.net.Step(r.net.Now())
			}
			r.named(51, 1, signal.NumTableDropReq, 2, "db/t")
			r.net.Run(ms)
			if len(r.answers) != 2 || r.answers[0].num != signal.NumTableCreateConf || r.answers[1].num != signal.NumTableDropConf {
				t.Fatalf("%+v", r.answers)
			}
			r.empty()
		}
	}
}

func TestTooManyRequestsAreRefusedNotLost(t *testing.T) {
	r := newRig(t, 1, 2).start()
	r.client(51)
	r.ask(func() { r.create(51, 1, 1000, definition("slow", 2)) })
	r.answers = nil
	r.n[2].hold = true
	r.named(51, 1, signal.NumTableDropReq, 1001, "db/slow")
	const n = 200
	for i := range uint32(n) {
		r.named(51, uint8(1+i%2), signal.NumTableDropReq, i, "db/none")
		r.create(51, uint8(1+i%2), n+i, definition("t", 2))
	}
	r.net.Run(ms)
	if len(r.answers) < 2*n-2*queueMax {
		t.Fatalf("%d requests are refused at once", len(r.answers))
	}
	r.release(2)
	r.net.Run(ms)
	got := map[uint32]int{}
	codes := map[uint32]int{}
	for _, a := range r.answers {
		got[a.ref]++
		codes[a.code]++
	}
	if len(got) != 2*n+1 || len(r.answers) != 2*n+1 {
		t.Fatalf("%d answers to %d of %d requests", len(r.answers), len(got), 2*n+1)
	}
	if codes[0] != 2 || codes[codeBusy] == 0 || codes[codeExists] == 0 || codes[codeNoTable] == 0 {
		t.Fatalf("%v", codes)
	}
}

// A client vanishes with requests under way at its node and at the president: they are carried out, and a later client
// with its id gets no answer to them.
func TestAVanishedClientsRequestIsCarriedOut(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		for steps := 0; steps < 40; steps += 5 {
			r := newRig(t, seed, 2).start()
			r.client(51)
			r.create(51, 1, 1, definition("a", 2))
			r.create(51, 2, 2, definition("b", 2))
			for range steps {
				r.net.Step(r.net.Now())
			}
			r.net.Cut(51, 1)
			r.net.Cut(51, 2)
			r.net.Until(ms, func() bool { return r.n[1].failConf == 1 && r.n[2].failConf == 1 })
			r.net.Link(51, 1)
			r.net.Link(51, 2)
			r.net.Run(ms)
			for _, a := range r.answers {
				if a.life > 1 {
					t.Fatalf("seed %d steps %d: the next client hears %+v", seed, steps, a)
				}
			}
			for _, id := range r.ids {
				if x := r.n[id].b; x.lead.state != idle || x.local.doing != resting {
					t.Fatalf("node %d is left in the middle", id)
				}
			}
		}
	}
}

func TestListing(t *testing.T) {
	r := newRig(t, 1, 2)
	for _, id := range r.ids { // room for more tables than one answer lists
		cfg := Config{MaxTables: 1000, MaxAttributes: 100000, CloseWait: 1200}
		r.n[id].b = New(r.net.Nodes[id].Env, cfg)
	}
	r.start()
	r.client(51)
	long := make([]byte, 150)
	for i := range long {
		long[i] = 'n'
	}
	const n = 250
	for i := range n {
		r.ask(func() { r.create(51, 2, 1, definition(fmt.Sprint(string(long), i), 1)) })
	}
	seen, after, rounds := 0, uint32(0), 0
	for more := uint32(1); more == 1; rounds++ {
		a := r.ask(func() {
			q := kernel.Send[signal.TableListReq](r.net.Nodes[51].Env, signal.MakeAddr(2, signal.BlockDictionary, 0), signal.MakeAddr(51, signal.BlockClient, 3), signal.NumTableListReq)
			q.Ref, q.After = 6, after
		})
		more = a.more
		body := a.body
		for range a.count {
			w := func(i int) uint32 { return binary.LittleEndian.Uint32(body[4*i:]) }
			if w(0) != uint32(seen) || w(1) != 1 || w(2) != 1 {
				t.Fatalf("entry %d: id %d version %d flags %d", seen, w(0), w(1), w(2))
			}
			name := string(body[16 : 16+w(3)])
			if name != fmt.Sprint("db/", string(long), seen) {
				t.Fatalf("entry %d is called %q", seen, name)
			}
			after = w(0) + 1
			body = body[16+signal.Pad(w(3)):]
			seen++
		}
		if len(body) != 0 {
			t.Fatalf("%d bytes behind the entries", len(body))
		}
	}
	if seen != n || rounds < 2 {
		t.Fatalf("%d tables in %d answers", seen, rounds)
	}
}

// A node that was not started yet forgets what a started one made it do, at any moment of it.
func TestForgettingAnAttempt(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		for steps := 0; steps < 150; steps += 4 {
			r := newRig(t, seed, 2).start()
			r.client(51)
			r.create(51, 1, 1, definition("a", 2))
			r.create(51, 1, 2, definition("b", 3))
			r.named(51, 1, signal.NumTableDropReq, 3, "db/a")
			for range steps {
				r.net.Step(r.net.Now())
			}
			r.net.Kill(1)
			r.phase(2, 0)
			x := r.n[2]
			if !r.net.Until(ms, func() bool { return len(x.phases) == 2 && x.phases[1] == 0 }) {
				t.Fatalf("seed %d steps %d: not forgotten; %v", seed, steps, r.net)
			}
			r.empty()
		}
	}
}

// Definitions are as large as they get, and all signals still fit.
func TestTheLargestTable(t *testing.T) {
	def := schema.Table{Database: "d", Name: "t", Fragments: schema.DistributionBuckets}
	name := make([]byte, schema.MaxNameBytes-4)
	for i := range name {
		name[i] = 'c'
	}
	for i := range schema.MaxColumns {
		def.Columns = append(def.Columns, schema.Column{Name: fmt.Sprintf("%s%03d", name, i), Type: schema.Unsigned, PrimaryKey: i == 0})
	}
	b, err := def.AppendBinary(nil)
	if err != nil || len(b) > defMax {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	r := newRig(t, 1, 1)
	r.n[1].b = New(r.net.Nodes[1].Env, Config{MaxTables: 2, MaxAttributes: 1000, CloseWait: 1200})
	r.start()
	r.client(51)
	under, most := 0, 0
	r.net.Seen = func(_ *kerneltest.Node, h *signal.Head) {
		switch h.Num {
		case signal.NumFragCreateReq:
			under--
		case signal.NumFragCreateConf:
			under++
		}
		most = max(most, -under)
	}
	if a := r.ask(func() { r.create(51, 1, 1, b) }); a.num != signal.NumTableCreateConf {
		t.Fatalf("%+v", a)
	}
	if a := r.ask(func() { r.named(51, 1, signal.NumTableInfoReq, 1, "d/t") }); len(a.chains) != schema.DistributionBuckets*signal.MaxReplicas {
		t.Fatalf("%d chains", len(a.chains))
	}
	if most > windowMax {
		t.Fatalf("%d requests at once", most)
	}
}
