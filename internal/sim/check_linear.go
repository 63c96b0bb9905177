package sim

import (
	"math"

	"github.com/anishathalye/porcupine"
)

// checkLinear demands that the history of each register is linearizable: as if each transaction on it had happened at one
// moment between its beginning and its answer. One whose outcome its client does not know may have happened at any time
// after its beginning, or never.
func checkLinear(x *run) {
	for _, c := range x.load.atomic {
		if x.net.failure != nil {
			return
		}
		if h := c.history(); !porcupine.CheckOperations(registerModel, h) {
			x.net.failf("%v: its history of %d transactions is not linearizable", c, len(h))
		}
	}
}

// touch is what a transaction did to a register.
type touch struct {
	reads, writes, unknown bool
	read, write            uint32
}

// registerModel is a register that holds a tag. Its state is a set of tags, as porcupine wants it where more than one
// may be.
var registerModel = (&porcupine.NondeterministicModel{
	Init: func() []interface{} { return []interface{}{uint32(0)} },
	Step: func(state, input, _ interface{}) []interface{} {
		is, t := state.(uint32), input.(touch)
		switch {
		case t.reads && t.read != is && !t.unknown:
			return nil
		case t.reads && t.read != is: // it cannot have happened here; but it may never have
			return []interface{}{is}
		case !t.writes:
			return []interface{}{is}
		case t.unknown:
			return []interface{}{is, t.write}
		}
		return []interface{}{t.write}
	},
	Equal: func(a, b interface{}) bool { return a == b },
}).ToModel()

// history is what the clients know of the register, the row's insert first and what was read at the end last.
func (c *cell) history() []porcupine.Operation {
	var h []porcupine.Operation
	first := uint32(0)
	for _, k := range c.changes {
		if k.insert {
			first = k.tag
		}
	}
	h = append(h, porcupine.Operation{Input: touch{writes: true, write: first}, Call: -2, Return: -1})
	seen := map[uint32]bool{c.final.tag: true} // never ranged over
	for i := range c.visits {
		if v := &c.visits[i]; v.reads && v.t.state == txnCommitted {
			seen[v.read] = true
		}
	}
	for i := range c.visits {
		v := &c.visits[i]
		t := touch{reads: v.reads, writes: v.writes, read: v.read, write: v.write}
		end := v.returned
		if v.t.state == txnUnknown {
			if !v.writes {
				continue
			}
			end = math.MaxInt64 - 1
			t.unknown = !seen[v.write] && !v.t.certain
		}
		h = append(h, porcupine.Operation{ClientId: v.t.slot.number, Input: t, Call: v.invoked, Return: end})
	}
	return append(h, porcupine.Operation{Input: touch{reads: true, read: c.final.tag}, Call: math.MaxInt64 - 1, Return: math.MaxInt64})
}
