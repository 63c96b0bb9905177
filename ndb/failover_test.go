package ndb

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/signal"
)

// replicated is two data nodes with both replicas of every row, and a session's way to a row of each.
type replicated struct {
	f        *fakeCluster
	c        *Conn
	accounts *Record[account]
	s        *Session
	a, b     account // with their primaries at the first and the second node
}

func newReplicated(t *testing.T, shared bool, o Options) *replicated {
	f := newFake(t, 2, 2)
	f.replicas, f.view = 2, 1
	f.members.Add(f.nodes[0].id)
	f.members.Add(f.nodes[1].id)
	f.outcome = func(*signal.OutcomeReq) uint32 { return signal.OutcomeNone }
	r := &replicated{f: f, c: f.connect(o)}
	r.accounts = mustBind[account](t, mustTable(t, r.c, accountDef()))
	r.s = mustSession(t, r.c, SessionOptions{})
	t.Cleanup(func() { r.s.Close() })
	if shared {
		mustSession(t, r.c, SessionOptions{})
	}
	for r.accounts.Node(&r.a) != int(f.nodes[0].id) {
		r.a.ID++
	}
	for r.accounts.Node(&r.b) != int(f.nodes[1].id) {
		r.b.ID++
	}
	for _, x := range []*account{&r.a, &r.b} {
		if err := r.accounts.Put(context.Background(), r.s, x); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// lockedCluster changes what the data nodes do.
func (r *replicated) change(f func(c *fakeCluster)) {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	f(r.f)
}

func both(t *testing.T, f func(t *testing.T, shared bool)) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("shared=", shared), func(t *testing.T) { f(t, shared) })
	}
}

// A node is killed in the middle of a commit, in each form of it. The other one knows what became of it, and takes
// everything that comes afterwards.
func TestACommitWhoseNodeIsKilled(t *testing.T) {
	both(t, func(t *testing.T, shared bool) {
		for _, known := range []uint32{signal.OutcomeCommitted, signal.OutcomeNone} {
			for _, ops := range []int{1, 2} {
				r := newReplicated(t, shared, Options{})
				var asked signal.OutcomeReq
				r.change(func(c *fakeCluster) {
					c.outcome = func(q *signal.OutcomeReq) uint32 { asked = *q; return known }
				})
				var once atomic.Bool
				r.f.setHook(func(p *fakeSocket, h *signal.Head) bool {
					if p.n != r.f.nodes[0] || h.Num != signal.NumWriteReq && h.Num != signal.NumKeyReq {
						return false
					}
					if !once.Swap(true) {
						go p.n.kill()
					}
					return true
				})
				tx := mustBegin(t, r.s)
				for range ops {
					r.accounts.Update(tx, &r.a)
				}
				err := tx.Commit(context.Background())
				if known == signal.OutcomeCommitted && (err != nil || tx.GCI() == 0) || known == signal.OutcomeNone && !errors.Is(err, ErrNodeFailed) {
					t.Error(known, ops, err, tx.GCI())
				}
				tx.Close()
				r.change(func(*fakeCluster) {
					if asked.To.Node() != r.f.nodes[1].id || asked.Node != uint32(r.f.nodes[0].id) || asked.DynamicID != uint32(r.f.nodes[0].id) || asked.Seq != 3 {
						t.Error(signal.Format(&asked.Head), asked)
					}
				})
				for _, x := range []*account{&r.a, &r.b} {
					if err := r.accounts.Get(context.Background(), r.s, x); err != nil || r.accounts.Node(x) != int(r.f.nodes[1].id) {
						t.Error(err, r.accounts.Node(x))
					}
				}
				r.f.setHook(nil)
				r.f.nodes[0].back()
				if err := r.c.WaitReady(context.Background(), 2); err != nil {
					t.Fatal(err)
				}
				if err := r.accounts.Get(context.Background(), r.s, &r.a); err != nil || r.accounts.Node(&r.a) != int(r.f.nodes[0].id) {
					t.Error(err)
				}
			}
		}
	})
}

