package config

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// value is what one section holds of one parameter.
type value struct {
	set  bool   // a file, an override or the numbering of nodes gave it; else it is the default
	line int32  // line of the file that set it, 0 if none did
	num  int64  // number; 0 or 1 of a bool; place of an enum's value in Values
	str  string // text of a string or bitmask
}

// same compares what two values mean, not where they come from.
func (v value) same(w value) bool { return v.set == w.set && v.num == w.num && v.str == w.str }

// complaint is what is wrong with a value and what to write in its place; empty when nothing is.
type complaint struct{ text, suggestion string }

// maxValueBytes is more than any value needs, and less than what would make reading one expensive.
const maxValueBytes = 16 << 10

// read turns the text of a file into a value of p, checked against its range. bare says that the name stood alone,
// without separator and value, as a my.cnf may switch an option on.
func (p *Parameter) read(text string, bare bool) (value, string) {
	v, c := p.parse(text, bare)
	return v, c.text
}

func (p *Parameter) parse(text string, bare bool) (value, complaint) {
	if bare {
		if p.Kind == KindBool {
			return value{set: true, num: 1}, complaint{}
		}
		return value{}, complaint{"has no value", "write " + p.Name + "=" + p.example()}
	}
	if len(text) > maxValueBytes {
		return value{}, complaint{"is " + itoa(len(text)) + " bytes long", "write at most " + itoa(maxValueBytes) + " bytes"}
	}
	if text == "" && p.Kind != KindString {
		return value{}, complaint{"has an empty value", "write a value of " + p.Range() + ", or delete the line"}
	}
	switch p.Kind {
	case KindInt, KindInt64:
		return p.parseNumber(text)
	case KindBool:
		b, ok := parseBool(text)
		if !ok {
			return value{}, complaint{"is " + clip(text) + ", neither true nor false", "write 1 or 0"}
		}
		return value{set: true, num: b}, complaint{}
	case KindEnum:
		i, c := p.choose(text)
		return value{set: true, num: int64(i)}, c
	case KindBitmask:
		if _, c := parseCPUs(text, int(p.max)); c.text != "" {
			return value{}, c
		}
		return value{set: true, str: text}, complaint{}
	}
	if c := checkText(text); c.text != "" {
		return value{}, c
	}
	if len(p.Values) > 0 {
		i, c := p.choose(text)
		if c.text != "" {
			return value{}, c
		}
		text = p.Values[i]
	}
	return value{set: true, str: text}, p.parseText(text)
}

// parseText checks the strings that have a syntax of their own; an empty one is as good as none.
func (p *Parameter) parseText(text string) (c complaint) {
	if text == "" {
		return complaint{}
	}
	switch p.Name {
	case "ThreadConfig":
		_, c = parseThreadConfig(text)
	case "LogDestination":
		_, c = parseLogDestination(text)
	}
	return c
}

func (p *Parameter) parseNumber(text string) (value, complaint) {
	n, ok := parseNumber(text)
	if !ok {
		if isHuge(text) {
			return value{}, complaint{"is " + clip(text) + ", above its range of " + p.Range(), "write " + p.Max + " or less"}
		}
		if strings.HasPrefix(text, "-") {
			return value{}, complaint{"is " + clip(text) + ", below its range of " + p.Range(), "write " + p.Min + " or more"}
		}
		return value{}, complaint{"is " + clip(text) + ", which is not a number", "write digits, with K, M or G for powers of 1024, from " + p.Range()}
	}
	v := value{set: true, num: n}
	isDefault := p.Default != "" && n == p.def.num
	switch {
	case isDefault: // often 0, for "computed", below a range that begins higher
	case n < p.min:
		return value{}, complaint{"is " + clip(text) + ", below its range of " + p.Range(), "write " + p.Min + " or more"}
	case n > p.max:
		return value{}, complaint{"is " + clip(text) + ", above its range of " + p.Range(), "write " + p.Max + " or less"}
	}
	return v, complaint{}
}

// choose finds text among p.Values.
func (p *Parameter) choose(text string) (int, complaint) {
	for i, v := range p.Values {
		if strings.EqualFold(v, text) {
			return i, complaint{}
		}
	}
	return 0, complaint{"is " + clip(text) + ", which is none of " + p.Range(), "write " + nearest(text, p.Values)}
}

