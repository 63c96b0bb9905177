package mgmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/frames"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/wire"
	"github.com/cohortdb/cohort/internal/signal"
)

// Lists of what is open at data nodes: transactions, from their coordinators, and locks that somebody waits for, from
// the ldms. Each block of a node answers by itself.
//
//	server --ListReq--> node --ListConf, from each tc or ldm--> server

// mostDefault is how many lines a block gives unless the request says otherwise.
const mostDefault = 100

// partsMax bounds the answers to one question: no node has more blocks.
const partsMax = 1024

func (s *Server) listTransactions(ctx context.Context, _ *session, r *wire.Request) answer {
	return listed(s, ctx, r, signal.ListTransactions, "transaction", transactionsOf)
}

func (s *Server) listLocks(ctx context.Context, _ *session, r *wire.Request) answer {
	return listed(s, ctx, r, signal.ListLocks, "lock", locksOf)
}

// listed answers a request for a list.
func listed[T interface{ Fields() string }](s *Server, ctx context.Context, r *wire.Request, kind uint32, word string, order func([]*signal.ListConf) []T) answer {
	header := r.Command + " reply"
	parts, why := s.list(ctx, r, kind)
	if why != "" {
		return bad(header, why)
	}
	left := uint32(0)
	for _, p := range parts {
		left += p.Left
	}
	all := order(parts)
	b := wire.Begin(header).Field("result", "Ok").Int("count", int64(len(all))).Uint("left", left)
	for i := range all {
		b.Field(fmt.Sprintf("%s.%d", word, i+1), all[i].Fields())
	}
	return reply(b)
}

// transactionsOf are the transactions of several answers, the oldest first.
func transactionsOf(parts []*signal.ListConf) (all []mgmclient.Transaction) {
	for _, p := range parts {
		for _, t := range p.Transactions() {
			all = append(all, transactionOf(p.From, &t))
		}
	}
	slices.SortStableFunc(all, func(a, b mgmclient.Transaction) int { return cmp.Compare(b.AgeMillis, a.AgeMillis) })
	return all
}

// locksOf are the locks of several answers, by row: the rows with the longest waits first, and of each row whoever holds
// it before those who wait.
func locksOf(parts []*signal.ListConf) (all []mgmclient.Lock) {
	longest := map[mgmclient.LockedRow]uint32{}
	for _, p := range parts {
		for _, l := range p.Locks() {
			k := lockOf(p.From, &l)
			if all = append(all, k); k.Waits {
				longest[k.Where] = max(longest[k.Where], k.Millis)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b mgmclient.Lock) int {
		holds := func(l *mgmclient.Lock) int {
			if l.Waits {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(longest[b.Where], longest[a.Where]), a.Where.Compare(&b.Where), cmp.Compare(holds(&a), holds(&b)), cmp.Compare(b.Millis, a.Millis))
	})
	return all
}

func partyOf(client signal.Addr, tx uint32) mgmclient.Party {
	return mgmclient.Party{Node: client.Node(), Session: client.Instance(), Transaction: tx}
}

func transactionOf(from signal.Addr, t *signal.TransactionLine) mgmclient.Transaction {
	return mgmclient.Transaction{Node: from.Node(), Coordinator: from.Instance(), Of: partyOf(t.Client, t.Tx), State: mgmclient.TransactionState(t.State),
		Operations: t.Operations, Waiting: t.Waiting, AgeMillis: t.AgeMillis, IdleMillis: t.IdleMillis}
}

func lockOf(from signal.Addr, l *signal.LockLine) mgmclient.Lock {
	return mgmclient.Lock{Where: mgmclient.LockedRow{Node: from.Node(), Ldm: from.Instance(), Table: l.Table, Fragment: l.Frag, Row: l.Row},
		Of: partyOf(l.Client, l.Tx), Exclusive: l.Mode == signal.LockIsExclusive, Waits: l.Waits != 0, Millis: l.Millis, Ahead: partyOf(l.Ahead, l.AheadTx)}
}

// list asks nodes and gives the answers of all their blocks.
func (s *Server) list(ctx context.Context, r *wire.Request, kind uint32) (parts []*signal.ListConf, why string) {
	nodes := s.linkedDataNodes()
	if text, given := r.Fields.Get("nodes"); given && strings.TrimSpace(text) != "" {
		var ok bool
		if nodes, ok = ids(text); !ok {
			return nil, fmt.Sprintf("'%s' is no list of node ids", text)
		}
		if why := s.reportable(nodes, event.MemoryUsage); why != "" {
			return nil, why
		}
	}
	most := num(r, "most", mostDefault)
	if most < 1 || most > signal.ListMost {
		return nil, fmt.Sprintf("most is a number from 1 to %d, not %d", signal.ListMost, most)
	}
	ctx, cancel := context.WithTimeout(ctx, s.limits.Answer)
	defer cancel()
	var asked []*ask
	for _, l := range s.dataLinks() {
		if !slices.Contains(nodes, l.node) {
			continue
		}
		ref, a := s.newAsk(l)
		defer s.endAsk(ref)
		asked = append(asked, a)
		l.send(frames.Make(signal.NumListReq, address(l.node, signal.BlockManager), address(s.own, signal.BlockMgm), "", func(q *signal.ListReq) {
			q.Ref, q.Kind, q.Most = ref, kind, most
		}))
	}
	for _, a := range asked {
		select {
		case _, ok := <-a.reply:
			if !ok {
				return nil, fmt.Sprintf("Node %d was lost before it answered", a.node)
			}
			for _, b := range a.parts {
				if c := frames.As[signal.ListConf](frames.Head(b)); c.Kind == kind {
					parts = append(parts, c)
				}
			}
		case <-ctx.Done():
			return nil, fmt.Sprintf("Node %d does not answer", a.node)
		}
	}
	return parts, ""
}

// onListConf keeps an answer; the question is answered when every block of the node has.
func (s *Server) onListConf(l *link, r *signal.ListConf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.asks[r.Ref]
	if a == nil || a.node != l.node {
		return
	}
	a.parts = append(a.parts, frames.Copy(&r.Head))
	if len(a.parts) >= int(min(r.Blocks, partsMax)) {
		delete(s.asks, r.Ref)
		a.reply <- nil
	}
}

// Numbers of DUMP that are answered here, by what stands in the cluster log afterwards. NDB has them for the same.
const (
	dumpTransactions = 2550
	dumpLocks        = 2350
)

// dumpList writes a list of a node to the cluster log.
func (s *Server) dumpList(ctx context.Context, node uint8, number uint32) (why string) {
	kind, what := uint32(signal.ListTransactions), "Open transactions"
	if number == dumpLocks {
		kind, what = signal.ListLocks, "Locks that somebody waits for"
	}
	parts, why := s.list(ctx, &wire.Request{Fields: wire.Fields{{Name: "nodes", Value: fmt.Sprint(node)}}}, kind)
	if why != "" {
		return why
	}
	say := func(text string) { s.report(event.New(node, event.InfoEvent).WithText(text)) }
	transactions, locks := []mgmclient.Transaction(nil), []mgmclient.Lock(nil)
	if kind == signal.ListLocks {
		locks = locksOf(parts)
	} else {
		transactions = transactionsOf(parts)
	}
	say(fmt.Sprintf("%s: %d", what, len(transactions)+len(locks)))
	for i := range transactions {
		say(transactions[i].String())
	}
	for i := range locks {
		say(locks[i].String())
	}
	return ""
}
