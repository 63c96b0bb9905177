package manager

// Figures come from the ldms and coordinators, which count for themselves:
//
//	management server --ReportReq--> manager --StatReq--> each tc and ldm --StatConf--> manager --ReportConf-->
//
// One gathering at a time; whoever asks meanwhile gets the figures of the one under way.

import (
	"fmt"

	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/invariant"
	"github.com/cohortdb/cohort/internal/kernel"
	"github.com/cohortdb/cohort/internal/signal"
	"github.com/cohortdb/cohort/internal/version"
)

// askersMax is how many reports wait for figures.
const askersMax = 64

// pageBytes is the size of a page that figures count in.
const pageBytes = 32 << 10

// pagesOfNote is by how many pages (16 MB) what is in use must change for management servers to be told.
const pagesOfNote = 512

// thresholds are the percentages of memory usage whose crossing is reported.
var thresholds = [...]int{0, 80, 90, 100}

// Numbers that DUMP understands, besides those of other blocks.
const (
	dumpMemory   = 1000 // memory usage
	dumpCounters = 1001 // records in use
	dumpState    = 1002 // how the node is
)

// asker waits for a report.
type asker struct {
	from signal.Addr
	ref  uint32
}

// gather is the gathering of figures that is under way.
type gather struct {
	owed   int // coordinators and ldms that have not answered
	ref    uint32
	sum    figures
	askers []asker
	watch  bool // compare with the thresholds afterwards
	tell   bool // report memory usage afterwards
	count  bool // report records in use afterwards
}

// figures are sums over the node.
type figures struct {
	data, index, total uint32 // pages
	transactions, ops  uint32
	copies             uint64 // bytes
	sessions           uint32
}

// begin starts a gathering unless one is under way.
func (b *Block) begin() {
	g := &b.gather
	if g.owed > 0 {
		return
	}
	g.sum = figures{}
	g.ref++
	for _, block := range [...]uint8{signal.BlockTC, signal.BlockLDM} {
		for i := range b.env.Instances(block) {
			r := kernel.Send[signal.StatReq](b.env, signal.MakeAddr(b.env.Node(), block, uint16(i)), b.self, signal.NumStatReq)
			r.Ref = g.ref
			g.owed++
		}
	}
}

func (b *Block) onReportReq(r *signal.ReportReq) {
	g := &b.gather
	switch {
	case r.Kind != signal.ReportMemory: // of a backup: none runs
		b.conf(asker{r.From, r.Ref}, r.Kind)
	case len(g.askers) == askersMax:
		b.conf(asker{r.From, r.Ref}, r.Kind)
	default:
		g.askers = append(g.askers, asker{r.From, r.Ref})
		b.begin()
	}
}

// onListReq hands a question for a list to the blocks that know; each of them answers whoever asked.
func (b *Block) onListReq(h *signal.Head) {
	block := signal.BlockTC
	if signal.As[signal.ListReq](h).Kind == signal.ListLocks {
		block = signal.BlockLDM
	}
	for i := range b.env.Instances(block) {
		h.To = signal.MakeAddr(b.env.Node(), block, uint16(i))
		b.env.Forward(h)
	}
}

// conf answers a report with the last figures.
func (b *Block) conf(a asker, kind uint32) {
	c := kernel.Send[signal.ReportConf](b.env, a.from, b.self, signal.NumReportConf)
	h := c.Head
	*c = signal.ReportConf{Head: h, Ref: a.ref, Kind: kind}
	if kind == signal.ReportMemory {
		c.DataPages, c.DataTotal, c.IndexPages, c.IndexTotal = b.last.memory()
	}
}

// memory is what is used, and what there is, of data and index memory. They share one room: what one has the other
// cannot get, so each is full when the room is.
func (f *figures) memory() (data, dataTotal, index, indexTotal uint32) {
	return f.data, f.total - min(f.index, f.total), f.index, f.total - min(f.data, f.total)
}

