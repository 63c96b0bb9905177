package host

import (
	"net"
	"strings"
	"testing"
)

// Connections that say nothing fill up what is kept for newcomers; who says Hello gets in all the same, and the log has
// a word about it, not one for each.
func TestConnectionsThatSayNothingKeepNobodyOut(t *testing.T) {
	n := newTestNode(t, 1, 1, nil).run(t)
	for range 2 * hellosMax {
		c, err := net.Dial("tcp", n.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	c := newClient(t, n, 51)[0]
	if _, err := c.Write(c.request(0, 0, 10)); err != nil {
		t.Fatal(err)
	}
	c.answers(t, 0, 10)
	if s := get(t, n.logged, "word about the crowd"); !strings.Contains(s, "it said nothing") {
		t.Fatal(s)
	}
	if len(n.logged) > 0 {
		t.Fatalf("and another one: %s", <-n.logged)
	}
}
