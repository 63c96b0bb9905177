package mgmclient

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cohortdb/cohort/internal/mgm/wire"
	"github.com/cohortdb/cohort/internal/signal"
)

// Party is a transaction as others see it: a client's session and the number that the session gave it.
type Party struct {
	Node        uint8
	Session     uint16
	Transaction uint32
}

// String is the party as operators see it: 51.3/17 is transaction 17 of session 3 of node 51.
func (p Party) String() string { return fmt.Sprintf("%d.%d/%d", p.Node, p.Session, p.Transaction) }

func parseParty(text string) (p Party, err error) {
	_, err = fmt.Sscanf(text, "%d.%d/%d", &p.Node, &p.Session, &p.Transaction)
	return p, err
}

// TransactionState is what a transaction does.
type TransactionState uint32

// transactionWords are the states by signal's TxIs constants.
var transactionWords = [...]string{signal.TxIsActive: "active", signal.TxIsCommitting: "committing", signal.TxIsCompleting: "completing", signal.TxIsAborting: "aborting",
	signal.TxIsTakenOver: "taken over"}

func (t TransactionState) String() string {
	if int(t) < len(transactionWords) && t != 0 {
		return transactionWords[t]
	}
	return "unknown"
}

// Transaction is one that is open at a coordinator.
type Transaction struct {
	Node        uint8
	Coordinator uint16 // instance
	Of          Party
	State       TransactionState
	Operations  uint32 // that it has
	Waiting     uint32 // of them, those that wait for a lock
	AgeMillis   uint32 // since it began
	IdleMillis  uint32 // since its client said something
}

// String is a line for operators.
func (t Transaction) String() string {
	line := fmt.Sprintf("tc %d: transaction %v %s for %s, %d operations", t.Coordinator, t.Of, t.State, span(t.AgeMillis), t.Operations)
	if t.Waiting > 0 {
		line += fmt.Sprintf(", %d of them wait for locks", t.Waiting)
	} else if t.State == signal.TxIsActive {
		line += fmt.Sprintf(", its client silent for %s", span(t.IdleMillis))
	}
	return line
}

func span(millis uint32) string { return (time.Duration(millis) * time.Millisecond).String() }

// Fields is the transaction on the wire.
func (t Transaction) Fields() string {
	return fmt.Sprintf("node=%d tc=%d of=%v state=%d operations=%d waiting=%d age_ms=%d idle_ms=%d",
		t.Node, t.Coordinator, t.Of, t.State, t.Operations, t.Waiting, t.AgeMillis, t.IdleMillis)
}

func parseTransaction(text string) (t Transaction, err error) {
	f := splitFields(text)
	t.Node, t.Coordinator, t.State = uint8(f.number("node", 8)), uint16(f.number("tc", 16)), TransactionState(f.number("state", 32))
	t.Operations, t.Waiting, t.AgeMillis, t.IdleMillis = f.number("operations", 32), f.number("waiting", 32), f.number("age_ms", 32), f.number("idle_ms", 32)
	if t.Of, err = parseParty(f.text["of"]); err == nil {
		err = f.err
	}
	return t, err
}

// LockedRow is a row that somebody waits for.
type LockedRow struct {
	Node     uint8
	Ldm      uint16 // instance
	Table    uint16
	Fragment uint16
	Row      uint32 // row id, signal.NoRef for one that does not exist yet
}

// Compare orders rows by their place.
func (r *LockedRow) Compare(o *LockedRow) int {
	return cmp.Or(cmp.Compare(r.Node, o.Node), cmp.Compare(r.Ldm, o.Ldm), cmp.Compare(r.Table, o.Table), cmp.Compare(r.Fragment, o.Fragment), cmp.Compare(r.Row, o.Row))
}

// Lock is an operation that holds the lock of such a row, or waits for it.
type Lock struct {
	Where     LockedRow
	Of        Party
	Exclusive bool
	Waits     bool
	Millis    uint32 // for how long
	Ahead     Party  // of one that waits: for whom
}

