package event

import (
	"errors"
	"strconv"
	"strings"

	"github.com/cohortdb/cohort/internal/version"
)

// AppendText writes the event as a sentence, without the node that reports it.
func (e *Event) AppendText(dst []byte) []byte {
	info, known := Lookup(e.Type)
	if !known {
		dst = append(dst, "event of unknown type "...)
		dst = strconv.AppendUint(dst, uint64(e.Type), 10)
		for _, a := range e.Args {
			dst = append(dst, ' ')
			dst = strconv.AppendUint(dst, uint64(a), 10)
		}
		if e.Text != "" {
			dst = append(append(dst, ' '), clean(e.Text)...)
		}
		return dst
	}
	if info.write != nil {
		return info.write(dst, e)
	}
	return appendForm(dst, info.Form, info.Args, e)
}

// String is the event as the cluster log has it behind the severity: "Node 1: Node 2 Disconnected".
func (e Event) String() string {
	dst := append([]byte("Node "), strconv.Itoa(int(e.Node))...)
	dst = append(dst, ": "...)
	return string(e.AppendText(dst))
}

// appendForm fills the placeholders of form.
func appendForm(dst []byte, form, names string, e *Event) []byte {
	for {
		open := strings.IndexByte(form, '{')
		if open < 0 {
			return append(dst, form...)
		}
		end := open + strings.IndexByte(form[open:], '}')
		if end < open {
			return append(dst, form...)
		}
		dst = append(dst, form[:open]...)
		name, verb, _ := strings.Cut(form[open+1:end], ":")
		dst = appendValue(dst, name, verb, names, e)
		form = form[end+1:]
	}
}

func appendValue(dst []byte, name, verb, names string, e *Event) []byte {
	if name == "text" {
		return append(dst, clean(e.Text)...)
	}
	v := e.Args[max(argIndex(names, name), 0)]
	switch verb {
	case "v":
		return append(dst, version.Text(v)...)
	case "x":
		return strconv.AppendUint(append(dst, "0x"...), uint64(v), 16)
	case "i":
		return strconv.AppendInt(dst, int64(int32(v)), 10)
	}
	return strconv.AppendUint(dst, uint64(v), 10)
}

// argIndex is the place of a name in a list separated by spaces, -1 if absent.
func argIndex(names, name string) int {
	for i := 0; names != ""; i++ {
		var head string
		head, names, _ = strings.Cut(names, " ")
		if head == name {
			return i
		}
	}
	return -1
}

// AppendFields writes the event as the lines of the parsable stream: type, time (seconds since 1970, 0 for now), node,
// then each number by its name; each line is name=value.
func (e *Event) AppendFields(dst []byte, seconds uint32) []byte {
	dst = appendField(dst, "type", uint64(e.Type))
	dst = appendField(dst, "time", uint64(seconds))
	dst = appendField(dst, "source_nodeid", uint64(e.Node))
	info, _ := Lookup(e.Type)
	names := info.Args
	for i := 0; names != "" && i < ArgsMax; i++ {
		var head string
		head, names, _ = strings.Cut(names, " ")
		dst = appendField(dst, head, uint64(e.Args[i]))
	}
	if e.Text != "" {
		dst = append(dst, "text="...)
		dst = append(dst, clean(e.Text)...)
		dst = append(dst, '\n')
	}
	return dst
}

func appendField(dst []byte, name string, value uint64) []byte {
	dst = append(append(dst, name...), '=')
	return append(strconv.AppendUint(dst, value, 10), '\n')
}

