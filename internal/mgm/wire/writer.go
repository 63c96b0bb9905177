package wire

import (
	"strconv"
	"strings"
)

// Builder writes a request or a reply; its bytes go out in one piece.
type Builder struct{ buf []byte }

// Begin writes the command or header line.
func Begin(first string) *Builder {
	b := &Builder{}
	b.buf = append(append(b.buf, oneLine(first)...), '\n')
	return b
}

// Field writes a line. Ends of line in a value become spaces, so that no value can forge a line.
func (b *Builder) Field(name, value string) *Builder {
	b.buf = append(append(append(b.buf, oneLine(name)...), ": "...), oneLine(value)...)
	b.buf = append(b.buf, '\n')
	return b
}

// Uint writes a line with a number.
func (b *Builder) Uint(name string, value uint32) *Builder {
	return b.Field(name, strconv.FormatUint(uint64(value), 10))
}

// Int writes a line with a number that may be negative.
func (b *Builder) Int(name string, value int64) *Builder {
	return b.Field(name, strconv.FormatInt(value, 10))
}

// Bool writes a line with 1 or 0.
func (b *Builder) Bool(name string, value bool) *Builder {
	if value {
		return b.Field(name, "1")
	}
	return b.Field(name, "0")
}

// End writes the empty line and gives out all bytes.
func (b *Builder) End() []byte { return append(b.buf, '\n') }

// EndBody writes the empty line, then a body, then an empty line.
func (b *Builder) EndBody(body []byte) []byte {
	return append(append(append(b.buf, '\n'), body...), "\n\n"...)
}

// Unknown is the answer to a command that the server does not have.
func Unknown(command string) []byte { return Refusal("Unknown command, '" + command + "'") }

// Refusal is an answer without a header: the request could not be taken as it stands.
func Refusal(reason string) []byte { return []byte("result: " + oneLine(reason) + "\n\n") }

var lineEnds = strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ", "\x00", " ")

func oneLine(text string) string {
	if strings.ContainsAny(text, "\r\n\x00") {
		return lineEnds.Replace(text)
	}
	return text
}
