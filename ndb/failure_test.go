package ndb

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohortdb/cohort/internal/ndberror"
	"github.com/cohortdb/cohort/internal/signal"
)

// eventually waits for a condition.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("it does not come true that %s", what)
		}
	}
}

func TestALostNodeAndItsReturn(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("shared=", shared), func(t *testing.T) {
			f := newFake(t, 2, 2)
			c := f.connect(Options{})
			accounts := mustBind[account](t, mustTable(t, c, accountDef()))
			s := mustSession(t, c, SessionOptions{})
			defer s.Close()
			if shared {
				defer mustSession(t, c, SessionOptions{}).Close()
			}
			ctx := context.Background()
			a := account{}
			for accounts.Node(&a) != int(f.nodes[0].id) {
				a.ID++
			}
			b := account{}
			for accounts.Node(&b) != int(f.nodes[1].id) {
				b.ID++
			}
			for _, x := range []*account{&a, &b} {
				if err := accounts.Put(ctx, s, x); err != nil {
					t.Fatal(err)
				}
			}
			// The node falls while it has a commit and a read.
			var one sync.Once
			f.setHook(func(p *fakeSocket, h *signal.Head) bool {
				if p.n == f.nodes[0] && (h.Num == signal.NumWriteReq || h.Num == signal.NumReadReq) {
					one.Do(func() { go f.nodes[0].kill() })
					return true
				}
				return false
			})
			var codes [2]int
			note := func(tx *Tx) { codes[tx.Tag] = CodeOf(tx.Err()) }
			for i := range 2 {
				tx := mustBegin(t, s)
				tx.Tag = uint64(i)
				if i == 0 {
					accounts.Update(tx, &a)
				} else {
					accounts.Read(tx, &a, Committed)
				}
				tx.CommitAsync(note)
			}
			if _, err := s.Poll(ctx, 2); err != nil || codes[0] != ndberror.AnswerLost || codes[1] != ndberror.NodeFailed {
				t.Fatal(err, codes)
			}
			f.setHook(nil)
			if err := accounts.Get(ctx, s, &b); err != nil {
				t.Error("the other node's rows are gone too: ", err)
			}
			if err := accounts.Get(ctx, s, &a); !errors.Is(err, ErrNodeFailed) {
				t.Error(err)
			}
			if n := c.Nodes(); n[0].Connected || n[0].Started || !n[1].Started || n[1].Host != "127.0.0.1" {
				t.Error(n)
			}
			f.nodes[0].back()
			if err := c.WaitReady(ctx, 2); err != nil {
				t.Fatal(err)
			}
			if err := accounts.Get(ctx, s, &a); err != nil {
				t.Error(err)
			}
			if tx := mustBegin(t, s); tx != nil {
				accounts.Update(tx, &a)
				accounts.Update(tx, &b)
				if err := tx.Commit(ctx); err != nil {
					t.Error(err)
				}
				tx.Close()
			}
		})
	}
}

