package config

import (
	"bytes"
	"os"
	"testing"
)

func mustParse(t *testing.T, text string, opt Options) (*Config, []Warning) {
	t.Helper()
	c, warnings, err := Parse([]byte(text), opt)
	if err != nil {
		t.Fatalf("%v\nin\n%s", err, text)
	}
	return c, warnings
}

// checkRoundTrip demands that c survives its own text and its own bytes.
func checkRoundTrip(t *testing.T, c *Config) {
	t.Helper()
	want, err := c.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	fromText, _, err := Parse([]byte(c.Text()), Options{FileName: "text"})
	if err != nil {
		t.Fatalf("own text: %v\n%s", err, c.Text())
	}
	fromBytes, err := UnmarshalBinary(want)
	if err != nil {
		t.Fatalf("own bytes: %v", err)
	}
	for _, other := range []*Config{fromText, fromBytes} {
		got, err := other.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) || other.Text() != c.Text() {
			t.Fatalf("changed on its way: was\n%s\nis\n%s", c.Text(), other.Text())
		}
	}
}

func document004(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/document-004.cnf")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestDocument004AsItStands(t *testing.T) {
	hosts := map[string]string{"n1": "127.0.0.1", "n2": "127.0.0.1"}
	c, warnings := mustParse(t, string(document004(t)), Options{FileName: "document-004.cnf", MyCnf: true, HostMap: hosts})
	checkRoundTrip(t, c)
	var ids []int
	for _, n := range c.Nodes {
		ids = append(ids, n.ID)
		if n.HostName != "127.0.0.1" {
			t.Errorf("node %d is on %q", n.ID, n.HostName)
		}
	}
	if len(ids) != 6 || ids[0] != 1 || ids[1] != 49 || ids[5] != 53 || c.Node(49).Type != ManagementNode || c.Node(50).Type != APINode {
		t.Errorf("ids are %v", ids)
	}
	n := c.Node(1)
	if n.Type != DataNode || n.NodeGroup != 0 || c.Replicas() != 1 || !n.Bool("Diskless") {
		t.Errorf("data node: %+v", n)
	}
	if n.DataMemory() != 2150<<20 || n.Int("MaxNoOfExecutionThreads") != 6 || n.Int("MaxNoOfConcurrentTransactions") != 16384 {
		t.Errorf("data node has DataMemory %d", n.DataMemory())
	}
	l := c.Link(50, 1)
	if l.A != 1 || l.B != 50 || l.Int("SendBufferMemory") != 8<<20 || l.Int("ReceiveBufferMemory") != 8<<20 || !l.IsSet("SendBufferMemory") || l.IsSet("Group") || l.Int("Group") != 55 {
		t.Errorf("link: %+v", l)
	}
	if len(warnings) != 1 || warnings[0].Line != 7 || warnings[0].Parameter != "LongMessageBuffer" || warnings[0].File != "document-004.cnf" {
		t.Errorf("warnings: %v", warnings)
	}
}
