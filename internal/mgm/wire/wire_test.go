package wire

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestRequestsInOrder(t *testing.T) {
	in := "\nget version\n\nget nodeid\r\nversion: 256\r\npublic key: a public key\r\nname:\r\n\r\nset config_v2\nContent-Length: 8\n\nYWJj\nZGU\n\nbye\n\n"
	r := NewReader(strings.NewReader(in), RequestLimits)
	var got []string
	for {
		req, err := r.Request()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		line := req.Command
		for _, f := range req.Fields {
			line += "|" + f.Name + "=" + f.Value
		}
		got = append(got, line+"|"+string(req.Body))
	}
	want := []string{"get version|", "get nodeid|version=256|public key=a public key|name=|", "set config_v2|Content-Length=8|YWJj\nZGU", "bye|"}
	if strings.Join(got, ";") != strings.Join(want, ";") {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
}

func TestWhatIsNoRequestIsRefusedWithAReason(t *testing.T) {
	small := Limits{LineBytes: 20, Lines: 3, BodyBytes: 10}
	for _, c := range []struct{ in, want string }{
		{strings.Repeat("x", 30) + "\n\n", "longer than 20 bytes"},
		{strings.Repeat("x", 21) + "\n\n", "longer than 20 bytes"},
		{"get\x01\n\n", "control byte 0x01"},
		{"g\xff\n\n", "UTF-8"},
		{"get version\nno colon\n\n", "is not a line"},
		{"get version\n: x\n\n", "is not a line"},
		{"get version\na:1\nb:1\nc:1\nd:1\n\n", "more than 3 lines"},
		{"get version\na:1\n", "ended before"},
		{"get ver", "ended inside a line"},
		{"\n\n\n\n\n\nget\n\n", "empty lines"},
		{"set\nContent-Length: 11\n\n", "longer than 10"},
		{"set\nContent-Length: -1\n\n", "not a number"},
		{"set\nContent-Length: 9\n\nabc", "ended before"},
	} {
		_, err := NewReader(strings.NewReader(c.in), small).Request()
		var wireError *Error
		if !errors.As(err, &wireError) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want one with %q", c.in, err, c.want)
		}
	}
}

func TestReplies(t *testing.T) {
	r := NewReader(strings.NewReader("get nodeid reply\nnodeid: 2\nresult: Ok\n\nresult: Unknown command, 'nonsense'\n\n"), ReplyLimits)
	rep, err := r.Reply()
	if err != nil || rep.Header != "get nodeid reply" || rep.Result() != "Ok" {
		t.Fatalf("%+v, %v", rep, err)
	}
	if n, err := rep.Fields.Uint("nodeid", 0); n != 2 || err != nil {
		t.Fatalf("nodeid %d, %v", n, err)
	}
	if rep, err = r.Reply(); err != nil || rep.Header != "" || rep.Result() != "Unknown command, 'nonsense'" {
		t.Fatalf("%+v, %v", rep, err)
	}
	if _, err = r.Reply(); err != io.EOF {
		t.Fatalf("at the end: %v", err)
	}
}

func TestNoValueForgesALine(t *testing.T) {
	out := string(Begin("stop reply").Field("result", "a\nstopped: 3\r\n\r\nx").Int("n", -1).Bool("b", true).End())
	if out != "stop reply\nresult: a stopped: 3  x\nn: -1\nb: 1\n\n" {
		t.Fatalf("%q", out)
	}
	if got := string(Unknown("nonsense")); got != "result: Unknown command, 'nonsense'\n\n" {
		t.Fatalf("%q", got)
	}
}

// FuzzRequest holds the reader to its promise: a request, a clean end or an *Error, within the limits.
func FuzzRequest(f *testing.F) {
	f.Add([]byte("get version\n\n"))
	f.Add([]byte("get nodeid\nversion: 256\nnodetype: 0\npublic key: x\n\nbye\n\n"))
	f.Add([]byte("set config_v2\nContent-Length: 4\n\nabcd\n\n"))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
	limits := Limits{LineBytes: 100, Lines: 5, BodyBytes: 50}
	f.Fuzz(func(t *testing.T, in []byte) {
		r := NewReader(strings.NewReader(string(in)), limits)
		for {
			req, err := r.Request()
			if err == io.EOF {
				return
			}
			if err != nil {
				var wireError *Error
				if !errors.As(err, &wireError) {
					t.Fatalf("error of another kind: %v", err)
				}
				return
			}
			if req.Command == "" || len(req.Command) > limits.LineBytes || len(req.Fields) > limits.Lines || len(req.Body) > limits.BodyBytes {
				t.Fatalf("outside the limits: %+v", req)
			}
			for _, field := range req.Fields {
				if field.Name == "" || strings.ContainsAny(field.Name+field.Value, "\n\x00") {
					t.Fatalf("field %+v", field)
				}
			}
		}
	})
}