func TestRetryWaitsForANode(t *testing.T) {
	f := newFake(t, 1, 1)
	c := f.connect(Options{})
	accounts := mustBind[account](t, mustTable(t, c, accountDef()))
	s := mustSession(t, c, SessionOptions{})
	defer s.Close()
	left := 3
	f.setHook(func(p *fakeSocket, h *signal.Head) bool {
		if h.Num != signal.NumWriteReq || left == 0 {
			return false
		}
		left--
		p.keyRef(cast[signal.KeyReq](h), []uint32{233, 266, 4010}[left])
		return true
	})
	tries := 0
	err := Retry(context.Background(), s, func(tx *Tx) error {
		tries++
		accounts.Write(tx, &account{ID: 1})
		return tx.Commit(context.Background())
	})
	if err != nil || tries != 4 {
		t.Error(err, tries)
	}
	tries = 0
	err = Retry(context.Background(), s, func(tx *Tx) error {
		tries++
		accounts.Insert(tx, &account{ID: 1})
		return tx.Commit(context.Background())
	})
	if !errors.Is(err, ErrDuplicate) || tries != 1 {
		t.Error(err, tries)
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = Retry(ctx, s, func(tx *Tx) error {
		cancel()
		return ErrTooManyOps
	})
	if !errors.Is(err, ErrTooManyOps) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// silent makes the data nodes swallow requests on rows.
func silent(f *fakeCluster) {
	f.setHook(func(p *fakeSocket, h *signal.Head) bool {
		return h.Num == signal.NumReadReq || h.Num == signal.NumWriteReq || h.Num == signal.NumKeyReq
	})
}

func TestWaitsEnd(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("shared=", shared), func(t *testing.T) {
			f := newFake(t, 1, 2)
			short := f.connect(Options{WaitTimeout: 300 * time.Millisecond})
			c := f.connect(Options{})
			accounts := mustBind[account](t, mustTable(t, c, accountDef()))
			s := mustSession(t, c, SessionOptions{})
			defer s.Close()
			if shared {
				defer mustSession(t, c, SessionOptions{}).Close()
			}
			silent(f)
			a := account{ID: 1}
			hasty := mustSession(t, short, SessionOptions{})
			defer hasty.Close()
			begin := time.Now()
			if err := accounts.Get(context.Background(), hasty, &a); !errors.Is(err, ErrNoAnswer) || time.Since(begin) < 300*time.Millisecond {
				t.Error(err, time.Since(begin))
			}
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
			err := accounts.Put(ctx, s, &a)
			cancel()
			var e *Error
			if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &e) || e.Class != ClassUnknownResult {
				t.Error(err)
			}
			ctx, cancel = context.WithCancel(context.Background())
			go cancel()
			if err := accounts.Get(ctx, s, &a); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrNoAnswer) {
				t.Error(err)
			}
			tx := mustBegin(t, s)
			accounts.Read(tx, &a, Committed)
			called := false
			tx.CommitAsync(func(*Tx) { called = true })
			begin = time.Now()
			if n, err := s.PollFor(5*time.Millisecond, 1); n != 0 || err != nil || time.Since(begin) < 5*time.Millisecond || called {
				t.Error(n, err, time.Since(begin))
			}
			if n, err := s.PollFor(0, 1); n != 0 || err != nil {
				t.Error(n, err)
			}
			done, stop := context.WithCancel(context.Background())
			stop()
			if n, err := s.Poll(done, 1); n != 0 || !errors.Is(err, context.Canceled) || s.Pending() != 1 {
				t.Error(n, err)
			}
			eventually(t, "all reads were swallowed", func() bool { return f.count(signal.NumReadReq) == 3 })
			f.setHook(nil)
			tx = mustBegin(t, s)
			accounts.Write(tx, &a)
			tx.CommitAsync(func(*Tx) {})
			if n, err := s.Poll(context.Background(), 1); n != 1 || err != nil || called {
				t.Error(n, err, called)
			}
			s.Close()
			if !called {
				t.Error("nobody hears what became of a transaction whose session was closed")
			}
			s = mustSession(t, c, SessionOptions{})
			defer s.Close()
			if n, err := s.Poll(context.Background(), 1); n != 0 || err != nil {
				t.Error("nothing is under way, yet something is done", n, err)
			}
		})
	}
}