// A node hangs. Its links stay, but the other one says that it was put out.
func TestANodeThatHangs(t *testing.T) {
	both(t, func(t *testing.T, shared bool) {
		r := newReplicated(t, shared, Options{})
		one, two := r.f.nodes[0], r.f.nodes[1]
		one.deaf.Store(true)
		var codes [2]int
		note := func(tx *Tx) { codes[tx.Tag] = CodeOf(tx.Err()) }
		for i := range 2 {
			tx := mustBegin(t, r.s)
			tx.Tag = uint64(i)
			if i == 0 {
				r.accounts.Read(tx, &r.a, Committed)
			} else {
				r.accounts.Update(tx, &r.a)
			}
			tx.CommitAsync(note)
		}
		if err := r.s.Send(SendForce); err != nil {
			t.Fatal(err)
		}
		r.change(func(c *fakeCluster) {
			c.view++
			c.members.Remove(one.id)
			c.outcome = func(*signal.OutcomeReq) uint32 { return signal.OutcomeCommitted }
		})
		two.tell(r.c, func(*signal.NodeStateRep) {})
		if _, err := r.s.Poll(context.Background(), 2); err != nil || codes[0] != ndberror.NodeFailed || codes[1] != 0 {
			t.Error(err, codes)
		}
		if n := r.c.Nodes(); n[0].Connected || !n[1].Started {
			t.Error(n)
		}
		if err := r.accounts.Get(context.Background(), r.s, &r.a); err != nil {
			t.Error(err)
		}
		one.kill()
		one.deaf.Store(false)
		r.change(func(c *fakeCluster) {
			c.view++
			c.members.Add(one.id)
		})
		one.back()
		if err := r.c.WaitReady(context.Background(), 2); err != nil {
			t.Fatal(err)
		}
	})
}