// ParseFields is the inverse of AppendFields. Names that this version does not know are passed over, because a newer
// server may send more.
func ParseFields(lines []string) (e Event, seconds uint32, err error) {
	typed := false
	for _, line := range lines {
		name, value, found := strings.Cut(line, "=")
		if !found {
			return Event{}, 0, errors.New("a line of an event is not name=value")
		}
		if name == "text" {
			e = e.WithText(value)
			continue
		}
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return Event{}, 0, errors.New("a value of an event is not a number")
		}
		switch name {
		case "type":
			if typed = n <= 0xffff; typed {
				e.Type = Type(n)
			}
		case "time":
			seconds = uint32(n)
		case "source_nodeid":
			e.Node = uint8(n)
		default:
			// The type comes first, so its names are known here.
			info, _ := Lookup(e.Type)
			if i := argIndex(info.Args, name); i >= 0 && i < ArgsMax {
				e.Args[i] = uint32(n)
			}
		}
	}
	if !typed {
		return Event{}, 0, errors.New("an event has no type")
	}
	return e, seconds, nil
}

// clean makes a text one printable line: it comes from another node and goes into logs and a line protocol.
func clean(text string) string {
	if len(text) > TextMax {
		text = text[:TextMax]
	}
	text = strings.ToValidUTF8(text, "?")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}

// writeMemoryUsage tells how full a kind of memory is: asked for, or because a threshold was crossed.
func writeMemoryUsage(dst []byte, e *Event) []byte {
	gth, pageBytes, used, total, block := int32(e.Args[0]), e.Args[1], e.Args[2], e.Args[3], e.Args[4]
	switch block {
	case BlockIndexMemory:
		dst = append(dst, "Index"...)
	default:
		dst = append(dst, "Data"...)
	}
	switch {
	case gth > 0:
		dst = append(dst, " usage increased to "...)
	case gth < 0:
		dst = append(dst, " usage decreased to "...)
	default:
		dst = append(dst, " usage is "...)
	}
	percent := uint64(0)
	if total > 0 {
		percent = uint64(used) * 100 / uint64(total)
	}
	dst = strconv.AppendUint(dst, percent, 10)
	dst = append(dst, "%("...)
	dst = strconv.AppendUint(dst, uint64(used), 10)
	dst = append(dst, ' ')
	dst = strconv.AppendUint(dst, uint64(pageBytes/1024), 10)
	dst = append(dst, "K pages of total "...)
	dst = strconv.AppendUint(dst, uint64(total), 10)
	return append(dst, ')')
}

// writeStopForced tells that a node died and why.
func writeStopForced(dst []byte, e *Event) []byte {
	action, signum, code, phase := e.Args[0], e.Args[1], e.Args[2], e.Args[3]
	dst = append(dst, "Forced node shutdown completed"...)
	if action == StopActionRestart {
		dst = append(dst, ", restarting"...)
	}
	dst = append(dst, '.')
	if phase != 0 && phase != PhaseStarted {
		dst = append(dst, " Occurred during startphase "...)
		dst = strconv.AppendUint(dst, uint64(phase), 10)
		dst = append(dst, '.')
	}
	if signum != 0 {
		dst = append(dst, " Initiated by signal "...)
		dst = strconv.AppendUint(dst, uint64(signum), 10)
		dst = append(dst, '.')
	}
	if code != 0 {
		dst = append(dst, " Caused by error "...)
		dst = strconv.AppendUint(dst, uint64(code), 10)
		if e.Text != "" {
			dst = append(append(dst, ": "...), clean(e.Text)...)
		}
		dst = append(dst, '.')
	} else if e.Text != "" {
		dst = append(append(append(dst, ' '), clean(e.Text)...), '.')
	}
	return dst
}

// writeStopCompleted tells that a node ended in order.
func writeStopCompleted(dst []byte, e *Event) []byte {
	dst = append(dst, "Node shutdown completed"...)
	if e.Args[0] == StopActionRestart {
		dst = append(dst, ", restarting"...)
	}
	dst = append(dst, '.')
	if e.Args[1] != 0 {
		dst = append(dst, " Initiated by signal "...)
		dst = strconv.AppendUint(dst, uint64(e.Args[1]), 10)
		dst = append(dst, '.')
	}
	return dst
}

