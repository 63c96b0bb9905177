// Package wire is the text protocol between a management server and those who talk to it: how a request and a reply are
// cut into lines, and nothing about what they mean.
//
// A request is a command line, then lines "name: value", then an empty line; where a line Content-Length says so, that
// many bytes of body follow. A reply is a header line, lines "name: value" and an empty line; an answer to a request that
// was not understood has no header, only its result line.
//
// The package owns the limits that protect a server from what arrives. It never dials, never logs, never keeps what it
// read. Invariants: whatever the other side sends, a reader returns a whole request, io.EOF at a clean end, or an
// *Error after which the connection must be closed; it never holds more than the limits allow, and it never panics (a
// fuzz test holds it to that).
//
// Read next: mgmd, which serves requests, and mgmclient, which sends them.
package wire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits bound what one request or reply may hold.
type Limits struct {
	LineBytes int // longest line, without its end
	Lines     int // most lines of fields
	BodyBytes int // longest body
}

// RequestLimits are what a server accepts: a list of 255 node ids fits a line, a configuration of 255 nodes a body.
var RequestLimits = Limits{LineBytes: 4096, Lines: 64, BodyBytes: 16 << 20}

// ReplyLimits are what a client accepts: show config has a line per parameter and node.
var ReplyLimits = Limits{LineBytes: 64 << 10, Lines: 200_000, BodyBytes: 16 << 20}

// Error says why a connection cannot go on: what came is no request or reply, or is larger than allowed.
type Error struct{ Reason string }

func (e *Error) Error() string { return e.Reason }

func malformed(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// Field is a line "name: value".
type Field struct{ Name, Value string }

// Fields are the lines of a request or reply in their order.
type Fields []Field

// Get is the value of the first field of that name, and whether there is one.
func (f Fields) Get(name string) (string, bool) {
	for i := range f {
		if f[i].Name == name {
			return f[i].Value, true
		}
	}
	return "", false
}

// Uint is the field's value as a number; an absent field gives def.
func (f Fields) Uint(name string, def uint32) (uint32, error) {
	text, ok := f.Get(name)
	if !ok {
		return def, nil
	}
	n, err := strconv.ParseUint(text, 0, 32)
	if err != nil {
		return 0, fmt.Errorf("%s: %q is not a number", name, text)
	}
	return uint32(n), nil
}

// Request is what a client asks.
type Request struct {
	Command string
	Fields  Fields
	Body    []byte
}

// Reply is what a server answers.
type Reply struct {
	// Header is the first line; empty where the server did not understand the request.
	Header string
	Fields Fields
}

// Result is the reply's result line, empty if there is none.
func (r *Reply) Result() string {
	v, _ := r.Fields.Get("result")
	return v
}

// Reader cuts a stream into requests or replies.
type Reader struct {
	in     *bufio.Reader
	limits Limits
}

// NewReader reads from in within limits.
func NewReader(in io.Reader, limits Limits) *Reader {
	return &Reader{in: bufio.NewReaderSize(in, limits.LineBytes+2), limits: limits}
}

// Buffered is how many bytes were taken from the stream and not yet given out.
func (r *Reader) Buffered() int { return r.in.Buffered() }

// Rest gives out the bytes that Buffered counts.
func (r *Reader) Rest() []byte {
	rest := make([]byte, r.in.Buffered())
	n, _ := io.ReadFull(r.in, rest)
	return rest[:n]
}

// Line reads one line without its end. A stream that ends inside a line is an *Error, one that ends before it io.EOF.
func (r *Reader) Line() (string, error) {
	raw, err := r.in.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", malformed("a line is longer than %d bytes", r.limits.LineBytes)
	case errors.Is(err, io.EOF) && len(raw) > 0:
		return "", malformed("the connection ended inside a line")
	case err != nil:
		return "", err
	}
	raw = raw[:len(raw)-1]
	if n := len(raw); n > 0 && raw[n-1] == '\r' {
		raw = raw[:n-1]
	}
	if len(raw) > r.limits.LineBytes {
		return "", malformed("a line is longer than %d bytes", r.limits.LineBytes)
	}
	if err := printable(raw); err != nil {
		return "", err
	}
	return string(raw), nil
}