// String is a line for operators.
func (l Lock) String() string {
	row := "a new row"
	if l.Where.Row != signal.NoRef {
		row = fmt.Sprintf("row %d", l.Where.Row)
	}
	mode := "shared"
	if l.Exclusive {
		mode = "exclusive"
	}
	where := fmt.Sprintf("ldm %d: table %d fragment %d %s: transaction %v ", l.Where.Ldm, l.Where.Table, l.Where.Fragment, row, l.Of)
	if l.Waits {
		return where + fmt.Sprintf("waits for the %s lock for %s, behind %v", mode, span(l.Millis), l.Ahead)
	}
	return where + fmt.Sprintf("holds the %s lock for %s", mode, span(l.Millis))
}

// Fields is the lock on the wire.
func (l Lock) Fields() string {
	flag := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	return fmt.Sprintf("node=%d ldm=%d table=%d fragment=%d row=%d of=%v exclusive=%d waits=%d ms=%d ahead=%v",
		l.Where.Node, l.Where.Ldm, l.Where.Table, l.Where.Fragment, l.Where.Row, l.Of, flag(l.Exclusive), flag(l.Waits), l.Millis, l.Ahead)
}

func parseLock(text string) (l Lock, err error) {
	f := splitFields(text)
	l.Where = LockedRow{Node: uint8(f.number("node", 8)), Ldm: uint16(f.number("ldm", 16)), Table: uint16(f.number("table", 16)),
		Fragment: uint16(f.number("fragment", 16)), Row: f.number("row", 32)}
	l.Exclusive, l.Waits, l.Millis = f.number("exclusive", 1) != 0, f.number("waits", 1) != 0, f.number("ms", 32)
	if l.Of, err = parseParty(f.text["of"]); err == nil {
		l.Ahead, err = parseParty(f.text["ahead"])
	}
	if err == nil {
		err = f.err
	}
	return l, err
}

// fields are name=value pairs of a line; err is the first number that is none.
type fields struct {
	text map[string]string
	err  error
}

func splitFields(line string) *fields {
	f := &fields{text: map[string]string{}}
	for word := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(word, "=")
		f.text[name] = value
	}
	return f
}

func (f *fields) number(name string, bits int) uint32 {
	n, err := strconv.ParseUint(f.text[name], 10, bits)
	if err != nil && f.err == nil {
		f.err = fmt.Errorf("%s is %q, which is not a number", name, f.text[name])
	}
	return uint32(n)
}

// Transactions lists the open transactions of some nodes, the oldest first; left is how many more there are. No nodes
// means all data nodes; most is how many lines one coordinator gives.
func (c *Client) Transactions(ctx context.Context, nodes []int, most int) (all []Transaction, left int, err error) {
	return list(c, ctx, "list transactions", "transaction.", nodes, most, parseTransaction)
}

// Locks lists the locks that somebody waits for, with those who wait.
func (c *Client) Locks(ctx context.Context, nodes []int, most int) (all []Lock, left int, err error) {
	return list(c, ctx, "list locks", "lock.", nodes, most, parseLock)
}

func list[T any](c *Client, ctx context.Context, command, prefix string, nodes []int, most int, parse func(string) (T, error)) (all []T, left int, err error) {
	b := wire.Begin(command).Int("most", int64(most))
	if len(nodes) > 0 {
		b.Field("nodes", nodeList(nodes))
	}
	reply, err := c.call(ctx, command+" reply", b)
	if err != nil {
		return nil, 0, err
	}
	for _, f := range reply.Fields {
		if !strings.HasPrefix(f.Name, prefix) {
			continue
		}
		line, err := parse(f.Value)
		if err != nil {
			return nil, 0, fmt.Errorf("the management server sent %q, which is no line of a list: %w", f.Value, err)
		}
		all = append(all, line)
	}
	more, err := reply.Fields.Uint("left", 0)
	return all, int(more), err
}