// forgetAsker drops the reports of a management server that is gone.
func (b *Block) forgetAsker(n uint8) {
	g := &b.gather
	kept := g.askers[:0]
	for _, a := range g.askers {
		if a.from.Node() != n {
			kept = append(kept, a)
		}
	}
	g.askers = kept
}

func (b *Block) onStatConf(r *signal.StatConf) {
	g := &b.gather
	invariant.That(g.owed > 0 && r.Ref == g.ref, "an own block answers what was asked")
	s := &g.sum
	s.transactions += r.Transactions
	s.ops += r.Operations
	s.copies += uint64(r.Copies)
	s.sessions += r.Outcomes
	s.data += r.DataPages
	s.index += r.IndexPages
	s.total = max(s.total, r.DataTotal)
	if g.owed--; g.owed > 0 {
		return
	}
	b.last = g.sum
	watch, tell, count, askers := g.watch, g.tell, g.count, g.askers
	g.watch, g.tell, g.count, g.askers = false, false, false, nil
	for _, a := range askers {
		b.conf(a, signal.ReportMemory)
	}
	if watch {
		b.compare()
		// How far a copy is shows in how much there is.
		if now := b.last.data + b.last.index; now/pagesOfNote != b.pages/pagesOfNote {
			b.tellMgms()
		}
	}
	if tell {
		for kind := range b.memory {
			b.memoryUsage(kind, 0)
		}
	}
	if count {
		f := &b.last
		b.reportText(event.InfoEvent, fmt.Sprintf("In use: %d transactions, %d operations, %d bytes of copies, outcomes of %d sessions",
			f.transactions, f.ops, f.copies, f.sessions))
	}
}

// compare reports a kind of memory that has crossed a threshold, once, in either direction.
func (b *Block) compare() {
	data, dataTotal, index, indexTotal := b.last.memory()
	for kind, f := range [...][2]uint32{{data, dataTotal}, {index, indexTotal}} {
		level := 0
		for i, t := range thresholds {
			// Rounded to the nearest: chunks that threads hold in part keep the last page or two from being used.
			if f[1] > 0 && (uint64(f[0])*200+uint64(f[1]))/(2*uint64(f[1])) >= uint64(t) {
				level = i
			}
		}
		was := b.memory[kind]
		b.memory[kind] = level
		switch {
		case level > was:
			b.memoryUsage(kind, 1)
		case level < was:
			b.memoryUsage(kind, -1)
		}
	}
}

// memoryUsage reports the usage of data (0) or index (1) memory; direction says where it goes.
func (b *Block) memoryUsage(kind, direction int) {
	used, total, index, indexTotal := b.last.memory()
	block := uint32(event.BlockDataMemory)
	if kind == 1 {
		used, total, block = index, indexTotal, event.BlockIndexMemory
	}
	b.report(event.MemoryUsage, uint32(int32(direction)), pageBytes, used, total, block)
}

// onDumpOrd writes what an operator asks for by number to the cluster log.
func (b *Block) onDumpOrd(r *signal.DumpOrd) {
	number := uint32(0)
	if r.N > 0 {
		number = r.Args[0]
	}
	switch number {
	case dumpMemory:
		b.gather.tell = true
		b.begin()
	case dumpCounters:
		b.gather.count = true
		b.begin()
	case dumpState:
		s := &b.state
		b.reportText(event.InfoEvent, fmt.Sprintf("State %d, start phase %d, president %d, dynamic id %d, epoch %d/%d, %d links, %s",
			s.State, s.StartPhase, s.President, s.DynamicID, b.gci[1], b.gci[0], b.links.Count(), version.Text(version.Number)))
	default:
		b.reportText(event.InfoEvent, fmt.Sprintf("DUMP %d is not supported: use %d (memory), %d (records in use) or %d (state of the node)",
			number, dumpMemory, dumpCounters, dumpState))
	}
}
