package e2e_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/e2e"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/version"
	"github.com/cohortdb/cohort/ndb"
)

// management is the node id of the management server of a cluster that cohort up made.
func management(t *testing.T, c *e2e.Cluster) int {
	t.Helper()
	m, err := mgmclient.Connect(t.Context(), c.ConnectString, mgmclient.Options{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	id, err := m.MgmdNodeID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func connect(t *testing.T, c *e2e.Cluster) (*ndb.Conn, *ndb.Session) {
	t.Helper()
	conn, err := ndb.Connect(t.Context(), c.ConnectString, ndb.Options{Name: t.Name(), WaitAll: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s, err := conn.NewSession(ndb.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return conn, s
}

// wide makes a table of rows of 4 KB.
func wide(t *testing.T, conn *ndb.Conn) *ndb.Table {
	t.Helper()
	table, err := conn.CreateTable(t.Context(), ndb.TableDef{Database: "test", Name: "wide", NoLogging: true, Columns: []ndb.Column{
		{Name: "id", Type: ndb.TypeUint32, Key: true}, {Name: "data", Type: ndb.TypeUint32, Length: 1024}}})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func insert(t *testing.T, s *ndb.Session, r *ndb.Row, id int) error {
	t.Helper()
	tx, err := s.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close()
	r.Reset()
	r.SetUint(0, uint64(id))
	r.SetWords(1, make([]uint32, 1024))
	tx.Insert(r)
	return tx.Commit(t.Context())
}

// get reads one row by itself.
func get(ctx context.Context, s *ndb.Session, r *ndb.Row, id int) error {
	tx, err := s.Begin()
	if err != nil {
		return err
	}
	defer tx.Close()
	r.Reset()
	r.SetUint(0, uint64(id))
	tx.Read(r, ndb.Committed)
	return tx.Commit(ctx)
}

// TestFullDataMemory: filling DataMemory gives error 827 to the writer, everything else goes on, and deleting makes
// room again.
func TestFullDataMemory(t *testing.T) {
	c := e2e.StartCluster(t, e2e.Options{DataNodes: 2, Replicas: 2, Args: []string{"--set", "DataMemory=16M"}})
	conn, s := connect(t, c)
	table := wide(t, conn)
	r := table.NewRow()
	n := 0
	var err error
	for err == nil && n < 10_000 {
		if err = insert(t, s, r, n); err == nil {
			n++
		}
	}
	if !errors.Is(err, ndb.ErrDataMemoryFull) || n < 1000 {
		t.Fatalf("after %d rows: %v", n, err)
	}
	var e *ndb.Error
	if errors.As(err, &e); e.Class != ndb.ClassSpace {
		t.Fatalf("class %v", e.Class)
	}
	for i := 0; i < n; i += 97 { // reads go on, and updates in place
		if err := get(t.Context(), s, r, i); err != nil {
			t.Fatalf("row %d: %v", i, err)
		}
		tx, err := s.Begin()
		if err != nil {
			t.Fatal(err)
		}
		r.SetWords(1, make([]uint32, 1024))
		tx.Update(r)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatalf("update of row %d: %v", i, err)
		}
		tx.Close()
	}
	for i := range n / 2 {
		tx, err := s.Begin()
		if err != nil {
			t.Fatal(err)
		}
		r.Reset()
		r.SetUint(0, uint64(2*i))
		tx.Delete(r)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatalf("delete of row %d: %v", 2*i, err)
		}
		tx.Close()
	}
	back := 0
	for i := range n / 2 {
		if err := insert(t, s, r, 2*i); err == nil {
			back++
		} else if !errors.Is(err, ndb.ErrDataMemoryFull) {
			t.Fatal(err)
		}
	}
	if back < n/2*9/10 {
		t.Fatalf("%d rows were deleted, but only %d fitted in again", n/2, back)
	}
	if out := c.MustRun(t, "ndb_mgm", "-e", "all report memoryusage"); strings.Count(out, "Data usage is") != 2 {
		t.Fatal(out)
	}
}

// TestMoreOperationsThanConfigured: one more operation than there are records gives 233, a temporary error, and the
// records come back.
func TestMoreOperationsThanConfigured(t *testing.T) {
	c := e2e.StartCluster(t, e2e.Options{DataNodes: 1, Replicas: 1, Args: []string{"--set", "MaxNoOfConcurrentOperations=64",
		"--set", "MaxNoOfConcurrentTransactions=64"}})
	conn, s := connect(t, c)
	table := wide(t, conn)
	for range 3 {
		tx, err := s.Begin()
		if err != nil {
			t.Fatal(err)
		}
		r := table.NewRow()
		for i := range 65 {
			r.Reset()
			r.SetUint(0, uint64(i))
			r.SetWords(1, make([]uint32, 1024))
			tx.Insert(r)
		}
		err = tx.Execute(t.Context())
		var e *ndb.Error
		if !errors.Is(err, ndb.ErrTooManyOps) || !errors.As(err, &e) || e.Code != 233 || !e.Retry {
			t.Fatalf("%v", err)
		}
		tx.Close()
		if err := get(t.Context(), s, r, 3); !errors.Is(err, ndb.ErrNotFound) {
			t.Fatalf("after the abort: %v", err)
		}
	}
}

// TestManagementServerKilled: running nodes and clients need none.
func TestManagementServerKilled(t *testing.T) {
	c := e2e.StartCluster(t, e2e.Options{DataNodes: 2, Replicas: 2})
	conn, s := connect(t, c)
	table := wide(t, conn)
	r := table.NewRow()
	if err := insert(t, s, r, 1); err != nil {
		t.Fatal(err)
	}
	one, two := c.PID(t, 1), c.PID(t, 2)
	pid := c.PID(t, management(t, c))
	c.Kill(t, management(t, c))
	e2e.Eventually(t, "the management server is dead", func() bool { return !e2e.Alive(pid) })
	for i := 2; i < 500; i++ {
		if err := insert(t, s, r, i); err != nil {
			t.Fatalf("row %d: %v", i, err)
		}
	}
	other, err := conn.NewSession(ndb.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 500; i++ {
		if err := get(t.Context(), other, r, i); err != nil {
			t.Fatalf("row %d: %v", i, err)
		}
	}
	if !e2e.Alive(one) || !e2e.Alive(two) {
		t.Fatal("a data node went with the management server")
	}
}

// TestClientThatDoesNotRead asks for rows without ever reading an answer: it is cut off, and nobody else slows down.
func TestClientThatDoesNotRead(t *testing.T) {
	c := e2e.StartCluster(t, e2e.Options{DataNodes: 1, Replicas: 1})
	conn, s := connect(t, c)
	table := wide(t, conn)
	r := table.NewRow()
	if err := insert(t, s, r, 1); err != nil {
		t.Fatal(err)
	}
	bad, id := rawLink(t, c, 1)
	var reads atomic.Int64
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // another client, all the while
		row := table.NewRow()
		for ctx.Err() == nil {
			begin := time.Now()
			if err := get(context.Background(), s, row, 1); err != nil {
				done <- err
				return
			}
			if d := time.Since(begin); d > 2*time.Second {
				done <- fmt.Errorf("a read took %v", d)
				return
			}
			reads.Add(1)
		}
		done <- nil
	}()
	req := readRequest(id, table, r)
	many := make([]byte, 0, 256*len(req))
	for range 256 {
		many = append(many, req...)
	}
	_ = bad.SetWriteDeadline(time.Now().Add(e2e.Patience))
	var err error
	for err == nil {
		_, err = bad.Write(many)
	}
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		t.Fatal("the client was not cut off")
	}
	before := reads.Load()
	e2e.Eventually(t, "the other client goes on", func() bool { return reads.Load() > before+1000 })
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if log := c.Log(t, 1); !strings.Contains(log, fmt.Sprintf("link to node %d closed", id)) {
		t.Fatal("the log does not say that the link was closed:\n", log)
	}
}

// rawLink opens a link to a data node as an API node of its own.
func rawLink(t *testing.T, c *e2e.Cluster, node int) (net.Conn, uint8) {
	t.Helper()
	m, err := mgmclient.Connect(t.Context(), c.ConnectString, mgmclient.Options{Name: "raw"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	id, err := m.GetNodeID(t.Context(), mgmclient.NodeIDRequest{Type: config.APINode, Name: "raw", Secret: 7})
	if err != nil {
		t.Fatal(err)
	}
	conf, err := m.GetConfig(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	port, err := m.GetPort(t.Context(), id, node)
	if err != nil {
		t.Fatal(err)
	}
	link, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close() })
	var h signal.Hello
	h.Len, h.Num = uint16(unsafe.Sizeof(h)/4), signal.NumHello
	h.From, h.To = signal.MakeAddr(uint8(id), signal.BlockClient, 0), signal.MakeAddr(uint8(node), signal.BlockManager, 0)
	h.Magic, h.Version, h.Software, h.Node, h.Kind = signal.HelloMagic, signal.WireVersion, version.Number, uint32(id), uint32(signal.PeerAPI)
	h.Peer, h.Name, h.Secret = uint32(node), signal.NameHash(conf.Name), [2]uint32{7, 0}
	if _, err := link.Write(unsafe.Slice((*byte)(unsafe.Pointer(&h)), unsafe.Sizeof(h))); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, unsafe.Sizeof(signal.HelloConf{}))
	if _, err := link.Read(answer); err != nil || binary.LittleEndian.Uint16(answer[2:]) != signal.NumHelloConf {
		t.Fatalf("%v, signal %s", err, signal.Name(binary.LittleEndian.Uint16(answer[2:])))
	}
	return link, uint8(id)
}

// readRequest is a ReadReq for all columns of the row with key 1.
func readRequest(id uint8, table *ndb.Table, r *ndb.Row) []byte {
	b := make([]byte, signal.KeyReqSize+4)
	q := (*signal.KeyReq)(unsafe.Pointer(&b[0]))
	r.Reset()
	r.SetUint(0, 1)
	q.Len, q.Num = uint16(len(b)/4), signal.NumReadReq
	q.From, q.To = signal.MakeAddr(id, signal.BlockClient, 1), signal.MakeAddr(uint8(r.Node()), signal.BlockLDM, 0)
	q.Table, q.Version, q.Frag = uint16(table.ID()), uint16(table.Version()), uint16(r.Fragment())
	q.Op, q.Flags, q.KeyLen = signal.OpReadCommitted, signal.FlagAll, 4
	binary.LittleEndian.PutUint32(b[signal.KeyReqSize:], 1)
	return b
}