// writeStopStarted tells that a node, or the cluster with it, begins to stop.
func writeStopStarted(dst []byte, e *Event) []byte {
	if e.Args[0] == StopScopeCluster {
		return append(dst, "Cluster shutdown initiated"...)
	}
	return append(dst, "Node shutdown initiated"...)
}

var startKinds = [...]string{"system restart", "initial start", "node restart", "initial node restart"}

// writeStartPhase tells that a start phase ended.
func writeStartPhase(dst []byte, e *Event) []byte {
	dst = append(dst, "Start phase "...)
	dst = strconv.AppendUint(dst, uint64(e.Args[0]), 10)
	dst = append(dst, " completed"...)
	if int(e.Args[1]) < len(startKinds) {
		dst = append(dst, " ("...)
		dst = append(dst, startKinds[e.Args[1]]...)
		dst = append(dst, ')')
	}
	return dst
}

// writeStartReport tells what a starting node waits for.
func writeStartReport(dst []byte, e *Event) []byte {
	dst = append(dst, "Start waits "...)
	dst = strconv.AppendUint(dst, uint64(e.Args[0]), 10)
	switch kind := e.Args[1]; {
	case kind > StartWaitsPhase:
		dst = append(dst, " s; start phase "...)
		dst = strconv.AppendUint(dst, uint64(kind-StartWaitsPhase), 10)
		return append(dst, " is under way"...)
	case kind == StartWaitsPresident:
		dst = append(dst, " s to be taken in by nodes"...)
	default:
		dst = append(dst, " s for nodes"...)
	}
	return appendNodes(append(dst, ' '), e.Args[2:7])
}

// appendNodes writes the node ids of a bit set: bit 0 of the first word is node 0.
func appendNodes(dst []byte, words []uint32) []byte {
	first := true
	for w, bits := range words {
		for b := 0; b < 32; b++ {
			if bits>>b&1 == 0 {
				continue
			}
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = strconv.AppendInt(dst, int64(w*32+b), 10)
		}
	}
	if first {
		dst = append(dst, '-')
	}
	return dst
}

// SetNode sets a node's bit in the words that StartReport carries (nodes 1 to 144 need five words).
func SetNode(words []uint32, node uint8) {
	if w := int(node) / 32; w < len(words) {
		words[w] |= 1 << (node % 32)
	}
}

// writeMemoryLayout tells one item of a data node's memory sum.
func writeMemoryLayout(dst []byte, e *Event) []byte {
	dst = append(append(dst, "Memory: "...), clean(e.Text)...)
	dst = append(dst, ' ')
	dst = strconv.AppendUint(dst, (uint64(e.Args[0])<<32|uint64(e.Args[1]))>>10, 10)
	return append(dst, " KB"...)
}

func writeCopied(dst []byte, e *Event) []byte {
	dst = strconv.AppendUint(append(dst, "Node "...), uint64(e.Args[0]), 10)
	dst = append(dst, " has copied all its fragments from its peers: "...)
	dst = strconv.AppendUint(dst, uint64(e.Args[1])<<32|uint64(e.Args[2]), 10)
	dst = append(dst, " rows, "...)
	dst = strconv.AppendUint(dst, (uint64(e.Args[3])<<32|uint64(e.Args[4]))>>10, 10)
	dst = append(dst, " KB, in "...)
	dst = strconv.AppendUint(dst, uint64(e.Args[5]), 10)
	return append(dst, " ms"...)
}

// writeBackupStatus tells how far a backup is; starting node 0 means that none runs.
func writeBackupStatus(dst []byte, e *Event) []byte {
	if e.Args[0] == 0 {
		return append(dst, "Backup not started"...)
	}
	dst = append(dst, "Backup "...)
	dst = strconv.AppendUint(dst, uint64(e.Args[1]), 10)
	dst = append(dst, " from node "...)
	dst = strconv.AppendUint(dst, uint64(e.Args[0]), 10)
	dst = append(dst, " has written "...)
	dst = strconv.AppendUint(dst, uint64(e.Args[3])<<32|uint64(e.Args[2]), 10)
	return append(dst, " bytes"...)
}