// example gives a value that p takes.
func (p *Parameter) example() string {
	switch {
	case p.Default != "":
		return p.Default
	case len(p.Values) > 0:
		return p.Values[0]
	case p.isNumber():
		return p.Min
	}
	return "VALUE"
}

// asksForMore says that v, of a parameter that is not supported, asks for what Cohort cannot do.
func (p *Parameter) asksForMore(v value) bool {
	for _, n := range p.Harmless {
		if v.num == n {
			return false
		}
	}
	return v.num != p.def.num || v.str != p.def.str
}

// format gives v as a file would have it.
func (p *Parameter) format(v value) string {
	switch p.Kind {
	case KindBool:
		return strconv.FormatBool(v.num != 0)
	case KindEnum:
		return p.Values[v.num]
	case KindString, KindBitmask:
		return v.str
	}
	if p.Unit == Bytes || p.Unit == BytesPerSecond {
		return formatBytes(v.num)
	}
	return strconv.FormatInt(v.num, 10)
}

// formatBytes writes n with the largest of G, M and K that leaves no remainder.
func formatBytes(n int64) string {
	for _, u := range [...]struct {
		shift  uint
		suffix string
	}{{30, "G"}, {20, "M"}, {10, "K"}} {
		if n != 0 && n&(1<<u.shift-1) == 0 {
			return strconv.FormatInt(n>>u.shift, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}

// parseNumber reads digits and one of the suffixes K, M and G in either case.
func parseNumber(text string) (int64, bool) {
	shift := uint(0)
	if n := len(text); n > 0 {
		switch lower(text[n-1]) {
		case 'k':
			shift = 10
		case 'm':
			shift = 20
		case 'g':
			shift = 30
		}
		if shift != 0 {
			text = text[:n-1]
		}
	}
	if text == "" || text[0] < '0' || text[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n<<shift>>shift != n {
		return 0, false
	}
	return n << shift, true
}

// isHuge says that text is a number, but one too large for parseNumber.
func isHuge(text string) bool {
	digits := strings.TrimRight(text, "kKmMgG")
	return len(text)-len(digits) <= 1 && digits != "" && strings.Trim(digits, "0123456789") == ""
}

func parseBool(text string) (int64, bool) {
	switch strings.ToLower(text) {
	case "1", "y", "yes", "true", "on":
		return 1, true
	case "0", "n", "no", "false", "off":
		return 0, true
	}
	return 0, false
}

// checkText refuses what could not be printed on one line and read back.
func checkText(text string) complaint {
	if !utf8.ValidString(text) {
		return complaint{"holds bytes that are no UTF-8", "write printable text"}
	}
	for i := 0; i < len(text); i++ {
		if c := text[i]; c < ' ' && c != '\t' || c == 0x7f {
			return complaint{"holds the control character " + strconv.QuoteRune(rune(c)), "write printable text"}
		}
	}
	return complaint{}
}

// maxCPUs bounds the length of a list of CPUs, which ranges make short to write.
const maxCPUs = 4096

// parseCPUs reads a list of CPU numbers and ranges, as in 0,2,4-7.
func parseCPUs(text string, highest int) ([]int, complaint) {
	var cpus []int
	for _, part := range strings.Split(text, ",") {
		part = strings.TrimSpace(part)
		from, to, isRange := strings.Cut(part, "-")
		a, okA := parseDigits(from, highest)
		b, okB := a, okA
		if isRange {
			b, okB = parseDigits(to, highest)
		}
		if !okA || !okB || a > b {
			return nil, complaint{"is " + clip(text) + ", where " + clip(part) + " is no CPU number or range",
				"write numbers of 0 to " + strconv.Itoa(highest) + " as in 0,2,4-7"}
		}
		if len(cpus)+b-a+1 > maxCPUs {
			return nil, complaint{"lists more than " + strconv.Itoa(maxCPUs) + " CPUs", "list the CPUs of the host"}
		}
		for ; a <= b; a++ {
			cpus = append(cpus, a)
		}
	}
	return cpus, complaint{}
}

// parseDigits reads a plain number of 0 to highest.
func parseDigits(text string, highest int) (int, bool) {
	text = strings.TrimSpace(text)
	if text == "" || len(text) > 9 {
		return 0, false
	}
	n := 0
	for i := 0; i < len(text); i++ {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
		n = n*10 + int(text[i]-'0')
	}
	return n, n <= highest
}

// clip quotes text for a message, shortened where it is long.
func clip(text string) string {
	const most = 60
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return strconv.Quote(text)
}