// A primary moves: what is sent by the old map is refused, and Retry hides it. The new map is asked for once, in the
// background, and records and tables that were made before are good for it.
func TestAPrimaryMoves(t *testing.T) {
	both(t, func(t *testing.T, shared bool) {
		r := newReplicated(t, shared, Options{})
		one, two := r.f.nodes[0], r.f.nodes[1]
		var refused, direct, coordinated atomic.Int32
		r.f.setHook(func(p *fakeSocket, h *signal.Head) bool {
			switch {
			case h.Num == signal.NumReadReq && p.n == one:
				refused.Add(1)
				p.keyRef(cast[signal.KeyReq](h), ndberror.Moving)
				return true
			case h.Num == signal.NumReadReq:
				direct.Add(1)
			case h.Num == signal.NumKeyReq:
				coordinated.Add(1)
			}
			return false
		})
		infos := r.f.count(signal.NumTableInfoReq)
		get := func() {
			t.Helper()
			err := Retry(context.Background(), r.s, func(tx *Tx) error {
				r.accounts.Read(tx, &r.a, Committed)
				return tx.Commit(context.Background())
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for range 3 { // the data nodes do not know of it yet: the map stays the same
			get()
		}
		if refused.Load() != 1 || direct.Load() != 0 || coordinated.Load() != 3 {
			t.Error(refused.Load(), direct.Load(), coordinated.Load())
		}
		eventually(t, "it is asked for again", func() bool { get(); return r.f.count(signal.NumTableInfoReq) >= infos+3 })
		r.change(func(c *fakeCluster) { c.primary = func(int) int { return 1 } })
		eventually(t, "the new map is there", func() bool { get(); return direct.Load() > 0 })
		infos = r.f.count(signal.NumTableInfoReq)
		was := coordinated.Load()
		for range 20 {
			get()
		}
		if refused.Load() > 2 || coordinated.Load() != was || r.f.count(signal.NumTableInfoReq) != infos {
			t.Error(refused.Load(), coordinated.Load(), was, infos)
		}
		table := r.accounts.Table()
		for i := range table.Fragments() {
			if n := table.FragmentNodes(i); len(n) != 2 || n[0] != int(two.id) {
				t.Error(i, n)
			}
		}
		if r.accounts.Node(&r.a) != int(two.id) {
			t.Error(r.accounts.Node(&r.a))
		}
	})
}

// A refusal that comes while many transactions are under way asks for the map before the Poll ends.
func TestTheMapIsAskedForDuringAPoll(t *testing.T) {
	both(t, func(t *testing.T, shared bool) {
		r := newReplicated(t, shared, Options{})
		var late atomic.Bool
		r.f.setHook(func(p *fakeSocket, h *signal.Head) bool {
			switch {
			case h.Num == signal.NumReadReq && p.n == r.f.nodes[0]:
				p.keyRef(cast[signal.KeyReq](h), ndberror.Moving)
				return true
			case h.Num == signal.NumReadReq: // answered when the map has been asked for
				return true
			case h.Num == signal.NumTableInfoReq && !late.Swap(true):
				go r.f.nodes[1].kill()
			}
			return false
		})
		done := 0
		for _, x := range []*account{&r.a, &r.b} {
			tx := mustBegin(t, r.s)
			r.accounts.Read(tx, x, Committed)
			tx.CommitAsync(func(*Tx) { done++ })
		}
		if n, err := r.s.Poll(context.Background(), 2); n != 2 || err != nil || done != 2 {
			t.Error(n, err, done)
		}
	})
}

// An arbitrator answers whatever its program does, after the delay that the configuration gives it.
func TestAnAPINodeArbitrates(t *testing.T) {
	f := newFake(t, 2, 2)
	var words atomic.Int32
	c := f.connect(Options{NodeID: f.conf.APINodes()[2].ID, Logf: func(format string, args ...any) {
		if len(args) == 2 {
			words.Add(1)
		}
	}})
	defer c.Close()
	defer mustSession(t, c, SessionOptions{}).Close() // which nobody polls
	me := signal.MakeAddr(uint8(c.NodeID()), signal.BlockArbitrator, 0)
	heard := func(n *fakeNode, num uint16) []byte {
		t.Helper()
		select {
		case b := <-n.said:
			if h := (*signal.Head)(unsafe.Pointer(&b[0])); h.Num == num {
				return b
			} else {
				t.Fatal(signal.Format(h))
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("no %s", signal.Name(num))
		}
		return nil
	}
	one, two := f.nodes[0], f.nodes[1]
	send(one, me, one.block(signal.BlockMembership), signal.NumArbitStartReq, func(r *signal.ArbitStartReq) {
		r.Run, r.View, r.Turn, r.Ticket = [2]uint32{1, 2}, 3, 1, [2]uint32{5, 6}
	})
	if x := (*signal.ArbitStartConf)(unsafe.Pointer(&heard(one, signal.NumArbitStartConf)[0])); x.Code != 0 || x.Node != uint32(c.NodeID()) {
		t.Error(x)
	}
	choose := func(n *fakeNode) {
		send(n, me, n.block(signal.BlockMembership), signal.NumArbitChooseReq, func(r *signal.ArbitChooseReq) {
			r.Run, r.View, r.Turn, r.Ticket, r.Attempt = [2]uint32{1, 2}, 3, 1, [2]uint32{5, 6}, 7
			r.Part.Add(n.id)
		})
	}
	begin := time.Now()
	choose(two)
	heard(two, signal.NumArbitChooseConf)
	if d := time.Since(begin); d < 15*time.Millisecond {
		t.Errorf("answered after %v, not after the delay", d)
	}
	choose(one)
	if x := (*signal.ArbitChooseConf)(unsafe.Pointer(&heard(one, signal.NumArbitChooseRef)[0])); x.Code != signal.ArbitRefUsed || x.Attempt != 7 {
		t.Error(x)
	}
	if words.Load() < 3 {
		t.Error("it tells nobody")
	}
}

// A node that is no arbitrator by its configuration does not take what is meant for one.
func TestANodeThatDoesNotArbitrate(t *testing.T) {
	f := newFake(t, 1, 1)
	c := f.connect(Options{})
	release := c.wantReceiver()
	defer release()
	n := f.nodes[0]
	before := c.state.Load().nodes[n.id].life
	send(n, signal.MakeAddr(uint8(c.NodeID()), signal.BlockArbitrator, 0), n.block(signal.BlockMembership), signal.NumArbitStartReq,
		func(r *signal.ArbitStartReq) {})
	eventually(t, "the link is closed", func() bool { return c.state.Load().nodes[n.id].life != before })
	if len(n.said) != 0 {
		t.Error("it answered")
	}
}

// A node that has not finished with the old links refuses new ones. It is asked again soon, and work with the other node
// goes on.
func TestANodeThatRefusesIsTriedAgainSoon(t *testing.T) {
	r := newReplicated(t, true, Options{})
	one := r.f.nodes[0]
	one.refuse.Store(signal.RefuseTaken)
	one.kill()
	one.back()
	eventually(t, "it has refused a few times", func() bool {
		if err := r.accounts.Get(context.Background(), r.s, &r.b); err != nil {
			t.Fatal(err)
		}
		return r.f.refusals.Load() > 8
	})
	begin := time.Now()
	one.refuse.Store(0)
	if err := r.c.WaitReady(context.Background(), 2); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begin); d > 2*time.Second { // it takes 50 ms; pauses that went on doubling would be longer than this
		t.Errorf("it took %v to come back", d)
	}
}

// A connection may be closed by a function that Poll calls.
func TestAConnectionIsClosedInAFunction(t *testing.T) {
	both(t, func(t *testing.T, shared bool) {
		r := newReplicated(t, shared, Options{})
		tx := mustBegin(t, r.s)
		r.accounts.Read(tx, &r.a, Committed)
		tx.CommitAsync(func(*Tx) {
			if err := r.c.Close(); err != nil {
				t.Error(err)
			}
		})
		next := mustBegin(t, r.s) // never answered
		r.f.setHook(func(p *fakeSocket, h *signal.Head) bool { return h.Num == signal.NumReadReq && p.n == r.f.nodes[1] })
		r.accounts.Read(next, &r.b, Committed)
		next.CommitAsync(func(*Tx) {})
		_, err := r.s.Poll(context.Background(), 2)
		if !errors.Is(err, ErrClosed) && err != nil {
			t.Error(err)
		}
		if err := r.c.Close(); err != nil { // this one waits
			t.Error(err)
		}
		select {
		case <-r.c.over:
		default:
			t.Error("Close did not wait")
		}
		if _, err := r.c.NewSession(SessionOptions{}); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

// Retry knows which errors pass quickly.
func TestRetryOfFailovers(t *testing.T) {
	r := newReplicated(t, false, Options{WaitTimeout: 300 * time.Millisecond})
	ctx := context.Background()
	fails := func(codes ...int) (tries int, err error) {
		err = Retry(ctx, r.s, func(*Tx) error {
			if tries++; tries <= len(codes) {
				return ErrorOf(codes[tries-1])
			}
			return nil
		})
		return tries, err
	}
	for _, code := range []int{1204, 270, 280, 286, 4010} {
		if n, err := fails(code, code, code); n != 4 || err != nil {
			t.Error(code, n, err)
		}
	}
	for _, code := range []int{4008, 4012, 4115, 626, 241} { // done perhaps, done, no fault, and one that needs more than a repetition
		if n, err := fails(code); n != 1 || CodeOf(err) != code {
			t.Error(code, n, err)
		}
	}
	if n, err := fails(4009, 4010, 4009); n != 4 || err != nil {
		t.Error(n, err)
	}
	begin, tries := time.Now(), 0
	err := Retry(ctx, r.s, func(*Tx) error { tries++; return ErrNotReady })
	if d := time.Since(begin); !errors.Is(err, ErrNotReady) || d < 300*time.Millisecond || tries < 3 {
		t.Error(err, d, tries)
	}
	begin, tries = time.Now(), 0
	err = RetryWith(ctx, r.s, RetryOptions{Within: 100 * time.Millisecond}, func(*Tx) error { tries++; return ErrNodeFailed })
	if d := time.Since(begin); !errors.Is(err, ErrNodeFailed) || d > 10*time.Second || tries < 3 {
		t.Error(err, d, tries)
	}
}