// printable refuses bytes that no line of this protocol has.
func printable(line []byte) error {
	for _, b := range line {
		if b < ' ' && b != '\t' || b == 0x7f {
			return malformed("a line holds the control byte %#02x: this port speaks the text protocol of management", b)
		}
	}
	if !utf8.Valid(line) {
		return malformed("a line is not valid UTF-8: this port speaks the text protocol of management")
	}
	return nil
}

// Command reads the command line of the next request, skipping empty lines before it.
func (r *Reader) Command() (string, error) {
	for range r.limits.Lines {
		line, err := r.Line()
		if err != nil {
			return "", err
		}
		if line = strings.TrimSpace(line); line != "" {
			return line, nil
		}
	}
	return "", malformed("%d empty lines in a row", r.limits.Lines)
}

// Finish reads what follows a command line up to the empty line, and the body where there is one.
func (r *Reader) Finish(command string) (*Request, error) {
	req := &Request{Command: command}
	var err error
	if req.Fields, err = r.fields(nil); err != nil {
		return nil, noEOF(err)
	}
	if _, ok := req.Fields.Get("Content-Length"); ok {
		length, err := req.Fields.Uint("Content-Length", 0)
		if err != nil {
			return nil, malformed("%v", err)
		}
		if req.Body, err = r.Body(int64(length)); err != nil {
			return nil, noEOF(err)
		}
	}
	return req, nil
}

// Request reads a whole request.
func (r *Reader) Request() (*Request, error) {
	command, err := r.Command()
	if err != nil {
		return nil, err
	}
	return r.Finish(command)
}

// Reply reads a whole reply, not the body that may follow it.
func (r *Reader) Reply() (*Reply, error) {
	first, err := r.Line()
	if err != nil {
		return nil, err
	}
	rep := &Reply{}
	var fields Fields
	if strings.Contains(first, ":") {
		f, err := cutField(first)
		if err != nil {
			return nil, err
		}
		fields = append(fields, f)
	} else if rep.Header = strings.TrimSpace(first); rep.Header == "" {
		return nil, malformed("a reply begins with an empty line")
	}
	if rep.Fields, err = r.fields(fields); err != nil {
		return nil, noEOF(err)
	}
	return rep, nil
}

// fields reads lines "name: value" up to the empty line and adds them to fields.
func (r *Reader) fields(fields Fields) (Fields, error) {
	for {
		line, err := r.Line()
		if err != nil {
			return nil, err
		}
		if strings.TrimSpace(line) == "" {
			return fields, nil
		}
		if len(fields) == r.limits.Lines {
			return nil, malformed("more than %d lines of fields", r.limits.Lines)
		}
		f, err := cutField(line)
		if err != nil {
			return nil, err
		}
		fields = append(fields, f)
	}
}

func cutField(line string) (Field, error) {
	name, value, found := strings.Cut(line, ":")
	name = strings.TrimSpace(name)
	if !found || name == "" {
		return Field{}, malformed("%q is not a line `name: value`", shorten(line))
	}
	return Field{name, strings.TrimSpace(value)}, nil
}

// Body reads length bytes.
func (r *Reader) Body(length int64) ([]byte, error) {
	if length < 0 || length > int64(r.limits.BodyBytes) {
		return nil, malformed("a body of %d bytes is longer than %d", length, r.limits.BodyBytes)
	}
	// The length is the other side's claim: take room as the bytes come.
	body, err := io.ReadAll(io.LimitReader(r.in, length))
	if err == nil && int64(len(body)) < length {
		err = io.ErrUnexpectedEOF
	}
	return body, noEOF(err)
}

// noEOF makes an end inside a request or reply an *Error.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return malformed("the connection ended before the empty line or the whole body")
	}
	return err
}

// shorten keeps a foreign line from filling a log.
func shorten(line string) string {
	const most = 80
	if len(line) <= most {
		return line
	}
	return line[:most] + "…"
}