func TestTheReaderChangesWithTheSessions(t *testing.T) {
	f := newFake(t, 2, 2)
	c := f.connect(Options{})
	accounts := mustBind[account](t, mustTable(t, c, accountDef()))
	ctx := context.Background()
	first := mustSession(t, c, SessionOptions{})
	if err := accounts.Put(ctx, first, &account{ID: 7, Balance: 70}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var work sync.WaitGroup
	work.Add(1)
	go func() { // this session never pauses while others come and go
		defer work.Done()
		for n := 0; ; n++ {
			select {
			case <-stop:
				if n == 0 {
					t.Error("nothing was read")
				}
				return
			default:
			}
			a := account{ID: 7}
			if err := accounts.Get(ctx, first, &a); err != nil || a.Balance != 70 {
				t.Error(err, a.Balance)
				return
			}
		}
	}()
	for range 60 {
		var others sync.WaitGroup
		for range 3 {
			others.Add(1)
			go func() {
				defer others.Done()
				s, err := c.NewSession(SessionOptions{MaxTransactions: 4})
				if err != nil {
					t.Error(err)
					return
				}
				defer s.Close()
				for range 10 {
					a := account{ID: 7}
					if err := accounts.Get(ctx, s, &a); err != nil || a.Balance != 70 {
						t.Error(err, a.Balance)
						return
					}
				}
			}()
		}
		others.Wait()
		if _, err := c.Tables(ctx); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	work.Wait()
	first.Close()
	c.mu.Lock()
	if c.open != 0 || c.readers != 0 || c.shared.Load() {
		t.Error(c.open, c.readers, c.shared.Load())
	}
	c.mu.Unlock()
}

func TestTheReceiverIsToldToProgramsOnce(t *testing.T) {
	f := newFake(t, 1, 1)
	told := make(chan bool, 8)
	c := f.connect(Options{OnReceiver: func() { told <- true }})
	<-told
	for range 3 {
		mustSession(t, c, SessionOptions{MaxTransactions: 1})
	}
	if _, err := c.Tables(context.Background()); err != nil {
		t.Error(err)
	}
	c.Close()
	if len(told) != 0 {
		t.Errorf("told %d times more", len(told))
	}
}

func TestAnswersWaitForASessionThatDoesNotPoll(t *testing.T) {
	f := newFake(t, 1, 1)
	c := f.connect(Options{})
	accounts := mustBind[account](t, mustTable(t, c, accountDef()))
	s := mustSession(t, c, SessionOptions{})
	defer s.Close()
	if err := accounts.Put(context.Background(), s, &account{ID: 1, Balance: 5}); err != nil {
		t.Fatal(err)
	}
	// The acknowledgement goes out in the background, and answers are taken from the socket.
	eventually(t, "the outcome is acknowledged", func() bool { return f.count(signal.NumAckOrd) >= 4 })
	a := account{ID: 1}
	tx := mustBegin(t, s)
	accounts.Read(tx, &a, Committed)
	got := 0
	tx.CommitAsync(func(tx *Tx) { got++ })
	if err := s.Send(SendForce); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the answer is in the inbox", func() bool { return s.inbox.arrived.Load() })
	if got != 0 {
		t.Error("a function was called by nobody's Poll")
	}
	if n, err := s.PollFor(0, 1); n != 1 || err != nil || got != 1 || a.Balance != 5 {
		t.Error(n, err, got, a.Balance)
	}
	// What an adaptive Send leaves goes out in the background as well.
	before := f.count(signal.NumReadReq)
	for range 2 {
		tx := mustBegin(t, s)
		accounts.Read(tx, &a, Committed)
		tx.CommitAsync(func(tx *Tx) { got++ })
		if err := s.Send(SendAdaptive); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "both requests were sent", func() bool { return f.count(signal.NumReadReq) == before+2 })
	if _, err := s.PollFor(time.Minute, 2); err != nil || got != 3 {
		t.Error(err, got)
	}
}

func TestLazySends(t *testing.T) {
	f := newFake(t, 2, 2)
	c := f.connect(Options{})
	accounts := mustBind[account](t, mustTable(t, c, accountDef()))
	s := mustSession(t, c, SessionOptions{})
	defer s.Close()
	n := 0
	for round := range uint32(3) {
		for i := range uint32(20) {
			tx := mustBegin(t, s)
			accounts.Insert(tx, &account{ID: round*20 + i})
			tx.CommitAsync(func(tx *Tx) {
				n++
				if tx.Err() != nil {
					t.Error(tx.Err())
				}
			})
		}
		if got, err := s.SendPoll(SendLazy, time.Minute, 20); got != 20 || err != nil {
			t.Error(got, err)
		}
	}
	if n != 60 {
		t.Error(n)
	}
}

// A node that reads nothing for a while fills the socket; the client must neither block nor lose anything.
func TestASocketThatTakesNothing(t *testing.T) {
	f := newFake(t, 1, 1)
	c := f.connect(Options{})
	def := TableDef{Database: "d", Name: "big", Columns: []Column{
		{Name: "ID", Type: TypeUint32, Key: true}, {Name: "DATA", Type: TypeUint32, Length: 7000}}}
	table := mustTable(t, c, def)
	s := mustSession(t, c, SessionOptions{MaxTransactions: 2000})
	defer s.Close()
	f.mu.Lock() // the fake node executes nothing
	row := table.NewRow()
	words := make([]uint32, 7000)
	failed, done := 0, 0
	const n = 600
	for i := range n {
		words[0], words[6999] = uint32(i), uint32(i)
		row.SetUint(0, uint64(i))
		row.SetWords(1, words)
		tx := mustBegin(t, s)
		tx.Insert(row)
		tx.CommitAsync(func(tx *Tx) {
			done++
			if tx.Err() != nil {
				failed++
			}
		})
		if err := s.Send(SendForce); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.PollFor(20*time.Millisecond, 1); got != 0 || err != nil {
		t.Fatal(got, err)
	}
	f.mu.Unlock()
	if got, err := s.PollFor(time.Minute, n); got != n || err != nil || failed != 0 {
		t.Fatal(got, err, failed)
	}
	in := table.NewRow()
	for i := range n {
		in.SetUint(0, uint64(i))
		tx := mustBegin(t, s)
		tx.Read(in, Committed)
		if err := tx.Commit(context.Background()); err != nil {
			t.Fatal(err)
		}
		if w := in.Words(1); w[0] != uint32(i) || w[6999] != uint32(i) {
			t.Fatal(i, w[0], w[6999])
		}
		tx.Close()
	}
}

func TestGarbageFromANodeCostsItsLink(t *testing.T) {
	for name, make := range map[string]func(p *fakeSocket, h *signal.Head){
		"a short frame":  func(p *fakeSocket, h *signal.Head) { p.out = append(p.out, 1, 0, 1, 0, 9, 9, 9, 9, 9, 9, 9, 9) },
		"an unknown one": func(p *fakeSocket, h *signal.Head) { p.out = append(p.out, 3, 0, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0) },
		"another's block": func(p *fakeSocket, h *signal.Head) {
			put[signal.KeyRef](p, signal.MakeAddr(h.From.Node(), signal.BlockLDM, 0), h.To, signal.NumKeyRef, nil)
		},
		"another's name": func(p *fakeSocket, h *signal.Head) {
			put[signal.KeyRef](p, h.From, signal.MakeAddr(9, signal.BlockLDM, 0), signal.NumKeyRef, nil)
		},
		"a request": func(p *fakeSocket, h *signal.Head) { put[signal.AckOrd](p, h.From, h.To, signal.NumAckOrd, nil) },
		"a wrong length": func(p *fakeSocket, h *signal.Head) {
			put[signal.ReadConf](p, h.From, h.To, signal.NumReadConf, []byte{1, 2, 3, 4})
		},
		"a greeting again": func(p *fakeSocket, h *signal.Head) { put[signal.HelloConf](p, h.From, h.To, signal.NumHelloConf, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, 1, 1)
			var mu sync.Mutex
			var log []string
			c := f.connect(Options{Logf: func(format string, args ...any) {
				mu.Lock()
				log = append(log, fmt.Sprintf(format, args...))
				mu.Unlock()
			}})
			accounts := mustBind[account](t, mustTable(t, c, accountDef()))
			s := mustSession(t, c, SessionOptions{})
			defer s.Close()
			f.setHook(func(p *fakeSocket, h *signal.Head) bool {
				if h.Num != signal.NumReadReq {
					return false
				}
				make(p, h)
				return true
			})
			a := account{ID: 1}
			if err := accounts.Get(context.Background(), s, &a); !errors.Is(err, ErrNodeFailed) {
				t.Error(err)
			}
			f.setHook(nil)
			if err := c.WaitReady(context.Background(), 1); err != nil { // and it is opened again
				t.Error(err)
			}
			if err := accounts.Put(context.Background(), s, &a); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if text := strings.Join(log, "\n"); !strings.Contains(text, "is lost: bad frame") {
				t.Error(text)
			}
		})
	}
}

// Signals to sessions that are not there, and answers to nothing, are dropped.
func TestStraySignalsAreDropped(t *testing.T) {
	f := newFake(t, 1, 1)
	c := f.connect(Options{})
	accounts := mustBind[account](t, mustTable(t, c, accountDef()))
	s := mustSession(t, c, SessionOptions{})
	defer s.Close()
	f.setHook(func(p *fakeSocket, h *signal.Head) bool {
		for _, instance := range []uint16{0, 1, 2, 77, 65535} {
			to := signal.MakeAddr(h.From.Node(), signal.BlockClient, instance)
			put[signal.KeyRef](p, to, signal.MakeAddr(h.To.Node(), signal.BlockLDM, 0), signal.NumKeyRef, nil).Ref = 12345
			put[signal.TxRef](p, to, signal.MakeAddr(h.To.Node(), signal.BlockTC, 0), signal.NumTxRef, nil).Tx = 99
			put[signal.TableRef](p, to, signal.MakeAddr(h.To.Node(), signal.BlockDictionary, 0), signal.NumTableRef, nil).Ref = 99
		}
		return false
	})
	for i := range uint32(20) {
		if err := accounts.Put(context.Background(), s, &account{ID: i}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Tables(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestNodesThatAreNotReady(t *testing.T) {
	f := newFake(t, 2, 1)
	f.nodes[0].refuse.Store(signal.RefuseNotReady)
	f.nodes[1].state.Store(signal.StateStarting)
	conn, err := newConn(&fakeManager{f, f.conf.APINodes()[0].ID}, 7, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := conn.WaitReady(ctx, 1); !errors.Is(err, ErrNotReady) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if _, err := conn.Table(context.Background(), "a", "b"); !errors.Is(err, ErrNotReady) {
		t.Error(err)
	}
	f.nodes[0].refuse.Store(0)
	if err := conn.WaitReady(context.Background(), 1); err != nil {
		t.Error(err)
	}
	if n := conn.Nodes(); !n[0].Started || n[1].Started || !n[1].Connected {
		t.Errorf("%+v", n)
	}
}

func TestEndOfAConnection(t *testing.T) {
	f := newFake(t, 2, 2)
	c := f.connect(Options{})
	accounts := mustBind[account](t, mustTable(t, c, accountDef()))
	lone := mustSession(t, c, SessionOptions{})
	silent(f)
	errs := make(chan error, 1)
	go func() {
		a := account{ID: 1}
		errs <- accounts.Get(context.Background(), lone, &a)
	}()
	eventually(t, "the request is there", func() bool { return f.count(signal.NumReadReq) == 1 })
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-errs; !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNodeFailed) {
		t.Error(err)
	}
	if _, err := lone.Begin(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := c.NewSession(SessionOptions{}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := c.Table(context.Background(), "x", "y"); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := c.WaitReady(context.Background(), 1); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := lone.Close(); err != nil {
		t.Error(err)
	}
	if err := lone.Send(SendForce); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := lone.PollFor(0, 1); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	c.Close()
}

func TestSessionsSayGoodBye(t *testing.T) {
	f := newFake(t, 2, 1)
	c := f.connect(Options{})
	accounts := mustBind[account](t, mustTable(t, c, accountDef()))
	s := mustSession(t, c, SessionOptions{})
	tx := mustBegin(t, s)
	accounts.Insert(tx, &account{ID: 1})
	accounts.Insert(tx, &account{ID: 2})
	if err := tx.Execute(context.Background()); err != nil {
		t.Fatal(err)
	}
	other := mustSession(t, c, SessionOptions{})
	if other.instance == s.instance {
		t.Error("two sessions of one number")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "every instance was told", func() bool { return f.count(signal.NumCloseOrd) == 8 })
	other.Close()
	again := mustSession(t, c, SessionOptions{})
	if again.instance == s.instance {
		t.Error("a session number is used again at once")
	}
	again.Close()
}
